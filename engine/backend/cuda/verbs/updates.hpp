// What the optimizers' kernels share: the update of one parameter, and how its new weights are stored.
#pragma once

#include <initializer_list>

#include "engine/backend/cuda/runtime/element_types.hpp"
#include "engine/backend/cuda/runtime/launch.hpp"
#include "engine/backend/cuda/runtime/packs.hpp"
#include "engine/backend/cuda/verbs/backend_impl.hpp"
#include "engine/backend/cuda/verbs/stochastic.hpp"
#include "engine/backend/optimizer_functions.hpp"
#include "numerics/convert/convert.hpp"

namespace fp16lab::engine::gpu::updates {

using functions::Gives;

/// Elements that a thread updates at once: 16 bytes of FP32, 8 bytes of a 16-bit dtype.
inline constexpr int width = 4;
inline constexpr int threads = 256;
/// Blocks walk on by grid strides from here: each computes the FP64 scalars of the step once.
inline constexpr std::int64_t most_blocks = 4096;

__device__ __forceinline__ bool is_skipped(const StepState* state, int optimizer) {
  return state->found_inf[static_cast<std::size_t>(optimizer)] != 0.0f;
}

/// What all optimizers update, and how the new weights are stored. Kernels take it by value and begin() it.
template <class Weight, class Gradient>
struct Update {
  Weight* weight;
  const Gradient* gradient;
  Weight* compensation;  ///< null: none
  std::int64_t count;
  float gradient_factor;
  bool packed;  ///< may all tensors of the update be accessed in packs?
  bool stochastic;
  PhiloxStream random;

  __device__ void begin(const StepState* state) {
    random.iteration = static_cast<std::uint32_t>(state->iteration);
  }

  /// The gradient that the optimizer sees.
  __device__ float factored(Gradient element) const {
    const float g = loaded(element);
    return gradient_factor == 1.0f ? g : functions::Multiply{}(g, gradient_factor);
  }

  __device__ Gives gives() const { return compensation == nullptr ? Gives::weight : Gives::change; }

  /// The new weight where there is no compensation.
  __device__ Weight rounded(float value, std::uint32_t random_bits) const {
    if constexpr (sizeof(Weight) == 2) {
      if (stochastic) return rounded_stochastically<Weight>(value, random_bits);
    }
    return stored<Weight>(value);
  }

  /// Kahan's sum: the new weight; `kept` becomes the next compensation.
  __device__ static Weight compensated(Weight old, float change, Weight& kept) {
    const float w = loaded(old), y = functions::compensated_change(loaded(kept), change);
    const Weight sum = stored<Weight>(functions::compensated_sum(w, y));
    kept = stored<Weight>(functions::compensation_left(w, y, loaded(sum)));
    return sum;
  }

  /// Elements i to i + width - 1: w, the old weights, become new ones from what the element functions gave.
  __device__ void store_results(std::int64_t i, Pack<Weight, width>& w, const float (&results)[width]) const {
    if (compensation != nullptr) {
      Pack<Weight, width> kept = load_pack<width>(compensation + i);
      for (int j = 0; j < width; ++j) w.values[j] = compensated(w.values[j], results[j], kept.values[j]);
      store_pack<width>(compensation + i, kept);
    } else {
      std::uint32_t words[2] = {0, 0};
      if (stochastic) {  // a block has the bits of 8 elements, and i is a multiple of 4
        const PhiloxCounter block = random.block(static_cast<std::uint64_t>(i / 8));
        words[0] = i % 8 == 0 ? block[0] : block[2];
        words[1] = i % 8 == 0 ? block[1] : block[3];
      }
      for (int j = 0; j < width; ++j) w.values[j] = rounded(results[j], random_half(words[j / 2], j));
    }
    store_pack<width>(weight + i, w);
  }

  /// The same of one element.
  __device__ void store_result(std::int64_t i, float result) const {
    if (compensation != nullptr)
      weight[i] = compensated(weight[i], result, compensation[i]);
    else
      weight[i] = rounded(result, stochastic ? random_half(random, i) : std::uint32_t{0});
  }
};
static_assert(width == 4);

inline const StepState* state_in(const Tensor& step) {
  return reinterpret_cast<const StepState*>(step.data());
}

/// `states`: the FP32 tensors beside the weight, null or not.
template <class Weight, class Gradient>
Update<Weight, Gradient> update_of(const Tensor& weight, const Tensor& gradient,
                                   std::initializer_list<const float*> states, float gradient_factor,
                                   const WeightStore& store) {
  Update<Weight, Gradient> update{.weight = elements<Weight>(weight),
                                  .gradient = elements<Gradient>(gradient),
                                  .compensation = nullptr,
                                  .count = weight.element_count(),
                                  .gradient_factor = gradient_factor,
                                  .packed = false,
                                  .stochastic = store.stochastic,
                                  .random = store.random};
  if (store.compensation != nullptr) update.compensation = elements<Weight>(*store.compensation);
  update.packed = holds_packs(update.weight, width * sizeof(Weight)) &&
                  holds_packs(update.compensation, width * sizeof(Weight)) &&
                  holds_packs(update.gradient, width * sizeof(Gradient));
  for (const float* state : states)
    update.packed = update.packed && holds_packs(state, width * sizeof(float));
  return update;
}

inline LaunchShape shape_of(const Tensor& weight) {
  return {.x = blocks_for(weight.element_count(), std::int64_t{threads} * width, most_blocks),
          .threads = threads};
}

/// call(update, shape of the launch) with the element types of weight and gradient.
template <class Call>
void with_update(const Tensor& weight, const Tensor& gradient, std::initializer_list<const float*> states,
                 float gradient_factor, const WeightStore& store, const Call& call) {
  with_element_type(weight.dtype(), [&](auto weight_tag) {
    with_element_type(gradient.dtype(), [&](auto gradient_tag) {
      using Weight = decltype(weight_tag);
      using Gradient = decltype(gradient_tag);
      call(update_of<Weight, Gradient>(weight, gradient, states, gradient_factor, store), shape_of(weight));
    });
  });
}

}  // namespace fp16lab::engine::gpu::updates
