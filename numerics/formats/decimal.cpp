#include "numerics/formats/decimal.hpp"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <stdexcept>

#include "numerics/formats/bits.hpp"

namespace fp16lab {
namespace {

// Natural numbers of any length, base 2^32, least significant limb first, no leading zero limbs.
using Natural = std::vector<std::uint32_t>;

constexpr int max_digits = 4096;
constexpr int max_exponent = 20000;

void trim(Natural& x) {
  while (!x.empty() && x.back() == 0) x.pop_back();
}

/// x = x * factor + addend
void multiply_add(Natural& x, std::uint32_t factor, std::uint32_t addend) {
  std::uint64_t carry = addend;
  for (std::uint32_t& limb : x) {
    carry += std::uint64_t{limb} * factor;
    limb = static_cast<std::uint32_t>(carry);
    carry >>= 32;
  }
  if (carry != 0) x.push_back(static_cast<std::uint32_t>(carry));
}

/// x = floor(x / divisor); returns the remainder.
std::uint32_t divide(Natural& x, std::uint32_t divisor) {
  std::uint64_t remainder = 0;
  for (std::size_t i = x.size(); i-- > 0;) {
    const std::uint64_t current = remainder << 32 | x[i];
    x[i] = static_cast<std::uint32_t>(current / divisor);
    remainder = current % divisor;
  }
  trim(x);
  return static_cast<std::uint32_t>(remainder);
}

/// The largest power of `base` that fits a limb, and its exponent.
struct LimbPower {
  std::uint32_t value = 1;
  int exponent = 0;
};
constexpr LimbPower largest_power(std::uint32_t base) {
  LimbPower power;
  for (; std::uint64_t{power.value} * base >> 32 == 0; ++power.exponent) power.value *= base;
  return power;
}

void multiply_by_power(Natural& x, std::uint32_t base, int power) {
  const LimbPower step = largest_power(base);
  for (; power >= step.exponent; power -= step.exponent) multiply_add(x, step.value, 0);
  for (; power > 0; --power) multiply_add(x, base, 0);
}

void shift_left(Natural& x, int bits) {
  if (x.empty()) return;
  for (int rest = bits % 32; rest > 0; rest = 0) multiply_add(x, std::uint32_t{1} << rest, 0);
  x.insert(x.begin(), static_cast<std::size_t>(bits / 32), 0);
}

int bit_length(const Natural& x) {
  return x.empty() ? 0 : static_cast<int>(x.size() - 1) * 32 + bit_width(std::uint64_t{x.back()});
}

bool bit_at(const Natural& x, int index) {
  return (x[static_cast<std::size_t>(index / 32)] >> (index % 32) & 1) != 0;
}

int compare(const Natural& a, const Natural& b) {
  if (a.size() != b.size()) return a.size() < b.size() ? -1 : 1;
  for (std::size_t i = a.size(); i-- > 0;)
    if (a[i] != b[i]) return a[i] < b[i] ? -1 : 1;
  return 0;
}

Natural add(const Natural& a, const Natural& b) {
  Natural sum;
  std::uint64_t carry = 0;
  for (std::size_t i = 0; i < std::max(a.size(), b.size()) || carry != 0; ++i) {
    carry += (i < a.size() ? a[i] : 0u) + std::uint64_t{i < b.size() ? b[i] : 0u};
    sum.push_back(static_cast<std::uint32_t>(carry));
    carry >>= 32;
  }
  return sum;
}

/// a - b for a >= b.
Natural subtract(const Natural& a, const Natural& b) {
  Natural difference = a;
  std::uint64_t borrow = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const std::uint64_t taken = (i < b.size() ? b[i] : 0u) + borrow;
    borrow = a[i] < taken ? 1 : 0;
    difference[i] = static_cast<std::uint32_t>(a[i] - taken);
  }
  trim(difference);
  return difference;
}

}  // namespace

Decimal::Decimal(const Exact& exact) : negative_(exact.sign) {
  if (exact.kind == Exact::Kind::zero) return;
  if (exact.kind != Exact::Kind::finite || exact.sticky)
    throw std::invalid_argument(
        "Decimal: only zero and exactly known finite values have a decimal expansion");
  limbs_ = {static_cast<std::uint32_t>(exact.significand),
            static_cast<std::uint32_t>(exact.significand >> 32)};
  trim(limbs_);
  *this = scaled_by_two(exact.exponent);
}

