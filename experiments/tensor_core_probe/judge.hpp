// The judge: outputs that a device gave, word by word against what computes them on the host.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "experiments/tensor_core_probe/capture_file.hpp"
#include "experiments/tensor_core_probe/instruction.hpp"

namespace fp16lab::probe {

/// An output that is not as expected.
struct Difference {
  std::string place;  ///< "tile 3, row 5, column 2"; in a capture "question V37", "cancelling, tile 3, ..."
  Words a, b;
  std::uint32_t c = 0;
  std::uint32_t device = 0;    ///< the word that the device gave
  std::uint32_t expected = 0;  ///< the host's
};

struct Comparison {
  std::uint64_t outputs = 0;
  std::uint64_t differing = 0;
  std::vector<Difference> first;  ///< the first `kept` in the order of the tiles
  std::size_t kept = 3;
};

/// Adds the outputs `d` of these tiles. Differences do not depend on `threads`.
void compare_tiles(const Instruction& in, const Tiles& tiles, const Words& d, int threads,
                   const DotProduct& expected, Comparison& comparison);

/// Runs at least `outputs` random outputs on the device and compares each with `expected`, bit for bit.
Comparison compare_random(Device& device, const Instruction& in, Distribution distribution,
                          std::uint64_t seed, std::uint64_t outputs, int threads, const DotProduct& expected);

/// The outputs of one instruction in a capture against its row.
struct CaptureVerdict {
  const Instruction* instruction;
  std::string model;                 ///< the row's name; empty: the table has none, nothing was compared
  std::uint64_t questions = 0;       ///< vectors compared
  std::uint64_t random_outputs = 0;  ///< outputs compared
  std::vector<Difference> differences;
};

/// Every word of the capture against the rows of its capability, or of `generation` where it is not empty. In
/// the order of `instructions`. Does not depend on `threads`. std::runtime_error as operands_of.
std::vector<CaptureVerdict> judge(const Capture& capture, std::string_view generation, int threads);

}  // namespace fp16lab::probe
