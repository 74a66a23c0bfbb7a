#include "numerics/histogram/rounding_errors.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <vector>

#include "numerics/formats/bits.hpp"

namespace fp16lab {
namespace {

using Wide = unsigned __int128;

constexpr std::size_t itself = RoundingErrors::most_bits + 1;  // of Sums
constexpr int fraction_bits = Binary64::fraction_bits;

}  // namespace

template <class T>
void RoundingErrors::add(std::span<const T> values) {
  if (values.size() > most_values)
    throw std::invalid_argument(
        fmt::format("RoundingErrors: {} values at once, at most {}", values.size(), most_values));
  std::array<std::uint16_t, 1 << Binary64::exponent_bits> place_of{};  // place of a binade in `sums`, plus 1
  struct BlockSums {
    std::uint64_t count = 0;
    std::array<Wide, most_bits + 2> squares{};
  };
  std::vector<BlockSums> sums;
  std::vector<std::uint32_t> fields;
  for (const T value : values) {
    const std::uint64_t magnitude = bits_of(static_cast<double>(value)) & Binary64::magnitude_mask;
    if (magnitude == 0 || magnitude >= Binary64::infinity) continue;
    const auto field = static_cast<std::uint32_t>(magnitude >> fraction_bits);
    if (place_of[field] == 0) {
      fields.push_back(field);
      sums.emplace_back();
      place_of[field] = static_cast<std::uint16_t>(sums.size());
    }
    auto& [count, squares] = sums[place_of[field] - 1u];
    ++count;
    const std::uint64_t hidden = field == 0 ? 0 : std::uint64_t{1} << fraction_bits;
    const std::uint64_t significand = (magnitude & Binary64::fraction_mask) | hidden;
    const auto square = [](std::uint64_t error) { return static_cast<Wide>(error) * error; };
    squares[itself] += square(significand);
    if (field == 0) continue;
    for (int bits = 0; bits <= most_bits; ++bits) {
      const std::uint64_t spacing = std::uint64_t{1} << (fraction_bits + 1 - bits);
      const std::uint64_t rest = significand & (spacing - 1);
      squares[static_cast<std::size_t>(bits)] += square(std::min(rest, spacing - rest));
    }
  }
  for (std::size_t i = 0; i < sums.size(); ++i) {
    Sums& binade = binades_[fields[i]];
    binade.count += sums[i].count;
    for (std::size_t bits = 0; bits < binade.squares.size(); ++bits)
      binade.squares[bits].add(sums[i].squares[bits], 0);
  }
}

template void RoundingErrors::add(std::span<const float>);
template void RoundingErrors::add(std::span<const double>);

RoundingErrors& RoundingErrors::operator+=(const RoundingErrors& other) {
  for (const auto& [field, sums] : other.binades_) {
    Sums& mine = binades_[field];
    mine.count += sums.count;
    for (std::size_t bits = 0; bits < mine.squares.size(); ++bits) mine.squares[bits] += sums.squares[bits];
  }
  return *this;
}

RoundingErrors::Squares RoundingErrors::squares(const FormatRange& range, int log2_scale) const {
  if (range.precision > most_bits)
    throw std::invalid_argument(
        fmt::format("RoundingErrors: a format of {} bits, at most {}", range.precision, most_bits));
  Squares squares;
  for (const auto& [field, sums] : binades_) {
    const int e = static_cast<int>(std::max(field, 1u)) - Binary64::bias;
    const int kept =
        field == 0 ? -1 : range.precision - std::max(range.smallest_normal - (e + log2_scale), 0);
    const std::size_t of = kept < 0 ? itself : static_cast<std::size_t>(kept);
    const auto in_values = [e](const FixedPointSum<0, 3>& sum) {
      return std::ldexp(sum.nearest(), 2 * (e - fraction_bits));
    };
    const double error = in_values(sums.squares[of]);
    squares.error += error;
    if (kept < 0) squares.lost += error;
    if (field == 0) continue;
    squares.plain += in_values(sums.squares[static_cast<std::size_t>(range.precision)]);
    squares.expected_plain +=
        static_cast<double>(sums.count) * std::ldexp(1.0, 2 * (e + 1 - range.precision)) / 12;
  }
  return squares;
}

}  // namespace fp16lab
