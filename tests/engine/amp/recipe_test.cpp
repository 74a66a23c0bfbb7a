// Recipes: the bits of a linear layer's three products and of an update, against blocks quantized here and the
// dot products of their rows; stochastic words by their place; delayed scales over steps and a checkpoint;
// refusals.
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "engine/amp/levels/autocast.hpp"
#include "engine/amp/levels/recipe.hpp"
#include "engine/optim/optimizer.hpp"
#include "tests/engine/autograd/support.hpp"
#include "tests/engine/train/training_run.hpp"
#include "tests/support/message_of.hpp"
#include "tests/support/temporary_folder.hpp"

namespace fp16lab::engine::test::recipe_test {
namespace {

using testing::HasSubstr;
using testing_support::message_of;
using Values = std::vector<float>;

constexpr std::uint64_t seed = 9;
constexpr std::uint32_t iteration = 5, micro_batch = 2;
// No multiples of any block.
constexpr std::int64_t rows = 37, inputs = 50, outputs = 21;

/// A matrix with rows of `columns`.
struct Matrix {
  std::int64_t columns;
  Values values;

  std::int64_t rows() const { return static_cast<std::int64_t>(values.size()) / columns; }
  float at(std::int64_t row, std::int64_t column) const {
    return row < rows() && column < columns ? values[static_cast<std::size_t>(row * columns + column)] : 0;
  }
  Matrix transposed() const {
    Matrix result{rows(), {}};
    for (std::int64_t column = 0; column < columns; ++column)
      for (std::int64_t row = 0; row < rows(); ++row) result.values.push_back(at(row, column));
    return result;
  }
};

/// What an operand becomes, written down apart from amp::recipes().
struct Operand {
  std::string_view quantizer;
  std::optional<ScaleRule> rule = {};
};
struct Expected {
  std::string recipe;
  Operand x, weight, gradient;
  bool stochastic = false, hadamard = false;
};
std::vector<Expected> recipes() {
  using enum ScaleRule;
  return {{"mxfp8", {"mxfp8", rceil}, {"mxfp8", rceil}, {"mxfp8", rceil}},
          {"mxfp8-hybrid", {"mxfp8", rceil}, {"mxfp8", rceil}, {"mxfp8-e5m2", rceil}},
          {"mxfp6-e3m2", {"mxfp6-e3m2"}, {"mxfp6-e3m2"}, {"mxfp6-e3m2"}},
          {"mxfp6-e2m3", {"mxfp6-e2m3"}, {"mxfp6-e2m3"}, {"mxfp6-e2m3"}},
          {"mxfp4", {"mxfp4"}, {"mxfp4"}, {"mxfp4"}},
          {"nvfp4", {"nvfp4"}, {"nvfp4-2d"}, {"nvfp4"}, true, true},
          {"deepseek-fp8", {"fp8-1x128", deepgemm}, {"fp8-128x128", deepgemm}, {"fp8-1x128", deepgemm}},
          {"te-delayed", {"fp8-tensor"}, {"fp8-tensor"}, {"fp8-tensor-e5m2"}},
          {"te-current", {"fp8-tensor"}, {"fp8-tensor"}, {"fp8-tensor-e5m2"}},
          {"te-block", {"fp8-1x128", te_pow2}, {"fp8-128x128", te_pow2}, {"fp8-1x128", te_pow2}}};
}

/// An operand in codes, whose rows run along k; `scale` is that of the tensor.
struct Coded {
  Quantizer with;
  MatrixSize size;
  std::vector<std::uint8_t> codes;
  Values scales;
  float scale;

