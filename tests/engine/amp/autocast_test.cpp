// Autocast: what is refused, what a backward pass runs in, and the cache of cast parameters. The dtype of
// every op at every level is asked in dialects_test.cpp.
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "engine/amp/levels/autocast.hpp"
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
