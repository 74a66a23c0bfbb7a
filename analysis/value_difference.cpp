#include "analysis/value_difference.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string>

#include "numerics/convert/convert.hpp"
#include "numerics/formats/bits.hpp"
#include "numerics/platform/floating_point_scope.hpp"

namespace fp16lab::analysis {
namespace {

constexpr std::size_t block = 2048, lanes = 8;

/// The word of element `index`.
std::uint64_t word_at(const std::byte* elements, std::size_t index, std::size_t size) {
  std::uint64_t word = 0;
  std::memcpy(&word, elements + index * size, size);
  return word;
}

/// Exact.
void widen_to(const std::byte* from, DType type, std::span<double> to) {
  visit_dtype<is_floating>(type, [&](auto row) {
    using Element = typename decltype(row)::Element;
    const std::span elements(reinterpret_cast<const Element*>(from), to.size());
    if constexpr (std::is_floating_point_v<Element>) {
      std::ranges::copy(elements, to.begin());
    } else {
      std::array<float, block> wide;
      widen(elements, std::span(wide).first(to.size()));
      std::copy_n(wide.begin(), to.size(), to.begin());
    }
  });
}

/// Codes in `grid`, rounded to nearest even; a NaN is the canonical one.
template <class F>
void round_to(std::span<const double> from, std::span<std::uint64_t> codes) {
  if constexpr (std::is_same_v<F, Binary64>) {
    for (std::size_t i = 0; i < from.size(); ++i)
      codes[i] = std::isnan(from[i]) ? std::uint64_t{F::canonical_nan} : bits_of(from[i]);
  } else {
    std::array<SmallFloat<F>, block> rounded;
    narrow<F>(from, std::span(rounded).first(from.size()));
    for (std::size_t i = 0; i < from.size(); ++i) codes[i] = rounded[i].bits();
  }
}

/// Bits, where all NaN are one.
std::uint64_t number_bits(double value) {
  return std::isnan(value) ? std::uint64_t{Binary64::canonical_nan} : bits_of(value);
}

/// The power of two that brings the finite values to at most 1: 0 for zeros alone.
int exponent_of(std::span<const double> a, std::span<const double> b) {
  double greatest = 0;
  for (const double value : a) greatest = std::max(greatest, std::fabs(value));
  for (const double value : b) greatest = std::max(greatest, std::fabs(value));
  if (greatest == 0) return 0;
  int exponent = 0;
  std::frexp(greatest, &exponent);
  return std::max(exponent, -1000);  // so that 2^-exponent is a number of FP64
}

double sum_of(const std::array<double, lanes>& parts) {
  return ((parts[0] + parts[4]) + (parts[2] + parts[6])) + ((parts[1] + parts[5]) + (parts[3] + parts[7]));
}

/// For two codes of finite numbers: may `cast` be what `value` became that is too large?
template <class F>
std::uint64_t steps_between(std::uint64_t a, std::uint64_t cast, double value) {
  const bool too_large = !F::has_infinity && F::has_nan && cast == F::canonical_nan;
  const std::uint64_t x = a & F::magnitude_mask;
  const std::uint64_t y = too_large ? F::max_finite + std::uint64_t{1} : cast & F::magnitude_mask;
  const bool negative = too_large ? F::has_sign && std::signbit(value) : (cast & F::sign_mask) != 0;
  return ((a & F::sign_mask) != 0) != negative ? x + y : std::max(x, y) - std::min(x, y);
}

double integer_value(std::uint64_t word, DType type) {
  return visit_dtype(type, [&](auto row) {
    using Element = typename decltype(row)::Element;
    if constexpr (std::is_integral_v<Element>) return static_cast<double>(static_cast<Element>(word));
    return 0.0;
  });
}

}  // namespace

DType grid_of(DType a, DType b) {
  const auto precision = [](DType type) {
    return visit_dtype<is_floating>(type, [](auto row) { return decltype(row)::Format::precision; });
  };
  return precision(b) < precision(a) ? b : a;
}

void ValueComparer::ScaledSum::add(double part, int part_exponent) {
  if (part == 0) return;
  if (sum == 0 || part_exponent > exponent) {
    sum = sum == 0 ? part : std::ldexp(sum, 2 * (exponent - part_exponent)) + part;
    exponent = part_exponent;
  } else {
    sum += std::ldexp(part, 2 * (part_exponent - exponent));
  }
}

ValueComparer::ValueComparer(ValueSide a, ValueSide b) : a_(a), b_(b) {
  for (const ValueSide& side : {a, b})
    if (!(std::isfinite(side.scale) && side.scale > 0))
      throw std::invalid_argument("a scale is " + std::to_string(side.scale) +
                                  "; a finite number above 0 is needed");
  if (is_floating(a.type) && is_floating(b.type)) return;
  if (a.type != b.type)
    throw std::invalid_argument(std::string(name_of(a.type)) + " and " + std::string(name_of(b.type)) +
                                ": integers are compared with integers of their own type");
  if (a.scale != 1 || b.scale != 1) throw std::invalid_argument("integers carry no loss scale");
}

void ValueComparer::add(std::span<const std::byte> a, std::span<const std::byte> b) {
  const std::size_t size_a = size_of(a_.type), size_b = size_of(b_.type), count = a.size() / size_a;
  if (a.size() != count * size_a || b.size() != count * size_b)
    throw std::invalid_argument("the two arrays do not have the same number of elements");
  if (!is_floating(a_.type)) return add_integers(a, b);
  const FloatingPointScope scope;
  for (std::size_t i = 0; i < count; i += block)
    add_block(a.data() + i * size_a, b.data() + i * size_b, std::min(block, count - i));
}

void ValueComparer::add_integers(std::span<const std::byte> a, std::span<const std::byte> b) {
  const std::size_t size = size_of(a_.type), count = a.size() / size;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t x = word_at(a.data(), i, size), y = word_at(b.data(), i, size);
    if (x == y) continue;
    if (found_.differing++ == 0)
      found_.first = found_.first_beyond_cast = {found_.elements + i, integer_value(x, a_.type),
                                                 integer_value(y, b_.type), x, y};
  }
  found_.beyond_cast = found_.differing;
  found_.elements += count;
}

