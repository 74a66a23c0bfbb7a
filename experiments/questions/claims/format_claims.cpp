// What FP16 holds, and where it ends.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "experiments/questions/claims/claim.hpp"
#include "numerics/arithmetic/arithmetic.hpp"
#include "numerics/convert/convert.hpp"
#include "numerics/formats/bits.hpp"
#include "numerics/formats/decimal.hpp"

namespace fp16lab::experiments::claims {
namespace {

using Single = SmallFloat<Binary32>;

std::string text_of(Float16 x) { return x.is_infinite() ? "inf" : Decimal(decode(x)).to_string(); }
std::string text_of(float x) { return Decimal(decode(Single::from_bits(bits_of(x)))).to_string(); }
double value_of(Float16 x) { return static_cast<double>(widen(x)); }
Float16 half(const char* number) { return round_pack<Binary16>(parse_number(number).value.to_exact(), {}); }

/// The first positive FP32 number (in order) whose FP16 code satisfies `after`, which must be monotone.
template <class After>
float first_single(const After& after) {
  std::uint32_t low = 0, high = Binary32::infinity;
  while (low < high) {
    const std::uint32_t middle = low + (high - low) / 2;
    if (after(float_from_bits(middle)))
      high = middle;
    else
      low = middle + 1;
  }
  return float_from_bits(low);
}
float predecessor(float x) { return float_from_bits(bits_of(x) - 1); }

float largest_lost(Rounding rounding, float scale = 1) {
  return predecessor(
      first_single([&](float x) { return narrow<Binary16>(x * scale, rounding).bits() != 0; }));
}

/// Codes in [2^exponent, 2^(exponent + 1)): a power of two, whose logarithm plus one is the precision there.
int precision_of_binade(int exponent) {
  int codes = 0, bits = 1;
  for (std::uint32_t code = 1; code < Binary16::infinity; ++code) {
    const double value = value_of(Float16::from_bits(static_cast<std::uint16_t>(code)));
    codes += value >= std::ldexp(1.0, exponent) && value < std::ldexp(1.0, exponent + 1) ? 1 : 0;
  }
  while (1 << bits <= codes) ++bits;
  return bits;
}
int binades() {
  int count = 0;
  for (int exponent = -40; exponent < 20; ++exponent) {
    const Float16 power = narrow<Binary16>(std::ldexp(1.0f, exponent));
    count +=
        power.bits() != 0 && !power.is_infinite() && value_of(power) == std::ldexp(1.0, exponent) ? 1 : 0;
  }
  return count;
}

/// Over all weights in [1, 2) and all updates from 2^-13 to below 2^-10: is the update lost in weight +
/// update?
struct LostUpdates {
  double smallest_ratio_lost = 1e9, largest_ratio_kept = 0;
};
LostUpdates lost_updates() {
  LostUpdates result;
  for (std::uint16_t w = half("1").bits(); w < half("2").bits(); ++w)
    for (std::uint16_t u = half("2^-13").bits(); u < half("2^-10").bits(); ++u) {
      const Float16 weight = Float16::from_bits(w), update = Float16::from_bits(u);
      const double ratio = value_of(weight) / value_of(update);
      if (add(weight, update).bits() == w)
        result.smallest_ratio_lost = std::min(result.smallest_ratio_lost, ratio);
      else
        result.largest_ratio_kept = std::max(result.largest_ratio_kept, ratio);
    }
  return result;
}

const char* const mindspore = "MindSpore r1.7 mixed-precision tutorial";
const char* const guide = "Paddle AMP guide";
const char* const paper = "Micikevicius et al., ICLR 2018";

void limits(std::vector<Said>& all) {
  const char* const topic = "The range of FP16";
  const Float16 largest = Float16::from_bits(Binary16::infinity - 1);
  const Float16 smallest_normal = Float16::from_bits(1u << Binary16::fraction_bits),
                smallest = Float16::from_bits(1);
  all.push_back({topic, mindspore, "the lower end of the range is -65504", "-65504",
                 text_of(Float16::from_bits(largest.bits() | 0x8000u)), Verdict::holds,
                 judge_number("-65504", -value_of(largest)), "fp16lab inspect -65504 --format FP16"});
  all.push_back({topic, mindspore, "the upper end of the range is 66504", "66504", text_of(largest),
                 Verdict::fails, judge_statement(value_of(largest) == 66504),
                 "fp16lab inspect 65504 66504 --format FP16",
                 fmt::format("a digit is wrong: 66504 itself becomes {}", text_of(half("66504")))});
  all.push_back({topic, mindspore, "the smallest normal number is -65504", "-65504", text_of(smallest_normal),
                 Verdict::fails, judge_statement(value_of(smallest_normal) == -65504),
                 "fp16lab inspect 2^-14 --format FP16", "2^-14; -65504 is the most negative number"});
  all.push_back(
      {topic, mindspore, "positive FP16 numbers reach from 6.10e-5 to 65504", "6.10e-5", text_of(smallest),
       Verdict::fails,
       judge_statement(judge_number("6.10e-5", value_of(smallest)).verdict == Verdict::holds,
                       judge_number("6.10e-5", value_of(smallest_normal)).verdict == Verdict::holds),
       "fp16lab inspect 2^-24 2^-14 --format FP16",
       "6.10e-5 = 2^-14 is the smallest normal number; 1023 subnormal ones lie below it, down to 2^-24"});
  all.push_back({topic, "NVIDIA guide", "the smallest positive number is 2^-24 = 5.96e-8", "5.96e-8",
                 text_of(smallest), Verdict::holds, judge_number("5.96e-8", value_of(smallest)),
                 "fp16lab inspect 2^-24 --format FP16"});
  all.push_back({topic, "NVIDIA guide", "FP16 covers 40 powers of two", "40", fmt::format("{}", binades()),
                 Verdict::holds, judge_number("40", binades()),
                 "fp16lab inspect 2^-24 2^15 2^16 --format FP16", "exponents -24 to 15"});
  const int precision = precision_of_binade(-20);
  all.push_back({topic, "NVIDIA guide",
                 "a subnormal number with exponent k has 25 - k significant bits (k = -20: 45)", "45",
                 fmt::format("{}", precision), Verdict::fails,
                 judge_statement(precision == 25 - -20, precision == 25 - 20),
                 "fp16lab inspect 2^-20 0x1.08p-20 0x1.1p-20 --format FP16",
                 "25 + k with k = -20; 25 - k is meant for the magnitude of k"});
}

void wide_limits(std::vector<Said>& all) {
  const char* const topic = "The range of FP32, BF16's as well";
  const float smallest = float_from_bits(1), largest = float_from_bits(Binary32::infinity - 1);
  all.push_back({topic, mindspore, "the smallest positive FP32 number is 1.4e-45", "1.4e-45",
                 fmt::format("{:.9g}", smallest), Verdict::holds,
                 judge_number("1.4e-45", static_cast<double>(smallest)),
                 "fp16lab inspect 2^-149 --format FP32"});
  all.push_back({topic, mindspore, "the largest FP32 number is 1.7e38", "1.7e38",
                 fmt::format("{:.9g}", largest), Verdict::fails,
                 judge_number("1.7e38", static_cast<double>(largest)),
                 "fp16lab inspect 2^127 3.4028234663852886e38 --format FP32",
                 "1.7e38 is 2^127, the largest power of two; significands reach almost 2"});
  // The largest magnitudes that become zero, of ascending codes of FP32.
  const float lost_f16 = largest_lost(Rounding::nearest_even);
  const float lost_bf16 =
      predecessor(first_single([](float x) { return narrow<BrainFloat16>(x).bits() != 0; }));
  all.push_back(
      {topic, guide, "BF16 underflows more easily than FP16", "more",
       fmt::format("2^{} becomes 0 in BF16, 2^{} in FP16", std::ilogb(lost_bf16), std::ilogb(lost_f16)),
       Verdict::fails, judge_statement(lost_bf16 > lost_f16), "fp16lab inspect 2^-25 2^-134 --format BF16",
       "it has fewer digits, but FP32's exponents"});
}

void rounding(std::vector<Said>& all) {
  const char* const topic = "Rounding to FP16";
  const float lost = largest_lost(Rounding::nearest_even), cut = largest_lost(Rounding::toward_zero);
  const float two_24 = 0x1p-24f;
  all.push_back(
      {topic, paper, "magnitudes below 2^-24 become zero", "2^-24", text_of(lost), Verdict::fails,
       judge_statement(lost == predecessor(two_24), cut == predecessor(two_24)),
       "fp16lab inspect 2^-24 2^-25 0x1.000002p-25 --format FP16",
       "the largest magnitude that nearest-even loses is 2^-25; 2^-24 is right where digits are cut off"});
  const float lost_scaled = largest_lost(Rounding::nearest_even, 8);
  all.push_back({topic, paper, "a scale of 8 saves gradients from 2^-27 on", "2^-27", text_of(lost_scaled),
                 Verdict::fails,
                 judge_statement(lost_scaled == predecessor(0x1p-27f),
                                 largest_lost(Rounding::toward_zero, 8) == predecessor(0x1p-27f)),
                 "fp16lab inspect 2^-25 0x1.000002p-25 --format FP16",
                 "it saves everything above 2^-28: 8 x 2^-28 = 2^-25 is the tie that is lost"});
  const float infinite = first_single([](float x) { return narrow<Binary16>(x).is_infinite(); });
  all.push_back({topic, "usual wording", "values above 65504 overflow", "65504", text_of(infinite),
                 Verdict::fails,
                 judge_statement(infinite == float_from_bits(bits_of(65504.0f) + 1),
                                 narrow<Binary16>(65504.0f).is_infinite() == false && infinite > 65504.0f),
                 "fp16lab inspect 65504.01 65519.99 65520 --format FP16",
                 "values up to 65519.99... round to 65504; 65520 is the first that becomes infinite"});
  const Float16 example = half("0.00006666666");
  all.push_back({topic, mindspore, "0.00006666666 becomes 0.000067", "0.000067", text_of(example),
                 Verdict::fails,
                 judge_statement(example.bits() == half("0.000067").bits(),
                                 judge_number("0.000067", value_of(example)).verdict == Verdict::holds),
                 "fp16lab inspect 0.00006666666 0.000067 --format FP16",
                 fmt::format("two digits are right, but the number stored is {} codes away from 0.000067",
                             half("0.000067").bits() - example.bits())});
}

void updates(std::vector<Said>& all) {
  const char* const topic = "Updates lost in an FP16 weight";
  const LostUpdates found = lost_updates();
  all.push_back({topic, paper, "an update can be lost where the weight is at least 2048 times as large",
                 "2048", fmt::format("{}", found.smallest_ratio_lost), Verdict::holds,
                 judge_number("2048", found.smallest_ratio_lost), "fp16lab inspect 0x1.002p0 --format FP16",
                 "the smallest such ratio among all sums of weights in [1, 2): 1 + 2^-11"});
  all.push_back(
      {topic, "usual wording", "an update is always lost where the weight is over 2048 times as large",
       "2048", fmt::format("{:.7g}", found.largest_ratio_kept), Verdict::fails,
       judge_number("2048", found.largest_ratio_kept), "fp16lab inspect 0x1.ffdp0 0x1.ff9002p0 --format FP16",
       "the largest ratio at which one survives is nearly 4096: the steps of FP16 are as wide for 1.99 as "
       "for 1"});
}

}  // namespace

std::vector<Said> format_claims() {
  std::vector<Said> all;
  limits(all);
  wide_limits(all);
  rounding(all);
  updates(all);
  return all;
}

}  // namespace fp16lab::experiments::claims
