// Permutations and slices: bytes move, nothing is computed, so that elements are words of 1 to 16 bytes.
// Tensors begin at multiples of 64 bytes (engine/tensor/storage.hpp).
#include "engine/backend/cuda/runtime/element_types.hpp"
#include "engine/backend/cuda/runtime/fast_division.hpp"
#include "engine/backend/cuda/runtime/launch.hpp"
#include "engine/backend/cuda/verbs/backend_impl.hpp"

namespace fp16lab::engine::gpu {

namespace {

using functions::Divisor;

constexpr std::uint32_t threads_per_block = 256;

/// visitor(a word of so many bytes: 1, 2, 4, 8 or 16).
template <class Visitor>
void with_word(std::int64_t bytes, const Visitor& visitor) {
  if (bytes == 1) return visitor(std::uint8_t{});
  if (bytes == 2) return visitor(std::uint16_t{});
  if (bytes == 4) return visitor(std::uint32_t{});
  if (bytes == 8) return visitor(std::uint64_t{});
  visitor(uint4{});
}

/// The largest power of two, at most 16, that divides all bits that are set in `distances`: distances in
/// bytes, or-ed.
std::int64_t widest_word(std::int64_t distances) {
  const std::int64_t limited = distances | 16;
  return limited & -limited;
}

// ---- slices ----

/// `count` words in runs, from one pitch to another; pitches in words.
template <class Word>
__global__ void copy_runs(const Word* from, std::int64_t from_pitch, Word* to, std::int64_t to_pitch,
                          Divisor run, std::int64_t count) {
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride) {
    std::int64_t row = i;
    const std::int64_t column = run.take(row);
    to[row * to_pitch + column] = from[row * from_pitch + column];
  }
}

/// `rows` runs of `bytes` bytes; addresses and pitches in bytes.
void copy_rows(Runtime& runtime, const char* name, const std::byte* from, std::int64_t from_pitch,
               std::byte* to, std::int64_t to_pitch, std::int64_t bytes, std::int64_t rows) {
  if (bytes == 0 || rows == 0) return;
  if (rows == 1) return runtime.copy_on_device(to, from, static_cast<std::size_t>(bytes));
  const auto distance = [](const std::byte* address) {
    return static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(address) % 16);
  };
  const std::int64_t size = widest_word(distance(from) | distance(to) | from_pitch | to_pitch | bytes);
  with_word(size, [&](auto word) {
    using Word = decltype(word);
    const std::int64_t count = rows * (bytes / size);
    const LaunchShape shape{.x = blocks_for(count, threads_per_block), .threads = threads_per_block};
    launch(runtime, name, &copy_runs<Word>, shape, reinterpret_cast<const Word*>(from), from_pitch / size,
           reinterpret_cast<Word*>(to), to_pitch / size, Divisor(bytes / size), count);
  });
}

// ---- permutations ----

/// Axes as an odometer: from a position to an offset in x, and one in the output.
struct Axes {
  int rank = 0;
  Divisor extents[Shape::max_rank];
  std::int64_t strides_x[Shape::max_rank] = {};
  std::int64_t strides_out[Shape::max_rank] = {};

  void add(std::int64_t extent, std::int64_t stride_x, std::int64_t stride_out) {
    extents[rank] = Divisor(extent);
    strides_x[rank] = stride_x;
    strides_out[rank] = stride_out;
    ++rank;
  }
  /// Adds the offsets of a position to x and out.
  __device__ __forceinline__ void go_to(std::int64_t position, std::int64_t& x, std::int64_t& out) const {
    for (int axis = rank - 1; axis >= 0; --axis) {
      const std::int64_t index = axis == 0 ? position : extents[axis].take(position);
      x += index * strides_x[axis];
      out += index * strides_out[axis];
    }
  }
};

/// Word by word in the order of the output: where neighbours of the output are neighbours in x, or rows are
/// too short for tiles (then the caches put the sectors together).
template <class Word>
__global__ void gather_words(const Word* x, Word* out, std::int64_t count, Axes axes) {
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride) {
    std::int64_t from = 0, to = 0;
    axes.go_to(i, from, to);
    out[i] = x[from];
  }
}

/// A matrix of words to be transposed, (rows, columns) in x, at each position of the other axes.
struct Transpose {
  std::int64_t rows, columns;
  std::int64_t pitch_x, pitch_out;  ///< from row to row of x, from column to column in the output
  Divisor tiles_down, tiles_across;
  std::int64_t tiles;  ///< those of all matrices
  Axes others;

