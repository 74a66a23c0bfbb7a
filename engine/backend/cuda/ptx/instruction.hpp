// A decoded instruction: a function over the 32 lanes of a warp, and where its operands lie.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fp16lab::engine::ptx {

inline constexpr int lanes = 32;
inline constexpr std::uint32_t all_lanes = 0xffffffffu;

/// A fundamental type of PTX (PTX ISA, "Fundamental Types").
struct Type {
  char kind = 'b';  ///< u, s, f, b; 'h' for bf16, 't' for tf32; p for a predicate
  int bits = 0;
  int bytes() const { return bits / 8; }
};

enum class Space : std::uint8_t { parameter, global, constant, shared, local, generic };

class Warp;
struct Instruction;
using Handler = void (*)(Warp&, const Instruction&);

inline constexpr std::uint32_t no_operand = 0xffffffffu;

struct Instruction {
  Handler handler = nullptr;         ///< computes on numbers
  Handler on_terms = nullptr;        ///< the same on terms (Arithmetic)
  std::uint32_t guard = no_operand;  ///< a predicate in the register file
  bool guard_negated = false;
  bool negated = false;       ///< its predicate operand is taken negated
  bool wide_address = true;   ///< the base register of its address has 64 bits
  bool strong = false;        ///< volatile or atomic: races with no other one of its kind
  std::uint8_t vector = 1;    ///< elements of a vector access
  std::uint32_t line = 0;     ///< of the PTX file
  std::int64_t constant = 0;  ///< displacement of an address, target of a branch, an integer of the text
  /// Bytes from the beginning of a warp's register file. 32 values each, predicates 32 bits in one word.
  std::array<std::uint32_t, 16> operands{};
};

/// What a special register holds, and where it lies in the register file.
enum class Special : std::uint8_t {
  tid_x,
  tid_y,
  tid_z,
  ntid_x,
  ntid_y,
  ntid_z,
  ctaid_x,
  ctaid_y,
  ctaid_z,
  nctaid_x,
  nctaid_y,
  nctaid_z,
  laneid,
  lanemask_eq,
  lanemask_le,
  lanemask_lt,
  lanemask_ge,
  lanemask_gt
};

/// A kernel's body. Its register file: special registers and constants first, then the registers.
struct Code {
  std::vector<Instruction> instructions;
  std::vector<std::pair<Special, std::uint32_t>> specials;
  struct Constant {
    std::uint64_t value;
    std::uint32_t offset;
    int bytes;  ///< 0: a predicate
  };
  std::vector<Constant> constants;
  std::uint32_t first_register = 0;  ///< bytes
  std::uint32_t file_bytes = 0;
  std::size_t static_shared_bytes = 0;
  std::size_t dynamic_shared_offset = 0;
  std::size_t local_bytes = 0;
  int shared_granule = 16, global_granule = 16;  ///< bytes of the smallest access
};

// Addresses. Each space but global memory, whose addresses are the host's, begins at this offset of its own window:
// 0 is no address. Generic ones of shared and local memory lie in windows where no host memory is.
inline constexpr std::uint64_t space_begin = 0x1000;
inline constexpr std::uint64_t shared_window = 0x5a00'0000'0000'0000u;
inline constexpr std::uint64_t local_window = 0x5b00'0000'0000'0000u;
inline constexpr std::uint64_t window_mask = 0xff00'0000'0000'0000u;

}  // namespace fp16lab::engine::ptx
