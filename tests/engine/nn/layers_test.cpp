// Layers against the ops that they are; and the oracle of larger modules.
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "engine/nn/conv2d.hpp"
#include "engine/nn/dropout.hpp"
#include "engine/nn/embedding.hpp"
#include "engine/nn/linear.hpp"
#include "engine/nn/normalization.hpp"
#include "tests/engine/nn/support.hpp"

namespace fp16lab::engine::test {
namespace {

using Strings = std::vector<std::string>;

/// The oracle itself against central differences in FP64: h^2/6 f''' = 2e-11 and u / h = 1e-11 for values and
/// third derivatives of the order of 1.
TEST(ScalarTwin, GradientsAndSecondDerivativesAreDerivatives) {
  const auto function = [](const std::vector<Real>& x) {
    return tanh(x[0] * x[1]) / sqrt(exp(x[1] - x[0]) + log(x[2])) + sigmoid(x[2] * x[0]) * relu(x[1]);
  };
  const std::vector<double> at = {0.5, 0.75, 1.25};
  const auto evaluate = [&](const std::vector<double>& point, int order, std::size_t which) {
    ScalarGraph graph;
    std::vector<Real> x;
    x.reserve(point.size());
    for (const double value : point) x.push_back(graph.leaf(value));
    const Real y = function(x);
    return order == 0 ? y.value() : graph.gradients(y, x).at(which).value();
  };
  ScalarGraph graph;
  std::vector<Real> x;
  x.reserve(at.size());
  for (const double value : at) x.push_back(graph.leaf(value));
  const std::vector<Real> first = graph.gradients(function(x), x);
  constexpr double h = 1e-5;
  for (std::size_t i = 0; i < at.size(); ++i) {
    const std::vector<Real> second = graph.gradients(first[i], x);
    for (std::size_t j = 0; j < at.size(); ++j) {
      auto above = at, below = at;
      above[j] += h;
      below[j] -= h;
      if (i == 0) {
        EXPECT_NEAR(first[j].value(), (evaluate(above, 0, 0) - evaluate(below, 0, 0)) / (2 * h), 1e-9);
      }
      EXPECT_NEAR(second[j].value(), (evaluate(above, 1, i) - evaluate(below, 1, i)) / (2 * h), 1e-9);
    }
  }
}

TEST(ScalarTwin, RoundingBoundIsTheSumOfConditionedRoundings) {
  ScalarGraph graph;
  const Real x = graph.leaf(3.0), y = graph.leaf(2.0);
  const Real product = x * y;    // 6, sensitivity 1 / 8
  const Real sum = product + y;  // 8, sensitivity 1 / 8
  EXPECT_DOUBLE_EQ(graph.rounding_bound(log(sum)), 6.0 / 8 + 8.0 / 8 + std::log(8.0));
}

/// Parameters carry torch's names and shapes, scales begin at one and shifts of norms at zero.
TEST(LayerModules, AreTheOpsOfTheirNames) {
  const auto owner = hopper_backend();
  Backend& backend = *owner;
  using V = std::vector<Variable>;
  const auto expect_is = [&](nn::Module&& layer, const Strings& parameters, const Shape& x,
                             const ModuleOp& op, const StepContext& context = {}) {
    EXPECT_EQ(described_parameters(layer), parameters);
    expect_module_is(backend, layer, x, op, context);
  };
  const auto expect_norm = [&](nn::Module&& layer, const Strings& parameters, const Shape& x,
                               const ModuleOp& op, const StepContext& context = {}) {
    for (std::size_t i = 0; i < layer.parameters().size(); ++i) {
      const std::vector<float> values = values_of(backend, layer.parameters()[i]->value);
      EXPECT_EQ(values, std::vector<float>(values.size(), i == 0 ? 1.0f : 0.0f)) << parameters[i];
    }
    expect_is(std::move(layer), parameters, x, op, context);
  };
  expect_is(nn::Linear(backend, "fc", {.inputs = 3, .outputs = 2, .seed = 1}),
            {"fc.weight (2, 3)", "fc.bias (2)"}, {2, 2, 3},
            [](const V& p, const Variable& x) { return ops::linear(x, p[0], p[1]); });
  expect_norm(nn::LayerNorm(backend, "ln", 5, 1e-3f), {"ln.weight (5)", "ln.bias (5)"}, {2, 2, 5},
              [](const V& p, const Variable& x) { return ops::layer_norm(x, p[0], p[1], 1e-3f); });
  expect_norm(nn::RmsNorm(backend, "rms", 5, 1e-3f), {"rms.weight (5)"}, {2, 2, 5},
              [](const V& p, const Variable& x) { return ops::rms_norm(x, p[0], 1e-3f); });
  for (const Layout layout : {Layout::nchw, Layout::nhwc}) {
    const bool nchw = layout == Layout::nchw;
    const auto convolution = [&](const Conv2dGeometry& geometry, bool bias) {
      const bool grouped = geometry.groups > 1;
      Strings parameters{grouped ? "conv.weight (4, 1, 3, 2)" : "conv.weight (3, 2, 3, 2)"};
      if (bias) parameters.push_back(grouped ? "conv.bias (4)" : "conv.bias (3)");
      expect_is(nn::Conv2d(backend, "conv",
                           {.inputs = 2,
                            .outputs = grouped ? 4 : 3,
                            .kernel = {3, 2},
                            .geometry = geometry,
                            .bias = bias,
                            .seed = 1}),
                parameters, nchw ? Shape{2, 2, 4, 5} : Shape{2, 4, 5, 2}, [=](const V& p, const Variable& x) {
                  return ops::conv2d(x, p[0], bias ? p[1] : Variable(), geometry);
                });
    };
    convolution({.layout = layout}, true);
    convolution({.stride = {2, 1}, .padding = {1, 1}, .layout = layout}, true);
    convolution({.padding = {2, 0}, .dilation = {2, 3}, .layout = layout}, false);
    convolution({.padding = {1, 1}, .layout = layout, .groups = 2}, true);
    const Conv2dGeometry geometry{
        .stride = {2, 3}, .padding = {1, 0}, .dilation = {1, 2}, .layout = layout, .groups = 2};
    expect_is(nn::ConvTranspose2d(
                  backend, "up",
                  {.inputs = 4, .outputs = 6, .kernel = {3, 2}, .geometry = geometry, .seed = 1}, {1, 2}),
              {"up.weight (4, 3, 3, 2)", "up.bias (6)"}, nchw ? Shape{2, 4, 2, 3} : Shape{2, 2, 3, 4},
              [&](const V& p, const Variable& x) {
                return ops::conv_transpose2d(x, p[0], p[1], geometry, {1, 2});
              });
    expect_norm(
        nn::GroupNorm(backend, "gn", {.groups = 2, .channels = 4, .epsilon = 1e-3f, .layout = layout}),
        {"gn.weight (4)", "gn.bias (4)"}, nchw ? Shape{2, 4, 1, 3} : Shape{2, 1, 3, 4},
        [&](const V& p, const Variable& x) { return ops::group_norm(x, 2, p[0], p[1], 1e-3f, layout); });
    const Strings of_batch_norm{"bn.weight (2)", "bn.bias (2)"};
    for (const Shape& shape : {Shape{3, 2}, nchw ? Shape{3, 2, 1, 2} : Shape{3, 1, 2, 2}}) {
      const nn::BatchNormOptions options{.features = 2, .epsilon = 1e-3f, .layout = layout};
      expect_norm(
          nn::BatchNorm(backend, "bn", options), of_batch_norm, shape,
          [&](const V& p, const Variable& x) { return ops::batch_norm(x, p[0], p[1], 1e-3f, layout).y; },
          {.training = true});
      nn::BatchNorm running(backend, "bn", options);
      const Tensor mean = tensor_of(backend, {2}, {0.25f, -0.5f}),
                   variance = tensor_of(backend, {2}, {0.75f, 1.5f});
      backend.copy(mean, running.buffers()[0]->value);
      backend.copy(variance, running.buffers()[1]->value);
      expect_module_is(backend, running, shape, [&](const V& p, const Variable& x) {
        return ops::batch_norm_inference(x, mean, variance, p[0], p[1], 1e-3f, layout);
      });
      EXPECT_EQ(values_of(backend, running.buffers()[0]->value), values_of(backend, mean)) << "only read";
      EXPECT_EQ(values_of(backend, running.buffers()[1]->value), values_of(backend, variance)) << "only read";
    }
  }
}

TEST(Linear, DeviationReplacesTheInitialization) {
  const auto backend = hopper_backend();
  const nn::Linear layer(*backend, "fc", {.inputs = 64, .outputs = 64, .deviation = 0.25f, .seed = 1});
  double squares = 0;
  for (const float w : values_of(*backend, layer.parameters()[0]->value)) {
    squares += static_cast<double>(w) * static_cast<double>(w);
  }
  // A mean of n squared normals has relative deviation sqrt(2 / n); five of them.
  EXPECT_NEAR(squares / 4096, 0.0625, 5 * 0.0625 * std::sqrt(2.0 / 4096));
  for (const float b : values_of(*backend, layer.parameters()[1]->value)) EXPECT_EQ(b, 0.0f);
}

TEST(Conv2d, InitialWeightsFillTheIntervalOfTheirFanIn) {
  const auto backend = hopper_backend();
  const nn::Conv2d layer(*backend, "conv", {.inputs = 16, .outputs = 32, .kernel = {5, 5}, .seed = 3});
  const double bound = 1 / std::sqrt(16.0 * 25);
  for (const Parameter* parameter : layer.parameters()) {
    double largest = 0;
    for (const float w : values_of(*backend, parameter->value)) {
      largest = std::max(largest, std::fabs(static_cast<double>(w)));
    }
    EXPECT_LE(largest, bound * (1 + 0x1p-23))
        << parameter->name;  // one rounding of the bound, one of the product
    // P(none of n >= 32 elements in the outer half) = 2^-32 at most.
    EXPECT_GT(largest, bound * 0.5) << parameter->name;
  }
}

TEST(Embedding, InitialWeightsHaveTheStatedDeviation) {
  const auto backend = hopper_backend();
  for (const float deviation : {1.0f, 0.02f}) {
    const nn::Embedding layer(*backend, "emb",
                              {.symbols = 64, .features = 64, .deviation = deviation, .seed = 1});
    double squares = 0;
    for (const float w : values_of(*backend, layer.parameters()[0]->value))
      squares += static_cast<double>(w) * static_cast<double>(w);
    const double expected = static_cast<double>(deviation) * static_cast<double>(deviation);
    EXPECT_NEAR(squares / 4096, expected, 5 * expected * std::sqrt(2.0 / 4096));  // as for Linear
  }
}

/// Their ops are asked in autograd/activation_test.cpp and shape_test.cpp.
TEST(LayerModules, DropoutAndEmbeddingAreTheOpsOfTheirNames) {
  const auto backend = hopper_backend();
  nn::Embedding embedding(*backend, "emb", {.symbols = 5, .features = 3, .seed = 1});
  EXPECT_EQ(described_parameters(embedding), (Strings{"emb.weight (5, 3)"}));
  const Tensor symbols = symbols_of(*backend, {2, 3}, {4, 0, 4, 2, 4, 0});
  nn::Dropout dropout("a.drop", 0.25f);
  Tape tape(*backend);
  tape.set_context(training_context(*backend, 2, 3, 1));
  const Variable rows = embedding.forward(tape, tape.constant(symbols));
  EXPECT_EQ(rows.shape(), (Shape{2, 3, 3}));
  EXPECT_EQ(
      values_of(*backend, rows.tensor()),
      values_of(*backend, ops::embedding(tape.parameter(*embedding.parameters()[0]), symbols).tensor()));
  EXPECT_EQ(values_of(*backend, dropout.forward(tape, rows).tensor()),
            values_of(*backend, ops::dropout(rows, 0.25f, "a.drop").tensor()));
}

TEST(DropoutModule, IsTheIdentityOutsideTrainingAndForZero) {
  const auto backend = hopper_backend();
  Tape tape(*backend);
  const Variable x = tape.input(tensor_of(*backend, {4}, {1, 2, 3, 4}));
  nn::Dropout half("d", 0.5f), none("d", 0.0f);
  EXPECT_EQ(half.forward(tape, x).id(), x.id());
  tape.set_context(training_context(*backend, 1, 1));
  EXPECT_EQ(none.forward(tape, x).id(), x.id());
  EXPECT_NE(half.forward(tape, x).id(), x.id());
}

TEST(LayerModules, ImpossibleOptionsAreNamed) {
  const auto backend = hopper_backend();
  EXPECT_THROW(nn::Conv2d(*backend, "c", {.inputs = 0, .outputs = 1}), std::invalid_argument);
  EXPECT_THROW(nn::Conv2d(*backend, "c", {.inputs = 1, .outputs = 1, .kernel = {0, 3}}),
               std::invalid_argument);
  EXPECT_THROW(nn::Conv2d(*backend, "c", {.inputs = 4, .outputs = 6, .geometry = {.groups = 4}}),
               std::invalid_argument);
  EXPECT_THROW(nn::Conv2d(*backend, "c", {.inputs = 4, .outputs = 6, .geometry = {.groups = 0}}),
               std::invalid_argument);
  EXPECT_THROW(nn::ConvTranspose2d(*backend, "c", {.inputs = 6, .outputs = 4, .geometry = {.groups = 4}}),
               std::invalid_argument);
  EXPECT_THROW(nn::ConvTranspose2d(*backend, "c", {.inputs = 0, .outputs = 4}), std::invalid_argument);
  EXPECT_THROW(nn::RmsNorm(*backend, "n", 0), std::invalid_argument);
  EXPECT_THROW(nn::GroupNorm(*backend, "n", {.groups = 3, .channels = 4}), std::invalid_argument);
  EXPECT_THROW(nn::GroupNorm(*backend, "n", {.groups = 0, .channels = 4}), std::invalid_argument);
  EXPECT_THROW(nn::LayerNorm(*backend, "n", 0), std::invalid_argument);
  EXPECT_THROW(nn::BatchNorm(*backend, "n", {.features = 0}), std::invalid_argument);
  EXPECT_THROW(nn::Embedding(*backend, "e", {.symbols = 0, .features = 4}), std::invalid_argument);
  EXPECT_THROW(nn::Dropout("d", 1.0f), std::invalid_argument);
  EXPECT_THROW(nn::Dropout("d", -0.1f), std::invalid_argument);
}

}  // namespace
}  // namespace fp16lab::engine::test
