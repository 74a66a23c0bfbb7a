// Conformance: matrix products, one and batched.
#include <fmt/format.h>

#include "tests/engine/backend/conformance.hpp"

namespace fp16lab::engine::test {
namespace {

struct GemmData {
  std::int64_t m, n, k;
  bool transpose_a, transpose_b;
  std::int64_t batch = 0;  ///< 0: matrices without a batch axis

  std::int64_t products() const { return batch == 0 ? 1 : batch; }
  /// The shape of an operand or result that is `rows` x `columns` in each product.
  Shape shape(bool transposed, std::int64_t rows, std::int64_t columns) const {
    if (transposed) std::swap(rows, columns);
    return batch == 0 ? Shape{rows, columns} : Shape{batch, rows, columns};
  }
};

/// Element (row, column) of logical matrix `index`, `rows` x `columns`, that may be stored transposed.
template <class T>
T element(const std::vector<T>& stored, std::int64_t index, bool transposed, std::int64_t rows,
          std::int64_t columns, std::int64_t row, std::int64_t column) {
  const std::int64_t at = transposed ? column * rows + row : row * columns + column;
  return stored[static_cast<std::size_t>(index * rows * columns + at)];
}

template <class T>
std::vector<float> expected_accumulators(const TensorCoreModel& model, const GemmData& g,
                                         const std::vector<T>& a, const std::vector<T>& b) {
  std::vector<float> result;
  for (std::int64_t index = 0; index < g.products(); ++index)
    for (std::int64_t i = 0; i < g.m; ++i)
      for (std::int64_t j = 0; j < g.n; ++j) {
        std::vector<T> row, column;
        for (std::int64_t k = 0; k < g.k; ++k) {
          row.push_back(element(a, index, g.transpose_a, g.m, g.k, i, k));
          column.push_back(element(b, index, g.transpose_b, g.k, g.n, k, j));
        }
        result.push_back(accumulate(model, row, column));
      }
  return result;
}

TEST_P(BackendConformance, GemmEpilogue) {
  const TensorCoreModel& model = tensor_core_model(backend().tensor_core());
  const std::vector<GemmData> cases{
      {1, 1, 1, false, false},      {3, 5, 7, true, true},      {17, 33, 31, false, true},
      {33, 9, 64, true, false},     {64, 10, 128, false, true}, {5, 9, 0, false, false},
      {4, 17, 1025, false, false},  {0, 3, 4, false, false},    {3, 5, 7, true, false, 1},
      {9, 33, 17, false, true, 2},  {5, 8, 40, true, true, 13}, {1, 1, 3, false, false, 300},
      {70, 66, 36, false, true, 4}, {3, 2, 0, false, false, 2}, {3, 5, 7, false, false, 0}};
  for (const GemmData& g : cases)
    for (const Kind kind : {Kind::ordinary, Kind::wide, Kind::special}) {
      const auto run = [&](const auto& a, const auto& b, DType out_dtype, auto bias, auto addend,
                           auto stored) {
        using T = decltype(stored);
        std::vector<float> t = expected_accumulators(model, g, a, b);
        std::vector<T> expected;
        for (std::size_t i = 0; i < t.size(); ++i) {
          if (!bias.empty()) t[i] = canonical(t[i] + wide(bias[i % static_cast<std::size_t>(g.n)]));
          if (!addend.empty()) t[i] = canonical(t[i] + wide(addend[i]));
          expected.push_back(stored_as(t[i], T{}));
        }
        Tensor out = output(g.shape(false, g.m, g.n), out_dtype);
        const Tensor ta = tensor(g.shape(g.transpose_a, g.m, g.k), a);
        const Tensor tb = tensor(g.shape(g.transpose_b, g.k, g.n), b);
        const Tensor tbias = bias.empty() ? Tensor() : tensor(bias);
        const Tensor taddend = addend.empty() ? Tensor() : tensor(g.shape(false, g.m, g.n), addend);
        CastProbe probe;
        backend().gemm({.a = ta,
                        .b = tb,
                        .out = out,
                        .transpose_a = g.transpose_a,
                        .transpose_b = g.transpose_b,
                        .bias = bias.empty() ? nullptr : &tbias,
                        .addend = addend.empty() ? nullptr : &taddend,
                        .probe = &probe});
        expect_same_bits(values_of<T>(out), expected, fmt::format("gemm {}, k = {}", out.describe(), g.k));
        settle(probe);
        EXPECT_EQ(settled(probe).before, naive_histogram(t));
        EXPECT_EQ(probe.after, naive_histogram(expected));
      };
      const std::vector<float> wide_a = random_floats(g.products() * g.m * g.k, kind, 33),
                               wide_b = random_floats(g.products() * g.k * g.n, kind, 34);
      const std::vector<float> bias = random_floats(g.n, kind, 35),
                               addend = random_floats(g.products() * g.m * g.n, kind, 36);
      const std::vector<float> none;
      for_each_half_type([&](auto low) {
        using Half = decltype(low);
        if (!multiplies<Half>()) return;
        constexpr DType dtype = DTypeOf<Half>::value;
        const std::vector<Half> a = random_of<Half>(g.products() * g.m * g.k, kind, 31),
                               b = random_of<Half>(g.products() * g.k * g.n, kind, 32),
                               low_bias = random_of<Half>(g.n, kind, 37),
                               low_addend = random_of<Half>(g.products() * g.m * g.n, kind, 38);
        run(a, b, dtype, none, none, low);
        run(a, b, dtype, low_bias, none, low);
        run(a, b, dtype, bias, low_addend, low);
        run(a, b, dtype, low_bias, addend, low);
        run(a, b, DType::f32, none, none, 0.0f);
        run(a, b, DType::f32, low_bias, addend, 0.0f);
      });
      run(wide_a, wide_b, DType::f32, none, none, 0.0f);
      run(wide_a, wide_b, DType::f32, bias, none, 0.0f);
      run(wide_a, wide_b, DType::f32, none, addend, 0.0f);
      run(wide_a, wide_b, DType::f32, bias, addend, 0.0f);
    }
}

TEST_P(BackendConformance, GemmOfAllTransposesAgrees) {
  const TensorCoreModel& model = tensor_core_model(backend().tensor_core());
  for (const bool transpose_a : {false, true})
    for (const bool transpose_b : {false, true}) {
      const GemmData g{50, 41, 77, transpose_a, transpose_b};
      for_each_half_type([&](auto tag) {
        using Half = decltype(tag);
        if (!multiplies<Half>()) return;
        const std::vector<Half> a = random_of<Half>(g.m * g.k, Kind::wide, 41),
                               b = random_of<Half>(g.k * g.n, Kind::wide, 42);
        Tensor out = output(Shape{g.m, g.n}, DType::f32);
        const Tensor ta = tensor(g.shape(transpose_a, g.m, g.k), a);
        const Tensor tb = tensor(g.shape(transpose_b, g.k, g.n), b);
        backend().gemm(
            {.a = ta, .b = tb, .out = out, .transpose_a = transpose_a, .transpose_b = transpose_b});
        expect_same_bits(values_of<float>(out), expected_accumulators(model, g, a, b), "transposes");
      });
    }
}

TEST_P(BackendConformance, GemmSaysWhichBatchExtentsOrRanksDiffer) {
  const auto expect_error = [&](const Shape& a, const Shape& b, const Shape& out, const std::string& what) {
    Tensor result = output(out, DType::f32);
    try {
      backend().gemm({.a = output(a, DType::f32), .b = output(b, DType::f32), .out = result});
      FAIL() << "accepted: " << what;
    } catch (const std::invalid_argument& error) {
      EXPECT_EQ(error.what(), what);
    }
  };
  expect_error(
      {2, 3, 4}, {3, 4, 5}, {2, 3, 5},
      "gemm: a is f32 (2, 3, 4), b is f32 (3, 4, 5), out is f32 (2, 3, 5): their batch extents differ");
  expect_error({2, 3, 4}, {4, 5}, {2, 3, 5},
               "gemm: b is f32 (4, 5), out is f32 (2, 3, 5): their ranks differ");
  expect_error(
      {2, 3, 4}, {2, 4, 5}, {2, 5, 3},
      "gemm: a is f32 (2, 3, 4), b is f32 (2, 4, 5): out must be (2, 3, 5), but out is f32 (2, 5, 3)");
  expect_error({4}, {4}, {1}, "gemm: out is f32 (1); a matrix, or matrices along one batch axis, is needed");
}

}  // namespace
}  // namespace fp16lab::engine::test
