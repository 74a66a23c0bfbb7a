// Conformance: the verbs of the step, and the words of rejected calls.
#include <array>
#include <cmath>

#include "tests/engine/backend_conformance.hpp"

namespace fp16lab::engine::test {
namespace {

StepState make_state() {
  StepState state;
  state.set_scale(3.0 * 1024.0);
  state.learning_rate = 0.1f;
  state.iteration = 7;
  state.taken_steps = 5;
  state.skipped_steps = 2;
  state.beta1_power = 0.59049;
  state.beta2_power = 0.995;
  return state;
}

// ---- scalars ----

TEST_P(BackendConformance, StepStateTravelsAndRunsPrograms) {
  const StepState initial = make_state();
  Tensor step = backend().make_step_state(initial);
  EXPECT_TRUE(same_bytes(backend().read_step_state(step), initial));
  StepState changed = initial;
  changed.policy[63] = std::byte{9};
  backend().write_step_state(changed, step);
  EXPECT_TRUE(same_bytes(backend().read_step_state(step), changed));

  Tensor seed = output(Shape{}, DType::f32);
  backend().fill_scale(step, seed);
  expect_same_bits(values_of<float>(seed), {3072.0f}, "fill_scale");
  EXPECT_EQ(initial.inverse_scale, static_cast<float>(1.0 / 3072.0));
}

TEST_P(BackendConformance, RunAppliesTheProgramOnce) {
  Tensor step = backend().make_step_state(make_state());
  // The emulated back end calls the function; a device looks its own copy up by name, so this is a host test
  // there.
  if (backend().name() != "emulated") GTEST_SKIP() << "test programs have no device copy";
  ScalarProgram program{.name = "test.add", .function = [](StepState& state, const std::byte* parameters) {
                          std::uint64_t amount = 0;
                          std::memcpy(&amount, parameters, sizeof(amount));
                          state.iteration += amount;
                        }};
  const std::uint64_t amount = 35;
  std::memcpy(program.parameters.data(), &amount, sizeof(amount));
  backend().run(program, step);
  StepState expected = make_state();
  expected.iteration = 42;
  EXPECT_TRUE(same_bytes(backend().read_step_state(step), expected));
}

// ---- unscale, norm, clip ----

TEST_P(BackendConformance, UnscaleMultipliesAndFinds) {
  for (const std::int64_t size : {std::int64_t{1}, std::int64_t{31}, std::int64_t{131073}})
    for (const float bad : {1.0f, HUGE_VALF, -HUGE_VALF, std::nanf(""), 0x1.fffffep127f}) {
      std::vector<float> values = random_floats(size, Kind::wide, 51);
      values.back() = bad;
      const std::vector<float> others = random_floats(100, Kind::ordinary, 52);
      const StepState state = make_state();
      const std::vector<float> expected =
          mapped(values, [&](float x) { return canonical(x * state.inverse_scale); });
      Tensor step = backend().make_step_state(state);
      std::array<Tensor, 2> gradients{tensor(values), tensor(others)};
      backend().unscale(gradients, 3, step);
      expect_same_bits(values_of<float>(gradients[0]), expected, "unscale");
      const std::vector<float> expected_others =
          mapped(others, [&](float x) { return x * state.inverse_scale; });
      expect_same_bits(values_of<float>(gradients[1]), expected_others, "unscale goes on after an infinity");
      StepState after = state;
      if (!std::isfinite(bad)) after.found_inf[3] = 1.0f;
      EXPECT_TRUE(same_bytes(backend().read_step_state(step), after)) << bad;
    }
}

TEST_P(BackendConformance, UnscaleNeverClearsTheFlag) {
  StepState state = make_state();
  state.found_inf[0] = 1.0f;
  Tensor step = backend().make_step_state(state);
  std::array<Tensor, 1> gradients{tensor(std::vector<float>{1.0f})};
  backend().unscale(gradients, 0, step);
  EXPECT_TRUE(same_bytes(backend().read_step_state(step), state));
}

double naive_norm(const std::vector<std::vector<float>>& tensors) {
  double sum = 0.0;
  for (const std::vector<float>& values : tensors) {
    const std::vector<double> squares =
        mapped(values, [](float x) { return static_cast<double>(x) * static_cast<double>(x); });
    if (!squares.empty()) sum += naive_tree<double>(squares, [](double a, double b) { return a + b; });
  }
  return std::sqrt(sum);
}

TEST_P(BackendConformance, GlobalNormInDouble) {
  const std::vector<std::vector<float>> values{random_floats(131073, Kind::ordinary, 53),
                                               random_floats(1, Kind::wide, 54),
                                               {},
                                               random_floats(1025, Kind::wide, 55)};
  std::vector<Tensor> gradients = mapped(values, [&](const std::vector<float>& one) { return tensor(one); });
  StepState expected = make_state();
  Tensor step = backend().make_step_state(expected);
  backend().global_norm(gradients, step);
  expected.grad_norm = naive_norm(values);
  EXPECT_TRUE(same_bytes(backend().read_step_state(step), expected))
      << backend().read_step_state(step).grad_norm;

  gradients.push_back(tensor(std::vector<float>{-std::nanf("")}));
  backend().global_norm(gradients, step);
  expected.grad_norm = double_from_bits(0x7fffffffffffffffu);
  EXPECT_TRUE(same_bytes(backend().read_step_state(step), expected)) << "a NaN norm is canonical";
  backend().global_norm({}, step);
  expected.grad_norm = 0.0;
  EXPECT_TRUE(same_bytes(backend().read_step_state(step), expected)) << "nothing has norm 0";
}

TEST_P(BackendConformance, ClipMultipliesAboveTheLimitOnly) {
  const std::vector<float> values = random_floats(70001, Kind::special, 56);
  for (const double norm : {0.5, 1.0, 1.0 + 0x1p-52, 37.25, HUGE_VAL, std::nan("")}) {
    StepState state = make_state();
    state.grad_norm = norm;
    Tensor step = backend().make_step_state(state);
    std::array<Tensor, 1> gradients{tensor(values)};
    backend().clip_by_norm(gradients, 1.0, step);
    std::vector<float> expected = values;
    if (std::isfinite(norm) && norm > 1.0) {
      const auto factor = static_cast<float>(1.0 / (norm + 1e-6));
      for (float& value : expected) value = canonical(value * factor);
    }
    expect_same_bits(values_of<float>(gradients[0]), expected, "clip at norm " + std::to_string(norm));
    EXPECT_TRUE(same_bytes(backend().read_step_state(step), state));
  }
}

TEST_P(BackendConformance, ClipByValueLimitsEveryElement) {
  const float inf = HUGE_VALF, canonical_nan = float_from_bits(0x7fffffffu);
  std::array<Tensor, 2> gradients{tensor(std::vector<float>{-std::nanf("1"), -0.0f, 0.0f, inf, -inf, 0.5f,
                                                            -0.5f, 0x1.000002p-1f, -0x1p-149f}),
                                  tensor(random_floats(70001, Kind::special, 57))};
  std::vector<float> expected = values_of<float>(gradients[1]);
  for (float& value : expected) value = std::isnan(value) ? canonical_nan : std::clamp(value, -0.5f, 0.5f);
  backend().clip_by_value(gradients, 0.5f);
  expect_same_bits(values_of<float>(gradients[0]),
                   {canonical_nan, -0.0f, 0.0f, 0.5f, -0.5f, 0.5f, -0.5f, 0.5f, -0x1p-149f}, "clip_by_value");
  expect_same_bits(values_of<float>(gradients[1]), expected, "clip_by_value of many");
  for (const float bad : {0.0f, -1.0f, inf, canonical_nan})
    EXPECT_THROW(backend().clip_by_value(gradients, bad), std::invalid_argument) << bad;
}

// ---- optimizers ----

/// Gradients and weights of optimizer cases: specials too, or the usual.
struct OptimizerData {
  std::vector<float> weight, gradient, first, second;
};
OptimizerData optimizer_data(std::int64_t size, Kind kind) {
  OptimizerData data{random_floats(size, kind, 61), random_floats(size, kind, 62),
                     random_floats(size, kind, 63), random_floats(size, kind, 64)};
  for (float& value : data.second) value = std::fabs(value);
  return data;
}

TEST_P(BackendConformance, SgdInTheDocumentedOrder) {
  const std::vector<SgdOptions> all{{},
                                    {.weight_decay = 1e-2f},
                                    {.momentum = 0.9f},
                                    {.momentum = 0.9f, .dampening = 0.3f, .weight_decay = 1e-2f},
                                    {.momentum = 0.9f, .nesterov = true},
                                    {.momentum = 0.9f, .weight_decay = 1e-2f, .nesterov = true}};
  for (const SgdOptions& options : all)
    for (const std::uint64_t taken : {std::uint64_t{1}, std::uint64_t{2}})
      for (const Kind kind : {Kind::ordinary, Kind::special})
        for (const std::int64_t size : {std::int64_t{1}, std::int64_t{31}, std::int64_t{70001}}) {
          const OptimizerData data = optimizer_data(size, kind);
          StepState state = make_state();
          state.taken_steps = taken;
          std::vector<float> weight, velocity;
          for (std::size_t i = 0; i < data.weight.size(); ++i) {
            float d = data.gradient[i];
            if (options.weight_decay != 0.0f) {
              const float decay = options.weight_decay * data.weight[i];
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
            const float update = state.learning_rate * d;
            weight.push_back(canonical(data.weight[i] - update));
            velocity.push_back(v);
          }
          Tensor w = tensor(data.weight), v = tensor(data.first);
          const Tensor g = tensor(data.gradient), step = backend().make_step_state(state);
          backend().sgd_step(options, w, g, v, 0, step);
          expect_same_bits(values_of<float>(w), weight, "sgd weight");
          expect_same_bits(values_of<float>(v), velocity, "sgd velocity");
          expect_same_bits(values_of<float>(g), data.gradient, "sgd leaves the gradient");
        }
  Tensor w = tensor(std::vector<float>{1.0f}), undefined;
  backend().sgd_step({}, w, tensor(std::vector<float>{1.0f}), undefined, 0,
                     backend().make_step_state(make_state()));
  expect_same_bits(values_of<float>(w), {1.0f - 0.1f}, "plain SGD needs no velocity");
}

TEST_P(BackendConformance, AdamInTheDocumentedOrder) {
  const std::vector<AdamOptions> all{{},
                                     {.beta1 = 0.5f, .beta2 = 0.75f, .epsilon = 1e-3f, .weight_decay = 1e-2f},
                                     {.weight_decay = 1e-1f, .decoupled_decay = true}};
  for (const AdamOptions& options : all)
    for (const Kind kind : {Kind::ordinary, Kind::special})
      for (const std::int64_t size : {std::int64_t{1}, std::int64_t{31}, std::int64_t{70001}}) {
        const OptimizerData data = optimizer_data(size, kind);
        const StepState state = make_state();
        const double rate = static_cast<double>(state.learning_rate);
        const auto step_size = static_cast<float>(rate / (1.0 - state.beta1_power));
        const auto root = static_cast<float>(std::sqrt(1.0 - state.beta2_power));
        const auto kept = static_cast<float>(1.0 - rate * static_cast<double>(options.weight_decay));
        std::vector<float> weight, first, second;
        for (std::size_t i = 0; i < data.weight.size(); ++i) {
          float w = data.weight[i], g = data.gradient[i];
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
          weight.push_back(canonical(w - update));
          first.push_back(canonical(m));
          second.push_back(canonical(v));
        }
        Tensor w = tensor(data.weight), m = tensor(data.first), v = tensor(data.second);
        const Tensor step = backend().make_step_state(state);
        backend().adam_step(options, w, tensor(data.gradient), m, v, 0, step);
        expect_same_bits(values_of<float>(w), weight, "adam weight");
        expect_same_bits(values_of<float>(m), first, "adam first moment");
        expect_same_bits(values_of<float>(v), second, "adam second moment");
      }
}

TEST_P(BackendConformance, ASkippedStepChangesNoByte) {
  const OptimizerData data = optimizer_data(1025, Kind::special);  // NaN payloads must survive as well
  StepState state = make_state();
  state.found_inf[2] = 1.0f;
  const Tensor step = backend().make_step_state(state), g = tensor(data.gradient);
  Tensor w = tensor(data.weight), m = tensor(data.first), v = tensor(data.second);
  backend().sgd_step({.momentum = 0.9f, .weight_decay = 0.1f}, w, g, m, 2, step);
  backend().adam_step({.weight_decay = 0.1f, .decoupled_decay = true}, w, g, m, v, 2, step);
  expect_same_bits(values_of<float>(w), data.weight, "weight");
  expect_same_bits(values_of<float>(m), data.first, "velocity or first moment");
  expect_same_bits(values_of<float>(v), data.second, "second moment");
  backend().sgd_step({}, w, g, m, 1, step);  // another optimizer's flag
  EXPECT_NE(0,
            std::memcmp(values_of<float>(w).data(), data.weight.data(), data.weight.size() * sizeof(float)));
}

// ---- rejected calls ----

template <class Call>
std::string rejection(const Call& call) {
  try {
    call();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "accepted";
}

TEST_P(BackendConformance, RejectedCallsSayWhatIsWrong) {
  Tensor f32 = output(Shape{4}, DType::f32), f16 = output(Shape{4}, DType::f16),
         i32 = output(Shape{4}, DType::i32);
  Tensor square = output(Shape{2, 2}, DType::f32), other = output(Shape{5}, DType::f32), undefined;
  EXPECT_EQ(rejection([&] { backend().cast(undefined, f16); }), "cast: x is an undefined tensor");
  EXPECT_EQ(rejection([&] { backend().cast(i32, f16); }), "cast: x is i32 (4); f32 or f16 is needed");
  EXPECT_EQ(rejection([&] { backend().cast(f32, other); }),
            "cast: x is f32 (4), out is f32 (5): their shapes differ");
  EXPECT_EQ(rejection([&] { backend().unary(UnaryOp::negate, f32, f16); }),
            "unary: x is f32 (4), out is f16 (4): their dtypes differ");
  EXPECT_EQ(rejection([&] { backend().binary(BinaryOp::add, f32, other, other); }),
            "binary: a is f32 (4) does not broadcast to out (5)");
  Tensor shared = square.reshaped(Shape{4, 1});
  Tensor wide = output(Shape{4, 4}, DType::f32);
  EXPECT_EQ(rejection([&] { backend().cast(square, square); }),
            "cast: x and out overlap in memory: x is f32 (2, 2), out is f32 (2, 2)");
  EXPECT_EQ(rejection([&] { backend().reduce(ReduceOp::sum, square, 2, f32); }),
            "reduce: x is f32 (2, 2) and has no axis 2");
  EXPECT_EQ(rejection([&] { backend().reduce(ReduceOp::sum, square, 0, f32); }),
            "reduce: out is f32 (4); it must have 2 elements, as f32 (2, 2) has without axis 0");
  EXPECT_EQ(rejection([&] { backend().scale(f32, 2.0f, other); }),
            "scale: x is f32 (4), out is f32 (5): their shapes differ");
  EXPECT_EQ(rejection([&] { backend().upload(std::vector<std::byte>(15), f32); }),
            "upload: 15 host bytes for f32 (4), which has 16");

  const Tensor a = output(Shape{64, 784}, DType::f16), b = output(Shape{512, 783}, DType::f16);
  Tensor out = output(Shape{64, 512}, DType::f16);
  EXPECT_EQ(rejection([&] { backend().gemm({.a = a, .b = b, .out = out, .transpose_b = true}); }),
            "gemm: a is f16 (64, 784), b is f16 (512, 783) transposed: inner extents 784 and 783 differ");
  EXPECT_EQ(rejection([&] { backend().gemm({.a = a, .b = a, .out = out, .transpose_b = true}); }),
            "gemm: a is f16 (64, 784), b is f16 (64, 784) transposed: out must be (64, 64), but out is f16 "
            "(64, 512)");
  EXPECT_EQ(rejection([&] { backend().gemm({.a = a, .b = wide, .out = out}); }),
            "gemm: a is f16 (64, 784), b is f32 (4, 4): their dtypes differ");

  Tensor step = backend().make_step_state({});
  std::array<Tensor, 2> gradients{f32, f16};
  EXPECT_EQ(rejection([&] { backend().unscale(gradients, 0, step); }),
            "unscale: gradient 1 is f16 (4); f32 is needed");
  EXPECT_EQ(rejection([&] { backend().unscale(std::span(gradients).first(1), 8, step); }),
            "unscale: optimizer 8 is not in [0, 8)");
  EXPECT_EQ(rejection([&] { backend().fill_scale(f32, f32); }), "fill_scale: step is f32 (4); u8 is needed");
  EXPECT_EQ(rejection([&] { backend().sgd_step({.momentum = 0.5f}, f32, other, other, 0, step); }),
            "sgd_step: weight is f32 (4), gradient is f32 (5): their shapes differ");
}

}  // namespace
}  // namespace fp16lab::engine::test