  std::int64_t run() const { return with.block.columns == 0 ? size.columns : with.block.columns; }
  float scale_at(std::int64_t row, std::int64_t block) const {
    const std::int64_t height = with.block.rows == 0 ? size.rows : with.block.rows;
    return scales[static_cast<std::size_t>(row / height * (size.columns / run()) + block)];
  }
  std::vector<std::uint32_t> words(std::int64_t row, std::int64_t begin, std::int64_t end) const {
    return {codes.begin() + row * size.columns + begin, codes.begin() + row * size.columns + end};
  }
  /// Codes of the row's scales, by what they stand for.
  std::vector<std::uint32_t> scale_words(std::int64_t row) const {
    std::vector<std::uint32_t> words;
    for (std::int64_t block = 0; block < size.columns / run(); ++block) {
      const float value = scale_at(row, block);
      std::uint32_t code = 0;
      const auto number = [&] {
        if (with.scale == DType::e8m0) return std::ldexp(1.0F, static_cast<int>(code) - 127);
        const auto fraction = static_cast<float>(code % 8) / 8;
        return code < 8 ? std::ldexp(fraction, -6) : std::ldexp(1 + fraction, static_cast<int>(code / 8) - 7);
      };
      while (number() != value) ++code;
      words.push_back(code);
    }
    return words;
  }
};
Coded coded(const Operand& operand, const Matrix& matrix, bool hadamard, const PhiloxStream* random,
            std::optional<float> delayed) {
  Quantizer with = quantizer(operand.quantizer);
  with.rule = operand.rule.value_or(with.rule);
  const auto whole_blocks = [](std::int64_t extent, std::int64_t block) {
    return block == 0 ? extent : (extent + block - 1) / block * block;
  };
  const MatrixSize size{
      whole_blocks(matrix.rows(), with.block.rows),
      whole_blocks(hadamard ? whole_blocks(matrix.columns, 16) : matrix.columns, with.block.columns)};
  Values padded;
  for (std::int64_t row = 0; row < size.rows; ++row)
    for (std::int64_t column = 0; column < size.columns; ++column) padded.push_back(matrix.at(row, column));
  if (hadamard) random_hadamard(padded, 16, te_hadamard_signs);
  const MatrixSize blocks = with.scales_of(size);
  Coded result{with, size, std::vector<std::uint8_t>(padded.size()),
               Values(static_cast<std::size_t>(blocks.rows * blocks.columns)), 1};
  result.scale =
      quantize(with, size, padded, result.codes, result.scales, {.scale = delayed, .random = random});
  return result;
}

/// a b^T by the definition of Blackwell's rows with block scales, or of Hopper's FP8 row for each block of K
/// with FP32 scales; then the scales of tensors, then the bias.
Values product(const Coded& a, const Coded& b, std::int64_t m, std::int64_t n, const Values& bias = {}) {
  const DType of_a = a.with.element, of_b = b.with.element, scale = a.with.scale;
  const bool fours = of_a == DType::e2m1 && of_b == DType::e2m1;
  const TensorCoreModel& row = tensor_core_model(scale == DType::f32 ? "hopper"
                                                 : fours             ? "blackwell-mxf4nvf4"
                                                                     : "blackwell-mxf8f6f4",
                                                 of_a, of_b, DType::f32);
  const std::int64_t k = a.size.columns;
  Values result;
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < n; ++j) {
      float sum = 0;
      if (scale != DType::f32)
        sum = float_from_bits(
            fused_dot_add(row, of_a, a.words(i, 0, k), of_b, b.words(j, 0, k), 0,
                          {{scale, static_cast<int>(a.run())}, a.scale_words(i), b.scale_words(j)}));
      else
        for (std::int64_t at = 0; at < k; at += a.run())
          sum = std::fma(a.scale_at(i, at / a.run()) * b.scale_at(j, at / a.run()),
                         float_from_bits(fused_dot_add(row, of_a, a.words(i, at, at + a.run()), of_b,
                                                       b.words(j, at, at + a.run()), 0)),
                         sum);
      sum *= a.scale * b.scale;
      result.push_back(bias.empty() ? sum : sum + bias[static_cast<std::size_t>(j)]);
    }
  return result;
}

class BlockRecipes : public testing::Test {
 protected:
  /// f16 numbers over many binades, with zeros.
  Matrix numbers(std::int64_t count, std::int64_t columns, float unit) {
    Values values;
    for (std::int64_t i = 0; i < count * columns; ++i)
      values.push_back(std::ldexp(static_cast<float>((i * i * 7 + i * 3) % 201 - 100),
                                  static_cast<int>((i * 13 + i / 7) % 9) - 4) *
                       unit);
    return {columns, values_of(*backend, halves_of(*backend, {count, columns}, values))};
  }
  Tensor halves(const Matrix& matrix) {
    return halves_of(*backend, {matrix.rows(), matrix.columns}, matrix.values);
  }
  Values rounded(const Values& values) {
    return values_of(*backend, halves_of(*backend, {static_cast<std::int64_t>(values.size())}, values));
  }

