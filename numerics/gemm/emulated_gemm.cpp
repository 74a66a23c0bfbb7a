// The emulated tensor-core GEMM: blocking, threads, and which kernel computes which tile.
//
// The ladder from definition to speed:
//   fused_dot_add (tensor_core_model.hpp)   the definition, one output at a time
//   emulated_gemm_pack-inl.h                operands decoded once, in the order of use
//   emulated_gemm_general-inl.h             the definition in FP64 lanes, for every row of the table and all
//                                           data
//   emulated_gemm_kernel-inl.h              in FP32 lanes, for data that stay in bounds
//   emulated_gemm_groups-inl.h              the same where groups of products are exact
//   this file                               cache blocks and threads around them
// Rows whose stages are fmas alone are in fma_row_gemm.cpp, libraries' orders in planned_gemm.cpp.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "numerics/convert/convert.hpp"
#include "numerics/formats/bits.hpp"
#include "numerics/gemm/emulated_gemm_kernels.hpp"
#include "numerics/gemm/emulated_gemm_limits.hpp"
#include "numerics/gemm/emulated_gemm_scales.hpp"
#include "numerics/gemm/fma_chain_kernels.hpp"
#include "numerics/gemm/gemm.hpp"
#include "numerics/gemm/gemm_support.hpp"
#include "numerics/platform/floating_point_scope.hpp"
#include "numerics/platform/worker_pool.hpp"

namespace fp16lab::gemm_detail {
namespace {

// Cache blocks, in elements: packed, A takes half a megabyte, a panel of B 80 KiB, so that both stay in the
// second level. Between blocks of K an accumulator rests in D in the format that it has anyway.
constexpr std::int64_t m_block = 128;
constexpr std::int64_t n_block = 2048;
constexpr std::int64_t k_block = 512;  // more or less, so that blocks are equal
constexpr std::int64_t multiply_adds_per_thread = std::int64_t{1} << 18;
static_assert(m_block % row_block == 0 && n_block % max_columns == 0);

void check_model(const TensorCoreModel& model, const Operand& a, const Operand& b, DType format) {
  for (const Operand* operand : {&a, &b})
    if (!model.operands.contains(operand->format))
      throw std::invalid_argument(fmt::format("emulated_gemm: this row of model '{}' has no {} operands",
                                              model.name, name_of(operand->format)));
  if (model.accumulator() != format)
    throw std::invalid_argument(
        fmt::format("emulated_gemm: this row of model '{}' accumulates in {}, but C and D are {}", model.name,
                    name_of(model.accumulator()), name_of(format)));
  // The definition checks the parameters.
  fused_dot_add(model, a.format, {}, b.format, {}, 0);
}

/// Where D and C are, what they hold, and the steps between neighbouring outputs in memory. The kernel's rows
/// are D's rows, or D's columns where D^T is computed; one of the steps is 1.
struct OutputMatrix {
  DType format;
  const void* c;
  void* d;
  std::int64_t row_step, column_step;

  std::int64_t offset(std::int64_t i, std::int64_t j) const { return i * row_step + j * column_step; }

