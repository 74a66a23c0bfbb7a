// Broadcasting, moving and summing against naive twins that walk every index; reductions against TREE itself.
#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "numerics/arithmetic/tree_reduce.hpp"
#include "tests/engine/autograd/support.hpp"

namespace fp16lab::engine::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

using Index = std::vector<std::int64_t>;

Index extents_of(const Shape& shape) { return {shape.extents().begin(), shape.extents().end()}; }
Shape shape_of(const Index& extents) { return Shape(std::span<const std::int64_t>(extents)); }

/// Calls visit(index) for every index of `extents` in row-major order.
void for_each_index(const Index& extents, const std::function<void(const Index&)>& visit) {
  Index index(extents.size(), 0);
  if (std::find(extents.begin(), extents.end(), 0) != extents.end()) return;
  for (;;) {
    visit(index);
    std::size_t axis = extents.size();
    while (axis > 0 && ++index[axis - 1] == extents[axis - 1]) index[--axis] = 0;
    if (axis == 0) return;
  }
}

std::size_t offset_of(const Index& index, const Index& extents) {
  std::size_t offset = 0;
  for (std::size_t axis = 0; axis < extents.size(); ++axis)
    offset = offset * static_cast<std::size_t>(extents[axis]) + static_cast<std::size_t>(index[axis]);
  return offset;
}

/// NumPy's rule on its own words: right-aligned, an extent of 1 stretches.
std::optional<Index> broadcast_twin(Index a, Index b) {
  while (a.size() < b.size()) a.insert(a.begin(), 1);
  while (b.size() < a.size()) b.insert(b.begin(), 1);
  Index out;
  for (std::size_t axis = 0; axis < a.size(); ++axis) {
    if (a[axis] != b[axis] && a[axis] != 1 && b[axis] != 1) return std::nullopt;
    out.push_back(a[axis] == 1 ? b[axis] : a[axis]);
  }
  return out;
}

/// The element of `from` that index `at` of the broadcast shape reads.
std::size_t source_of(const Index& at, const Index& from) {
  Index index;
  for (std::size_t axis = 0; axis < from.size(); ++axis) {
    const std::int64_t i = at[at.size() - from.size() + axis];
    index.push_back(from[axis] == 1 ? 0 : i);
  }
  return offset_of(index, from);
}

