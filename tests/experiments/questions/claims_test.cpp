// exp_claims as a user runs it: its values against those computed by hand, every command that it shows.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>

#include "experiments/questions/claims/claim.hpp"
#include "tests/experiments/app/shown_commands.hpp"

namespace fp16lab::experiments::claims {
namespace {

using nlohmann::json;

/// By what the claim says, computed by hand or taken from the sources: 65504 = (2 - 2^-10) 2^15; 2^-25 and
/// 2^-28 in full; 1118 2^-24 for 0.00006666666; 4094 = (2 - 2^-10) / (2^-11 (1 + 2^-10)) to seven digits;
/// ratios, sums and rates by long division (one training step of L square layers is (3 L - 1) 2 B W^2 flops),
/// one of each kind.
const std::map<std::string, std::string> by_hand{
    {"the lower end of the range is -65504", "-65504"},
    {"the upper end of the range is 66504", "65504"},
    {"the smallest normal number is -65504", "6.103515625e-05"},
    {"positive FP16 numbers reach from 6.10e-5 to 65504", "5.9604644775390625e-08"},
    {"the smallest positive number is 2^-24 = 5.96e-8", "5.9604644775390625e-08"},
    {"FP16 covers 40 powers of two", "40"},
    {"a subnormal number with exponent k has 25 - k significant bits (k = -20: 45)", "5"},
    {"magnitudes below 2^-24 become zero", "2.98023223876953125e-08"},
    {"a scale of 8 saves gradients from 2^-27 on", "3.7252902984619140625e-09"},
    {"values above 65504 overflow", "65520"},
    {"0.00006666666 becomes 0.000067", "6.663799285888671875e-05"},
    {"an update can be lost where the weight is at least 2048 times as large", "2048"},
    {"an update is always lost where the weight is over 2048 times as large", "4094"},
    {"O1 is 2.1 times as fast as FP32", "2.261"},
    {"FP32: 0.529 s for a batch of 2048 on a V100 SXM2", "13.5 TFLOPS of 15.7"},
    {"O1: 0.118 s for a batch of 2048 on a V100 SXM2", "60.6 TFLOPS of 125.0"},
    {"FP32: 2.926 s for 5 x 50 batches of 512 on a GPU of capability 7.0", "11.7 TFLOPS of 16.4"},
    {"O2 with fp16_guard on 8 of 9 layers takes 0.140 s", "0.131"},
    {"FP16 products are up to 8 times as fast as FP32 on a V100", "7.962"},
    {"on Volta, Turing and Ampere tensor cores give 8 times FP32's throughput",
     "7.962 on a V100, 16.000 on an A100"},
    {"the smallest positive FP32 number is 1.4e-45", "1.40129846e-45"},
    {"the largest FP32 number is 1.7e38", "3.40282347e+38"},
    {"BF16 underflows more easily than FP16", "2^-134 becomes 0 in BF16, 2^-25 in FP16"},
    {"66.8 % are zero, FP16 makes 31 % zero, 5.3 % stay: together all of them", "103.1"},
    {"68 % of them are zero", "66.8"},
    {"4 % lie in (2^-32, 2^-30)", "4"},
    {"4 % lie in (2^-32, 2^-20)", "28.6"},
    {"31 % become zero in FP16", "24"},
    {"a scale of 32K saves all but 0.1 %", "0.11"},
    {"training LeNet-5 on ten classes starts at a loss of 2.30", "2.302585"},
    {"clear_grad(set_to_zero=False) trains as clearing to zeros does",
     "a weight that no loss reaches moves by 0 after none, by 0.125 after zeros"},
    {"O2 prints a loss of 0.6743 because it is an FP16 number", "0.6743164"},
    {"it starts at 2^24 and is halved by an overflow", "2^23"},
    {"it is doubled after 2000 steps without overflow", "2000, to 2^25"},
    {"DynamicLossScaleManager(4, 3000) has a factor of 4", "3000"},
    {"DynamicLossScaleManager(4, 3000) has a window of 3000 steps", "2000"},
    {"ten batches may be accumulated without dividing by ten", "10.0000 times as large"},
    {"the loss is divided by the number of batches: a factor of 10 for ten", "10.0000"},
    {"the model's weights are kept in FP16", "f32"},
    {"an FP32 copy is updated from FP16 gradients", "f32"},
};

/// Claims from training runs: the first number in percent lies between these. Bounds: 0.1 % is what "the same
/// loss" means; a loss without master weights is at least a third of the tutorial's distance away, and at
/// most twice it.
const std::map<std::string, std::pair<double, double>> between{
    {"O1 ends at FP32's loss: 0.6486219 against 0.6486028", {-0.1, 0.1}},
    {"O2 ends higher than FP32: 0.6743 against 0.6486028", {1.3, 7.9}},
    {"O2 with fp16_guard on 8 of 9 layers ends between them: 0.6691731", {1.1, 6.3}},
    {"an accumulation of 10 ends at 0.6602017", {-0.1, 0.1}},
    {"O1 ends at 1.24815702, FP32 at 1.24519622", {-0.1, 0.1}},
    {"O2 ends at 1.25423336", {0.24, 1.5}},
    {"accumulation ends at 1.25602019", {-0.1, 0.1}},
};

class Claims : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "claims";
    std::filesystem::remove_all(folder);
    const testing_support::Finished result =
        testing_support::run_program(std::string(FP16LAB_BIN_DIR) + "/exp_claims",
                                     {"--json", "--threads", "1", "-o", folder.string()}, testing::TempDir());
    ASSERT_EQ(result.exit_code, 0) << result.out << result.err;
    table_ = json::parse(result.out)["claims"];
    EXPECT_EQ(testing_support::slurp(folder / "claims.json"), result.out);
    csv_ = testing_support::slurp(folder / "exp_claims.csv");
  }
  inline static json table_;
  inline static std::string csv_;
};

