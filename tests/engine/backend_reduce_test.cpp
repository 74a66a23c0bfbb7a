// Conformance: reductions, indexing, products, histograms and digests.
#include <cmath>

#include "numerics/tensor_core_model.hpp"
#include "tests/engine/backend_conformance.hpp"

namespace fp16lab::engine::test {
namespace {

// ---- reduce ----

float tree_of(ReduceOp op, const std::vector<float>& values) {
  if (op == ReduceOp::sum) {
    if (values.empty()) return 0.0f;
    return canonical(naive_tree<float>(values, [](float a, float b) { return a + b; }));
  }
  return canonical(naive_tree<float>(values, [](float a, float b) {
    if (std::isnan(a) || std::isnan(b)) return std::nanf("");
    return b > a ? b : a;  // equal zeros: the earlier one stays
  }));
}

float stored_as(float x, float) { return x; }
Float16 stored_as(float x, Float16) { return half_of(x); }
float wide(float x) { return x; }
float wide(Float16 x) { return float_of(x); }

struct Case {
  Shape shape;
  int axis;
  bool keep = false;
};

TEST_P(BackendConformance, ReduceFollowsTree) {
  const std::vector<Case> cases{{{1}, 0},
                                {{31}, 0},
                                {{32}, 0, true},
                                {{33}, -1},
                                {{1024}, 0},
                                {{1025}, 0},
                                {{33797}, 0},
                                {{5, 1025}, 1},
                                {{5, 1025}, -1, true},
                                {{1025, 5}, 0},
                                {{1025, 130}, 0},
                                {{64, 512}, 0},
                                {{3, 40, 7}, 1},
                                {{2, 3, 4, 5}, 2, true},
                                {{40000, 3}, 0},
                                {{40000, 3}, 1},
                                {{2, 2100, 65}, 1},
                                {{1, 1}, 0},
                                {{7, 1}, 0},
                                {{0, 3}, 1},
                                {{31, 1, 1000}, 0}};
  for (const Case& c : cases)
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max})
      for (const Kind kind : {Kind::ordinary, Kind::cancelling, Kind::special}) {
        const auto check = [&](const auto& values, DType dtype) {
          using T = typename std::decay_t<decltype(values)>::value_type;
          const int axis = c.axis < 0 ? c.axis + c.shape.rank() : c.axis;
          std::int64_t outer = 1, inner = 1;
          for (int i = 0; i < axis; ++i) outer *= c.shape[i];
          for (int i = axis + 1; i < c.shape.rank(); ++i) inner *= c.shape[i];
          std::vector<T> expected;
          std::vector<float> unrounded;
          for (std::int64_t o = 0; o < outer; ++o)
            for (std::int64_t i = 0; i < inner; ++i) {
              std::vector<float> line;
              for (std::int64_t k = 0; k < c.shape[axis]; ++k)
                line.push_back(wide(values[static_cast<std::size_t>((o * c.shape[axis] + k) * inner + i)]));
              unrounded.push_back(tree_of(op, line));
              expected.push_back(stored_as(unrounded.back(), T{}));
            }
          const Shape kept = c.keep ? Shape{outer, 1, inner} : Shape{outer, inner};
          Tensor out = output(kept, dtype);
          CastProbe probe;
          backend().reduce(op, tensor(c.shape, values), c.axis, out, &probe);
          expect_same_bits(values_of<T>(out), expected, "reduce " + c.shape.to_string());
          EXPECT_EQ(probe.before, naive_histogram(unrounded));
          EXPECT_EQ(probe.after, naive_histogram(expected));
        };
        check(random_floats(c.shape.element_count(), kind, 21), DType::f32);
        check(random_halves(c.shape.element_count(), kind, 22), DType::f16);
      }
}

