// fp16lab inspect against values from the literature, typed here.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "analysis/inspection.hpp"
#include "experiments/app/commands/softfloat_functions.hpp"
#include "tests/support/spawn.hpp"

namespace fp16lab::experiments {
namespace {

using Json = nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class Inspect : public testing::Test {
 protected:
  static testing_support::Finished run(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "inspect");
    return testing_support::run_program(std::string(FP16LAB_BIN_DIR) + "/fp16lab", arguments,
                                        testing::TempDir());
  }
  /// The report of one value in one format.
  static Json format(const std::string& value, const std::string& name) {
    const testing_support::Finished result = run({value, "--json"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.err, "");
    const Json json = Json::parse(result.out);
    for (const Json& entry : json.at(0).at("formats"))
      if (entry.at("format") == name) return entry;
    ADD_FAILURE() << "no format " << name;
    return {};
  }
  static std::string bits(const std::string& value, const std::string& name,
                          const std::string& rounding = "nearest_even") {
    return format(value, name).at("rounding").at(rounding).at("bits");
  }
};

TEST_F(Inspect, TypedValuesOfTheStandardAndTheFormats) {
  // IEEE 754-2019, table 3.5, and well-known codes.
  EXPECT_EQ(bits("1", "FP16"), "0x3c00");
  EXPECT_EQ(bits("-2", "FP16"), "0xc000");
  EXPECT_EQ(bits("65504", "FP16"), "0x7bff");
  EXPECT_EQ(bits("2^-24", "FP16"), "0x0001");
  EXPECT_EQ(bits("2^-14", "FP16"), "0x0400");
  EXPECT_EQ(bits("1", "BF16"), "0x3f80");
  EXPECT_EQ(bits("1", "FP32"), "0x3f800000");
  EXPECT_EQ(bits("0.1", "FP32"), "0x3dcccccd");
  EXPECT_EQ(bits("3.14159265358979", "FP32"), "0x40490fdb");
  EXPECT_EQ(bits("1", "E5M2"), "0x3c");
  EXPECT_EQ(bits("57344", "E5M2"), "0x7b") << "its largest finite number";
}

TEST_F(Inspect, TheExampleOfASmallGradient) {
  const Json fp16 = format("0.00006666666", "FP16");
  EXPECT_EQ(fp16.at("rounding").at("nearest_even").at("bits"), "0x045e");
  EXPECT_EQ(fp16.at("rounding").at("nearest_even").at("value"), "6.663799285888671875e-05");
  EXPECT_EQ(fp16.at("rounding").at("nearest_even").at("class"), "normal");
  EXPECT_EQ(fp16.at("ulp"), "5.9604644775390625e-08");
  EXPECT_EQ(fp16.at("below").at("bits"), "0x045d");
  EXPECT_EQ(fp16.at("above").at("bits"), "0x045f");
  EXPECT_EQ(fp16.at("rounding").at("nearest_even").at("error"), "-2.866714111328125e-08");
}

TEST_F(Inspect, RoundingModesDifferWhereTheyMust) {
  // 65520 is the tie between 65504 and the would-be 65536: to nearest it overflows, towards zero it does not.
  EXPECT_EQ(bits("65520", "FP16"), "0x7c00");
  EXPECT_EQ(bits("65520", "FP16", "toward_zero"), "0x7bff");
  EXPECT_EQ(bits("65520", "FP16", "downward"), "0x7bff");
  EXPECT_EQ(bits("65519.99", "FP16"), "0x7bff");
  EXPECT_EQ(bits("65519.99", "FP16", "upward"), "0x7c00");
  // 2^-25 is the tie that loses small gradients.
  EXPECT_EQ(bits("2^-25", "FP16"), "0x0000");
  EXPECT_EQ(bits("2^-25", "FP16", "nearest_away"), "0x0001");
  EXPECT_EQ(bits("2^-25", "FP16", "upward"), "0x0001");
  EXPECT_EQ(bits("-2^-25", "FP16"), "0x8000");
  EXPECT_EQ(bits("-2^-25", "FP16", "downward"), "0x8001");
  EXPECT_EQ(bits("-2^-25", "FP16", "upward"), "0x8000");
  // Just above it by far less than a double can see beside it.
  EXPECT_EQ(bits("2.98023223876953125000000000000000000000001e-08", "FP16"), "0x0001");
}

TEST_F(Inspect, BitPatternsAndSpecialValues) {
  EXPECT_EQ(format("f16:0x045e", "FP32").at("rounding").at("nearest_even").at("value"),
            "6.663799285888671875e-05");
  EXPECT_EQ(bits("f32:0x00000001", "FP16", "upward"), "0x0001");
  EXPECT_EQ(bits("f16:0xfc00", "BF16"), "0xff80");
  EXPECT_EQ(bits("f16:0x7e00", "FP16"), "0x7fff") << "one NaN";
  EXPECT_EQ(bits("-inf", "FP32"), "0xff800000");
  EXPECT_EQ(bits("nan", "FP32"), "0x7fffffff");
  EXPECT_EQ(bits("-0", "FP16"), "0x8000");
  EXPECT_EQ(bits("-1.5", "FP16"), "0xbe00") << "a number with a sign is no option";
  const Json zero = format("0", "FP16");
  EXPECT_EQ(zero.at("below").at("bits"), "0x8001");
  EXPECT_EQ(zero.at("above").at("bits"), "0x0001");
  const Json largest = format("65504", "FP16");
  EXPECT_EQ(largest.at("above").at("value"), "inf");
  EXPECT_EQ(largest.at("ulp"), "32");
}

TEST_F(Inspect, TextShowsWhatJsonHolds) {
  const testing_support::Finished result = run({"0.00006666666", "-2", "f16:3c00", "--long"});
  EXPECT_EQ(result.exit_code, 0);
  for (const char* part :
       {"0x045e", "6.663799285888671875e-05", "toward_zero", "next above", "0xc000", "0x3c00", "exact"})
    EXPECT_NE(result.out.find(part), std::string::npos) << part;
}

TEST_F(Inspect, EveryFormatShowsBitsAndShortValueOnOneLine) {
  const testing_support::Finished result = run({"0.00006666666"});
  // E5M2's and BF16's neighbours of 0.00006666666 by hand: 2^-14 and (1 + 12/128) 2^-14.
  for (const char* line :
       {"FP16 0x045e = 6.664e-05", "BF16 0x388c = 6.68e-05", "TF32 0x1c45e = 6.664e-05",
        "FP32 0x388bcf64 = 6.666666e-05", "FP64 0x3f1179ec7f6b8246 = 6.666666e-05", "E4M3 0x00 = 0",
        "E5M2 0x04 = 6e-05", "error -2.866714e-08 = -0.481 ulp  [inexact]"})
    EXPECT_NE(result.out.find(line), std::string::npos) << line;
  const auto lines = [](const std::string& text) { return std::ranges::count(text, '\n'); };
  EXPECT_LE(lines(result.out), 10);
  const std::string one = run({"0.00006666666", "--format", "FP16"}).out;
  EXPECT_LE(lines(one), 10);
  EXPECT_NE(one.find("(-1)^0 2^(1-15) (1+94/1024) = 6.663799285888671875e-05"), std::string::npos);
  EXPECT_GE(lines(run({"0.00006666666", "--long"}).out), 90) << "all that is known";
}

TEST_F(Inspect, NeighboursNeverPrintAlikeAndTiesAloneAreTies) {
  EXPECT_THAT(run({"f32:0x4b800001", "--format", "FP32"}).out,
              AllOf(HasSubstr("0x4b800001 = 16777218  exact"), HasSubstr("0x4b800000 = 16777216\n"),
                    HasSubstr("0x4b800002 = 16777220\n")));
  EXPECT_THAT(run({"0.1", "--format", "FP64"}).out,
              AllOf(HasSubstr("= 0.1  error"), HasSubstr("= 0.09999999999999999\n"),
                    HasSubstr("= 0.10000000000000002\n")));
  // 2^-42 ulp above the tie 1 + 2^-11, and 5e-5 ulp below one.
  EXPECT_THAT(run({"f64:0x3ff0020000000001", "--format", "FP16", "--long"}).out,
              AllOf(HasSubstr("= +0.4999999999998 ulp"), HasSubstr("0.5 (not a tie"),
                    Not(HasSubstr("0.5 ulp")), Not(HasSubstr("tie, to"))));
  EXPECT_THAT(run({"1025.49995", "--format", "FP16"}).out, HasSubstr("error -0.49995 = -0.49995 ulp"));
  EXPECT_THAT(run({"2^-25", "--format", "FP16", "--long"}).out,
              AllOf(HasSubstr("-0.5 ulp  tie, to even  [underflow inexact]"),
                    HasSubstr("+0.5 ulp  tie, away from zero"), HasSubstr("probability 0.5 to 0x0001")));
}

/// Every midpoint of E4M3 by hand: its numbers are n/512 below 2^-6, then (8 + n) 2^(e - 3).
TEST_F(Inspect, TiesOfASmallFormat) {
  const analysis::NamedFormat e4m3 = analysis::parse_format("e4m3");
  const auto value = [](int code) {
    return code < 8 ? code / 512.0 : std::ldexp(8 + code % 8, code / 8 - 7 - 3);
  };
  const auto report = [&](double x, const std::string& more = "") {
    return analysis::report_on(analysis::parse_value(fmt::format("{:.12f}{}", x, more)), e4m3, {});
  };
  for (int code = 0; code < 0x7f; ++code)  // 0x7e is 448; behind it 480, which is no number, makes 464 a tie
    for (const int sign : {1, -1}) {
      const double low = sign * value(code), middle = sign * (value(code) + value(code + 1)) / 2;
      EXPECT_FALSE(report(low).tie) << low;
      ASSERT_TRUE(report(middle).tie) << middle;
      EXPECT_FALSE(report(middle, "000000000000000000000000000001").tie) << middle;
      EXPECT_EQ(report(middle).code().bits % 2, 0) << middle << ": to even";
    }
  EXPECT_FALSE(report(480).tie);
  EXPECT_TRUE(format("464", "E4M3").at("tie"));
  EXPECT_FALSE(format("465", "E4M3").at("tie"));
}

/// Results and flags, of signaling NaN too, are those of softfloat's conversions.
TEST_F(Inspect, AgreesWithSoftfloat) {
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
  EXPECT_EQ(compared, 7U * 6U * 10U);
  EXPECT_THAT(run({"f16:0x7d01", "--format", "FP32"}).out, HasSubstr("0x7fffffff = nan  [invalid]"));
}

TEST_F(Inspect, NumbersWithASignAreValuesWhereverTheyStand) {
  const std::string infinite = run({"--format", "FP16", "--", "-inf"}).out;
  EXPECT_THAT(infinite, HasSubstr("0xfc00 = -inf"));
  EXPECT_EQ(run({"-inf", "--format", "FP16"}).out, infinite);
  EXPECT_EQ(run({"--format=FP16", "-inf"}).out, infinite);
  EXPECT_EQ(run({"-inf", "--quiet", "--format", "FP16"}).out, infinite);
  EXPECT_EQ(run({"-inf", "--threads", "1", "--format", "FP16"}).out, infinite);
  for (const char* const value : {"-.5", "-0x10", "-0x1.8p3", "-2^3", "-1e-3", "-nan", "-infinity"}) {
    const testing_support::Finished result = run({value, "--format", "FP16"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.out.find(value), 0U) << result.out;
    EXPECT_EQ(run({"--format", "FP16", "--", value}).out, result.out);
  }
  const Json json = Json::parse(run({"1", "-2", "3", "-inf", "--json"}).out);
  for (std::size_t i = 0; i < 4; ++i)
    EXPECT_EQ(json.at(i).at("input"), (std::array{"1", "-2", "3", "-inf"}.at(i))) << "in their order";
  const testing_support::Finished wrong = run({"-imf", "--format", "FP16"});
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_THAT(wrong.err, HasSubstr("unknown option '-imf'"));
}

TEST_F(Inspect, EdgesAreThoseOfTheExperiment) {
  const testing_support::Finished edges = run({"--edges"});
  EXPECT_EQ(edges.exit_code, 0);
  const std::string experiment =
      testing_support::run_program(std::string(FP16LAB_BIN_DIR) + "/exp_rounding_edges", {},
                                   testing::TempDir())
          .out;
  EXPECT_TRUE(experiment.ends_with(edges.out)) << experiment;
  EXPECT_THAT(edges.out, HasSubstr("2049 lies half way from 2048 to 2050 and becomes 2048: 0x6800\n"));
}

TEST_F(Inspect, FormulasAreTheValue) {
  const auto formula = [](const std::string& value, const std::string& name) -> std::string {
    return format(value, name).at("rounding").at("nearest_even").at("formula");
  };
  EXPECT_EQ(formula("0.00006666666", "FP16"), "(-1)^0 2^(1-15) (1+94/1024)");
  EXPECT_EQ(formula("-65504", "FP16"), "(-1)^1 2^(30-15) (1+1023/1024)");
  EXPECT_EQ(formula("2^-24", "FP16"), "(-1)^0 2^(-14) (1/1024)");
  EXPECT_EQ(formula("-0", "FP16"), "(-1)^1 2^(-14) (0/1024)");
  EXPECT_EQ(formula("448", "E4M3"), "(-1)^0 2^(15-7) (1+6/8)");
  EXPECT_EQ(formula("1", "FP64"), "(-1)^0 2^(1023-1023) (1+0/4503599627370496)");
  EXPECT_TRUE(format("inf", "FP16").at("rounding").at("nearest_even").at("formula").is_null());
}

TEST_F(Inspect, DoublePrecisionAndTheEightBitFormats) {
  EXPECT_EQ(bits("0.1", "FP64"), "0x3fb999999999999a");
  EXPECT_EQ(bits("4.9406564584124654e-324", "FP64"), "0x0000000000000001");
  EXPECT_EQ(bits("2.4703282292062327e-324", "FP64"), "0x0000000000000000") << "just below half of it";
  EXPECT_EQ(bits("2.4703282292062328e-324", "FP64"), "0x0000000000000001") << "just above";
  EXPECT_EQ(bits("448", "E4M3"), "0x7e");
  EXPECT_EQ(bits("464", "E4M3"), "0x7e");
  EXPECT_EQ(bits("464.001", "E4M3"), "0x7f") << "overflow is NaN";
  EXPECT_EQ(bits("-1e9", "E4M3", "toward_zero"), "0xfe");
}

TEST_F(Inspect, BitPatternsOfEveryFormat) {
  for (const auto& [text, value] :
       std::vector<std::pair<std::string, std::string>>{{"f16:0x3e00", "1.5"},
                                                        {"bf16:3fc0", "1.5"},
                                                        {"tf32:0x1fe00", "1.5"},
                                                        {"f32:3fc00000", "1.5"},
                                                        {"f64:3ff8000000000000", "1.5"},
                                                        {"e4m3:3c", "1.5"},
                                                        {"e5m2:0x3e", "1.5"},
                                                        {"6,10:0x3f00", "1.5"}})
    EXPECT_EQ(format(text, "FP64").at("rounding").at("nearest_even").at("value"), value) << text;
  const testing_support::Finished result = run({"f16:0x7d01", "--json"});
  EXPECT_EQ(Json::parse(result.out).at(0).at("nan"), "signaling NaN, payload 0x101");
}

TEST_F(Inspect, FormatsOfTheUsersOwn) {
  // 6 exponent bits, 10 significant ones: bias 31, largest number (2 - 2^-9) 2^31, smallest 2^-39.
  Json json = Json::parse(run({"4290772992", "2^-39", "--format", "6,10", "--json"}).out);
  ASSERT_EQ(json.at(0).at("formats").size(), 1u) << "only the formats asked for";
  EXPECT_EQ(json.at(0).at("formats").at(0).at("rounding").at("nearest_even").at("bits"), "0x7dff");
  EXPECT_EQ(json.at(0).at("formats").at(0).at("rounding").at("nearest_even").at("error"), "0");
  EXPECT_EQ(json.at(1).at("formats").at(0).at("rounding").at("nearest_even").at("bits"), "0x0001");
  // 4,4 with a top binade of numbers is E4M3; without, the top binade is specials and 240 the largest number.
  json = Json::parse(
      run({"500", "-17", "--format=4,4,numbers", "--format", "e4m3", "--format", "4,4", "--json"}).out);
  for (const Json& value : json) {
    const Json& formats = value.at("formats");
    EXPECT_EQ(formats.at(0).at("rounding"), formats.at(1).at("rounding"));
    EXPECT_EQ(formats.at(0).at("above"), formats.at(1).at("above"));
  }
  EXPECT_EQ(json.at(0).at("formats").at(2).at("rounding").at("toward_zero").at("value"), "240");
}

TEST_F(Inspect, StochasticRoundingAndFlags) {
  const Json quarter = format("0x1.001p0", "FP16");  // 1 + 2^-12: a quarter of an ulp above 1
  EXPECT_EQ(quarter.at("stochastic").at("probability_away"), 0.25);
  EXPECT_EQ(quarter.at("stochastic").at("toward_zero").at("bits"), "0x3c00");
  EXPECT_EQ(quarter.at("stochastic").at("away").at("bits"), "0x3c01");
  EXPECT_EQ(format("1", "FP16").at("stochastic").at("probability_away"), 0);
  EXPECT_EQ(quarter.at("rounding").at("upward").at("error_ulp"), 0.75);
  EXPECT_EQ(quarter.at("rounding").at("nearest_even").at("flags"), Json({"inexact"}));
  EXPECT_EQ(format("2^-26", "FP16").at("rounding").at("nearest_even").at("flags"),
            Json({"underflow", "inexact"}));
  EXPECT_EQ(format("65520", "FP16").at("rounding").at("nearest_even").at("flags"),
            Json({"overflow", "inexact"}));
  EXPECT_EQ(format("1", "FP16").at("rounding").at("nearest_even").at("flags"), Json::array());

  const Json json = Json::parse(run({"0.1", "--rounding", "upward", "--rounding=stochastic", "--json"}).out);
  for (const Json& entry : json.at(0).at("formats")) {
    EXPECT_EQ(entry.at("rounding").size(), 1u);
    EXPECT_TRUE(entry.at("rounding").contains("upward"));
    EXPECT_TRUE(entry.contains("stochastic"));
  }
}

TEST_F(Inspect, RefusesUnknownFormatsAndRoundings) {
  for (const auto& [option, text, part] :
       std::vector<std::array<std::string, 3>>{{"--format", "FP15", "did you mean 'FP16'"},
                                               {"--format", "1,3", "2 to 15"},
                                               {"--format", "5,11,nothing", "EXPONENT_BITS,PRECISION"},
                                               {"--rounding", "upwards", "did you mean 'upward'"}}) {
    const testing_support::Finished result = run({"1", option, text});
    EXPECT_EQ(result.exit_code, 2) << text;
    EXPECT_NE(result.err.find("'" + text + "'"), std::string::npos) << result.err;
    EXPECT_NE(result.err.find(part), std::string::npos) << result.err;
  }
}

TEST_F(Inspect, RefusesWhatIsNoValue) {
  for (const char* value : {"1.5x", "f16:0x12345", "f17:0x1", "f16:", "f16:0xg", "hello", "e4m3:0x100",
                            "tf32:0x80000", "f64:0x10000000000000000", "99,1:0"}) {
    const testing_support::Finished result = run({value});
    EXPECT_EQ(result.exit_code, 2) << value;
    EXPECT_EQ(result.out, "");
    EXPECT_NE(result.err.find(value), std::string::npos) << result.err;
  }
}

}  // namespace
}  // namespace fp16lab::experiments
