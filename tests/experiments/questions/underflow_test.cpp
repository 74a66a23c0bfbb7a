// exp_underflow through the real binary: its claims, its files, and what casts did to the loss gradients.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "numerics/files/run/run_folder.hpp"
#include "tests/experiments/app/small_runs.hpp"

namespace fp16lab::experiments {
namespace {

using nlohmann::json;

class Underflow : public SmallRuns {
 protected:
  /// A regression on the small data. `lr` = 0 makes all runs end alike.
  testing_support::Finished run(std::vector<std::string> more) {
    write_config();
    testing_support::write_bytes(
        folder_ / "regression.toml",
        "[model]\nname = \"autoencoder\"\nloss = \"mse\"\nlayer = [{ type = \"flatten\" }, { type = \"mlp\", "
        "widths = [8, 784] }]\n[data]\npath = \"" +
            path("data") + "\"\n[train]\nbatch_size = 20\nsteps = 10\n[observe]\nhistograms_every = 5\n");
    more.insert(more.begin(), {"-c", "regression.toml", "-o", "out", "--quiet"});
    return run_inside("exp_underflow", more);
  }
};

TEST_F(Underflow, AClaimThatDoesNotHoldFails) {
  const auto result = run({"--set", "optimizer.lr=0"});
  EXPECT_EQ(result.exit_code, 5) << result.err;
  EXPECT_NE(result.out.find("verdict: FAILS"), std::string::npos) << "no harm where nothing is learnt";
  EXPECT_NE(result.out.find("verdict: HOLDS"), std::string::npos) << "and a scaled run is as good as FP32";
  EXPECT_EQ(
      column("out/exp_underflow.csv", "configuration"),
      (std::vector<std::string>{"\"fp32\"", "\"fp32-twin\"", "\"none\"", "\"fixed-2p3\"", "\"fixed-2p7\""}));
  EXPECT_EQ(column("out/exp_underflow.csv", "pairs"), (std::vector<std::string>{"", "5", "5", "5", "5"}));
  const json claims = json::parse(read("out/claims.json"));
  EXPECT_EQ(claims["claims"][0]["verdict"], "FAILS");
  EXPECT_EQ(claims["claims"][1]["verdict"], "HOLDS");
}

TEST_F(Underflow, FindsItsConfigurationFromAnyFolderAndSaysWhereItWrites) {
  write_config();
  const auto result = run_inside(
      "exp_underflow", {"--seed", "1", "--set", "data.path=" + path("data"), "--set", "train.steps=1",
                        "--set", "train.batch_size=20", "--set", "train.accumulate=1"});
  EXPECT_NE(result.out.find("verdict: "), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("exp_underflow: writes into results/exp_underflow\n"), std::string::npos)
      << result.err;
  EXPECT_FALSE(read("results/exp_underflow/exp_underflow.csv").empty());
}

TEST_F(Underflow, OneSeedDecidesNothing) {
  const auto result = run({"--seed", "1"});
  EXPECT_EQ(result.exit_code, 0) << "cannot tell is a result";
  EXPECT_NE(result.out.find("verdict: CANNOT TELL"), std::string::npos) << result.out;
  EXPECT_EQ(result.out.find("verdict: HOLDS"), std::string::npos);
  EXPECT_EQ(result.out.find("verdict: FAILS"), std::string::npos);
}

TEST_F(Underflow, TheLossGradientsUnderflowLessAsTheScaleRises) {
  // The mean over 100 x 784 outputs and 16 micro-batches puts the smallest of dL/dy below 2^-25.
  const auto result = run({"--set", "train.batch_size=100", "--set", "train.accumulate=16", "--set",
                           "train.steps=5", "--seed", "1"});
  EXPECT_EQ(result.err, "");
  EXPECT_NE(result.out.find("loss gradients dL/dy"), std::string::npos);
  const auto rates = column("out/loss_gradients.csv", "loss_gradient_underflow");
  ASSERT_EQ(rates.size(), 4u);
  EXPECT_GT(std::stod(rates[1]), std::stod(rates[2]));
  EXPECT_GT(std::stod(rates[2]), std::stod(rates[3]));
  // FP32 casts nothing; what FP16 would do is another column. The others' rates are what their folders
  // counted.
  EXPECT_EQ(rates[0], "");
  EXPECT_GT(std::stod(column("out/loss_gradients.csv", "loss_gradient_underflow_in_fp16").at(0)), 0);
  std::uint64_t lost = 0, values = 0;
  for_each_histogram(folder_ / "out" / "autoencoder-none-seed1", [&](const HistogramRow& row) {
    if (row.tensor != "loss.prediction") return;
    lost += row.after.zero - row.before.zero;
    values += row.before.finite_nonzero();
  });
  EXPECT_EQ(std::stod(rates[1]), static_cast<double>(lost) / static_cast<double>(values));
}

}  // namespace
}  // namespace fp16lab::experiments
