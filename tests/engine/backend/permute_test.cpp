// Conformance: permutations and slices. Every byte arrives, those of NaNs too.
#include <algorithm>
#include <numeric>

#include "tests/engine/backend/conformance.hpp"
#include "tests/support/message_of.hpp"

namespace fp16lab::engine::test {
namespace {

using testing_support::message_of;

/// Index of each axis at row-major position `at`.
std::vector<std::int64_t> indices_of(const Shape& shape, std::int64_t at) {
  std::vector<std::int64_t> indices(static_cast<std::size_t>(shape.rank()));
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    indices[static_cast<std::size_t>(axis)] = at % shape[axis];
    at /= shape[axis];
  }
  return indices;
}
std::size_t position_of(const Shape& shape, const std::vector<std::int64_t>& indices) {
  std::int64_t at = 0;
  for (int axis = 0; axis < shape.rank(); ++axis)
    at = at * shape[axis] + indices[static_cast<std::size_t>(axis)];
  return static_cast<std::size_t>(at);
}

Shape permuted(const Shape& shape, const std::vector<int>& axes) {
  return Shape(mapped(axes, [&](int axis) { return shape[axis]; }));
}

template <class T>
std::vector<T> naive_permute(const Shape& shape, const std::vector<int>& axes, const std::vector<T>& values) {
  const Shape to = permuted(shape, axes);
  std::vector<T> result;
  for (std::int64_t i = 0; i < to.element_count(); ++i) {
    const std::vector<std::int64_t> indices = indices_of(to, i);
    std::vector<std::int64_t> source(indices.size());
    for (std::size_t axis = 0; axis < axes.size(); ++axis)
      source[static_cast<std::size_t>(axes[axis])] = indices[axis];
    result.push_back(values[position_of(shape, source)]);
  }
  return result;
}

std::vector<std::uint8_t> counted_bytes(std::int64_t count) {
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(count));
  std::iota(bytes.begin(), bytes.end(), std::uint8_t{0});
  return bytes;
}
std::vector<double> counted_doubles(std::int64_t count) {
  std::vector<double> doubles(static_cast<std::size_t>(count));
  std::iota(doubles.begin(), doubles.end(), -7.0);
  return doubles;
}

/// check(values, dtype) for every element size.
template <class Check>
void for_each_size(std::int64_t count, const Check& check) {
  check(counted_bytes(count), DType::u8);
  check(random_halves(count, Kind::special, 81), DType::f16);
  check(random_brains(count, Kind::special, 81), DType::bf16);
  check(random_floats(count, Kind::special, 82), DType::f32);
  check(counted_doubles(count), DType::f64);
}

TEST_P(BackendConformance, PermuteOfEveryRankAndOrder) {
  const std::vector<Shape> shapes{{},         {7},          {3, 5},       {4, 1},          {2, 3, 4},
                                  {5, 1, 17}, {2, 3, 4, 5}, {1, 2, 1, 9}, {2, 3, 1, 4, 3}, {3, 2, 2, 3, 2, 2},
                                  {0, 3},     {2, 0, 3}};
  for (const Shape& shape : shapes) {
    std::vector<int> axes(static_cast<std::size_t>(shape.rank()));
    std::iota(axes.begin(), axes.end(), 0);
    do {
      for_each_size(shape.element_count(), [&](const auto& values, DType dtype) {
        using T = typename std::decay_t<decltype(values)>::value_type;
        Tensor out = output(permuted(shape, axes), dtype);
        backend().permute(tensor(shape, values), axes, out);
        expect_same_bits(values_of<T>(out), naive_permute(shape, axes, values),
                         "permute " + shape.to_string());
      });
    } while (std::next_permutation(axes.begin(), axes.end()));
  }
}

TEST_P(BackendConformance, PermuteOfLargeTensors) {
  struct Case {
    Shape shape;
    std::vector<int> axes;
  };
  // Whole and cut tiles, of pairs too (even extents), few rows or columns, runs, and enough for threads.
  const std::vector<Case> cases{{{300, 257}, {1, 0}},           {{16, 64}, {1, 0}},
                                {{134, 70}, {1, 0}},            {{3, 66, 100}, {0, 2, 1}},
                                {{34, 5, 66}, {2, 1, 0}},       {{3, 34, 2, 40}, {1, 3, 0, 2}},
                                {{3, 20000}, {1, 0}},           {{20000, 3}, {1, 0}},
                                {{65, 17, 63}, {2, 0, 1}},      {{65, 17, 63}, {2, 1, 0}},
                                {{65, 17, 63}, {0, 2, 1}},      {{65, 17, 63}, {1, 0, 2}},
                                {{65, 17, 63}, {1, 2, 0}},      {{8, 3, 33, 31}, {0, 2, 3, 1}},
                                {{8, 33, 31, 3}, {0, 3, 1, 2}}, {{4, 50, 6, 40}, {0, 2, 1, 3}},
                                {{4, 50, 6, 40}, {3, 1, 2, 0}}};
  for (const Case& c : cases)
    for_each_size(c.shape.element_count(), [&](const auto& values, DType dtype) {
      using T = typename std::decay_t<decltype(values)>::value_type;
      Tensor out = output(permuted(c.shape, c.axes), dtype);
      backend().permute(tensor(c.shape, values), c.axes, out);
      expect_same_bits(values_of<T>(out), naive_permute(c.shape, c.axes, values),
                       "permute " + c.shape.to_string());
    });
}

