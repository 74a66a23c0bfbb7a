// Whatever floating-point environment a caller or a worker has: the same bits, and the environment stays
// theirs.
#include "numerics/platform/floating_point_scope.hpp"

#include <gtest/gtest.h>
#include <omp.h>

#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "numerics/arithmetic/array_arithmetic.hpp"
#include "numerics/convert/convert.hpp"
#include "numerics/gemm/gemm.hpp"
#include "numerics/histogram/exponent_histogram.hpp"
#include "numerics/histogram/value_histogram.hpp"
#include "numerics/tensor_core/tensor_core_model.hpp"
#include "tests/support/floating_point_mode.hpp"

#if defined(__x86_64__)
namespace fp16lab {
namespace {

using testing_support::floating_point_modes;
using testing_support::FloatingPointMode;

using Bytes = std::vector<std::byte>;

template <class T>
Bytes bytes_of(const std::vector<T>& values) {
  Bytes bytes(values.size() * sizeof(T));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

/// Every pattern of FP32, subnormals and what becomes subnormal among them. Enough for two threads.
std::vector<float> many_floats(std::uint32_t seed, std::size_t n = 600000) {
  std::mt19937 engine(seed);
  std::vector<float> values(n);
  for (float& value : values) {
    const auto bits = static_cast<std::uint32_t>(engine());
    value = float_from_bits(bits % 3 == 0 ? bits & 0x80ffffffu : bits);
  }
  return values;
}

/// Factors of about 2^-70, whose products are subnormal.
std::vector<float> small_factors(std::uint32_t seed, std::size_t n) {
  std::mt19937 engine(seed);
  std::uniform_real_distribution<float> uniform(-0x1p-69f, 0x1p-69f);
  std::vector<float> values(n);
  for (float& value : values) value = uniform(engine);
  return values;
}

template <class F>
std::vector<SmallFloat<F>> narrowed(const std::vector<float>& from,
                                    Rounding rounding = Rounding::nearest_even, int threads = 1) {
  std::vector<SmallFloat<F>> to(from.size());
  narrow<F>(from, to, rounding, threads);
  return to;
}

/// Functions by name that compute an array on that many threads.
std::vector<std::pair<std::string, std::function<Bytes(int)>>> computations() {
  std::vector<std::pair<std::string, std::function<Bytes(int)>>> all;
  const auto values = many_floats(1);
  for (const Rounding rounding : {Rounding::nearest_even, Rounding::upward, Rounding::downward})
    all.emplace_back("narrow to f16",
                     [=](int threads) { return bytes_of(narrowed<Binary16>(values, rounding, threads)); });
  const auto arrays = [&all]<class F>(std::type_identity<F>, const std::string& name) {
    const auto a = narrowed<F>(many_floats(2)), b = narrowed<F>(many_floats(3)),
               c = narrowed<F>(many_floats(4));
    all.emplace_back("widen " + name, [=](int threads) {
      std::vector<float> wide(a.size());
      widen<F>(a, wide, threads);
      return bytes_of(wide);
    });
    all.emplace_back("mul " + name, [=](int threads) {
      auto out = a;
      mul<F>(a, b, out, threads);
      return bytes_of(out);
    });
    all.emplace_back("fma " + name, [=](int threads) {
      auto out = a;
      fma<F>(a, b, c, out, threads);
      return bytes_of(out);
    });
  };
  arrays(std::type_identity<Binary16>(), "f16");
  arrays(std::type_identity<BrainFloat16>(), "bf16");
  // Products of 2^-140 in a chain of FP32, and of BF16 in a tensor core.
  constexpr std::int64_t m = 96, n = 160, k = 144;
  const GemmShape shape{m, n, k};
  const auto x = small_factors(5, m * k), y = small_factors(6, k * n);
  all.emplace_back("fma_chain_gemm", [=](int threads) {
    std::vector<float> d(m * n);
    fma_chain_gemm(shape, {x.data(), k}, {y.data(), n}, d.data(), n, threads);
    return bytes_of(d);
  });
  const auto low_x = narrowed<BrainFloat16>(x), low_y = narrowed<BrainFloat16>(y);
  for (const std::string model : {"ampere", "hopper"}) {
    const TensorCoreModel row = tensor_core_model(model);
    all.emplace_back("emulated_gemm " + model, [=](int threads) {
      std::vector<float> d(m * n);
      emulated_gemm(row, shape, MatrixView<BFloat16>{low_x.data(), k}, MatrixView<BFloat16>{low_y.data(), n},
                    static_cast<const float*>(nullptr), d.data(), n, threads);
      return bytes_of(d);
    });
  }
  std::vector<double> doubles;
  for (const float value : values) doubles.push_back(static_cast<double>(value) * 0x1p-900);
  all.emplace_back("ValueHistogram", [=](int threads) {
    const ScaledFormat format{fp16_range, 0x1p900};
    ValueHistogram counted(std::make_shared<const ValueBins>(std::span(&format, 1)));
    counted.add(std::span<const double>(doubles), threads);
    std::vector<std::uint64_t> counts{counted.zero()};
    for (const ExactMass& zone : counted.zones(format)) counts.push_back(zone.count);
    return bytes_of(counts);
  });
  all.emplace_back("narrow_and_count", [=](int threads) {
    std::vector<BFloat16> to(values.size());
    ExponentHistogram before, after;
    narrow_and_count(values, std::span<BFloat16>(to), before, after, threads);
    Bytes bytes = bytes_of(to);
    for (const ExponentHistogram& histogram : {before, after}) {
      const Bytes counts = bytes_of(std::vector<std::uint64_t>(histogram.bins.begin(), histogram.bins.end()));
      bytes.insert(bytes.end(), counts.begin(), counts.end());
    }
    return bytes;
  });
  return all;
}

TEST(FloatingPointScope, NoModeOfTheCallerChangesABitOrIsChanged) {
  for (const auto& [name, compute] : computations()) {
    const Bytes expected = compute(1);
    EXPECT_EQ(compute(2), expected) << name;
    for (const unsigned mode : floating_point_modes) {
      for (const int threads : {1, 2}) {
        Bytes actual;
        bool untouched = false;
        {
          const FloatingPointMode caller(mode);
          actual = compute(threads);
          untouched = caller.untouched();
        }
        EXPECT_EQ(actual == expected, true) << name << ", mode " << std::hex << mode << ", " << threads;
        EXPECT_TRUE(untouched) << name << ", mode " << std::hex << mode;
      }
    }
  }
}

TEST(FloatingPointScope, NoModeOfAWorkerDoesEither) {
  const auto all = computations();
  std::vector<Bytes> expected;
  for (const auto& [name, compute] : all) expected.push_back(compute(2));
  std::vector<unsigned> before(2), after(2);
#pragma omp parallel num_threads(2)
  {
    before[static_cast<std::size_t>(omp_get_thread_num())] = _mm_getcsr();
    _mm_setcsr(0x1f80u | 0x8040u);
  }
  std::vector<bool> same;
  for (std::size_t i = 0; i < all.size(); ++i) same.push_back(all[i].second(2) == expected[i]);
#pragma omp parallel num_threads(2)
  {
    after[static_cast<std::size_t>(omp_get_thread_num())] = _mm_getcsr();
    _mm_setcsr(before[static_cast<std::size_t>(omp_get_thread_num())]);
  }
  for (std::size_t i = 0; i < all.size(); ++i) EXPECT_TRUE(same[i]) << all[i].first;
  for (const unsigned mode : after) EXPECT_EQ(mode, 0x1f80u | 0x8040u);
}

TEST(FloatingPointScope, NestsAndKeepsTheFlagsOfADefaultEnvironment) {
  const FloatingPointMode caller(0x8040u);
  {
    const FloatingPointScope outer;
    EXPECT_EQ(_mm_getcsr() & ~0x3fu, 0x1f80u);
    const FloatingPointScope inner;
    volatile float third = 1.0f;
    third = third / 3.0f;
    EXPECT_NE(_mm_getcsr() & 0x20u, 0u) << "inexact";
  }
  EXPECT_TRUE(caller.untouched());
}

}  // namespace
}  // namespace fp16lab
#endif
