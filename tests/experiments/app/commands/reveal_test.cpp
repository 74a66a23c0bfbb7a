// fp16lab reveal, run as users run it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/spawn.hpp"

namespace fp16lab::experiments {
namespace {

using testing::HasSubstr;
using Json = nlohmann::json;

testing_support::Finished reveal(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "reveal");
  return testing_support::run_program(std::string(FP16LAB_BIN_DIR) + "/fp16lab", arguments,
                                      testing::TempDir());
}

TEST(RevealCommand, SaysTheOrderOfARow) {
  const auto result = reveal({"--model", "hopper", "--in", "bf16", "--acc", "f32", "-k", "64"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  EXPECT_THAT(result.out,
              HasSubstr("hopper, bf16 operands, f32 accumulator: a sum of 64 terms\n"
                        "order     chain of 4 blocks of 16\n"
                        "tree      [{0..15} {16..31} {32..47} {48..63}]\n"
                        "depth     4 sums on the longest way of a term, at most 17 numbers in a sum\n"));
  EXPECT_THAT(reveal({"--model", "v100", "-k", "6", "--long"}).out, HasSubstr("((0 1 2 3) 4 5)\n"));
}

TEST(RevealCommand, JsonHasTheTree) {
  const auto result = reveal({"--model", "volta", "-k", "8", "--json"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const Json json = Json::parse(result.out);
  EXPECT_EQ(json.at("model"), "volta");
  EXPECT_EQ(json.at("operands"), "f16");
  EXPECT_EQ(json.at("in_words"), "chain of 2 blocks of 4");
  EXPECT_EQ(json.at("joins"), Json({{0, 1, 2, 3}, {8, 4, 5, 6, 7}}));
}

TEST(RevealCommand, SaysTheOrderOfAPlanAndOfARowOfYourOwn) {
  const auto onednn = reveal({"--model", "zen5", "--plan", "onednn", "-k", "1200"});
  EXPECT_THAT(
      onednn.out,
      HasSubstr(
          "avx512_bf16, bf16 operands, f32 accumulator, plan onednn: a sum of 1200 terms\n"
          "plan      onednn, an output of mm of 1024 x 1024: avx512_bf16: chains of 1024, added in order\n"
          "order     restarts every 1024: 2 parts, the last of 176, "));
  const auto split = reveal(
      {"--model", "volta", "--plan", "split-k", "--parts", "3", "--partials", "f16", "-k", "24", "--json"});
  EXPECT_EQ(split.exit_code, 0) << split.err;
  EXPECT_EQ(Json::parse(split.out).at("short"), "[[{0..3} {4..7}] [{8..11} {12..15}] [{16..19} {20..23}]]");
  const std::string row = testing::TempDir() + "/fmas.toml";
  std::ofstream(row) << "operands = [\"f16\"]\n[[stage]]\nsum = \"fma\"\nproducts = 1\n"
                        "output = \"fp32_nearest_even\"\n";
  EXPECT_THAT(
      reveal({"--row", row, "-k", "9"}).out,
      HasSubstr("fmas, f16 operands, f32 accumulator: a sum of 9 terms\norder     ascending chain of 9\n"));
}

TEST(RevealCommand, DrawsTheTree) {
  const std::string folder = testing::TempDir() + "/revealed";
  std::filesystem::remove_all(folder);
  const auto result = reveal({"--model", "ampere", "-k", "32", "-o", folder});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  std::ifstream file(folder + "/order-ampere-f16-f32-32.svg");
  ASSERT_TRUE(file) << result.err;
  std::stringstream svg;
  svg << file.rdbuf();
  EXPECT_THAT(svg.str(), HasSubstr("Order of a sum of 32 terms: ampere"));
  EXPECT_THAT(svg.str(), HasSubstr("rounded once"));
}

TEST(RevealCommand, BadInputIsOneLine) {
  const auto refused = [](std::vector<std::string> arguments, const char* what) {
    const auto result = reveal(std::move(arguments));
    EXPECT_EQ(result.exit_code, 2) << result.err;
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    EXPECT_THAT(result.err, HasSubstr(what));
  };
  refused({}, "reveal: expected --model NAME: volta,");
  refused({"--model", "hoper"}, "did you mean 'hopper'");
  refused({"--model", "hopper", "--in", "f15"}, "f15");
  refused({"--model", "volta", "--in", "bf16"}, "volta");
  refused({"--model", "h100", "--in", "e4m3"}, "name one of them");
  refused({"--model", "hopper", "--row", "own.toml"}, "expected one of --model NAME");
  refused({"--row", "absent.toml"}, "--row: cannot read absent.toml");
  refused({"--model", "hopper", "--plan", "onednn"},
          "plan 'onednn': it takes the row avx512_bf16, not hopper");
  refused({"--model", "zen5", "--plan", "onednn", "--parts", "2"},
          "--parts: plan 'onednn' does not depend on it");
  refused({"--model", "hopper", "-k", "0"}, "0");
  refused({"--model", "hopper", "-k", "5000"}, "4096");
}

}  // namespace
}  // namespace fp16lab::experiments
