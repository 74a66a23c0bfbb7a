// One step of Adam or its kin for one parameter. Whether it is taken, and with which scalars, the kernels
// read from the step state: the host does not know.
#include "engine/backend/cuda/verbs/updates.hpp"

namespace fp16lab::engine::gpu {

namespace {

using namespace updates;
using functions::AdamCoefficients;
using functions::DecayRule;
using functions::DirectionCoefficients;

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
    float results[width];
    for (int j = 0; j < width; ++j) {
      float& wide = results[j] = loaded(w.values[j]);
      functions::adam_element<Rule>(c, update.gives(), wide, update.factored(g.values[j]), m.values[j],
                                    v.values[j]);
    }
    store_pack<width>(moments.first + i, m);
    store_pack<width>(moments.second + i, v);
    update.store_results(i, w, results);
  }
  for (std::int64_t i = packed + thread; i < update.count; i += stride) {
    float wide = loaded(update.weight[i]);
    functions::adam_element<Rule>(c, update.gives(), wide, update.factored(update.gradient[i]),
                                  moments.first[i], moments.second[i]);
    update.store_result(i, wide);
  }
}

template <DecayRule Rule, class Weight, class Gradient>
__global__ void adam(AdamOptions options, Update<Weight, Gradient> update, Moments moments, int optimizer,
                     const StepState* state) {
  if (is_skipped(state, optimizer)) return;
  update.begin(state);
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
  Gives gives;
  static constexpr bool moves_weight = true;
  __device__ void operator()(std::int64_t, float& weight, float direction) const {
    functions::follow_element(rate, gives, weight, direction);
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
    float results[width];
    for (int j = 0; j < width; ++j) {
      float& wide = results[j] = loaded(w.values[j]);
      use(i + j, wide,
          functions::direction_element(c, wide, update.factored(g.values[j]), m.values[j], v.values[j]));
    }
    store_pack<width>(moments.first + i, m);
    store_pack<width>(moments.second + i, v);
    if constexpr (Use::moves_weight) update.store_results(i, w, results);
  }
  for (std::int64_t i = packed + thread; i < update.count; i += stride) {
    float wide = loaded(update.weight[i]);
    use(i, wide,
        functions::direction_element(c, wide, update.factored(update.gradient[i]), moments.first[i],
                                     moments.second[i]));
    if constexpr (Use::moves_weight) update.store_result(i, wide);
  }
}

template <class Weight, class Gradient>
__global__ void adam_weight_decay(AdamOptions options, Update<Weight, Gradient> update, Moments moments,
                                  int optimizer, const StepState* state) {
  if (is_skipped(state, optimizer)) return;
  update.begin(state);
  direction_elements(update, functions::direction_coefficients(options), moments,
                     Follow{state->learning_rate[static_cast<std::size_t>(optimizer)], update.gives()});
}

template <class Weight, class Gradient>
__global__ void lamb_direction(LambOptions options, Update<Weight, Gradient> update, Moments moments,
                               float* direction, int optimizer, const StepState* state) {
  if (is_skipped(state, optimizer)) return;
  update.begin(state);
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
  update.begin(state);
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
    float results[width];
    for (int j = 0; j < width; ++j) {
      float& wide = results[j] = loaded(w.values[j]);
      functions::follow_element(rate, update.gives(), wide, along.values[j]);
    }
    update.store_results(i, w, results);
  }
  for (std::int64_t i = packed + thread; i < update.count; i += stride) {
    float wide = loaded(update.weight[i]);
    functions::follow_element(rate, update.gives(), wide, update.gradient[i]);
    update.store_result(i, wide);
  }
}

}  // namespace

void CudaBackend::adam_step(const AdamOptions& options, Tensor& weight, const Tensor& gradient,
                            Tensor& first_moment, Tensor& second_moment, int optimizer, const Tensor& step,
                            const WeightStore& store) {
  checks::step_state("adam_step", step);
  checks::optimizer_index("adam_step", optimizer);
  checks::adam_step(options, weight, gradient, first_moment, second_moment);
  checks::weight_store("adam_step", weight, gradient, store);
  const Moments moments{elements<float>(first_moment), elements<float>(second_moment)};
  with_update(weight, gradient, {moments.first, moments.second}, options.gradient_factor, store,
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

void CudaBackend::lamb_step(const LambOptions& options, Tensor& weight, const Tensor& gradient,
                            Tensor& first_moment, Tensor& second_moment, int optimizer, const Tensor& step,
                            const WeightStore& store) {
  checks::step_state("lamb_step", step);
  checks::optimizer_index("lamb_step", optimizer);
  checks::lamb_step(options, weight, gradient, first_moment, second_moment);
  checks::weight_store("lamb_step", weight, gradient, store);
  const Moments moments{elements<float>(first_moment), elements<float>(second_moment)};
  Tensor direction = empty(weight.shape(), DType::f32);
  float* const along = elements<float>(direction);
  with_update(weight, gradient, {moments.first, moments.second}, options.gradient_factor, store,
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
    launch(runtime_, "lamb_step", &lamb_follow<Weight>, shape_of(weight),
           update_of<Weight, float>(weight, direction, {}, 1.0f, store), state_in(weight_norm),
           state_in(direction_norm), optimizer, state_in(step));
  });
}

}  // namespace fp16lab::engine::gpu
