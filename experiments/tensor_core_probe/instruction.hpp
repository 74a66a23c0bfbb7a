// Which row of the table of tensor cores describes an instruction of experiments/capture/tensor_core.hpp.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>

#include "experiments/capture/tensor_core.hpp"
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

}  // namespace fp16lab::probe
