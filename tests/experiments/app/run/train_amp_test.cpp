// fp16lab train with the keys of mixed precision, through the real binary: op statistics, what overflowed,
// exported weights, notes, and kills at levels and with methods that keep more state.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/experiments/app/run/resume_runs.hpp"

namespace fp16lab::experiments {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

class TrainAmp : public Resume {
 protected:
  bool exists(const std::string& name) const { return std::filesystem::exists(folder_ / name); }
  /// The header of a safetensors file.
  json header(const std::string& file) const {
    const std::string bytes = read(file);
    std::uint64_t length = 0;
    std::memcpy(&length, bytes.data(), sizeof(length));
    return json::parse(bytes.substr(sizeof(length), length));
  }
  /// One thread and two give the same hashes.
  void expect_the_same_over_threads(const std::vector<std::string>& settings) {
    std::vector<std::vector<std::string>> hashes;
    for (const char* threads : {"1", "2"}) {
      std::vector<std::string> arguments = set(settings);
      arguments.insert(arguments.end(), {"--threads", threads, "--force"});
      const auto result = train("threads", arguments);
      ASSERT_EQ(result.exit_code, 0) << result.err;
      hashes.push_back(column("threads/steps.csv", "state_hash"));
      EXPECT_EQ(hashes.back().size(), 40u);
    }
    EXPECT_EQ(hashes[0], hashes[1]);
  }
  /// The scale of these runs overflows at first.
  void expect_a_kill_after_overflows_to_change_nothing(const std::vector<std::string>& more) {
    expect_a_kill_to_change_nothing(more);
    EXPECT_FALSE(overflows("whole").empty());
  }
};

TEST_F(TrainAmp, OpStatisticsAreATableAndACsvOfTheFirstStep) {
  const auto result = train("run", {"--op-stats"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  // One micro-batch of 784-16-10 at O1: fc1 casts its input, weight and bias, fc2 the latter two, the loss
  // its logits.
  EXPECT_EQ(read("run/op_stats.csv"),
            "layer,op,f16,bf16,f32,casts_to_low,casts_to_f32\n"
            ",reshape,0,0,1,0,0\n"
            "fc1,linear,1,0,0,3,0\n"
            ",relu,1,0,0,0,0\n"
            "fc2,linear,1,0,0,2,0\n"
            "loss,softmax_cross_entropy,0,0,1,0,1\n");
  EXPECT_THAT(result.err, AllOf(HasSubstr("ops of step 1"), HasSubstr("softmax_cross_entropy"),
                                HasSubstr("total"), HasSubstr("advice: fc2: N = 10 is not a multiple of 8"),
                                HasSubstr("advice: fc1: M = 20 is not a multiple of 8")));
  EXPECT_EQ(json::parse(result.out).at("state"), "finished") << "the table is not on stdout";

  const auto quiet = train("quiet", {"--op-stats", "--quiet"});
  EXPECT_EQ(quiet.err, "");
  EXPECT_EQ(read("quiet/op_stats.csv"), read("run/op_stats.csv"));
  EXPECT_EQ(column("quiet/steps.csv", "state_hash"), column("run/steps.csv", "state_hash"));

  ASSERT_EQ(train("wide", {"--op-stats", "--set", "amp.level=O0"}).exit_code, 0);
  EXPECT_THAT(read("wide/op_stats.csv"), HasSubstr("fc1,linear,0,0,1,0,0\n"));
  ASSERT_EQ(train("without").exit_code, 0);
  EXPECT_FALSE(exists("without/op_stats.csv"));
}

TEST_F(TrainAmp, AResumedRunCountsItsOwnFirstStep) {
  ASSERT_EQ(train("run", set({"checkpoint.every=10", "train.steps=20"})).exit_code, 0);
  const auto result = resume("run", {"--op-stats", "--set", "train.steps=30", "--set", "train.accumulate=1"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("ops of step 21"));
  EXPECT_TRUE(exists("run/op_stats.csv"));
}

TEST_F(TrainAmp, OverflowsAreToldByStepAndName) {
  ASSERT_EQ(train("run", set({"scaler.policy=dynamic", "scaler.initial_scale=2^24"})).exit_code, 0);
  const auto found_inf = column("run/steps.csv", "found_inf"), scales = column("run/steps.csv", "loss_scale");
  std::vector<std::size_t> expected, told;
  for (std::size_t i = 0; i < found_inf.size(); ++i)
    if (found_inf[i] == "1") expected.push_back(i + 1);
  ASSERT_FALSE(expected.empty());
  ASSERT_LT(expected.size(), 40u);
  for (const json& line : overflows("run")) {
    told.push_back(line.at("step").get<std::size_t>());
    EXPECT_EQ(line.at("kind"), "gradient");
    EXPECT_EQ(line.at("loss_scale"), std::stod(scales[told.back() - 1]));
    EXPECT_EQ(line.at("optimizers"), json::array({"model"}));
    EXPECT_GT(line.at("parameters").size(), 0u);
  }
  EXPECT_EQ(told, expected);

  ASSERT_EQ(train("fine").exit_code, 0);
  EXPECT_EQ(read("fine/overflows.jsonl"), "") << "created, and empty";
}

TEST_F(TrainAmp, ALossOverflowIsNamedApart) {
  // A loss near ln 10 times the largest FP16 number is infinite in FP16; the seed, that number itself, is
  // not.
  ASSERT_EQ(train("run", set({"amp.dialect=mindspore", "amp.level=O3", "amp.low_loss=true",
                              "scaler.policy=fixed", "scaler.initial_scale=65504", "train.steps=5"}))
                .exit_code,
            0);
  const auto found_inf = column("run/steps.csv", "found_inf");
  const auto lines = overflows("run");
  ASSERT_EQ(lines.size(), 5u);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    EXPECT_EQ(lines[i].at("kind"), found_inf[i] == "1" ? "both" : "loss");
    EXPECT_EQ(lines[i].at("parameters").empty(), found_inf[i] == "0");
  }
}

TEST_F(TrainAmp, WeightsAreExportedInTheTypeAsked) {
  for (const std::string dtype : {"f16", "bf16", "f64"}) {
    ASSERT_EQ(train(dtype, set({"amp.save_dtype=" + dtype, "checkpoint.every=15"})).exit_code, 0);
    const json weights = header(dtype + "/weights.safetensors");
    EXPECT_EQ(weights.at("__metadata__"), (json{{"dtype", dtype}, {"step", "40"}}));
    EXPECT_EQ(weights.at("fc1.weight").at("dtype"), dtype == "f16"    ? "F16"
                                                    : dtype == "bf16" ? "BF16"
                                                                      : "F64");
    EXPECT_EQ(weights.at("fc1.weight").at("shape"), (json{16, 784}));
    EXPECT_EQ(weights.size(), 5u) << "two layers' weights and biases, and the metadata";
    EXPECT_EQ(header(newest(dtype)).at("fc1.weight").at("dtype"), "F32")
        << "checkpoints keep the exact state";
  }
  // Also where there are no checkpoints, and with each of those there are: a killed run has the last one's.
  ASSERT_EQ(train("end", set({"amp.save_dtype=f16"})).exit_code, 0);
  EXPECT_EQ(read("end/weights.safetensors"), read("f16/weights.safetensors"));
  begin_and_interrupt("killed", {"amp.save_dtype=f16"}, SIGKILL);
  const auto step =
      std::stoull(header("killed/weights.safetensors").at("__metadata__").at("step").get<std::string>());
  EXPECT_EQ(step % 2, 0u) << "checkpoint.every=2";
  EXPECT_LE(step, newest_step("killed"));
  EXPECT_GE(step + 2, newest_step("killed")) << "the kill may have come between the two files";
  ASSERT_EQ(train("none").exit_code, 0);
  EXPECT_FALSE(exists("none/weights.safetensors"));
}

TEST_F(TrainAmp, DividingNotOnceIsNotedAndRuns) {
  const std::vector<std::string> kept{"scaler.policy=fixed", "scaler.initial_scale=1024",
                                      "scaler.drop_overflow_update=false"};
  const auto with = [&](const std::string& run, const std::string& loss_scale,
                        std::vector<std::string> settings) {
    settings.push_back("optimizer.loss_scale=" + loss_scale);
    settings.push_back("train.steps=3");
    return train(run, set(settings));
  };
  const auto right = with("right", "1024", kept);
  EXPECT_EQ(right.exit_code, 0) << right.err;
  EXPECT_THAT(right.err, Not(HasSubstr("note:")));
  const auto forgotten = with("forgotten", "1", kept);
  EXPECT_EQ(forgotten.exit_code, 4) << "it runs, and its last loss is NaN: " << forgotten.err;
  EXPECT_THAT(forgotten.err,
              HasSubstr("note: scaler.drop_overflow_update = false leaves the loss scale 2^10 in the "
                        "gradients and optimizer.loss_scale = 1: every gradient is 1024 times"));
  const auto doubled = with("doubled", "1024", {"scaler.policy=fixed", "scaler.initial_scale=1024"});
  EXPECT_EQ(doubled.exit_code, 0) << doubled.err;
  EXPECT_THAT(doubled.err, HasSubstr("every gradient is 0.0009765625 times"));
}

TEST_F(TrainAmp, WhatCannotGoTogetherIsAUsageErrorBeforeAnythingIsWritten) {
  const auto refused = [&](const std::vector<std::string>& settings, const std::string& part) {
    expect_one_line_error(train("refused", set(settings)), 2, part);
    EXPECT_FALSE(exists("refused"));
  };
  refused({"amp.dtype=bf16", "backend.tensor_core=volta"}, "backend.tensor_core = \"volta\"");
  refused({"scaler.policy=fixed", "scaler.drop_overflow_update=false", "train.clip_norm=1"},
          "train.clip_norm = 1");
  refused({"amp.level=O2"}, "amp.level = \"O2\"");
  refused({"amp.white=relu", "amp.black=relu"}, "relu");
}

TEST_F(TrainAmp, SameBitsForAnyNumberOfThreadsInALowModel) {
  for (const char* masters : {"true", "false"})
    expect_the_same_over_threads({"amp.dialect=paddle", "amp.level=O2",
                                  std::string("amp.master_weights=") + masters, "scaler.policy=dynamic",
                                  "train.accumulate=2"});
}

TEST_F(TrainAmp, AKillAtO2ChangesNothing) {
  expect_a_kill_after_overflows_to_change_nothing({"amp.dialect=paddle", "amp.level=O2"});
}

TEST_F(TrainAmp, AKillWithoutMasterWeightsChangesNothing) {
  expect_a_kill_after_overflows_to_change_nothing(
      {"amp.dialect=paddle", "amp.level=O2", "amp.master_weights=false"});
}

TEST_F(TrainAmp, AKillWithTwoOptimizersChangesNothing) {
  model_ = R"(
loss = "bce_with_logits"
noise = 8
[[model.block]]
name = "generator"
layer = [{ type = "mlp", widths = [16, 784], output = "sigmoid" }, { type = "unflatten", unflattened_size = [1, 28, 28] }]
[[model.block]]
name = "discriminator"
layer = [{ type = "flatten" }, { type = "mlp", widths = [16, 1] }])";
  expect_a_kill_after_overflows_to_change_nothing({"train.method=gan"});
}

}  // namespace
}  // namespace fp16lab::experiments
