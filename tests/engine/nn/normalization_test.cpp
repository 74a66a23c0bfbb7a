// The norms against their twins, and BatchNorm's running statistics.
#include <cmath>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/nn/normalization.hpp"
#include "tests/engine/nn/support.hpp"

namespace fp16lab::engine::test {
namespace {

using Strings = std::vector<std::string>;

TEST(LayerNorm, MatchesItsTwin) {
  const auto backend = hopper_backend();
  nn::LayerNorm layer(*backend, "ln", 5, 1e-3f);
  EXPECT_EQ(described_parameters(layer), (Strings{"ln.weight (5)", "ln.bias (5)"}));
  EXPECT_EQ(values_of(*backend, layer.parameters()[0]->value), std::vector<float>(5, 1.0f));
  EXPECT_EQ(values_of(*backend, layer.parameters()[1]->value), std::vector<float>(5, 0.0f));
  randomise(*backend, layer, 1.0f);
  const Tensor x = tensor_of(*backend, {2, 2, 5}, uniform_values(20, 11, 1.0f));
  expect_module_matches_twin(
      *backend, layer, x, [](ScalarGraph&, const TwinWeights& w, const std::vector<Real>& in) {
        std::vector<Real> y;
        for (std::size_t row = 0; row < 4; ++row) {
          const std::span<const Real> values = std::span(in).subspan(row * 5, 5);
          const Real mean = (values[0] + values[1] + values[2] + values[3] + values[4]) / 5.0;
          Real squares = (values[0] - mean) * (values[0] - mean);
          for (std::size_t i = 1; i < 5; ++i) squares = squares + (values[i] - mean) * (values[i] - mean);
          const Real deviation = sqrt(squares / 5.0 + static_cast<double>(1e-3f));
          for (std::size_t i = 0; i < 5; ++i)
            y.push_back((values[i] - mean) / deviation * w.at("ln.weight")[i] + w.at("ln.bias")[i]);
        }
        return y;
      });
}

TEST(RmsNorm, MatchesItsTwin) {
  const auto backend = hopper_backend();
  nn::RmsNorm layer(*backend, "rms", 5, 1e-3f);
  EXPECT_EQ(described_parameters(layer), Strings{"rms.weight (5)"});
  EXPECT_EQ(values_of(*backend, layer.parameters()[0]->value), std::vector<float>(5, 1.0f));
  randomise(*backend, layer, 1.0f);
  const Tensor x = tensor_of(*backend, {2, 2, 5}, uniform_values(20, 11, 1.0f));
  expect_module_matches_twin(*backend, layer, x,
                             [](ScalarGraph&, const TwinWeights& w, const std::vector<Real>& in) {
                               std::vector<Real> y;
                               for (std::size_t row = 0; row < 4; ++row) {
                                 const std::span<const Real> values = std::span(in).subspan(row * 5, 5);
                                 Real squares = values[0] * values[0];
                                 for (std::size_t i = 1; i < 5; ++i)
                                   squares = squares + values[i] * values[i];
                                 const Real root = sqrt(squares / 5.0 + static_cast<double>(1e-3f));
                                 for (std::size_t i = 0; i < 5; ++i)
                                   y.push_back(values[i] / root * w.at("rms.weight")[i]);
                               }
                               return y;
                             });
}

TEST(GroupNorm, MatchesItsTwinInBothLayouts) {
  const auto backend = hopper_backend();
  for (const Layout layout : {Layout::nchw, Layout::nhwc}) {
    const bool nchw = layout == Layout::nchw;
    nn::GroupNorm layer(*backend, "gn", {.groups = 2, .channels = 4, .epsilon = 1e-3f, .layout = layout});
    EXPECT_EQ(described_parameters(layer), (Strings{"gn.weight (4)", "gn.bias (4)"}));
    EXPECT_EQ(values_of(*backend, layer.parameters()[0]->value), std::vector<float>(4, 1.0f));
    EXPECT_EQ(values_of(*backend, layer.parameters()[1]->value), std::vector<float>(4, 0.0f));
    randomise(*backend, layer, 1.0f);
    const Tensor x =
        tensor_of(*backend, nchw ? Shape{2, 4, 1, 3} : Shape{2, 1, 3, 4}, uniform_values(24, 13, 1.0f));
    expect_module_matches_twin(
        *backend, layer, x, [&](ScalarGraph&, const TwinWeights& w, const std::vector<Real>& in) {
          std::vector<Real> y(in.size());
          for (std::size_t n = 0; n < 2; ++n)
            for (std::size_t group = 0; group < 2; ++group) {
              std::vector<std::size_t> own, channels;
              for (std::size_t c = 2 * group; c < 2 * group + 2; ++c)
                for (std::size_t place = 0; place < 3; ++place) {
                  own.push_back(nchw ? (n * 4 + c) * 3 + place : (n * 3 + place) * 4 + c);
                  channels.push_back(c);
                }
              Real sum = in[own[0]];
              for (std::size_t i = 1; i < 6; ++i) sum = sum + in[own[i]];
              const Real mean = sum / 6.0;
              Real squares = (in[own[0]] - mean) * (in[own[0]] - mean);
              for (std::size_t i = 1; i < 6; ++i)
                squares = squares + (in[own[i]] - mean) * (in[own[i]] - mean);
              const Real deviation = sqrt(squares / 6.0 + static_cast<double>(1e-3f));
              for (std::size_t i = 0; i < 6; ++i)
                y[own[i]] = (in[own[i]] - mean) / deviation * w.at("gn.weight")[channels[i]] +
                            w.at("gn.bias")[channels[i]];
            }
          return y;
        });
  }
}

/// Which elements of x belong to each channel: (N, C), NCHW or NHWC with N = 3, C = 2, spatial extents 1 x 2.
std::vector<std::vector<std::size_t>> channel_members(int rank, Layout layout) {
  std::vector<std::vector<std::size_t>> members(2);
  const std::size_t plane = rank == 2 ? 1 : 2;
  for (std::size_t n = 0; n < 3; ++n) {
    for (std::size_t c = 0; c < 2; ++c) {
      for (std::size_t p = 0; p < plane; ++p)
        members[c].push_back(layout == Layout::nchw ? (n * 2 + c) * plane + p : (n * plane + p) * 2 + c);
    }
  }
  return members;
}

struct NormCase {
  int rank;
  Layout layout;
  Shape shape() const {
    if (rank == 2) return {3, 2};
    return layout == Layout::nchw ? Shape{3, 2, 1, 2} : Shape{3, 1, 2, 2};
  }
};
const std::vector<NormCase> norm_cases = {{2, Layout::nchw}, {4, Layout::nchw}, {4, Layout::nhwc}};

TEST(BatchNorm, NormalisesByTheBatchWhileTraining) {
  const auto backend = hopper_backend();
  for (const NormCase& c : norm_cases) {
    nn::BatchNorm layer(*backend, "bn", {.features = 2, .epsilon = 1e-3f, .layout = c.layout});
    EXPECT_EQ(described_parameters(layer), (Strings{"bn.weight (2)", "bn.bias (2)"}));
    randomise(*backend, layer, 1.0f);
    const auto count = static_cast<std::size_t>(c.shape().element_count());
    const Tensor x = tensor_of(*backend, c.shape(), uniform_values(count, 13, 1.0f));
    expect_module_matches_twin(*backend, layer, x,
                               [&](ScalarGraph&, const TwinWeights& w, const std::vector<Real>& in) {
                                 std::vector<Real> y(in.size());
                                 const auto members = channel_members(c.rank, c.layout);
                                 for (std::size_t channel = 0; channel < 2; ++channel) {
                                   const auto& own = members[channel];
                                   const auto n = static_cast<double>(own.size());
                                   Real sum = in[own[0]];
                                   for (std::size_t i = 1; i < own.size(); ++i) sum = sum + in[own[i]];
                                   const Real mean = sum / n;
                                   Real squares = (in[own[0]] - mean) * (in[own[0]] - mean);
                                   for (std::size_t i = 1; i < own.size(); ++i)
                                     squares = squares + (in[own[i]] - mean) * (in[own[i]] - mean);
                                   const Real deviation = sqrt(squares / n + static_cast<double>(1e-3f));
                                   for (const std::size_t i : own)
                                     y[i] = (in[i] - mean) / deviation * w.at("bn.weight")[channel] +
                                            w.at("bn.bias")[channel];
                                 }
                                 return y;
                               },
                               {.training = true});
  }
}

TEST(BatchNorm, NormalisesByItsRunningStatisticsOtherwise) {
  const auto backend = hopper_backend();
  for (const NormCase& c : norm_cases) {
    nn::BatchNorm layer(*backend, "bn", {.features = 2, .epsilon = 1e-3f, .layout = c.layout});
    randomise(*backend, layer, 1.0f);
    layer.buffers()[0]->value = tensor_of(*backend, {2}, {0.25f, -0.5f});
    layer.buffers()[1]->value = tensor_of(*backend, {2}, {0.75f, 1.5f});
    const auto count = static_cast<std::size_t>(c.shape().element_count());
    const Tensor x = tensor_of(*backend, c.shape(), uniform_values(count, 17, 1.0f));
    expect_module_matches_twin(
        *backend, layer, x, [&](ScalarGraph& graph, const TwinWeights& w, const std::vector<Real>& in) {
          const double means[] = {0.25, -0.5}, variances[] = {0.75, 1.5};
          std::vector<Real> y(in.size());
          const auto members = channel_members(c.rank, c.layout);
          for (std::size_t channel = 0; channel < 2; ++channel) {
            const Real deviation = sqrt(graph.leaf(variances[channel]) + static_cast<double>(1e-3f));
            for (const std::size_t i : members[channel]) {
              y[i] = (in[i] - graph.leaf(means[channel])) / deviation * w.at("bn.weight")[channel] +
                     w.at("bn.bias")[channel];
            }
          }
          return y;
        });
    EXPECT_EQ(values_of(*backend, layer.buffers()[0]->value), (std::vector<float>{0.25f, -0.5f}));
    EXPECT_EQ(values_of(*backend, layer.buffers()[1]->value), (std::vector<float>{0.75f, 1.5f}));
  }
}

TEST(BatchNorm, RunningStatisticsFollowTheBatches) {
  const auto backend = hopper_backend();
  nn::BatchNorm layer(*backend, "bn", {.features = 2, .momentum = 0.25f});
  ASSERT_EQ(layer.buffers().size(), 2u);
  EXPECT_EQ(layer.buffers()[0]->name, "bn.running_mean");
  EXPECT_EQ(layer.buffers()[1]->name, "bn.running_var");
  double mean[2] = {0, 0}, variance[2] = {1, 1};
  Tape tape(*backend);
  tape.set_context({.training = true});
  for (std::uint64_t batch = 0; batch < 5; ++batch) {
    const std::vector<float> x = uniform_values(12, 100 + batch, 2.0f);
    layer.forward(tape, tape.constant(tensor_of(*backend, {3, 2, 1, 2}, x)));
    tape.reset();
    const auto members = channel_members(4, Layout::nchw);
    for (std::size_t c = 0; c < 2; ++c) {
      double sum = 0, squares = 0;
      for (const std::size_t i : members[c]) sum += static_cast<double>(x[i]);
      for (const std::size_t i : members[c]) squares += std::pow(static_cast<double>(x[i]) - sum / 6, 2);
      mean[c] = 0.75 * mean[c] + 0.25 * sum / 6;
      variance[c] = 0.75 * variance[c] + 0.25 * squares / 5;  // unbiased
    }
  }
  const auto running_mean = values_of(*backend, layer.buffers()[0]->value);
  const auto running_variance = values_of(*backend, layer.buffers()[1]->value);
  for (std::size_t c = 0; c < 2; ++c) {
    // |x| <= 2, six terms. Mean: 5 additions of up to 12 and a division give 6 u 12 / 6 = 12 u, three
    // roundings of up to 2 more; old errors shrink by 0.75, so the total stays below 18 u (0.25 / (1 - 0.75))
    // = 18 u. Variance: the mean enters in second order; 6 squares of up to 16 with 3 roundings, 5 additions,
    // a division and the correction: below 16 u of at most 16 * 6 / 5.
    EXPECT_NEAR(static_cast<double>(running_mean[c]), mean[c], 18 * 0x1p-24);
    EXPECT_NEAR(static_cast<double>(running_variance[c]), variance[c], 16 * 20 * 0x1p-24);
  }
}

TEST(BatchNorm, OneValuePerChannelHasNoVariance) {
  const auto backend = hopper_backend();
  nn::BatchNorm layer(*backend, "bn", {.features = 2});
  Tape tape(*backend);
  tape.set_context({.training = true});
  const Variable x = tape.constant(tensor_of(*backend, {1, 2}, {1, 2}));
  EXPECT_THROW(layer.forward(tape, x), std::invalid_argument);
  tape.set_context({});
  EXPECT_NO_THROW(layer.forward(tape, x));
}

}  // namespace
}  // namespace fp16lab::engine::test
