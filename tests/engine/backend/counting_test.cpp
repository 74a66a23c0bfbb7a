// Exponents are counted in four ways: one by one, by the CPU's vector kernels, by the kernels of each back
// end, and by Thrust, on OpenMP threads and on a GPU, whose verb it is. Counts and extremes are the same, of
// values in host memory too.
#include <random>

#include "engine/backend/host_histogram.hpp"
#include "numerics/histogram/exponent_count_thrust.hpp"
#include "tests/engine/backend/conformance.hpp"

namespace fp16lab::engine::test {
namespace {

template <class T>
std::vector<T> all_codes() {
  std::vector<T> codes;
  for (std::uint32_t code = 0; code < 0x10000; ++code)
    codes.push_back(T::from_bits(static_cast<std::uint16_t>(code)));
  return codes;
}

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
  expect_equal_everywhere(all_codes<Float16>());
  expect_equal_everywhere(all_codes<BFloat16>());
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

}  // namespace fp16lab::engine::test
