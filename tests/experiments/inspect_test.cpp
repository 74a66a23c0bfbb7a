// fp16lab inspect against values from the literature, typed here.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/spawn.hpp"

namespace fp16lab::experiments {
namespace {

using Json = nlohmann::json;

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
  const testing_support::Finished result = run({"0.00006666666", "-2", "f16:3c00"});
  EXPECT_EQ(result.exit_code, 0);
  for (const char* part :
       {"0x045e", "6.663799285888671875e-05", "toward_zero", "next above", "0xc000", "0x3c00", "exact"})
    EXPECT_NE(result.out.find(part), std::string::npos) << part;
}

TEST_F(Inspect, RefusesWhatIsNoValue) {
  for (const char* value : {"1.5x", "f16:0x12345", "f17:0x1", "f16:", "f16:0xg", "hello"}) {
    const testing_support::Finished result = run({value});
    EXPECT_EQ(result.exit_code, 2) << value;
    EXPECT_EQ(result.out, "");
    EXPECT_NE(result.err.find(value), std::string::npos) << result.err;
  }
}

}  // namespace
}  // namespace fp16lab::experiments
