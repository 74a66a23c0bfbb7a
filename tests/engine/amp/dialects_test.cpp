// Every op of every dialect at every level in both 16-bit dtypes: the dtype it computes in, and the one it
// hands on; and the statistics of calls, casts and products.
#include <array>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "engine/amp/levels/autocast.hpp"
#include "engine/amp/levels/op_statistics.hpp"
#include "engine/autograd/custom_op.hpp"
#include "tests/engine/amp/support.hpp"

namespace fp16lab::engine::test::dialects_test {
namespace {

using amp::Autocast;
using amp::AutocastGuard;
using amp::Dialect;
using amp::Level;

constexpr DType f32 = DType::f32;
constexpr std::array low_dtypes = {DType::f16, DType::bf16};

/// dtypes of x and y.
struct Inputs {
  DType x, y;
};
std::vector<Inputs> inputs_of(const OpCall& call, DType low) {
  if (!call.y) return {{DType::f32, DType::f32}, {low, low}};
  return {{DType::f32, DType::f32}, {low, low}, {low, DType::f32}, {DType::f32, low}};
}

struct Seen {
  DType computed, handed_on;
  bool operator==(const Seen&) const = default;
};
std::string text(const Seen& seen) {
  return std::string(name_of(seen.computed)) + " -> " + std::string(name_of(seen.handed_on));
}

Seen meaning_of(char letter, const Inputs& inputs, DType low) {
  const DType widest = inputs.x == low && inputs.y == low ? low : f32;
  const bool differ = inputs.x != inputs.y;
  switch (letter) {
    case 'W':
      return {low, low};
    case 'w':
      return {low, f32};
    case 'B':
      return {f32, f32};
    case 'b':
      return {f32, low};
    case 'F':
      return {widest, widest};
    case 'M':
      return differ ? Seen{low, low} : Seen{widest, widest};
    default:
      throw std::invalid_argument(std::string("no meaning: ") + letter);
  }
}

class DialectsTest : public testing::Test {
 protected:
  DialectsTest() { tape.set_context({.training = true, .step = step}); }

  Variable of(DType dtype, const Shape& shape = {2, 2}) {
    return tape.constant(filled(*backend, shape, dtype));
  }

  /// Calls the op once under `autocast`. The statistics give the dtype that it computes in.
  Seen see(Autocast& autocast, const OpCall& call, const Inputs& inputs) {
    amp::OpStatistics statistics;
    autocast.set_statistics(&statistics);
    const Variable x = tape.constant(filled(*backend, call.x, inputs.x));
    const Variable y = call.y ? tape.constant(filled(*backend, *call.y, inputs.y)) : Variable();
    DType handed_on{};
    {
      const AutocastGuard guard(tape, autocast);
      handed_on = call.call(*backend, x, y).dtype();
    }
    autocast.set_statistics(nullptr);
    for (const OpCount& count : statistics.by_layer()) {
      if (count.op != name_of(call.op)) continue;
      EXPECT_EQ(count.f16 + count.bf16 + count.f32, 1u) << name_of(call.op) << " is one call";
      return {count.f16 == 1 ? DType::f16 : count.bf16 == 1 ? DType::bf16 : DType::f32, handed_on};
    }
    ADD_FAILURE() << name_of(call.op) << " did not ask the policy";
    return {DType::u8, handed_on};
  }

