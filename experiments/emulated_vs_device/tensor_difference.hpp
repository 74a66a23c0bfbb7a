// Where two back ends' tensors differ: which one first, and its first element with both bit patterns.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/backend/backend.hpp"
#include "engine/train/trainer.hpp"
#include "numerics/text/named_enum.hpp"

namespace fp16lab::experiments {

enum class TensorKind : std::uint8_t { gradient, parameter, buffer, optimizer_state, step_state };
using fp16lab::name_of;
constexpr std::array<std::string_view, 5> names_of(TensorKind) {
  return {"gradient", "parameter", "buffer", "optimizer state", "step state"};
}

/// A tensor of a run under the name that both sides know it by.
struct RunTensor {
  TensorKind kind = TensorKind::parameter;
  std::string name;
  engine::Tensor tensor;
};

/// What a training step computed and left, in the order of the computation: gradients from the last layer to
/// the first, then parameters, buffers, optimizer state and the scalars of the step. Shares the trainer's
/// memory.
std::vector<RunTensor> tensors_of(engine::Trainer& trainer);
/// The gradients among them.
std::vector<RunTensor> gradients_of(engine::Trainer& trainer);

/// One word for all of them, from the back end's digests.
std::uint64_t digest_of(engine::Backend& backend, const std::vector<RunTensor>& tensors);

struct TensorDifference {
  TensorKind kind = TensorKind::parameter;
  std::string name;
  std::string emulated, device;  ///< what each side has: "f32 (10, 784)"
  std::uint64_t emulated_digest = 0, device_digest = 0;
  std::uint64_t elements = 0,
                differing = 0;  ///< differing: 0 where the two cannot be compared (types, shapes)
  std::uint64_t first = 0;      ///< row-major index of the first element that differs
  std::uint64_t emulated_bits = 0, device_bits = 0;
  int digits = 0;  ///< hexadecimal digits of an element
};

/// "gradient fc1.weight, f32 (10, 784): 3 of 7840 elements differ; element 17: emulated 3f800000, device
/// 3f800001".
std::string text_of(const TensorDifference& difference);

/// All tensors whose digests differ, or that one side lacks, in the order of `emulated`.
std::vector<TensorDifference> differing_tensors(engine::Backend& emulated_backend,
                                                const std::vector<RunTensor>& emulated,
                                                engine::Backend& device_backend,
                                                const std::vector<RunTensor>& device);

}  // namespace fp16lab::experiments
