// fp16lab mma through the real binary: every golden vector, every kind of malformed line, --verify.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "tests/experiments/app/commands/mma_lines.hpp"
#include "tests/support/spawn.hpp"
#include "tests/support/tensor_core_vectors.hpp"

namespace fp16lab::experiments {
namespace {

using testing::HasSubstr;
using testing_support::Finished;
using testing_support::TensorCoreVector;

const std::string one = "3c00\t3c00\t3f800000";  // 1 * 1 + 1

class Mma : public MmaLines {
 protected:
  /// Exit code 2, nothing on stdout but `before`, one line on stderr with all of `parts`.
  void expect_refused(const std::string& input, const std::string& arguments,
                      const std::vector<std::string>& parts, const std::string& before = "") const {
    const Finished result = run(input, arguments);
    EXPECT_EQ(result.exit_code, 2) << arguments << '\n' << input;
    EXPECT_EQ(result.out, before) << arguments << '\n' << input;
    for (const std::string& part : parts)
      EXPECT_THAT(result.err, HasSubstr(part)) << arguments << '\n' << input;
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  }
};

TEST_F(Mma, GoldenVectorsStreamThroughIt) {
  std::map<std::string, std::vector<TensorCoreVector>> groups;  // by the command line that they need
  for (const TensorCoreVector& v : testing_support::all_tensor_core_vectors()) {
    std::string arguments = "--model " + v.model + " --in " + v.in_a() + " --acc " + v.acc;
    if (v.in_b() != v.in_a()) arguments += " --in-b " + v.in_b();
    for (const std::string& option : v.options) arguments += ' ' + option;
    groups[arguments].push_back(v);
  }
  EXPECT_GT(groups.size(), 60U);
  for (const auto& [arguments, vectors] : groups) {
    std::string input, output;
    for (const TensorCoreVector& v : vectors) {
      input += v.line() + '\n';
      output += v.line() + '\t' + v.d + '\n';
    }
    const Finished result = run(input, arguments);
    EXPECT_EQ(result.exit_code, 0) << arguments << result.err;
    EXPECT_EQ(result.out, output) << arguments;
    EXPECT_EQ(result.err, "") << arguments;
    if (vectors.front().in != "f16" || !vectors.front().options.empty()) continue;
    const Finished verified = run(output, "--verify --quiet " + arguments);
    EXPECT_EQ(verified.exit_code, 0) << arguments << verified.err;
    EXPECT_EQ(verified.out, "") << arguments;
  }
}

TEST_F(Mma, AnswersHaveTheAccumulatorsDigits) {
  EXPECT_EQ(run("3c00\t3c00\t0\n", "--model volta --acc f16").out, "3c00\t3c00\t0\t3c00\n");
  EXPECT_EQ(run("0001\t3c00\t0\n", "--model volta --acc f16").out, "0001\t3c00\t0\t0001\n");
  EXPECT_EQ(run("00\t38\t1\n", "--model ada --in e4m3").out, "00\t38\t1\t00000000\n");
  EXPECT_EQ(run("\t\t3f800000\n", "--model hopper").out, "\t\t3f800000\t3f800000\n") << "no products";
}

TEST_F(Mma, WordsMayHavePrefixesCapitalsBlanksAndNoLeadingZeros) {
  EXPECT_EQ(run("0x3C00  0X3c00 \t 3C00 1\t 0x3F800000 \n", "--model hopper").out,
            "0x3C00  0X3c00 \t 3C00 1\t 0x3F800000 \t40000000\n");
  EXPECT_EQ(run(one + "\r\n", "--model hopper").out, one + "\t40000000\n") << "lines of other systems";
  EXPECT_EQ(run(one, "--model hopper").out, one + "\t40000000\n") << "a last line without its end";
}

TEST_F(Mma, NumbersStandBesideWordsAndModelsSideBySide) {
  // 2^24 + 4 * 1.5 = 16777222, whose neighbours are 2 away. Beside 2^24 Volta keeps multiples of 2 (F = 23):
  // none of
  // 1.5; Ampere of 1: four; Hopper of 1/2: all.
  const std::string all =
      "a       3e00 = 1.5, 3e00 = 1.5, 3e00 = 1.5, 3e00 = 1.5\n"
      "b       3c00 = 1, 3c00 = 1, 3c00 = 1, 3c00 = 1\n"
      "c       4b800000 = 16777216\n"
      "volta   4b800000 = 16777216\n"
      "ampere  4b800002 = 16777220\n"
      "hopper  4b800003 = 16777222\n";
  const std::string words = "3e00 3e00 3e00 3e00\t3c00 3c00 3c00 3c00\t4b800000\n";
  const std::string numbers = "1.5 1.5 +1.5 3e00\t1.0 3c00 1.0 2^0\t2^24\n";
  EXPECT_EQ(run(words, "--model volta,ampere,hopper").out, all);
  EXPECT_EQ(run(numbers + "# next\n" + words, "--model V100 --model A100,H100").out,
            all + "# next\n\n" + all);
  EXPECT_EQ(run("0.1 -inf\t-2.0 nan\t0.0\n", "--model hopper --acc f16").out,
            "a       2e66 = 0.1, fc00 = -inf\nb       c000 = -2, 7fff = nan\nc       0000 = 0\n"
            "hopper  7fff = nan\n");
  EXPECT_EQ(
      run("1.1\t3f800000\t0\n", "--model ampere --in tf32").out,
      "a       3f8ccccd = 1.1\nb       3f800000 = 1\nc       00000000 = 0\nampere  3f8cc000 = 1.0996094\n")
      << "a register of FP32, of which TF32 is cut";
  EXPECT_EQ(run(one + "\n", "--model hopper --decimal").out,
            "a       3c00 = 1\nb       3c00 = 1\nc       3f800000 = 1\nhopper  40000000 = 2\n");
  EXPECT_EQ(run("1.0\t1.0\t1.0\t2.0\n", "--model hopper --verify --quiet").exit_code, 0);
  const std::string steps = run(words, "--model volta,ampere --explain").out;
  EXPECT_LT(steps.find("  volta: "), steps.find("  ampere: "));
  expect_refused(words, "--model volta,ampere --verify",
                 {"--verify compares with one --model, found volta, ampere"});
  expect_refused("38\t38\t0\n", "--model volta,h100 --in e4m3", {"'volta' has no e4m3"});
  expect_refused("38\t38\t0\n", "--model H100 --in e4m3",
                 {"hopper (sm_90 mma.sync", "hopper-wgmma (sm_90a wgmma"});
}

TEST_F(Mma, CommentsAndEmptyLinesPassThrough) {
  EXPECT_EQ(run("# a\tb\n\n" + one + "\n  \n", "--model hopper").out,
            "# a\tb\n\n" + one + "\t40000000\n  \n");
  EXPECT_EQ(run("", "--model hopper").out, "");
}

TEST_F(Mma, AnyNumberOfProducts) {
  std::string ones = "3c00";
  for (int i = 1; i < 5000; ++i) ones += " 3c00";
  std::string input = ones;
  input.append("\t").append(ones).append("\t00000000");
  for (const char* model : {"volta", "ampere", "hopper"})
    EXPECT_EQ(run(input + "\n", std::string("--model ") + model).out, input + "\t459c4000\n")
        << model;  // 5000
}

TEST_F(Mma, ManyLinesKeepTheirOrder) {
  std::string input, output;
  for (int i = 0; i < 30000; ++i) {
    const int bits = 0x3c00 + i % 0x400;
    char line[64];
    std::snprintf(line, sizeof line, "%04x\t3c00\t00000000", static_cast<unsigned>(bits));
    input += std::string(line) + '\n';
    std::snprintf(line + 18, sizeof line - 18, "\t%08x",
                  0x3f800000U + static_cast<unsigned>(i % 0x400) * 0x2000U);
    output += std::string(line) + '\n';
  }
  EXPECT_EQ(run(input, "--model hopper").out, output);
}

TEST_F(Mma, MalformedLinesAreQuotedWithTheirNumber) {
  const std::string model = "--model hopper";
  expect_refused(
      "# comment\n" + one + "\n3c00 3g00\t3c00 3c00\t0\n", model,
      {"line 3: '3c00 3g00 3c00 3c00 0': a: expected words of at most 4 hexadecimal digits, found '3g00'"},
      "# comment\n" + one + "\t40000000\n");
  expect_refused("3c00\t3c001\t0\n", model, {"line 1", "b: expected words of at most 4", "found '3c001'"});
  expect_refused("3c00\t3c00\t3f8000000\n", model, {"c: expected words of at most 8", "'3f8000000'"});
  expect_refused("3c00\t3c00\t\n", model, {"c: expected", "found ''"});
  expect_refused("3c00\t3c00\t0 0\n", model, {"c: expected", "found '0 0'"});
  expect_refused("0x\t3c00\t0\n", model, {"a: expected", "found '0x'"});
  expect_refused("-q\t3c00\t0\n", model, {"a: expected", "found '-q'; a number has a point or a sign"});
  expect_refused("3c00 3c00\t3c00\t0\n", model, {"2 words of a and 1 word of b"});
  expect_refused("3c00 3c00 0\n", model,
                 {"expected 3 fields with tabs between them", "found 1", "spaces between words"});
  expect_refused("3c00\t3c00\n", model, {"found 2"});
  expect_refused(one + "\t40000000\n", model, {"found 4", "--verify compares a fourth"});
  expect_refused(one + "\n", model + " --verify",
                 {"expected 4 fields", "d-word", "found 3", "--verify compares with the fourth"});
  expect_refused("5f9d3\t3f800000\t0\n", model + " --in tf32",
                 {"exactly 8 hexadecimal digits, found '5f9d3'"});
  const std::string long_line(5000, '3');
  expect_refused(long_line + "\n", model, {"'3333", "...'"});
  EXPECT_LT(run(long_line, model).err.size(), 400U);
}

TEST_F(Mma, VerifyWritesWhatDiffersAndExitsWithFive) {
  const std::string right = one + "\t40000000\n";
  const std::string wrong = one + "\t40000001\n";
  const Finished result = run("# chip\n" + right + wrong + right, "--model hopper --verify");
  EXPECT_EQ(result.exit_code, 5);
  EXPECT_EQ(result.out, one + "\t40000001\t40000000\n");
  EXPECT_EQ(result.err, "fp16lab: mma: 1 of 3 lines differ from hopper with f16 and f32\n");
  const Finished equal = run(right, "--model hopper --verify");
  EXPECT_EQ(equal.exit_code, 0);
  EXPECT_EQ(equal.out, "");
  EXPECT_THAT(equal.err, HasSubstr("0 of 1 lines differ"));
  EXPECT_EQ(run(right, "--model hopper --verify --quiet").err, "");
  EXPECT_EQ(run("7e00\t3c00\t0\t7fc00000\n", "--model hopper --verify").exit_code, 5)
      << "NaN is a pattern too";
}

TEST_F(Mma, DigitsAloneBesideNumbersAreRefusedAsTheyMayBeEither) {
  expect_refused("0.5 0.5\t1.0 1.0\t16777216\n", "--model volta",
                 {"'16777216' may be a word or a number", "write 0x16777216 or 16777216.0"});
  EXPECT_THAT(run("0.5\t0x3c00\t0\n", "--model volta").out, HasSubstr("volta  3f000000 = 0.5\n"));
}

TEST_F(Mma, OptionsThatCannotBeAreRefused) {
  expect_refused(one, "", {"expected --model NAME", "blackwell-tcgen05"});
  expect_refused(one, "--model hoper", {"did you mean 'hopper'"});
  expect_refused(one, "--model volta --in bf16", {"'volta' has no bf16 operands with f32 accumulators"});
  expect_refused(one, "--model hopper --in fp16", {"did you mean 'f16'"});
  expect_refused(one, "--model hopper --acc bf16", {"unknown accumulator format 'bf16'"});
  expect_refused(one, "--model ampere --in e4m3", {"'ampere' has no e4m3"});
  expect_refused(one, "--model hopper --in f16 --in-b bf16", {"only e4m3 and e5m2 can be mixed"});
  expect_refused(one, "--model hopper --block-size 65", {"65 products; 1 to 64"});
  expect_refused(one, "--model hopper --fraction-bits 49", {"49 fraction bits; 1 to 48"});
  expect_refused(one, "--model hopper --exponent-floor 1001", {"-1000 to 1000"});
  expect_refused(one, "--model hopper --block-size x", {"--block-size"});
  expect_refused(one, "--model hopper --subnormal-accumulator emin", {"no FP16 accumulator"});
  expect_refused(one, "--model hopper --acc f16 --subnormal-accumulator own", {"emin, own_exponent"});
  expect_refused(one, "--model hopper --underflow-zero negative", {"keeps_sign, positive"});
  expect_refused(one, "--model hopper --fp8-order halves", {"does not go through FP16"});
  expect_refused(one, "--model hopper --in e4m3 --fp8-order half", {"known are pairs, halves"});
  expect_refused(one, "--model hopper --in e4m3 --block-size 8", {"--fp8-order says which"});
  expect_refused(one, "--model hopper --verfy", {"did you mean '--verify'"});
}

TEST_F(Mma, HelpShowsFormatsOptionsAndExamples) {
  const Finished result = run("", "--help-all");
  EXPECT_EQ(result.exit_code, 0);
  for (const char* part :
       {"a-words TAB b-words TAB c-word", "--model", "--in-b", "--verify", "--subnormal-accumulator",
        "--exponent-floor", "Examples:", "volta, turing, ampere", "e4m3", "exit code 5"})
    EXPECT_THAT(result.out, HasSubstr(part));
}

// fp16lab list shows the rows that --model chooses among, with where they come from.
TEST_F(Mma, ListHasARowForEveryAnswer) {
  const std::string program = std::string(FP16LAB_BIN_DIR) + "/fp16lab";
  const std::string list = testing_support::run_program(program, {"list", "tensor_cores", "*"},
                                                        testing::TempDir(), {{"COLUMNS", "300"}})
                               .out;
  const std::string json = testing_support::run_program(program, {"list", "--json"}, testing::TempDir()).out;
  for (const TensorCoreModel& row : tensor_core_models()) {
    EXPECT_THAT(list, HasSubstr("\n      hardware: " + std::string(row.hardware) +
                                "\n      source: " + std::string(row.source) + '\n'));
    EXPECT_THAT(json, HasSubstr("\"source\": \"" + std::string(row.source) + '"'));
  }
  EXPECT_THAT(
      list,
      HasSubstr("\n  ada\n      chips: l40s rtx4090\n      operands: e4m3 e5m2\n      accumulator: f32\n"
                "      products_per_block: 16\n      fraction_bits: 13\n      exponent_floor: -132\n"));
  EXPECT_THAT(list,
              HasSubstr("output: fp16_nearest_even\n      stages: block of 16 products from +0 (k / 2 mod 2 "
                        "= 0), F 25, E0 -21, "
                        "fp16_nearest_even; block of 16 products and the sum before (k / 2 mod 2 = 1)"));
  for (const char* part : {"\"products_per_block\": 16", "\"fraction_bits\": 25", "\"exponent_floor\": -133",
                           "\"output\": \"fp16_nearest_even\"", "\"evidence\": \"hardware_test\"",
                           "\"accumulator\": \"f16\"", "\"underflow_zero\": \"positive\""})
    EXPECT_THAT(json, HasSubstr(part));
}

/// What the processor answers is compared with its row on any machine.
TEST_F(Mma, OfTheProcessorIsItsRow) {
  const testing_support::Finished captured = run("", "--capture cpu");
  if (captured.exit_code == 3) {
    EXPECT_THAT(captured.err, HasSubstr("mma: --capture cpu: this processor has no AVX512_BF16"));
    GTEST_SKIP() << captured.err;
  }
  EXPECT_EQ(std::ranges::count(captured.out, '\n'), 8001);
  const testing_support::Finished same = run(captured.out, "--model zen5 --in bf16 --verify");
  EXPECT_EQ(same.exit_code, 0) << same.err;
  EXPECT_THAT(same.err, HasSubstr("0 of 8000 lines differ"));
  EXPECT_EQ(run(captured.out, "--model ampere --in bf16 --verify").exit_code, 5);
}

TEST_F(Mma, VerifiesAFileOfLines) {
  const std::string file = folder_.path() / "captured.tsv";
  const std::string processor = "# vdpbf16ps of a chip\n3f80 3f80\t3f80 4000\t3f800000\t40800000\n";
  std::ofstream(file) << processor;
  EXPECT_THAT(run("", "--verify " + file).err, HasSubstr("0 of 1 lines differ from avx512_bf16 with bf16"));
  EXPECT_EQ(run("", "--verify --quiet --model ampere --in bf16 " + file).exit_code, 0);
  std::ofstream(file) << one << "\t40000001";
  EXPECT_EQ(run("", "--model hopper --verify " + file).out, one + "\t40000001\t40000000\n");
  expect_refused("", "--verify " + file, {"expected --model NAME"});
  expect_refused("", "--verify " + file + ".not", {"mma: cannot read"});
  expect_refused("", "--capture gpu", {"--capture: 'gpu': known are cpu"});
}

TEST_F(Mma, AddsInTheOrderOfAPlan) {
  // Volta, K = 8 in two parts, as in PlannedGemm.PartialSumsOfReducedPrecision.
  const std::string line = "6800 4880 0 0 3c00 1000 0 0\t3c00 3c00 3c00 3c00 3c00 3c00 3c00 3c00\t0";
  const auto word = [&](const std::string& arguments) {
    const Finished result = run(line + "\n", "--model volta " + arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.out.substr(std::min(result.out.size(), line.size() + 1));
  };
  EXPECT_EQ(word("--plan split-k --parts 2"), "4500a002\n");
  EXPECT_EQ(word("--plan split-k --parts 2 --partials f16"), "45009000\n");
  EXPECT_EQ(word("--plan split-k --parts 2 --partials bf16"), "45011000\n");
  EXPECT_EQ(word("--plan instruction"), word(""));
  EXPECT_THAT(
      run(line + "\t45009000\n", "--model volta --verify --plan split-k --parts 2 --partials f16").err,
      HasSubstr("0 of 1 lines differ from volta with f16 and f32 in the order of plan 'split-k'"));
  expect_refused(line, "--model volta --plan mkl", {"unknown plan 'mkl': known are instruction, onednn,"});
  expect_refused(line, "--model volta --plan onednn",
                 {"line 1", "plan 'onednn': it takes the row avx512_bf16, not volta"});
  expect_refused(line, "--model volta --plan onednn --parts 2",
                 {"--parts: plan 'onednn' does not depend on it, but on call, m, n, transposed"});
  expect_refused(line, "--model volta --m 3", {"--m: plan 'instruction' does not depend on it"});
  expect_refused(line, "--model volta --plan split-k --parts 3", {"where 3 parts of K = 8 end is not known"});
  expect_refused(line, "--model volta --plan split-k --partials e4m3", {"'e4m3': known are f32, f16, bf16"});
  expect_refused(line, "--model volta --acc f16 --plan split-k", {"partial sums are FP32"});
  expect_refused("1.0\t1.0\t1.0\n", "--model volta --plan split-k",
                 {"where c enters is not known; expected 0"});
  // The processor's plan depends on shape, layout and threads; bf16 is all that its row has.
  const std::string ones = "3f80 3f80\t3f80 3f80\t0";
  const std::string processor = "--model avx512_bf16 --plan onednn ";
  EXPECT_EQ(run(ones, processor + "--m 4 --n 4 --transposed b").out, ones + "\t40000000\n");
  expect_refused(ones, processor + "--m 1 --n 2 --transposed a,b",
                 {"both operands transposed was not looked at"});
  expect_refused(ones, processor + "--transposed a --library-threads 3", {"in 3 threads is not known"});
  EXPECT_EQ(run("3c00\t3c00\t0\n", processor + "--in f16 --call dot").out, "3c00\t3c00\t0\t3f800000\n");
  expect_refused(ones, processor + "--call mv --n 2", {"--n 2 with --call mv: expected 1, or no --n"});
  expect_refused(ones, processor + "--call mm --batch 2", {"only a bmm has several products"});
  expect_refused(ones, processor + "--transposed c", {"--transposed 'c': expected a, b or a,b"});
}

}  // namespace
}  // namespace fp16lab::experiments
