// Conformance: optimizer steps, for every combination of weight and gradient dtypes.
#include <cmath>

#include "tests/engine/backend/conformance.hpp"

namespace fp16lab::engine::test {
namespace {

/// Specials too, or the usual.
template <class Weight, class Gradient>
struct OptimizerData {
  std::vector<Weight> weight;
  std::vector<Gradient> gradient;
  std::vector<float> first, second;

  OptimizerData(std::int64_t size, Kind kind)
      : weight(random_of<Weight>(size, kind, 61)),
        gradient(random_of<Gradient>(size, kind, 62)),
        first(random_floats(size, kind, 63)),
        second(random_floats(size, kind, 64)) {
    for (float& value : second) value = std::fabs(value);
  }
};

/// body(weight type, gradient type) for all nine combinations.
template <class Body>
void for_each_combination(const Body& body) {
  for_each_float_type(
      [&](auto weight) { for_each_float_type([&](auto gradient) { body(weight, gradient); }); });
}

std::string words(const Tensor& weight, const Tensor& gradient) {
  return " of " + weight.describe() + " by " + gradient.describe();
}

/// The gradient as it enters an update.
template <class Gradient>
float entering(Gradient gradient, float factor) {
  const float g = wide(gradient);
  if (factor == 1.0f) return g;
  const float multiplied = g * factor;
  return multiplied;
}

TEST_P(BackendConformance, SgdInTheDocumentedOrder) {
  const std::vector<SgdOptions> all{
      {},
      {.weight_decay = 1e-2f},
      {.momentum = 0.9f},
      {.momentum = 0.9f, .dampening = 0.3f, .weight_decay = 1e-2f},
      {.momentum = 0.9f, .nesterov = true},
      {.momentum = 0.9f, .weight_decay = 1e-2f, .nesterov = true, .gradient_factor = 1.0f / 3.0f},
      {.gradient_factor = 1.0f / 1024.0f}};
  const auto check = [&]<class Weight, class Gradient>(const SgdOptions& options, std::uint64_t taken,
                                                       Kind kind, std::int64_t size, Weight, Gradient) {
    const OptimizerData<Weight, Gradient> data(size, kind);
    StepState state = state_in_training();
    state.taken_steps[0] = taken;
    std::vector<Weight> weight;
    std::vector<float> velocity;
    for (std::size_t i = 0; i < data.weight.size(); ++i) {
      const float old = wide(data.weight[i]);
      float d = entering(data.gradient[i], options.gradient_factor);
      if (options.weight_decay != 0.0f) {
        const float decay = options.weight_decay * old;
        d = d + decay;
      }
      float v = data.first[i];
      if (options.momentum != 0.0f) {
        const float kept = options.momentum * v, fresh = (1.0f - options.dampening) * d;
        v = taken == 1 ? d : kept + fresh;
        const float ahead = options.momentum * v;
        d = options.nesterov ? d + ahead : v;
        v = canonical(v);
      }
      const float update = state.learning_rate[0] * d;
      const float next = old - update;
      weight.push_back(stored_as(canonical(next), Weight{}));
      velocity.push_back(v);
    }
    Tensor w = tensor(data.weight), v = tensor(data.first);
    const Tensor g = tensor(data.gradient), step = backend().make_step_state(state);
    backend().sgd_step(options, w, g, v, 0, step);
    expect_same_bits(values_of<Weight>(w), weight, "sgd weight" + words(w, g));
    expect_same_bits(values_of<float>(v), velocity, "sgd velocity" + words(w, g));
    expect_same_bits(values_of<Gradient>(g), data.gradient, "sgd leaves the gradient" + words(w, g));
  };
  for (const SgdOptions& options : all)
    for (const std::uint64_t taken : {std::uint64_t{1}, std::uint64_t{2}})
      for (const Kind kind : {Kind::ordinary, Kind::special})
        for_each_combination([&](auto weight, auto gradient) {
          check(options, taken, kind, 2051, weight, gradient);
          if (sizeof(weight) == sizeof(gradient)) check(options, taken, kind, 31, weight, gradient);
        });
  // Shared by threads.
  check(all[3], 2, Kind::special, 140001, 0.0f, 0.0f);
  check(all[3], 2, Kind::special, 140001, 0.0f, BFloat16{});
  check(all[5], 2, Kind::special, 140001, Float16{}, Float16{});
  check(all[5], 2, Kind::special, 140001, 0.0f, 0.0f);
}

TEST_P(BackendConformance, PlainSgdNeedsNoVelocity) {
  Tensor w = tensor(std::vector<float>{1.0f}), undefined;
  const Tensor step = backend().make_step_state(state_in_training());
  backend().sgd_step({}, w, tensor(std::vector<float>{1.0f}), undefined, 0, step);
  expect_same_bits(values_of<float>(w), {1.0f - 0.1f}, "f32");
  Tensor low = tensor(std::vector{low_of<BFloat16>(1.0f)});
  backend().sgd_step({}, low, tensor(std::vector{half_of(1.0f)}), undefined, 0, step);
  expect_same_bits(values_of<BFloat16>(low), {low_of<BFloat16>(1.0f - 0.1f)}, "bf16 by f16");
}

TEST_P(BackendConformance, AdamInTheDocumentedOrder) {
  const std::vector<AdamOptions> all{{},
                                     {.beta1 = 0.5f,
                                      .beta2 = 0.75f,
                                      .epsilon = 1e-3f,
                                      .weight_decay = 1e-2f,
                                      .gradient_factor = 1.0f / 3.0f},
                                     {.weight_decay = 1e-1f, .decoupled_decay = true},
                                     {.gradient_factor = 1.0f / 1024.0f}};
  const auto check = [&]<class Weight, class Gradient>(const AdamOptions& options, Kind kind,
                                                       std::int64_t size, Weight, Gradient) {
    const OptimizerData<Weight, Gradient> data(size, kind);
    const StepState state = state_in_training();
    const double rate = static_cast<double>(state.learning_rate[0]);
    const auto step_size = static_cast<float>(rate / (1.0 - state.beta1_power[0]));
    const auto root = static_cast<float>(std::sqrt(1.0 - state.beta2_power[0]));
    const auto kept = static_cast<float>(1.0 - rate * static_cast<double>(options.weight_decay));
    std::vector<Weight> weight;
    std::vector<float> first, second;
    for (std::size_t i = 0; i < data.weight.size(); ++i) {
      float w = wide(data.weight[i]), g = entering(data.gradient[i], options.gradient_factor);
      if (options.weight_decay != 0.0f) {
        if (options.decoupled_decay) {
          w = w * kept;
        } else {
          const float decay = options.weight_decay * w;
          g = g + decay;
        }
      }
      const float old_m = options.beta1 * data.first[i], new_m = (1.0f - options.beta1) * g;
      const float m = old_m + new_m;
      const float old_v = options.beta2 * data.second[i], scaled = (1.0f - options.beta2) * g;
      const float new_v = scaled * g;
      const float v = old_v + new_v;
      const float quotient = std::sqrt(v) / root;
      const float denominator = quotient + options.epsilon;
      const float numerator = step_size * m;
      const float update = numerator / denominator;
      const float next = w - update;
      weight.push_back(stored_as(canonical(next), Weight{}));
      first.push_back(canonical(m));
      second.push_back(canonical(v));
    }
    Tensor w = tensor(data.weight), m = tensor(data.first), v = tensor(data.second);
    const Tensor g = tensor(data.gradient), step = backend().make_step_state(state);
    backend().adam_step(options, w, g, m, v, 0, step);
    expect_same_bits(values_of<Weight>(w), weight, "adam weight" + words(w, g));
    expect_same_bits(values_of<float>(m), first, "adam first moment" + words(w, g));
    expect_same_bits(values_of<float>(v), second, "adam second moment" + words(w, g));
    expect_same_bits(values_of<Gradient>(g), data.gradient, "adam leaves the gradient" + words(w, g));
  };
  for (const AdamOptions& options : all)
    for (const Kind kind : {Kind::ordinary, Kind::special})
      for_each_combination([&](auto weight, auto gradient) {
        check(options, kind, 2051, weight, gradient);
        if (sizeof(weight) == sizeof(gradient)) check(options, kind, 31, weight, gradient);
      });
  // Shared by threads.
  check(all[1], Kind::special, 140001, 0.0f, 0.0f);
  check(all[2], Kind::special, 140001, 0.0f, 0.0f);
  check(all[1], Kind::special, 140001, BFloat16{}, Float16{});
}

TEST_P(BackendConformance, ASkippedStepChangesNoByte) {
  for_each_combination([&](auto weight_tag, auto gradient_tag) {
    using Weight = decltype(weight_tag);
    const OptimizerData<Weight, decltype(gradient_tag)> data(
        1025, Kind::special);  // NaN payloads must survive as well
    StepState state = state_in_training();
    state.found_inf[2] = 1.0f;
    const Tensor step = backend().make_step_state(state), g = tensor(data.gradient);
    Tensor w = tensor(data.weight), m = tensor(data.first), v = tensor(data.second);
    backend().sgd_step({.momentum = 0.9f, .weight_decay = 0.1f, .gradient_factor = 0.5f}, w, g, m, 2, step);
    backend().adam_step({.weight_decay = 0.1f, .decoupled_decay = true}, w, g, m, v, 2, step);
    expect_same_bits(values_of<Weight>(w), data.weight, "weight");
    expect_same_bits(values_of<float>(m), data.first, "velocity or first moment");
    expect_same_bits(values_of<float>(v), data.second, "second moment");
    state.learning_rate[1] = 0.1f;
    backend().sgd_step({}, w, g, m, 1, backend().make_step_state(state));  // another optimizer's flag
    EXPECT_FALSE(std::ranges::equal(values_of<Weight>(w), data.weight, same_bytes<Weight>));
  });
}

}  // namespace
}  // namespace fp16lab::engine::test