  /// The tile's first row and column, and where its matrix begins.
  struct Tile {
    std::int64_t row, column, x = 0, out = 0;
  };
  __device__ __forceinline__ Tile tile(std::int64_t number, int side) const {
    Tile tile;
    tile.column = tiles_across.take(number) * side;
    tile.row = tiles_down.take(number) * side;
    others.go_to(number, tile.x, tile.out);
    return tile;
  }
};

constexpr int warps = threads_per_block / 32;

/// Tiles of 32 x 32 words through shared memory: rows are read, columns are written, both in runs. The odd
/// pitch spreads a column over all banks.
template <class Word>
__global__ void transpose_tiles(const Word* x, Word* out, Transpose plan) {
  constexpr int side = 32;
  __shared__ Word staged[side][side + 1];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  for (std::int64_t number = blockIdx.x; number < plan.tiles; number += gridDim.x) {
    const Transpose::Tile tile = plan.tile(number, side);
    const std::int64_t rows = plan.rows - tile.row, columns = plan.columns - tile.column;
    const Word* const from = x + tile.x + tile.row * plan.pitch_x + tile.column;
    Word* const to = out + tile.out + tile.column * plan.pitch_out + tile.row;
    for (int row = warp; row < side; row += warps)
      if (row < rows && lane < columns) staged[row][lane] = from[row * plan.pitch_x + lane];
    __syncthreads();
    for (int column = warp; column < side; column += warps)
      if (column < columns && lane < rows) to[column * plan.pitch_out + lane] = staged[lane][column];
    __syncthreads();  // the next tile overwrites this one
  }
}

/// Tiles of 64 x 64 words of 16 bits, two of them in each access: a lane transposes 2 x 2 words in registers.
/// Extents, pitches and strides must be even; those of `plan` count single words.
__global__ void transpose_pairs(const std::uint32_t* x, std::uint32_t* out, Transpose plan) {
  constexpr int side = 64, pairs = side / 2;
  // Column 2 j of the tile is row j, column 2 j + 1 is row 32 + j: neighbouring lanes write to neighbouring
  // banks.
  __shared__ std::uint32_t staged[side][pairs + 1];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const std::int64_t pitch_x = plan.pitch_x / 2, pitch_out = plan.pitch_out / 2;
  for (std::int64_t number = blockIdx.x; number < plan.tiles; number += gridDim.x) {
    const Transpose::Tile tile = plan.tile(number, side);
    const std::int64_t rows = plan.rows - tile.row, columns = plan.columns - tile.column;
    const std::uint32_t* const from = x + (tile.x + tile.column) / 2 + tile.row * pitch_x;
    std::uint32_t* const to = out + (tile.out + tile.row) / 2 + tile.column * pitch_out;
    for (int pair = warp; pair < pairs; pair += warps)
      if (2 * pair < rows && 2 * lane < columns) {
        const std::uint32_t above = from[2 * pair * pitch_x + lane],
                            below = from[(2 * pair + 1) * pitch_x + lane];
        staged[lane][pair] = (above & 0xffffu) | below << 16;
        staged[pairs + lane][pair] = above >> 16 | (below & 0xffff0000u);
      }
    __syncthreads();
    for (int column = warp; column < side; column += warps)
      if (column < columns && 2 * lane < rows)
        to[column * pitch_out + lane] = staged[column % 2 * pairs + column / 2][lane];
    __syncthreads();
  }
}

/// Strides of the output of a permutation, which is contiguous.
std::array<std::int64_t, Shape::max_rank> output_strides(const Permutation& p) {
  std::array<std::int64_t, Shape::max_rank> strides{};
  std::int64_t stride = 1;
  for (int axis = p.rank - 1; axis >= 0; --axis) {
    strides[static_cast<std::size_t>(axis)] = stride;
    stride *= p.extents[static_cast<std::size_t>(axis)];
  }
  return strides;
}

/// p, whose rows are runs of x too, with wider words; `size` is the bytes of a word, before and after.
Permutation widened_words(Permutation p, std::int64_t& size) {
  const auto last = static_cast<std::size_t>(p.rank - 1);
  const std::int64_t factor = widest_word(p.extents[last] * size) / size;
  p.extents[last] /= factor;
  for (std::size_t axis = 0; axis < last; ++axis) p.strides[axis] /= factor;  // multiples of a row of x
  size *= factor;
  return p;
}

