// The order in which a backward pass changes a gradient between vjps (engine/autograd/backward_pass.hpp): all
// steps of it at once, against the same steps by hand.
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "tests/engine/amp/asked_scales.hpp"
#include "tests/engine/autograd/support.hpp"

namespace fp16lab::engine::test::pass_order_test {
namespace {

using Values = std::vector<float>;

constexpr std::int64_t shards = 2, rows = 3, inputs = 6, outputs = 4;  // rows of a shard
constexpr int exponent = 3;
constexpr std::uint64_t seed = 9;

struct Fp8Products final : CastPolicy {
  DType compute_dtype(OpSite, std::span<const DType>) override { return DType::f16; }
  Variable cast(const Variable& input, DType dtype) override { return ops::cast(input, dtype); }
  ProductFormats product_formats(OpSite, bool) override {
    const OperandRounding operand{DType::e4m3}, gradient{DType::e5m2};
    return {.forward = {operand, operand}, .dx = {gradient, operand}, .dw = {gradient, operand}};
  }
};

Values numbers(std::int64_t count, float unit) {
  Values values;
  for (std::int64_t i = 0; i < count; ++i)
    values.push_back(static_cast<float>((i * i * 7 + i * 3) % 29 - 14) * unit);
  return values;
}

class PassOrder : public testing::Test {
 protected:
  PassOrder() : step(backend->make_step_state({})) {}

  const Values x = numbers(shards * rows * inputs, 0x1.2p-3f), w = numbers(outputs * inputs, 0x1.1p-4f);
  const Values g = numbers(shards * rows * outputs, 0x1.3p-19f);  // E5M2's least number is 2^-16

  /// dW of both shards from Tape::backward.
  Values from_tape() {
    Parameter weight("fc.weight", tensor_of(*backend, {outputs, inputs}, w));
    weight.dtypes = {.model = DType::f16, .gradient = DType::f32};
    Tape tape(*backend);
    AskedScales scales([](const GradientSite&) { return exponent; });
    tape.set_gradient_scales(&scales);
    tape.set_context({.training = true,
                      .seed = seed,
                      .step = step,
                      .stochastic_gradients = true,
                      .shards = {.total = shards, .first = 0, .local = shards}});
    Fp8Products policy;
    Variable y;
    {
      const CastPolicyGuard fp8(tape, &policy);
      const ScopeGuard scope(tape, "fc");
      y = ops::linear(tape.constant(halves_of(*backend, {shards * rows, inputs}, x)), tape.parameter(weight),
                      {});
    }
    tape.backward(y, halves_of(*backend, {shards * rows, outputs}, g));
    EXPECT_EQ(scales.asked.size(), 1u);
    return values_of(*backend, weight.gradient);
  }

  /// The same by hand: scaled by 2^scale, cut into shards, rounded to E5M2, multiplied, rounded by chance,
  /// unscaled.
  Values by_hand(int scale) {
    Tensor wide = backend->empty({shards, outputs, inputs}, DType::f32);
    for (std::int64_t shard = 0; shard < shards; ++shard) {
      Values part(g.begin() + shard * rows * outputs, g.begin() + (shard + 1) * rows * outputs);
      Tensor cotangent = halves_of(*backend, {rows, outputs}, part);
      backend->scale(cotangent, std::ldexp(1.0f, scale), cotangent);
      const Values of_shard(x.begin() + shard * rows * inputs, x.begin() + (shard + 1) * rows * inputs);
      Tensor product = backend->empty({outputs, inputs}, DType::f32);
      backend->gemm({.a = cotangent,
                     .b = halves_of(*backend, {rows, inputs}, of_shard),
                     .out = product,
                     .transpose_a = true,
                     .a_format = {DType::e5m2},
                     .b_format = {DType::e4m3}});
      backend->insert(product.reshaped({1, outputs, inputs}), 0, shard, wide);
    }
    Tensor rounded = backend->empty(wide.shape(), DType::f16);
    backend->cast_stochastic(wide, rounded, {.seed = seed, .stream = stream_id("fc.linear.0.1.0/gradient")},
                             step, nullptr);
    Tensor unscaled = backend->empty(wide.shape(), DType::f32);
    backend->cast(rounded, unscaled);
    backend->scale(unscaled, std::ldexp(1.0f, -scale), unscaled);
    return values_of(*backend, unscaled);
  }

  std::unique_ptr<Backend> backend = hopper_backend();
  Tensor step;
};

TEST_F(PassOrder, IsScaleShardFp8ChanceUnscale) {
  EXPECT_EQ(from_tape(), by_hand(exponent));
  EXPECT_NE(from_tape(), by_hand(0)) << "these numbers do not distinguish the orders";
}

}  // namespace
}  // namespace fp16lab::engine::test::pass_order_test
