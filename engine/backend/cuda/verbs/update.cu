// One step of one weight on the device. Whether it is taken, and with which scalars, the kernel reads from
// the step state: the host does not know.
#include <type_traits>

#include "engine/backend/cuda/runtime/element_types.hpp"
#include "engine/backend/cuda/runtime/launch.hpp"
#include "engine/backend/cuda/runtime/packs.hpp"
#include "engine/backend/cuda/verbs/backend_impl.hpp"
#include "engine/backend/cuda/verbs/stochastic.hpp"
#include "engine/backend/update_rules.hpp"
#include "numerics/convert/convert.hpp"

namespace fp16lab::engine::gpu {

namespace {

using functions::Gives;
using functions::StepView;

/// Elements that a thread updates at once: 16 bytes of FP32, 8 bytes of a 16-bit dtype.
constexpr int width = 4;
constexpr int threads = 256;
/// Blocks walk on by grid strides from here: each computes the FP64 scalars of the step once.
constexpr std::int64_t most_blocks = 4096;

/// Width elements: one access.
template <int Width, class T>
__device__ __forceinline__ void load(const T* address, T (&values)[Width]) {
  if constexpr (Width == 1) {
    values[0] = *address;
  } else {
    const Pack<T, Width> pack = load_pack<Width>(address);
    for (int j = 0; j < Width; ++j) values[j] = pack.values[j];
  }
}
template <int Width, class T>
__device__ __forceinline__ void store(T* address, const T (&values)[Width]) {
  if constexpr (Width == 1) {
    *address = values[0];
  } else {
    Pack<T, Width> pack;
    for (int j = 0; j < Width; ++j) pack.values[j] = values[j];
    store_pack<Width>(address, pack);
  }
}
/// The same of state k.
template <int Width>
__device__ __forceinline__ void load(const float* address, float (&state)[Width][most_update_states], int k) {
  float values[Width];
  load(address, values);
  for (int j = 0; j < Width; ++j) state[j][k] = values[j];
}
template <int Width>
__device__ __forceinline__ void store(float* address, const float (&state)[Width][most_update_states],
                                      int k) {
  float values[Width];
  for (int j = 0; j < Width; ++j) values[j] = state[j][k];
  store(address, values);
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

  /// Elements i to i + Width - 1, Width being 1 or `width`: new weights from old ones and from what the
  /// rule's element function gave.
  template <int Width>
  __device__ void store(std::int64_t i, const Weight (&old)[Width], const float (&results)[Width]) const {
    Weight next[Width];
    if (compensation != nullptr) {
      Weight kept[Width];
      load(compensation + i, kept);
      for (int j = 0; j < Width; ++j) next[j] = compensated(old[j], results[j], kept[j]);
      gpu::store(compensation + i, kept);
    } else if constexpr (Width == 1) {
      next[0] = rounded(results[0], stochastic ? random_half(random, i) : std::uint32_t{0});
    } else {
      std::uint32_t words[2] = {0, 0};
      if (stochastic) {  // a block has the bits of 8 elements, and i is a multiple of 4
        const PhiloxCounter block = random.block(static_cast<std::uint64_t>(i / 8));
        words[0] = i % 8 == 0 ? block[0] : block[2];
        words[1] = i % 8 == 0 ? block[1] : block[3];
      }
      for (int j = 0; j < Width; ++j) next[j] = rounded(results[j], random_half(words[j / 2], j));
    }
    gpu::store(weight + i, next);
  }
};
static_assert(width == 4);

/// Null where the options do not use one.
struct States {
  float* of[most_update_states];
};

template <class Weight, class Gradient>
Update<Weight, Gradient> update_of(const UpdateCall& call, const States& states) {
  Update<Weight, Gradient> update{.weight = elements<Weight>(call.weight),
                                  .gradient = elements<Gradient>(call.gradient),
                                  .compensation = nullptr,
                                  .count = call.weight.element_count(),
                                  .gradient_factor = call.options.gradient_factor,
                                  .packed = false,
                                  .stochastic = call.store.stochastic,
                                  .random = call.store.random};
  if (call.store.compensation != nullptr) update.compensation = elements<Weight>(*call.store.compensation);
  update.packed = holds_packs(update.weight, width * sizeof(Weight)) &&
                  holds_packs(update.compensation, width * sizeof(Weight)) &&
                  holds_packs(update.gradient, width * sizeof(Gradient));
  for (const float* state : states.of)
    update.packed = update.packed && holds_packs(state, width * sizeof(float));
  return update;
}

/// Elements i to i + Width - 1. Variants are the same in all threads: memory is what an update waits for.
template <class Rule, int Width, class Weight, class Gradient>
__device__ __forceinline__ void update_pack(const Update<Weight, Gradient>& update,
                                            const typename Rule::Scalars& scalars, int variant,
                                            const States& states, std::int64_t i) {
  functions::with_variant<Rule>(variant, [&](auto known) {
    constexpr int v = decltype(known)::value;
    float state[Width][most_update_states] = {};
    for (int k = 0; k < most_update_states; ++k)
      if ((Rule::used(v) >> k & 1u) != 0) load(states.of[k] + i, state, k);
    float results[Width];
    Weight old[Width];
    Gradient gradients[Width];
    load(update.weight + i, old);
    load(update.gradient + i, gradients);
    for (int j = 0; j < Width; ++j) {
      results[j] = loaded(old[j]);
      Rule::template element<v>(scalars, update.gives(), results[j], update.factored(gradients[j]), state[j]);
    }
    for (int k = 0; k < most_update_states; ++k)
      if ((Rule::used(v) >> k & 1u) != 0) store(states.of[k] + i, state, k);
    if constexpr (Rule::moves_weight) update.store(i, old, results);
  });
}

template <class Rule, class Weight, class Gradient>
__global__ void update_weight(UpdateOptions options, Update<Weight, Gradient> update, States states,
                              const StepState* weight_norm, const StepState* gradient_norm, int optimizer,
                              const StepState* state) {
  StepView step{*state, static_cast<std::size_t>(optimizer)};
  if (state->found_inf[step.optimizer] != 0.0f) return;
  update.begin(state);
  __shared__ typename Rule::Scalars scalars;  // FP64 divisions and a root: once for a block
  if (threadIdx.x == 0) {
    if (weight_norm != nullptr) step.weight_norm = weight_norm->grad_norm;
    if (gradient_norm != nullptr) step.gradient_norm = gradient_norm->grad_norm;
    scalars = Rule::scalars(options, step);
  }
  __syncthreads();
  const int variant = Rule::variant(options, step);
  const std::int64_t thread = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
  const std::int64_t packed = update.packed ? update.count - update.count % width : 0;
  for (std::int64_t i = thread * width; i < packed; i += stride * width)
    update_pack<Rule, width>(update, scalars, variant, states, i);
  for (std::int64_t i = packed + thread; i < update.count; i += stride)
    update_pack<Rule, 1>(update, scalars, variant, states, i);
}

const StepState* state_in(const Tensor* step) {
  return step == nullptr ? nullptr : reinterpret_cast<const StepState*>(step->data());
}

template <class Rule>
void launch_update(Runtime& runtime, const UpdateCall& call) {
  const LaunchShape shape{
      .x = blocks_for(call.weight.element_count(), std::int64_t{threads} * width, most_blocks),
      .threads = threads};
  States states{};
  for (int k = 0; k < static_cast<int>(std::size(Rule::states)); ++k)
    if (Rule::uses(call.options, k))
      states.of[k] = elements<float>(*call.states[static_cast<std::size_t>(k)]);
  with_element_type(call.weight.dtype(), [&](auto weight_tag) {
    with_element_type(call.gradient.dtype(), [&](auto gradient_tag) {
      using Weight = decltype(weight_tag);
      using Gradient = decltype(gradient_tag);
      launch(runtime, Rule::name.data(), &update_weight<Rule, Weight, Gradient>, shape, call.options,
             update_of<Weight, Gradient>(call, states), states, state_in(call.norms[0]),
             state_in(call.norms[1]), call.optimizer, state_in(&call.step));
    });
  });
}

}  // namespace

void CudaBackend::do_update(const UpdateCall& call) {
  using Launch = void (*)(Runtime&, const UpdateCall&);
#define FP16LAB_LAUNCH(name, functor) &launch_update<functions::updates::functor>,
  static constexpr Launch table[] = {FP16LAB_UPDATE_RULES(FP16LAB_LAUNCH)};
#undef FP16LAB_LAUNCH
  table[static_cast<std::size_t>(call.rule)](runtime_, call);
}

}  // namespace fp16lab::engine::gpu
