// Conformance: reductions, histograms and digests.
#include <cmath>
#include <limits>

#include "tests/engine/backend/conformance.hpp"

namespace fp16lab::engine::test {
namespace {

// ---- reduce ----

TEST_P(BackendConformance, ReduceThreeLevelsOfTree) {
  const std::vector<float> values = random_floats(1024 * 1024 + 33, Kind::cancelling, 23);
  Tensor out = output(Shape{}, DType::f32);
  backend().reduce(ReduceOp::sum, tensor(values), 0, out);
  expect_same_bits(values_of<float>(out), {tree_of(ReduceOp::sum, values)}, "sum of 2^20 + 33");
  std::vector<float> two_columns, shifted = values;
  std::rotate(shifted.begin(), shifted.begin() + 77777, shifted.end());
  for (std::size_t row = 0; row < values.size(); ++row)
    two_columns.insert(two_columns.end(), {values[row], shifted[row]});
  Tensor sums = output(Shape{2}, DType::f32);
  backend().reduce(ReduceOp::sum, tensor(Shape{1024 * 1024 + 33, 2}, two_columns), 0, sums);
  expect_same_bits(values_of<float>(sums), {tree_of(ReduceOp::sum, values), tree_of(ReduceOp::sum, shifted)},
                   "two columns of 2^20 + 33");
}

TEST_P(BackendConformance, ReduceHasNoElementBehindTheLastWholeChunk) {
  // One that is not there would be a +0: it would win over negative numbers, and turn a -0.
  for (const std::int64_t extent : {1023, 1024, 1025, 2047, 2048, 2049, 3 * 1024}) {
    Tensor out = output(Shape{}, DType::f32);
    backend().reduce(ReduceOp::max, tensor(std::vector<float>(extent, -1.0f)), 0, out);
    expect_same_bits(values_of<float>(out), {-1.0f}, "max of " + std::to_string(extent));
    backend().reduce(ReduceOp::sum, tensor(std::vector<float>(extent, -0.0f)), 0, out);
    expect_same_bits(values_of<float>(out), {-0.0f}, "sum of " + std::to_string(extent));
  }
}

TEST_P(BackendConformance, ReduceOrderIsTreeAndNothingElse) {
  // 1, then 2^-24 in lane 1 and in lane 0's next round: a serial sum loses both, TREE adds the second to lane
  // 0 first (lost), the first in the last fold (lost); but two 2^-24 in lanes 1 and 17 meet before they reach
  // the 1.
  std::vector<float> values(18, 0.0f);
  values[0] = 1.0f;
  values[1] = values[17] = 0x1p-24f;
  Tensor out = output(Shape{1}, DType::f32);
  backend().reduce(ReduceOp::sum, tensor(values), 0, out);
  expect_same_bits(values_of<float>(out), {1.0f + 0x1p-23f}, "lanes 1 and 17 fold first");
  backend().reduce(ReduceOp::sum, tensor(std::vector<float>{-0.0f}), 0, out);
  expect_same_bits(values_of<float>(out), {-0.0f}, "a missing element is not an added zero");
  Tensor empty_sum = output(Shape{2}, DType::f32);
  backend().reduce(ReduceOp::sum, output(Shape{2, 0}, DType::f32), 1, empty_sum);
  expect_same_bits(values_of<float>(empty_sum), {0.0f, 0.0f}, "empty sum");
  EXPECT_THROW(backend().reduce(ReduceOp::max, output(Shape{2, 0}, DType::f32), 1, empty_sum),
               std::invalid_argument);
  std::vector<float> zeros(40, -0.0f);
  zeros[5] = 0.0f;
  backend().reduce(ReduceOp::max, tensor(zeros), 0, out);
  expect_same_bits(values_of<float>(out), {-0.0f}, "max keeps the first of equal zeros");
}

// ---- histogram and digest ----

TEST_P(BackendConformance, HistogramAddsEveryElementOnce) {
  for (const std::int64_t size : {std::int64_t{1}, std::int64_t{1025}, std::int64_t{1100000}}) {
    ExponentHistogram histogram, expected;
    for_each_float_type([&](auto tag) {
      const auto values = random_of<decltype(tag)>(size, Kind::special, 43);
      backend().histogram(tensor(values), histogram);
      expected += naive_histogram(values);
      EXPECT_EQ(histogram, expected);
    });
    EXPECT_EQ(histogram.total(), 3 * static_cast<std::uint64_t>(size));
  }
}

TEST_P(BackendConformance, HistogramsDoNotSeeTheOnesBeforeThem) {
  // What a block finds in its memory is the sum of another tensor, and would be the right one but for the
  // infinities.
  constexpr std::int64_t size = 1000;
  for (const float x : {1.0f, INFINITY, 1.0f, NAN}) {
    const std::vector<float> values(size, x);
    ExponentHistogram histogram;
    backend().histogram(tensor(values), histogram);
    EXPECT_EQ(histogram, naive_histogram(values)) << x;
  }
}

TEST_P(BackendConformance, HistogramOfEvery16BitWordKnowsItsSubnormals) {
  // BF16 subnormals and FP32 subnormals start at the same 2^-126.
  ExponentHistogram halves, brains;
  backend().histogram(tensor(all_words<Float16>()), halves);
  EXPECT_EQ(halves, naive_histogram(all_words<Float16>()));
  EXPECT_EQ(halves.at(-25), 2u) << "2^-24 alone, of either sign";
  backend().histogram(tensor(all_words<BFloat16>()), brains);
  EXPECT_EQ(brains, naive_histogram(all_words<BFloat16>()));
  EXPECT_EQ(brains.at(-127), 2u * 64) << "63 subnormals and 2^-126";
  std::uint64_t subnormals = 0;
  for (int e = -134; e <= -127; ++e) subnormals += brains.at(e);
  EXPECT_EQ(subnormals, 2u * 128) << "127 subnormals and 2^-126";
  EXPECT_EQ(brains.at(-134), 2u) << "2^-133 alone, of either sign";
  EXPECT_EQ(brains.at(0), 2u * 128);
  EXPECT_EQ(brains.at(127), 2u * 127) << "above 2^127";
  EXPECT_EQ(brains.zero, 2u);
  EXPECT_EQ(brains.infinite, 2u);
  EXPECT_EQ(brains.nan, 2u * 127);
}

TEST_P(BackendConformance, ProbesOfAnEmptySumCountItsZeros) {
  Tensor out = output(Shape{2}, DType::f16);
  CastProbe probe;
  backend().reduce(ReduceOp::sum, output(Shape{2, 0}, DType::f16), 1, out, &probe);
  expect_same_bits(values_of<Float16>(out), {half_of(0.0f), half_of(0.0f)}, "empty sum");
  EXPECT_EQ(settled(probe).before, naive_histogram(std::vector<float>(2, 0.0f)));
  EXPECT_EQ(probe.after, probe.before);
}

TEST_P(BackendConformance, HistogramIntoAProbeCountsBothSides) {
  for_each_float_type([&](auto tag) {
    using T = decltype(tag);
    const T infinite = stored_as(std::numeric_limits<float>::infinity(), T{});
    const auto check = [&](const std::vector<T>& values) {
      CastProbe probe;
      backend().histogram(tensor(values), probe);
      EXPECT_EQ(probe.counted, values.size());
      EXPECT_EQ(settled(probe).before, naive_histogram(values));
      EXPECT_EQ(probe.after, naive_histogram(values));
    };
    check({});
    check(random_of<T>(10007, Kind::special, 46));
    check(random_of<T>(10007, Kind::ordinary, 47));  // nothing that is not finite
    check(std::vector<T>(5000, infinite));           // nothing that is
  });
}

/// Every third weight stays as it is, every seventh gradient is zero; counted here one by one.
TEST_P(BackendConformance, CountUpdateSaysWhatMoved) {
  for_each_float_type([&](auto weight_tag) {
    for_each_float_type([&](auto gradient_tag) {
      using W = decltype(weight_tag);
      using G = decltype(gradient_tag);
      const std::size_t size = 70001;
      const std::vector<W> weight = random_of<W>(size, Kind::special, 51);
      std::vector<G> gradient = random_of<G>(size, Kind::special, 52);
      std::vector<float> before = random_floats(size, Kind::special, 53), relative;
      std::uint64_t still = 0, nan = 0, quiet = 0;
      for (std::size_t i = 0; i < size; ++i) {
        if (i % 3 == 0) before[i] = wide(weight[i]);
        if (i % 7 == 0) gradient[i] = stored_as(-0.0f, G{});
        const float change = wide(weight[i]) - before[i];
        relative.push_back(change / before[i]);
        still += change == 0 ? 1 : 0;
        nan += std::isnan(change) ? 1 : 0;
        quiet += change == 0 && wide(gradient[i]) == 0 ? 1 : 0;
      }
      UpdateProbes probes;
      backend().count_update(tensor(before), tensor(weight), tensor(gradient), probes);
      EXPECT_EQ(settled(probes.relative).before, naive_histogram(relative));
      EXPECT_EQ(settled(probes.change).before.zero, still);
      EXPECT_EQ(probes.change.before.nan, nan);
      EXPECT_EQ(settled(probes.quiet).before.zero, quiet);
      EXPECT_GT(still, quiet);
      EXPECT_GT(quiet, 0u);
    });
  });
  UpdateProbes probes;
  const Tensor two = tensor(std::vector<float>(2)), three = tensor(std::vector<float>(3));
  EXPECT_THROW(backend().count_update(two, three, two, probes), std::invalid_argument);
  EXPECT_THROW(backend().count_update(two, two, three, probes), std::invalid_argument);
}

TEST_P(BackendConformance, ProbesSettleOnceWhoeverSharesTheirCounts) {
  const std::vector<float> first = random_floats(3001, Kind::special, 48);
  const std::vector<Float16> second = random_halves(2000, Kind::special, 49);
  Tensor out = output(Shape{3001}, DType::f16);
  CastProbe probe, other, unused;
  backend().cast(tensor(first), out, &probe);
  backend().histogram(tensor(second), probe);  // adds to what is there
  backend().histogram(tensor(second), other);
  CastProbe shared = probe;
  CastProbe* const probes[] = {&shared, &unused, &probe, &other, &probe};  // one of them twice
  backend().settle(probes);
  ExponentHistogram before = naive_histogram(first), after;
  for (const float value : first) after.count(bits_of(float_of(half_of(value))));
  before += naive_histogram(second);
  after += naive_histogram(second);
  for (const CastProbe* const one : {&probe, &shared}) {
    EXPECT_EQ(one->before, before);
    EXPECT_EQ(one->after, after);
    EXPECT_EQ(one->counted, first.size() + second.size());
  }
  EXPECT_EQ(other.before, naive_histogram(second));
  EXPECT_EQ(unused.before.total() + unused.after.total() + unused.counted, 0u);
  backend().settle(probes);  // nothing is pending
  EXPECT_EQ(probe.before, before);
  backend().histogram(tensor(second), probe);  // and on it goes
  backend().settle(probes);
  before += naive_histogram(second);
  EXPECT_EQ(probe.before, before);
  EXPECT_EQ(shared.after, after);
}

TEST_P(BackendConformance, ManyProbesSettleTogether) {
  std::vector<CastProbe> probes(1000);
  std::vector<CastProbe*> pointers;
  const std::vector<float> values = random_floats(1000, Kind::special, 50);
  const Tensor x = tensor(values);
  Tensor one = output(Shape{1}, DType::f32), same = output(Shape{1}, DType::f32);
  for (std::size_t i = 0; i < probes.size(); ++i) {
    backend().slice(x, 0, static_cast<std::int64_t>(i), one);
    backend().cast(one, same, &probes[i]);
    pointers.push_back(&probes[i]);
  }
  backend().settle(pointers);
  for (std::size_t i = 0; i < probes.size(); ++i)
    ASSERT_EQ(probes[i].before, naive_histogram(std::vector<float>{values[i]})) << i;
}

TEST_P(BackendConformance, CountsAreRecordedButNotHandedOver) {
  if (!backend().records()) {
    EXPECT_THROW(backend().record([] {}), std::logic_error);
    return;
  }
  std::vector<float> values = random_floats(2000, Kind::special, 51);
  Tensor x = tensor(values), low = output(Shape{2000}, DType::f16), sum = output(Shape{1}, DType::f16);
  CastProbe casts, sums;
  const std::unique_ptr<Recording> recording = backend().record([&] {
    ExponentHistogram histogram;
    CastProbe* const probes[] = {&casts};
    backend().cast(x, low, &casts);
    backend().reduce(ReduceOp::sum, low, 0, sum, &sums);
    EXPECT_THROW(backend().settle(probes), std::logic_error);
    EXPECT_THROW(backend().histogram(x, histogram), std::logic_error);
    EXPECT_THROW((void)backend().digest(x, 1), std::logic_error);
  });
  for (int replay = 0; replay < 3;
       ++replay) {  // each counts anew: the probes' memory is emptied by the recording
    std::rotate(values.begin(), values.begin() + 100, values.end());
    values[0] = static_cast<float>(replay);
    backend().upload(std::as_bytes(std::span(values)), x);
    recording->replay();
    CastProbe of_casts = casts, of_sums = sums;
    EXPECT_EQ(settled(of_casts).before, naive_histogram(values)) << "replay " << replay;
    const std::vector<Float16> rounded = mapped(values, [](float value) { return half_of(value); });
    EXPECT_EQ(of_casts.after, naive_histogram(rounded));
    const float total =
        tree_of(ReduceOp::sum, mapped(rounded, [](Float16 value) { return float_of(value); }));
    EXPECT_EQ(settled(of_sums).before, naive_histogram(std::vector<float>{total}));
    expect_same_bits(values_of<Float16>(sum), {half_of(total)}, "replayed sum");
  }
}

/// The digest from its definition, with its own copy of the mixer, summed from the last word to the first.
std::uint64_t naive_digest(const std::vector<std::uint8_t>& bytes, std::uint64_t key) {
  const auto mix = [](std::uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
  };
  std::uint64_t sum = 0;
  for (std::size_t position = (bytes.size() + 7) / 8; position-- > 0;) {
    std::uint64_t word = 0;
    for (std::size_t byte = 0; byte < 8 && position * 8 + byte < bytes.size(); ++byte)
      word |= std::uint64_t{bytes[position * 8 + byte]} << (8 * byte);
    sum += mix(word ^ mix(key + (position + 1) * 0x9e3779b97f4a7c15ull));
  }
  return sum;
}

std::vector<std::uint8_t> random_bytes(std::int64_t count) {
  std::vector<std::uint8_t> bytes;
  for (const Float16 half : random_halves(count, Kind::wide, 45))
    bytes.push_back(static_cast<std::uint8_t>(half.bits()));
  return bytes;
}

TEST_P(BackendConformance, DigestIsItsDefinition) {
  for (const std::int64_t size : {0, 1, 7, 8, 9, 1025, 600001}) {
    const std::vector<std::uint8_t> bytes = random_bytes(size);
    EXPECT_EQ(backend().digest(tensor(bytes), 12345), naive_digest(bytes, 12345)) << size;
  }
}

TEST_P(BackendConformance, DigestSeesEveryBitAndEveryPlace) {
  std::vector<std::uint8_t> bytes = random_bytes(100);
  const std::uint64_t original = backend().digest(tensor(bytes), 1);
  EXPECT_EQ(backend().digest(tensor(bytes), 1), original);
  EXPECT_NE(backend().digest(tensor(bytes), 2), original) << "the key matters";
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    bytes[bit / 8] = static_cast<std::uint8_t>(bytes[bit / 8] ^ (1u << (bit % 8)));
    EXPECT_NE(backend().digest(tensor(bytes), 1), original) << "bit " << bit;
    bytes[bit / 8] = static_cast<std::uint8_t>(bytes[bit / 8] ^ (1u << (bit % 8)));
  }
  std::vector<std::uint8_t> swapped = bytes;
  std::swap_ranges(swapped.begin(), swapped.begin() + 8, swapped.begin() + 40);
  EXPECT_NE(backend().digest(tensor(swapped), 1), original) << "positions matter";
}

TEST_P(BackendConformance, DigestOfAListIsTheSumOfItsDigests) {
  EXPECT_EQ(backend().digest(std::span<const DigestItem>{}), 0u);
  std::vector<DigestItem> items;
  std::uint64_t expected = 0;
  const auto add = [&](const std::vector<std::uint8_t>& bytes, std::uint64_t key) {
    items.push_back({tensor(bytes), key});
    expected += naive_digest(bytes, key);
  };
  for (std::int64_t i = 0; i < 300; ++i)  // of all sizes around words, pairs of words and (at 100) two blocks
    add(random_bytes(i == 100 ? 32771 : i % 41), 0x123456789abcdef0u * static_cast<std::uint64_t>(i));
  EXPECT_EQ(backend().digest(items), expected);
  add(random_bytes(40), 7);
  add(random_bytes(40), 7);  // the same twice counts twice
  EXPECT_EQ(backend().digest(items), expected);
}

}  // namespace
}  // namespace fp16lab::engine::test
