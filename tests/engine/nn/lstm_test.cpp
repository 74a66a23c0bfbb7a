// Lstm and CharLstm: cell by cell against a twin, dtypes under O1.
#include <cmath>
#include <string>
#include <vector>

#include "engine/amp/levels/autocast.hpp"
#include "engine/nn/losses.hpp"
#include "engine/nn/lstm.hpp"
#include "tests/engine/nn/support.hpp"
#include "tests/support/char_model.hpp"

namespace fp16lab::engine::test {
namespace {

using Strings = std::vector<std::string>;
using Sequence = std::vector<std::vector<Real>>;  ///< one vector a step

/// One example through one layer, gate by gate.
Sequence twin_layer(ScalarGraph& graph, const TwinWeights& w, const std::string& suffix,
                    const Sequence& inputs, std::size_t hidden) {
  const auto& w_input = w.at("lstm.weight_ih" + suffix);
  const auto& w_hidden = w.at("lstm.weight_hh" + suffix);
  std::vector<Real> h(hidden, graph.leaf(0.0)), c = h;
  Sequence outputs;
  for (const std::vector<Real>& x : inputs) {
    const auto gate = [&](std::size_t which, std::size_t unit) {
      const std::size_t row = which * hidden + unit;
      Real from_x = w.at("lstm.bias_ih" + suffix)[row], from_h = w.at("lstm.bias_hh" + suffix)[row];
      for (std::size_t i = 0; i < x.size(); ++i) from_x = from_x + x[i] * w_input[row * x.size() + i];
      for (std::size_t i = 0; i < hidden; ++i) from_h = from_h + h[i] * w_hidden[row * hidden + i];
      return from_x + from_h;
    };
    std::vector<Real> next_h, next_c;
    for (std::size_t unit = 0; unit < hidden; ++unit) {
      next_c.push_back(sigmoid(gate(1, unit)) * c[unit] + sigmoid(gate(0, unit)) * tanh(gate(2, unit)));
      next_h.push_back(sigmoid(gate(3, unit)) * tanh(next_c.back()));
    }
    h = next_h;
    c = next_c;
    outputs.push_back(h);
  }
  return outputs;
}

TEST(Lstm, NamesAndShapesFollowTorch) {
  const auto backend = hopper_backend();
  const nn::Lstm lstm(*backend, "lstm", {.inputs = 3, .hidden = 2, .layers = 2, .seed = 1});
  EXPECT_EQ(described_parameters(lstm),
            (Strings{"lstm.weight_ih_l0 (8, 3)", "lstm.weight_hh_l0 (8, 2)", "lstm.bias_ih_l0 (8)",
                     "lstm.bias_hh_l0 (8)", "lstm.weight_ih_l1 (8, 2)", "lstm.weight_hh_l1 (8, 2)",
                     "lstm.bias_ih_l1 (8)", "lstm.bias_hh_l1 (8)"}));
  for (const Parameter* parameter : lstm.parameters()) {
    for (const float w : values_of(*backend, parameter->value))
      EXPECT_LE(std::fabs(static_cast<double>(w)), std::sqrt(0.5) * (1 + 0x1p-23)) << parameter->name;
  }
}

TEST(Lstm, MatchesItsCellsInValueGradientAndSecondDerivative) {
  const auto backend = hopper_backend();
  nn::Lstm lstm(*backend, "lstm", {.inputs = 2, .hidden = 2, .layers = 2, .seed = 1});
  randomise(*backend, lstm, 0.75f);
  const Tensor x = tensor_of(*backend, {2, 3, 2}, uniform_values(12, 21, 1.0f));
  expect_module_matches_twin(
      *backend, lstm, x, [](ScalarGraph& graph, const TwinWeights& w, const std::vector<Real>& in) {
        std::vector<Real> y;
        for (std::size_t example = 0; example < 2; ++example) {
          Sequence sequence;
          for (std::size_t t = 0; t < 3; ++t)
            sequence.push_back({in[(example * 3 + t) * 2], in[(example * 3 + t) * 2 + 1]});
          sequence = twin_layer(graph, w, "_l0", sequence, 2);
          sequence = twin_layer(graph, w, "_l1", sequence, 2);
          for (const auto& step : sequence) y.insert(y.end(), step.begin(), step.end());
        }
        return y;
      });
}

TEST(Lstm, DropoutActsBetweenItsLayers) {
  const auto backend = hopper_backend();
  nn::Lstm lstm(*backend, "lstm", {.inputs = 1, .hidden = 2, .layers = 2, .dropout = 0.5f, .seed = 1});
  randomise(*backend, lstm, 0.75f);
  const Tensor x = tensor_of(*backend, {2, 3, 1}, uniform_values(6, 22, 1.0f));
  const PhiloxStream stream{.seed = 5, .stream = stream_id("lstm.dropout_l0"), .iteration = 9};
  expect_module_matches_twin(
      *backend, lstm, x,
      [&](ScalarGraph& graph, const TwinWeights& w, const std::vector<Real>& in) {
        std::vector<Real> y;
        for (std::size_t example = 0; example < 2; ++example) {
          Sequence sequence;
          for (std::size_t t = 0; t < 3; ++t) sequence.push_back({in[example * 3 + t]});
          sequence = twin_layer(graph, w, "_l0", sequence, 2);
          for (std::size_t t = 0; t < 3; ++t) {
            for (std::size_t unit = 0; unit < 2; ++unit) {
              const bool kept = stream.word((t * 2 + example) * 2 + unit) >> 31 == 0;  // below one half
              sequence[t][unit] = sequence[t][unit] * (kept ? 2.0 : 0.0);
            }
          }
          sequence = twin_layer(graph, w, "_l1", sequence, 2);
          for (const auto& step : sequence) y.insert(y.end(), step.begin(), step.end());
        }
        return y;
      },
      training_context(*backend, 5, 9));
}

TEST(Lstm, GatesCellAndHiddenStateAreF16UnderO1) {
  const auto backend = hopper_backend();
  nn::Lstm lstm(*backend, "lstm", {.inputs = 4, .hidden = 8, .seed = 1});
  const GradientRecorder recorder = gradients_under_o1(*backend, [&](Tape& tape) {
    const Variable y =
        lstm.forward(tape, tape.input(tensor_of(*backend, {2, 5, 4}, uniform_values(40, 1, 1))));
    EXPECT_EQ(y.dtype(), DType::f16);
    EXPECT_EQ(y.shape(), (Shape{2, 5, 8}));
    return ops::sum(y);
  });
  const std::map<std::string, DType> expected = {
      {"lstm.cell_l0.input", DType::f16}, {"lstm.gates_l0.input", DType::f16},
      {"lstm.hh_l0.bias", DType::f16},    {"lstm.hh_l0.input", DType::f16},
      {"lstm.hh_l0.weight", DType::f16},  {"lstm.ih_l0.bias", DType::f16},
      {"lstm.ih_l0.weight", DType::f16}};  // no parameter feeds ih's input
  EXPECT_EQ(recorder.dtypes, expected);
  EXPECT_EQ(recorder.count("lstm.gates_l0.input"), 2u * 5 * 32);  // every step
  EXPECT_EQ(recorder.count("lstm.cell_l0.input"), 2u * 4 * 8);    // the first step begins with constants
  EXPECT_EQ(recorder.count("lstm.hh_l0.input"), 2u * 4 * 8);
  EXPECT_EQ(recorder.count("lstm.hh_l0.weight"), 32u * 8);  // one product, one rounding
}

/// With dL/dy = 2^-24, the least f16, the derivatives of sigmoid (at most 1/4) leave less than its half.
TEST(Lstm, UnderflowOfGatesIsSeenWhereItHappens) {
  const auto backend = hopper_backend();
  nn::Lstm lstm(*backend, "lstm", {.inputs = 4, .hidden = 8, .seed = 1});
  const auto loss = [&](Tape& tape) {
    return ops::sum(
        lstm.forward(tape, tape.constant(tensor_of(*backend, {2, 5, 4}, uniform_values(40, 1, 1)))));
  };
  for (const bool small : {false, true}) {
    const GradientRecorder recorder = gradients_under_o1(*backend, loss, small ? 0x1p-24f : 0x1p4f);
    EXPECT_EQ(recorder.lost("lstm.gates_l0.input") > 0, small) << recorder.lost("lstm.gates_l0.input");
  }
}

/// At O0 an unrolled step is the fused one, operation by operation: with create_graph the same numbers, but
/// for the sign of zeros.
TEST(Lstm, RecordedGradientsAreTheSameNumbers) {
  const auto backend = hopper_backend();
  nn::Lstm lstm(*backend, "lstm", {.inputs = 3, .hidden = 5, .seed = 1});
  for (const std::int64_t steps : {1, 6}) {
    const Tensor x =
        tensor_of(*backend, {2, steps, 3}, uniform_values(static_cast<std::size_t>(6 * steps), 3, 1.0f));
    std::vector<std::vector<float>> values[2];
    for (const bool recorded : {false, true}) {
      Tape tape(*backend);
      const Variable input = tape.input(x);
      std::vector<Variable> wanted{input};
      for (Parameter* parameter : lstm.parameters()) wanted.push_back(tape.parameter(*parameter));
      const Variable y = lstm.forward(tape, input);
      const Variable loss = ops::sum(ops::multiply(y, y));
      for (const Variable& gradient :
           tape.gradients(std::vector{loss}, {}, wanted, {.create_graph = recorded}))
        values[recorded ? 1 : 0].push_back(values_of(*backend, gradient.tensor()));
    }
    EXPECT_EQ(values[0], values[1]) << steps << " steps";
  }
}

/// Half precision against the exact cells: what is stored is rounded, to 2^-11 of magnitudes below 2, eight
/// times a step on the longest way (product, gates, c, h and their gradients), T = 6 steps, and every
/// weight's gradient adds at most 2 * 6 terms of magnitude at most 1.
TEST(Lstm, GradientsUnderO1AreThoseOfO0ButForTheirRoundings) {
  const auto backend = hopper_backend();
  const Tensor x = tensor_of(*backend, {2, 6, 4}, uniform_values(48, 5, 1.0f));
  std::vector<std::vector<float>> all[2];
  for (const bool low : {false, true}) {
    nn::Lstm lstm(*backend, "lstm", {.inputs = 4, .hidden = 8, .seed = 1});
    Tape tape(*backend);
    amp::Autocast autocast(tape, {.level = low ? amp::Level::O1 : amp::Level::O0});
    Variable loss;
    {
      const amp::AutocastGuard guard(tape, autocast);
      loss = ops::sum(lstm.forward(tape, tape.constant(x)));
    }
    tape.backward(loss);
    for (const Parameter* parameter : lstm.parameters())
      all[low ? 1 : 0].push_back(values_of(*backend, parameter->gradient));
  }
  const double bound = 2 * 6 * 6 * 8 * 0x1p-11;
  for (std::size_t i = 0; i < all[0].size(); ++i)
    for (std::size_t j = 0; j < all[0][i].size(); ++j)
      EXPECT_NEAR(static_cast<double>(all[1][i][j]), static_cast<double>(all[0][i][j]), bound)
          << i << ' ' << j;
  EXPECT_NE(all[0], all[1]);
}

TEST(Lstm, ImpossibleOptionsAndShapesAreNamed) {
  const auto backend = hopper_backend();
  EXPECT_THROW(nn::Lstm(*backend, "l", {.inputs = 0, .hidden = 2}), std::invalid_argument);
  EXPECT_THROW(nn::Lstm(*backend, "l", {.inputs = 1, .hidden = 2, .layers = 0}), std::invalid_argument);
  nn::Lstm lstm(*backend, "l", {.inputs = 2, .hidden = 2});
  Tape tape(*backend);
  for (const Shape& shape : {Shape{2, 2}, Shape{1, 0, 2}, Shape{1, 2, 3}})
    EXPECT_THROW(lstm.forward(tape, tape.constant(backend->empty(shape, DType::f32))), std::invalid_argument);
}

TEST(CharLstm, HasTorchsNames) {
  const auto backend = hopper_backend();
  const CharLstm model(*backend, {.symbols = 4, .embedding = 2, .hidden = 3, .seed = 1});
  EXPECT_EQ(described_parameters(model),
            (Strings{"embedding.weight (4, 2)", "lstm.weight_ih_l0 (12, 2)", "lstm.weight_hh_l0 (12, 3)",
                     "lstm.bias_ih_l0 (12)", "lstm.bias_hh_l0 (12)", "head.weight (4, 3)", "head.bias (4)"}));
}

}  // namespace
}  // namespace fp16lab::engine::test