void ValueComparer::add_block(const std::byte* a, const std::byte* b, std::size_t count) {
  const std::size_t size_a = size_of(a_.type), size_b = size_of(b_.type);
  std::array<double, block> memory[4];
  const auto part = [&](int which) { return std::span(memory[which]).first(count); };
  const std::span<double> x = part(0), y = part(1);  // without scales
  widen_to(a, a_.type, x);
  widen_to(b, b_.type, y);
  const DType grid = grid_of(a_.type, b_.type);
  const bool a_is_grid = grid == a_.type;
  const double grid_scale = a_is_grid ? a_.scale : b_.scale;
  // At the grid's own scale: its own side as stored, the other one as it would be there.
  const std::span<double> stored = part(2), other = part(3);
  std::ranges::copy(a_is_grid ? x : y, stored.begin());
  std::ranges::copy(a_is_grid ? y : x, other.begin());
  if (a_.scale != 1)
    for (double& value : x) value /= a_.scale;
  if (b_.scale != 1)
    for (double& value : y) value /= b_.scale;
  if (a_.scale != b_.scale)
    for (std::size_t i = 0; i < count; ++i) other[i] = (a_is_grid ? y : x)[i] * grid_scale;
  visit_dtype<is_floating>(grid, [&](auto row) {
    using F = typename decltype(row)::Format;
    std::array<std::uint64_t, block> own, cast;
    round_to<F>(stored, std::span(own).first(count));
    round_to<F>(other, std::span(cast).first(count));
    for (std::size_t i = 0; i < count; ++i) {
      const bool finite_a = std::isfinite(x[i]), finite_b = std::isfinite(y[i]);
      found_.nonfinite_a += finite_a ? 0 : 1;
      found_.nonfinite_b += finite_b ? 0 : 1;
      const bool beyond = own[i] != cast[i];
      if (number_bits(x[i]) != number_bits(y[i])) {
        const DifferentElement element{found_.elements + i, x[i], y[i], word_at(a, i, size_a),
                                       word_at(b, i, size_b)};
        if (found_.differing++ == 0) found_.first = element;
        if (beyond && found_.beyond_cast++ == 0) found_.first_beyond_cast = element;
        if (beyond && !(finite_a && finite_b)) ++found_.other_nonfinite;
      }
      if (!finite_a || !finite_b) continue;
      if (const double difference = std::fabs(x[i] - y[i]); difference > found_.largest) {
        found_.largest = difference;
        found_.largest_at = found_.elements + i;
      }
      if (!beyond) continue;
      if (std::min(x[i], y[i]) < 0 && std::max(x[i], y[i]) > 0) ++found_.other_signs;
      if (const std::uint64_t steps = steps_between<F>(own[i], cast[i], other[i]); steps > found_.ulps) {
        found_.ulps = steps;
        found_.ulps_at = found_.elements + i;
      }
    }
  });
  add_norms(x, y);
  found_.elements += count;
}

