// One optimizer step of one parameter. Whether it is taken, and with which scalars, the kernel reads from the
// step state: the host does not know.
#include "engine/backend/cuda/runtime/element_types.hpp"
#include "engine/backend/cuda/runtime/launch.hpp"
#include "engine/backend/cuda/runtime/packs.hpp"
#include "engine/backend/cuda/verbs/backend_impl.hpp"
#include "engine/backend/optimizer_functions.hpp"

namespace fp16lab::engine::FP16LAB_MACHINE {

namespace {

using functions::AdamCoefficients;
using functions::DecayRule;
using functions::DirectionCoefficients;
using functions::RmspropCoefficients;
using functions::SgdCoefficients;
using functions::VelocityRule;

/// Elements that a thread updates at once: 16 bytes of FP32, 8 bytes of a 16-bit dtype.
constexpr int width = 4;
constexpr int threads = 256;
/// Blocks walk on by grid strides from here: each computes the FP64 scalars of the step once.
constexpr std::int64_t most_blocks = 4096;

__device__ __forceinline__ bool is_skipped(const StepState* state, int optimizer) {
  return state->found_inf[static_cast<std::size_t>(optimizer)] != 0.0f;
}

/// What all optimizers update.
template <class Weight, class Gradient>
struct Update {
  Weight* weight;
  const Gradient* gradient;
  std::int64_t count;
  float gradient_factor;
  bool packed;  ///< may all tensors of the update be accessed in packs?