Exact Decimal::to_exact() const {
  Exact exact;
  exact.sign = negative_;
  if (is_zero()) return exact;
  exact.kind = Exact::Kind::finite;

  Natural integer = limbs_;
  if (exponent_ >= 0) {
    multiply_by_power(integer, 10, exponent_);
  } else {
    // coefficient / 10^k = (coefficient << s) / 5^k * 2^(-k - s), with s large enough for 64 quotient bits:
    // log2(5) < 2.3220. Dividing by 5 k times with floor is floor division by 5^k.
    const int k = -exponent_;
    const int s = std::max(0, 65 + static_cast<int>(std::int64_t{k} * 2322 / 1000) + 1 - bit_length(integer));
    shift_left(integer, s);
    constexpr LimbPower step = largest_power(5);
    int left = k;
    for (; left >= step.exponent; left -= step.exponent)
      exact.sticky = divide(integer, step.value) != 0 || exact.sticky;
    for (; left > 0; --left) exact.sticky = divide(integer, 5) != 0 || exact.sticky;
    exact.exponent = -k - s;
  }

  const int dropped = std::max(0, bit_length(integer) - 64);
  for (int i = 0; i < dropped; ++i) exact.sticky = exact.sticky || bit_at(integer, i);
  for (int i = bit_length(integer); i-- > dropped;)
    exact.significand = exact.significand << 1 | (bit_at(integer, i) ? 1u : 0u);
  exact.exponent += dropped;
  return exact;
}

double Decimal::to_double() const {
  return double_from_bits(round_pack<Binary64>(to_exact(), Rounding::nearest_even).bits());
}

Decimal Decimal::negated() const {
  Decimal result = *this;
  result.negative_ = !negative_;
  return result;
}

Decimal Decimal::magnitude() const {
  Decimal result = *this;
  result.negative_ = false;
  return result;
}

Decimal Decimal::operator-(const Decimal& other) const {
  Decimal a = *this;
  Decimal b = other.negated();
  const int exponent = std::min(a.exponent_, b.exponent_);
  multiply_by_power(a.limbs_, 10, a.exponent_ - exponent);
  multiply_by_power(b.limbs_, 10, b.exponent_ - exponent);

  Decimal result;
  result.exponent_ = exponent;
  if (a.negative_ == b.negative_) {
    result.limbs_ = add(a.limbs_, b.limbs_);
    result.negative_ = a.negative_;
  } else {
    const int order = compare(a.limbs_, b.limbs_);
    result.limbs_ = order >= 0 ? subtract(a.limbs_, b.limbs_) : subtract(b.limbs_, a.limbs_);
    result.negative_ = order != 0 && (order > 0 ? a.negative_ : b.negative_);
  }
  return result;
}

Decimal Decimal::scaled_by_two(int exponent) const {
  Decimal result = *this;
  if (result.is_zero()) return result;
  if (exponent >= 0) {
    shift_left(result.limbs_, exponent);
  } else {
    multiply_by_power(result.limbs_, 5, -exponent);
    result.exponent_ += exponent;
  }
  return result;
}

