// Conformance: reductions, histograms and digests.
#include <cmath>

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
        check(random_brains(c.shape.element_count(), kind, 22), DType::bf16);
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

TEST_P(BackendConformance, HistogramOfEvery16BitWordKnowsItsSubnormals) {
  // BF16 subnormals and FP32 subnormals start at the same 2^-126: all of them are in the lowest bin.
  ExponentHistogram halves, brains;
  backend().histogram(tensor(all_words<Float16>()), halves);
  EXPECT_EQ(halves, naive_histogram(all_words<Float16>()));
  EXPECT_EQ(halves.at(-25), 2u) << "2^-24 alone, of either sign";
  backend().histogram(tensor(all_words<BFloat16>()), brains);
  EXPECT_EQ(brains, naive_histogram(all_words<BFloat16>()));
  EXPECT_EQ(brains.at(-127), 2u * 128) << "127 subnormals and 2^-126";
  EXPECT_EQ(brains.at(0), 2u * 128);
  EXPECT_EQ(brains.at(127), 2u * 127) << "above 2^127";
  EXPECT_EQ(brains.zero, 2u);
  EXPECT_EQ(brains.infinite, 2u);
  EXPECT_EQ(brains.nan, 2u * 127);
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