  struct Bits {
    Values y, dx, dw;
  };
  /// The layer's products by the engine; `weight` gets its gradient.
  Bits computed(amp::Autocast& autocast, Tape& tape, Parameter& weight) {
    tape.reset();
    StepState state;
    state.iteration = iteration;
    step = backend->make_step_state(state);
    tape.set_context({.training = true,
                      .seed = seed,
                      .micro_batch = micro_batch,
                      .step = step,
                      .stochastic_operands = autocast.plan().product_formats.dx.a.stochastic});
    const Variable input = tape.input(halves(x));
    const Variable b = tape.constant(halves(Matrix{outputs, bias}).reshaped({outputs}));
    Variable y;
    {
      const amp::AutocastGuard guard(tape, autocast);
      const ScopeGuard scope(tape, "fc1");
      y = ops::linear(input, tape.parameter(weight), b);
    }
    const std::array outs{y};
    const std::array seeds{halves(g)};
    const std::array wanted{input};
    Bits bits{.y = values_of(*backend, y.tensor()), .dx = {}, .dw = {}};
    bits.dx = values_of(*backend, tape.gradients(outs, seeds, wanted, {.retain_graph = true})[0].tensor());
    weight.clear_gradient();
    tape.backward(y, seeds[0]);
    bits.dw = values_of(*backend, weight.gradient);
    return bits;
  }
  /// The same here. `scales`: of x, W and g, where they are delayed.
  Bits composed(const Expected& recipe, const std::vector<float>& scales = {}) {
    const auto scale = [&](std::size_t i) {
      return scales.empty() ? std::nullopt : std::optional(scales[i]);
    };
    const auto place = [](const std::string& name) {
      return PhiloxStream{
          .seed = seed, .stream = stream_id(name), .iteration = iteration, .micro_batch = micro_batch};
    };
    const PhiloxStream of_dx = place("fc1.linear.0.0.0/operand"), of_dw = place("fc1.linear.0.1.0/operand");
    const auto of = [&](const Operand& operand, const Matrix& matrix, std::size_t i, bool hadamard = false,
                        const PhiloxStream* random = nullptr) {
      return coded(operand, matrix, hadamard, random, scale(i));
    };
    return {.y = rounded(product(of(recipe.x, x, 0), of(recipe.weight, w, 1), rows, outputs, bias)),
            .dx = rounded(product(of(recipe.gradient, g, 2, false, recipe.stochastic ? &of_dx : nullptr),
                                  of(recipe.weight, w.transposed(), 1), rows, inputs)),
            .dw = rounded(product(
                of(recipe.gradient, g.transposed(), 2, recipe.hadamard, recipe.stochastic ? &of_dw : nullptr),
                of(recipe.x, x.transposed(), 0, recipe.hadamard), outputs, inputs))};
  }
  static void expect_equal(const Bits& bits, const Bits& expected) {
    EXPECT_EQ(bits.y, expected.y);
    EXPECT_EQ(bits.dx, expected.dx);
    EXPECT_EQ(bits.dw, expected.dw);
  }

