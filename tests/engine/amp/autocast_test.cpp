// Autocast: the dtype of every op at every level, and the cache of cast parameters.
#include <array>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "engine/amp/levels/autocast.hpp"
#include "engine/autograd/custom_op.hpp"
#include "tests/engine/autograd/support.hpp"

namespace fp16lab::engine::test::autocast_test {
namespace {

using amp::Autocast;
using amp::AutocastGuard;
using amp::Level;

class AutocastTest : public testing::Test {
 protected:
  Variable f32(const Shape& shape) { return tape.constant(ones(shape)); }
  Variable f16(const Shape& shape) {
    Tensor half = backend->empty(shape, DType::f16);
    backend->fill(half, 1.0);
    return tape.constant(half);
  }
  Tensor ones(const Shape& shape) {
    Tensor tensor = backend->empty(shape, DType::f32);
    backend->fill(tensor, 1.0);
    return tensor;
  }

  std::unique_ptr<Backend> backend = hopper_backend();
  Tape tape{*backend};
  Autocast o1{tape, {.level = Level::O1}};
  Autocast o0{tape, {.level = Level::O0}};
};

#define CALL(expression) \
  []([[maybe_unused]] Backend& on, const Variable& x) -> Variable { return expression; }

/// x (2, 2) as an image (1, 1, 2, 2).
Variable image(const Variable& x) { return ops::reshape(x, {1, 1, 2, 2}); }
constexpr std::array<int, 2> swapped{1, 0};

/// x (2, 2) as one unit's gates, weight and bias.
Variable recurrence(const Variable& x) {
  return ops::lstm(ops::reshape(x, {1, 4}), ops::reshape(x, {4, 1}), ops::reshape(x, {4}), 1,
                   {.hidden = "hh", .gates = "gates", .cell = "cell"});
}

Variable twice(const Variable& x) {
  const CustomOp op{
      .name = "twice",
      .forward =
          [](Backend& backend, std::span<const Tensor> inputs) {
            Tensor out = backend.empty(inputs[0].shape(), inputs[0].dtype());
            backend.scale(inputs[0], 2.0f, out);
            return out;
          },
      .backward = [](const Variable& g, std::span<const Variable>,
                     const Variable&) { return std::vector{ops::scale(g, 2.0f)}; },
      .autocast_dtype = DType::f16,
  };
  return ops::custom(op, std::vector{x});
}

/// Every op of the library at O1, on f32 and on f16 inputs. x is (2, 2).
TEST_F(AutocastTest, DtypeOfEveryOpAtO1) {
  using Call = Variable (*)(Backend&, const Variable&);
  struct Row {
    Op op;
    Call call;
    DType from_f32, from_f16;
  };
  constexpr DType h = DType::f16, s = DType::f32;
  const std::vector<Row> rows = {
      {Op::matmul, CALL(ops::matmul(x, x)), h, h},
      {Op::linear, CALL(ops::linear(x, x, ops::reshape(ops::pick(x, index_of(on, {0, 1})), Shape{2}))), h, h},
      {Op::exp, CALL(ops::exp(x)), s, s},
      {Op::log, CALL(ops::log(x)), s, s},
      {Op::sum, CALL(ops::sum(x)), s, s},
      {Op::mean, CALL(ops::mean(x)), s, s},
      {Op::softmax_cross_entropy, CALL(ops::softmax_cross_entropy(x, index_of(on, {0, 1}))), s, s},
      {Op::mse_loss, CALL(ops::mse_loss(x, x)), s, s},
      {Op::add, CALL(ops::add(x, x)), s, h},
      {Op::subtract, CALL(ops::subtract(x, x)), s, h},
      {Op::multiply, CALL(ops::multiply(x, x)), s, h},
      {Op::divide, CALL(ops::divide(x, x)), s, h},
      {Op::select_positive, CALL(ops::select_positive(x, x)), s, h},
      {Op::scale, CALL(ops::scale(x, 0.5f)), s, h},
      {Op::divide_constant, CALL(ops::divide_constant(x, 3.0f)), s, h},
      {Op::negate, CALL(ops::negate(x)), s, h},
      {Op::relu, CALL(ops::relu(x)), s, h},
      {Op::square_root, CALL(ops::square_root(x)), s, h},
      {Op::max, CALL(ops::max(x, 1)), s, h},
      {Op::reshape, CALL(ops::reshape(x, Shape{4})), s, h},
      {Op::broadcast_to, CALL(ops::broadcast_to(x, Shape{3, 2, 2})), s, h},
      {Op::pick, CALL(ops::pick(x, index_of(on, {0, 1}))), s, h},
      {Op::place, CALL(ops::place(ops::pick(x, index_of(on, {0, 1})), index_of(on, {0, 1}), 3)), s, h},
      {Op::conv2d, CALL(ops::conv2d(image(x), image(x), {}, {})), h, h},
      {Op::conv2d_input_gradient,
       CALL(
           ops::conv2d_input_gradient(ops::reshape(ops::slice(ops::slice(x, 0, 0, 1), 1, 0, 1), {1, 1, 1, 1}),
                                      image(x), {1, 1, 2, 2}, {})),
       h, h},
      {Op::conv2d_weight_gradient,
       CALL(ops::conv2d_weight_gradient(
           image(x), ops::reshape(ops::slice(ops::slice(x, 0, 0, 1), 1, 0, 1), {1, 1, 1, 1}), {1, 1, 2, 2},
           {})),
       h, h},
      {Op::conv_transpose2d, CALL(ops::conv_transpose2d(image(x), image(x), {}, {})), h, h},
      {Op::lstm, CALL(recurrence(x)), h, h},
      {Op::max_pool2d, CALL(ops::max_pool2d(image(x), {})), s, h},
      {Op::average_pool2d, CALL(ops::average_pool2d(image(x), {})), s, h},
      {Op::maximum, CALL(ops::maximum(x, x)), s, h},
      {Op::minimum, CALL(ops::minimum(x, x)), s, h},
      {Op::log1p, CALL(ops::log1p(x)), s, s},
      {Op::reciprocal_square_root, CALL(ops::reciprocal_square_root(x)), s, s},
      {Op::absolute, CALL(ops::absolute(x)), s, h},
      {Op::sign, CALL(ops::sign(x)), s, h},
      {Op::sigmoid, CALL(ops::sigmoid(x)), s, h},
      {Op::tanh, CALL(ops::tanh(x)), s, h},
      {Op::erf, CALL(ops::erf(x)), s, h},
      {Op::gelu, CALL(ops::gelu(x)), s, h},
      {Op::permute, CALL(ops::permute(x, swapped)), s, h},
      {Op::slice, CALL(ops::slice(x, 0, 1, 1)), s, h},
      {Op::place_slice, CALL(ops::place_slice(x, 0, 1, 4)), s, h},
      {Op::concat, CALL(ops::concat(std::vector{x, x, x}, 0)), s, h},
      {Op::embedding, CALL(ops::embedding(x, index_of(on, {0, 1, 1}))), s, h},
      {Op::scatter_rows, CALL(ops::scatter_rows(x, index_of(on, {0, 0}), 3)), s, h},
      {Op::dropout, CALL(ops::dropout(x, 0.5f, "drop")), s, h},
      {Op::softmax, CALL(ops::softmax(x, 1)), s, s},
      {Op::log_softmax, CALL(ops::log_softmax(x, 1)), s, s},
      {Op::layer_norm, CALL(ops::layer_norm(x, {}, {}, 1e-5f)), s, s},
      {Op::rms_norm, CALL(ops::rms_norm(x, {}, 1e-5f)), s, s},
      {Op::group_norm, CALL(ops::group_norm(x, 2, {}, {}, 1e-5f)), s, s},
      {Op::batch_norm, CALL(ops::batch_norm(x, {}, {}, 1e-5f).y), s, h},
      {Op::l1_loss, CALL(ops::l1_loss(x, x)), s, s},
      {Op::huber_loss, CALL(ops::huber_loss(x, x)), s, s},
      {Op::binary_cross_entropy_with_logits, CALL(ops::binary_cross_entropy_with_logits(x, x)), s, s},
      {Op::custom, CALL(twice(x)), h, h},
  };
  Tensor step = backend->make_step_state(StepState{});
  tape.set_context({.training = true, .step = step});
  std::vector<bool> tested(op_count, false);
  // No dtype of their own: the first three and the steps inside pooling's backward; and one that is refused
  // (below).
  for (const Op untyped : {Op::leaf, Op::identity, Op::cast, Op::pool_pick, Op::pool_place,
                           Op::average_pool2d_transposed, Op::binary_cross_entropy})
    tested[static_cast<std::size_t>(untyped)] = true;
  for (const Row& row : rows) {
    tested[static_cast<std::size_t>(row.op)] = true;
    const AutocastGuard guard(tape, o1);
    EXPECT_EQ(row.call(*backend, f32({2, 2})).dtype(), row.from_f32) << name_of(row.op) << " of f32";
    EXPECT_EQ(row.call(*backend, f16({2, 2})).dtype(), row.from_f16) << name_of(row.op) << " of f16";
  }
  for (std::size_t op = 0; op < op_count; ++op) EXPECT_TRUE(tested[op]) << name_of(static_cast<Op>(op));
  for (const Row& row : rows) {
    const AutocastGuard guard(tape, o0);
    EXPECT_EQ(row.call(*backend, f32({2, 2})).dtype(), DType::f32) << name_of(row.op) << " at O0";
  }
}
#undef CALL

/// torch refuses it too: "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to
/// autocast".
TEST_F(AutocastTest, ABannedOpIsRefusedWithReasonAndRemedy) {
  const Variable p = f32({2, 2});
  for (const Variable& probability : {p, f16({2, 2})}) {
    const AutocastGuard guard(tape, o1);
    try {
      ops::binary_cross_entropy(probability, p);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const AutogradError& error) {
      EXPECT_EQ(error.kind(), AutogradError::Kind::unsafe_under_autocast);
      EXPECT_THAT(error.what(),
                  testing::AllOf(testing::HasSubstr("binary_cross_entropy: unsafe under autocast"),
                                 testing::HasSubstr("logarithm infinite"),
                                 testing::HasSubstr("use binary_cross_entropy_with_logits")));
    }
  }
  const AutocastGuard guard(tape, o0);
  EXPECT_EQ(ops::binary_cross_entropy(p, p).dtype(), DType::f32) << "O0 is plain FP32";
}

TEST(OpLists, NameOnlyBannedOpsAReasonAndARemedyThatIsNotBannedItself) {
  for (const amp::OpListRow& row : amp::op_lists(amp::Dialect::torch)) {
    const bool banned = row.list == amp::OpList::banned;
    EXPECT_EQ(!row.reason.empty(), banned) << name_of(row.op);
    EXPECT_EQ(row.remedy != Op::leaf, banned) << name_of(row.op);
    EXPECT_NE(amp::row_of(amp::Dialect::torch, Level::O1, DType::f16, row.remedy).list, amp::OpList::banned)
        << name_of(row.op);
    EXPECT_TRUE(row.list != amp::OpList::follows || !row.name.empty())
        << name_of(row.op) << ": a row that says nothing";
  }
}

TEST_F(AutocastTest, MixedInputsPromoteToTheWidest) {
  const AutocastGuard guard(tape, o1);
  EXPECT_EQ(ops::add(f16({2}), f32({2})).dtype(), DType::f32);
  EXPECT_EQ(ops::multiply(f32({2}), f16({2})).dtype(), DType::f32);
}

TEST_F(AutocastTest, BackwardRunsInTheRecordedDtypes) {
  const Variable x = tape.input(ones({2, 2}));
  const AutocastGuard guard(tape, o1);
  const Variable hidden = ops::matmul(x, x);         // f16
  const Variable loss = ops::sum(ops::exp(hidden));  // f32
  const auto gradients = tape.gradients(std::vector{loss}, {}, std::vector{hidden, x});
  EXPECT_EQ(gradients[0].dtype(), DType::f16);
  EXPECT_EQ(gradients[1].dtype(), DType::f32);
  EXPECT_EQ(tape.cast_policy(), &o1) << "the policy is back after the backward pass";
}

TEST_F(AutocastTest, CreateGraphAlsoRunsWithAutocastOff) {
  const Variable x = tape.input(ones({2, 2}));
  const AutocastGuard guard(tape, o1);
  // The vjp of exp multiplies two f32 tensors; the vjp of the f32 matmul below must stay an f32 matmul.
  Variable y;
  {
    const CastPolicyGuard off(tape, nullptr);
    y = ops::matmul(x, x);
  }
  const auto gradients = tape.gradients(std::vector{ops::sum(y)}, {}, std::vector{x}, {.create_graph = true});
  EXPECT_EQ(gradients[0].dtype(), DType::f32);
  EXPECT_TRUE(gradients[0].requires_gradient());
}

TEST_F(AutocastTest, AParameterIsCastOncePerVersionAndGradMode) {
  Parameter weight{"w", ones({2, 2})};
  const AutocastGuard guard(tape, o1);
  const Variable x = f16({2, 2});
  ops::matmul(x, tape.parameter(weight));
  EXPECT_EQ(o1.cache_size(), 1u);
  EXPECT_EQ(o1.cache_hits(), 0u);
  ops::matmul(x, tape.parameter(weight));
  EXPECT_EQ(o1.cache_hits(), 1u);
  tape.reset();  // the next micro-batch: the value is reused, the node is new
  ops::matmul(f16({2, 2}), tape.parameter(weight));
  EXPECT_EQ(o1.cache_hits(), 2u);
  EXPECT_EQ(o1.cache_size(), 1u);
  ++weight.version;
  ops::matmul(f16({2, 2}), tape.parameter(weight));
  EXPECT_EQ(o1.cache_size(), 2u);
  {
    const GradModeGuard off(tape, false);
    EXPECT_FALSE(ops::matmul(f16({2, 2}), tape.parameter(weight)).requires_gradient());
  }
  EXPECT_EQ(o1.cache_size(), 3u);
  // A cast made without gradients must not cut the graph of later ones (pytorch had that bug in its cache).
  EXPECT_TRUE(ops::matmul(f16({2, 2}), tape.parameter(weight)).requires_gradient());
}

TEST_F(AutocastTest, TheCacheIsEmptyAfterTheGuard) {
  Parameter weight{"w", ones({2, 2})};
  {
    const AutocastGuard guard(tape, o1);
    ops::matmul(f16({2, 2}), tape.parameter(weight));
    EXPECT_EQ(o1.cache_size(), 1u);
  }
  EXPECT_EQ(o1.cache_size(), 0u);
  EXPECT_EQ(tape.cast_policy(), nullptr);
}

TEST_F(AutocastTest, ACachedCastSurvivesABackwardThatReleasesIt) {
  Parameter weight{"w", ones({2, 2})};
  const AutocastGuard guard(tape, o1);
  for (int pass = 0; pass < 3; ++pass)
    tape.backward(ops::sum(ops::matmul(f16({2, 2}), tape.parameter(weight))));
  EXPECT_EQ(o1.cache_hits(), 2u);
  EXPECT_EQ(values_of(*backend, weight.gradient), std::vector<float>(4, 3 * 2.0f));
}

TEST(AmpOptions, AreChecked) {
  const auto backend = hopper_backend();
  Tape tape(*backend);
  EXPECT_THROW(Autocast(tape, {.level = Level::O1, .dtype = DType::f64}), std::invalid_argument);
}

}  // namespace
}  // namespace fp16lab::engine::test::autocast_test
