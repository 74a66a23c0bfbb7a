// Conformance: optimizer steps without a velocity, and under another optimizer's flag.
#include "tests/engine/backend/conformance.hpp"

namespace fp16lab::engine::test {
namespace {

TEST_P(BackendConformance, PlainSgdNeedsNoVelocity) {
  Tensor w = tensor(std::vector<float>{1.0f}), undefined;
  const Tensor step = backend().make_step_state(state_in_training());
  backend().sgd_step({}, w, tensor(std::vector<float>{1.0f}), undefined, 0, step);
  expect_same_bits(values_of<float>(w), {1.0f - 0.1f}, "f32");
  Tensor low = tensor(std::vector{low_of<BFloat16>(1.0f)});
  backend().sgd_step({}, low, tensor(std::vector{half_of(1.0f)}), undefined, 0, step);
  expect_same_bits(values_of<BFloat16>(low), {low_of<BFloat16>(1.0f - 0.1f)}, "bf16 by f16");
}

TEST_P(BackendConformance, AStepIsSkippedByItsOwnFlagOnly) {
  StepState state = state_in_training();
  state.found_inf[2] = 1.0f;
  state.learning_rate[1] = 0.1f;
  const Tensor step = backend().make_step_state(state), g = tensor(std::vector<float>{1.0f});
  Tensor w = tensor(std::vector<float>{1.0f}), undefined;
  backend().sgd_step({}, w, g, undefined, 2, step);
  expect_same_bits(values_of<float>(w), {1.0f}, "its own");
  backend().sgd_step({}, w, g, undefined, 1, step);
  expect_same_bits(values_of<float>(w), {1.0f - 0.1f}, "another's");
}

}  // namespace
}  // namespace fp16lab::engine::test
