// fp16lab softfloat through the real binary: TestFloat's line format, every kind of function, options,
// malformed lines.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/spawn.hpp"
#include "tests/support/temporary_folder.hpp"

namespace fp16lab::experiments {
namespace {

using testing::HasSubstr;
using testing_support::Finished;

class Softfloat : public testing::Test {
 protected:
  Finished run(const std::string& arguments, const std::string& input) const {
    const std::filesystem::path file = folder_.path() / "input.txt";
    std::ofstream(file, std::ios::binary) << input;
    return testing_support::run_program(
        "/bin/sh",
        {"-c", std::string(FP16LAB_BIN_DIR) + "/fp16lab softfloat " + arguments + " < " + file.string()},
        folder_.path());
  }

  /// `answer` is what stands behind the operands.
  void expect_answer(const std::string& arguments, const std::string& operands,
                     const std::string& answer) const {
    const Finished result = run(arguments, operands + "\n");
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.out, operands + " " + answer + "\n") << arguments;
    EXPECT_EQ(result.err, "") << arguments;
  }

  void expect_refused(const std::string& arguments, const std::string& input,
                      const std::vector<std::string>& parts, const std::string& before = "") const {
    const Finished result = run(arguments, input);
    EXPECT_EQ(result.exit_code, 2) << arguments << '\n' << input;
    EXPECT_EQ(result.out, before) << arguments << '\n' << input;
    for (const std::string& part : parts)
      EXPECT_THAT(result.err, HasSubstr(part)) << arguments << '\n' << input;
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  }

 private:
  testing_support::TemporaryFolder folder_;
};

TEST_F(Softfloat, EveryKindOfFunction) {
  expect_answer("f16_add", "3C00 1000", "3C00 01");  // 1 + 2^-11: a tie
  expect_answer("f16_sub", "3C00 3C00", "0000 00");
  expect_answer("f16_mul", "0001 3800", "0000 03");  // 2^-25
  expect_answer("f16_mulAdd", "3C01 3C01 BC02", "0010 00");
  expect_answer("f16_div", "3C00 8000", "FC00 08");
  expect_answer("f16_div", "0000 0000", "7FFF 10");
  expect_answer("f16_rem", "4500 4000", "3C00 00");  // 5 - 2 * 2
  expect_answer("f16_sqrt", "4000", "3DA8 01");
  expect_answer("f16_roundToInt", "4100", "4000 00");  // 2.5
  expect_answer("f16_eq", "8000 0000", "1 00");
  expect_answer("f16_eq", "7E00 7E00", "0 00");
  expect_answer("f16_eq_signaling", "7E00 7E00", "0 10");
  expect_answer("f16_le", "7E00 3C00", "0 10");
  expect_answer("f16_le_quiet", "3C00 3C00", "1 00");
  expect_answer("f16_lt", "BC00 3C00", "1 00");
  expect_answer("f16_lt_quiet", "7D00 3C00", "0 10");  // signalling
  expect_answer("f16_to_f32", "0001", "33800000 00");
  expect_answer("f32_to_f16", "477FF000", "7C00 05");          // 65520
  expect_answer("f64_to_f16", "3E60000000000001", "0001 03");  // above 2^-25
  expect_answer("f16_to_i32", "C500", "FFFFFFFB 00");
  expect_answer("f16_to_ui32", "C500", "00000000 10");
  expect_answer("f32_to_ui64", "5F800000", "FFFFFFFFFFFFFFFF 10");  // 2^64
  expect_answer("f64_to_i64", "C3E0000000000000", "8000000000000000 00");
  expect_answer("i32_to_f16", "FFFFFFFF", "BC00 00");
  expect_answer("ui64_to_f32", "FFFFFFFFFFFFFFFF", "5F800000 01");
  expect_answer("f64_add", "3FF0000000000000 3CA0000000000000", "3FF0000000000000 01");
  expect_answer("bf16_mul", "3F81 3F81", "3F82 01");
  expect_answer("tf32_add", "1FC00 00001", "1FC00 01");
  expect_answer("e4m3_add", "7E 7E", "7F 05");  // no infinity
  expect_answer("e5m2_add", "7B 7B", "7C 05");
}

TEST_F(Softfloat, OptionsAsTestFloatNamesThem) {
  expect_answer("f16_sqrt --rounding near_even", "4000", "3DA8 01");
  expect_answer("f16_sqrt --rounding minMag", "4000", "3DA8 01");
  expect_answer("f16_sqrt --rounding min", "4000", "3DA8 01");
  expect_answer("f16_sqrt --rounding max", "4000", "3DA9 01");
  expect_answer("f16_add --rounding near_maxMag", "3C00 1000", "3C01 01");
  expect_answer("f16_sub --rounding min", "3C00 3C00", "8000 00");
  // (1 - 2^-10) 2^-14 (1 + 2^-10): below 2^-14, which it rounds to.
  expect_answer("f16_mul --tininess before", "03FF 3C01", "0400 03");
  expect_answer("f16_mul --tininess after", "03FF 3C01", "0400 01");
  expect_answer("f16_roundToInt --exact", "4100", "4000 01");
  expect_answer("f16_to_i32 --exact --rounding max", "4100", "00000003 01");
  expect_answer("f16_to_i32 --notexact --rounding max", "4100", "00000003 00");
}

TEST_F(Softfloat, LinesAsTheyCome) {
  // Other results and flags, lower case, blanks, CR LF and a last line without end.
  const Finished result = run("f16_add", "3C00 3C00 FFFF 1F\n3c00 4000\n  0  3C00\t\r\n7BFF 7BFF");
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out, "3C00 3C00 4000 00\n3C00 4000 4200 00\n0000 3C00 3C00 00\n7BFF 7BFF 7C00 05\n");
  EXPECT_EQ(run("f16_add", "").out, "");
  EXPECT_EQ(run("f16_add", "").exit_code, 0);
}