  void load(const void* from, std::int64_t at, float* to, std::size_t count) const {
    if (format == DType::f32)
      std::memcpy(to, static_cast<const float*>(from) + at, count * sizeof(float));
    else
      widen(std::span(static_cast<const Float16*>(from) + at, count), std::span(to, count));
  }
  void store(const float* from, std::int64_t at, std::size_t count) const {
    if (format == DType::f32)
      std::memcpy(static_cast<float*>(d) + at, from, count * sizeof(float));
    else
      narrow(std::span(from, count), std::span(static_cast<Float16*>(d) + at, count));
  }
};

/// The part of D that a tile computes.
struct TilePlace {
  std::int64_t row, column;
  std::size_t rows, columns;
};

/// Brings accumulators into a tile ([row_block][width]; `from` null: +0).
void load_tile(const OutputMatrix& out, const void* from, const TilePlace& place, std::size_t width,
               float* tile) {
  if (from == nullptr || place.columns < width) std::fill_n(tile, row_block * width, 0.0f);
  if (from == nullptr) return;
  if (out.column_step == 1) {
    for (std::size_t r = 0; r < place.rows; ++r)
      out.load(from, out.offset(place.row + to_index(r), place.column), tile + r * width, place.columns);
    return;
  }
  float run[row_block];
  for (std::size_t j = 0; j < place.columns; ++j) {
    out.load(from, out.offset(place.row, place.column + to_index(j)), run, place.rows);
    for (std::size_t r = 0; r < place.rows; ++r) tile[r * width + j] = run[r];
  }
}

void store_tile(const OutputMatrix& out, const float* tile, const TilePlace& place, std::size_t width) {
  if (out.column_step == 1) {
    for (std::size_t r = 0; r < place.rows; ++r)
      out.store(tile + r * width, out.offset(place.row + to_index(r), place.column), place.columns);
    return;
  }
  float run[row_block];
  for (std::size_t j = 0; j < place.columns; ++j) {
    for (std::size_t r = 0; r < place.rows; ++r) run[r] = tile[r * width + j];
    out.store(run, out.offset(place.row, place.column + to_index(j)), place.rows);
  }
}

/// Do the bits of all elements pass the test?
template <class Test>
bool all_of(const float* tile, std::size_t count, const Test& test) {
  bool all = true;
  for (std::size_t i = 0; i < count; ++i) all = all & test(bits_of(tile[i]));
  return all;
}

/// A narrow, tall D would leave most lanes of a tile empty. a * b is commutative bit for bit and every output
/// is its own chain over ascending k, so D^T = B^T A^T has the same bits.
bool transpose_fits_better(GemmShape shape, std::size_t width) {
  const auto padded = [width](std::int64_t n) { return to_index(round_up(to_size(n), width)); };
  return padded(shape.m) * shape.n < padded(shape.n) * shape.m;
}

/// Word (row, column) of a logical matrix.
std::uint32_t word_at(const Operand& x, std::int64_t row, std::int64_t column) {
  const std::int64_t at =
      x.transposed ? column * x.leading_dimension + row : row * x.leading_dimension + column;
  return visit_dtype<is_operand>(x.format, [&](auto dtype) -> std::uint32_t {
    using F = typename decltype(dtype)::Format;
    return static_cast<const typename F::Bits*>(x.data)[at];
  });
}

/// Code (row, column) of a logical matrix of bytes.
const std::uint8_t* byte_at(const Operand& x, std::int64_t row, std::int64_t column) {
  return static_cast<const std::uint8_t*>(x.data) +
         (x.transposed ? column * x.leading_dimension + row : row * x.leading_dimension + column);
}

/// By the definition itself: for stages that no kernel has, and numbers beyond every row of the table.
void scalar_gemm(const TensorCoreModel& model, GemmShape shape, const Operand& a, const Operand& b,
                 const OutputMatrix& out, const Scales& scales) {
  std::vector<std::uint32_t> row(to_size(shape.k)), column(to_size(shape.k));
  std::vector<std::uint32_t> row_scales(scales.kind.block > 0 ? to_size(shape.k / scales.kind.block) : 0),
      column_scales(row_scales.size());
  const bool halves = out.format == DType::f16;
  for (std::int64_t i = 0; i < shape.m; ++i) {
    for (std::int64_t k = 0; k < shape.k; ++k) row[to_size(k)] = word_at(a, i, k);
    for (std::size_t k = 0; k < row_scales.size(); ++k) row_scales[k] = *byte_at(scales.a, i, to_index(k));
    for (std::int64_t j = 0; j < shape.n; ++j) {
      for (std::int64_t k = 0; k < shape.k; ++k) column[to_size(k)] = word_at(b, k, j);
      for (std::size_t k = 0; k < row_scales.size(); ++k)
        column_scales[k] = *byte_at(scales.b, to_index(k), j);
      const std::int64_t at = out.offset(i, j);
      std::uint32_t c = 0;
      if (out.c != nullptr)
        c = halves ? static_cast<const Float16*>(out.c)[at].bits()
                   : bits_of(static_cast<const float*>(out.c)[at]);
      const std::uint32_t word =
          fused_dot_add(model, a.format, row, b.format, column, c, {scales.kind, row_scales, column_scales});
      if (halves)
        static_cast<Float16*>(out.d)[at] = Float16::from_bits(static_cast<std::uint16_t>(word));
      else
        static_cast<float*>(out.d)[at] = float_from_bits(word);
    }
  }
}

void copy_accumulators(GemmShape shape, const OutputMatrix& out) {
  if (out.c == out.d) return;
  const std::size_t size = out.format == DType::f32 ? sizeof(float) : sizeof(Float16);
  for (std::int64_t i = 0; i < shape.m; ++i) {
    const std::size_t at = to_size(out.offset(i, 0)) * size, bytes = to_size(shape.n) * size;
    std::byte* const to = static_cast<std::byte*>(out.d) + at;
    if (out.c == nullptr)
      std::memset(to, 0, bytes);
    else
      std::memcpy(to, static_cast<const std::byte*>(out.c) + at, bytes);
  }
}

/// One block of the product: all tiles of `extent` outputs at (row, column), for K in [k, k + extent.k).
struct Block {
  std::int64_t row, column, k;
  GemmShape extent;
};

/// One product, seen as the kernels see it: shape, operands and output may be those of D^T. With `packed_b`,
/// memory for all panels of B, they are those of D, and run() takes the panels as pack_all_b() left them.
class Product {
 public:
  Product(const KernelRow& rule, GemmShape shape, const Operand& a, const Operand& b, const OutputMatrix& out,
          std::byte* packed_b, const Scales& scales = {})
      : rule_(rule),
        kernels_(emulated_kernels()),
        width_(kernels_.columns),
        shape_(shape),
        a_(a),
        b_(b),
        out_(out),
        scales_(scales),
        fast_tiles_(rule, a.format, b.format),
        b_is_packed_(packed_b != nullptr),
        packs_scales_(rule.scales.block > 0 && !b_is_packed_ && takes_scales_when_packed(rule)),
        packs_groups_(!b_is_packed_ && takes_groups(rule, a.format, b.format)) {
    if (!b_is_packed_ && transpose_fits_better(shape, width_)) {
      std::swap(shape_.m, shape_.n);
      std::swap(a_, b_);
      std::swap(scales_.a, scales_.b);
      for (Operand* const operand : {&a_, &b_, &scales_.a, &scales_.b})
        operand->transposed = !operand->transposed;
      std::swap(out_.row_step, out_.column_step);
    }
    // Equal blocks of K, which no fused block and no block of scales straddles.
    const std::int64_t blocks = std::max<std::int64_t>(1, (shape_.k + k_block / 2) / k_block);
    const std::size_t whole = std::lcm(rule.step(), static_cast<std::size_t>(std::max(1, rule.scales.block)));
    k_step_ = to_index(round_up(to_size((shape_.k + blocks - 1) / blocks), whole));
    b_depth_ = round_up(to_size(std::min(shape_.k, k_step_)), group);
    reserve(packed_b);
  }

