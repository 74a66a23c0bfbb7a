// fp16lab train with policies that look at gradients, rescued steps, guards, and runs that end with a
// diagnosis; through the real binary.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

class TrainScaler : public Resume {};

TEST_F(TrainScaler, LostMassMovesTheScaleWithoutAnOverflow) {
  const auto result = train("run", set({"scaler.policy=lost-mass"}));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(overflows("run").empty());
  const auto scales = column("run/steps.csv", "loss_scale");
  EXPECT_EQ(scales.front(), "65536");
  EXPECT_NE(scales.back(), "65536");
  // Looking at gradients for the folder is another matter: rows as often as observe.histograms_every says.
  ASSERT_EQ(train("blind", set({"scaler.policy=lost-mass", "observe.histograms_every=0"})).exit_code, 0);
  EXPECT_EQ(column("blind/steps.csv", "state_hash"), column("run/steps.csv", "state_hash"));
  EXPECT_EQ(read("blind/histograms.jsonl"), "");
}

/// torch's O1 leaves the scaler to the user; a level without FP16 needs none.
TEST_F(TrainScaler, SaysThatThereIsNoLossScale) {
  EXPECT_THAT(train("o1", set({"amp.level=O1", "scaler.policy=auto"})).err,
              HasSubstr("note: there is no loss scale (scaler.policy = none); who trains so mostly makes one: "
                        "scaler.policy=torch\n"));
  EXPECT_THAT(train("made", set({"amp.level=O1", "scaler.policy=torch"})).err, Not(HasSubstr("no loss scale")));
  EXPECT_THAT(train("o0", set({"amp.level=O0", "scaler.policy=auto"})).err, Not(HasSubstr("no loss scale")));
}

TEST_F(TrainScaler, ARescuedRunSkipsNothing) {
  const std::vector<std::string> settings = {"scaler.policy=torch", "scaler.initial_scale=2^30",
                                             "scaler.growth_interval=4"};
  std::vector<std::string> rescued = settings;
  rescued.emplace_back("scaler.rescue=20");
  ASSERT_EQ(train("skips", set(settings)).exit_code, 0);
  const auto result = train("rescues", set(rescued));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(column("skips/steps.csv", "skipped"), testing::Contains("1"));
  EXPECT_THAT(column("rescues/steps.csv", "skipped"), Each("0"));
  EXPECT_THAT(column("rescues/steps.csv", "found_inf"), Each("0"));
  EXPECT_EQ(json::parse(result.out)["skipped_steps"], 0);
  const std::vector<json> rows = overflows("rescues");
  ASSERT_FALSE(rows.empty());
  EXPECT_EQ(rows.front()["step"], 1);
  EXPECT_EQ(rows.front()["loss_scale"], 0x1p30);
  EXPECT_EQ(rows.front()["optimizers"], json::array());
  EXPECT_FALSE(rows.front()["parameters"].empty());
  for (const json& row : rows) {
    EXPECT_EQ(row["rescue"]["rescued"], true);
    EXPECT_GE(row["rescue"]["attempts"], 1);
    EXPECT_LT(row["rescue"]["loss_scale"], row["loss_scale"]);
    // What steps.csv shows is the scale of the last backward pass.
    const auto step = row["step"].get<std::size_t>();
    EXPECT_EQ(std::stod(column("rescues/steps.csv", "loss_scale").at(step - 1)), row["rescue"]["loss_scale"]);
  }
  for (const json& row : overflows("skips")) EXPECT_FALSE(row.contains("rescue"));
}

TEST_F(TrainScaler, ResumesWithTheSameFiles) {
  const std::vector<std::string> more = {"scaler.policy=lost-mass", "scaler.rescue=1",
                                         "scaler.initial_scale=2^36", "train.steps=14"};
  ASSERT_EQ(begin("whole", more).exit_code, 0);
  ASSERT_EQ(begin("split", {"scaler.policy=lost-mass", "scaler.rescue=1", "scaler.initial_scale=2^36",
                            "train.steps=6"})
                .exit_code,
            0);
  const auto resumed = resume("split", {"--set", "train.steps=14"});
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_EQ(column("split/steps.csv", "state_hash"), column("whole/steps.csv", "state_hash"));
  EXPECT_EQ(column("split/steps.csv", "loss_scale"), column("whole/steps.csv", "loss_scale"));
  EXPECT_EQ(read("split/overflows.jsonl"), read("whole/overflows.jsonl"));
  EXPECT_FALSE(overflows("whole").empty());
}

TEST_F(TrainScaler, EndsWithADiagnosis) {
  const auto expect = [&](const std::string& run, const std::vector<std::string>& settings,
                          const std::string& code, const std::string& words) {
    SCOPED_TRACE(run);
    const auto result = train(run, set(settings));
    EXPECT_EQ(result.exit_code, 4) << result.err;
    EXPECT_EQ(json::parse(result.out)["diagnosis"], code);
    EXPECT_EQ(json::parse(result.out)["state"], "diverged");
    EXPECT_THAT(result.err, AllOf(HasSubstr("diverged at step "), HasSubstr(words)));
    EXPECT_THAT(manifest(run)["message"].get<std::string>(), HasSubstr(words));
  };
  expect("high", {"scaler.policy=torch", "scaler.initial_scale=2^36", "train.skip_limit=3"},
         "scale_began_too_high",
         "3 skipped steps in a row (train.skip_limit). bad scale: no step was taken yet: S began at 2^36");
  expect("stuck", {"scaler.policy=fixed", "scaler.initial_scale=2^36", "train.skip_limit=3"}, "scale_stuck",
         "bad scale: S stayed at 2^36");
  expect("beyond", {"scaler.policy=torch", "scaler.initial_scale=2^90", "train.skip_limit=3"},
         "scale_beyond_use", "scaler.max_scale");
  expect("rate", {"optimizer.lr=1e30", "scaler.policy=torch", "train.skip_limit=5"}, "learning_rate_too_high",
         "bad learning rate: ");
  expect("policy", {"scaler.policy=fairseq", "scaler.initial_scale=2^36", "scaler.min_loss_scale=2^34"},
         "scale_began_too_high", "policy \"fairseq\" ends the run: ");
}

