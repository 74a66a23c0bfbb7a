// What fp16lab inspect reports, against arithmetic by hand and against softfloat's conversions.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "analysis/inspection.hpp"
#include "experiments/app/commands/softfloat_functions.hpp"

namespace fp16lab::experiments {
namespace {

/// Every midpoint of E4M3 by hand: its numbers are n/512 below 2^-6, then (8 + n) 2^(e - 3).
TEST(Inspect, TiesOfASmallFormat) {
  const analysis::NamedFormat e4m3 = analysis::parse_format("e4m3");
  const auto value = [](int code) {
    return code < 8 ? code / 512.0 : std::ldexp(8 + code % 8, code / 8 - 7 - 3);
  };
  const auto report = [&](double x, const std::string& more = "") {
    return analysis::report_on(analysis::parse_value(fmt::format("{:.12f}{}", x, more)), e4m3, {});
  };
  for (int code = 0; code < 0x7f; ++code)  // 0x7e is 448; after it 480, which is no number, makes 464 a tie
    for (const int sign : {1, -1}) {
      const double low = sign * value(code), middle = sign * (value(code) + value(code + 1)) / 2;
      EXPECT_FALSE(report(low).tie) << low;
      ASSERT_TRUE(report(middle).tie) << middle;
      EXPECT_FALSE(report(middle, "000000000000000000000000000001").tie) << middle;
      EXPECT_EQ(report(middle).code().bits % 2, 0) << middle << ": to even";
    }
  EXPECT_FALSE(report(480).tie);
  EXPECT_TRUE(report(464).tie);
  EXPECT_FALSE(report(465).tie);
}

/// Results and flags, of signaling NaN too, are those of softfloat's conversions.
TEST(Inspect, AgreesWithSoftfloat) {
  std::size_t compared = 0;
  for (const SoftfloatFunction& function : softfloat_functions()) {
    const std::size_t to = function.name.find("_to_");
    if (to == std::string::npos) continue;
    const auto& formats = analysis::named_formats();
    const auto named = [&](const std::string& name) {
      return std::ranges::find(formats, name, &analysis::NamedFormat::prefix);
    };
    const auto from = named(function.name.substr(0, to)), into = named(function.name.substr(to + 4));
    if (from == formats.end() || into == formats.end()) continue;
    const RuntimeFormat& f = from->format;
    for (const std::uint64_t bits :
         {f.infinity | 1U, f.infinity | f.sign_mask | 1U, f.canonical_nan, f.infinity, std::uint64_t{1},
          f.max_finite, f.min_normal - 1, f.min_normal + 1, f.sign_mask, f.max_finite / 2 + 1}) {
      ExceptionFlags flags;
      const std::uint64_t result = function.evaluate(&bits, {}, flags);
      const auto report =
          analysis::report_on(analysis::parse_value(fmt::format("{}:{:#x}", from->prefix,
                                                                bits & (f.sign_mask | f.magnitude_mask))),
                              *into, {Rounding::nearest_even});
      EXPECT_EQ(report.code().bits, result) << function.name << ' ' << bits;
      EXPECT_EQ(analysis::raised(report.rounded.front().flags), analysis::raised(flags))
          << function.name << ' ' << bits;
      ++compared;
    }
  }
  const std::size_t formats = analysis::named_formats().size();
  EXPECT_EQ(compared, formats * (formats - 1) * 10);
}

}  // namespace
}  // namespace fp16lab::experiments