  /// The bytes of `packed_b`.
  std::size_t packed_bytes() const {
    return panels_in_memory() * (width_ * b_depth_ * (sizeof(float) + 1) + sizeof(ExponentRange));
  }

  void pack_all_b(int threads) const {
    const std::int64_t panels = panels_of(shape_.n);
    share_tasks(panels_in_memory(), threads, [&](std::size_t task) {
      const std::int64_t k = to_index(task) / panels * k_step_;
      pack_b({0, 0, k, {0, shape_.n, std::min(shape_.k - k, k_step_)}}, to_index(task) % panels);
    });
  }

  void run(int threads) {
    for (std::int64_t column = 0; column < shape_.n; column += n_block) {
      for (std::int64_t k = 0; k < shape_.k; k += k_step_) {
        for (std::int64_t row = 0; row < shape_.m; row += m_block) {
          const Block block{row,
                            column,
                            k,
                            {std::min(shape_.m - row, m_block), std::min(shape_.n - column, n_block),
                             std::min(shape_.k - k, k_step_)}};
          const std::int64_t panels = panels_of(block.extent.n);
          const std::int64_t row_blocks = (block.extent.m + to_index(row_block) - 1) / to_index(row_block);
          // Panels of B, once for all rows, and row blocks of A.
          const std::int64_t packed_panels = row == 0 && !b_is_packed_ ? panels : 0;
          share_tasks(to_size(packed_panels + row_blocks), threads, [&](std::size_t task) {
            const std::int64_t i = to_index(task);
            if (i < packed_panels)
              pack_b(block, i);
            else
              pack_a(block, i - packed_panels);
          });
          share_tasks(to_size(panels * row_blocks), threads, [&](std::size_t task) {
            run_tile(block, to_index(task) % row_blocks, to_index(task) / row_blocks);
          });
        }
      }
    }
  }

