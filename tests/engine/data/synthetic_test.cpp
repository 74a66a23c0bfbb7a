// Synthetic regression data: what a batch is, that it comes back, and how its numbers are distributed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/backend/emulated/emulated_backend.hpp"
#include "engine/data/dataset.hpp"
#include "engine/data/synthetic.hpp"
#include "numerics/random/philox.hpp"
#include "numerics/tensor_core/tensor_core_model.hpp"
#include "tests/support/message_of.hpp"

namespace fp16lab::engine::data {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing_support::message_of;

std::unique_ptr<Backend> backend_with(int threads) {
  return make_emulated_backend(tensor_core_model("hopper"), threads);
}

std::vector<float> values_of(Backend& backend, const Tensor& tensor) {
  std::vector<float> values(static_cast<std::size_t>(tensor.element_count()));
  backend.download(tensor, std::as_writable_bytes(std::span(values)));
  return values;
}

struct Values {
  std::vector<float> inputs, targets;
  bool operator==(const Values&) const = default;
};
Values values_of(Backend& backend, const Batch& batch) {
  return {values_of(backend, batch.inputs), values_of(backend, batch.targets)};
}

const SyntheticOptions small{.batch_size = 6, .inputs = {5}, .outputs = 3, .batches = 4, .seed = 9};

TEST(Synthetic, ABatchHasTheShapesOfTheNetwork) {
  const auto backend = backend_with(1);
  SyntheticBatches source(small);
  const Batch batch = source.batch(*backend, 0);
  EXPECT_EQ(batch.inputs.shape(), (Shape{6, 5}));
  EXPECT_EQ(batch.targets.shape(), (Shape{6, 3}));
  EXPECT_EQ(batch.inputs.dtype(), DType::f32);
  EXPECT_EQ(batch.targets.dtype(), DType::f32);
  EXPECT_EQ(source.batches_per_epoch(), 4u);
  EXPECT_EQ(source.rows_per_batch(), 6);
  EXPECT_EQ(source.split(), "train") << "there is no test set";
}

TEST(Synthetic, ABatchIsAPureFunctionOfSeedAndPlaceInTheEpoch) {
  for (const Distribution distribution : every<Distribution>) {
    SyntheticOptions options = small;
    options.distribution = distribution;
    const auto backend = backend_with(1);
    SyntheticBatches source(options);
    std::vector<Values> epoch;
    for (std::uint64_t i = 0; i < 4; ++i) epoch.push_back(values_of(*backend, source.batch(*backend, i)));
    // Out of order, epochs later, and from another object: the same.
    SyntheticBatches another(options);
    for (const std::uint64_t i : {3u, 0u, 2u, 1u})
      EXPECT_EQ(values_of(*backend, another.batch(*backend, i + 4000)), epoch[i]) << i;
    // All of them differ, targets are not inputs, and another seed gives others.
    for (std::size_t a = 0; a < 4; ++a) {
      EXPECT_NE(epoch[a].inputs[0], epoch[a].targets[0]);
      for (std::size_t b = 0; b < a; ++b) {
        EXPECT_NE(epoch[a].inputs, epoch[b].inputs);
        EXPECT_NE(epoch[a].targets, epoch[b].targets);
      }
    }
    options.seed = 10;
    SyntheticBatches other_seed(options);
    EXPECT_NE(values_of(*backend, other_seed.batch(*backend, 0)).inputs, epoch[0].inputs);
  }
}

TEST(Synthetic, UniformNumbersAreThePhiloxWordsOfTheirStream) {
  const auto backend = backend_with(1);
  SyntheticBatches source(small);
  const Values batch = values_of(*backend, source.batch(*backend, 4 + 2));
  const auto expect_stream = [](const std::vector<float>& values, std::string_view role) {
    const PhiloxStream stream{.seed = 9, .stream = stream_id(role), .iteration = 2};
    for (std::size_t i = 0; i < values.size(); ++i)
      EXPECT_EQ(std::ldexp(values[i], 24), static_cast<float>(stream.word(i) >> 8)) << role << " " << i;
  };
  expect_stream(batch.inputs, "data.inputs");
  expect_stream(batch.targets, "data.targets");
}

TEST(Synthetic, TheNumbersDoNotDependOnThreads) {
  for (const Distribution distribution : every<Distribution>) {
    const SyntheticOptions options{
        .distribution = distribution, .batch_size = 300, .inputs = {401}, .outputs = 77, .seed = 3};
    const auto one = backend_with(1);
    const auto two = backend_with(2);
    SyntheticBatches source(options);
    EXPECT_EQ(values_of(*one, source.batch(*one, 5)), values_of(*two, source.batch(*two, 5)));
  }
}

/// Largest distance between the empirical distribution of `sample` and `cumulative` (Kolmogorov and Smirnov).
template <class Cumulative>
double distance(std::vector<float> sample, const Cumulative& cumulative) {
  std::sort(sample.begin(), sample.end());
  const auto n = static_cast<double>(sample.size());
  double largest = 0;
  for (std::size_t i = 0; i < sample.size(); ++i) {
    const double p = cumulative(static_cast<double>(sample[i]));
    largest = std::max(
        {largest, std::abs(p - static_cast<double>(i) / n), std::abs(p - static_cast<double>(i + 1) / n)});
  }
  return largest;
}

/// A right distribution stays below this but once in 10^6 seeds: 2 exp(-2 c^2) = 10^-6 at c = 2.7.
double bound(std::size_t n) { return 2.7 / std::sqrt(static_cast<double>(n)); }

TEST(Synthetic, NumbersAreDistributedAsTheNameSays) {
  const auto backend = backend_with(2);
  for (const Distribution distribution : every<Distribution>) {
    SyntheticBatches source({.distribution = distribution,
                             .batch_size = 256,
                             .inputs = {512},
                             .outputs = 512,
                             .batches = 2,
                             .seed = 1});
    const Values batch = values_of(*backend, source.batch(*backend, 1));
    for (const std::vector<float>& values : {batch.inputs, batch.targets}) {
      const auto [low, high] = std::minmax_element(values.begin(), values.end());
      if (distribution == Distribution::uniform) {
        EXPECT_GE(*low, 0.0f);
        EXPECT_LT(*high, 1.0f);
        EXPECT_LT(distance(values, [](double x) { return x; }), bound(values.size()));
      } else {
        EXPECT_LT(distance(values, [](double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }),
                  bound(values.size()));
      }
    }
  }
}

TEST(Synthetic, ImagesOfAnyShapeWithClasses) {
  const auto backend = backend_with(1);
  SyntheticOptions options = small;
  options.distribution = Distribution::normal;
  options.inputs = {3, 4, 5};
  options.classes = 7;
  options.batch_size = 7000;
  SyntheticBatches source(options);
  const Batch batch = source.batch(*backend, 4 + 2);
  EXPECT_EQ(batch.inputs.shape(), (Shape{7000, 3, 4, 5}));
  EXPECT_EQ(batch.targets.shape(), (Shape{7000}));
  EXPECT_EQ(batch.targets.dtype(), DType::i32);
  // The numbers do not know of their shape.
  options.inputs = {60};
  SyntheticBatches flat(options);
  EXPECT_EQ(values_of(*backend, flat.batch(*backend, 2).inputs), values_of(*backend, batch.inputs));
  const PhiloxStream stream{.seed = 9, .stream = stream_id("data.targets"), .iteration = 2};
  std::vector<double> counts(7);
  const auto labels = batch.targets.host<std::int32_t>();
  for (std::size_t i = 0; i < labels.size(); ++i) {
    EXPECT_EQ(labels[i], static_cast<std::int32_t>(std::floor(stream.word(i) * 7.0 / 4294967296.0))) << i;
    ++counts[static_cast<std::size_t>(labels[i])];
  }
  double chi_square = 0;  // 6 degrees of freedom: P(> 34) = 1e-5
  for (const double count : counts) chi_square += (count - 1000) * (count - 1000) / 1000;
  EXPECT_LT(chi_square, 34);
}

TEST(Synthetic, BadOptionsNameTheOption) {
  const auto error_with = [](auto change) {
    SyntheticOptions options = small;
    change(options);
    return message_of([&] { SyntheticBatches source(options); });
  };
  EXPECT_THAT(error_with([](auto& o) { o.batch_size = 0; }),
              AllOf(HasSubstr("batch size is 0"), HasSubstr("1 to")));
  EXPECT_THAT(error_with([](auto& o) { o.inputs = {3, -1}; }), HasSubstr("inputs is -1"));
  EXPECT_THAT(error_with([](auto& o) { o.inputs.clear(); }), HasSubstr("inputs is 0"));
  EXPECT_THAT(error_with([](auto& o) { o.classes = -1; }), HasSubstr("classes is -1"));
  EXPECT_THAT(error_with([](auto& o) { o.outputs = 0; }), HasSubstr("outputs is 0"));
  EXPECT_THAT(error_with([](auto& o) { o.batches = 0; }), HasSubstr("batches an epoch is 0"));
  EXPECT_THAT(error_with([](auto& o) { o.batches = std::int64_t{1} << 32; }), HasSubstr("1 to 4294967295"));
}

TEST(Synthetic, EveryDistributionIsADataSetOfThatName) {
  for (const Distribution distribution : every<Distribution>) {
    const auto known = known_datasets();
    const auto found = std::find_if(known.begin(), known.end(),
                                    [&](const DatasetInfo& i) { return i.name == name_of(distribution); });
    ASSERT_NE(found, known.end());
    EXPECT_EQ(found->kind, DataKind::synthetic);
  }
}

}  // namespace
}  // namespace fp16lab::engine::data
