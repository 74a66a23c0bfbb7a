// Conformance: elements and rows by index.
#include <cmath>
#include <limits>
#include <numeric>

#include "tests/engine/backend/conformance.hpp"
#include "tests/support/message_of.hpp"

namespace fp16lab::engine::test {
namespace {

using testing_support::message_of;

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
  check(random_brains(rows * columns, Kind::special, 26), random_brains(rows, Kind::special, 27),
        DType::bf16);
}

TEST_P(BackendConformance, PickNamesTheRowThatIsOutOfRange) {
  const Tensor x = tensor(Shape{3, 4}, std::vector<float>(12, 1.0f));
  Tensor out = output(Shape{3}, DType::f32);
  for (const std::int32_t bad : {-1, 4}) {
    try {
      backend().pick(x, tensor(std::vector<std::int32_t>{0, bad, 3}), out);
      values_of<float>(out);  // a device may run behind the host: then who hands numbers to the host throws
      FAIL() << "an index of " << bad << " was accepted";
    } catch (const std::out_of_range& error) {
      EXPECT_EQ(error.what(), "pick: index[1] is " + std::to_string(bad) + ", which is not in [0, 4)");
    }
  }
}

// ---- gather and scatter ----

struct Lookup {
  std::int64_t symbols, features;
  std::vector<std::int32_t> index;
};

/// Absent and single symbols, repeated ones in mixed order, one symbol more than 1024 times (two chunks of TREE) and
/// more than 64 columns (two blocks of columns).
std::vector<Lookup> lookups() {
  std::vector<Lookup> all{
      {5, 3, {4}}, {5, 3, {}}, {1, 7, {0, 0, 0}}, {6, 1, {3, 3, 5, 0, 3, 5}}, {4, 0, {1, 1}}};
  const auto mixed = [](std::int64_t symbols, std::int64_t features, std::int64_t count) {
    std::vector<std::int32_t> index;
    for (std::int64_t i = 0; i < count; ++i)  // squares are half of all residues: the others stay absent
      index.push_back(static_cast<std::int32_t>(i * i % symbols));
    return Lookup{symbols, features, index};
  };
  all.push_back(mixed(67, 130, 3000));
  all.push_back(mixed(2003, 33, 2500));
  Lookup skewed = mixed(11, 65, 2300);
  for (std::size_t i = 0; i < skewed.index.size(); ++i)
    if (i % 7 != 0) skewed.index[i] = 6;
  all.push_back(skewed);
  Lookup around{12, 5, {}};  // fewer entries than TREE has lanes, as many, more, and whole rounds of lanes
  const std::int64_t entries[] = {31, 32, 33, 63, 64, 65, 127, 128, 129, 160, 1024, 1025};
  for (std::int64_t i = 0; i < 1025; ++i)
    for (std::int32_t symbol = 0; symbol < 12; ++symbol)
      if (i < entries[symbol]) around.index.push_back(symbol);
  all.push_back(around);
  return all;
}

TEST_P(BackendConformance, GatherRowsCopiesRows) {
  for (const Lookup& c : lookups()) {
    const auto check = [&](const auto& table, DType dtype) {
      using T = typename std::decay_t<decltype(table)>::value_type;
      std::vector<T> expected;
      for (const std::int32_t row : c.index)
        for (std::int64_t column = 0; column < c.features; ++column)
          expected.push_back(
              stored_as(canonical(wide(table[static_cast<std::size_t>(row * c.features + column)])), T{}));
      const auto n = static_cast<std::int64_t>(c.index.size());
      Tensor out = output(Shape{n, c.features}, dtype);
      backend().gather_rows(tensor(Shape{c.symbols, c.features}, table), tensor(Shape{1, n}, c.index), out);
      expect_same_bits(values_of<T>(out), expected, "gather_rows");
    };
    check(random_floats(c.symbols * c.features, Kind::special, 91), DType::f32);
    check(random_halves(c.symbols * c.features, Kind::special, 92), DType::f16);
    check(random_brains(c.symbols * c.features, Kind::special, 92), DType::bf16);
  }
}

TEST_P(BackendConformance, ScatterRowsIsTreeInAscendingPositions) {
  for (const Lookup& c : lookups())
    for (const Kind kind : {Kind::cancelling, Kind::special}) {
      const auto check = [&](const auto& x, DType dtype) {
        using T = typename std::decay_t<decltype(x)>::value_type;
        std::vector<std::vector<std::size_t>> positions(static_cast<std::size_t>(c.symbols));
        for (std::size_t i = 0; i < c.index.size(); ++i)
          positions[static_cast<std::size_t>(c.index[i])].push_back(i);
        const auto columns = static_cast<std::size_t>(c.features);
        std::vector<float> unrounded;
        for (const std::vector<std::size_t>& ascending : positions)
          for (std::size_t column = 0; column < columns; ++column) {
            const std::vector<float> segment =
                mapped(ascending, [&](std::size_t i) { return wide(x[i * columns + column]); });
            const auto add = [](float a, float b) { return a + b; };
            unrounded.push_back(segment.empty() ? 0.0f : canonical(naive_tree<float>(segment, add)));
          }
        const std::vector<T> expected = mapped(unrounded, [](float value) { return stored_as(value, T{}); });
        const auto n = static_cast<std::int64_t>(c.index.size());
        Tensor out = output(Shape{c.symbols, c.features}, dtype);
        CastProbe probe;
        backend().scatter_rows(tensor(Shape{n, c.features}, x), tensor(c.index), out, &probe);
        expect_same_bits(values_of<T>(out), expected, "scatter_rows");
        EXPECT_EQ(settled(probe).before, naive_histogram(unrounded));
        EXPECT_EQ(probe.after, naive_histogram(expected));
      };
      const std::int64_t elements = static_cast<std::int64_t>(c.index.size()) * c.features;
      check(random_floats(elements, kind, 93), DType::f32);
      check(random_halves(elements, kind, 94), DType::f16);
      check(random_brains(elements, kind, 94), DType::bf16);
    }
}

TEST_P(BackendConformance, ScatterRowsAddsInTreeOrderAndRoundsOnce) {
  // As for reduce: 1 at position 0 of its segment and 2^-24 at 1 and 17 meet in the fold of distance 16, and survive.
  // Other symbols lie between them, so only a sort that keeps the positions' order gives this.
  std::vector<std::int32_t> index;
  std::vector<float> x;
  for (int i = 0; i < 18; ++i) {
    index.insert(index.end(), {1, 0});
    x.insert(x.end(), {i == 0 ? 1.0f : i == 1 || i == 17 ? 0x1p-24f : 0.0f, 100.0f});
  }
  Tensor out = output(Shape{3, 1}, DType::f32);
  backend().scatter_rows(tensor(x), tensor(index), out);
  expect_same_bits(values_of<float>(out), {1800.0f, 1.0f + 0x1p-23f, 0.0f}, "two small ones meet first");
  // f16: 2048 + 1 + 1 in FP32 is 2050; rounded in between it would stay 2048.
  Tensor half = output(Shape{1, 1}, DType::f16);
  backend().scatter_rows(tensor(mapped(std::vector{2048.0f, 1.0f, 1.0f}, [](float v) { return half_of(v); })),
                         tensor(std::vector<std::int32_t>{0, 0, 0}), half);
  expect_same_bits(values_of<Float16>(half), {half_of(2050.0f)}, "one rounding");
  Tensor lone = output(Shape{2, 1}, DType::f32);
  backend().scatter_rows(tensor(std::vector{-0.0f}), tensor(std::vector<std::int32_t>{1}), lone);
  expect_same_bits(values_of<float>(lone), {0.0f, -0.0f}, "absent rows are +0, a lone -0 stays");
}

TEST_P(BackendConformance, RowsOutOfRangeAreNamed) {
  Tensor table = output(Shape{4, 2}, DType::f32), rows = output(Shape{3, 2}, DType::f32);
  for (const std::int32_t bad : {-1, 4}) {
    const Tensor index = tensor(std::vector<std::int32_t>{0, 3, bad});
    const std::string what = "index[2] is " + std::to_string(bad) + ", which is not in [0, 4)";
    const auto gather = [&] {
      backend().gather_rows(table, index, rows);
      values_of<float>(rows);
    };
    const auto scatter = [&] {
      backend().scatter_rows(rows, index, table);
      values_of<float>(table);
    };
    EXPECT_THROW(gather(), std::out_of_range);
    EXPECT_EQ(message_of(gather), "gather_rows: " + what);
    EXPECT_THROW(scatter(), std::out_of_range);
    EXPECT_EQ(message_of(scatter), "scatter_rows: " + what);
  }
  const Tensor index = tensor(std::vector<std::int32_t>{0, 3});
  EXPECT_EQ(message_of([&] { backend().gather_rows(table, index, rows); }),
            "gather_rows: out is f32 (3, 2); it must have 4 elements, 2 rows of 2");
  EXPECT_EQ(message_of([&] { backend().scatter_rows(table, index, rows); }),
            "scatter_rows: x is f32 (4, 2); it must have 4 elements, 2 rows of 2");
  EXPECT_EQ(message_of([&] { backend().gather_rows(table, rows, rows); }),
            "gather_rows: index is f32 (3, 2); i32 is needed");
}

TEST_P(BackendConformance, TheFirstIndexOutOfRangeIsNamedOnce) {
  // Of two calls the first, of its rows the lowest, whichever verb hands numbers to the host next.
  std::vector<std::int32_t> many(3000, 1);
  for (std::size_t row = 777; row < many.size(); row += 5) many[row] = row % 2 == 0 ? -3 : 4;
  many[777] = std::numeric_limits<std::int32_t>::min();
  const Tensor bad = tensor(many), worse = tensor(std::vector<std::int32_t>{-1, 9, 9});
  const Tensor table = tensor(Shape{4, 2}, std::vector<float>(8, 1.0f));
  Tensor rows = output(Shape{3000, 2}, DType::f32), few = output(Shape{3}, DType::f32);
  Tensor step = backend().make_step_state(StepState{});
  const Tensor three = tensor(Shape{3, 4}, std::vector<float>(12, 1.0f));
  const std::vector<std::function<void()>> handing{[&] { values_of<float>(few); },
                                                   [&] { (void)backend().digest(three, 1); },
                                                   [&] { (void)backend().read_step_state(step); },
                                                   [&] {
                                                     ExponentHistogram counts;
                                                     backend().histogram(three, counts);
                                                   },
                                                   [&] {
                                                     CastProbe probe;
                                                     backend().histogram(three, probe);
                                                     (void)settled(probe);
                                                   }};
  for (const std::function<void()>& hand : handing) {
    EXPECT_EQ(message_of([&] {
                backend().gather_rows(table, bad, rows);
                backend().pick(three, worse, few);
                hand();
              }),
              "gather_rows: index[777] is -2147483648, which is not in [0, 4)");
    hand();  // forgotten once it is told
  }
  backend().pick(three, tensor(std::vector<std::int32_t>{0, 3, 1}), few);
  expect_same_bits(values_of<float>(few), {1.0f, 1.0f, 1.0f}, "after an error");
}

}  // namespace
}  // namespace fp16lab::engine::test
