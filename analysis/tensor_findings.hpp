// What an account says about tensors in a format: what casts made of gradients, or what the format would make
// of values. Internal to analysis/.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "analysis/account.hpp"
#include "analysis/tensor_state.hpp"

namespace fp16lab::analysis {

/// The subject: the casts of a run, or a format at a scale.
struct Subject {
  std::string makes;   ///< "Casts to FP16 made", "FP16 at 2^0 makes"
  std::string values;  ///< "gradients", "values"
  DType format = DType::f16;
};

using States = std::span<const TensorState>;  ///< for several steps: each tensor in each step

/// `lost`: the rate of all tensors together. Nothing where no value becomes zero.
std::optional<Finding> underflow_finding(States tensors, const RateInterval& lost, const Subject& subject);
/// Nothing where no tensor is distorted (FitSums::is_distorted).
std::optional<Finding> distortion_finding(States tensors, DType format);

}  // namespace fp16lab::analysis
