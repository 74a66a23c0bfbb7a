// SelfAttention and CharTransformer: by loops against a twin, causality, dtypes under O1, threads.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <span>
#include <string>
#include <vector>

#include "engine/amp/levels/autocast.hpp"
#include "engine/nn/attention.hpp"
#include "engine/nn/losses.hpp"
#include "tests/engine/nn/support.hpp"
#include "tests/support/char_model.hpp"

namespace fp16lab::engine::test::attention_test {
namespace {

using Strings = std::vector<std::string>;
using Vectors = std::vector<std::vector<Real>>;  ///< one vector a position

/// w (outputs, inputs), b (outputs) or null.
std::vector<Real> twin_linear(const std::vector<Real>& x, const std::vector<Real>& w,
                              const std::vector<Real>* b) {
  std::vector<Real> y;
  for (std::size_t o = 0; o < w.size() / x.size(); ++o) {
    Real sum = x[0] * w[o * x.size()];
    for (std::size_t i = 1; i < x.size(); ++i) sum = sum + x[i] * w[o * x.size() + i];
    y.push_back(b == nullptr ? sum : sum + (*b)[o]);
  }
  return y;
}

/// One example through the attention at `path`. Position t sums over positions <= t, no mask anywhere.
Vectors twin_attention(const TwinWeights& w, const std::string& path, const Vectors& x, std::size_t heads) {
  const std::size_t features = x[0].size(), width = features / heads;
  Vectors qkv;
  for (const auto& position : x)
    qkv.push_back(twin_linear(position, w.at(path + ".qkv.weight"), &w.at(path + ".qkv.bias")));
  Vectors y;
  for (std::size_t t = 0; t < x.size(); ++t) {
    std::vector<Real> mixed;
    for (std::size_t head = 0; head < heads; ++head) {
      std::vector<Real> scores;
      for (std::size_t s = 0; s <= t; ++s) {
        Real dot = qkv[t][head * width] * qkv[s][features + head * width];
        for (std::size_t i = 1; i < width; ++i)
          dot = dot + qkv[t][head * width + i] * qkv[s][features + head * width + i];
        scores.push_back(dot / std::sqrt(static_cast<double>(width)));
      }
      Real total = exp(scores[0]);
      for (std::size_t s = 1; s <= t; ++s) total = total + exp(scores[s]);
      for (std::size_t i = 0; i < width; ++i) {
        Real sum = exp(scores[0]) / total * qkv[0][2 * features + head * width + i];
        for (std::size_t s = 1; s <= t; ++s)
          sum = sum + exp(scores[s]) / total * qkv[s][2 * features + head * width + i];
        mixed.push_back(sum);
      }
    }
    y.push_back(twin_linear(mixed, w.at(path + ".out.weight"), &w.at(path + ".out.bias")));
  }
  return y;
}

std::vector<Real> twin_layer_norm(const TwinWeights& w, const std::string& path, const std::vector<Real>& x) {
  const auto n = static_cast<double>(x.size());
  Real sum = x[0];
  for (std::size_t i = 1; i < x.size(); ++i) sum = sum + x[i];
  const Real mean = sum / n;
  Real squares = (x[0] - mean) * (x[0] - mean);
  for (std::size_t i = 1; i < x.size(); ++i) squares = squares + (x[i] - mean) * (x[i] - mean);
  const Real deviation = sqrt(squares / n + static_cast<double>(1e-5f));
  std::vector<Real> y;
  for (std::size_t i = 0; i < x.size(); ++i)
    y.push_back((x[i] - mean) / deviation * w.at(path + ".weight")[i] + w.at(path + ".bias")[i]);
  return y;
}

/// GPT-2's GELU: 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))).
Real twin_gelu(const Real& x) {
  return x * 0.5 * (tanh((x + x * x * x * 0.044715) * std::sqrt(2 / std::numbers::pi)) + 1.0);
}

TEST(SelfAttention, MatchesLoopsInValueGradientAndSecondDerivative) {
  const auto backend = hopper_backend();
  nn::SelfAttention attention(*backend, "attn", {.features = 4, .heads = 2, .seed = 1});
  EXPECT_EQ(described_parameters(attention), (Strings{"attn.qkv.weight (12, 4)", "attn.qkv.bias (12)",
                                                      "attn.out.weight (4, 4)", "attn.out.bias (4)"}));
  randomise(*backend, attention, 0.75f);
  const Tensor x = tensor_of(*backend, {2, 3, 4}, uniform_values(24, 31, 1.0f));
  expect_module_matches_twin(
      *backend, attention, x, [](ScalarGraph&, const TwinWeights& w, const std::vector<Real>& in) {
        std::vector<Real> y;
        for (std::size_t example = 0; example < 2; ++example) {
          Vectors positions;
          for (std::size_t t = 0; t < 3; ++t) {
            const auto from = in.begin() + static_cast<std::ptrdiff_t>((example * 3 + t) * 4);
            positions.emplace_back(from, from + 4);
          }
          for (const auto& position : twin_attention(w, "attn", positions, 2))
            y.insert(y.end(), position.begin(), position.end());
        }
        return y;
      });
}

TEST(SelfAttention, DropsAttentionWeights) {
  const auto backend = hopper_backend();
  // One head of width 1 and weights of zero for q: attention weights 1 / (t + 1), whatever x.
  nn::SelfAttention attention(*backend, "a", {.features = 1, .heads = 1, .dropout = 0.5f, .seed = 1});
  const auto parameters = attention.parameters();
  parameters[0]->value = tensor_of(*backend, {3, 1}, {0, 0, 1});  // v = x
  parameters[1]->value = tensor_of(*backend, {3}, {0, 0, 0});
  parameters[2]->value = tensor_of(*backend, {1, 1}, {1});
  parameters[3]->value = tensor_of(*backend, {1}, {0});
  const std::size_t steps = 4;
  const std::vector<float> x = {1, 2, 4, 8};
  Tape tape(*backend);
  tape.set_context(training_context(*backend, 7, 3));
  const Variable y = attention.forward(tape, tape.constant(tensor_of(*backend, {1, 4, 1}, x)));
  const PhiloxStream stream{.seed = 7, .stream = stream_id("a.dropout"), .iteration = 3};
  const auto values = values_of(*backend, y.tensor());
  for (std::size_t t = 0; t < steps; ++t) {
    double expected = 0;
    for (std::size_t s = 0; s <= t; ++s) {
      const bool kept = stream.word(t * steps + s) >> 31 == 0;
      if (kept) expected += 2.0 / static_cast<double>(t + 1) * static_cast<double>(x[s]);
    }
    // exp(0) = 1 exactly; one division, then an fma chain of four terms up to 16.
    EXPECT_NEAR(static_cast<double>(values[t]), expected, 5 * 0x1p-24 * 16);
  }
}

TEST(SelfAttention, SoftmaxIsF32AndProductsAreF16UnderO1) {
  const auto backend = hopper_backend();
  nn::SelfAttention attention(*backend, "attn", {.features = 8, .heads = 2, .seed = 1});
  const GradientRecorder recorder = gradients_under_o1(*backend, [&](Tape& tape) {
    const Variable y =
        attention.forward(tape, tape.constant(tensor_of(*backend, {2, 5, 8}, uniform_values(80, 1, 1))));
    EXPECT_EQ(y.dtype(), DType::f16);
    EXPECT_EQ(y.shape(), (Shape{2, 5, 8}));
    return ops::sum(y);
  });
  EXPECT_EQ(recorder.dtypes.at("attn.scores.input"), DType::f16);
  EXPECT_EQ(recorder.count("attn.scores.input"), 2u * 2 * 5 * 5);
  EXPECT_EQ(recorder.count("attn.weights.input"), 2u * 2 * 5 * 5);
  for (const char* name :
       {"attn.qkv.weight", "attn.qkv.bias", "attn.out.weight", "attn.out.bias", "attn.out.input"})
    EXPECT_EQ(recorder.dtypes.at(name), DType::f16) << name;
}

/// With dL/dy = 2^-22, four times the least f16, products with weights below 1/2 fall below its half.
TEST(SelfAttention, UnderflowOfScoresAndWeightsIsSeenWhereItHappens) {
  const auto backend = hopper_backend();
  nn::SelfAttention attention(*backend, "attn", {.features = 8, .heads = 2, .seed = 1});
  const auto loss = [&](Tape& tape) {
    return ops::sum(
        attention.forward(tape, tape.constant(tensor_of(*backend, {2, 5, 8}, uniform_values(80, 1, 1)))));
  };
  for (const bool small : {false, true}) {
    const GradientRecorder recorder = gradients_under_o1(*backend, loss, small ? 0x1p-22f : 0x1p10f);
    for (const char* name : {"attn.scores.input", "attn.weights.input"})
      EXPECT_EQ(recorder.lost(name) > 0, small) << name << " " << recorder.lost(name);
    // 10 masked places in each of 4 triangles, and the first row's single weight: exact zeros, nothing lost.
    EXPECT_GE(recorder.probes.at("attn.scores.input").before.zero, 4u * 11);
  }
}

TEST(SelfAttention, ImpossibleOptionsAndShapesAreNamed) {
  const auto backend = hopper_backend();
  EXPECT_THROW(nn::SelfAttention(*backend, "a", {.features = 6, .heads = 4}), std::invalid_argument);
  EXPECT_THROW(nn::SelfAttention(*backend, "a", {.features = 0, .heads = 1}), std::invalid_argument);
  nn::SelfAttention attention(*backend, "a", {.features = 4, .heads = 2});
  Tape tape(*backend);
  EXPECT_THROW(attention.forward(tape, tape.constant(backend->empty({2, 3, 5}, DType::f32))),
               std::invalid_argument);
}

TEST(CharTransformer, NamesShapesAndInitialWeightsAreThoseOfGpt2) {
  const auto backend = hopper_backend();
  const CharTransformer model(
      *backend, {.symbols = 70, .context = 16, .embedding = 64, .heads = 4, .layers = 2, .seed = 1});
  const Strings described = described_parameters(model);
  EXPECT_EQ(described.size(), 2u + 2 * 12 + 3);
  EXPECT_EQ((Strings(described.begin(), described.begin() + 14)),
            (Strings{"tokens.weight (70, 64)", "positions.weight (16, 64)", "h0.ln1.weight (64)",
                     "h0.ln1.bias (64)", "h0.attn.qkv.weight (192, 64)", "h0.attn.qkv.bias (192)",
                     "h0.attn.out.weight (64, 64)", "h0.attn.out.bias (64)", "h0.ln2.weight (64)",
                     "h0.ln2.bias (64)", "h0.mlp.fc.weight (256, 64)", "h0.mlp.fc.bias (256)",
                     "h0.mlp.proj.weight (64, 256)", "h0.mlp.proj.bias (64)"}));
  EXPECT_EQ((Strings(described.end() - 3, described.end())),
            (Strings{"ln_f.weight (64)", "ln_f.bias (64)", "head.weight (70, 64)"}));
  for (const Parameter* parameter : model.parameters()) {
    const auto values = values_of(*backend, parameter->value);
    const std::string& name = parameter->name;
    if (name.ends_with(".bias")) {
      EXPECT_TRUE(std::all_of(values.begin(), values.end(), [](float b) { return b == 0.0f; })) << name;
    } else if (name.find("ln") != std::string::npos) {
      EXPECT_TRUE(std::all_of(values.begin(), values.end(), [](float w) { return w == 1.0f; })) << name;
    } else {
      const bool residual = name.ends_with("attn.out.weight") || name.ends_with("mlp.proj.weight");
      const double deviation = residual ? 0.01 : 0.02;  // 0.02 / sqrt(2 * 2 layers)
      double squares = 0;
      for (const float w : values) squares += static_cast<double>(w) * static_cast<double>(w);
      const auto n = static_cast<double>(values.size());
      // A mean of n squared normals has relative deviation sqrt(2 / n); five of them.
      EXPECT_NEAR(squares / n, deviation * deviation, 5 * deviation * deviation * std::sqrt(2 / n)) << name;
    }
  }
}

TEST(CharTransformer, MatchesItsTwinInValueGradientAndSecondDerivative) {
  const auto backend = hopper_backend();
  const std::size_t features = 4, vocabulary = 4, steps = 3;
  CharTransformer model(*backend,
                        {.symbols = 4, .context = 4, .embedding = 4, .heads = 2, .layers = 1, .seed = 1});
  randomise(*backend, model, 0.75f);
  const std::vector<std::int32_t> symbols = {2, 0, 1, 1, 3, 2};
  expect_module_matches_twin(
      *backend, model, symbols_of(*backend, {2, 3}, symbols),
      [&](ScalarGraph&, const TwinWeights& w, const std::vector<Real>&) {
        std::vector<Real> y;
        for (std::size_t example = 0; example < 2; ++example) {
          Vectors stream(steps), normed(steps);
          for (std::size_t t = 0; t < steps; ++t) {
            const auto symbol = static_cast<std::size_t>(symbols[example * steps + t]);
            for (std::size_t i = 0; i < features; ++i) {
              stream[t].push_back(w.at("tokens.weight")[symbol * features + i] +
                                  w.at("positions.weight")[t * features + i]);
            }
            normed[t] = twin_layer_norm(w, "h0.ln1", stream[t]);
          }
          const Vectors attended = twin_attention(w, "h0.attn", normed, 2);
          for (std::size_t t = 0; t < steps; ++t) {
            for (std::size_t i = 0; i < features; ++i) stream[t][i] = stream[t][i] + attended[t][i];
            std::vector<Real> inner = twin_linear(twin_layer_norm(w, "h0.ln2", stream[t]),
                                                  w.at("h0.mlp.fc.weight"), &w.at("h0.mlp.fc.bias"));
            for (Real& unit : inner) unit = twin_gelu(unit);
            const auto out = twin_linear(inner, w.at("h0.mlp.proj.weight"), &w.at("h0.mlp.proj.bias"));
            for (std::size_t i = 0; i < features; ++i) stream[t][i] = stream[t][i] + out[i];
            const auto logits =
                twin_linear(twin_layer_norm(w, "ln_f", stream[t]), w.at("head.weight"), nullptr);
            EXPECT_EQ(logits.size(), vocabulary);
            y.insert(y.end(), logits.begin(), logits.end());
          }
        }
        return y;
      });
}

struct Step {
  std::vector<float> logits;
  std::vector<std::vector<std::byte>> gradients;
};

/// One O1 step with dropout of a model of 31 symbols on `symbols` (3, 12).
Step one_step(int threads, const std::vector<std::int32_t>& symbols) {
  const auto backend = hopper_backend(threads);
  CharTransformer model(
      *backend,
      {.symbols = 31, .context = 16, .embedding = 24, .heads = 3, .layers = 2, .dropout = 0.1f, .seed = 4});
  std::vector<std::int32_t> targets(symbols.size());
  for (std::size_t i = 0; i < targets.size(); ++i) targets[i] = static_cast<std::int32_t>((7 * i + 5) % 31);
  Tape tape(*backend);
  amp::Autocast autocast(tape, {.level = amp::Level::O1});
  tape.set_context(training_context(*backend, 3, 1));
  Step step;
  Variable loss;
  {
    const amp::AutocastGuard guard(tape, autocast);
    const Variable logits = model.forward(tape, tape.constant(symbols_of(*backend, {3, 12}, symbols)));
    step.logits = values_of(*backend, logits.tensor());
    loss = nn::cross_entropy_loss(logits, index_of(*backend, targets));
  }
  tape.backward(loss);
  for (const Parameter* parameter : model.parameters())
    step.gradients.push_back(bytes_of(*backend, parameter->gradient));
  return step;
}

std::vector<std::int32_t> some_symbols() {
  std::vector<std::int32_t> symbols(3 * 12);
  for (std::size_t i = 0; i < symbols.size(); ++i)
    symbols[i] = static_cast<std::int32_t>((i * i + 3 * i) % 31);
  return symbols;
}

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return std::ranges::equal(std::as_bytes(a), std::as_bytes(b));
}

TEST(CharTransformer, ThreadsDoNotChangeItsBits) {
  const Step one = one_step(1, some_symbols()), two = one_step(2, some_symbols());
  EXPECT_TRUE(same_bits(one.logits, two.logits));
  EXPECT_EQ(one.gradients, two.gradients);
}

TEST(CharTransformer, ASymbolChangesNoEarlierLogit) {
  const std::size_t steps = 12, vocabulary = 31;
  const std::vector<float> before = one_step(1, some_symbols()).logits;
  for (const std::size_t t : {std::size_t{0}, std::size_t{5}, std::size_t{11}}) {
    auto symbols = some_symbols();
    symbols[steps + t] = (symbols[steps + t] + 1) % 31;  // changes example 1
    const std::vector<float> after = one_step(1, symbols).logits;
    for (std::size_t row = 0; row < 3 * steps; ++row) {
      const bool same = same_bits(std::span(before).subspan(row * vocabulary, vocabulary),
                                  std::span(after).subspan(row * vocabulary, vocabulary));
      const bool may_change = row >= steps + t && row < 2 * steps;
      EXPECT_EQ(same, !may_change) << "symbol " << t << ", row " << row;
    }
  }
}

TEST(CharTransformer, ResidualStreamStaysF32UnderO1) {
  const auto backend = hopper_backend();
  CharTransformer model(*backend,
                        {.symbols = 5, .context = 4, .embedding = 8, .heads = 2, .layers = 2, .seed = 1});
  const GradientRecorder recorder = gradients_under_o1(*backend, [&](Tape& tape) {
    const Variable logits = model.forward(tape, tape.constant(symbols_of(*backend, {1, 4}, {0, 1, 2, 3})));
    EXPECT_EQ(logits.shape(), (Shape{4, 5}));
    EXPECT_EQ(logits.dtype(), DType::f16);
    return nn::cross_entropy_loss(logits, index_of(*backend, {1, 2, 3, 4}));
  });
  for (const char* name : {"h0.residual.input", "h1.residual.input", "tokens.weight", "positions.weight"})
    EXPECT_EQ(recorder.dtypes.at(name), DType::f32) << name;
  for (const char* name : {"h0.mlp.fc.weight", "h1.attn.qkv.weight", "head.weight", "h1.attn.scores.input"})
    EXPECT_EQ(recorder.dtypes.at(name), DType::f16) << name;
}

TEST(CharTransformer, ImpossibleOptionsAndShapesAreNamed) {
  const auto backend = hopper_backend();
  EXPECT_THROW(CharTransformer(*backend, {.symbols = 5, .context = 0}), std::invalid_argument);
  EXPECT_THROW(CharTransformer(*backend, {.symbols = 0}), std::invalid_argument);
  CharTransformer model(*backend, {.symbols = 5, .context = 2, .embedding = 4, .heads = 1, .layers = 1});
  Tape tape(*backend);
  EXPECT_THROW(model.forward(tape, tape.constant(symbols_of(*backend, {1, 3}, {0, 1, 2}))),
               std::invalid_argument);
  EXPECT_THROW(model.forward(tape, tape.constant(index_of(*backend, {0, 1}))), std::invalid_argument);
}

}  // namespace
}  // namespace fp16lab::engine::test::attention_test
