// The recipes' configurations through the real binary: each runs, learns, gives the same bits with any number
// of threads, and goes on with the same bits after a kill.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <csignal>
#include <numbers>
#include <thread>

#include "tests/experiments/app/small_runs.hpp"

namespace fp16lab::experiments {
namespace {

/// Networks of 16 hidden numbers.
std::vector<std::string> sizes_of(const std::string& recipe) {
  if (recipe == "recipe_gan")
    return {"model.noise=8", "model.layer.generator.mlp1.widths=[16,784]",
            "model.layer.discriminator.mlp1.widths=[16,1]"};
  if (recipe == "recipe_two_models")
    return {"model.layer.model0.mlp1.widths=[16,10]", "model.layer.model1.mlp1.widths=[16,10]"};
  return {"model.layer.mlp1.widths=[16,10]"};
}

class Recipes : public SmallRuns, public testing::WithParamInterface<std::string> {
 protected:
  /// The shipped configuration on small data, with `settings` on top.
  std::vector<std::string> arguments(const std::string& out, const std::vector<std::string>& settings,
                                     int threads) {
    if (!std::filesystem::exists(folder_ / "data"))
      testing_support::write_small_fashion(folder_ / "data", 400, 100);
    std::vector<std::string> all{
        "train",
        "-c",
        std::string(FP16LAB_SOURCE_DIR "/experiments/configs/") + GetParam() + ".toml",
        "-o",
        path(out),
        "--quiet",
        "--threads",
        std::to_string(threads)};
    const std::vector<std::string> small{"data.path=" + path("data"), "data.test_subset=0",
                                         "train.batch_size=20"};
    const std::vector<std::string> sizes = sizes_of(GetParam());
    for (const std::string& setting : sizes) all.insert(all.end(), {"--set", setting});
    for (const std::string& setting : small) all.insert(all.end(), {"--set", setting});
    for (const std::string& setting : settings) all.insert(all.end(), {"--set", setting});
    return all;
  }
  testing_support::Finished run(const std::string& out, const std::vector<std::string>& settings,
                                int threads = 2) {
    return fp16lab(arguments(out, settings, threads));
  }
};

TEST_P(Recipes, Learns) {
  const auto result = run("run", {"train.steps=40", "train.evaluate_every=20"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const double first = std::stod(column("run/steps.csv", "loss").front());
  const double last = std::stod(column("run/evaluations.csv", "loss").back());
  if (GetParam() == "recipe_gan") {
    // No loss falls for good in a game of two; at first the discriminator knows next to nothing, BCE ln 2
    // thrice. Logits of U(+-1/4) weights on 16 activations below 2: within 1 of 0, so BCE within 1 of ln 2.
    EXPECT_NEAR(first, 3 * std::numbers::ln2, 3.0);
    EXPECT_NE(last, first);
    EXPECT_EQ(column("run/evaluations.csv", "accuracy").back(), "");
  } else {
    EXPECT_LT(last, 0.8 * first);
    EXPECT_GT(std::stod(column("run/evaluations.csv", "accuracy").back()), 0.3) << "chance is 0.1";
  }
}

TEST_P(Recipes, TheSameBitsForAnyNumberOfThreads) {
  const std::vector<std::string> settings{"train.steps=6", "scaler.initial_scale=2^24",
                                          "observe.histograms_every=2"};
  ASSERT_EQ(run("one", settings, 1).exit_code, 0);
  ASSERT_EQ(run("two", settings, 2).exit_code, 0);
  EXPECT_EQ(steps("one"), steps("two"));
  EXPECT_EQ(read("one/evaluations.csv"), read("two/evaluations.csv"));
  EXPECT_EQ(read("one/histograms.jsonl"), read("two/histograms.jsonl"));
}

/// The methods that are their own: the others train like any classifier, see resume_test.
class RecipesOfTheirOwn : public Recipes {};

TEST_P(RecipesOfTheirOwn, GoOnWithTheSameBitsAfterAKill) {
  // Overflows at first, so that the kill falls among skipped and taken steps.
  const std::vector<std::string> settings{
      "train.steps=40",     "train.evaluate_every=7",   "scaler.initial_scale=2^24",
      "checkpoint.every=8", "scaler.growth_interval=5", "observe.histograms_every=0"};
  ASSERT_EQ(run("whole", settings).exit_code, 0);
  {
    testing_support::Spawned child(fp16lab_binary, arguments("killed", settings, 1), folder_);
    const std::filesystem::path first = folder_ / "killed/checkpoints/step-000008.safetensors";
    const auto start = std::chrono::steady_clock::now();
    while (!std::filesystem::exists(first) && child.running() &&
           std::chrono::steady_clock::now() - start < std::chrono::seconds(60))
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    child.signal(SIGKILL);
    ASSERT_EQ(child.wait().exit_code, 128 + SIGKILL) << "it was killed in the middle";
  }
  const auto resumed = fp16lab({"train", "--resume", "-o", path("killed"), "--threads", "2", "--quiet"});
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_EQ(steps("killed"), steps("whole"));
  EXPECT_EQ(read("killed/evaluations.csv"), read("whole/evaluations.csv"));
  const auto skipped = column("whole/steps.csv", "skipped");
  EXPECT_THAT(skipped, testing::Contains("1"));
  EXPECT_THAT(skipped, testing::Contains("0"));
}

/// The methods that train two models.
class RecipesOfTwo : public Recipes {
 protected:
  static std::array<std::string, 2> models() {
    return GetParam() == "recipe_gan" ? std::array<std::string, 2>{"generator", "discriminator"}
                                      : std::array<std::string, 2>{"model0", "model1"};
  }
};

TEST_P(RecipesOfTwo, EachHasASectionForItsOptimizer) {
  const auto [first, second] = models();
  const std::string one = "optimizer." + first + ".", two = "optimizer." + second + ".";
  const auto trained = [&](const std::string& out, std::vector<std::string> settings) {
    settings.insert(settings.end(), {"train.steps=6", "observe.histograms_every=0", "checkpoint.every=3"});
    const auto result = run(out, settings);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return column(out + "/steps.csv", "state_hash");
  };
  // What both sections say is what [optimizer] says, and what a section does not say is [optimizer]'s.
  const auto both = trained("both", {"optimizer.lr=0.003", "optimizer.weight_decay=0.01"});
  EXPECT_EQ(both, trained("apart", {"optimizer.lr=0.5", "optimizer.weight_decay=0.01", one + "lr=0.003",
                                    two + "lr=0.003"}));
  const auto other =
      trained("other", {"optimizer.lr=0.003", "optimizer.weight_decay=0.01", two + "lr=0.004"});
  EXPECT_NE(both, other);
  // Every weight of a network of rows is reached by its loss: cleared to zeros it moves as it does without
  // them.
  EXPECT_EQ(both, trained("zeros",
                          {"optimizer.lr=0.003", "optimizer.weight_decay=0.01", two + "set_to_zero=true"}));
  EXPECT_EQ(column("other/steps.csv", "lr").back(), "0.003000000026077032") << "the first one's, in FP32";

  // Other rules side by side: a checkpoint knows both, and goes on with the same bits.
  const std::vector<std::string> rules{one + "name=sgd", one + "momentum=0.5", two + "name=rmsprop",
                                       two + "lr=0.001"};
  const auto mixed = trained("mixed", rules);
  std::filesystem::remove(folder_ / "mixed/checkpoints/step-000006.safetensors");
  EXPECT_THAT(
      read("mixed/config.toml"),
      testing::AllOf(testing::HasSubstr("[optimizer." + first + "]\nname = \"sgd\"\nmomentum = 0.5\n"),
                     testing::HasSubstr("[optimizer." + second + "]\nname = \"rmsprop\"\nlr = 0.001\n")));
  EXPECT_THAT(read("mixed/checkpoints/step-000003.safetensors"),
              testing::HasSubstr(first + ": sgd, " + second + ": rmsprop"));
  expect_one_line_error(
      fp16lab({"train", "--resume", "-o", path("mixed"), "--quiet", "--set", two + "lr=0.002"}), 2,
      two + "lr = 0.002, but the run in ");
  const auto resumed = fp16lab({"train", "--resume", "-o", path("mixed"), "--quiet"});
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_EQ(column("mixed/steps.csv", "state_hash"), mixed);
}

TEST_P(RecipesOfTwo, ASectionOfNoModelIsRefused) {
  const auto [first, second] = models();
  const std::string strange = first == "model0" ? "generator" : "model1";
  expect_one_line_error(run("run", {"optimizer." + strange + ".lr=0.1"}), 2,
                        "optimizer." + strange + ".lr=0.1: train.method = ");
  expect_one_line_error(run("run", {"optimizer.critic.lr=0.1"}), 2, "unknown key 'optimizer.critic.lr'");
  expect_one_line_error(run("run", {"optimizer." + first + ".lr=-1"}), 2,
                        "optimizer." + first + ".lr = -1: expected a number, 0 or more");
  expect_one_line_error(run("run", {"optimizer." + second + ".nesterov=true", "optimizer.momentum=0"}), 2,
                        "optimizer." + second + ".nesterov=true: optimizer.");
  expect_one_line_error(run("run", {"optimizer." + second + ".kahan=true"}), 2, "unknown key");
}

INSTANTIATE_TEST_SUITE_P(Shipped, RecipesOfTwo, testing::Values("recipe_gan", "recipe_two_models"),
                         [](const auto& named) { return named.param; });

INSTANTIATE_TEST_SUITE_P(Shipped, Recipes,
                         testing::Values("recipe_accumulation", "recipe_clipping", "recipe_gan",
                                         "recipe_gradient_penalty", "recipe_two_models"),
                         [](const auto& named) { return named.param; });

INSTANTIATE_TEST_SUITE_P(Shipped, RecipesOfTheirOwn,
                         testing::Values("recipe_gan", "recipe_gradient_penalty", "recipe_two_models"),
                         [](const auto& named) { return named.param; });

class RecipeErrors : public SmallRuns {};

TEST_F(RecipeErrors, WidthsThatDoNotFitAreOneClearError) {
  testing_support::write_small_fashion(folder_ / "data", 400, 100);
  const auto fails = [&](const std::string& recipe, const std::string& setting, const std::string& part) {
    expect_one_line_error(
        fp16lab({"train", "-c", FP16LAB_SOURCE_DIR "/experiments/configs/" + recipe + ".toml", "-o",
                 path("run"), "--set", "data.path=" + path("data"), "--set", "data.test_subset=0", "--set",
                 setting}),
        2, part);
  };
  fails("recipe_gan", "model.layer.discriminator.mlp1.widths=[16,2]",
        "the network ends with (N, 2), 'discriminator.mlp1' (mlp); expected (N, 1), the logit of \"real\"");
  fails("recipe_gan", "model.layer.generator.mlp1.widths=[16,100]",
        "unflattened_size has 784 elements; expected 100");
  fails("recipe_gan", "model.layer.generator.mlp1.widths=[]", "widths: expected one or more");
  fails("recipe_gan", "model.block.generator.repeat=2", "expected two [[model.block]]");
  fails("recipe_two_models", "model.layer.model1.mlp1.widths=[16,7]", "ends with (N, 7)");
  fails("recipe_gradient_penalty", "train.penalty=-1", "train.penalty");
  fails("recipe_clipping", "optimizer.generator.lr=0.1",
        "optimizer.generator.lr=0.1: train.method = supervised does not read it; gan does");
}

}  // namespace
}  // namespace fp16lab::experiments
