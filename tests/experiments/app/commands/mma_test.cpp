// fp16lab mma: every golden vector, the rows in the list, and the processor's answers, through the real binary; and the
// check of an explanation against the answer. tests/transcripts/mma*.t have lines by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "experiments/app/commands/mma_explain.hpp"
#include "experiments/app/exit_code.hpp"
#include "tests/support/spawn.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/support/tensor_core_vectors.hpp"

namespace fp16lab::experiments {
namespace {

using testing::HasSubstr;
using testing_support::Finished;
using testing_support::TensorCoreVector;

class Mma : public testing::Test {
 protected:
  Finished run(const std::string& input, const std::string& arguments) const {
    const std::filesystem::path file = folder_.path() / "input.tsv";
    std::ofstream(file, std::ios::binary) << input;
    return testing_support::run_program(
        "/bin/sh", {"-c", std::string(FP16LAB_BIN_DIR) + "/fp16lab mma " + arguments + " < " + file.string()},
        folder_.path());
  }

 private:
  testing_support::TemporaryFolder folder_;
};

TEST_F(Mma, GoldenVectorsStreamThroughIt) {
  std::map<std::string, std::vector<TensorCoreVector>> groups;  // by the command line that they need
  for (const TensorCoreVector& v : testing_support::all_tensor_core_vectors()) {
    std::string arguments = "--model " + v.model + " --in " + v.in_a() + " --acc " + v.acc;
    if (v.in_b() != v.in_a()) arguments += " --in-b " + v.in_b();
    for (const std::string& option : v.options) arguments += ' ' + option;
    if (!v.scale.empty()) arguments += " --scale " + v.scale;
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

TEST_F(Mma, Fp64VectorsStreamThroughIt) {
  for (const std::vector<std::string>& line : testing_support::golden_lines("fp64", 7)) {
    const std::string words = line[2] + '\t' + line[3] + '\t' + line[4];
    const Finished result = run(words + '\n', "--in f64 --model " + line[1]);
    EXPECT_EQ(result.out, words + '\t' + line[5] + '\n') << line[0] << result.err;
  }
}

// fp16lab list shows the rows that --model chooses among, with where they come from.
TEST_F(Mma, ListHasARowForEveryAnswer) {
  const std::string program = std::string(FP16LAB_BIN_DIR) + "/fp16lab";
  const std::string list = testing_support::run_program(program, {"list", "tensor_cores", "*"},
                                                        testing::TempDir(), {{"COLUMNS", "300"}})
                               .out;
  const std::string json = testing_support::run_program(program, {"list", "--json"}, testing::TempDir()).out;
  for (const TensorCoreModel& row : all_tensor_core_models()) {
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

TEST(MmaExplain, TwoAnswersThatDifferAreAMismatch) {
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
      EXPECT_THAT(error.what(), HasSubstr("line 7: '3c00 3c00 3f800000': the result of the steps is "
                                          "40000000, the direct result 40000001"));
    }
  }
}

}  // namespace
}  // namespace fp16lab::experiments
