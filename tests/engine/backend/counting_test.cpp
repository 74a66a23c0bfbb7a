// Counts: what probes hold, and when. Exponents are counted in four ways: one by one, by the CPU's vector
// kernels, by the kernels of each back end, and by Thrust, on OpenMP threads and on a GPU, whose verb it is.
// Counts and extremes are the same, of values in host memory too.
#include <random>

#include "engine/backend/host_histogram.hpp"
#include "numerics/histogram/exponent_count_thrust.hpp"
#include "tests/engine/backend/conformance.hpp"

namespace fp16lab::engine::test {
namespace {

/// The ends of every bin and what is next to them, both signs; infinities and NaNs of many payloads; random
/// patterns.
std::vector<float> special_values() {
  std::vector<float> values;
  for (std::uint32_t field = 0; field < 256; ++field)
    for (const std::uint32_t fraction : {0u, 1u, 2u, 0x3fffffu, 0x400000u, 0x7ffffeu, 0x7fffffu})
      for (const std::uint32_t sign : {0u, 0x80000000u})
        values.push_back(float_from_bits(sign | (field << 23) | fraction));
  for (int k = 0; k < 23; ++k)  // and of the subnormals' bins
    for (const std::uint32_t power : {(1u << k) - 1, 1u << k, (1u << k) + 1})
      values.push_back(float_from_bits(power));
  std::mt19937 engine(5);
  for (int i = 0; i < 30001; ++i) values.push_back(float_from_bits(static_cast<std::uint32_t>(engine())));
  return values;
}

}  // namespace

class BackendCounting : public BackendConformance {
 protected:
  template <class T>
  void expect_equal_everywhere(const std::vector<T>& values) {
    const ExponentHistogram expected = naive_histogram(values);
    ASSERT_EQ(expected.total(), values.size());
    const Tensor x = tensor(values);
    ExponentHistogram verb;
    backend().histogram(x, verb);
    EXPECT_EQ(verb, expected);
    CastProbe probe;
    backend().histogram(x, probe);
    EXPECT_EQ(settled(probe).before, expected);
    ExponentHistogram vectors;
    count_exponents(std::span<const T>(values), vectors, 2);
    EXPECT_EQ(vectors, expected);
    if (have_thrust_counting()) {
      ExponentHistogram by_thrust;
      count_exponents_by_thrust(std::span<const T>(values), by_thrust);
      EXPECT_EQ(by_thrust, expected);
    }
    for (const std::size_t at_once : {std::size_t{1} << 24, std::size_t{4097}}) {
      ExponentHistogram of_host;
      count_exponents_on(backend(), std::span<const T>(values), of_host, at_once);
      EXPECT_EQ(of_host, expected) << "in parts of " << at_once;
    }
  }
};

TEST_P(BackendCounting, EveryWayOfCountingGivesTheSame) {
  expect_equal_everywhere(all_words<Float16>());
  expect_equal_everywhere(all_words<BFloat16>());
  expect_equal_everywhere(special_values());
  expect_equal_everywhere(std::vector<float>{-0.0f});
  expect_equal_everywhere(std::vector<float>(70000, 0x1p-25f));  // one key only
  std::vector<float> inner(70000,
                           1.5f);  // extremes that are neither first nor last, nor in one thread's hands
  inner[12345] = -0x1.234p-130f;
  inner[54321] = -0x1.fedcp100f;
  expect_equal_everywhere(inner);
  inner[4] = INFINITY;
  inner[7] = NAN;
  expect_equal_everywhere(inner);
}

INSTANTIATE_TEST_SUITE_P(All, BackendCounting, testing::ValuesIn(backend_factories()),
                         [](const auto& factory) { return factory.param.name; });

namespace {

TEST(NaiveHistogram, KnowsTheSubnormals) {
  // BF16 subnormals and FP32 subnormals start at the same 2^-126.
  EXPECT_EQ(naive_histogram(all_words<Float16>()).at(-25), 2u) << "2^-24 alone, of either sign";
  const ExponentHistogram brains = naive_histogram(all_words<BFloat16>());
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

}  // namespace
}  // namespace fp16lab::engine::test
