// Copies a rectangle of codes out of a stored matrix, transposing it where memory holds the transpose.
#include <algorithm>
#include <cstring>

#include "numerics/gemm/emulated_gemm_kernels.hpp"

#if defined(FP16LAB_EMULATED_GEMM_GATHER_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FP16LAB_EMULATED_GEMM_GATHER_INL_H_
#undef FP16LAB_EMULATED_GEMM_GATHER_INL_H_
#else
#define FP16LAB_EMULATED_GEMM_GATHER_INL_H_
#endif

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace fp16lab::gemm_detail {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Side of the squares that transpose_square moves.
template <class Word>
inline constexpr std::size_t square = 16 / sizeof(Word);

/// `to[c * to_stride + r] = from[r * from_stride + c]` for a square of 16-byte rows of words.
template <class Code, class Word>
HWY_INLINE void transpose_square(const Code* from, std::size_t from_stride, Word* to, std::size_t to_stride) {
#if HWY_TARGET == HWY_SCALAR
  for (std::size_t r = 0; r < square<Word>; ++r)
    for (std::size_t c = 0; c < square<Word>; ++c) to[c * to_stride + r] = from[r * from_stride + c];
#else
  // Rounds of interleaving of 16-, 32- and 64-bit units.
  const hn::FixedTag<std::uint16_t, 8> d16;
  const hn::FixedTag<std::uint32_t, 4> d32;
  const hn::FixedTag<std::uint64_t, 2> d64;
  if constexpr (sizeof(Word) == 2) {
    const auto load = [&](std::size_t r) HWY_ATTR {
      if constexpr (sizeof(Code) == 1)
        return hn::PromoteTo(d16, hn::LoadU(hn::FixedTag<std::uint8_t, 8>(), from + r * from_stride));
      else
        return hn::LoadU(d16, from + r * from_stride);
    };
    hn::Vec<decltype(d32)> pairs[8];
    for (std::size_t r = 0; r < 8; r += 2) {
      const auto upper = load(r);
      const auto lower = load(r + 1);
      pairs[r] = hn::BitCast(d32, hn::InterleaveLower(d16, upper, lower));
      pairs[r + 1] = hn::BitCast(d32, hn::InterleaveUpper(d16, upper, lower));
    }
    hn::Vec<decltype(d64)> quads[8];  // quads[4 * h + i]: rows 4h .. 4h+3 of columns 2i and 2i+1
    for (std::size_t h = 0; h < 2; ++h) {
      for (std::size_t i = 0; i < 2; ++i) {
        const auto upper = pairs[4 * h + i];
        const auto lower = pairs[4 * h + 2 + i];
        quads[4 * h + 2 * i] = hn::BitCast(d64, hn::InterleaveLower(d32, upper, lower));
        quads[4 * h + 2 * i + 1] = hn::BitCast(d64, hn::InterleaveUpper(d32, upper, lower));
      }
    }
    for (std::size_t i = 0; i < 4; ++i) {
      hn::StoreU(hn::BitCast(d16, hn::InterleaveLower(d64, quads[i], quads[4 + i])), d16,
                 to + 2 * i * to_stride);
      hn::StoreU(hn::BitCast(d16, hn::InterleaveUpper(d64, quads[i], quads[4 + i])), d16,
                 to + (2 * i + 1) * to_stride);
    }
  } else {
    const hn::FixedTag<Word, 4> d;
    const auto load = [&](std::size_t r) HWY_ATTR { return hn::LoadU(d, from + r * from_stride); };
    for (std::size_t h = 0; h < 2; ++h) {  // columns 2h and 2h+1
      const auto interleave = [&](std::size_t r) HWY_ATTR {
        return hn::BitCast(d64, h == 0 ? hn::InterleaveLower(d, load(r), load(r + 1))
                                       : hn::InterleaveUpper(d, load(r), load(r + 1)));
      };
      const auto upper = interleave(0);
      const auto lower = interleave(2);
      hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d64, upper, lower)), d, to + 2 * h * to_stride);
      hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d64, upper, lower)), d, to + (2 * h + 1) * to_stride);
    }
  }
#endif
}

template <class Code, class Word>
HWY_INLINE void copy_row(const Code* HWY_RESTRICT from, std::size_t count, Word* HWY_RESTRICT to) {
  if constexpr (sizeof(Code) == sizeof(Word))
    std::memcpy(to, from, count * sizeof(Word));
  else
    for (std::size_t i = 0; i < count; ++i) to[i] = from[i];
}

/// Copies rows x columns codes into `to`, each row `to_stride` after the last; with `flip`, their transpose.
template <class Code, class Word>
HWY_INLINE void gather(const Code* from, std::size_t stride, std::size_t rows, std::size_t columns, bool flip,
                       Word* to, std::size_t to_stride) {
  if (!flip) {
    for (std::size_t r = 0; r < rows; ++r) copy_row(from + r * stride, columns, to + r * to_stride);
    return;
  }
  const std::size_t whole_rows = rows - rows % square<Word>;
  const std::size_t whole_columns = columns - columns % square<Word>;
  for (std::size_t r = 0; r < whole_rows; r += square<Word>)
    for (std::size_t c = 0; c < whole_columns; c += square<Word>)
      transpose_square(from + r * stride + c, stride, to + c * to_stride + r, to_stride);
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t c = r < whole_rows ? whole_columns : 0; c < columns; ++c) {
      Code code;
      std::memcpy(&code, from + r * stride + c, sizeof code);  // memory may hold floats
      to[c * to_stride + r] = code;
    }
}

HWY_INLINE std::size_t clipped(std::int64_t left, std::size_t wanted) {
  return left <= 0 ? 0 : std::min(wanted, static_cast<std::size_t>(left));
}

/// Copies the part [row, row + rows) x [column, column + columns) of the logical all_rows x all_columns
/// matrix into `to`, row-major, padding with +0 outside the matrix.
template <class Code, class Word>
HWY_INLINE void gather_part(const Operand& matrix, std::int64_t all_rows, std::int64_t all_columns,
                            std::int64_t row, std::int64_t column, std::size_t rows, std::size_t columns,
                            Word* to) {
  const std::size_t valid_rows = clipped(all_rows - row, rows);
  const std::size_t valid_columns = clipped(all_columns - column, columns);
  if (valid_rows < rows || valid_columns < columns) std::memset(to, 0, rows * columns * sizeof(Word));
  if (valid_rows == 0 || valid_columns == 0) return;
  const auto* const codes = static_cast<const Code*>(matrix.data);
  const auto stride = static_cast<std::size_t>(matrix.leading_dimension);
  if (matrix.transposed)
    gather(codes + column * matrix.leading_dimension + row, stride, valid_columns, valid_rows, true, to,
           columns);
  else
    gather(codes + row * matrix.leading_dimension + column, stride, valid_rows, valid_columns, false, to,
           columns);
}

}  // namespace HWY_NAMESPACE
}  // namespace fp16lab::gemm_detail
HWY_AFTER_NAMESPACE();

#endif  // include guard
