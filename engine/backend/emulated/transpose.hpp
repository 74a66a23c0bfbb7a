// Transposition of matrices of any element size, with vectors of 16 bytes: what every 64-bit CPU can
// interleave.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <utility>

namespace fp16lab::engine {

namespace transpose_detail {

template <class Word>
struct Lanes {
  using Vector [[gnu::vector_size(16)]] = Word;
  static constexpr std::size_t count = 16 / sizeof(Word);
  using Indices = std::make_index_sequence<count>;
};

/// The first (half 0) or the last (half 1) halves of a and b, alternating.
template <class Word, std::size_t half, std::size_t... i>
typename Lanes<Word>::Vector interleave(typename Lanes<Word>::Vector a, typename Lanes<Word>::Vector b,
                                        std::index_sequence<i...>) {
  constexpr std::size_t n = Lanes<Word>::count;
  return __builtin_shufflevector(a, b, (half * n / 2 + i / 2 + i % 2 * n)...);
}

/// transpose() for a square of Lanes::count rows: interleaving each row with the one half the square below,
/// log2(count) times, transposes it.
template <class Word>
void transpose_square(const Word* x, std::int64_t pitch_x, Word* out, std::int64_t pitch_out) {
  constexpr std::size_t n = Lanes<Word>::count;
  using Indices = typename Lanes<Word>::Indices;
  std::array<typename Lanes<Word>::Vector, n> rows;
  for (std::size_t i = 0; i < n; ++i)
    std::memcpy(&rows[i], x + static_cast<std::int64_t>(i) * pitch_x, sizeof(rows[i]));
  for (std::size_t step = 1; step < n; step *= 2) {
    const auto before = rows;
    for (std::size_t i = 0; i < n / 2; ++i) {
      rows[2 * i] = interleave<Word, 0>(before[i], before[i + n / 2], Indices());
      rows[2 * i + 1] = interleave<Word, 1>(before[i], before[i + n / 2], Indices());
    }
  }
  for (std::size_t i = 0; i < n; ++i)
    std::memcpy(out + static_cast<std::int64_t>(i) * pitch_out, &rows[i], sizeof(rows[i]));
}

/// transpose() for a block: squares, and the rest element by element.
template <class Word>
void transpose_block(const Word* x, std::int64_t pitch_x, Word* out, std::int64_t pitch_out,
                     std::int64_t rows, std::int64_t columns) {
  constexpr auto side = static_cast<std::int64_t>(Lanes<Word>::count);
  const std::int64_t whole_rows = rows / side * side;
  const std::int64_t whole_columns = columns / side * side;
  for (std::int64_t row = 0; row < whole_rows; row += side)
    for (std::int64_t column = 0; column < whole_columns; column += side)
      transpose_square(x + column * pitch_x + row, pitch_x, out + row * pitch_out + column, pitch_out);
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t column = row < whole_rows ? whole_columns : 0; column < columns; ++column)
      out[row * pitch_out + column] = x[column * pitch_x + row];
}

}  // namespace transpose_detail

/// The rows and columns of a block: a cache line of either matrix, so that no line is fetched twice.
template <class Word>
inline constexpr std::int64_t transpose_block_side = 64 / static_cast<std::int64_t>(sizeof(Word));

/// out[row][column] = x[column][row]: out is rows x columns, x columns x rows; pitches in elements.
template <class Word>
void transpose(const Word* x, std::int64_t pitch_x, Word* out, std::int64_t pitch_out, std::int64_t rows,
               std::int64_t columns) {
  constexpr std::int64_t side = transpose_block_side<Word>;
  for (std::int64_t top = 0; top < rows; top += side)
    for (std::int64_t left = 0; left < columns; left += side)
      transpose_detail::transpose_block(x + left * pitch_x + top, pitch_x, out + top * pitch_out + left,
                                        pitch_out, std::min(side, rows - top),
                                        std::min(side, columns - left));
}

}  // namespace fp16lab::engine
