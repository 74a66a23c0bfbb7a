#include "numerics/decimal.hpp"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <stdexcept>

#include "numerics/bits.hpp"

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

void multiply_by_power(Natural& x, std::uint32_t base, int power) {
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
  if (exact.exponent >= 0) {
    shift_left(limbs_, exact.exponent);
  } else {
    multiply_by_power(limbs_, 5, -exact.exponent);
    exponent_ = exact.exponent;
  }
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
    for (int i = 0; i < k; ++i) exact.sticky = (divide(integer, 5) != 0) || exact.sticky;
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

std::string Decimal::to_string() const {
  if (is_zero()) return negative_ ? "-0" : "0";

  std::string digits;  // least significant first
  for (Natural rest = limbs_; !rest.empty();) {
    std::uint32_t group = divide(rest, 1'000'000'000);
    for (int i = 0; i < 9; ++i, group /= 10) digits.push_back(static_cast<char>('0' + group % 10));
  }
  while (digits.back() == '0') digits.pop_back();
  const std::size_t trailing_zeros = digits.find_first_not_of('0');
  const int last_place = exponent_ + static_cast<int>(trailing_zeros);
  digits.erase(0, trailing_zeros);
  std::reverse(digits.begin(), digits.end());

  const int count = static_cast<int>(digits.size());
  const int leading = last_place + count - 1;  // decimal exponent of the first digit
  std::string text = negative_ ? "-" : "";
  if (leading < -4 || leading > 20) {
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

  static void scale_by_two(Decimal& value, int exponent) {
    if (value.limbs_.empty()) return;
    if (exponent >= 0) {
      shift_left(value.limbs_, exponent);
    } else {
      multiply_by_power(value.limbs_, 5, -exponent);
      value.exponent_ = exponent;
    }
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
      scale_by_two(number.value, take_exponent());
    } else if (take("0x")) {
      const int fraction = take_digits(16, number.value.limbs_);
      scale_by_two(number.value, (take("p") ? take_exponent() : 0) - 4 * fraction);
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

ParsedNumber parse_number(std::string_view text) { return DecimalParser{text, text}.parse(); }

}  // namespace fp16lab
