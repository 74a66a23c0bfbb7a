// Conformance: the scalars of a step and the passes over all gradients, and the words of rejected calls.
#include <array>
#include <cmath>

#include "engine/optim/optimizer_programs.hpp"
#include "tests/engine/backend/conformance.hpp"

namespace fp16lab::engine::test {
namespace {

// ---- scalars ----

TEST_P(BackendConformance, StepStateTravelsAndRunsPrograms) {
  const StepState initial = state_in_training();
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
  // One of the engine's: a device looks its own copy up by name.
  const ScalarProgram program =
      scalar_program("optimizer.advance_steps", &optim::advance_steps_program,
                     optim::AdvanceSteps{.optimizer = 2, .beta1 = 0.5f, .beta2 = 0.75f});
  Tensor step = backend().make_step_state(state_in_training());
  backend().run(program, step);
  StepState expected = state_in_training();
  ++expected.taken_steps[2];
  expected.beta1_power[2] *= 0.5;
  expected.beta2_power[2] *= 0.75;
  EXPECT_TRUE(same_bytes(backend().read_step_state(step), expected));
}

TEST_P(BackendConformance, RunWithoutAFunctionIsRejected) {
  Tensor step = backend().make_step_state({});
  EXPECT_THROW(backend().run({.name = "policy.none", .function = nullptr, .parameters = {}}, step),
               std::invalid_argument);
}

// ---- unscale, norm, clip ----

TEST_P(BackendConformance, UnscalingHalvesFlushesWhatScalingSaved) {
  StepState state;
  state.set_scale(65536.0);
  Tensor step = backend().make_step_state(state);
  // Divided by 2^16, 2^-10 lies below half of the smallest subnormal, 2^-9 is that tie, which goes to zero,
  // and 1.5 * 2^-9 lies above it. BF16 has FP32's exponents.
  const std::vector<float> values{0x1p-10f, -0x1p-9f, 0x1.8p-9f, 1.0f};
  std::array<Tensor, 2> gradients{tensor(mapped(values, [](float x) { return half_of(x); })),
                                  tensor(mapped(values, [](float x) { return low_of<BFloat16>(x); }))};
  backend().unscale(gradients, 0, step);
  const auto expect_words = [&](const Tensor& actual, const std::vector<std::uint16_t>& words) {
    std::vector<std::uint16_t> stored(words.size());
    backend().download(actual, std::as_writable_bytes(std::span(stored)));
    EXPECT_EQ(stored, words);
  };
  expect_words(gradients[0], {0x0000, 0x8000, 0x0001, 0x0100});
  expect_words(gradients[1], {0x3280, 0xb300, 0x3340, 0x3780});
  EXPECT_EQ(backend().read_step_state(step).found_inf[0], 0.0f) << "a flush is no overflow";
}

TEST_P(BackendConformance, UnscaleNeverClearsTheFlag) {
  StepState state = state_in_training();
  state.found_inf[0] = 1.0f;
  Tensor step = backend().make_step_state(state);
  std::array<Tensor, 1> gradients{tensor(std::vector<float>{1.0f})};
  backend().unscale(gradients, 0, step);
  EXPECT_TRUE(same_bytes(backend().read_step_state(step), state));
}

TEST_P(BackendConformance, NothingHasNormZero) {
  StepState expected = state_in_training();
  expected.grad_norm = 3.5;
  Tensor step = backend().make_step_state(expected);
  backend().global_norm({}, step);
  expected.grad_norm = 0.0;
  EXPECT_TRUE(same_bytes(backend().read_step_state(step), expected));
}

TEST_P(BackendConformance, ClipByValueKeepsNaNZerosAndWhatIsInside) {
  const float inf = HUGE_VALF, canonical_nan = float_from_bits(0x7fffffffu);
  std::array<Tensor, 1> gradients{tensor(
      std::vector<float>{-std::nanf("1"), -0.0f, 0.0f, inf, -inf, 0.5f, -0.5f, 0x1.000002p-1f, -0x1p-149f})};
  backend().clip_by_value(gradients, 0.5f);
  expect_same_bits(values_of<float>(gradients[0]),
                   {canonical_nan, -0.0f, 0.0f, 0.5f, -0.5f, 0.5f, -0.5f, 0.5f, -0x1p-149f}, "clip_by_value");
  for (const float bad : {0.0f, -1.0f, inf, canonical_nan})
    EXPECT_THROW(backend().clip_by_value(gradients, bad), std::invalid_argument) << bad;
}

// ---- optimizers ----

/// One step of optimizer `optimizer`, by a rule with these options and states.
void step_weight(Backend& backend, UpdateRule rule, const UpdateOptions& options, Tensor& weight,
                 const Tensor& gradient, std::array<Tensor*, most_update_states> states, int optimizer,
                 const Tensor& step) {
  backend.update({.rule = rule,
                  .options = options,
                  .weight = weight,
                  .gradient = gradient,
                  .states = states,
                  .optimizer = optimizer,
                  .step = step});
}

TEST_P(BackendConformance, PlainSgdNeedsNoVelocity) {
  Tensor w = tensor(std::vector<float>{1.0f}), undefined;
  StepState state = state_in_training();
  state.learning_rate[0] = 0.1f;
  const Tensor step = backend().make_step_state(state);
  step_weight(backend(), UpdateRule::sgd, {}, w, tensor(std::vector<float>{1.0f}), {&undefined}, 0, step);
  expect_same_bits(values_of<float>(w), {1.0f - 0.1f}, "f32");
  Tensor low = tensor(std::vector{low_of<BFloat16>(1.0f)});
  step_weight(backend(), UpdateRule::sgd, {}, low, tensor(std::vector{half_of(1.0f)}), {&undefined}, 0, step);
  expect_same_bits(values_of<BFloat16>(low), {low_of<BFloat16>(1.0f - 0.1f)}, "bf16 by f16");
}

TEST_P(BackendConformance, AStepIsSkippedByItsOwnFlagOnly) {
  StepState state = state_in_training();
  state.found_inf[2] = 1.0f;
  state.learning_rate[1] = 0.1f;
  const Tensor step = backend().make_step_state(state), g = tensor(std::vector<float>{1.0f});
  Tensor w = tensor(std::vector<float>{1.0f}), undefined;
  step_weight(backend(), UpdateRule::sgd, {}, w, g, {&undefined}, 2, step);
  expect_same_bits(values_of<float>(w), {1.0f}, "its own");
  step_weight(backend(), UpdateRule::sgd, {}, w, g, {&undefined}, 1, step);
  expect_same_bits(values_of<float>(w), {1.0f - 0.1f}, "another's");
}

// ---- rejected calls ----

TEST_P(BackendConformance, RejectedCallsSayWhatIsWrong) {
  Tensor f32 = output(Shape{4}, DType::f32), f16 = output(Shape{4}, DType::f16),
         i32 = output(Shape{4}, DType::i32);
  Tensor square = output(Shape{2, 2}, DType::f32), other = output(Shape{5}, DType::f32), undefined;
  EXPECT_REFUSED("cast: x is an undefined tensor", backend().cast(undefined, f16));
  EXPECT_REFUSED("cast: x is i32 (4); f32, f16 or bf16 is needed", backend().cast(i32, f16));
  EXPECT_REFUSED("cast: x is f32 (4), out is f32 (5): their shapes differ", backend().cast(f32, other));
  EXPECT_REFUSED("negate: x is f32 (4), out is f16 (4): their dtypes differ",
                 backend().unary(UnaryOp::negate, f32, f16));
  EXPECT_REFUSED("add: a is f32 (4) does not broadcast to out (5)",
                 backend().binary(BinaryOp::add, f32, other, other));
  Tensor shared = square.reshaped(Shape{4, 1});
  Tensor wide = output(Shape{4, 4}, DType::f32);
  EXPECT_REFUSED("cast: x and out overlap in memory: x is f32 (2, 2), out is f32 (2, 2)",
                 backend().cast(square, square));
  EXPECT_REFUSED("reduce: x is f32 (2, 2) and has no axis 2",
                 backend().reduce(ReduceOp::sum, square, 2, f32));
  EXPECT_REFUSED("reduce: out is f32 (4); it must have 2 elements, as f32 (2, 2) has without axis 0",
                 backend().reduce(ReduceOp::sum, square, 0, f32));
  EXPECT_REFUSED("multiply: x is f32 (4), out is f32 (5): their shapes differ",
                 backend().scale(f32, 2.0f, other));
  EXPECT_REFUSED("upload: 15 host bytes for f32 (4), which has 16",
                 backend().upload(std::vector<std::byte>(15), f32));

  const Tensor a = output(Shape{64, 784}, DType::f16), b = output(Shape{512, 783}, DType::f16);
  Tensor out = output(Shape{64, 512}, DType::f16);
  EXPECT_REFUSED("gemm: a is f16 (64, 784), b is f16 (512, 783) transposed: inner extents 784 and 783 differ",
                 backend().gemm({.a = a, .b = b, .out = out, .transpose_b = true}));
  EXPECT_REFUSED(
      "gemm: a is f16 (64, 784), b is f16 (64, 784) transposed: out must be (64, 64), but out is f16 (64, "
      "512)",
      backend().gemm({.a = a, .b = a, .out = out, .transpose_b = true}));
  EXPECT_REFUSED("gemm: a is f16 (64, 784), b is f32 (4, 4): their dtypes differ",
                 backend().gemm({.a = a, .b = wide, .out = out}));

  Tensor step = backend().make_step_state({});
  std::array<Tensor, 2> gradients{f32, i32};
  EXPECT_REFUSED("unscale: gradient 1 is i32 (4); f32, f16 or bf16 is needed",
                 backend().unscale(gradients, 0, step));
  EXPECT_REFUSED("unscale: optimizer 8 is not in [0, 8)",
                 backend().unscale(std::span(gradients).first(1), 8, step));
  Tensor velocity = output(Shape{4}, DType::f32), half = output(Shape{4}, DType::f16);
  EXPECT_REFUSED("fill_scale: step is f32 (4); u8 is needed", backend().fill_scale(f32, f32));
  EXPECT_REFUSED("sgd_step: weight is f32 (4), gradient is f32 (5): their shapes differ",
                 step_weight(backend(), UpdateRule::sgd, {.momentum = 0.5f}, f32, other, {&other}, 0, step));
  EXPECT_REFUSED("sgd_step: velocity is f16 (4); f32 is needed",
                 step_weight(backend(), UpdateRule::sgd, {.momentum = 0.5f}, f16, f32, {&half}, 0, step));
  EXPECT_REFUSED("adam_step: second_moment is f16 (4); f32 is needed",
                 step_weight(backend(), UpdateRule::adam, {}, f16, f32, {&velocity, &half}, 0, step));
  EXPECT_REFUSED("adam_step: gradient is i32 (4); f32, f16 or bf16 is needed",
                 step_weight(backend(), UpdateRule::adam, {}, f16, i32, {&velocity, &velocity}, 0, step));
  EXPECT_REFUSED(
      "lamb_step: weight is f32 (4), gradient is f32 (5): their shapes differ",
      step_weight(backend(), UpdateRule::lamb_direction, {}, f32, other, {&velocity, &velocity}, 0, step));
  EXPECT_REFUSED(
      "lamb_step: first_moment is f16 (4); f32 is needed",
      step_weight(backend(), UpdateRule::lamb_direction, {}, f16, f32, {&half, &velocity}, 0, step));
  EXPECT_REFUSED("rmsprop_step: square_average is an undefined tensor",
                 step_weight(backend(), UpdateRule::rmsprop, {}, f16, f32,
                             {&undefined, &undefined, &undefined}, 0, step));
  EXPECT_REFUSED("rmsprop_step: gradient_average is f16 (4); f32 is needed",
                 step_weight(backend(), UpdateRule::rmsprop, {.centered = true}, f16, f32,
                             {&velocity, &half, &undefined}, 0, step));
  EXPECT_REFUSED(
      "rmsprop_step: square_average and velocity overlap in memory: square_average is f32 (4), "
      "velocity is f32 (4)",
      step_weight(backend(), UpdateRule::rmsprop, {.momentum = 0.5f}, f16, f32,
                  {&velocity, &undefined, &velocity}, 0, step));
  EXPECT_REFUSED("sgd_step: gradient_factor is inf; it must be finite",
                 step_weight(backend(), UpdateRule::sgd, {.gradient_factor = HUGE_VALF}, f16, f32,
                             {&velocity}, 0, step));
}

TEST_P(BackendConformance, NoVerbMixesF16AndBf16) {
  Tensor f16 = output(Shape{2, 2}, DType::f16), bf16 = output(Shape{2, 2}, DType::bf16);
  Tensor index = tensor(std::vector<std::int32_t>{0, 1});
  Tensor f16_row = output(Shape{2}, DType::f16), bf16_row = output(Shape{2}, DType::bf16);
  EXPECT_REFUSED("negate: x is f16 (2, 2), out is bf16 (2, 2): their dtypes differ",
                 backend().unary(UnaryOp::negate, f16, bf16));
  EXPECT_REFUSED("add: a is f16 (2, 2), b is bf16 (2, 2): their dtypes differ",
                 backend().binary(BinaryOp::add, f16, bf16, f16));
  EXPECT_REFUSED("multiply: x is bf16 (2, 2), out is f16 (2, 2): their dtypes differ",
                 backend().scale(bf16, 1.0f, f16));
  EXPECT_REFUSED("divide: x is bf16 (2, 2), out is f16 (2, 2): their dtypes differ",
                 backend().divide(bf16, 1.0f, f16));
  EXPECT_REFUSED("reduce: x is bf16 (2, 2), out is f16 (2): their dtypes differ",
                 backend().reduce(ReduceOp::sum, bf16, 0, f16_row));
  EXPECT_REFUSED("pick: x is f16 (2, 2), out is bf16 (2): their dtypes differ",
                 backend().pick(f16, index, bf16_row));
  EXPECT_REFUSED("place: out is f16 (2, 2), x is bf16 (2): their dtypes differ",
                 backend().place(bf16_row, index, f16));
  EXPECT_REFUSED("gather_rows: table is f16 (2, 2), out is bf16 (2, 2): their dtypes differ",
                 backend().gather_rows(f16, index, bf16));
  EXPECT_REFUSED("scatter_rows: out is bf16 (2, 2), x is f16 (2, 2): their dtypes differ",
                 backend().scatter_rows(f16, index, bf16));
  Tensor wide = output(Shape{2, 2}, DType::f32), bf16_out = output(Shape{2, 2}, DType::bf16);
  EXPECT_REFUSED("gemm: a is f16 (2, 2), b is bf16 (2, 2): their dtypes differ",
                 backend().gemm({.a = f16, .b = bf16, .out = wide}));
  EXPECT_REFUSED("gemm: out is bf16 (2, 2), a is f16 (2, 2): their dtypes differ",
                 backend().gemm({.a = f16, .b = f16, .out = bf16_out}));
  EXPECT_REFUSED("gemm: bias is bf16 (2), a is f16 (2, 2): their dtypes differ",
                 backend().gemm({.a = f16, .b = f16, .out = wide, .bias = &bf16_row}));
  Tensor f16_out = output(Shape{2, 2}, DType::f16);
  EXPECT_REFUSED("gemm: addend is bf16 (2, 2), out is f16 (2, 2): their dtypes differ",
                 backend().gemm({.a = f16, .b = f16, .out = f16_out, .addend = &bf16}));
}

TEST_P(BackendConformance, MovesRejectWhatDoesNotFit) {
  Tensor x = output(Shape{2, 3, 4}, DType::f32), out = output(Shape{2, 4, 3}, DType::f32);
  Tensor halves = output(Shape{2, 4, 3}, DType::f16);
  const auto permute = [&](std::vector<int> axes, Tensor& to) {
    return refusal([&] { backend().permute(x, axes, to); });
  };
  EXPECT_EQ(permute({0, 1}, out),
            "permute: axes are (0, 1), not a permutation of the axes of x is f32 (2, 3, 4)");
  EXPECT_THROW(backend().permute(x, std::vector{0, 1, 1}, out), std::invalid_argument);
  EXPECT_THROW(backend().permute(x, std::vector{0, 1, 3}, out), std::invalid_argument);
  EXPECT_THROW(backend().permute(x, std::vector{0, 1, -1}, out), std::invalid_argument);
  EXPECT_EQ(permute({0, 1, 2}, out),
            "permute: x is f32 (2, 3, 4) with axes (0, 1, 2) does not give out is f32 (2, 4, 3)");
  EXPECT_EQ(permute({0, 2, 1}, halves),
            "permute: x is f32 (2, 3, 4), out is f16 (2, 4, 3): their dtypes differ");
  EXPECT_THROW(backend().permute(x, std::vector{0, 1, 2}, x), std::invalid_argument) << "not in place";

  Tensor part = output(Shape{2, 2, 4}, DType::f32);
  EXPECT_REFUSED("slice: x is f32 (2, 3, 4) and has no axis 3", backend().slice(x, 3, 0, part));
  EXPECT_REFUSED("slice: 2 from 2 on, along axis 1, is not inside x is f32 (2, 3, 4)",
                 backend().slice(x, 1, 2, part));
  EXPECT_THROW(backend().slice(x, 1, -1, part), std::invalid_argument);
  EXPECT_REFUSED("slice: x is f32 (2, 3, 4), out is f32 (2, 2, 4): their shapes differ on other axes than 0",
                 backend().slice(x, 0, 0, part));
  EXPECT_REFUSED("insert: 2 from 2 on, along axis 1, is not inside out is f32 (2, 3, 4)",
                 backend().insert(part, 1, 2, x));
}

}  // namespace
}  // namespace fp16lab::engine::test