TEST_P(BackendConformance, ReduceThreeLevelsOfTree) {
  const std::vector<float> values = random_floats(1024 * 1024 + 33, Kind::cancelling, 23);
  Tensor out = output(Shape{}, DType::f32);
  backend().reduce(ReduceOp::sum, tensor(values), 0, out);
  expect_same_bits(values_of<float>(out), {tree_of(ReduceOp::sum, values)}, "sum of 2^20 + 33");
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

// ---- pick and place ----

TEST_P(BackendConformance, PickAndPlace) {
  const std::int64_t rows = 131, columns = 10;
  std::vector<std::int32_t> index;
  for (std::int64_t row = 0; row < rows; ++row)
    index.push_back(static_cast<std::int32_t>((row * 7 + 3) % columns));
  const auto check = [&](const auto& matrix, const auto& column, DType dtype) {
    using T = typename std::decay_t<decltype(matrix)>::value_type;
    std::vector<T> picked, placed(matrix.size(), stored_as(0.0f, T{}));
    for (std::size_t row = 0; row < column.size(); ++row) {
      const std::size_t at = row * static_cast<std::size_t>(columns) + static_cast<std::size_t>(index[row]);
      picked.push_back(stored_as(canonical(wide(matrix[at])), T{}));
      placed[at] = stored_as(canonical(wide(column[row])), T{});
    }
    Tensor out = output(Shape{rows}, dtype), back = output(Shape{rows, columns}, dtype);
    backend().pick(tensor(Shape{rows, columns}, matrix), tensor(index), out);
    expect_same_bits(values_of<T>(out), picked, "pick");
    backend().place(tensor(column), tensor(index), back);
    expect_same_bits(values_of<T>(back), placed, "place");
  };
  check(random_floats(rows * columns, Kind::special, 24), random_floats(rows, Kind::special, 25), DType::f32);
  check(random_halves(rows * columns, Kind::special, 26), random_halves(rows, Kind::special, 27), DType::f16);
}

TEST_P(BackendConformance, PickNamesTheRowThatIsOutOfRange) {
  const Tensor x = tensor(Shape{3, 4}, std::vector<float>(12, 1.0f));
  Tensor out = output(Shape{3}, DType::f32);
  for (const std::int32_t bad : {-1, 4}) {
    try {
      backend().pick(x, tensor(std::vector<std::int32_t>{0, bad, 3}), out);
      FAIL() << "an index of " << bad << " was accepted";
    } catch (const std::out_of_range& error) {
      EXPECT_EQ(error.what(), "pick: index[1] is " + std::to_string(bad) + ", which is not in [0, 4)");
    }
  }
}

// ---- gemm ----

struct GemmData {
  std::int64_t m, n, k;
  bool transpose_a, transpose_b;
};

/// Element (row, column) of a logical matrix of `rows` x `columns` that may be stored transposed.
template <class T>
T element(const std::vector<T>& stored, bool transposed, std::int64_t rows, std::int64_t columns,
          std::int64_t row, std::int64_t column) {
  return stored[static_cast<std::size_t>(transposed ? column * rows + row : row * columns + column)];
}

float accumulate(const TensorCoreModel& model, const std::vector<Float16>& a, const std::vector<Float16>& b) {
  return fused_dot_add(model, a, b, 0.0f);
}
float accumulate(const TensorCoreModel&, const std::vector<float>& a, const std::vector<float>& b) {
  float sum = 0.0f;
  for (std::size_t k = 0; k < a.size(); ++k) sum = std::fma(a[k], b[k], sum);
  return canonical(sum);
}

template <class T>
std::vector<float> expected_accumulators(const TensorCoreModel& model, const GemmData& g,
                                         const std::vector<T>& a, const std::vector<T>& b) {
  std::vector<float> result;
  for (std::int64_t i = 0; i < g.m; ++i)
    for (std::int64_t j = 0; j < g.n; ++j) {
      std::vector<T> row, column;
      for (std::int64_t k = 0; k < g.k; ++k) {
        row.push_back(element(a, g.transpose_a, g.m, g.k, i, k));
        column.push_back(element(b, g.transpose_b, g.k, g.n, k, j));
      }
      result.push_back(accumulate(model, row, column));
    }
  return result;
}

Shape stored_shape(bool transposed, std::int64_t rows, std::int64_t columns) {
  return transposed ? Shape{columns, rows} : Shape{rows, columns};
}

TEST_P(BackendConformance, GemmEpilogue) {
  const TensorCoreModel& model = tensor_core_model(backend().tensor_core());
  const std::vector<GemmData> cases{{1, 1, 1, false, false},     {3, 5, 7, true, true},
                                    {17, 33, 31, false, true},   {33, 9, 64, true, false},
                                    {64, 10, 128, false, true},  {5, 9, 0, false, false},
                                    {4, 17, 1025, false, false}, {0, 3, 4, false, false}};
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
        Tensor out = output(Shape{g.m, g.n}, out_dtype);
        const Tensor ta = tensor(stored_shape(g.transpose_a, g.m, g.k), a);
        const Tensor tb = tensor(stored_shape(g.transpose_b, g.k, g.n), b);
        const Tensor tbias = bias.empty() ? Tensor() : tensor(bias);
        const Tensor taddend = addend.empty() ? Tensor() : tensor(Shape{g.m, g.n}, addend);
        CastProbe probe;
        backend().gemm({.a = ta,
                        .b = tb,
                        .out = out,
                        .transpose_a = g.transpose_a,
                        .transpose_b = g.transpose_b,
                        .bias = bias.empty() ? nullptr : &tbias,
                        .addend = addend.empty() ? nullptr : &taddend,
                        .probe = &probe});
        expect_same_bits(
            values_of<T>(out), expected,
            "gemm " + std::to_string(g.m) + " " + std::to_string(g.n) + " " + std::to_string(g.k));
        EXPECT_EQ(probe.before, naive_histogram(t));
        EXPECT_EQ(probe.after, naive_histogram(expected));
      };
      const std::vector<Float16> a = random_halves(g.m * g.k, kind, 31),
                                 b = random_halves(g.k * g.n, kind, 32);
      const std::vector<float> wide_a = random_floats(g.m * g.k, kind, 33),
                               wide_b = random_floats(g.k * g.n, kind, 34);
      const std::vector<float> bias = random_floats(g.n, kind, 35),
                               addend = random_floats(g.m * g.n, kind, 36);
      const std::vector<Float16> half_bias = random_halves(g.n, kind, 37);
      const std::vector<Float16> half_addend = random_halves(g.m * g.n, kind, 38);
      const std::vector<float> none;
      const Float16 half{};
      run(a, b, DType::f16, none, none, half);
      run(a, b, DType::f16, half_bias, none, half);
      run(a, b, DType::f16, bias, half_addend, half);
      run(a, b, DType::f16, half_bias, addend, half);
      run(a, b, DType::f32, none, none, 0.0f);
      run(a, b, DType::f32, half_bias, addend, 0.0f);
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
      const std::vector<Float16> a = random_halves(g.m * g.k, Kind::wide, 41),
                                 b = random_halves(g.k * g.n, Kind::wide, 42);
      Tensor out = output(Shape{g.m, g.n}, DType::f32);
      const Tensor ta = tensor(stored_shape(transpose_a, g.m, g.k), a);
      const Tensor tb = tensor(stored_shape(transpose_b, g.k, g.n), b);
      backend().gemm({.a = ta, .b = tb, .out = out, .transpose_a = transpose_a, .transpose_b = transpose_b});
      expect_same_bits(values_of<float>(out), expected_accumulators(model, g, a, b), "transposes");
    }
}

// ---- histogram and digest ----

TEST_P(BackendConformance, HistogramAddsEveryElementOnce) {
  for (const std::int64_t size : {std::int64_t{1}, std::int64_t{1025}, std::int64_t{1100000}}) {
    const std::vector<float> floats = random_floats(size, Kind::special, 43);
    const std::vector<Float16> halves = random_halves(size, Kind::special, 44);
    ExponentHistogram histogram;
    backend().histogram(tensor(floats), histogram);
    EXPECT_EQ(histogram, naive_histogram(floats));
    EXPECT_EQ(histogram.total(), floats.size());
    backend().histogram(tensor(halves), histogram);
    ExponentHistogram both = naive_histogram(floats);
    both += naive_histogram(halves);
    EXPECT_EQ(histogram, both);
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

}  // namespace
}  // namespace fp16lab::engine::test