 private:
  static std::size_t packed_depth(const Block& block) { return round_up(to_size(block.extent.k), group); }

  std::int64_t panels_of(std::int64_t columns) const {
    return (columns + to_index(width_) - 1) / to_index(width_);
  }
  /// Panels that memory holds at a time: those of all blocks, or of one.
  std::size_t panels_in_memory() const {
    if (!b_is_packed_) return to_size(panels_of(std::min(shape_.n, n_block)));
    return to_size(panels_of(shape_.n) * ((shape_.k + k_step_ - 1) / k_step_));
  }
  std::int64_t place_of(const Block& block, std::int64_t panel) const {
    if (!b_is_packed_) return panel;
    return block.k / k_step_ * panels_of(shape_.n) + block.column / to_index(width_) + panel;
  }

  void reserve(std::byte* packed_b) {
    static thread_local struct {
      Scratch<float> a_values, b_values;
      Scratch<std::uint32_t> a_exponents;
      Scratch<std::int8_t> b_exponents;
      Scratch<ExponentRange> a_ranges, b_ranges;
      Scratch<std::uint8_t> a_elements;
      Scratch<std::int8_t> b_elements;
      Scratch<std::int32_t> a_scales, b_scales, b_starts;
    } packed;
    const std::size_t rows = round_up(to_size(std::min(shape_.m, m_block)), row_block);
    a_ranges_ = packed.a_ranges.reserve(rows / row_block);
    const std::size_t panels = panels_in_memory(), elements = panels * width_ * b_depth_;
    if (packs_groups_) {
      const auto size = to_size(rule_.exact_group);
      groups_ = {packed.a_elements.reserve(rows * b_depth_), packed.b_elements.reserve(elements),
                 packed.a_scales.reserve(rows * b_depth_ / size), packed.b_scales.reserve(elements / size),
                 packed.b_starts.reserve(elements / size)};
      b_ranges_ = packed.b_ranges.reserve(panels);
      return;
    }
    a_values_ = packed.a_values.reserve(rows * b_depth_);
    a_exponents_ = packed.a_exponents.reserve(rows * b_depth_);
    if (b_is_packed_) {
      b_values_ = reinterpret_cast<float*>(packed_b);
      b_exponents_ = reinterpret_cast<std::int8_t*>(b_values_ + elements);
      b_ranges_ = reinterpret_cast<ExponentRange*>(b_exponents_ + elements);
    } else {
      b_values_ = packed.b_values.reserve(elements);
      b_exponents_ = packed.b_exponents.reserve(elements);
      b_ranges_ = packed.b_ranges.reserve(panels);
    }
  }

  void pack_a(const Block& block, std::int64_t index) const {
    const std::size_t depth = packed_depth(block), at = to_size(index) * row_block * depth;
    const std::int64_t row = block.row + index * to_index(row_block);
    if (packs_groups_) {
      const PackedGroups to = groups_from(at, 0);
      kernels_.pack_group_a(a_, shape_, row, block.k, depth, to);
      a_ranges_[index] = scale_groups(rule_, scales_of_a(block, row), codes_of(a_, false, row, block.k),
                                      std::min(row_block, to_size(shape_.m - row)), to_size(block.extent.k),
                                      row_block, to.a_scales);
      return;
    }
    a_ranges_[index] =
        kernels_.pack_a(a_, shape_, row, block.k, depth, rule_, a_values_ + at, a_exponents_ + at);
    if (!packs_scales_) return;
    scale_packed_a(rule_, scales_of_a(block, row), std::min(row_block, to_size(shape_.m - row)),
                   to_size(block.extent.k), a_values_ + at, a_exponents_ + at, a_ranges_[index]);
  }