  std::unique_ptr<Backend> backend = hopper_backend(2);
  Tensor step;
  Matrix x = numbers(rows, inputs, 0x1.1p-6F), w = numbers(outputs, inputs, 0x1.3p-8F),
         g = numbers(rows, outputs, 0x1.7p-9F);
  Values bias = numbers(1, outputs, 0x1p-5F).values;
};

TEST_F(BlockRecipes, GiveTheBitsOfBlocksQuantizedAndMultipliedByTheirRows) {
  ASSERT_EQ(recipes().size(), amp::recipes().size());
  for (const Expected& recipe : recipes()) {
    SCOPED_TRACE(recipe.recipe);
    Tape tape(*backend);
    amp::Autocast autocast(tape, {.level = Level::O1, .recipe = recipe.recipe});
    Parameter weight("fc1.weight", tensor_of(*backend, {outputs, inputs}, w.values));
    const Bits bits = computed(autocast, tape, weight);
    const bool delayed = recipe.recipe == "te-delayed";
    expect_equal(bits, composed(recipe, delayed ? Values{1, 1, 1} : Values{}));

    // An update has these bits too: w' = w - lr dW in FP32.
    const auto sgd = optim::make_optimizer(*backend, {&weight}, {.learning_rate = 0x1p-3}, 1);
    sgd->begin_iteration(step);
    sgd->apply(step);
    Values updated = w.values;
    for (std::size_t i = 0; i < updated.size(); ++i) updated[i] -= 0x1p-3F * bits.dw[i];
    EXPECT_EQ(values_of(*backend, weight.value), updated);
  }
}

// Images have a border, a ReLU has neurons that never fire.
TEST_F(BlockRecipes, BlocksOfZerosAreZeros) {
  x.values.assign(x.values.size(), 0);
  g.values.assign(g.values.size(), 0);
  for (const Expected& recipe : recipes()) {
    SCOPED_TRACE(recipe.recipe);
    Tape tape(*backend);
    amp::Autocast autocast(tape, {.level = Level::O1, .recipe = recipe.recipe});
    Parameter weight("fc1.weight", tensor_of(*backend, {outputs, inputs}, w.values));
    const auto [y, dx, dw] = computed(autocast, tape, weight);
    for (std::size_t i = 0; i < y.size(); ++i) EXPECT_EQ(y[i], bias[i % bias.size()]);
    EXPECT_EQ(dx, Values(x.values.size(), 0));
    EXPECT_EQ(dw, Values(w.values.size(), 0));
  }
}

TEST_F(BlockRecipes, PartsOfNvfp4AreSwitchedOffOneByOne) {
  const Expected whole = recipes()[5];
  for (int part = 0; part < 3; ++part) {
    SCOPED_TRACE(part);
    Tape tape(*backend);
    amp::Autocast autocast(tape, {.level = Level::O1,
                                  .recipe = "nvfp4",
                                  .recipe_stochastic = part != 0,
                                  .recipe_hadamard = part != 1,
                                  .recipe_2d = part != 2});
    Parameter weight("fc1.weight", tensor_of(*backend, {outputs, inputs}, w.values));
    Expected without = whole;
    if (part == 0) without.stochastic = false;
    if (part == 1) without.hadamard = false;
    if (part == 2) without.weight = {"nvfp4"};
    const Bits bits = computed(autocast, tape, weight);
    expect_equal(bits, composed(without));
    EXPECT_FALSE(bits.y == composed(whole).y && bits.dx == composed(whole).dx &&
                 bits.dw == composed(whole).dw);
  }
}

TEST_F(BlockRecipes, WideLayersAndOtherProductsStayInLow) {
  Tape tape(*backend);
  Parameter weight("fc1.weight", tensor_of(*backend, {outputs, inputs}, w.values));
  amp::Autocast plain(tape, {.level = Level::O1});
  const Bits low = computed(plain, tape, weight);
  amp::Autocast wide(tape, {.level = Level::O1, .recipe = "mxfp4", .recipe_wide = {"fc1"}});
  expect_equal(computed(wide, tape, weight), low);
  EXPECT_TRUE(wide.recipe_records().rows(1).empty());
  amp::Autocast other(tape, {.level = Level::O1, .recipe = "mxfp4", .recipe_wide = {"fc2"}});
  EXPECT_NE(computed(other, tape, weight).y, low.y);

  const auto matmul = [&](amp::Autocast& autocast) {
    const amp::AutocastGuard guard(tape, autocast);
    return values_of(
        *backend,
        ops::matmul(tape.constant(halves(x)), tape.constant(halves(w)), {.a = false, .b = true}).tensor());
  };
  EXPECT_EQ(matmul(other), matmul(plain));
  amp::Autocast delayed(tape, {.level = Level::O1, .recipe = "te-delayed"});
  EXPECT_EQ(matmul(delayed), matmul(plain));
  EXPECT_TRUE(delayed.recipe_records().histories().empty());
}

TEST_F(BlockRecipes, DelayedScalesAreThoseOfTheStepsBefore) {
  Tape tape(*backend);
  amp::Autocast autocast(tape, {.level = Level::O1, .recipe = "te-delayed"});
  Parameter weight("fc1.weight", tensor_of(*backend, {outputs, inputs}, w.values));
  AmaxHistory of_x(DType::e4m3), of_w(DType::e4m3), of_g(DType::e5m2);
  const auto amax = [](const Matrix& matrix) {
    float greatest = 0;
    for (const float value : matrix.values) greatest = std::max(greatest, std::fabs(value));
    return greatest;
  };
  for (int number = 0; number < 3; ++number) {
    SCOPED_TRACE(number);
    autocast.recipe_records().begin_step();
    expect_equal(computed(autocast, tape, weight),
                 composed(recipes()[7], {of_x.scale(), of_w.scale(), of_g.scale()}));
    of_x.see(amax(x));
    of_w.see(amax(w));
    of_g.see(amax(g));
    autocast.recipe_records().end_step();
    for (float& value : x.values) value *= 4;
    for (float& value : g.values) value *= 0.25F;
  }
  // What an evaluation sees decides nothing.
  const Values before = autocast.recipe_records().histories();
  tape.set_context({});
  const amp::AutocastGuard guard(tape, autocast);
  const ScopeGuard scope(tape, "fc1");
  autocast.recipe_records().begin_step();
  ops::linear(tape.constant(halves(x)), tape.parameter(weight), {});
  autocast.recipe_records().end_step();
  EXPECT_EQ(autocast.recipe_records().histories(), before);
}

TEST_F(BlockRecipes, RecordsSayWhatEachOperandLost) {
  Tape tape(*backend);
  amp::Autocast autocast(tape, {.level = Level::O1, .recipe = "mxfp4"});
  Parameter weight("fc1.weight", tensor_of(*backend, {outputs, inputs}, w.values));
  computed(autocast, tape, weight);
  std::map<std::string, RecipeRow> by_name;
  for (const RecipeRow& row : autocast.recipe_records().rows(7))
    by_name[row.product + " " + row.tensor] = row;
  ASSERT_THAT(by_name, testing::SizeIs(6));
  const RecipeRow& row = by_name.at("forward fc1.input");
  // The same by hand: blocks of 32, the last of each row with 18 numbers.
  std::uint64_t made_zero = 0, saturated = 0, saturated_blocks = 0;
  double least = INFINITY, sum = 0;
  for (std::int64_t r = 0; r < rows; ++r)
    for (const std::int64_t begin : {0, 32}) {
      const std::int64_t end = std::min<std::int64_t>(begin + 32, inputs);
      float amax = 0;
      for (std::int64_t c = begin; c < end; ++c) amax = std::max(amax, std::fabs(x.at(r, c)));
      const float scale = std::ldexp(1.0F, std::ilogb(amax) - 2);
      const std::uint64_t before = saturated;
      for (std::int64_t c = begin; c < end; ++c) {
        const float multiple = std::fabs(x.at(r, c)) / scale;
        made_zero += multiple > 0 && multiple <= 0.25F ? 1 : 0;
        saturated += multiple >= 7 ? 1 : 0;  // 7 is the tie between 6 and what would be 8
      }
      saturated_blocks += saturated > before ? 1 : 0;
      const double headroom = std::log2(6 * static_cast<double>(scale) / static_cast<double>(amax));
      least = std::min(least, headroom);
      sum += headroom;
    }
  ASSERT_GT(made_zero, 0u);
  ASSERT_GT(saturated, 0u);
  EXPECT_EQ(row.step, 7u);
  EXPECT_EQ(row.values, static_cast<std::uint64_t>(rows * inputs));
  EXPECT_EQ(row.made_zero, made_zero);
  EXPECT_EQ(row.saturated, saturated);
  EXPECT_EQ(row.blocks, static_cast<std::uint64_t>(2 * rows));
  EXPECT_EQ(row.saturated_blocks, saturated_blocks);
  EXPECT_NEAR(row.least_headroom.value(), least, 1e-6);
  EXPECT_NEAR(row.mean_headroom.value(), sum / (2 * rows), 1e-6);
  EXPECT_EQ(by_name.at("dx fc1.output").values, static_cast<std::uint64_t>(rows * outputs));
  EXPECT_EQ(by_name.at("dw fc1.output").values, static_cast<std::uint64_t>(rows * outputs));
  autocast.recipe_records().begin_step();
  EXPECT_TRUE(autocast.recipe_records().rows(8).empty());
}

TEST_F(BlockRecipes, AResumedRunHasTheBitsOfTheUninterruptedOne) {
  for (const std::string recipe : {"te-delayed", "nvfp4"}) {
    SCOPED_TRACE(recipe);
    const testing_support::TemporaryFolder folder;
    RunSetup setup;
    setup.amp.recipe = recipe;
    TrainingRun whole(setup, folder.path());
    const RunResult expected = whole.trainer.run();
    for (const std::uint64_t at : {1, 7, 12}) {
      TrainingRun resumed(setup);
      resumed.resume(folder.path() / std::to_string(at));
      EXPECT_EQ(resumed.trainer.run().state_hash, expected.state_hash);
      expect_same_tail(whole.recorder.steps, resumed.recorder.steps, at);
    }
    // And is another one than without the recipe.
    setup.amp.recipe = "none";
    EXPECT_NE(TrainingRun(setup).trainer.run().state_hash, expected.state_hash);
  }
}

TEST_F(BlockRecipes, WhatCannotBeIsOneLine) {
  struct Case {
    AmpOptions options;
    std::string message;
  };
  for (
      const auto& [options, message] : std::vector<Case>{
          {{.level = Level::O1, .recipe = "nvfp5"},
           "amp.recipe = \"nvfp5\": no recipe has this name: known are none, mxfp8, mxfp8-hybrid, "
           "mxfp6-e3m2, "
           "mxfp6-e2m3, mxfp4, nvfp4, deepseek-fp8, te-delayed, te-current, te-block; did you mean 'nvfp4'?"},
          {{.recipe = "nvfp4"},
           "amp.recipe = \"nvfp4\": at O0 no product has 16-bit operands; choose another level"},
          {{.level = Level::O1, .dtype = DType::tf32, .recipe = "mxfp8"},
           "amp.recipe = \"mxfp8\": with amp.dtype = \"tf32\" no product has 16-bit operands; choose f16 or "
           "bf16"},
          {{.level = Level::O1, .fp8_operands = DType::e4m3, .fp8_gradients = DType::e5m2, .recipe = "mxfp8"},
           "amp.recipe = \"mxfp8\": amp.fp8_operands and amp.fp8_gradients round the same operands, without "
           "scales; expected one of the two"},
          {{.level = Level::O1, .recipe = "mxfp8", .recipe_hadamard = false},
           "amp.recipe_hadamard = false: amp.recipe is \"mxfp8\", which has no such part; expected true, or "
           "nvfp4"},
          {{.level = Level::O1, .recipe_wide = {"fc1"}},
           "amp.recipe_wide = \"fc1\": without amp.recipe all layers stay wide; leave it out, or choose a "
           "recipe"},
          {{.level = Level::O1, .recipe = "mxfp8", .recipe_wide = {""}},
           "amp.recipe_wide = \"\": a pattern names a module, as \"fc1\" or \"encoder.*\""}})
    EXPECT_THAT(message_of([&options = options] { amp::resolve(options); }), HasSubstr(message));

  RunSetup setup;
  setup.amp.recipe = "nvfp4";
  setup.amp.recipe_wide = {"fc9"};
  EXPECT_THAT(message_of([&] { TrainingRun run(setup); }),
              HasSubstr("amp.recipe_wide = \"fc9\": no layer of the network has such a name; layers: "));

  const auto planned = [](const TrainOptions& train, const ParallelOptions& parallel) {
    return message_of(
        [&] { plan_training(train, {.level = Level::O1, .recipe = "mxfp8"}, {}, {}, parallel); });
  };
  EXPECT_THAT(planned({.steps = 1, .graph = true}, {}), HasSubstr("expected train.graph = false"));
  EXPECT_THAT(planned({.steps = 1}, {.shards = 2, .wire = {}}), HasSubstr("expected parallel.shards = 1"));
}

TEST_F(BlockRecipes, TheVerbRefusesOperandsThatDoNotFit) {
  const Quantizer &mxfp8 = quantizer("mxfp8"), &nvfp4 = quantizer("nvfp4");
  const Tensor a = halves(x), b = halves(w);
  const auto refused = [&](const OperandRounding& of_a, const OperandRounding& of_b) {
    Tensor out = backend->empty({rows, outputs}, DType::f32);
    return message_of([&] {
      backend->gemm({.a = a, .b = b, .out = out, .transpose_b = true, .a_format = of_a, .b_format = of_b});
    });
  };
  EXPECT_EQ(refused({.quantizer = &mxfp8}, {}),
            "gemm: a_format is mxfp8 and b_format none; both have scales, or neither");
  EXPECT_EQ(refused({.quantizer = &mxfp8}, {DType::e4m3}),
            "gemm: a_format is mxfp8 and b_format e4m3; both have scales, or neither");
  EXPECT_EQ(refused({.hadamard = true, .quantizer = &nvfp4}, {.quantizer = &nvfp4}),
            "gemm: a_format is nvfp4 and b_format nvfp4; both go through a Hadamard transform, or neither");
  EXPECT_EQ(refused({.stochastic = true, .quantizer = &nvfp4}, {.quantizer = &nvfp4}),
            "gemm: a_format is nvfp4 and b_format nvfp4; stochastic codes need the StepState in "
            "QuantizerCall::step");
}

}  // namespace
}  // namespace fp16lab::engine::test::recipe_test