// Nineteen losses of twenty are NaN, and the policy goes on.
TEST_F(TrainScaler, ALastLossThatIsNoNumberIsADivergence) {
  for (const std::string level : {"O0", "O1"}) {
    SCOPED_TRACE(level);
    const auto result =
        train("lost-" + level, set({"optimizer.lr=1e30", "train.steps=6", "amp.level=" + level}));
    EXPECT_EQ(result.exit_code, 4) << result.err;
    EXPECT_EQ(json::parse(result.out)["state"], "diverged");
    EXPECT_EQ(json::parse(result.out)["diagnosis"], "learning_rate_too_high");
    EXPECT_THAT(result.err, AllOf(HasSubstr("Lower optimizer.lr (it is 1e+30)"),
                                  HasSubstr("--set optimizer.lr=1e+29 -o ")));
  }
}

// A scale that cannot fall (fixed, or at its floor) is a failure; one that is on its way is not.
TEST_F(TrainScaler, SaysThatNoStepWasTaken) {
  const auto run = [&](const std::string& name, const std::vector<std::string>& settings) {
    std::vector<std::string> all = settings;
    all.insert(all.end(), {"train.steps=5", "amp.level=O1"});
    return train(name, set(all));
  };
  for (const std::vector<std::string>& settings :
       {std::vector<std::string>{"scaler.policy=fixed", "scaler.initial_scale=2^36"},
        {"scaler.policy=torch", "scaler.initial_scale=2^36", "scaler.min_scale=2^36"}}) {
    SCOPED_TRACE(settings.front());
    const auto stuck = run("stuck-" + settings.front().substr(14), settings);
    EXPECT_EQ(stuck.exit_code, 4);
    EXPECT_THAT(stuck.err, AllOf(HasSubstr("No step was taken: skipped 5 of 5 steps, at a scale of 2^36"),
                                 HasSubstr("The scale cannot fall any further"), HasSubstr("Next: ")));
    const json account = json::parse(stuck.out)["account"];
    EXPECT_EQ(account["skipped"], 5);
    EXPECT_EQ(account["nothing_to_fix"], false);
    EXPECT_EQ(account["findings"][0]["trouble"], "overflow");
  }
  const auto falling = run("falling", {"scaler.policy=torch", "scaler.initial_scale=2^60"});
  EXPECT_EQ(falling.exit_code, 0);
  EXPECT_THAT(falling.err,
              AllOf(HasSubstr("skipped 5 of 5 steps, still searching: 2^60 to 2^56 in 5 steps. More "),
                    HasSubstr("--explain-overflow -o ")));
  const auto well = run("well", {"scaler.policy=fixed", "scaler.initial_scale=2^10"});
  EXPECT_THAT(well.err, HasSubstr("Nothing to fix: every loss"));
}

TEST_F(TrainScaler, WarnsOfInexactUnscalingOnce) {
  const std::string warning = "warning: scaler.backoff_factor = 0.8 is no power of two";
  const std::vector<std::string> settings = {"scaler.policy=torch", "scaler.backoff_factor=0.8",
                                             "scaler.growth_interval=1", "train.steps=2"};
  const auto warned = train("warned", set(settings));
  EXPECT_EQ(warned.exit_code, 0);
  const std::size_t first = warned.err.find(warning);
  EXPECT_NE(first, std::string::npos) << warned.err;
  EXPECT_EQ(warned.err.find("warning: ", first + 1), std::string::npos);
  std::vector<std::string> quiet = set(settings);
  quiet.emplace_back("--quiet");
  EXPECT_THAT(train("quiet", quiet).err, Not(HasSubstr("warning")));
  for (const char* const choice : {"scaler.power_of_two=any", "scaler.power_of_two=round_down"}) {
    std::vector<std::string> silent = settings;
    silent.emplace_back(choice);
    EXPECT_THAT(train(choice, set(silent)).err, Not(HasSubstr("warning")));
  }
}

TEST_F(TrainScaler, RefusesWhatCannotBeHad) {
  const auto refused = [&](const std::vector<std::string>& settings) {
    return train("refused", set(settings));
  };
  expect_one_line_error(refused({"scaler.rescue=1"}), 2, "scaler.rescue = 1 with scaler.policy = \"none\"");
  expect_one_line_error(refused({"scaler.rescue=-1"}), 2, "scaler.rescue");
  expect_one_line_error(refused({"scaler.policy=lost-mass", "train.graph=true", "backend.device=cuda"}), 2,
                        "train.graph = true with scaler.policy");
  expect_one_line_error(
      refused({"scaler.policy=torch", "scaler.rescue=2", "train.graph=true", "backend.device=cuda"}), 2,
      "train.graph = true with scaler.rescue = 2");
}

}  // namespace
}  // namespace fp16lab::experiments