  void pack_b(const Block& block, std::int64_t index) const {
    const std::int64_t place = place_of(block, index), column = block.column + index * to_index(width_);
    const std::size_t at = to_size(place) * width_ * b_depth_;
    if (packs_groups_) {
      const PackedGroups to = groups_from(0, at);
      kernels_.pack_group_b(b_, shape_, column, block.k, packed_depth(block), rule_, to);
      b_ranges_[place] = scale_groups(rule_, scales_of_b(block, column), codes_of(b_, true, block.k, column),
                                      std::min(width_, to_size(shape_.n - column)), to_size(block.extent.k),
                                      width_, to.b_scales);
      return;
    }
    b_ranges_[place] = kernels_.pack_b(b_, shape_, column, block.k, packed_depth(block), rule_,
                                       b_values_ + at, b_exponents_ + at);
    if (!packs_scales_) return;
    scale_packed_b(rule_, scales_of_b(block, column), std::min(width_, to_size(shape_.n - column)),
                   to_size(block.extent.k), width_, b_values_ + at, b_exponents_ + at, b_ranges_[place]);
  }

  PartCodes scales_of_a(const Block& block, std::int64_t row) const {
    const TileScales scales = scales_of({row, 0, 0, 0}, block.k / rule_.scales.block);
    return {scales.a, scales.a_row_step, scales.a_block_step};
  }
  PartCodes scales_of_b(const Block& block, std::int64_t column) const {
    const TileScales scales = scales_of({0, column, 0, 0}, block.k / rule_.scales.block);
    return {scales.b, scales.b_column_step, scales.b_block_step};
  }
  /// The codes of a matrix of bytes from (row, column) on, whose lines are its rows or its columns.
  static PartCodes codes_of(const Operand& x, bool lines_are_columns, std::int64_t row, std::int64_t column) {
    const std::int64_t down = x.transposed ? 1 : x.leading_dimension,
                       across = x.transposed ? x.leading_dimension : 1;
    return {byte_at(x, row, column), lines_are_columns ? across : down, lines_are_columns ? down : across};
  }
  /// groups_ from these elements on.
  PackedGroups groups_from(std::size_t a_at, std::size_t b_at) const {
    const auto size = to_size(rule_.exact_group);
    return {groups_.a + a_at, groups_.b + b_at, groups_.a_scales + a_at / size,
            groups_.b_scales + b_at / size, groups_.b_starts + b_at / size};
  }

  TileScales scales_of(const TilePlace& place, std::int64_t block) const {
    const auto step = [](const Operand& x, bool along_columns) {
      return along_columns == x.transposed ? x.leading_dimension : 1;
    };
    return {byte_at(scales_.a, place.row, block),
            byte_at(scales_.b, block, place.column),
            step(scales_.a, false),
            step(scales_.a, true),
            step(scales_.b, false),
            step(scales_.b, true)};
  }

