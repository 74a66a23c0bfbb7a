// A decoded instruction: a function over the 32 lanes of a warp, what its spelling says, where its operands
// are.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace fp16lab::engine::ptx {

inline constexpr int lanes = 32;
inline constexpr std::uint32_t all_lanes = 0xffffffffu;
inline constexpr std::uint32_t no_operand = 0xffffffffu;
inline constexpr int register_poison = 0xa5;  ///< value of each byte that no instruction has written

/// A fundamental type of PTX (PTX ISA, "Fundamental Types").
struct Type {
  char kind = 'b';  ///< u, s, f, b; 'h' for bf16, 't' for tf32; p for a predicate
  int bits = 0;
  constexpr int bytes() const { return bits / 8; }
  constexpr bool is_float() const { return kind == 'f' || kind == 'h' || kind == 't'; }
  constexpr bool operator==(const Type&) const = default;
};

/// Given to a machine, it makes what floating-point instructions and mma.sync would compute, on patterns of
/// bits whose meaning is its own. Everything else (moves, loads, shuffles, matrix loads, integers) carries
/// them as they are. std::invalid_argument where an operation has no meaning; the machine adds the place.
class Terms {
 public:
  virtual ~Terms() = default;
  /// One lane of an instruction with results of type `to`. Unused operands are 0. The opcode lives as long as
  /// the program: "fma", "add", "cvt".
  virtual std::uint64_t operate(std::string_view opcode, Type to, Type from,
                                const std::uint64_t (&operands)[3]) = 0;
  /// One output of mma.sync: c and the products a[k] * b[k] in ascending k, of which the tensor core adds
  /// `block_size` at a time.
  virtual std::uint32_t multiply(std::span<const std::uint32_t> a, std::span<const std::uint32_t> b,
                                 std::uint32_t c, int block_size) = 0;
};

enum class Space : std::uint8_t { generic, parameter, global, constant, shared, local };

class Warp;
struct Block;
struct Row;
struct Instruction;
using Handler = void (*)(Warp&, const Instruction&);

/// [base + displacement]
struct Address {
  std::uint32_t base = no_operand;  ///< a register of 32 or 64 bits, or none
  bool is_wide = true;              ///< it has 64
  std::int64_t displacement = 0;
};

struct Instruction {
  Handler handler = nullptr;
  const Row* row = nullptr;  ///< its row of the table
  // The instruction's place and operands in the text.
  std::uint32_t line = 0;
  std::uint32_t guard = no_operand;  ///< a predicate
  bool guard_negated = false;
  bool negated = false;   ///< its predicate operand is taken negated
  bool computes = false;  ///< in floating point: on terms, where the machine has them
  Type to, from;          ///< types of its results and of its sources
  int to_register = 0;    ///< bits of registers that may be wider than their type
  int from_register = 0;
  Space space = Space::generic;
  bool is_strong = false;     ///< volatile or atomic: races with no other one of its kind
  std::uint8_t vector = 1;    ///< elements
  std::int64_t constant = 0;  ///< target of a branch, or an integer
  std::array<Address, 2> addresses;
  /// Bytes from the beginning of a warp's register file. 32 values each; predicates have 32 bits in one word.
  std::array<std::uint32_t, 14> operands{};
};

/// %tid.x and the like.
struct SpecialRegister;

/// A kernel's body.
struct Code {
  std::vector<Instruction> instructions;
  std::vector<std::byte> registers;  ///< a warp's register file as it begins: constants, and poison
  std::vector<std::pair<std::uint32_t, std::uint32_t>> constants;          ///< their places in it, and bytes
  std::vector<std::pair<const SpecialRegister*, std::uint32_t>> specials;  ///< and their places in it
  std::size_t static_shared_bytes = 0;
  std::size_t dynamic_shared_offset = 0;
  std::size_t local_bytes = 0;
  int shared_granule = 16, global_granule = 16;  ///< bytes of the smallest access
};

// Addresses. Each space but global memory, whose addresses are the host's, begins at this offset of its own
// window: 0 is no address. Generic ones of shared and local memory are in windows without host memory.
inline constexpr std::uint64_t space_begin = 0x1000;
inline constexpr std::uint64_t shared_window = 0x5a00'0000'0000'0000u;
inline constexpr std::uint64_t local_window = 0x5b00'0000'0000'0000u;
inline constexpr std::uint64_t window_mask = 0xff00'0000'0000'0000u;

}  // namespace fp16lab::engine::ptx