void gather(Runtime& runtime, const Permutation& p, std::int64_t size, const Tensor& x, const Tensor& out) {
  Axes axes;
  std::int64_t count = 1;
  for (int axis = 0; axis < p.rank; ++axis) {
    const auto at = static_cast<std::size_t>(axis);
    axes.add(p.extents[at], p.strides[at], 0);
    count *= p.extents[at];
  }
  with_word(size, [&](auto word) {
    using Word = decltype(word);
    const LaunchShape shape{.x = blocks_for(count, threads_per_block), .threads = threads_per_block};
    launch(runtime, "permute", &gather_words<Word>, shape, elements<const Word>(x), elements<Word>(out),
           count, axes);
  });
}

/// Transposes axis `contiguous`, along which x is contiguous, and the last one, along which the output is.
void transpose(Runtime& runtime, const Permutation& p, int contiguous, std::int64_t size, const Tensor& x,
               const Tensor& out) {
  const int last = p.rank - 1;
  const auto at = [](int axis) { return static_cast<std::size_t>(axis); };
  const std::array<std::int64_t, Shape::max_rank> strides_out = output_strides(p);
  Transpose plan{.rows = p.extents[at(last)],
                 .columns = p.extents[at(contiguous)],
                 .pitch_x = p.strides[at(last)],
                 .pitch_out = strides_out[at(contiguous)],
                 .tiles_down = {},
                 .tiles_across = {},
                 .tiles = 1,
                 .others = {}};
  std::int64_t distances = plan.rows | plan.columns | plan.pitch_x | plan.pitch_out;
  for (int axis = 0; axis < last; ++axis) {
    if (axis == contiguous) continue;
    plan.others.add(p.extents[at(axis)], p.strides[at(axis)], strides_out[at(axis)]);
    plan.tiles *= p.extents[at(axis)];
    distances |= p.strides[at(axis)] | strides_out[at(axis)];
  }
  const bool pairs = size == 2 && distances % 2 == 0 && plan.rows > 32 && plan.columns > 32;
  const std::int64_t side = pairs ? 64 : 32;
  const std::int64_t down = (plan.rows + side - 1) / side, across = (plan.columns + side - 1) / side;
  plan.tiles_down = Divisor(down);
  plan.tiles_across = Divisor(across);
  plan.tiles *= down * across;
  const LaunchShape shape{.x = blocks_for(plan.tiles, 1), .threads = threads_per_block};
  if (pairs)
    return launch(runtime, "permute", &transpose_pairs, shape, elements<const std::uint32_t>(x),
                  elements<std::uint32_t>(out), plan);
  with_word(size, [&](auto word) {
    using Word = decltype(word);
    launch(runtime, "permute", &transpose_tiles<Word>, shape, elements<const Word>(x), elements<Word>(out),
           plan);
  });
}

}  // namespace

void CudaBackend::do_permute(const Tensor& x, std::span<const int>, Tensor& out, const Permutation& plan) {
  if (x.element_count() == 0) return;
  Permutation p = plan;
  if (p.rank <= 1) return runtime_.copy_on_device(out.data(), x.data(), x.byte_count());
  auto size = static_cast<std::int64_t>(size_of(x.dtype()));
  const auto last = static_cast<std::size_t>(p.rank - 1);
  if (p.strides[last] == 1) {
    p = widened_words(p, size);
    return gather(runtime_, p, size, x, out);
  }
  std::size_t contiguous = 0;
  while (p.strides[contiguous] != 1) ++contiguous;
  // Below half a tile more lanes would idle than a gather wastes of its sectors.
  constexpr std::int64_t shortest = 16;
  if (p.extents[contiguous] < shortest || p.extents[last] < shortest)
    return gather(runtime_, p, size, x, out);
  transpose(runtime_, p, static_cast<int>(contiguous), size, x, out);
}

void CudaBackend::do_slice(const Tensor& x, int, std::int64_t, Tensor& out, const checks::SlicePlan& plan) {
  const auto size = static_cast<std::int64_t>(size_of(x.dtype()));
  copy_rows(runtime_, "slice", x.data() + plan.offset * size, plan.pitch * size, out.data(), plan.run * size,
            plan.run * size, plan.rows);
}

void CudaBackend::do_insert(const Tensor& x, int, std::int64_t, Tensor& out, const checks::SlicePlan& plan) {
  const auto size = static_cast<std::int64_t>(size_of(x.dtype()));
  copy_rows(runtime_, "insert", x.data(), plan.run * size, out.data() + plan.offset * size, plan.pitch * size,
            plan.run * size, plan.rows);
}

}  // namespace fp16lab::engine::gpu