void ValueComparer::add_norms(std::span<double> a, std::span<double> b) {
  for (std::size_t i = 0; i < a.size(); ++i)
    if (!std::isfinite(a[i]) || !std::isfinite(b[i])) a[i] = b[i] = 0;
  std::array<double, block> memory{};
  const std::span<double> d = std::span(memory).first(a.size());
  const int exponent = exponent_of(a, b);
  const double factor = std::ldexp(1.0, -exponent);
  std::array<double, lanes> aa{}, bb{}, ab{}, dd{};
  for (std::size_t i = 0; i < a.size(); ++i) {
    a[i] *= factor;
    b[i] *= factor;
    d[i] = a[i] - b[i];
  }
  const int exponent_d = exponent_of(d, {});
  const double factor_d = std::ldexp(1.0, -exponent_d);
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = d[i] * factor_d;
    aa[i % lanes] += a[i] * a[i];
    bb[i % lanes] += b[i] * b[i];
    ab[i % lanes] += a[i] * b[i];
    dd[i % lanes] += difference * difference;
  }
  aa_.add(sum_of(aa), exponent);
  bb_.add(sum_of(bb), exponent);
  ab_.add(sum_of(ab), exponent);
  dd_.add(sum_of(dd), exponent + exponent_d);
}

ValueDifference ValueComparer::result() const {
  const FloatingPointScope scope;
  ValueDifference result = found_;
  const auto root = [](const ScaledSum& of) { return std::ldexp(std::sqrt(of.sum), of.exponent); };
  /// sqrt(x / y): below 2^2000 and above 2^-2000, what FP64 holds of it.
  const auto ratio = [](const ScaledSum& x, const ScaledSum& y) {
    return std::ldexp(std::sqrt(x.sum / y.sum), x.exponent - y.exponent);
  };
  result.norm_a = root(aa_);
  result.norm_b = root(bb_);
  if (dd_.sum > 0) {
    const bool a_is_greater = bb_.sum == 0 || (aa_.sum > 0 && ratio(aa_, bb_) >= 1);
    result.relative_l2 = ratio(dd_, a_is_greater ? aa_ : bb_);
  }
  if (aa_.sum > 0 && bb_.sum > 0) {
    const double cosine = ab_.sum / std::sqrt(aa_.sum) / std::sqrt(bb_.sum);
    result.cosine =
        dd_.sum == 0
            ? 1.0
            : std::clamp(std::ldexp(cosine, 2 * ab_.exponent - aa_.exponent - bb_.exponent), -1.0, 1.0);
  }
  return result;
}

}  // namespace fp16lab::analysis
