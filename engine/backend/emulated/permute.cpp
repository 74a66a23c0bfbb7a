// Permutations and slices: bytes move, nothing is computed.
#include <array>
#include <cstring>

#include "engine/backend/checks.hpp"
#include "engine/backend/emulated/backend_impl.hpp"
#include "engine/backend/emulated/transpose.hpp"

namespace fp16lab::engine {

namespace {

std::size_t to_size(std::int64_t n) { return static_cast<std::size_t>(n); }

/// How many runs of `bytes` bytes make a chunk worth a thread.
std::int64_t chunk_of(std::int64_t bytes) {
  return std::max<std::int64_t>(1, elementwise_chunk * 4 / std::max<std::int64_t>(1, bytes));
}

/// Walks the axes of a permutation but for one or two: offsets in x and in the output of one position after
/// another.
class Odometer {
 public:
  void add_axis(std::int64_t extent, std::int64_t stride_x, std::int64_t stride_out) {
    axes_[to_size(rank_++)] = {.extent = extent, .stride_x = stride_x, .stride_out = stride_out};
  }
  std::int64_t positions() const {
    std::int64_t count = 1;
    for (int i = 0; i < rank_; ++i) count *= axes_[to_size(i)].extent;
    return count;
  }
  void go_to(std::int64_t position) {
    offset_x_ = offset_out_ = 0;
    for (int i = rank_ - 1; i >= 0; --i) {
      Axis& axis = axes_[to_size(i)];
      axis.index = position % axis.extent;
      position /= axis.extent;
      offset_x_ += axis.index * axis.stride_x;
      offset_out_ += axis.index * axis.stride_out;
    }
  }
  void advance() {
    for (int i = rank_ - 1; i >= 0; --i) {
      Axis& axis = axes_[to_size(i)];
      offset_x_ += axis.stride_x;
      offset_out_ += axis.stride_out;
      if (++axis.index < axis.extent) return;
      offset_x_ -= axis.extent * axis.stride_x;
      offset_out_ -= axis.extent * axis.stride_out;
      axis.index = 0;
    }
  }
  std::int64_t offset_x() const { return offset_x_; }
  std::int64_t offset_out() const { return offset_out_; }

 private:
  struct Axis {
    std::int64_t extent = 1, stride_x = 0, stride_out = 0, index = 0;
  };
  std::array<Axis, Shape::max_rank> axes_{};
  int rank_ = 0;
  std::int64_t offset_x_ = 0, offset_out_ = 0;
};

/// memcpy, with the loop of short runs in sight of the compiler: a call costs more than they do.
void copy_run(std::byte* to, const std::byte* from, std::int64_t bytes) {
  constexpr std::int64_t piece = 16;
  if (bytes > 16 * piece || bytes % piece != 0) {
    std::memcpy(to, from, to_size(bytes));
  } else {
    for (std::int64_t i = 0; i < bytes; i += piece) std::memcpy(to + i, from + i, piece);
  }
}

template <class Word>
void permute_words(const Workers& workers, const Permutation& p, const std::byte* x_bytes,
                   std::byte* out_bytes) {
  const auto* const x = reinterpret_cast<const Word*>(x_bytes);
  auto* const out = reinterpret_cast<Word*>(out_bytes);
  const int last = p.rank - 1;
  std::array<std::int64_t, Shape::max_rank> strides_of_out{};
  std::int64_t stride = 1;
  for (int i = last; i >= 0; --i) {
    strides_of_out[to_size(i)] = stride;
    stride *= p.extents[to_size(i)];
  }
  int contiguous = last;  // the axis along which x is contiguous
  while (p.strides[to_size(contiguous)] != 1) --contiguous;
  Odometer odometer;
  for (int i = 0; i < last; ++i)
    if (i != contiguous)
      odometer.add_axis(p.extents[to_size(i)], p.strides[to_size(i)], strides_of_out[to_size(i)]);
  constexpr auto size = static_cast<std::int64_t>(sizeof(Word));
  const std::int64_t columns = p.extents[to_size(last)];
  if (contiguous == last) {
    workers.for_each_chunk(
        odometer.positions(), chunk_of(columns * size), [=](std::int64_t begin, std::int64_t end) {
          Odometer at = odometer;
          for (at.go_to(begin); begin < end; ++begin, at.advance())
            copy_run(out_bytes + at.offset_out() * size, x_bytes + at.offset_x() * size, columns * size);
        });
    return;
  }
  constexpr std::int64_t band = transpose_block_side<Word>;  // rows of out that one position covers
  const std::int64_t rows = p.extents[to_size(contiguous)];
  const std::int64_t bands = (rows + band - 1) / band;
  const std::int64_t pitch_x = p.strides[to_size(last)], pitch_out = strides_of_out[to_size(contiguous)];
  odometer.add_axis(bands, band, band * pitch_out);
  workers.for_each_chunk(odometer.positions(), chunk_of(band * columns * size),
                         [=](std::int64_t begin, std::int64_t end) {
                           Odometer at = odometer;
                           for (at.go_to(begin); begin < end; ++begin, at.advance())
                             transpose(x + at.offset_x(), pitch_x, out + at.offset_out(), pitch_out,
                                       std::min(band, rows - begin % bands * band), columns);
                         });
}

/// `rows` runs of `bytes` bytes from one pitch to another.
void copy_runs(const Workers& workers, const std::byte* from, std::int64_t from_pitch, std::byte* to,
               std::int64_t to_pitch, std::int64_t bytes, std::int64_t rows) {
  if (bytes == 0) return;
  workers.for_each_chunk(rows, chunk_of(bytes), [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row)
      copy_run(to + row * to_pitch, from + row * from_pitch, bytes);
  });
}

}  // namespace

void EmulatedBackend::do_permute(const Tensor& x, std::span<const int>, Tensor& out,
                                 const Permutation& permutation) {
  if (x.element_count() == 0) return;
  if (permutation.rank <= 1) {
    Tensor flat = out.reshaped(x.shape());
    return copy(x, flat);
  }
  switch (size_of(x.dtype())) {
    case 1:
      return permute_words<std::uint8_t>(workers_, permutation, x.data(), out.data());
    case 2:
      return permute_words<std::uint16_t>(workers_, permutation, x.data(), out.data());
    case 4:
      return permute_words<std::uint32_t>(workers_, permutation, x.data(), out.data());
    default:
      return permute_words<std::uint64_t>(workers_, permutation, x.data(), out.data());
  }
}

void EmulatedBackend::do_slice(const Tensor& x, int, std::int64_t, Tensor& out,
                               const checks::SlicePlan& plan) {
  const auto size = static_cast<std::int64_t>(size_of(x.dtype()));
  copy_runs(workers_, x.data() + plan.offset * size, plan.pitch * size, out.data(), plan.run * size,
            plan.run * size, plan.rows);
}

void EmulatedBackend::do_insert(const Tensor& x, int, std::int64_t, Tensor& out,
                                const checks::SlicePlan& plan) {
  const auto size = static_cast<std::int64_t>(size_of(x.dtype()));
  copy_runs(workers_, x.data(), plan.run * size, out.data() + plan.offset * size, plan.pitch * size,
            plan.run * size, plan.rows);
}

}  // namespace fp16lab::engine