Decimal::Digits Decimal::digits() const {
  Digits result;
  std::string& digits = result.text;  // least significant first until the end
  for (Natural rest = limbs_; !rest.empty();) {
    std::uint32_t group = divide(rest, 1'000'000'000);
    for (int i = 0; i < 9; ++i, group /= 10) digits.push_back(static_cast<char>('0' + group % 10));
  }
  digits.erase(digits.find_last_not_of('0') + 1);
  result.leading = exponent_ + static_cast<int>(digits.size()) - 1;
  digits.erase(0, digits.find_first_not_of('0'));
  std::reverse(digits.begin(), digits.end());
  return result;
}

/// Plain notation for leading digits worth 10^-4 to 10^max_plain, else scientific.
std::string Decimal::layout(const Digits& value, int max_plain) const {
  const std::string& digits = value.text;
  const int count = static_cast<int>(digits.size());
  const int leading = value.leading;
  const int last_place = leading - count + 1;
  std::string text = negative_ ? "-" : "";
  if (leading < -4 || leading > max_plain) {
    text += digits.front();
    if (count > 1) text.append(1, '.').append(digits, 1);
    const std::string power = std::to_string(std::abs(leading));
    text += leading < 0 ? "e-" : "e+";
    if (power.size() < 2) text += '0';
    text += power;
  } else if (last_place >= 0) {
    text.append(digits).append(static_cast<std::size_t>(last_place), '0');
  } else if (leading < 0) {
    text.append("0.").append(static_cast<std::size_t>(-leading - 1), '0').append(digits);
  } else {
    const auto point = static_cast<std::size_t>(leading) + 1;
    text.append(digits, 0, point).append(1, '.').append(digits, point);
  }
  return text;
}

std::string Decimal::to_string() const {
  if (is_zero()) return negative_ ? "-0" : "0";
  return layout(digits(), 20);
}

std::string Decimal::to_string(int significant) const {
  if (significant < 1)
    throw std::invalid_argument("Decimal: cannot write " + std::to_string(significant) +
                                " significant digits; at least 1 is needed");
  if (is_zero()) return negative_ ? "-0" : "0";
  return layout(rounded(digits(), significant), significant - 1);
}

Decimal::Digits Decimal::rounded(Digits value, int significant) {
  std::string& text = value.text;
  const auto kept = static_cast<std::size_t>(significant);
  if (text.size() > kept) {
    // The digits end in a non-zero one, so "5 and nothing more" is a tie.
    const bool tie = text[kept] == '5' && text.size() == kept + 1;
    const bool up = tie ? (text[kept - 1] - '0') % 2 != 0 : text[kept] >= '5';
    text.resize(kept);
    if (up) {
      text.erase(text.find_last_not_of('9') + 1);  // every 9 carries on and becomes a trailing zero
      if (text.empty()) {
        text = "1";
        ++value.leading;
      } else {
        ++text.back();
      }
    }
    text.erase(text.find_last_not_of('0') + 1);
  }
  return value;
}

std::string shortest_text(const RuntimeFormat& format, std::uint64_t bits) {
  constexpr int most_plain = 20;
  const Exact exact = format.decode(bits);
  if (exact.kind == Exact::Kind::nan) return "nan";
  if (exact.kind == Exact::Kind::infinite) return exact.sign ? "-inf" : "inf";
  const Decimal value(exact);
  if (value.is_zero()) return value.to_string();
  const Decimal::Digits all = value.digits();
  // ceil(1 + p log10(2)) digits distinguish p bits (Matula, Communications of the ACM 11(1), 1968).
  const int enough = 2 + static_cast<int>(format.precision * 0.30103);
  if (static_cast<int>(all.text.size()) <= enough) return value.layout(all, most_plain);
  for (int significant = 1;; ++significant) {
    std::string text = value.layout(Decimal::rounded(all, significant), most_plain);
    if (format.round(parse_number(text).value.to_exact()) == bits) return text;
  }
}

/// One pass over the text; every method consumes a prefix of `rest`.
struct DecimalParser {
  std::string_view text;
  std::string_view rest;

  [[noreturn]] void fail(const std::string& why) const {
    throw std::invalid_argument("'" + std::string(text) + "' is not a number: " + why);
  }

  bool take(std::string_view word) {
    if (rest.size() < word.size()) return false;
    for (std::size_t i = 0; i < word.size(); ++i)
      if (std::tolower(static_cast<unsigned char>(rest[i])) != word[i]) return false;
    rest.remove_prefix(word.size());
    return true;
  }

  bool take_sign() {
    if (take("-")) return true;
    take("+");
    return false;
  }

  /// Digits with an optional point: the coefficient; returns the number of digits after the point.
  int take_digits(std::uint32_t base, Natural& coefficient) {
    int digits = 0;
    int fraction = 0;
    bool point = false;
    for (; !rest.empty(); rest.remove_prefix(1)) {
      const char c = rest.front();
      if (c == '.' && !point) {
        point = true;
        continue;
      }
      const int digit = digit_of(c);
      if (digit < 0 || static_cast<std::uint32_t>(digit) >= base) break;
      if (++digits > max_digits) fail("more than " + std::to_string(max_digits) + " digits");
      multiply_add(coefficient, base, static_cast<std::uint32_t>(digit));
      trim(coefficient);
      fraction += point ? 1 : 0;
    }
    if (digits == 0) fail("a digit is missing");
    return fraction;
  }

  static int digit_of(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
  }

  int take_exponent() {
    const bool negative = take_sign();
    int exponent = 0;
    int digits = 0;
    for (; !rest.empty() && rest.front() >= '0' && rest.front() <= '9'; rest.remove_prefix(1), ++digits) {
      exponent = exponent * 10 + (rest.front() - '0');
      if (exponent > max_exponent) fail("the exponent is beyond +-" + std::to_string(max_exponent));
    }
    if (digits == 0) fail("the exponent has no digits");
    return negative ? -exponent : exponent;
  }

  ParsedNumber parse() {
    ParsedNumber number;
    const bool negative = take_sign();
    if (take("infinity") || take("inf")) {
      number.kind = Exact::Kind::infinite;
    } else if (take("nan")) {
      number.kind = Exact::Kind::nan;
    } else if (take("2^")) {
      number.value.limbs_ = {1};
      number.value = number.value.scaled_by_two(take_exponent());
    } else if (take("0x")) {
      const int fraction = take_digits(16, number.value.limbs_);
      const int exponent = take("p") ? take_exponent() : 0;
      number.value = number.value.scaled_by_two(exponent - 4 * fraction);
    } else {
      const int fraction = take_digits(10, number.value.limbs_);
      number.value.exponent_ = (take("e") ? take_exponent() : 0) - fraction;
    }
    if (!rest.empty()) fail("'" + std::string(rest) + "' is left over");
    number.value.negative_ = negative;
    if (number.kind == Exact::Kind::zero && !number.value.is_zero()) number.kind = Exact::Kind::finite;
    return number;
  }
};

Exact ParsedNumber::to_exact() const {
  Exact exact = value.to_exact();
  exact.kind = kind;
  return exact;
}

ParsedNumber parse_number(std::string_view text) { return DecimalParser{text, text}.parse(); }

}  // namespace fp16lab