  void run_tile(const Block& block, std::int64_t a_index, std::int64_t b_index) const {
    TilePlace place{block.row + a_index * to_index(row_block), block.column + b_index * to_index(width_), 0,
                    0};
    place.rows = std::min(row_block, to_size(shape_.m - place.row));
    place.columns = std::min(width_, to_size(shape_.n - place.column));
    const void* const initial = block.k > 0 ? out_.d : out_.c;
    const std::size_t a_at = to_size(a_index) * row_block * packed_depth(block);
    const std::int64_t b_place = place_of(block, b_index);
    const std::size_t b_at = to_size(b_place) * width_ * b_depth_;
    const ExponentRange &a = a_ranges_[a_index], &b = b_ranges_[b_place];

    alignas(64) float accumulators[row_block * max_columns];
    EmulatedTile tile{.row = &rule_,
                      .depth = to_size(block.extent.k),
                      .rows = place.rows,
                      .floor = FastTiles::least_floor,
                      .tile = accumulators};
    if (packs_groups_) {
      tile.groups = groups_from(a_at, b_at);
    } else {
      tile.a_values = a_values_ + a_at;
      tile.a_exponents = a_exponents_ + a_at;
      tile.b_values = b_values_ + b_at;
      tile.b_exponents = b_exponents_ + b_at;
      tile.a_has_scales = a.has_scales;
      tile.b_has_scales = b.has_scales;
    }
    load_tile(out_, initial, place, width_, accumulators);
    tile.columns = place.columns;
    if (rule_.scales.block > 0) tile.scales = scales_of(place, block.k / rule_.scales.block);
    const bool fast =
        (rule_.scales.block == 0 || (a.has_scales && b.has_scales)) && bounds(a, b, initial != nullptr, tile);
    if (!fast || !kernels_.run_fast(tile)) {
      if (fast) load_tile(out_, initial, place, width_, accumulators);
      if (packs_groups_) pack_for_general(block, place, tile);
      kernels_.run_general(tile);
    }
    store_tile(out_, accumulators, place, width_);
  }

  /// Packs a tile's operands, whose groups alone were, once more.
  void pack_for_general(const Block& block, const TilePlace& place, EmulatedTile& tile) const {
    static thread_local struct {
      Scratch<float> a_values, b_values;
      Scratch<std::uint32_t> a_exponents;
      Scratch<std::int8_t> b_exponents;
    } packed;
    const std::size_t depth = packed_depth(block);
    float* const a_values = packed.a_values.reserve(row_block * depth);
    std::uint32_t* const a_exponents = packed.a_exponents.reserve(row_block * depth);
    float* const b_values = packed.b_values.reserve(width_ * depth);
    std::int8_t* const b_exponents = packed.b_exponents.reserve(width_ * depth);
    kernels_.pack_a(a_, shape_, place.row, block.k, depth, rule_, a_values, a_exponents);
    kernels_.pack_b(b_, shape_, place.column, block.k, depth, rule_, b_values, b_exponents);
    tile.a_values = a_values;
    tile.a_exponents = a_exponents;
    tile.b_values = b_values;
    tile.b_exponents = b_exponents;
  }

  /// May the fast kernel have the tile? Then its bounds are set.
  bool bounds(const ExponentRange& a, const ExponentRange& b, bool has_accumulators,
              EmulatedTile& tile) const {
    if (rule_.exact_group > 1) {
      const auto of_groups = fast_tiles_.of_groups(a, b);
      if (!of_groups) return false;
      tile.least_place = of_groups->least_place;
      tile.limit = of_groups->limit;
      tile.in_integers = of_groups->in_integers;
      return true;
    }
    const FastTiles::Terms terms = fast_tiles_.terms(a, b, tile.depth);
    const auto all = [&](const auto& test) {
      return !has_accumulators || all_of(tile.tile, tile.rows * width_, test);
    };
    tile.floor = terms.floor;
    tile.adds_exponents = terms.small_bits > 0 && all([&](std::uint32_t c) { return terms.is_small(c); });
    return terms.admitted && all([&](std::uint32_t c) { return terms.admits_accumulator(c); });
  }