TEST_F(Softfloat, ManyBlocksOfLinesStayInOrder) {
  std::mt19937 engine(6);
  std::string input, expected;
  char text[64];
  for (int i = 0; i < 100000; ++i) {
    const auto a = static_cast<std::uint32_t>(engine()) & 0xbfffffff;  // no NaN, no infinity
    const auto b = static_cast<std::uint32_t>(engine()) & 0xbfffffff;
    const float sum = std::bit_cast<float>(a) + std::bit_cast<float>(b);
    const bool exact = static_cast<double>(sum) == static_cast<double>(std::bit_cast<float>(a)) +
                                                       static_cast<double>(std::bit_cast<float>(b)) &&
                       sum - std::bit_cast<float>(a) == std::bit_cast<float>(b) &&
                       sum - std::bit_cast<float>(b) == std::bit_cast<float>(a);
    std::snprintf(text, sizeof text, "%08X %08X\n", a, b);
    input += text;
    std::snprintf(text, sizeof text, "%08X %08X %08X %02X\n", a, b, std::bit_cast<std::uint32_t>(sum),
                  exact ? 0u : 1u);
    expected += text;
  }
  const Finished result = run("f32_add", input);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(result.out == expected);
}

TEST_F(Softfloat, MalformedLinesAreQuotedWithTheirNumber) {
  for (const char* line : {"3C00", "", "3C00 zz", "3C00 13C00", "3C00 3C00 4000", "3C00 3C00 4000 00 00",
                           "3C00 3C00 4000 20", "3C00,3C00", "0x3C00 3C00", "3C00 -3C00"})
    expect_refused("f16_add", "3C00 3C00\n" + std::string(line) + "\n3C00 3C00\n",
                   {"line 2: '" + std::string(line) + "'", "f16_add", "f16 (16 bits) f16 (16 bits)"},
                   "3C00 3C00 4000 00\n");
  expect_refused("tf32_sqrt", "80000\n", {"line 1: '80000'", "tf32 (19 bits)"});
  expect_refused("f64_sqrt", "10000000000000000\n", {"line 1:"});
  expect_refused("f16_sqrt", std::string(1000, '1') + "\n", {"111...'"});
  expect_refused("f16_sqrt", "\x01G\n", {"'?G'"});
}

TEST_F(Softfloat, MistypedNames) {
  expect_refused("f16_ad", "", {"unknown function 'f16_ad'; did you mean 'f16_add'?"});
  expect_refused("f16_muladd", "", {"did you mean 'f16_mulAdd'?"});
  expect_refused("f128_add", "", {"unknown function 'f128_add'"});
  expect_refused("", "", {"expected a FUNCTION"});
  expect_refused("f16_add --rounding minmag", "",
                 {"'minmag'", "near_even, minMag, min, max, near_maxMag", "did you mean 'minMag'?"});
  expect_refused("f16_add --rounding odd", "", {"'odd'"});
  expect_refused("f16_add --tininess never", "", {"'never'", "before, after"});
  expect_refused("f16_add --exakt", "", {"did you mean '--exact'?"});
}

TEST_F(Softfloat, ListsWhatTestFloatLists) {
  const Finished result = run("--list", "");
  EXPECT_EQ(result.exit_code, 0);
  std::set<std::string> names;
  std::istringstream lines(result.out);
  for (std::string line; std::getline(lines, line);) names.insert(line.substr(0, line.find('\t')));
  for (const std::string format : {"f16", "f32", "f64"}) {
    for (const char* operation : {"add", "sub", "mul", "mulAdd", "div", "rem", "sqrt", "roundToInt", "eq",
                                  "le", "lt", "eq_signaling", "le_quiet", "lt_quiet"})
      EXPECT_TRUE(names.contains(format + "_" + operation)) << format << operation;
    for (const std::string other : {"f16", "f32", "f64", "ui32", "ui64", "i32", "i64"}) {
      EXPECT_EQ(names.contains(fmt::format("{}_to_{}", format, other)), other != format) << format << other;
      EXPECT_EQ(names.contains(fmt::format("{}_to_{}", other, format)), other != format) << format << other;
    }
  }
}

TEST_F(Softfloat, UnwritableOutputIsAnError) {
  const Finished result = run("f16_add > /dev/full", "3C00 3C00\n");
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("cannot write to the standard output"));
}

}  // namespace
}  // namespace fp16lab::experiments
