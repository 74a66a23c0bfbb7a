// The table of instructions: every spelling that this machine executes, and by which clause of the PTX ISA;
// and that of special registers. A word of PTX is its parts: add.rn.f32 is add, rn and f32.
#pragma once

#include <algorithm>
#include <span>
#include <string_view>
#include <vector>

#include "tests/machines/ptx/instruction.hpp"

namespace fp16lab::engine::ptx {

struct Row {
  /// Parts with dots between them. {a,b}: one of these. A ? after a part: it may be absent.
  std::string_view spelling;
  /// Operands in the order of the text, a letter each; capitals are destinations, small ones sources.
  ///   T t  of the instruction's type: of the first one that it names; of the last one
  ///   U u  the same, in a register as wide as an integer type or wider (PTX ISA 9.4.1)
  ///   W w  twice as wide            R r  of 32 bits
  ///   H h  half as wide             S    as R, and after a | a predicate that may be absent
  ///   P p  a predicate              n    one that may be negated
  ///   m    an address in the space that the instruction names; s in shared memory; g in global memory
  ///   i    an integer               l    a label
  ///   0    barrier 0
  /// After a letter: 1, 2 or 4, that many of them in braces; * as many as .v4 or .x4 and the like say; ?
  /// that it may be absent.
  std::string_view operands;
  std::string_view clause;    ///< PTX ISA 9.0
  Handler handler = nullptr;  ///< for all its spellings; or:
  /// That of an instruction whose operands are known. std::invalid_argument for values that it does not take.
  Handler (*bind)(Instruction& instruction) = nullptr;
  bool computes = false;  ///< where its type is one of floating point

  constexpr std::string_view opcode() const { return spelling.substr(0, spelling.find('.')); }
};

/// A letter of Row::operands.
struct Slot {
  char letter = 0;
  std::uint8_t count = 0;  ///< elements of a vector; 0: no braces
  bool is_optional = false;
};

/// What the parts of a word say, and the rows that spell it: none, or two whose operands have braces at
/// different places.
struct Spelling {
  Instruction instruction;
  struct Form {
    const Row* row;
    std::vector<Slot> operands;
  };
  std::vector<Form> forms;
};
Spelling spelling_of(std::string_view word);

struct SpecialRegister {
  std::string_view name;
  std::uint32_t (*value)(const Block& block, std::uint32_t thread);
};
std::span<const SpecialRegister> special_registers();

/// u32, s64, f16, pred, ...; kind '?' for other words.
constexpr Type type_of(std::string_view word) {
  if (word == "pred") return {'p', 1};
  if (word == "bf16") return {'h', 16};
  if (word == "tf32") return {'t', 32};
  const std::string_view width = word.substr(std::min<std::size_t>(word.size(), 1));
  const int bits = width == "8" ? 8 : width == "16" ? 16 : width == "32" ? 32 : width == "64" ? 64 : 0;
  const bool is_kind = !word.empty() && std::string_view("usfb").find(word[0]) != std::string_view::npos;
  return {bits != 0 && is_kind ? word[0] : '?', bits};
}

}  // namespace fp16lab::engine::ptx