  std::unique_ptr<Backend> backend = hopper_backend();
  Tensor step = backend->make_step_state(StepState{});
  Tape tape{*backend};
};

TEST_F(DialectsTest, EveryOpComputesAndHandsOnWhatTheFrameworksListsSay) {
  int compared = 0;
  for (std::size_t column = 0; column < dialect_levels().size(); ++column) {
    const auto [dialect, level] = dialect_levels()[column];
    for (const DType low : low_dtypes) {
      Autocast autocast(tape, {.level = level, .dtype = low, .dialect = dialect});
      for (const OpCall& call : op_calls()) {
        const char letter = expected_of(call.op, column);
        if (letter == '-') continue;  // its parts have tests of their own
        for (const Inputs& inputs : inputs_of(call, low)) {
          const std::string where = std::string(name_of(dialect)) + " " + std::string(name_of(level)) + " " +
                                    std::string(name_of(low)) + " " + std::string(name_of(call.op)) + " of " +
                                    std::string(name_of(inputs.x)) +
                                    (call.y ? ", " + std::string(name_of(inputs.y)) : "");
          ++compared;
          if (letter == 'R') {
            EXPECT_THROW(see(autocast, call, inputs), AutogradError) << where;
            continue;
          }
          EXPECT_EQ(text(see(autocast, call, inputs)), text(meaning_of(letter, inputs, low))) << where;
          tape.reset();
        }
      }
    }
  }
  EXPECT_GT(compared, 2000);
}

TEST_F(DialectsTest, EveryOpOfFp32IsFp32AtO0) {
  Autocast autocast(tape, {.level = Level::O0});
  for (const OpCall& call : op_calls()) EXPECT_EQ(text(see(autocast, call, {f32, f32})), text({f32, f32}));
}

TEST_F(DialectsTest, EveryOpOfTheEnumerationIsInTheTable) {
  std::vector<bool> there(op_count, false);
  for (const Op untyped : {Op::leaf, Op::identity, Op::cast, Op::pool_pick, Op::pool_place,
                           Op::average_pool2d_transposed, Op::custom})
    there[static_cast<std::size_t>(untyped)] = true;
  for (const OpCall& call : op_calls()) there[static_cast<std::size_t>(call.op)] = true;
  for (std::size_t op = 0; op < op_count; ++op) EXPECT_TRUE(there[op]) << name_of(static_cast<Op>(op));
}

TEST_F(DialectsTest, EveryLevelOfEveryDialectIsAColumnOrFp32) {
  std::size_t columns = 0;
  for (const Dialect dialect : every<amp::Dialect>) {
    EXPECT_EQ(amp::levels_of(dialect).front(), Level::O0);
    for (const Level level : amp::levels_of(dialect))
      columns += level == Level::O0 || level == Level::automatic_r1_7 ? 0 : 1;
  }
  EXPECT_EQ(columns, dialect_levels().size());
}

/// r1.7's auto is O2 on a GPU (mindspore/train/amp.py, _check_level); 2.x's has lists of its own.
TEST_F(DialectsTest, AutoOfR17IsO2) {
  const amp::AmpPlan plan = amp::resolve({.level = Level::automatic_r1_7, .dialect = Dialect::mindspore});
  EXPECT_EQ(plan.level, Level::O2);
  EXPECT_EQ(plan.rules.source, amp::level_rules(Dialect::mindspore, Level::O2).source);
  EXPECT_EQ(amp::resolve({.level = Level::automatic, .dialect = Dialect::mindspore}).level, Level::automatic);
}

/// mindspore/train/amp.py: keep_batchnorm_fp32 decides in what the norms compute, whichever level is named.
TEST_F(DialectsTest, KeepBatchnormChoosesBetweenMindSporesO2AndO3) {
  const auto norms = [&](Level level, std::optional<bool> keep) {
    Autocast autocast(tape, {.level = level, .dialect = Dialect::mindspore, .keep_batchnorm_fp32 = keep});
    std::string seen;
    for (const OpCall& call : op_calls())
      if (call.op == Op::batch_norm || call.op == Op::layer_norm || call.op == Op::matmul)
        seen += text(see(autocast, call, {DType::f16, DType::f16})) + ", ";
    return seen;
  };
  const std::string kept = "f16 -> f16, f32 -> f16, f32 -> f16, ",
                    low = "f16 -> f16, f16 -> f16, f16 -> f16, ";
  EXPECT_EQ(norms(Level::O2, {}), kept);
  EXPECT_EQ(norms(Level::O2, true), kept);
  EXPECT_EQ(norms(Level::O2, false), low) << "LayerNorm too: it is in the black list";
  EXPECT_EQ(norms(Level::O3, {}), low);
  EXPECT_EQ(norms(Level::O3, false), low);
  EXPECT_EQ(norms(Level::O3, true), kept);
  EXPECT_EQ(norms(Level::automatic_r1_7, false), low);
}

TEST_F(DialectsTest, O0CastsNothingAndReadsNoOpList) {
  for (const Dialect dialect : every<amp::Dialect>) {
    Autocast autocast(tape, {.level = Level::O0, .dialect = dialect});
    EXPECT_FALSE(autocast.acts());
    const AutocastGuard guard(tape, autocast);
    EXPECT_EQ(tape.cast_policy(), nullptr);
    for (const OpCall& call : op_calls()) {
      const Variable x = tape.constant(filled(*backend, call.x, DType::f32));
      const Variable y = call.y ? tape.constant(filled(*backend, *call.y, DType::f32)) : Variable();
      EXPECT_EQ(call.call(*backend, x, y).dtype(), DType::f32) << name_of(call.op);
    }
  }
}

/// Counting at O0: ops follow their inputs, as they do without a policy.
TEST_F(DialectsTest, O0WithStatisticsFollows) {
  Autocast autocast(tape, {.level = Level::O0});
  for (const OpCall& call : op_calls()) {
    for (const Inputs& inputs : inputs_of(call, DType::f16))
      EXPECT_EQ(text(see(autocast, call, inputs)), text(meaning_of('F', inputs, DType::f16)))
          << name_of(call.op);
  }
}

/// paddle/fluid/eager/amp_utils.h: without promotion O2 computes in low all that is not black.
TEST_F(DialectsTest, PaddleO2WithoutPromotionIsLowButForTheBlackList) {
  constexpr std::size_t paddle_o2 = 3;
  ASSERT_EQ(dialect_levels()[paddle_o2].level, Level::O2);
  Autocast autocast(tape, {.level = Level::O2, .dialect = Dialect::paddle, .use_promote = false});
  for (const OpCall& call : op_calls()) {
    if (call.op == Op::linear) continue;
    const bool black = expected_of(call.op, paddle_o2) == 'B';
    for (const Inputs& inputs : inputs_of(call, DType::f16)) {
      EXPECT_EQ(text(see(autocast, call, inputs)), text(meaning_of(black ? 'B' : 'W', inputs, DType::f16)))
          << name_of(call.op);
    }
  }
}

/// Paddle's Linear: matmul_v2 (white), then elementwise_add (unlisted) with a bias that is FP32 at O1, low at
/// O2.
TEST_F(DialectsTest, PaddleAddsTheBiasOfALinearLayerAsAnOpOfItsOwn) {
  const auto linear = [&](const amp::AmpOptions& options, DType parameters) {
    Autocast autocast(tape, options);
    amp::OpStatistics statistics;
    autocast.set_statistics(&statistics);
    const AutocastGuard guard(tape, autocast);
    const Variable y = ops::linear(tape.constant(filled(*backend, {2, 2}, DType::f32)),
                                   tape.constant(filled(*backend, {2, 2}, parameters)),
                                   tape.constant(filled(*backend, {2}, parameters)));
    std::string seen;
    for (const OpCount& count : statistics.by_layer()) {
      seen += count.op + (count.f16 == 1 ? " f16, " : " f32, ");
    }
    return seen + std::string(name_of(y.dtype()));
  };
  amp::AmpOptions options{.level = Level::O1, .dialect = Dialect::paddle};
  EXPECT_EQ(linear(options, DType::f32), "matmul f16, add f32, f32") << "the FP32 bias widens the sum";
  options.white = {"elementwise_add"};
  EXPECT_EQ(linear(options, DType::f32), "matmul f16, add f16, f16");
  options = {.level = Level::O2, .dialect = Dialect::paddle};
  EXPECT_EQ(linear(options, DType::f16), "matmul f16, add f16, f16");
  options = {.level = Level::OD, .dialect = Dialect::paddle};
  EXPECT_EQ(linear(options, DType::f16), "matmul f16, add f32, f32");
  options = {.level = Level::automatic, .dialect = Dialect::mindspore};
  EXPECT_EQ(linear(options, DType::f32), "matmul f16, add f32, f32") << "BiasAdd takes the wider type";
  options = {.level = Level::O1, .dialect = Dialect::torch};
  EXPECT_EQ(linear(options, DType::f32), "linear f16, f16") << "one verb, one rounding";
}

/// A convolution's bias likewise (paddle/nn/functional/conv.py; mindspore/nn/layer/conv.py), with the bits of
/// the product, rounded, and of an addition, rounded.
TEST_F(DialectsTest, TheBiasOfAConvolutionIsAnOpOfItsOwnWhereThatOfALinearLayerIs) {
  const auto image = [&](const Shape& shape, float value, DType dtype) {
    Tensor wide = backend->empty(shape, DType::f32), narrow = backend->empty(shape, dtype);
    backend->fill(wide, value);
    backend->cast(wide, narrow);
    return tape.constant(narrow);
  };
  const auto convolution = [&](const amp::AmpOptions& options, DType parameters, Layout layout,
                               bool transposed) {
    Autocast autocast(tape, options);
    amp::OpStatistics statistics;
    autocast.set_statistics(&statistics);
    const AutocastGuard guard(tape, autocast);
    const Variable x = image({1, 1, 1, 1}, 1 + 0x1p-10f, DType::f32), bias = image({1}, 0x1p-10f, parameters),
                   weight = image({1, 1, 1, 1}, 1 + 0x1p-10f, parameters);
    const Variable y = transposed ? ops::conv_transpose2d(x, weight, bias, {.layout = layout})
                                  : ops::conv2d(x, weight, bias, {.layout = layout});
    std::string seen;
    for (const OpCount& count : statistics.by_layer())
      seen += count.op + (count.f16 == 1 ? " f16, " : " f32, ");
    // 1 + 2^-9 + 2^-20: the last term is lost where the product is rounded to FP16 before the sum.
    return seen + std::to_string(static_cast<int>(std::ldexp(values_of(*backend, y.tensor())[0] - 1, 20)));
  };
  const amp::AmpOptions o1{.level = Level::O1, .dialect = Dialect::paddle},
      automatic{.level = Level::automatic, .dialect = Dialect::mindspore},
      o2{.level = Level::O2, .dialect = Dialect::paddle};
  for (const Layout layout : {Layout::nchw, Layout::nhwc}) {
    EXPECT_EQ(convolution(o1, f32, layout, false), "conv2d f16, add f32, 3072");
    EXPECT_EQ(convolution(automatic, f32, layout, false), "conv2d f16, add f32, 3072");
    EXPECT_EQ(convolution(automatic, f32, layout, true), "conv_transpose2d f16, add f32, 3072");
    EXPECT_EQ(convolution(o2, DType::f16, layout, false), "conv2d f16, add f16, 3072");
    EXPECT_EQ(convolution({.level = Level::O0}, f32, layout, false), "conv2d f32, 3073");
  }
  EXPECT_EQ(convolution(o1, f32, Layout::nchw, true), "conv_transpose2d f32, add f32, 3073") << "unlisted";
  EXPECT_EQ(convolution({.level = Level::O1}, f32, Layout::nchw, false), "conv2d f16, 3072") << "torch";
}

// ---- statistics ----

TEST_F(DialectsTest, CastsAreCountedWithTheOpTheyAreFor) {
  Autocast autocast(tape, {.level = Level::O1});
  amp::OpStatistics statistics;
  autocast.set_statistics(&statistics);
  Parameter weight{"fc1.weight", filled(*backend, {2, 2}, f32)};
  const AutocastGuard guard(tape, autocast);
  for (int pass = 0; pass < 2; ++pass) {
    const ScopeGuard scope(tape, "fc1");
    const Variable y = ops::linear(of(f32), tape.parameter(weight), {});
    ops::exp(ops::add(y, y));
  }
  std::vector<std::string> rows;
  for (const OpCount& count : statistics.by_layer()) {
    rows.push_back(count.layer + " " + count.op + " " + std::to_string(count.f16) + " " +
                   std::to_string(count.f32) + " " + std::to_string(count.casts_to_low) + " " +
                   std::to_string(count.casts_to_f32));
  }
  // x is cast twice, the weight once: the second pass finds it in the cache.
  EXPECT_THAT(rows, testing::ElementsAre("fc1 linear 2 0 3 0", "fc1 add 2 0 0 0", "fc1 exp 0 2 0 2"));
}

TEST_F(DialectsTest, CustomOpsAreCountedInTheirOwnDtype) {
  const CustomOp op{
      .name = "copy",
      .forward = [](Backend&, std::span<const Tensor> inputs) { return inputs[0]; },
      .backward = [](const Variable& g, std::span<const Variable>,
                     const Variable&) { return std::vector{g}; },
      .autocast_dtype = DType::f16,
  };
  Autocast autocast(tape, {.level = Level::O1});
  amp::OpStatistics statistics;
  autocast.set_statistics(&statistics);
  const AutocastGuard guard(tape, autocast);
  ops::custom(op, std::vector{of(f32)});
  ASSERT_EQ(statistics.by_layer().size(), 1u);
  EXPECT_EQ(statistics.by_layer()[0].op, "custom");
  EXPECT_EQ(statistics.by_layer()[0].f16, 1u);
  EXPECT_EQ(statistics.by_layer()[0].casts_to_low, 1u);
}

TEST_F(DialectsTest, ProductsAreAnnouncedWithTheirShape) {
  struct Announced : CastPolicy {
    std::vector<std::string> seen;
    DType compute_dtype(OpSite, std::span<const DType>) override { return DType::f32; }
    Variable cast(const Variable& input, DType dtype) override { return ops::cast(input, dtype); }
    void on_product(OpSite site, const ProductShape& shape, DType dtype) override {
      seen.push_back(std::string(name_of(site.op)) + " " + std::to_string(shape.m) + "x" +
                     std::to_string(shape.n) + "x" + std::to_string(shape.k) + " C" +
                     std::to_string(shape.input_channels) + " K" + std::to_string(shape.output_channels) +
                     (shape.nchw ? " nchw " : " ") + std::string(name_of(dtype)));
    }
  } announced;
  const CastPolicyGuard guard(tape, &announced);
  ops::matmul(of(f32, {5, 3}), of(f32, {5, 7}), {.a = true});
  ops::matmul(of(f32, {2, 3, 4}), of(f32, {2, 4, 6}));
  ops::linear(of(f32, {2, 3, 4}), of(f32, {5, 4}), of(f32, {5}));
  ops::conv2d(of(f32, {2, 3, 8, 8}), of(f32, {6, 3, 3, 3}), {}, {.stride = {2, 2}, .padding = {1, 1}});
  ops::conv2d(of(f32, {2, 8, 8, 3}), of(f32, {6, 3, 3, 3}), {}, {.layout = Layout::nhwc});
  EXPECT_THAT(announced.seen, testing::ElementsAre("matmul 3x7x5 C0 K0 f32", "matmul 3x6x4 C0 K0 f32",
                                                   "linear 6x5x4 C0 K0 f32", "conv2d 32x6x27 C3 K6 nchw f32",
                                                   "conv2d 72x6x27 C3 K6 f32"));
}

}  // namespace
}  // namespace fp16lab::engine::test::dialects_test
