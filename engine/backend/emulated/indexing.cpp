// Elements and rows by index: pick and place, gather and scatter.
#include "engine/backend/checks.hpp"
#include "engine/backend/emulated/backend_impl.hpp"
#include "engine/backend/emulated/element_types.hpp"
#include "numerics/arithmetic/tree_reduce.hpp"
#include "numerics/platform/vector_clones.hpp"

namespace fp16lab::engine {

namespace {

template <class T>
void pick_all(checks::MatrixExtents extents, const Tensor& x, const Tensor& index, Tensor& out) {
  const std::span<const T> from = x.host<T>();
  const std::span<const std::int32_t> column = index.host<std::int32_t>();
  const std::span<T> to = out.host<T>();
  for (std::size_t row = 0; row < to.size(); ++row)
    to[row] = canonical(
        from[row * static_cast<std::size_t>(extents.columns) + static_cast<std::size_t>(column[row])]);
}

template <class T>
void place_all(checks::MatrixExtents extents, const Tensor& x, const Tensor& index, Tensor& out) {
  const std::span<const T> from = x.host<T>();
  const std::span<const std::int32_t> column = index.host<std::int32_t>();
  const std::span<T> to = out.host<T>();
  for (std::size_t row = 0; row < from.size(); ++row)
    to[row * static_cast<std::size_t>(extents.columns) + static_cast<std::size_t>(column[row])] =
        canonical(from[row]);
}

FP16LAB_VECTOR_CLONES
void copy_row(const float* x, float* out, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) out[i] = canonical(x[i]);
}
FP16LAB_VECTOR_CLONES
void copy_row(const Float16* x, Float16* out, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) out[i] = canonical(x[i]);
}
FP16LAB_VECTOR_CLONES
void copy_row(const BFloat16* x, BFloat16* out, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) out[i] = canonical(x[i]);
}

/// out = TREE over the `rows` >= 1 rows order[0], order[1], ... of x.
FP16LAB_VECTOR_CLONES
void sum_rows(const float* x, const std::int64_t* order, std::int64_t rows, std::int64_t columns,
              float* out) {
  tree_reduce_columns<float>(
      rows, columns, [=](std::int64_t row, std::int64_t column) { return x[order[row] * columns + column]; },
      [=](std::int64_t column, float result) { out[column] = result; }, TreeSum{});
}

/// How many rows of `elements` elements make a chunk worth a thread.
std::int64_t chunk_of(std::int64_t elements) {
  return std::max<std::int64_t>(1, elementwise_chunk / std::max<std::int64_t>(1, elements));
}

std::size_t to_size(std::int64_t n) { return static_cast<std::size_t>(n); }

/// A stable counting sort. On return, the positions i with index[i] == v are order[first[v]] to
/// order[first[v + 1] - 1], ascending. `first` has one element more than there are values.
void sort_positions(std::span<const std::int32_t> index, std::span<std::int64_t> first,
                    std::span<std::int64_t> order) {
  std::ranges::fill(first, std::int64_t{0});
  for (const std::int32_t value : index) ++first[to_size(value) + 1];
  for (std::size_t value = 1; value < first.size(); ++value) first[value] += first[value - 1];
  // first[v] is where v's segment starts. Filling moves it to the segment's end, where v + 1 starts: shift
  // back.
  for (std::size_t i = 0; i < index.size(); ++i)
    order[to_size(first[to_size(index[i])]++)] = static_cast<std::int64_t>(i);
  std::shift_right(first.begin(), first.end(), 1);
  first[0] = 0;
}

}  // namespace

void EmulatedBackend::do_pick(const Tensor& x, const Tensor& index, Tensor& out,
                              const checks::MatrixExtents& extents) {
  checks::index_range("pick", index.host<std::int32_t>(), extents.columns);
  with_element_type(x.dtype(), [&](auto tag) { pick_all<decltype(tag)>(extents, x, index, out); });
}

void EmulatedBackend::do_place(const Tensor& x, const Tensor& index, Tensor& out,
                               const checks::MatrixExtents& extents) {
  checks::index_range("place", index.host<std::int32_t>(), extents.columns);
  fill(out, 0.0);
  with_element_type(x.dtype(), [&](auto tag) { place_all<decltype(tag)>(extents, x, index, out); });
}

void EmulatedBackend::do_gather_rows(const Tensor& table, const Tensor& index, Tensor& out,
                                     const checks::MatrixExtents& extents) {
  const std::span<const std::int32_t> rows = index.host<std::int32_t>();
  checks::index_range("gather_rows", rows, extents.rows);
  const auto gather = [&](const auto* from, auto* to) {
    workers_.for_each_chunk(
        index.element_count(), chunk_of(extents.columns), [=](std::int64_t begin, std::int64_t end) {
          for (std::int64_t i = begin; i < end; ++i)
            copy_row(from + rows[to_size(i)] * extents.columns, to + i * extents.columns, extents.columns);
        });
  };
  with_element_type(table.dtype(), [&](auto tag) {
    using T = decltype(tag);
    gather(static_cast<const T*>(table.host<T>().data()), out.host<T>().data());
  });
}

void EmulatedBackend::do_scatter_rows(const Tensor& x, const Tensor& index, Tensor& out, CastProbe* probe,
                                      const checks::MatrixExtents& extents) {
  const FloatingPointScope scope;
  const std::span<const std::int32_t> rows = index.host<std::int32_t>();
  checks::index_range("scatter_rows", rows, extents.rows);

  const Storage scratch = pool_.allocate((to_size(extents.rows) + 1 + rows.size()) * sizeof(std::int64_t));
  auto* const words = reinterpret_cast<std::int64_t*>(scratch.data());
  const std::span<std::int64_t> first(words, to_size(extents.rows) + 1);
  const std::span<std::int64_t> order(words + first.size(), rows.size());
  sort_positions(rows, first, order);

  const Tensor wide = widened(x);
  Tensor result = out.dtype() == DType::f32 ? out : empty(out.shape(), DType::f32);
  const float* const from = wide.host<float>().data();
  float* const to = result.host<float>().data();
  workers_.for_each_chunk(extents.rows, chunk_of(extents.columns), [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const std::int64_t* const segment = order.data() + first[to_size(row)];
      const std::int64_t count = first[to_size(row) + 1] - first[to_size(row)];
      float* const sum = to + row * extents.columns;
      if (count == 0) {
        std::fill(sum, sum + extents.columns, 0.0f);
      } else if (count == 1) {
        copy_row(from + *segment * extents.columns, sum, extents.columns);
      } else {
        sum_rows(from, segment, count, extents.columns, sum);
      }
    }
  });
  store(result, out, probe);
}

}  // namespace fp16lab::engine
