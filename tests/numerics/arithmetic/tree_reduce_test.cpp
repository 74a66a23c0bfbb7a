// TREE judged by the GPU's index map: a warp of 32 lanes that shuffles, executed step by step on the CPU.
#include "numerics/arithmetic/tree_reduce.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <random>
#include <stdexcept>
#include <vector>

#include "numerics/formats/bits.hpp"

namespace fp16lab {
namespace {

// ---- What a GPU does, described by its indices alone. -------------------------------------------

/// One warp reduces x[first .. first + count): every lane walks its own elements, then five shuffle steps in
/// which all lanes read the value that the lane `distance` above held *before* the step. A lane without
/// elements holds nothing.
template <class T, class Op>
T warp(const std::vector<T>& x, std::size_t first, std::size_t count, Op op) {
  std::array<std::optional<T>, 32> registers;
  for (std::size_t step = 0; step * 32 < count; ++step)
    for (std::size_t lane = 0; lane < 32; ++lane) {
      const std::size_t index = step * 32 + lane;
      if (index >= count) continue;  // predicated off
      const T element = x[first + index];
      registers[lane] = registers[lane] ? op(*registers[lane], element) : element;
    }
  for (const std::size_t distance : {16u, 8u, 4u, 2u, 1u}) {
    const std::array<std::optional<T>, 32> before = registers;
    for (std::size_t lane = 0; lane + distance < 32; ++lane) {
      const std::optional<T>& received = before[lane + distance];
      if (!before[lane] && received) ADD_FAILURE() << "an empty lane below a full one";
      if (before[lane] && received) registers[lane] = op(*before[lane], *received);
    }
  }
  return registers[0].value();
}

/// A kernel launch per level: block b reduces elements [1024 b, 1024 b + 1024) and writes element b of the
/// next level.
template <class T, class Op>
T gpu(std::vector<T> x, Op op) {
  do {
    std::vector<T> next;
    for (std::size_t first = 0; first < x.size(); first += 1024)
      next.push_back(warp(x, first, std::min<std::size_t>(1024, x.size() - first), op));
    x = next;
  } while (x.size() > 1);
  return x[0];
}

template <class T>
T plus(T a, T b) {
  return a + b;
}

/// The documented truth table, written out.
template <class T>
T larger(T a, T b) {
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<T>::quiet_NaN();
  return b > a ? b : a;
}

template <class T>
bool same(T a, T b) {  // equal bits; all NaNs are one
  return std::isnan(a)
             ? bits_of(b) == bits_of(canonicalize(std::numeric_limits<T>::quiet_NaN())) && std::isnan(b)
             : bits_of(a) == bits_of(b);
}

const std::vector<std::size_t> sizes = {1,    2,    3,    31,   32,        33,           63,
                                        64,   65,   1000, 1023, 1024,      1025,         1055,
                                        1056, 1057, 2048, 2049, 33 * 1024, 33 * 1024 + 7};

template <class T>
std::vector<T> wide_range(std::size_t n, std::uint32_t seed) {
  std::mt19937_64 engine(seed);
  std::vector<T> x(n);
  for (T& value : x)
    value = static_cast<T>(std::ldexp(static_cast<double>(static_cast<std::int64_t>(engine())),
                                      static_cast<int>(engine() % 40) - 80));
  return x;
}

template <class T>
class TreeReduce : public testing::Test {};
using Accumulators = testing::Types<float, double>;
TYPED_TEST_SUITE(TreeReduce, Accumulators);

TYPED_TEST(TreeReduce, SumEqualsTheIndexMap) {
  using T = TypeParam;
  for (const std::size_t n : sizes) {
    const std::vector<T> x = wide_range<T>(n, static_cast<std::uint32_t>(n));
    const T sum = tree_sum<T>(static_cast<std::int64_t>(n),
                              [&](std::int64_t i) { return x[static_cast<std::size_t>(i)]; });
    ASSERT_EQ(bits_of(sum), bits_of(gpu(x, plus<T>))) << n;
  }
}

TYPED_TEST(TreeReduce, ThirdLevel) {
  using T = TypeParam;
  for (const std::size_t n : {1024u * 1024u, 1024u * 1024u + 5u, 2u * 1024u * 1024u + 1025u}) {
    const std::vector<T> x = wide_range<T>(n, 9);
    const T sum = tree_sum<T>(static_cast<std::int64_t>(n),
                              [&](std::int64_t i) { return x[static_cast<std::size_t>(i)]; });
    ASSERT_EQ(bits_of(sum), bits_of(gpu(x, plus<T>))) << n;
  }
}

TYPED_TEST(TreeReduce, MaxEqualsTheIndexMap) {
  using T = TypeParam;
  std::mt19937 engine(1);
  const std::array<T, 7> few = {T(0.0),
                                T(-0.0),
                                T(1),
                                T(-1),
                                std::numeric_limits<T>::infinity(),
                                -std::numeric_limits<T>::infinity(),
                                std::numeric_limits<T>::quiet_NaN()};
  for (const std::size_t n : sizes)
    for (const std::uint32_t kinds : {2u, 4u, 6u, 7u}) {  // signed zeros only; ...; NaN as well
      std::vector<T> x(n);
      for (T& value : x) value = few[engine() % kinds];
      if (kinds == 7)  // NaNs rare enough that most sequences have none or one
        for (std::size_t i = 0; i < n; ++i)
          if (std::isnan(x[i]) && engine() % 64 != 0) x[i] = T(2);
      const T max = canonicalize(tree_reduce<T>(
          static_cast<std::int64_t>(n), [&](std::int64_t i) { return x[static_cast<std::size_t>(i)]; },
          TreeMax{}));
      ASSERT_TRUE(same(gpu(x, larger<T>), max)) << n << ' ' << kinds << ": " << max;
    }
}

TYPED_TEST(TreeReduce, ColumnsEqualTheIndexMap) {
  using T = TypeParam;
  for (const std::size_t rows : {1u, 2u, 31u, 32u, 33u, 1023u, 1024u, 1025u, 3u * 1024u + 40u})
    for (const std::size_t columns : {1u, 3u, 10u, 63u, 64u, 65u, 130u}) {
      const std::vector<T> x = wide_range<T>(rows * columns, static_cast<std::uint32_t>(rows + columns));
      std::vector<T> sums(columns);
      tree_reduce_columns<T>(
          static_cast<std::int64_t>(rows), static_cast<std::int64_t>(columns),
          [&](std::int64_t row, std::int64_t column) {
            return x[static_cast<std::size_t>(row) * columns + static_cast<std::size_t>(column)];
          },
          [&](std::int64_t column, T sum) { sums[static_cast<std::size_t>(column)] = sum; }, TreeSum{});
      for (std::size_t column = 0; column < columns; ++column) {
        std::vector<T> alone(rows);
        for (std::size_t row = 0; row < rows; ++row) alone[row] = x[row * columns + column];
        ASSERT_EQ(bits_of(sums[column]), bits_of(gpu(alone, plus<T>)))
            << rows << 'x' << columns << " column " << column;
      }
    }
}

TYPED_TEST(TreeReduce, MissingElementsAreNotZeros) {
  using T = TypeParam;
  for (const std::size_t n : {1u, 2u, 31u, 33u, 1023u, 1025u, 2049u})
    EXPECT_TRUE(std::signbit(tree_sum<T>(static_cast<std::int64_t>(n), [](std::int64_t) { return T(-0.0); })))
        << n;
}

TYPED_TEST(TreeReduce, NothingAndNan) {
  using T = TypeParam;
  const auto never = [](std::int64_t) -> T { throw std::logic_error("read an element of nothing"); };
  EXPECT_EQ(bits_of(tree_sum<T>(0, never)), bits_of(T(0)));

  const T canonical = canonicalize(std::numeric_limits<T>::quiet_NaN());
  EXPECT_EQ(bits_of(canonical) << 1 >> 1, bits_of(canonical));
  EXPECT_EQ(bits_of(canonical) + 1, bits_of(T(-0.0)));  // 7f..ff: all ones but the sign
  const T infinity = std::numeric_limits<T>::infinity();
  const std::array<T, 2> cancel = {infinity, -infinity};  // x86 makes a negative NaN here
  EXPECT_EQ(bits_of(tree_sum<T>(2, [&](std::int64_t i) { return cancel[static_cast<std::size_t>(i)]; })),
            bits_of(canonical));
  EXPECT_EQ(bits_of(tree_sum<T>(1, [](std::int64_t) { return -std::numeric_limits<T>::signaling_NaN(); })),
            bits_of(canonical));
}

/// FP16 sums widen first: the accessor converts, the accumulator type decides.
TYPED_TEST(TreeReduce, AccessorConverts) {
  using T = TypeParam;
  const std::vector<float> x(100, 0.1f);
  const T sum = tree_sum<T>(100, [&](std::int64_t i) { return x[static_cast<std::size_t>(i)]; });
  EXPECT_EQ(bits_of(sum), bits_of(gpu(std::vector<T>(100, static_cast<T>(0.1f)), plus<T>)));
}

}  // namespace
}  // namespace fp16lab
