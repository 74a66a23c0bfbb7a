// Conformance: bytes and step states that travel, the memory of verbs, and what is left out of a call.
#include <array>

#include "engine/optim/optimizer_programs.hpp"
#include "tests/engine/backend/conformance.hpp"

namespace fp16lab::engine::test {
namespace {

TEST_P(BackendConformance, BytesTravelUnchanged) {
  const std::vector<float> values = random_floats(1025, Kind::special, 1);  // NaN payloads too
  const Tensor x = tensor(values);
  Tensor copied = output(Shape{25, 41}, DType::f32);
  backend().copy(x, copied);
  expect_same_bits(values_of<float>(copied), values, "copy");
}

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

TEST_P(BackendConformance, PlainSgdNeedsNoVelocity) {
  StepState state = state_in_training();
  state.learning_rate[0] = 0.1f;
  const Tensor step = backend().make_step_state(state), gradient = tensor(std::vector{half_of(1.0f)});
  Tensor w = tensor(std::vector<float>{1.0f}), undefined;
  for (Tensor* const velocity : {&undefined, static_cast<Tensor*>(nullptr)})
    backend().update({.rule = UpdateRule::sgd,
                      .options = {},
                      .weight = w,
                      .gradient = gradient,
                      .states = {velocity},
                      .optimizer = 0,
                      .step = step});
  expect_same_bits(values_of<float>(w), {1.0f - 0.1f - 0.1f}, "two steps");
}

TEST_P(BackendConformance, ScratchIsPooled) {
  const Conv2dGeometry geometry{.stride = {2, 1}, .padding = {1, 1}, .layout = Layout::nhwc};
  Conv2dGeometry grouped = geometry;
  grouped.groups = 2;
  const auto random = [&](const Shape& shape, std::uint64_t seed) {
    return tensor(shape, random_halves(shape.element_count(), Kind::ordinary, seed));
  };
  const Tensor x = random({8, 23, 21, 5}, 52), dy = random({8, 12, 21, 6}, 53),
               weight = random({6, 5, 3, 3}, 51);
  Tensor y = output(dy.shape(), DType::f16), dx = output(x.shape(), DType::f16),
         dw = output(weight.shape(), DType::f16), index = output(x.shape(), DType::i32);
  const Tensor even_x = random({8, 23, 21, 4}, 54), two_channels = random({6, 2, 3, 3}, 55),
               bias = random({4}, 56);
  Tensor even_dx = output(even_x.shape(), DType::f16), even_dw = output(two_channels.shape(), DType::f16);
  std::vector<std::int32_t> places(5000);
  for (std::size_t i = 0; i < places.size(); ++i) places[i] = static_cast<std::int32_t>(i * 7 % 300);
  const Tensor row = tensor(places), step = backend().make_step_state({});
  Tensor table = random({300, 70}, 57), rows = output({5000, 70}, DType::f16),
         turned = output({70, 300}, DType::f16), part = output({300, 7}, DType::f16);
  const std::array axes{1, 0};
  const auto run = [&] {
    backend().conv2d(x, weight, geometry, nullptr, y);
    backend().conv2d_input_gradient(dy, weight, geometry, nullptr, dx);
    backend().conv2d_weight_gradient(x, dy, geometry, dw);
    backend().conv2d(even_x, two_channels, grouped, nullptr, y);
    backend().conv2d_input_gradient(dy, two_channels, grouped, &bias, even_dx);
    backend().conv2d_weight_gradient(even_x, dy, grouped, even_dw);
    const Pool2dGeometry pool{.kernel = {3, 3}, .stride = {1, 1}, .padding = {1, 1}, .layout = Layout::nhwc};
    backend().max_pool2d(x, pool, dx, index);
    backend().pool_place(x, index, Layout::nhwc, dx);
    backend().average_pool2d(x, pool, dx);
    backend().gather_rows(table, row, rows);
    backend().scatter_rows(rows, row, table);
    backend().permute(table, axes, turned);
    backend().slice(table, 1, 3, part);
    backend().insert(part, 1, 60, table);
    backend().fill_bernoulli(rows, {.seed = 1}, 0.5f, step);
  };
  run();
  const PoolStatistics warm = backend().memory_statistics();
  for (int i = 0; i < 3; ++i) run();
  EXPECT_GT(backend().memory_statistics().allocations, warm.allocations);
  EXPECT_EQ(backend().memory_statistics().system_allocations, warm.system_allocations);
  EXPECT_EQ(backend().memory_statistics().bytes_in_use, warm.bytes_in_use);
}

}  // namespace
}  // namespace fp16lab::engine::test