class ShapeTest : public testing::Test {
 protected:
  /// Small integers: sums of up to 2^16 of their products are exact in any order.
  std::vector<float> integers(std::size_t count, unsigned salt) {
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>((i * 7 + salt * 5) % 13) - 6.0f;
    return values;
  }
  Variable input(const Index& extents, const std::vector<float>& values) {
    return tape.input(tensor_of(*backend, shape_of(extents), values));
  }
  std::vector<float> read(const Variable& x) { return values_of(*backend, x.tensor()); }
  std::string message(const std::function<void()>& call) {
    try {
      call();
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "nothing was thrown";
  }

  std::unique_ptr<Backend> backend = hopper_backend();
  Tape tape{*backend};
};

/// Random pairs of shapes up to rank 5 with extents 0 to 4: the result, both gradients, or the error.
TEST_F(ShapeTest, BroadcastsAsNumPyDoes) {
  std::mt19937 random(2024);
  const auto draw = [&](unsigned below) { return static_cast<std::int64_t>(random() % below); };
  int fitting = 0, refused = 0, empty = 0, scalars = 0;
  for (int pair = 0; pair < 3000; ++pair) {
    Index a, b;
    for (Index* extents : {&a, &b}) {
      const std::int64_t rank = draw(6);
      for (std::int64_t axis = 0; axis < rank; ++axis) extents->push_back(draw(12) == 0 ? 0 : 1 + draw(4));
    }
    // Half of the pairs are made to fit: b copies a's extents, or has 1 there.
    if (pair % 2 == 0) {
      for (std::size_t i = 1; i <= std::min(a.size(), b.size()); ++i) {
        std::int64_t& extent = b[b.size() - i];
        extent = draw(3) == 0 ? 1 : a[a.size() - i];
      }
    }
    const auto count = [](const Index& extents) {
      return static_cast<std::size_t>(
          std::accumulate(extents.begin(), extents.end(), std::int64_t{1}, std::multiplies<>()));
    };
    const std::vector<float> values_a = integers(count(a), 1), values_b = integers(count(b), 2);
    const Variable x = input(a, values_a), y = input(b, values_b);
    const auto expected_shape = broadcast_twin(a, b);
    if (!expected_shape) {
      ++refused;
      EXPECT_THAT(message([&] { ops::multiply(x, y); }),
                  AllOf(HasSubstr("multiply"), HasSubstr(shape_of(a).to_string()),
                        HasSubstr(shape_of(b).to_string())));
      continue;
    }
    ++fitting;
    const Variable z = ops::multiply(x, y);
    ASSERT_EQ(extents_of(z.shape()), *expected_shape) << shape_of(a).to_string() << shape_of(b).to_string();
    const std::size_t size = count(*expected_shape);
    empty += size == 0 ? 1 : 0;
    scalars += a.empty() || b.empty() ? 1 : 0;
    const std::vector<float> seed = integers(size, 3);
    std::vector<float> expected(size), gradient_a(values_a.size(), 0.0f), gradient_b(values_b.size(), 0.0f);
    for_each_index(*expected_shape, [&](const Index& at) {
      const std::size_t i = offset_of(at, *expected_shape), from_a = source_of(at, a),
                        from_b = source_of(at, b);
      expected[i] = values_a[from_a] * values_b[from_b];
      gradient_a[from_a] += seed[i] * values_b[from_b];
      gradient_b[from_b] += seed[i] * values_a[from_a];
    });
    EXPECT_EQ(read(z), expected);
    const auto gradients = tape.gradients(
        std::vector{z}, std::vector{tensor_of(*backend, shape_of(*expected_shape), seed)}, std::vector{x, y});
    EXPECT_EQ(gradients[0].shape(), x.shape());
    EXPECT_EQ(read(gradients[0]), gradient_a) << shape_of(a).to_string() << shape_of(b).to_string();
    EXPECT_EQ(read(gradients[1]), gradient_b) << shape_of(a).to_string() << shape_of(b).to_string();
    tape.reset();
  }
  EXPECT_GT(fitting, 1500);
  EXPECT_GT(refused, 300);
  EXPECT_GT(empty, 100);
  EXPECT_GT(scalars, 300);
}

/// Sums over every subset of the axes of a 4-d tensor equal TREE over the reduced elements in row-major
/// order, bit for bit; the numbers span 2^24, so any other order would differ somewhere.
TEST_F(ShapeTest, SumsOverSeveralAxesAreOneTree) {
  const Index extents{3, 5, 4, 37};
  std::vector<float> values(3 * 5 * 4 * 37);
  std::mt19937 random(7);
  for (float& value : values) {
    value = (static_cast<float>(random() % 4096) - 2048.0f) * static_cast<float>(1u << (random() % 13));
    value += static_cast<float>(random() % 1024) / 1024.0f;
  }
  const Variable x = input(extents, values);
  bool order_matters = false;
  for (unsigned subset = 0; subset < 16; ++subset) {
    std::vector<int> axes;
    Index kept;
    for (int axis = 0; axis < 4; ++axis) {
      const bool reduced = (subset >> axis & 1u) != 0;
      if (reduced) axes.push_back(axis);
      kept.push_back(reduced ? 1 : extents[static_cast<std::size_t>(axis)]);
    }
    std::vector<std::vector<float>> terms;
    for_each_index(kept, [&](const Index&) { terms.emplace_back(); });
    for_each_index(extents, [&](const Index& at) {
      terms[source_of(at, kept)].push_back(values[offset_of(at, extents)]);
    });
    std::vector<float> expected, forwards;
    for (const std::vector<float>& list : terms) {
      expected.push_back(tree_sum<float>(static_cast<std::int64_t>(list.size()),
                                         [&](std::int64_t i) { return list[static_cast<std::size_t>(i)]; }));
      forwards.push_back(std::accumulate(list.begin(), list.end(), 0.0f));
    }
    order_matters = order_matters || expected != forwards;
    EXPECT_EQ(read(ops::sum(x, axes, true)), expected) << "axes " << subset;
    EXPECT_EQ(ops::sum(x, axes, true).shape(), shape_of(kept));
    EXPECT_EQ(read(ops::sum(x, axes)), expected);
    EXPECT_EQ(read(ops::sum_to(x, shape_of(kept))), expected)
        << "the adjoint of broadcasting is the same sum";
    std::reverse(axes.begin(), axes.end());
    EXPECT_EQ(read(ops::sum(x, axes, true)), expected) << "the order in which axes are named does not matter";
    const auto count = static_cast<float>(terms.front().size());
    for (float& value : expected) value /= count;
    EXPECT_EQ(read(ops::mean(x, axes, true)), expected);
  }
  EXPECT_TRUE(order_matters) << "the test could not distinguish orders";
}

TEST_F(ShapeTest, SixteenBitSumsOverAxesApartRoundOnce) {
  // (2, 2, 2) over axes 0 and 2: 2048 + 1 + 1 + 1, where a sum of FP16 sums would lose ones (ulp 2 at 2^11).
  const Variable x = tape.constant(halves_of(*backend, {2, 2, 2}, {2048, 1, 0, 0, 1, 1, 0, 0}));
  EXPECT_EQ(read(ops::sum(x, std::array{0, 2})), (std::vector<float>{2052, 0})) << "2051 rounds to even";
}

TEST_F(ShapeTest, EmptySumsAreZeroAndAnEmptySetOfAxesChangesNothing) {
  const Variable x = input({2, 0, 3}, {});
  EXPECT_EQ(read(ops::sum(x, std::array{1})), std::vector<float>(6, 0.0f));
  EXPECT_EQ(read(ops::sum(x)), std::vector<float>(1, 0.0f));
  EXPECT_EQ(read(ops::sum(x, std::array{0, 1, 2})), std::vector<float>(1, 0.0f));
  const Variable y = input({2, 2}, {1, 2, 3, 4});
  EXPECT_EQ(read(ops::sum(y, std::span<const int>())), read(y));
  EXPECT_EQ(ops::sum(y, std::span<const int>()).shape(), y.shape());
}

TEST_F(ShapeTest, PermutesSlicesAndPlacesAsIndexingSays) {
  const Index extents{3, 4, 5};
  const std::vector<float> values = [] {
    std::vector<float> list(60);
    std::iota(list.begin(), list.end(), 0.0f);
    return list;
  }();
  const Variable x = input(extents, values);
  std::array<int, 3> axes{0, 1, 2};
  do {
    const Variable y = ops::permute(x, axes);
    const Index permuted = extents_of(y.shape());
    std::vector<float> expected(60);
    for_each_index(extents, [&](const Index& at) {
      Index to;
      for (const int axis : axes) to.push_back(at[static_cast<std::size_t>(axis)]);
      expected[offset_of(to, permuted)] = values[offset_of(at, extents)];
    });
    EXPECT_EQ(read(y), expected);
  } while (std::next_permutation(axes.begin(), axes.end()));
  EXPECT_EQ(read(ops::transpose(x, 0, -1)), read(ops::permute(x, std::array{2, 1, 0})));
  EXPECT_EQ(read(ops::permute(x, std::array{-1, 0, 1})), read(ops::permute(x, std::array{2, 0, 1})));

  for (int axis = 0; axis < 3; ++axis) {
    const std::int64_t extent = extents[static_cast<std::size_t>(axis)];
    for (std::int64_t begin = 0; begin <= extent; ++begin) {
      for (std::int64_t length = 0; begin + length <= extent; ++length) {
        const Variable part = ops::slice(x, axis, begin, length);
        std::vector<float> expected, placed(60, 0.0f);
        for_each_index(extents, [&](const Index& at) {
          const std::int64_t i = at[static_cast<std::size_t>(axis)];
          if (i < begin || i >= begin + length) return;
          expected.push_back(values[offset_of(at, extents)]);
          placed[offset_of(at, extents)] = values[offset_of(at, extents)];
        });
        EXPECT_EQ(read(part), expected) << axis << begin << length;
        EXPECT_EQ(read(ops::place_slice(part, axis, begin, extent)), placed) << axis << begin << length;
      }
    }
    // Any number of parts, also empty ones, puts back together what was taken apart.
    std::vector<Variable> parts(static_cast<std::size_t>(extent));
    ops::split(x, axis, parts);
    for (std::size_t i = 0; i < parts.size(); ++i)
      EXPECT_EQ(read(parts[i]), read(ops::slice(x, axis, static_cast<std::int64_t>(i), 1)));
    std::vector<Variable> with_empty = parts;
    with_empty.push_back(ops::slice(x, axis, 0, 0));
    EXPECT_EQ(read(ops::concat(with_empty, axis)), values);
  }
}

TEST_F(ShapeTest, ConcatTakesAnyNumberOfPartsAndPromotes) {
  std::vector<Variable> parts;
  parts.reserve(200);
  for (int i = 0; i < 200; ++i) parts.push_back(input({1, 2}, {static_cast<float>(i), 1}));
  parts[7] = tape.constant(halves_of(*backend, {1, 2}, {7, 1}));
  const Variable all = ops::concat(parts, 0);
  EXPECT_EQ(all.dtype(), DType::f32);
  EXPECT_EQ(all.shape(), (Shape{200, 2}));
  const Variable weighted = ops::multiply(all, all);
  const auto gradient = tape.gradients(std::vector{ops::sum(weighted)}, {}, std::vector{parts[150]}).front();
  EXPECT_EQ(read(gradient), (std::vector<float>{300, 2}));
}

TEST_F(ShapeTest, SplitMovesEachElementOnceAHalving) {
  // 16 parts: 2 + 4 + 8 + 16 slices, and as many on the way back, instead of 16 gradients of the whole.
  const Variable x = input({16}, integers(16, 1));
  const std::size_t before = tape.node_count();
  std::array<Variable, 16> parts;
  ops::split(x, 0, parts);
  EXPECT_EQ(tape.node_count() - before, 30u);
  // What is split may be one of the parts.
  Variable& first = parts[0] = x;
  ops::split(first, 0, parts);
  for (std::size_t i = 0; i < parts.size(); ++i)
    EXPECT_EQ(read(parts[i]), read(ops::slice(x, 0, static_cast<std::int64_t>(i), 1)));
}

TEST_F(ShapeTest, IndexingAndItsAdjoint) {
  const Variable table = input({4, 2}, {0, 1, 10, 11, 20, 21, 30, 31});
  Tensor index = index_of(*backend, {3, 0, 3, 1, 3, 0});
  const Variable rows = ops::embedding(table, index.reshaped({2, 3}));
  EXPECT_EQ(rows.shape(), (Shape{2, 3, 2}));
  EXPECT_EQ(read(rows), (std::vector<float>{30, 31, 0, 1, 30, 31, 10, 11, 30, 31, 0, 1}));
  const Variable sums = ops::scatter_rows(rows, index.reshaped({2, 3}), 4);
  EXPECT_EQ(read(sums), (std::vector<float>{0, 2, 10, 11, 0, 0, 90, 93}));
  EXPECT_THROW(ops::embedding(table, index_of(*backend, {4})), std::out_of_range);
  EXPECT_THAT(message([&] { ops::embedding(rows, index); }),
              AllOf(HasSubstr("embedding"), HasSubstr("(2, 3, 2)")));
  EXPECT_THAT(message([&] { ops::embedding(table, table.tensor()); }),
              AllOf(HasSubstr("embedding"), HasSubstr("f32 (4, 2)"), HasSubstr("i32")));
  EXPECT_THAT(message([&] { ops::scatter_rows(rows, index, 4); }),
              AllOf(HasSubstr("scatter_rows"), HasSubstr("(2, 3, 2)"), HasSubstr("i32 (6)")));
}

TEST_F(ShapeTest, ErrorsNameTheOpAndTheShapes) {
  const Variable x = input({2, 3}, integers(6, 1)), y = input({2, 2}, integers(4, 1));
  EXPECT_THAT(message([&] {
                ops::permute(x, std::array{0, 0});
              }),
              AllOf(HasSubstr("permute"), HasSubstr("(0, 0)"), HasSubstr("f32 (2, 3)")));
  EXPECT_THAT(message([&] { ops::permute(x, std::array{0}); }), HasSubstr("permute"));
  EXPECT_THAT(message([&] { ops::transpose(x, 0, 2); }), AllOf(HasSubstr("permute"), HasSubstr("no axis 2")));
  EXPECT_THAT(message([&] { ops::slice(x, 1, 2, 2); }), AllOf(HasSubstr("slice"), HasSubstr("2 from 2 on"),
                                                              HasSubstr("[0, 3)"), HasSubstr("f32 (2, 3)")));
  EXPECT_THAT(message([&] { ops::slice(x, 1, -1, 2); }), HasSubstr("slice"));
  EXPECT_THAT(message([&] { ops::place_slice(x, 0, 1, 2); }),
              AllOf(HasSubstr("place_slice"), HasSubstr("2 from 1 on")));
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  EXPECT_THAT(message([&] { ops::slice(x, 0, most, most); }), HasSubstr("does not lie within"));
  EXPECT_THAT(message([&] { ops::place_slice(x, 0, 0, most); }), HasSubstr("at most 2^48 elements"));
  EXPECT_THAT(message([&] { ops::concat({}, 0); }), HasSubstr("concat"));
  EXPECT_THAT(message([&] {
                ops::concat(std::vector{x, y}, 0);
              }),
              AllOf(HasSubstr("concat"), HasSubstr("f32 (2, 3)"), HasSubstr("f32 (2, 2)")));
  EXPECT_THAT(message([&] { ops::split<2>(x, 1); }), AllOf(HasSubstr("slice"), HasSubstr("2 equal parts")));
  EXPECT_THAT(message([&] { ops::split(x, 1, {}); }), AllOf(HasSubstr("slice"), HasSubstr("0 equal parts")));
  EXPECT_THAT(message([&] { ops::sum(x, std::array{0, -2}); }), AllOf(HasSubstr("sum"), HasSubstr("twice")));
  EXPECT_THAT(message([&] { ops::sum_to(x, {2, 2}); }), AllOf(HasSubstr("(2, 3)"), HasSubstr("(2, 2)")));
  EXPECT_THAT(message([&] { ops::broadcast_to(x, {3}); }),
              AllOf(HasSubstr("broadcast_to"), HasSubstr("(3)")));
  EXPECT_THAT(message([&] { ops::maximum(x, y); }), AllOf(HasSubstr("maximum"), HasSubstr("(2, 2)")));
  for (const auto& call : std::vector<std::function<void()>>{
           [] { ops::permute({}, {}); }, [] { ops::slice({}, 0, 0, 1); },
           [] { ops::watch({}, SlotLabel::input); }, [] { ops::gelu({}); }, [] { ops::reshape({}, {1}); }}) {
    EXPECT_THROW(call(), AutogradError);
  }
}

}  // namespace
}  // namespace fp16lab::engine::test