  /// The gradient that the optimizer sees.
  __device__ float factored(Gradient element) const {
    const float g = loaded(element);
    return gradient_factor == 1.0f ? g : functions::Multiply{}(g, gradient_factor);
  }
};

// ---- SGD ----

/// Nesterov and decay as run-time flags, the same in all threads: memory is what an update waits for.
template <VelocityRule Rule>
__device__ __forceinline__ void sgd_element(const SgdCoefficients& c, bool nesterov, float& weight,
                                            float gradient, float& velocity) {
  const bool decays = c.weight_decay != 0.0f;
  if (nesterov && decays)
    functions::sgd_element<Rule, true, true>(c, weight, gradient, velocity);
  else if (nesterov)
    functions::sgd_element<Rule, true, false>(c, weight, gradient, velocity);
  else if (decays)
    functions::sgd_element<Rule, false, true>(c, weight, gradient, velocity);
  else
    functions::sgd_element<Rule, false, false>(c, weight, gradient, velocity);
}

template <VelocityRule Rule, class Weight, class Gradient>
__device__ __forceinline__ void sgd_elements(const Update<Weight, Gradient>& update, const SgdCoefficients& c,
                                             bool nesterov, float* velocity) {
  const std::int64_t thread = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
  const std::int64_t packed = update.packed ? update.count - update.count % width : 0;
  for (std::int64_t i = thread * width; i < packed; i += stride * width) {
    Pack<Weight, width> w = load_pack<width>(update.weight + i);
    const Pack<Gradient, width> g = load_pack<width>(update.gradient + i);
    Pack<float, width> v{};
    if constexpr (Rule == VelocityRule::running) v = load_pack<width>(velocity + i);
    for (int j = 0; j < width; ++j) {
      float wide = loaded(w.values[j]);
      sgd_element<Rule>(c, nesterov, wide, update.factored(g.values[j]), v.values[j]);
      w.values[j] = stored<Weight>(wide);
    }
    if constexpr (Rule != VelocityRule::none) store_pack<width>(velocity + i, v);
    store_pack<width>(update.weight + i, w);
  }
  for (std::int64_t i = packed + thread; i < update.count; i += stride) {
    float wide = loaded(update.weight[i]);
    float v = 0.0f;
    if constexpr (Rule == VelocityRule::running) v = velocity[i];
    sgd_element<Rule>(c, nesterov, wide, update.factored(update.gradient[i]), v);
    if constexpr (Rule != VelocityRule::none) velocity[i] = v;
    update.weight[i] = stored<Weight>(wide);
  }
}

/// Whether the velocity starts or runs on is known where taken_steps is: here.
template <class Weight, class Gradient>
__global__ void sgd(SgdOptions options, Update<Weight, Gradient> update, float* velocity, int optimizer,
                    const StepState* state) {
  if (is_skipped(state, optimizer)) return;
  const auto slot = static_cast<std::size_t>(optimizer);
  const SgdCoefficients c = functions::sgd_coefficients(options, *state, slot);
  switch (functions::velocity_rule(options, *state, slot)) {
    case VelocityRule::none:
      return sgd_elements<VelocityRule::none>(update, c, false, velocity);
    case VelocityRule::first:
      return sgd_elements<VelocityRule::first>(update, c, options.nesterov, velocity);
    case VelocityRule::running:
      return sgd_elements<VelocityRule::running>(update, c, options.nesterov, velocity);
  }
}

// ---- Adam ----

struct Moments {
  float* first;
  float* second;
};

template <DecayRule Rule, class Weight, class Gradient>
__device__ __forceinline__ void adam_elements(const Update<Weight, Gradient>& update,
                                              const AdamCoefficients& c, const Moments& moments) {
  const std::int64_t thread = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
  const std::int64_t packed = update.packed ? update.count - update.count % width : 0;
  for (std::int64_t i = thread * width; i < packed; i += stride * width) {
    Pack<Weight, width> w = load_pack<width>(update.weight + i);
    const Pack<Gradient, width> g = load_pack<width>(update.gradient + i);
    Pack<float, width> m = load_pack<width>(moments.first + i);
    Pack<float, width> v = load_pack<width>(moments.second + i);
    for (int j = 0; j < width; ++j) {
      float wide = loaded(w.values[j]);
      functions::adam_element<Rule>(c, wide, update.factored(g.values[j]), m.values[j], v.values[j]);
      w.values[j] = stored<Weight>(wide);
    }
    store_pack<width>(moments.first + i, m);
    store_pack<width>(moments.second + i, v);
    store_pack<width>(update.weight + i, w);
  }
  for (std::int64_t i = packed + thread; i < update.count; i += stride) {
    float wide = loaded(update.weight[i]);
    functions::adam_element<Rule>(c, wide, update.factored(update.gradient[i]), moments.first[i],
                                  moments.second[i]);
    update.weight[i] = stored<Weight>(wide);
  }
}

template <DecayRule Rule, class Weight, class Gradient>
__global__ void adam(AdamOptions options, Update<Weight, Gradient> update, Moments moments, int optimizer,
                     const StepState* state) {
  if (is_skipped(state, optimizer)) return;
  __shared__ AdamCoefficients coefficients;  // FP64 divisions and a root: once for a block
  if (threadIdx.x == 0)
    coefficients = functions::adam_coefficients(options, *state, static_cast<std::size_t>(optimizer));
  __syncthreads();
  adam_elements<Rule>(update, coefficients, moments);
}

template <DecayRule Rule, class Weight, class Gradient>
void launch_adam(Runtime& runtime, const LaunchShape& shape, const AdamOptions& options,
                 const Update<Weight, Gradient>& update, const Moments& moments, int optimizer,
                 const StepState* state) {
  launch(runtime, "adam_step", &adam<Rule, Weight, Gradient>, shape, options, update, moments, optimizer,
         state);
}

// ---- directions: AdamWeightDecay and LAMB ----

/// What becomes of an element's direction: AdamWeightDecay follows it at once.
struct Follow {
  float rate;
  static constexpr bool moves_weight = true;
  __device__ void operator()(std::int64_t, float& weight, float direction) const {
    functions::follow_element(rate, weight, direction);
  }
};
/// LAMB keeps it until its norm is known.
struct Keep {
  float* direction;
  static constexpr bool moves_weight = false;
  __device__ void operator()(std::int64_t i, float&, float along) const { direction[i] = along; }
};

template <class Weight, class Gradient, class Use>
__device__ __forceinline__ void direction_elements(const Update<Weight, Gradient>& update,
                                                   const DirectionCoefficients& c, const Moments& moments,
                                                   const Use& use) {
  const std::int64_t thread = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
  const std::int64_t packed = update.packed ? update.count - update.count % width : 0;
  for (std::int64_t i = thread * width; i < packed; i += stride * width) {
    Pack<Weight, width> w = load_pack<width>(update.weight + i);
    const Pack<Gradient, width> g = load_pack<width>(update.gradient + i);
    Pack<float, width> m = load_pack<width>(moments.first + i);
    Pack<float, width> v = load_pack<width>(moments.second + i);
    for (int j = 0; j < width; ++j) {
      float wide = loaded(w.values[j]);
      use(i + j, wide,
          functions::direction_element(c, wide, update.factored(g.values[j]), m.values[j], v.values[j]));
      w.values[j] = stored<Weight>(wide);
    }
    store_pack<width>(moments.first + i, m);
    store_pack<width>(moments.second + i, v);
    if constexpr (Use::moves_weight) store_pack<width>(update.weight + i, w);
  }
  for (std::int64_t i = packed + thread; i < update.count; i += stride) {
    float wide = loaded(update.weight[i]);
    use(i, wide,
        functions::direction_element(c, wide, update.factored(update.gradient[i]), moments.first[i],
                                     moments.second[i]));
    if constexpr (Use::moves_weight) update.weight[i] = stored<Weight>(wide);
  }
}

template <class Weight, class Gradient>
__global__ void adam_weight_decay(AdamOptions options, Update<Weight, Gradient> update, Moments moments,
                                  int optimizer, const StepState* state) {
  if (is_skipped(state, optimizer)) return;
  direction_elements(update, functions::direction_coefficients(options), moments,
                     Follow{state->learning_rate[static_cast<std::size_t>(optimizer)]});
}

template <class Weight, class Gradient>
__global__ void lamb_direction(LambOptions options, Update<Weight, Gradient> update, Moments moments,
                               float* direction, int optimizer, const StepState* state) {
  if (is_skipped(state, optimizer)) return;
  __shared__ DirectionCoefficients coefficients;  // an FP64 root: once for a block
  if (threadIdx.x == 0)
    coefficients = functions::direction_coefficients(options, *state, static_cast<std::size_t>(optimizer));
  __syncthreads();
  direction_elements(update, coefficients, moments, Keep{direction});
}

/// The norms are the grad_norm of two states of their own, where global_norm leaves them.
template <class Weight>
__global__ void lamb_follow(Update<Weight, float> update, const StepState* weight_norm,
                            const StepState* direction_norm, int optimizer, const StepState* state) {
  if (is_skipped(state, optimizer)) return;
  __shared__ float rate;
  if (threadIdx.x == 0)
    rate = functions::lamb_rate(state->learning_rate[static_cast<std::size_t>(optimizer)],
                                weight_norm->grad_norm, direction_norm->grad_norm);
  __syncthreads();
  const std::int64_t thread = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
  const std::int64_t packed = update.packed ? update.count - update.count % width : 0;
  for (std::int64_t i = thread * width; i < packed; i += stride * width) {
    Pack<Weight, width> w = load_pack<width>(update.weight + i);
    const Pack<float, width> along = load_pack<width>(update.gradient + i);
    for (int j = 0; j < width; ++j) {
      float wide = loaded(w.values[j]);
      functions::follow_element(rate, wide, along.values[j]);
      w.values[j] = stored<Weight>(wide);
    }
    store_pack<width>(update.weight + i, w);
  }
  for (std::int64_t i = packed + thread; i < update.count; i += stride) {
    float wide = loaded(update.weight[i]);
    functions::follow_element(rate, wide, update.gradient[i]);
    update.weight[i] = stored<Weight>(wide);
  }
}

// ---- RMSprop ----

/// Null where the options want none.
struct Averages {
  float* square;
  float* average;
  float* velocity;
};

template <bool Centered, bool Momentum, class Weight, class Gradient>
__device__ __forceinline__ void rmsprop_elements(const Update<Weight, Gradient>& update,
                                                 const RmspropCoefficients& c, const Averages& averages) {
  const std::int64_t thread = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
  const std::int64_t packed = update.packed ? update.count - update.count % width : 0;
  for (std::int64_t i = thread * width; i < packed; i += stride * width) {
    Pack<Weight, width> w = load_pack<width>(update.weight + i);
    const Pack<Gradient, width> g = load_pack<width>(update.gradient + i);
    Pack<float, width> s = load_pack<width>(averages.square + i), a{}, v{};
    if constexpr (Centered) a = load_pack<width>(averages.average + i);
    if constexpr (Momentum) v = load_pack<width>(averages.velocity + i);
    for (int j = 0; j < width; ++j) {
      float wide = loaded(w.values[j]);
      functions::rmsprop_element<Centered, Momentum>(c, wide, update.factored(g.values[j]), s.values[j],
                                                     a.values[j], v.values[j]);
      w.values[j] = stored<Weight>(wide);
    }
    store_pack<width>(averages.square + i, s);
    if constexpr (Centered) store_pack<width>(averages.average + i, a);
    if constexpr (Momentum) store_pack<width>(averages.velocity + i, v);
    store_pack<width>(update.weight + i, w);
  }
  for (std::int64_t i = packed + thread; i < update.count; i += stride) {
    float wide = loaded(update.weight[i]), a = 0.0f, v = 0.0f;
    if constexpr (Centered) a = averages.average[i];
    if constexpr (Momentum) v = averages.velocity[i];
    functions::rmsprop_element<Centered, Momentum>(c, wide, update.factored(update.gradient[i]),
                                                   averages.square[i], a, v);
    if constexpr (Centered) averages.average[i] = a;
    if constexpr (Momentum) averages.velocity[i] = v;
    update.weight[i] = stored<Weight>(wide);
  }
}

template <class Weight, class Gradient>
__global__ void rmsprop(RmspropOptions options, Update<Weight, Gradient> update, Averages averages,
                        int optimizer, const StepState* state) {
  if (is_skipped(state, optimizer)) return;
  const RmspropCoefficients c =
      functions::rmsprop_coefficients(options, *state, static_cast<std::size_t>(optimizer));
  if (averages.average != nullptr && averages.velocity != nullptr)
    return rmsprop_elements<true, true>(update, c, averages);
  if (averages.average != nullptr) return rmsprop_elements<true, false>(update, c, averages);
  if (averages.velocity != nullptr) return rmsprop_elements<false, true>(update, c, averages);
  rmsprop_elements<false, false>(update, c, averages);
}

// ---- all ----

const StepState* state_in(const Tensor& step) { return reinterpret_cast<const StepState*>(step.data()); }

/// call(update, shape of the launch) with the element types of weight and gradient. `states`: the FP32
/// tensors beside the weight.
template <class Call>
void with_update(const Tensor& weight, const Tensor& gradient, std::initializer_list<const float*> states,
                 float gradient_factor, const Call& call) {
  with_element_type(weight.dtype(), [&](auto weight_tag) {
    with_element_type(gradient.dtype(), [&](auto gradient_tag) {
      using Weight = decltype(weight_tag);
      using Gradient = decltype(gradient_tag);
      bool packed = holds_packs(weight.data(), width * sizeof(Weight)) &&
                    holds_packs(gradient.data(), width * sizeof(Gradient));
      for (const float* state : states) packed = packed && holds_packs(state, width * sizeof(float));
      const Update<Weight, Gradient> update{.weight = elements<Weight>(weight),
                                            .gradient = elements<Gradient>(gradient),
                                            .count = weight.element_count(),
                                            .gradient_factor = gradient_factor,
                                            .packed = packed};
      call(update, LaunchShape{.x = blocks_for(update.count, std::int64_t{threads} * width, most_blocks),
                               .threads = threads});
    });
  });
}

}  // namespace

void CudaBackend::sgd_step(const SgdOptions& options, Tensor& weight, const Tensor& gradient,
                           Tensor& velocity, int optimizer, const Tensor& step) {
  checks::step_state("sgd_step", step);
  checks::optimizer_index("sgd_step", optimizer);
  checks::sgd_step(options, weight, gradient, velocity);
  float* const v = options.momentum == 0.0f ? nullptr : elements<float>(velocity);
  with_update(weight, gradient, {v}, options.gradient_factor,
              [&](const auto& update, const LaunchShape& shape) {
                using Weight = std::decay_t<decltype(*update.weight)>;
                using Gradient = std::decay_t<decltype(*update.gradient)>;
                launch(runtime_, "sgd_step", &sgd<Weight, Gradient>, shape, options, update, v, optimizer,
                       state_in(step));
              });
}

void CudaBackend::adam_step(const AdamOptions& options, Tensor& weight, const Tensor& gradient,
                            Tensor& first_moment, Tensor& second_moment, int optimizer, const Tensor& step) {
  checks::step_state("adam_step", step);
  checks::optimizer_index("adam_step", optimizer);
  checks::adam_step(options, weight, gradient, first_moment, second_moment);
  const Moments moments{elements<float>(first_moment), elements<float>(second_moment)};
  with_update(weight, gradient, {moments.first, moments.second}, options.gradient_factor,
              [&](const auto& update, const LaunchShape& shape) {
                using Weight = std::decay_t<decltype(*update.weight)>;
                using Gradient = std::decay_t<decltype(*update.gradient)>;
                if (options.uncorrected)
                  return launch(runtime_, "adam_step", &adam_weight_decay<Weight, Gradient>, shape, options,
                                update, moments, optimizer, state_in(step));
                switch (functions::decay_rule(options)) {
                  case DecayRule::none:
                    return launch_adam<DecayRule::none>(runtime_, shape, options, update, moments, optimizer,
                                                        state_in(step));
                  case DecayRule::gradient:
                    return launch_adam<DecayRule::gradient>(runtime_, shape, options, update, moments,
                                                            optimizer, state_in(step));
                  case DecayRule::decoupled:
                    return launch_adam<DecayRule::decoupled>(runtime_, shape, options, update, moments,
                                                             optimizer, state_in(step));
                }
              });
}

void CudaBackend::rmsprop_step(const RmspropOptions& options, Tensor& weight, const Tensor& gradient,
                               Tensor& square_average, Tensor& gradient_average, Tensor& velocity,
                               int optimizer, const Tensor& step) {
  checks::step_state("rmsprop_step", step);
  checks::optimizer_index("rmsprop_step", optimizer);
  checks::rmsprop_step(options, weight, gradient, square_average, gradient_average, velocity);
  const Averages averages{elements<float>(square_average),
                          options.centered ? elements<float>(gradient_average) : nullptr,
                          options.momentum == 0.0f ? nullptr : elements<float>(velocity)};
  with_update(weight, gradient, {averages.square, averages.average, averages.velocity},
              options.gradient_factor, [&](const auto& update, const LaunchShape& shape) {
                using Weight = std::decay_t<decltype(*update.weight)>;
                using Gradient = std::decay_t<decltype(*update.gradient)>;
                launch(runtime_, "rmsprop_step", &rmsprop<Weight, Gradient>, shape, options, update, averages,
                       optimizer, state_in(step));
              });
}

void CudaBackend::lamb_step(const LambOptions& options, Tensor& weight, const Tensor& gradient,
                            Tensor& first_moment, Tensor& second_moment, int optimizer, const Tensor& step) {
  checks::step_state("lamb_step", step);
  checks::optimizer_index("lamb_step", optimizer);
  checks::lamb_step(options, weight, gradient, first_moment, second_moment);
  const Moments moments{elements<float>(first_moment), elements<float>(second_moment)};
  Tensor direction = empty(weight.shape(), DType::f32);
  float* const along = elements<float>(direction);
  with_update(weight, gradient, {moments.first, moments.second}, options.gradient_factor,
              [&](const auto& update, const LaunchShape& shape) {
                using Weight = std::decay_t<decltype(*update.weight)>;
                using Gradient = std::decay_t<decltype(*update.gradient)>;
                launch(runtime_, "lamb_step", &lamb_direction<Weight, Gradient>, shape, options, update,
                       moments, along, optimizer, state_in(step));
              });
  // Norms of what a skipped step left unwritten are read by nobody.
  const auto norm_of = [this](const Tensor& x) {
    Tensor norm = empty({static_cast<std::int64_t>(sizeof(StepState))}, DType::u8);
    global_norm(std::span(&x, 1), norm);
    return norm;
  };
  const Tensor weight_norm = norm_of(weight), direction_norm = norm_of(direction);
  with_element_type(weight.dtype(), [&](auto tag) {
    using Weight = decltype(tag);
    const Update<Weight, float> update{.weight = elements<Weight>(weight),
                                       .gradient = along,
                                       .count = weight.element_count(),
                                       .gradient_factor = 1.0f,
                                       .packed = holds_packs(weight.data(), width * sizeof(Weight)) &&
                                                 holds_packs(along, width * sizeof(float))};
    launch(runtime_, "lamb_step", &lamb_follow<Weight>,
           LaunchShape{.x = blocks_for(update.count, std::int64_t{threads} * width, most_blocks),
                       .threads = threads},
           update, state_in(weight_norm), state_in(direction_norm), optimizer, state_in(step));
  });
}

}  // namespace fp16lab::engine::FP16LAB_MACHINE
