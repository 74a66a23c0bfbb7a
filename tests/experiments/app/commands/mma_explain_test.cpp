// fp16lab mma --explain: lines worked out by hand, as text and as JSON. What holds of every explanation is
// asked by tests/numerics/tensor_core/explained_dot_test.cpp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "experiments/app/commands/mma_explain.hpp"
#include "experiments/app/exit_code.hpp"
#include "tests/experiments/app/commands/mma_lines.hpp"
#include "tests/support/spawn.hpp"

namespace fp16lab::experiments {
namespace {

using testing::HasSubstr;
using testing::StartsWith;
using testing_support::Finished;

class MmaExplain : public MmaLines {
 protected:
  nlohmann::json json(const std::string& input, const std::string& arguments) const {
    const Finished result = run(input, arguments + " --explain --json");
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return nlohmann::json::parse(result.out);
  }
};

// One sum, three generations. The terms: c = 4b000000 = 2^23; f000 * 6400 = -2^13 * 2^10 = -2^23; and b800,
// b400, b000 = -1/2, -1/4, -1/8, times 1. The largest exponent is 23, so the least bit that is kept is 2^(23
// - F): 1 on Volta (F = 23), 1/2 on Ampere (24), 1/4 on Hopper (25). 2^23 cancels, and of -7/8 remain 0, -1/2
// and -3/4. An ulp of FP32 at 7/8, in [1/2, 1), is 2^-24, so the errors are 7/8, 3/8 and 1/8 of 2^24 ulps,
// all of them from the alignment: 14680064, 6291456 and 2097152.
const std::string cancelling = "f000 b800 b400 b000\t6400 3c00 3c00 3c00\t4b000000\n";

TEST_F(MmaExplain, VoltaKeepsNothingBelowOne) {
  const Finished result = run(cancelling, "--model volta --explain");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  EXPECT_EQ(result.out,
            "f000 b800 b400 b000\t6400 3c00 3c00 3c00\t4b000000\n"
            "  volta: f16 * f16 -> f32, block of 4 products and c, F 23, E0 -131, fp32_toward_zero\n"
            "  a[0]  f000      -8192  -8192    b[0]  6400  1024  1024\n"
            "  a[1]  b800      -2^-1  -0.5     b[1]  3c00  1     1\n"
            "  a[2]  b400      -2^-2  -0.25    b[2]  3c00  1     1\n"
            "  a[3]  b000      -2^-3  -0.125   b[3]  3c00  1     1\n"
            "  c     4b000000  2^23   8388608\n"
            "  step 1: a fused block, max exponent 23, unit 2^0, from c = 4b000000\n"
            "    term       exact  exponent  aligned, x 2^23                   kept   dropped\n"
            "    c          2^23   23        + 01.00000000000000000000000      2^23   0\n"
            "    a[0]*b[0]  -2^23  23        - 01.00000000000000000000000      -2^23  0\n"
            "    a[1]*b[1]  -2^-1  -1        - 00.00000000000000000000000|1    0      -2^-1\n"
            "    a[2]*b[2]  -2^-2  -2        - 00.00000000000000000000000|01   0      -2^-2\n"
            "    a[3]*b[3]  -2^-3  -3        - 00.00000000000000000000000|001  0      -2^-3\n"
            "    sum 0\n"
            "    toward zero: 00000000 = 0, exact\n"
            "  d          00000000 = 0\n"
            "  exact sum  -7*2^-3 = -0.875\n"
            "  nearest    bf600000 = -7*2^-3 = -0.875\n"
            "  error      +1.46801e+07 ulp (an ulp is 2^-24), relative +1; from alignment +1.46801e+07 ulp, "
            "from rounding +0 ulp\n");
  const nlohmann::json step = json(cancelling, "--model volta").at("steps").at(0);
  EXPECT_EQ(step.at("terms").at(0).at("aligned"), "+ 01.00000000000000000000000");
  EXPECT_EQ(step.at("terms").at(3).at("aligned"), "- 00.00000000000000000000000|01");
}

TEST_F(MmaExplain, AmpereAndHopperKeepABitMoreEach) {
  const std::string ampere = run(cancelling, "--model ampere --explain").out;
  EXPECT_THAT(ampere, HasSubstr("max exponent 23, unit 2^-1,"));
  EXPECT_THAT(ampere, HasSubstr("a[1]*b[1]  -2^-1  -1        - 00.000000000000000000000001     -2^-1  0\n"));
  EXPECT_THAT(ampere,
              HasSubstr("a[3]*b[3]  -2^-3  -3        - 00.000000000000000000000000|01  0      -2^-3\n"));
  EXPECT_THAT(ampere, HasSubstr("  d          bf000000 = -2^-1 = -0.5\n"));
  const nlohmann::json on_ampere = json(cancelling, "--model ampere");
  EXPECT_EQ(on_ampere.at("error_ulp"), 6291456);

  const std::string hopper = run(cancelling, "--model hopper --explain").out;
  EXPECT_THAT(hopper, HasSubstr("max exponent 23, unit 2^-2,"));
  EXPECT_THAT(hopper, HasSubstr("a[2]*b[2]  -2^-2  -2        - 00.0000000000000000000000001    -2^-2  0\n"));
  EXPECT_THAT(hopper, HasSubstr("  d          bf400000 = -3*2^-2 = -0.75\n"));
  EXPECT_EQ(json(cancelling, "--model hopper").at("error_ulp"), 2097152);
  EXPECT_EQ(json(cancelling, "--model volta").at("error_ulp"), 14680064);
}

// 0800 * 8c00 = 2^-13 * -2^-12 = -2^-25 beside c = 1. Hopper keeps it: 1 - 2^-25 = 33554431 * 2^-25, 25 ones
// in binary. The accumulator has 24, so truncation loses the last: 16777215 * 2^-24 = 3f7fffff, off by
// -2^-25. The sum lies in [1/2, 1), where an ulp is 2^-24: the error is -1/2 ulp. The sum is a tie, and 1 is
// even.
TEST_F(MmaExplain, JsonHasTheSameNumbers) {
  const std::string line = "0800\t8c00\t3f800000\n";
  EXPECT_THAT(
      run(line, "--model hopper --explain").out,
      HasSubstr("    sum 33554431*2^-25 = 0.9999999702\n"
                "    toward zero: 3f7fffff = 16777215*2^-24 = 0.99999994, off by -2^-25\n"
                "  d          3f7fffff = 16777215*2^-24 = 0.999999940395355224609375\n"
                "  exact sum  33554431*2^-25 = 0.9999999701976776123046875\n"
                "  nearest    3f800000 = 1\n"
                "  error      -0.5 ulp (an ulp is 2^-24), relative -2.98023e-08; from alignment +0 ulp, from "
                "rounding -0.5 ulp\n"));
  const nlohmann::json x = json("# a comment\n\n" + line, "--model hopper");
  EXPECT_EQ(x.at("line"), 3);
  EXPECT_EQ(x.at("row").at("fraction_bits"), 25);
  EXPECT_EQ(x.at("a").dump(), R"([{"bits":"0800","value":"0.0001220703125"}])");
  EXPECT_EQ(x.at("c").dump(), R"({"bits":"3f800000","value":"1"})");
  ASSERT_EQ(x.at("steps").size(), 1U);
  const nlohmann::json& step = x.at("steps").at(0);
  EXPECT_EQ(step.at("step"), "fused_block");
  EXPECT_EQ(step.at("max_exponent"), 0);
  EXPECT_EQ(step.at("unit_exponent"), -25);
  ASSERT_EQ(step.at("terms").size(), 2U);
  const nlohmann::json product = step.at("terms").at(1);
  EXPECT_EQ(product.at("term"), "a[0]*b[0]");
  EXPECT_EQ(product.at("exponent"), -25);
  EXPECT_EQ(product.at("exact"), product.at("kept"));
  EXPECT_EQ(product.at("kept").dump(),
            R"({"decimal":"-2.98023223876953125e-08","exponent":-25,"significand":"-1"})");
  EXPECT_EQ(product.at("dropped").at("significand"), "0");
  EXPECT_EQ(step.at("sum").at("significand"), "33554431");
  EXPECT_EQ(step.at("result").at("bits"), "3f7fffff");
  EXPECT_EQ(step.at("rounding").at("exponent"), -25);
  EXPECT_EQ(x.at("d").at("bits"), "3f7fffff");
  EXPECT_EQ(x.at("exact").at("decimal"), "0.9999999701976776123046875");
  EXPECT_EQ(x.at("nearest").at("bits"), "3f800000");
  EXPECT_EQ(x.at("correctly_rounded"), false);
  EXPECT_EQ(x.at("ulp_exponent"), -24);
  EXPECT_EQ(x.at("error_ulp"), -0.5);
  EXPECT_NEAR(x.at("error_relative"), -1.0 / 33554431, 1e-20);
}

// 1 + 2^-11 + 2^-25 (3c00 * 3c00, 3c00 * 1000, 0400 * 1000) to FP16, whose ulp at 1 is 2^-10. Volta drops
// 2^-25 (F = 23), and the tie 1 + 2^-11 goes to the even 1: an error of -(2^-11 + 2^-25) = -(1/2 + 2^-15)
// ulp, of which 2^-15 = 3.05176e-05 by alignment. Hopper keeps it (F = 25) and rounds up, as one correct
// rounding does.
TEST_F(MmaExplain, Fp16AccumulatorsRoundToNearestEven) {
  const std::string line = "3c00 3c00 0400\t3c00 1000 1000\t0\n";
  const std::string volta = run(line, "--model volta --acc f16 --explain").out;
  EXPECT_THAT(volta, HasSubstr("    sum 2049*2^-11 = 1.000488281\n"
                               "    to nearest even: 3c00 = 1, off by -2^-11\n"));
  EXPECT_THAT(volta, HasSubstr("  exact sum  33570817*2^-25 = 1.000488311052322387695312"));
  EXPECT_THAT(volta, HasSubstr("  error      -0.500031 ulp (an ulp is 2^-10), relative -0.000488073; from "
                               "alignment -3.05176e-05 ulp, from rounding -0.5 ulp\n"));
  const std::string hopper = run(line, "--model hopper --acc f16 --explain").out;
  EXPECT_THAT(hopper, HasSubstr("  d          3c01 = 1025*2^-10 = 1.0009765625\n"));
  EXPECT_THAT(hopper, HasSubstr("from alignment +0 ulp, from rounding +0.499969 ulp; correctly rounded\n"));
}

// E4M3's 04 is subnormal: 4 * 2^-9 = 2^-7 with exponent -6. Two products are 2^-14 with exponent -12, the
// first is 1. Ada keeps 13 bits below 1, so each 2^-14 is lost although their sum, 2^-13, has a bit. An ulp
// of FP32 at 1 is 2^-23: the error is -2^10 ulp.
TEST_F(MmaExplain, Fp8OnAdaKeeps13Bits) {
  const std::string text = run("38 04 04\t38 04 04\t0\n", "--model ada --in e4m3 --explain").out;
  EXPECT_THAT(text, HasSubstr("a[1]*b[1]  2^-14  -12       + 00.0000000000000|1  0     2^-14\n"));
  EXPECT_THAT(text, HasSubstr("    toward zero, to 14 bits: 3f800000 = 1, exact\n"));
  EXPECT_THAT(text,
              HasSubstr("  error      -1024 ulp (an ulp is 2^-23), relative -0.000122055; from alignment "
                        "-1024 ulp, from rounding +0 ulp\n"));
}

// 3f800001 = 1 + 2^-23 loses its last bit, which TF32 has not: of the exact sum 2 + 2^-22 remains 2. An ulp
// at 2 is 2^-22, so the error is -1 ulp, and neither alignment nor rounding made it.
TEST_F(MmaExplain, Tf32CutsItsOperandsFirst) {
  const std::string line = "3f800001\t40000000\t0\n", arguments = "--model ampere --in tf32";
  const std::string text = run(line, arguments + " --explain").out;
  EXPECT_THAT(text, HasSubstr("  a[0]  3f800001  1  1  and 2^-23, dropped  b[0]  40000000  2  2\n"));
  EXPECT_THAT(text, HasSubstr("  exact sum  8388609*2^-22 = 2.0000002384185791015625\n"));
  EXPECT_THAT(
      text,
      HasSubstr("  error      -1 ulp (an ulp is 2^-22), relative -1.19209e-07; from bits of operands -1 "
                "ulp, from alignment +0 ulp, from rounding +0 ulp\n"));
  const nlohmann::json x = json(line, arguments);
  EXPECT_EQ(x.at("a").at(0).at("value"), "1");
  EXPECT_EQ(x.at("a").at(0).at("dropped").at("exponent"), -23);
  EXPECT_FALSE(x.at("b").at(0).contains("dropped"));
  EXPECT_EQ(x.at("operand_error_ulp"), -1);
  EXPECT_EQ(x.at("error_ulp"), -1);
  EXPECT_FALSE(json("3c00\t3c00\t0\n", "--model ampere").contains("operand_error_ulp"));
}

// Hopper's FP8 with FP16 accumulators: k mod 4 in {0, 1} first. 78 * 50 = 2^8 * 2^3 = 2048, where FP16 has an
// ulp of 2. The second block adds 38 * 38 = 1: 2049 is a tie, and 2048 is even. Then c = 1: the same again.
// The exact sum is 2050 = 6801; both roundings lost half an ulp.
TEST_F(MmaExplain, Fp8ThroughFp16HasTwoBlocksAndAnAddition) {
  const std::string line = "78 00 38 00\t50 00 38 00\t3c00\n";
  const std::string arguments = "--model hopper --in e4m3 --acc f16";
  EXPECT_THAT(
      run(line, arguments + " --explain").out,
      HasSubstr("    to nearest even: 6800 = 2048, exact\n"
                "  step 2: a fused block, max exponent 11, unit 2^-14, from step 1 = 6800\n"
                "    term       exact  exponent  aligned, x 2^11                 kept  dropped\n"
                "    step 1     2048   11        + 01.0000000000000000000000000  2048  0\n"
                "    a[2]*b[2]  1      0         + 00.0000000000100000000000000  1     0\n"
                "    a[3]*b[3]  0\n"
                "    sum 2049\n"
                "    to nearest even: 6800 = 2048, off by -1\n"
                "  step 3: an addition\n"
                "    term    exact\n"
                "    step 2  2048\n"
                "    c       1\n"
                "    sum 2049\n"
                "    to nearest even: 6800 = 2048, off by -1\n"
                "  d          6800 = 2048\n"
                "  exact sum  2050\n"
                "  nearest    6801 = 2050\n"
                "  error      -1 ulp (an ulp is 2^1), relative -0.00097561; from alignment +0 ulp, from "
                "rounding -1 ulp\n"));
  // With k < 16 first, all four products share the first block, and the second has none.
  const nlohmann::json halves = json(line, arguments + " --fp8-order halves");
  ASSERT_EQ(halves.at("steps").size(), 3U);
  EXPECT_EQ(halves.at("steps").at(0).at("terms").size(), 5U);
  EXPECT_EQ(halves.at("steps").at(1).at("terms").size(), 1U);
  const nlohmann::json x = json(line, arguments);
  EXPECT_EQ(x.at("steps").at(2).at("step"), "addition");
  EXPECT_EQ(x.at("steps").at(2).at("terms").at(0).at("term"), "blocks");
  EXPECT_FALSE(x.at("steps").at(2).at("terms").at(0).contains("dropped"));
}

TEST_F(MmaExplain, SpecialValuesZerosAndNoProductsAreExplainedToo) {
  const auto tail = [this](const std::string& line) {
    const std::string text = run(line + "\n", "--model volta --explain").out;
    return text.substr(text.find("\n  d ") + 1);
  };
  EXPECT_EQ(tail("\t\t80000000"),
            "  d          80000000 = -0\n  exact sum  -0\n  nearest    80000000 = -0\n"
            "  error      none, the result is the exact sum\n");
  EXPECT_EQ(
      tail("7c00\t0000\t0"),
      "  d          7fffffff = nan\n  exact sum  nan\n  nearest    7fffffff = nan\n  error      none\n");
  EXPECT_EQ(tail("fc00\t3c00\t0"),
            "  d          ff800000 = -inf\n  exact sum  -inf\n  nearest    ff800000 = -inf\n"
            "  error      none\n");
  // -0 terms: the hardware's zero is positive, IEEE 754's negative.
  EXPECT_EQ(tail("8000\t3c00\t80000000"),
            "  d          00000000 = 0\n  exact sum  -0\n  nearest    80000000 = -0\n"
            "  error      none, the result is the exact sum\n");
  // c = 2^128 - 2^104 (the largest FP32) and 2^104 from BF16's 7380: truncation makes 2^128 infinite.
  const std::string overflow = run("7380\t3f80\t7f7fffff\n", "--model ampere --in bf16 --explain").out;
  EXPECT_THAT(overflow, HasSubstr("    sum 2^128 = 3.402823669e+38\n    toward zero: 7f800000 = inf\n"));
  EXPECT_THAT(overflow, HasSubstr("  error      none\n")) << "one rounding overflows too";
  // Two blocks of Volta, +2^128 and -2^127: the first overflows, the exact sum would not.
  const std::string lost =
      run("5f80 0 0 0 ff00\t5f80 0 0 0 3f80\t0\n", "--model ampere --in bf16 --block-size 4 --explain").out;
  EXPECT_THAT(lost, HasSubstr("  exact sum  2^127 = 1.70141183460469231731687303715884105728e+38\n"));
  EXPECT_THAT(lost, HasSubstr("  error      not finite\n"));
}

// Volta's block takes four products, so each part of K = 8 is one. FP16 rounds 2057 to 2056, the tie's even
// side, and 1 + 2^-11 to 1.
TEST_F(MmaExplain, APlanShowsChainsRoundingsAndSums) {
  const std::string line = "6800 4880 0 0 3c00 1000 0 0\t3c00 3c00 3c00 3c00 3c00 3c00 3c00 3c00\t0\n";
  const std::string arguments = "--model volta --plan split-k --parts 2 --partials f16";
  const std::string text = run(line, arguments + " --explain").out;
  for (const char* const part :
       {"  plan split-k: volta: 2 neighbouring parts of tiles of 4, each one chain, rounded to f16, added in "
        "order\n"
        "  volta: f16 * f16 -> f32, block of 4",
        "  chain 1, of part 1: k = 0..3, from +0\n  step 1: a fused block, max exponent 11, unit 2^-12, from "
        "+0\n",
        "  sum 1: chain 1, to f16\n    term     exact\n    chain 1  2057\n    sum 2057\n"
        "    to nearest even: 45008000 = 2056, off by -1\n"
        "  chain 2, of part 2: k = 4..7, from +0\n  step 2: ",
        "    a[5]*b[5]  2^-11",
        "  sum 3: sum 1 + sum 2\n    term   exact\n    sum 1  2056\n    sum 2  1\n    sum 2057\n",
        "  d          45009000 = 2057\n"})
    EXPECT_THAT(text, HasSubstr(part));
  const nlohmann::json x = json(line, arguments);
  EXPECT_EQ(x.at("plan").at("chains").at(1).at("elements"), (std::vector<int>{4, 5, 6, 7}));
  EXPECT_EQ(x.at("steps").at(1).at("step"), "rounding");
  EXPECT_EQ(x.at("steps").at(2).at("chain"), 2);
  EXPECT_EQ(x.at("steps").at(4).at("terms").at(1).at("term"), "sum 2");
  EXPECT_FALSE(json("3c00\t3c00\t0\n", "--model volta").contains("plan"));
  // Of four interleaved chains the first goes on with what is left, and of a pair there may be but one
  // product.
  const std::string small = "3f80 3f80 3f80 3f80 3f80 3f80\t3f80 3f80 3f80 3f80 3f80 3f80\t0\n";
  const std::string processor = "--model avx512_bf16 --plan onednn --explain ";
  EXPECT_THAT(run(small, processor + "--m 4 --n 4").out,
              HasSubstr("  chain 1, of part 1: k = 0, 4, 5, from +0\n"));
  const std::string odd = run("3f80\t3f80\t0\n", processor).out;
  EXPECT_THAT(odd, HasSubstr("    padding  0\n"));
  EXPECT_THAT(odd, HasSubstr("  step 2: an fma, from step 1 = 00000000\n"));
}

TEST_F(MmaExplain, WithVerifyItExplainsWhatDiffers) {
  const std::string one = "3c00\t3c00\t3f800000";
  const Finished result =
      run("# chip\n" + one + "\t40000000\n" + one + "\t40000001\n", "--model hopper --verify --explain");
  EXPECT_EQ(result.exit_code, 5);
  EXPECT_THAT(result.out, StartsWith(one + "\t40000001\n  hopper: "));
  EXPECT_THAT(result.out, HasSubstr("  d          40000000 = 2\n  captured   40000001, not d\n"));
  EXPECT_THAT(result.err, HasSubstr("1 of 2 lines differ from hopper with f16 and f32"));
  const Finished as_json = run(one + "\t40000001\n", "--model hopper --verify --explain --json --quiet");
  EXPECT_EQ(nlohmann::json::parse(as_json.out).at("captured"), "40000001");
  EXPECT_THAT(run("# chip\n" + one + "\n", "--model hopper --explain").out, StartsWith("# chip\n" + one));
  const Finished alone = run(one + "\n", "--model hopper --json");
  EXPECT_EQ(alone.exit_code, 2);
  EXPECT_EQ(alone.out, "");
  EXPECT_THAT(alone.err, HasSubstr("--json goes with --explain"));
}

TEST_F(MmaExplain, TwoAnswersThatDifferAreAMismatch) {
  const std::vector<std::uint32_t> ones{0x3c00};
  MmaLine line{.text = "3c00\t3c00\t3f800000",
               .number = 7,
               .row = &tensor_core_model("hopper"),
               .a = ones,
               .b = ones,
               .c = 0x3f800000,
               .d = 0x40000000,
               .captured = {}};
  EXPECT_NE(explanation_of(line, false), "");
  line.d = 0x40000001;
  for (const bool as_json : {false, true}) {
    try {
      explanation_of(line, as_json);
      ADD_FAILURE() << "no exception";
    } catch (const CommandError& error) {
      EXPECT_EQ(error.code, ExitCode::mismatch);
      EXPECT_THAT(error.what(),
                  HasSubstr("line 7: '3c00 3c00 3f800000': step by step the result is 40000000, "
                            "all at once it is 40000001"));
    }
  }
}

}  // namespace
}  // namespace fp16lab::experiments
