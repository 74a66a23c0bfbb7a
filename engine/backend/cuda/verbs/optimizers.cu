// One step of SGD or RMSprop for one parameter. Whether it is taken, and with which scalars, the kernel reads
// from the step state: the host does not know.
#include "engine/backend/cuda/verbs/updates.hpp"

namespace fp16lab::engine::gpu {

namespace {

using namespace updates;
using functions::RmspropCoefficients;
using functions::SgdCoefficients;
using functions::VelocityRule;

// ---- SGD ----

/// Nesterov and decay as run-time flags, the same in all threads: memory is what an update waits for.
template <VelocityRule Rule>
__device__ __forceinline__ void sgd_element(const SgdCoefficients& c, Gives gives, bool nesterov,
                                            float& weight, float gradient, float& velocity) {
  const bool decays = c.weight_decay != 0.0f;
  if (nesterov && decays)
    functions::sgd_element<Rule, true, true>(c, gives, weight, gradient, velocity);
  else if (nesterov)
    functions::sgd_element<Rule, true, false>(c, gives, weight, gradient, velocity);
  else if (decays)
    functions::sgd_element<Rule, false, true>(c, gives, weight, gradient, velocity);
  else
    functions::sgd_element<Rule, false, false>(c, gives, weight, gradient, velocity);
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
    float results[width];
    for (int j = 0; j < width; ++j) {
      float& wide = results[j] = loaded(w.values[j]);
      sgd_element<Rule>(c, update.gives(), nesterov, wide, update.factored(g.values[j]), v.values[j]);
    }
    if constexpr (Rule != VelocityRule::none) store_pack<width>(velocity + i, v);
    update.store_results(i, w, results);
  }
  for (std::int64_t i = packed + thread; i < update.count; i += stride) {
    float wide = loaded(update.weight[i]);
    float v = 0.0f;
    if constexpr (Rule == VelocityRule::running) v = velocity[i];
    sgd_element<Rule>(c, update.gives(), nesterov, wide, update.factored(update.gradient[i]), v);
    if constexpr (Rule != VelocityRule::none) velocity[i] = v;
    update.store_result(i, wide);
  }
}

/// Whether the velocity starts or runs on is known where taken_steps is: here.
template <class Weight, class Gradient>
__global__ void sgd(SgdOptions options, Update<Weight, Gradient> update, float* velocity, int optimizer,
                    const StepState* state) {
  if (is_skipped(state, optimizer)) return;
  update.begin(state);
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
    float results[width];
    for (int j = 0; j < width; ++j) {
      float& wide = results[j] = loaded(w.values[j]);
      functions::rmsprop_element<Centered, Momentum>(c, update.gives(), wide, update.factored(g.values[j]),
                                                     s.values[j], a.values[j], v.values[j]);
    }
    store_pack<width>(averages.square + i, s);
    if constexpr (Centered) store_pack<width>(averages.average + i, a);
    if constexpr (Momentum) store_pack<width>(averages.velocity + i, v);
    update.store_results(i, w, results);
  }
  for (std::int64_t i = packed + thread; i < update.count; i += stride) {
    float wide = loaded(update.weight[i]), a = 0.0f, v = 0.0f;
    if constexpr (Centered) a = averages.average[i];
    if constexpr (Momentum) v = averages.velocity[i];
    functions::rmsprop_element<Centered, Momentum>(
        c, update.gives(), wide, update.factored(update.gradient[i]), averages.square[i], a, v);
    if constexpr (Centered) averages.average[i] = a;
    if constexpr (Momentum) averages.velocity[i] = v;
    update.store_result(i, wide);
  }
}

template <class Weight, class Gradient>
__global__ void rmsprop(RmspropOptions options, Update<Weight, Gradient> update, Averages averages,
                        int optimizer, const StepState* state) {
  if (is_skipped(state, optimizer)) return;
  update.begin(state);
  const RmspropCoefficients c =
      functions::rmsprop_coefficients(options, *state, static_cast<std::size_t>(optimizer));
  if (averages.average != nullptr && averages.velocity != nullptr)
    return rmsprop_elements<true, true>(update, c, averages);
  if (averages.average != nullptr) return rmsprop_elements<true, false>(update, c, averages);
  if (averages.velocity != nullptr) return rmsprop_elements<false, true>(update, c, averages);
  rmsprop_elements<false, false>(update, c, averages);
}

}  // namespace

void CudaBackend::sgd_step(const SgdOptions& options, Tensor& weight, const Tensor& gradient,
                           Tensor& velocity, int optimizer, const Tensor& step, const WeightStore& store) {
  checks::step_state("sgd_step", step);
  checks::optimizer_index("sgd_step", optimizer);
  checks::sgd_step(options, weight, gradient, velocity);
  checks::weight_store("sgd_step", weight, gradient, store);
  float* const v = options.momentum == 0.0f ? nullptr : elements<float>(velocity);
  with_update(weight, gradient, {v}, options.gradient_factor, store,
              [&](const auto& update, const LaunchShape& shape) {
                using Weight = std::decay_t<decltype(*update.weight)>;
                using Gradient = std::decay_t<decltype(*update.gradient)>;
                launch(runtime_, "sgd_step", &sgd<Weight, Gradient>, shape, options, update, v, optimizer,
                       state_in(step));
              });
}

void CudaBackend::rmsprop_step(const RmspropOptions& options, Tensor& weight, const Tensor& gradient,
                               Tensor& square_average, Tensor& gradient_average, Tensor& velocity,
                               int optimizer, const Tensor& step, const WeightStore& store) {
  checks::step_state("rmsprop_step", step);
  checks::optimizer_index("rmsprop_step", optimizer);
  checks::rmsprop_step(options, weight, gradient, square_average, gradient_average, velocity);
  checks::weight_store("rmsprop_step", weight, gradient, store);
  const Averages averages{elements<float>(square_average),
                          options.centered ? elements<float>(gradient_average) : nullptr,
                          options.momentum == 0.0f ? nullptr : elements<float>(velocity)};
  with_update(weight, gradient, {averages.square, averages.average, averages.velocity},
              options.gradient_factor, store, [&](const auto& update, const LaunchShape& shape) {
                using Weight = std::decay_t<decltype(*update.weight)>;
                using Gradient = std::decay_t<decltype(*update.gradient)>;
                launch(runtime_, "rmsprop_step", &rmsprop<Weight, Gradient>, shape, options, update, averages,
                       optimizer, state_in(step));
              });
}

}  // namespace fp16lab::engine::gpu