TEST_F(Claims, TheirValuesAreThoseByHand) {
  std::map<std::string, std::string> computed;
  for (const json& row : table_) {
    const std::string words = row["claim"], measured = row["measured"], nearly = "imprecise: ";
    EXPECT_EQ(row["verdict"], row["recorded"]) << words;
    EXPECT_TRUE(
        computed.emplace(words, measured.substr(measured.starts_with(nearly) ? nearly.size() : 0)).second)
        << words << " is listed twice";
  }
  for (const auto& [words, value] : by_hand) EXPECT_EQ(computed.at(words), value) << words;
  for (const auto& [words, range] : between) {
    const double percent = std::strtod(computed.at(words).c_str(), nullptr);
    EXPECT_GT(percent, range.first) << words;
    EXPECT_LT(percent, range.second) << words;
  }
  double formula = 1, fused = 0;
  ASSERT_EQ(
      std::sscanf(computed.at("a Dense layer, 512 to 128, takes a training step on labels of zero").c_str(),
                  "gradients of norm %lf by the formula, %lf", &formula, &fused),
      2);
  EXPECT_EQ(formula, 0);
  // Each of 64 rows sums to 1, so its norm lies between 1 / sqrt(128) and 1.
  EXPECT_GE(fused, std::sqrt(64.0 / 128) - 1e-4);
  EXPECT_LE(fused, 8);
  double loss = 0, entropy = 9;
  ASSERT_EQ(
      std::sscanf(
          computed.at("LeNet-5's loss falls from 2.3019 to 2.2683 in ten epochs under a fixed scale of 1024")
              .c_str(),
          "%lf over all images, where one answer for all of them gives %lf", &loss, &entropy),
      2);
  EXPECT_GE(loss, entropy) << "something was learnt of random labels";
  EXPECT_LT(entropy, 2.3026) << "ln 10, were they equally frequent";
  EXPECT_GT(entropy, 2.28);
  const std::string chain_rule =
      computed.at("scaling the loss and unscaling the gradients changes nothing (FP32)");
  EXPECT_TRUE(chain_rule.starts_with("0 of ")) << chain_rule;
  EXPECT_EQ(chain_rule.find(", 0 at S = 1000"), std::string::npos) << chain_rule;
}

TEST_F(Claims, EveryCommandShownParses) {
  std::set<std::string> commands;
  for (const json& row : table_) {
    const std::string command = row["notes"].back();
    ASSERT_TRUE(command.starts_with("$ ")) << command;
    commands.insert(command.substr(2));
  }
  EXPECT_GT(commands.size(), 15u);
  for (const std::string& command : commands) expect_parses(command);
}

TEST_F(Claims, TheTableHasTheSameRows) {
  EXPECT_TRUE(csv_.starts_with("topic,source,claim,claimed,computed,verdict,stands,command,remark\n"));
  EXPECT_EQ(static_cast<std::size_t>(std::ranges::count(csv_, '\n')), table_.size() + 1);
  for (const json& row : table_)
    EXPECT_NE(csv_.find("\"" + row["claim"].get<std::string>() + "\","), std::string::npos);
}

TEST(ClaimVerdicts, ANumberIsJudgedByTheDigitsThatItHas) {
  const Judgement holds{Verdict::holds}, imprecise{Verdict::fails, true}, fails{Verdict::fails};
  EXPECT_EQ(judge_number("2.1", 2.14), holds);
  EXPECT_EQ(judge_number("2.1", 2.16), imprecise);
  EXPECT_EQ(judge_number("2.1", 2.4), fails) << "0.3 is more than a tenth of 2.4";
  EXPECT_EQ(judge_number("3.0", 3.04), holds);
  EXPECT_EQ(judge_number("3", 3.04), holds);
  EXPECT_EQ(judge_number("3.00", 3.04), imprecise);
  EXPECT_EQ(judge_number("0.000067", 6.663799e-05), holds);
  EXPECT_EQ(judge_number("6.10e-5", 6.103515625e-05), holds);
  EXPECT_EQ(judge_number("2000", 2000), holds);
  EXPECT_EQ(judge_number("2^24", 0x1p24), holds);
  EXPECT_EQ(judge_number("4", -4), fails);
  EXPECT_THROW(judge_number("many", 1), std::invalid_argument);
  EXPECT_EQ(judge_statement(true, true), holds);
  EXPECT_EQ(judge_statement(false, true), imprecise);
  EXPECT_EQ(judge_statement(false), fails);
}

TEST(ClaimVerdicts, AComputedValueAgainstTheRecordIsAMismatch) {
  const auto claim = [](Verdict recorded, Judgement computed) {
    return claim_of({"topic", "who", "words", "2.1", "2.261", recorded, computed, "exp_claims", "why"});
  };
  const analysis::Claim known = claim(Verdict::fails, {Verdict::fails, true});
  EXPECT_EQ(known.measured, "imprecise: 2.261");
  EXPECT_EQ(known.notes, (std::vector<std::string>{"[who]", "why", "$ exp_claims"}));
  EXPECT_EQ(verdict_text(known), "FAILS, as recorded");
  EXPECT_FALSE(is_mismatch(known));
  EXPECT_TRUE(is_mismatch(claim(Verdict::holds, {Verdict::fails, true})));
  EXPECT_TRUE(is_mismatch(claim(Verdict::fails, {Verdict::holds})));
}

}  // namespace
}  // namespace fp16lab::experiments::claims
