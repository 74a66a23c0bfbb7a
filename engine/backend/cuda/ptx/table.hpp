// The table of instructions: every spelling that this machine executes, and by which clause of the PTX ISA.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "engine/backend/cuda/ptx/instruction.hpp"

namespace fp16lab::engine::ptx {

/// What a spelling means: filled by the row's `bind`.
struct Form {
  std::vector<std::string_view>
      parts;  ///< one for each part of the row's pattern; empty where an option is absent
  Type type;  ///< of the instruction, the last part
  Handler handler = nullptr;
  Handler on_terms = nullptr;  ///< null: as handler
  Space space = Space::generic;
  bool strong = false;
  int vector = 1;
  int access_bytes = 0;  ///< of memory that one access touches; 0: none
};

struct Row {
  std::string_view name;
  /// Parts behind the name: ".{a,b}" one of these; a "?" behind a part: it may be absent.
  std::string_view pattern;
  /// Operands, one letter each, in the order of the text:
  ///   d a  destination, source of the instruction's type        D A  of twice its width
  ///   r x  destination, source of 32 bits                       p q  predicates; a source may be negated (!p)
  ///   c C  destination, source of a conversion: as wide as its own type or wider
  ///   V    what a load or store moves: as wide as the type or wider; a vector {..} if the spelling has .v2 or .v4
  ///   m    address                                              k g  address in shared memory, in global memory
  ///   S    32-bit destination, and behind a | a predicate that may be absent
  ///   h H  {low, high} of half the width: source, destination   M  as many 32-bit registers as the spelling says
  ///   4 2 1  a vector of so many 32-bit registers               0  barrier 0
  ///   i    an integer in the text                               l  a label
  ///   y    as x, or absent
  std::string_view operands;
  std::string_view key;     ///< what `bind` knows it by
  std::string_view clause;  ///< PTX ISA 9.0
  void (*bind)(Form& form, std::string_view key);
};

/// Of one name there may be several rows.
std::span<const Row> table();
/// Fills `form.parts`; false if the spelling is no one of the row's. `parts`: what stands behind the name.
bool matches(const Row& row, std::span<const std::string_view> parts, Form& form);
/// u32, s64, f16, pred, ...; kind '?' for others.
Type type_of(std::string_view name);

// Binders, by file.
void bind_integer(Form& form, std::string_view name);
void bind_compare(Form& form);
void bind_float(Form& form, std::string_view name);
void bind_convert(Form& form);
void bind_memory(Form& form, std::string_view name);
void bind_control(Form& form, std::string_view name);
void bind_exchange(Form& form, std::string_view name);
void bind_matrix(Form& form, std::string_view name);

}  // namespace fp16lab::engine::ptx