TEST_P(BackendConformance, SliceAndInsertAtEveryPlace) {
  for (const Shape& shape :
       {Shape{6}, Shape{4, 5}, Shape{3, 4, 5}, Shape{2, 3, 2, 3, 1, 4}, Shape{200, 9, 40}})
    for (int axis = -shape.rank(); axis < shape.rank(); ++axis) {
      const int at = axis < 0 ? axis + shape.rank() : axis;
      for (const std::int64_t extent :
           {std::int64_t{0}, std::int64_t{1}, shape[at] - shape[at] / 3, shape[at]})
        for (const std::int64_t begin : {std::int64_t{0}, (shape[at] - extent) / 2, shape[at] - extent}) {
          std::vector<std::int64_t> extents(shape.extents().begin(), shape.extents().end());
          extents[static_cast<std::size_t>(at)] = extent;
          const Shape part(extents);
          std::vector<std::size_t> places;  // in the whole, of each element of the part
          for (std::int64_t i = 0; i < part.element_count(); ++i) {
            std::vector<std::int64_t> indices = indices_of(part, i);
            indices[static_cast<std::size_t>(at)] += begin;
            places.push_back(position_of(shape, indices));
          }
          const auto check = [&](const auto& whole, const auto& inserted, DType dtype) {
            using T = typename std::decay_t<decltype(whole)>::value_type;
            Tensor x = tensor(shape, whole), out = output(part, dtype);
            backend().slice(x, axis, begin, out);
            expect_same_bits(values_of<T>(out),
                             mapped(places, [&](std::size_t place) { return whole[place]; }),
                             "slice " + shape.to_string());
            std::vector<T> expected = whole;
            for (std::size_t i = 0; i < places.size(); ++i) expected[places[i]] = inserted[i];
            backend().insert(tensor(part, inserted), axis, begin, x);
            expect_same_bits(values_of<T>(x), expected, "insert into " + shape.to_string());
          };
          const std::int64_t n = shape.element_count(), m = part.element_count();
          check(random_floats(n, Kind::special, 83), random_floats(m, Kind::special, 84), DType::f32);
          check(random_halves(n, Kind::special, 85), random_halves(m, Kind::special, 86), DType::f16);
        }
    }
}

TEST_P(BackendConformance, MovesRejectWhatDoesNotFit) {
  Tensor x = output(Shape{2, 3, 4}, DType::f32), out = output(Shape{2, 4, 3}, DType::f32);
  Tensor halves = output(Shape{2, 4, 3}, DType::f16);
  const auto permute = [&](std::vector<int> axes, Tensor& to) {
    return message_of([&] { backend().permute(x, axes, to); });
  };
  EXPECT_EQ(permute({0, 1}, out),
            "permute: axes are (0, 1), not a permutation of the axes of x is f32 (2, 3, 4)");
  EXPECT_THROW(backend().permute(x, std::vector{0, 1, 1}, out), std::invalid_argument);
  EXPECT_THROW(backend().permute(x, std::vector{0, 1, 3}, out), std::invalid_argument);
  EXPECT_THROW(backend().permute(x, std::vector{0, 1, -1}, out), std::invalid_argument);
  EXPECT_EQ(permute({0, 1, 2}, out),
            "permute: x is f32 (2, 3, 4) with axes (0, 1, 2) does not give out is f32 (2, 4, 3)");
  EXPECT_EQ(permute({0, 2, 1}, halves),
            "permute: x is f32 (2, 3, 4), out is f16 (2, 4, 3): their dtypes differ");
  EXPECT_THROW(backend().permute(x, std::vector{0, 1, 2}, x), std::invalid_argument) << "not in place";

  Tensor part = output(Shape{2, 2, 4}, DType::f32);
  EXPECT_EQ(message_of([&] { backend().slice(x, 3, 0, part); }),
            "slice: x is f32 (2, 3, 4) and has no axis 3");
  EXPECT_EQ(message_of([&] { backend().slice(x, 1, 2, part); }),
            "slice: [2, 4) on axis 1 is not inside x is f32 (2, 3, 4)");
  EXPECT_THROW(backend().slice(x, 1, -1, part), std::invalid_argument);
  EXPECT_EQ(message_of([&] { backend().slice(x, 0, 0, part); }),
            "slice: x is f32 (2, 3, 4), out is f32 (2, 2, 4): their shapes differ on other axes than 0");
  EXPECT_EQ(message_of([&] { backend().insert(part, 1, 2, x); }),
            "insert: [2, 4) on axis 1 is not inside out is f32 (2, 3, 4)");
}

}  // namespace
}  // namespace fp16lab::engine::test
