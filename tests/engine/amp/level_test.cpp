// Levels as data, patterns of module paths, and every error of amp::resolve.
#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "engine/amp/levels/level.hpp"
#include "engine/amp/levels/op_lists.hpp"

namespace fp16lab::engine::amp::level_test {
namespace {

using testing::HasSubstr;

struct Row {
  Dialect dialect;
  Level level;
  /// L: op lists; m: 16-bit model, B: batch norms FP32, N: layer norms FP32, W: master weights, g: low
  /// gradients, u: unscaled to FP32, i: low inputs, o: FP32 outputs.
  std::string marks;
  std::string scaler;
};
std::string marks_of(const LevelRules& rules) {
  std::string marks;
  if (rules.uses_lists) marks += 'L';
  if (!rules.low_model) return marks;
  marks += 'm';
  if (rules.batch_norm_f32) marks += 'B';
  if (rules.layer_norm_f32) marks += 'N';
  if (rules.master_weights) marks += 'W';
  if (rules.low_statistics) marks += 's';
  if (rules.low_gradients) marks += 'g';
  if (rules.unscales_to_f32) marks += 'u';
  if (rules.low_inputs) marks += 'i';
  if (rules.f32_outputs) marks += 'o';
  return marks;
}

/// Typed from the frameworks' own tables: apex/amp/frontend.py (cast_model_type, keep_batchnorm_fp32,
/// master_weights, loss_scale), mindspore/train/amp.py (_config_level: loss_scale_manager; parameters are
/// stored FP32, _OutputTo32), paddle's amp_decorate (master_weight = None is multi-precision, master_grad =
/// False). FP32 outputs at paddle's O2 are our default.
TEST(Levels, SayWhatTheFrameworksTablesSay) {
  const std::vector<Row> rows = {
      {Dialect::torch, Level::O0, "", "none"},
      {Dialect::torch, Level::O1, "L", "torch"},
      {Dialect::paddle, Level::O0, "", "none"},
      {Dialect::paddle, Level::OD, "L", "paddle"},
      {Dialect::paddle, Level::O1, "L", "paddle"},
      {Dialect::paddle, Level::O2, "LmBNWgo", "paddle"},
      {Dialect::mindspore, Level::O0, "", "none"},
      {Dialect::mindspore, Level::O1, "L", "none"},
      {Dialect::mindspore, Level::O2, "LmBNWuio", "mindspore"},
      {Dialect::mindspore, Level::O3, "mWuio", "none"},
      {Dialect::mindspore, Level::automatic, "L", "none"},
      {Dialect::apex, Level::O0, "", "none"},
      {Dialect::apex, Level::O1, "L", "apex"},
      {Dialect::apex, Level::O2, "mBWsguio", "apex"},
      {Dialect::apex, Level::O3, "msgio", "none"},
  };
  std::size_t levels = 0;
  for (const Dialect dialect : every<Dialect>) levels += levels_of(dialect).size();
  EXPECT_EQ(levels, rows.size() + 1) << "and mindspore's auto of r1.7";
  for (const Row& row : rows) {
    const LevelRules& rules = level_rules(row.dialect, row.level);
    const std::string where = std::string(name_of(row.dialect)) + " " + std::string(name_of(row.level));
    EXPECT_EQ(rules.level, row.level) << where;
    EXPECT_EQ(marks_of(rules), row.marks) << where;
    EXPECT_EQ(rules.scaler, row.scaler) << where;
    // torch's and paddle's users make a GradScaler themselves; Model(amp_level) and amp.initialize make their
    // own.
    EXPECT_EQ(rules.brings_scaler,
              row.scaler != "none" && (row.dialect == Dialect::mindspore || row.dialect == Dialect::apex))
        << where;
    EXPECT_FALSE(rules.source.empty()) << where;
    EXPECT_EQ(rules.widens_white_results, row.dialect == Dialect::mindspore && row.level == Level::O1)
        << where;
    EXPECT_EQ(rules.narrows_black_results, row.dialect == Dialect::mindspore && row.level == Level::O2)
        << where;
    // WithLossCell casts what the network gives, at auto too.
    EXPECT_EQ(rules.f32_outputs && !rules.low_model,
              row.dialect == Dialect::mindspore && row.level == Level::automatic)
        << where;
    EXPECT_EQ(rules.unlisted, row.level == Level::OD ? Unlisted::wide : Unlisted::follow) << where;
  }
}

TEST(Levels, HaveNamesThatReadBack) {
  EXPECT_EQ(name_of(Level::automatic), "auto");
  EXPECT_EQ(name_of(Level::automatic_r1_7), "auto-r1.7");
}

TEST(OpNames, AreOursAndTheDialects) {
  EXPECT_EQ(op_from_name(Dialect::paddle, "elementwise_add"), Op::add);
  EXPECT_EQ(op_from_name(Dialect::paddle, "mul"), Op::matmul) << "a product there";
  EXPECT_EQ(op_from_name(Dialect::torch, "mul"), Op::multiply) << "elementwise there";
  EXPECT_EQ(op_from_name(Dialect::mindspore, "Dense"), Op::linear);
  EXPECT_EQ(op_from_name(Dialect::apex, "bmm"), Op::matmul);
  EXPECT_EQ(op_from_name(Dialect::torch, "elementwise_add"), std::nullopt) << "paddle's name";
  for (const Dialect dialect : every<Dialect>) {
    EXPECT_EQ(op_from_name(dialect, "layer_norm"), Op::layer_norm) << name_of(dialect);
    EXPECT_EQ(op_from_name(dialect, ""), std::nullopt) << "rows without a name are not found by it";
  }
}

/// Every row of an op is in the same list: the first one decides for all its names.
TEST(OpNames, OfOneOpAreInOneList) {
  for (const Dialect dialect : every<Dialect>) {
    for (const Level level : levels_of(dialect)) {
      for (const OpListRow& row : op_lists(dialect, level)) {
        EXPECT_EQ(row.list, row_of(dialect, level, DType::f16, row.op).list)
            << name_of(dialect) << " " << name_of(level) << " " << row.name;
        if (row.name.empty()) continue;
        EXPECT_EQ(op_from_name(dialect, row.name), row.op) << name_of(dialect) << " " << row.name;
      }
    }
  }
}

TEST(Patterns, MatchAModuleAndAllThatLiesInside) {
  struct Case {
    const char* pattern;
    const char* path;
    bool expected;
  };
  const std::vector<Case> cases = {
      {"fc2", "fc2", true},
      {"fc2", "fc2.gate", true},
      {"fc2", "fc2.gate.weight", true},
      {"fc2", "fc21", false},
      {"fc2", "encoder.fc2", false},
      {"fc2.gate", "fc2", false},
      {"*fc2", "encoder.fc2", true},
      {"*.fc2", "encoder.fc2", true},
      {"*.fc2", "fc2", false},
      {"fc*", "fc21", true},
      {"fc*", "conv1", false},
      {"fc?", "fc2", true},
      {"fc?", "fc", false},
      {"fc?", "fc21", false},
      {"fc?", "fc2.gate", true},
      {"?c1", "fc1", true},
      {"*", "", true},
      {"*", "a.b", true},
      {"", "", true},
      {"", "fc1", false},
      {"a*c", "abcbc", true},
      {"a*c", "abcb", false},
      {"a*c", "abc.d", true},
      {"a*b*c", "axxbyyc", true},
      {"a*b*c", "axxcyyb", false},
      {"encoder.*.norm?", "encoder.0.block.norm1", true},
      {"encoder.*.norm?", "encoder.norm1", false},
      {"*.bias", "fc1.bias", true},
      {"*.bias", "fc1.bias_ih", false},
      {"**", "anything", true},
      {"fc1*", "fc1", true},
      {"*a", "aaa", true},
      {"*ab", "aab", true},
  };
  for (const Case& one : cases)
    EXPECT_EQ(matches(one.pattern, one.path), one.expected) << one.pattern << " on " << one.path;
  const std::vector<std::string> patterns = {"conv*", "fc3"};
  EXPECT_TRUE(matches_any(patterns, "fc3"));
  EXPECT_TRUE(matches_any(patterns, "conv1"));
  EXPECT_FALSE(matches_any(patterns, "fc1"));
  EXPECT_FALSE(matches_any({}, "fc1"));
}

std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "nothing was refused";
}
std::string refusal(const AmpOptions& options) {
  return refusal([&] { resolve(options); });
}

TEST(ResolveRefuses, ALevelThatTheDialectDoesNotHave) {
  EXPECT_EQ(refusal({.level = Level::O2, .dialect = Dialect::torch}),
            "amp.level = \"O2\": amp.dialect = \"torch\" has O0, O1; for O2 set amp.dialect to paddle, "
            "mindspore or apex");
  EXPECT_EQ(refusal({.level = Level::O3, .dialect = Dialect::paddle}),
            "amp.level = \"O3\": amp.dialect = \"paddle\" has O0, OD, O1, O2; for O3 set amp.dialect to "
            "mindspore or apex");
  EXPECT_EQ(refusal({.level = Level::OD, .dialect = Dialect::mindspore}),
            "amp.level = \"OD\": amp.dialect = \"mindspore\" has O0, O1, O2, O3, auto, auto-r1.7; for OD set "
            "amp.dialect to paddle");
  EXPECT_EQ(refusal({.level = Level::automatic, .dialect = Dialect::apex}),
            "amp.level = \"auto\": amp.dialect = \"apex\" has O0, O1, O2, O3; for auto set amp.dialect "
            "to mindspore");
}

TEST(ResolveRefuses, ADtypeThatIsNotLow) {
  EXPECT_EQ(refusal({.level = Level::O1, .dtype = DType::f32}),
            "amp.dtype = \"f32\": must be f16, bf16 or tf32");
  EXPECT_EQ(refusal({.level = Level::O1, .dtype = DType::f64}),
            "amp.dtype = \"f64\": must be f16, bf16 or tf32");
  EXPECT_EQ(resolve({.level = Level::O0, .dtype = DType::f32}).level, Level::O0) << "ignored there";
}

TEST(ResolveRefuses, AnUnknownOpWithTheNearestKnownOne) {
  EXPECT_EQ(refusal({.level = Level::O1, .dialect = Dialect::paddle, .white = {"elementwise_ad"}}),
            "amp.white = \"elementwise_ad\": no op of this name, neither ours nor paddle's; did you mean "
            "'elementwise_add'?");
  EXPECT_EQ(
      refusal({.level = Level::O1, .dialect = Dialect::mindspore, .black = {"MatMull"}}),
      "amp.black = \"MatMull\": no op of this name, neither ours nor mindspore's; did you mean 'MatMul'?");
  EXPECT_EQ(refusal({.level = Level::O1, .white = {"xyzzyxyzzy"}}),
            "amp.white = \"xyzzyxyzzy\": no op of this name, neither ours nor torch's");
  EXPECT_THAT(refusal({.level = Level::O1, .white = {"cast"}}), HasSubstr("amp.white = \"cast\": no op"));
  EXPECT_THAT(refusal({.level = Level::O0, .black = {"nonsense"}}), HasSubstr("amp.black")) << "at O0 too";
}

/// paddle/amp/auto_cast.py: "custom white list overlap custom black list" is a ValueError.
TEST(ResolveRefuses, AnOpInBothLists) {
  EXPECT_EQ(refusal({.level = Level::O1, .white = {"exp", "add"}, .black = {"tanh", "add"}}),
            "amp.white = \"add\": the op is in amp.black too; an op can be in one list only");
  EXPECT_EQ(
      refusal(
          {.level = Level::O1, .dialect = Dialect::paddle, .white = {"elementwise_add"}, .black = {"add"}}),
      "amp.white = \"elementwise_add\": the op is in amp.black too (as \"add\"); an op can be in one list "
      "only");
}

TEST(ResolveRefuses, PaddlesLinearInAList) {
  EXPECT_EQ(
      refusal({.level = Level::O1, .dialect = Dialect::paddle, .white = {"linear"}}),
      "amp.white = \"linear\": under paddle a linear layer is matmul_v2 and elementwise_add; name those");
  EXPECT_EQ(refusal({.level = Level::automatic, .dialect = Dialect::mindspore, .black = {"Dense"}}),
            "amp.black = \"Dense\": at mindspore's auto a dense layer is MatMul and BiasAdd; name those");
}

/// apex/amp/frontend.py: "It doesn't make sense to use master_weights with O1."
TEST(ResolveRefuses, OverridesOfA16BitModelWithoutOne) {
  const auto at = [](Level level, Dialect dialect) { return AmpOptions{.level = level, .dialect = dialect}; };
  AmpOptions options = at(Level::O1, Dialect::apex);
  options.master_weights = true;
  EXPECT_EQ(refusal(options),
            "amp.master_weights = true: it is about a 16-bit model, but at apex's O1 parameters, inputs and "
            "outputs "
            "are FP32 and ops are cast one by one; leave it out, or choose a level with a 16-bit model");
  options = at(Level::O0, Dialect::paddle);
  options.low_loss = false;
  EXPECT_EQ(refusal(options),
            "amp.low_loss = false: it is about a 16-bit model, but at paddle's O0 parameters, inputs and "
            "outputs are "
            "FP32; leave it out, or choose a level with a 16-bit model");
  options = at(Level::O1, Dialect::torch);
  options.keep_batchnorm_fp32 = true;
  EXPECT_THAT(refusal(options), HasSubstr("amp.keep_batchnorm_fp32 = true"));
  options = at(Level::OD, Dialect::paddle);
  options.master_gradients = false;
  EXPECT_THAT(refusal(options), HasSubstr("amp.master_gradients = false"));
  options = at(Level::O1, Dialect::mindspore);
  options.low_inputs = true;
  EXPECT_THAT(refusal(options), HasSubstr("amp.low_inputs = true"));
}

TEST(ResolveRefuses, OptionsOfAnotherDialect) {
  EXPECT_EQ(
      refusal({.level = Level::O1, .dialect = Dialect::paddle, .use_promote = false}),
      "amp.use_promote = false: it is an option of paddle's O2; at paddle's O1 unlisted ops cannot be made "
      "16-bit");
  EXPECT_THAT(refusal({.level = Level::O2, .dialect = Dialect::apex, .use_promote = false}),
              HasSubstr("it is an option of paddle's O2; at apex's O2"));
  EXPECT_EQ(refusal({.level = Level::O1, .dialect = Dialect::torch, .allow_banned = true}),
            "amp.allow_banned = true: apex alone lets banned ops through; amp.dialect is \"torch\"");
}

TEST(ResolveRefuses, PatternsThatMeanNothing) {
  EXPECT_EQ(refusal({.level = Level::O1, .excluded = {"fc1", ""}}),
            "amp.excluded = \"\": a pattern names a module, as \"fc1\" or \"encoder.*\"");
  for (const char* const entry : {"", "fc1", "=f32", "fc1=i32", "fc1=f64"})
    EXPECT_EQ(refusal({.level = Level::O1, .to_float = {entry}}),
              "amp.to_float = \"" + std::string(entry) +
                  "\": expected PATTERN=DTYPE, such as \"fc3=f32\", with one of f32, f16, bf16");
  EXPECT_THAT(refusal({.level = Level::O1, .use_guard = true, .guard = {""}}), HasSubstr("amp.guard = \"\""));
  EXPECT_EQ(refusal({.level = Level::O1, .guard = {"fc1"}}),
            "amp.guard = \"fc1\": guarded regions mean something with amp.use_guard = true only");
}

TEST(ResolveRefuses, HalfAnFp8Experiment) {
  EXPECT_EQ(refusal({.level = Level::O0, .fp8_operands = DType::e4m3, .fp8_gradients = DType::e5m2}),
            "amp.fp8_operands = \"e4m3\": at O0 no product has 16-bit operands; choose another level");
  EXPECT_EQ(refusal({.level = Level::O1, .fp8_operands = DType::e4m3}),
            "amp.fp8_operands = \"e4m3\": amp.fp8_gradients is \"none\"; both operands of a product are "
            "rounded to FP8, "
            "or neither");
  EXPECT_THAT(refusal({.level = Level::O1, .fp8_gradients = DType::e5m2}),
              HasSubstr("amp.fp8_gradients = \"e5m2\": amp.fp8_operands is \"none\""));
}

TEST(Resolve, AppliesOverrides) {
  AmpOptions options{.level = Level::O2, .dialect = Dialect::paddle};
  EXPECT_EQ(marks_of(resolve(options).rules), "LmBNWgo");
  options.dtype = DType::bf16;
  EXPECT_EQ(marks_of(resolve(options).rules), "LmBWgo") << "need_keep_fp32: LayerNorm for float16 only";
  options.dtype = DType::f16;
  options.master_weights = false;
  EXPECT_EQ(marks_of(resolve(options).rules), "LmBNgo");
  options.master_gradients = true;
  EXPECT_EQ(marks_of(resolve(options).rules), "LmBNuo") << "FP32 gradients of 16-bit values";
  options.master_weights = {};
  EXPECT_EQ(marks_of(resolve(options).rules), "LmBNWuo");
  options.low_inputs = true;
  options.low_loss = true;
  EXPECT_EQ(marks_of(resolve(options).rules), "LmBNWui");
  EXPECT_TRUE(resolve(options).low_loss);

  options = {.level = Level::O2, .dialect = Dialect::mindspore};
  options.keep_batchnorm_fp32 = false;
  EXPECT_EQ(marks_of(resolve(options).rules), "mWuio") << "as O3's";
  EXPECT_EQ(resolve(options).rules.scaler, "mindspore") << "but for the scaler";
  options.master_weights = false;
  EXPECT_EQ(marks_of(resolve(options).rules), "mgio") << "without FP32 values no FP32 gradients";
  options.master_gradients = false;
  EXPECT_EQ(marks_of(resolve(options).rules), "mgio");
  options.master_weights = true;
  EXPECT_EQ(marks_of(resolve(options).rules), "mWguio") << "low ones, unscaled into FP32";
  options = {.level = Level::O3, .dialect = Dialect::mindspore, .keep_batchnorm_fp32 = true};
  EXPECT_EQ(marks_of(resolve(options).rules), "LmBNWuio") << "as O2's";
  EXPECT_EQ(resolve(options).rules.scaler, "none");

  options = {.level = Level::O3, .dialect = Dialect::apex};
  options.keep_batchnorm_fp32 = true;
  options.master_weights = true;
  EXPECT_EQ(marks_of(resolve(options).rules), "mBWsgio") << "apex allows both overrides";
}

TEST(Resolve, KeepsListsPatternsAndFormats) {
  const AmpPlan plan = resolve({.level = Level::O1,
                                .dtype = DType::bf16,
                                .dialect = Dialect::apex,
                                .white = {"tanh"},
                                .black = {"mm", "sigmoid"},
                                .excluded = {"fc1"},
                                .use_guard = true,
                                .guard = {"fc*"},
                                .to_float = {"a=b=f32"},
                                .allow_banned = true,
                                .fp8_operands = DType::e4m3,
                                .fp8_gradients = DType::e5m2});
  EXPECT_EQ(plan.low, DType::bf16);
  EXPECT_THAT(plan.white, testing::ElementsAre(Op::tanh));
  EXPECT_THAT(plan.black, testing::ElementsAre(Op::matmul, Op::sigmoid));
  EXPECT_THAT(plan.excluded, testing::ElementsAre("fc1"));
  EXPECT_THAT(plan.guard, testing::ElementsAre("fc*"));
  ASSERT_EQ(plan.to_float.size(), 1u);
  EXPECT_EQ(plan.to_float[0].pattern, "a=b") << "the last '=' divides";
  EXPECT_EQ(plan.to_float[0].dtype, DType::f32);
  EXPECT_TRUE(plan.use_guard);
  EXPECT_TRUE(plan.allow_banned);
  EXPECT_EQ(plan.product_formats.forward.a.fp8, DType::e4m3);
  EXPECT_EQ(plan.product_formats.dx.a.fp8, DType::e5m2);
}

TEST(Resolve, O0ActsOnlyForToFloat) {
  EXPECT_FALSE(resolve({.level = Level::O0, .excluded = {"fc1"}}).acts());
  EXPECT_TRUE(resolve({.level = Level::O0, .to_float = {"fc1=f16"}}).acts());
  EXPECT_TRUE(resolve({.level = Level::O1}).acts());
}

}  // namespace
}  // namespace fp16lab::engine::amp::level_test
