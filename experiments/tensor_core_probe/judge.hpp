// The judge: outputs that a device gave, word by word against what computes them on the host.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "experiments/capture/tensor_core.hpp"
#include "experiments/tensor_core_probe/capture_file.hpp"
#include "numerics/tensor_core/tensor_core_model.hpp"

namespace fp16lab::probe {

using fp16lab::name_of;

/// The project's name of a format of captures.
DType dtype_of(const Format& format);

/// The generation whose rows describe mma.sync and wmma of a device: "hopper" for 9.0. Empty for a capability
/// that the table does not know.
std::string_view generation_of(Capability capability);

/// The row that should describe the instruction on the device, with `generation` in place of
/// generation_of(capability) where it is not empty. wgmma has a generation of its own, on every device. No
/// value where the table has no such row, or where tensor cores of the capability do not execute the
/// instruction.
std::optional<TensorCoreModel> row_for(const Instruction& in, Capability capability,
                                       std::string_view generation = {});

/// What computes one output on the host: a row of A, a column of B (k words each) and c.
using DotProduct = std::function<std::uint32_t(std::span<const std::uint32_t> a,
                                               std::span<const std::uint32_t> b, std::uint32_t c)>;
/// fused_dot_add with this row, on operands of this format.
DotProduct dot_product_of(const TensorCoreModel& row, const Format& operands);

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
