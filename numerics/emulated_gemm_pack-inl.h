// Packing of FP16 operands: decode once, so that the kernel's inner loop only multiplies. Layout:
// emulated_gemm_kernels.hpp. Include guard and namespaces follow Highway's per-target protocol.
#include <algorithm>
#include <cstring>

#include "numerics/emulated_gemm_kernels.hpp"

#if defined(FP16LAB_EMULATED_GEMM_PACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FP16LAB_EMULATED_GEMM_PACK_INL_H_
#undef FP16LAB_EMULATED_GEMM_PACK_INL_H_
#else
#define FP16LAB_EMULATED_GEMM_PACK_INL_H_
#endif

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace fp16lab::gemm_detail {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DFloat = hn::ScalableTag<float>;
using DWord = hn::Rebind<std::uint32_t, DFloat>;
using DHalf = hn::Rebind<std::uint16_t, DFloat>;
using DSignedHalf = hn::Rebind<std::int16_t, DFloat>;
using DByte = hn::Rebind<std::int8_t, DFloat>;

constexpr std::size_t lanes = hn::MaxLanes(DFloat());
/// Four FP32 vectors wide: their exponents fill exactly one vector of bytes.
constexpr std::size_t panel_columns = 4 * lanes;
static_assert(panel_columns <= max_columns);

constexpr int zero_sentinel = -128;
constexpr int a_exponent_offset = 0;
constexpr int b_exponent_offset = -1;

/// Exact FP32 values of FP16 codes that are not NaN or infinity.
HWY_INLINE hn::Vec<DFloat> values_of(hn::Vec<DHalf> codes) {
  const hn::Rebind<hwy::float16_t, DFloat> d16;
  return hn::PromoteTo(DFloat(), hn::BitCast(d16, codes));
}

/// Effective exponent + offset (subnormals: emin), or the sentinel for zeros.
HWY_INLINE hn::Vec<DSignedHalf> exponents_of(hn::Vec<DHalf> codes, int offset) {
  const DHalf d;
  const DSignedHalf ds;
  const auto magnitude = hn::BitCast(ds, hn::And(codes, hn::Set(d, Binary16::magnitude_mask)));
  const auto field = hn::Max(hn::ShiftRight<Binary16::fraction_bits>(magnitude), hn::Set(ds, 1));
  const auto exponent = hn::Add(field, hn::Set(ds, static_cast<std::int16_t>(offset - Binary16::bias)));
  return hn::IfThenElse(hn::Eq(magnitude, hn::Zero(ds)), hn::Set(ds, zero_sentinel), exponent);
}

/// NaN and infinity become +0.
HWY_INLINE hn::Vec<DHalf> without_specials(hn::Vec<DHalf> codes) {
  const DHalf d;
  const DSignedHalf ds;
  const auto magnitude = hn::BitCast(ds, hn::And(codes, hn::Set(d, Binary16::magnitude_mask)));
  const auto special = hn::Gt(magnitude, hn::Set(ds, static_cast<std::int16_t>(Binary16::max_finite)));
  return hn::BitCast(d, hn::IfThenZeroElse(special, hn::BitCast(ds, codes)));
}

/// `to[c * to_stride + r] = from[r * from_stride + c]` for an 8 x 8 square of FP16 codes.
HWY_INLINE void transpose_8x8(const std::uint16_t* from, std::size_t from_stride, std::uint16_t* to,
                              std::size_t to_stride) {
#if HWY_TARGET == HWY_SCALAR
  for (std::size_t r = 0; r < 8; ++r)
    for (std::size_t c = 0; c < 8; ++c) to[c * to_stride + r] = from[r * from_stride + c];
#else
  // Three rounds of interleaving, of 16-, 32- and 64-bit units.
  const hn::FixedTag<std::uint16_t, 8> d16;
  const hn::FixedTag<std::uint32_t, 4> d32;
  const hn::FixedTag<std::uint64_t, 2> d64;
  hn::Vec<decltype(d32)> pairs[8];
  for (std::size_t r = 0; r < 8; r += 2) {
    const auto upper = hn::LoadU(d16, from + r * from_stride);
    const auto lower = hn::LoadU(d16, from + (r + 1) * from_stride);
    pairs[r] = hn::BitCast(d32, hn::InterleaveLower(d16, upper, lower));
    pairs[r + 1] = hn::BitCast(d32, hn::InterleaveUpper(d16, upper, lower));
  }
  hn::Vec<decltype(d64)> quads[8];  // quads[4 * h + i]: rows 4h .. 4h+3 of columns 2i and 2i+1
  for (std::size_t h = 0; h < 2; ++h) {
    for (std::size_t i = 0; i < 2; ++i) {
      quads[4 * h + 2 * i] =
          hn::BitCast(d64, hn::InterleaveLower(d32, pairs[4 * h + i], pairs[4 * h + 2 + i]));
      quads[4 * h + 2 * i + 1] =
          hn::BitCast(d64, hn::InterleaveUpper(d32, pairs[4 * h + i], pairs[4 * h + 2 + i]));
    }
  }
  for (std::size_t i = 0; i < 4; ++i) {
    hn::StoreU(hn::BitCast(d16, hn::InterleaveLower(d64, quads[i], quads[4 + i])), d16,
               to + 2 * i * to_stride);
    hn::StoreU(hn::BitCast(d16, hn::InterleaveUpper(d64, quads[i], quads[4 + i])), d16,
               to + (2 * i + 1) * to_stride);
  }
#endif
}

/// Copies the part [row, row + rows) x [column, column + columns) of the matrix that memory holds into `to`,
/// row-major with stride `columns`, padding with +0 outside the `valid_rows` x `valid_columns` that exist;
/// with `flip`, its transpose (stride `rows`).
HWY_INLINE void gather(const std::uint16_t* from, std::size_t stride, std::size_t rows, std::size_t columns,
                       std::size_t valid_rows, std::size_t valid_columns, bool flip, std::uint16_t* to) {
  const bool whole = valid_rows == rows && valid_columns == columns;
  if (!whole) std::memset(to, 0, rows * columns * sizeof(std::uint16_t));
  if (!flip) {
    for (std::size_t r = 0; r < valid_rows; ++r)
      std::memcpy(to + r * columns, from + r * stride, valid_columns * sizeof(std::uint16_t));
    return;
  }
  if (whole && rows % 8 == 0 && columns % 8 == 0) {
    for (std::size_t r = 0; r < rows; r += 8)
      for (std::size_t c = 0; c < columns; c += 8)
        transpose_8x8(from + r * stride + c, stride, to + c * rows + r, rows);
    return;
  }
  for (std::size_t r = 0; r < valid_rows; ++r)
    for (std::size_t c = 0; c < valid_columns; ++c) to[c * rows + r] = from[r * stride + c];
}

/// The codes of a matrix as plain words: Float16 is a 16-bit holder of bits with the same size and
/// representation.
HWY_INLINE const std::uint16_t* codes_of(const Float16* data) {
  return reinterpret_cast<const std::uint16_t*>(data);
}

/// Copies the part [row, row + rows) x [column, column + columns) of the logical matrix into `to`, row-major,
/// padding with +0 outside the `valid_rows` x `valid_columns` that exist.
HWY_INLINE void gather_part(MatrixView<Float16> matrix, std::int64_t row, std::int64_t column,
                            std::size_t rows, std::size_t columns, std::size_t valid_rows,
                            std::size_t valid_columns, std::uint16_t* to) {
  const auto stride = static_cast<std::size_t>(matrix.leading_dimension);
  const bool nothing = valid_rows == 0 || valid_columns == 0;  // then the part may begin outside the matrix
  if (matrix.transposed) {
    const std::int64_t origin = nothing ? 0 : column * matrix.leading_dimension + row;
    gather(codes_of(matrix.data) + origin, stride, columns, rows, valid_columns, valid_rows, true, to);
  } else {
    const std::int64_t origin = nothing ? 0 : row * matrix.leading_dimension + column;
    gather(codes_of(matrix.data) + origin, stride, rows, columns, valid_rows, valid_columns, false, to);
  }
}

HWY_INLINE std::size_t clipped(std::int64_t left, std::size_t wanted) {
  return left <= 0 ? 0 : std::min(wanted, static_cast<std::size_t>(left));
}

inline void pack_a(MatrixView<Float16> a, GemmShape shape, std::int64_t row, std::int64_t k,
                   std::size_t depth, float* HWY_RESTRICT values, std::uint32_t* HWY_RESTRICT exponents) {
  const DFloat df;
  const DWord dw;
  const DHalf dh;
  const std::size_t rows = clipped(shape.m - row, row_block);
  HWY_ALIGN std::uint16_t scratch[row_block * group];
  for (std::size_t offset = 0; offset < depth; offset += group) {
    const std::int64_t k0 = k + static_cast<std::int64_t>(offset);
    const std::size_t width = clipped(shape.k - k0, group);
    gather_part(a, row, k0, row_block, group, rows, width, scratch);
    for (std::size_t i = 0; i < row_block * group; i += lanes) {
      const auto codes = without_specials(hn::Load(dh, scratch + i));
      hn::Store(values_of(codes), df, values + offset * row_block + i);
      const auto byte = hn::And(hn::BitCast(dh, exponents_of(codes, a_exponent_offset)), hn::Set(dh, 0xff));
      const auto pair = hn::PromoteTo(dw, hn::Or(byte, hn::ShiftLeft<8>(byte)));
      hn::Store(hn::Or(pair, hn::ShiftLeft<16>(pair)), dw, exponents + offset * row_block + i);
    }
  }
}

inline void pack_b(MatrixView<Float16> b, GemmShape shape, std::int64_t column, std::int64_t k,
                   std::size_t depth, float* HWY_RESTRICT values, std::int8_t* HWY_RESTRICT exponents) {
  const DFloat df;
  const DHalf dh;
  const DByte db;
  const std::size_t columns = clipped(shape.n - column, panel_columns);
  HWY_ALIGN std::uint16_t scratch[group * panel_columns];
  for (std::size_t offset = 0; offset < depth; offset += group) {
    const std::int64_t k0 = k + static_cast<std::int64_t>(offset);
    const std::size_t height = clipped(shape.k - k0, group);
    gather_part(b, k0, column, group, panel_columns, height, columns, scratch);
    for (std::size_t i = 0; i < group * panel_columns; i += lanes) {
      const auto codes = without_specials(hn::Load(dh, scratch + i));
      hn::Store(values_of(codes), df, values + offset * panel_columns + i);
      const auto exponent = hn::DemoteTo(db, exponents_of(codes, b_exponent_offset));
      hn::Store(exponent, db, exponents + offset * panel_columns + i);
    }
  }
}

inline bool has_special(const Float16* data, std::size_t count) {
  const hn::ScalableTag<std::int16_t> d;
  const std::uint16_t* codes = codes_of(data);
  const std::size_t n = hn::Lanes(d);
  auto largest = hn::Zero(d);  // of the magnitudes: 15 bits, so the order of signed words is right
  const auto mask = hn::Set(d, static_cast<std::int16_t>(Binary16::magnitude_mask));
  std::size_t i = 0;
  for (; i + n <= count; i += n)
    largest = hn::Max(largest, hn::And(hn::LoadU(d, reinterpret_cast<const std::int16_t*>(codes + i)), mask));
  bool found = !hn::AllFalse(d, hn::Gt(largest, hn::Set(d, static_cast<std::int16_t>(Binary16::max_finite))));
  for (; i < count; ++i) found = found || !data[i].is_finite();
  return found;
}

}  // namespace HWY_NAMESPACE
}  // namespace fp16lab::gemm_detail
HWY_AFTER_NAMESPACE();

#endif  // include guard