  const KernelRow& rule_;
  const EmulatedKernels& kernels_;
  std::size_t width_;  ///< a panel's width
  GemmShape shape_;
  Operand a_, b_;
  OutputMatrix out_;
  Scales scales_;
  FastTiles fast_tiles_;
  bool b_is_packed_, packs_scales_, packs_groups_;
  std::int64_t k_step_ = 0;
  std::size_t b_depth_ = 0;  ///< a panel's depth in memory
  // Packed operands, one ExponentRange for each row block and panel.
  float *a_values_ = nullptr, *b_values_ = nullptr;
  std::uint32_t* a_exponents_ = nullptr;
  std::int8_t* b_exponents_ = nullptr;
  PackedGroups groups_;  ///< in place of them
  ExponentRange *a_ranges_ = nullptr, *b_ranges_ = nullptr;
};

void check_gemm_scales(const TensorCoreModel& model, GemmShape shape, const Scales& scales) {
  const ScaleKind& kind = scales.kind;
  const std::size_t blocks = kind.block > 0 ? to_size(shape.k / kind.block) : 0;
  check_scales(model, kind, to_size(shape.k), blocks, blocks);
  if (blocks == 0 || shape.m == 0 || shape.n == 0) return;
  check_operand("emulated_gemm", "the scales of A", shape.m, to_index(blocks), scales.a);
  check_operand("emulated_gemm", "the scales of B", to_index(blocks), shape.n, scales.b);
}

/// fma_order, where the kernels of fma_row_gemm can do it.
std::optional<FmaOrder> runnable_fma_order(const TensorCoreModel& model) {
  std::optional<FmaOrder> order = fma_order(model);
  if (order && order->flushes && !fma_kernels().flushes) order.reset();
  return order;
}

}  // namespace

std::optional<KernelRow> kernel_row(const TensorCoreModel& model) {
  const Stage& first = model.block();
  KernelRow row{.block_size = first.products,
                .fraction_bits = first.fraction_bits,
                .exponent_floor = first.exponent_floor,
                .output = first.output,
                .subnormal_accumulator = model.subnormal_accumulator,
                .underflow_zero = model.underflow_zero,
                .as_fp16 = model.as_fp16,
                .exact_group = first.exact_group};
  if (row.output > BlockOutput::fp16_nearest_even) return std::nullopt;
  Stages one = fused_block(row.block_size, row.fraction_bits, row.output, row.exponent_floor);
  one.begin()->exact_group = row.exact_group;
  if (model.stages == one) return row;
  row.joined = true;
  for (const int run : {2, static_cast<int>(group) / 2}) {
    row.pairs = run == 2;
    if (model.stages == two_blocks_then_c(run, row.fraction_bits, row.output, row.exponent_floor)) return row;
  }
  return std::nullopt;
}

void emulated_gemm(const TensorCoreModel& model, GemmShape shape, const Operand& a, const Operand& b,
                   DType format, const void* c, void* d, std::int64_t ldd, int threads, std::byte* packed_b,
                   const Scales& scales) {
  check_model(model, a, b, format);
  check_arguments("emulated_gemm", shape, a, b, d, ldd, threads);
  check_gemm_scales(model, shape, scales);
  if (shape.m == 0 || shape.n == 0) return;
  const FloatingPointScope scope;
  const OutputMatrix out{format, c, d, ldd, 1};
  if (shape.k == 0) return copy_accumulators(shape, out);
  if (const auto order = runnable_fma_order(model))
    return fma_row_gemm(*order, shape, a, b, static_cast<const float*>(c), static_cast<float*>(d), ldd,
                        useful_threads(shape, threads, multiply_adds_per_thread));
  std::optional<KernelRow> row = kernel_row(model);
  if (row) row->scales = scales.kind;
  // An instruction has one scale of each operand, or one for each of its exact groups.
  const bool scales_fit = scales.kind.block == 0 || model.block().exact_group > 1 ||
                          scales.kind.block % model.block().products == 0;
  if (!row || !has_general_kernel(*row) || !scales_fit) return scalar_gemm(model, shape, a, b, out, scales);
  Product(*row, shape, a, b, out, packed_b, scales)
      .run(useful_threads(shape, threads, multiply_adds_per_thread));
}

std::size_t packed_b_bytes(const TensorCoreModel& model, GemmShape shape, const Operand& b) {
  if (shape.m == 0 || shape.n == 0 || shape.k == 0 || runnable_fma_order(model)) return 0;
  const std::optional<KernelRow> row = kernel_row(model);
  if (!row || !has_general_kernel(*row) || transpose_fits_better(shape, emulated_kernels().columns)) return 0;
  std::byte any;
  return Product(*row, shape, b, b, {}, &any).packed_bytes();
}

void pack_b(const TensorCoreModel& model, GemmShape shape, const Operand& b, std::byte* packed_b,
            int threads) {
  const FloatingPointScope scope;
  Product(*kernel_row(model), shape, b, b, {}, packed_b).pack_all_b(threads);
}

}  // namespace fp16lab::gemm_detail
