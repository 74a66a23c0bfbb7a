// fp16lab model: LeNet-5 by hand, and what a level keeps in 16 bits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/experiments/app/small_runs.hpp"

namespace fp16lab::experiments {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class ModelCommandLine : public SmallRuns {
 protected:
  json described(std::vector<std::string> arguments) {
    if (!std::filesystem::exists(folder_ / "data"))
      testing_support::write_small_fashion(folder_ / "data", 400, 100);
    arguments.insert(arguments.begin(), "model");
    arguments.insert(arguments.end(), {"--json", "--set", "data.path=" + path("data")});
    const auto result = fp16lab(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return json::parse(result.out);
  }
  json row(const json& rows, const std::string& key, const std::string& name) {
    for (const json& one : rows)
      if (one.at(key) == name) return one;
    ADD_FAILURE() << name;
    return {};
  }
};

TEST_F(ModelCommandLine, LeNetByHand) {
  const json lenet = described({"lenet5", "--set", "train.batch_size=4"});
  EXPECT_EQ(lenet.at("parameters"), 61706);
  // conv1 6@5x5 on 28 x 28, conv2 16@6x5x5 on 10 x 10, 400-120-84-10; four images.
  const double conv1 = 4 * 28 * 28 * 6 * 25, conv2 = 4 * 10 * 10 * 16 * 150,
               full = 4 * (400 * 120 + 120 * 84 + 84 * 10);
  EXPECT_EQ(lenet.at("multiply_adds"), conv1 + conv2 + full);
  const json second = row(lenet.at("layers"), "layer", "conv2");
  EXPECT_EQ(second.at("output"), "(N, 16, 10, 10)");
  EXPECT_EQ(second.at("parameters"), 16 * 150 + 16);
  EXPECT_EQ(second.at("products").at(0).at("m"), 400);
  EXPECT_EQ(second.at("products").at(0).at("n"), 16);
  EXPECT_EQ(second.at("products").at(0).at("k"), 150);
  EXPECT_EQ(second.at("products").at(0).at("fills_tensor_cores"), false) << "150";
  EXPECT_EQ(row(lenet.at("layers"), "layer", "relu1").at("multiply_adds"), 0);
  // Backward: both operands' gradients, but for the input of conv1.
  EXPECT_EQ(row(lenet.at("levels"), "level", "O0").at("multiply_adds"),
            3 * (conv1 + conv2 + full) - conv1 + (4 * 32 * 32 * 6 * 25 - 4 * 28 * 28 * 6 * 25) * 0 +
                4.0 * (14 * 14 * 6 * 16 * 25 - 10 * 10 * 16 * 150))
      << "the gradient of conv2's input is a product for each of 14 x 14 pixels";
}

TEST_F(ModelCommandLine, LevelsTakeWhatTheyKeep) {
  const json model = described({"classifier", "--set", "amp.dialect=paddle", "--set", "optimizer.name=adam"});
  const std::uint64_t count = model.at("parameters");
  const json o0 = row(model.at("levels"), "level", "O0"), o2 = row(model.at("levels"), "level", "O2");
  EXPECT_EQ(o0.at("parameter_bytes"), 4 * count);
  EXPECT_EQ(o0.at("gradient_bytes"), 4 * count);
  EXPECT_EQ(o0.at("optimizer_bytes"), 8 * count) << "two moments";
  EXPECT_EQ(o2.at("parameter_bytes"), 2 * count);
  EXPECT_EQ(o2.at("master_bytes"), 4 * count);
  EXPECT_EQ(o2.at("gradient_bytes"), 2 * count);
  EXPECT_GT(o0.at("peak_bytes"), 16 * count);
}

TEST_F(ModelCommandLine, CountsWhatARunMeasures) {
  const std::vector<std::string> settings{"amp.dialect=paddle", "optimizer.name=adam", "train.steps=3"};
  for (const std::string level : {"O0", "O1", "O2"}) {
    std::vector<std::string> shared{"lenet5", "--set", "amp.level=" + level};
    for (const std::string& setting : settings) shared.insert(shared.end(), {"--set", setting});
    const json counted = row(described(shared).at("levels"), "level", level);
    shared.insert(shared.begin(), {"train", "--quiet", "--force", "-o", path("run"), "-c"});
    shared.insert(shared.end(), {"--set", "data.path=" + path("data")});
    const auto result = fp16lab(shared);
    ASSERT_EQ(result.exit_code, 0) << result.err;
    const json manifest = json::parse(read("run/manifest.json")), &memory = manifest.at("memory");
    for (const std::string part : {"parameter", "gradient"})
      EXPECT_EQ(memory.at(part + "s"), counted.at(part + "_bytes")) << level << ' ' << part;
    EXPECT_EQ(memory.at("masters"), counted.at("master_bytes"));
    EXPECT_EQ(memory.at("optimizer"), counted.at("optimizer_bytes"));
    EXPECT_EQ(memory.at("activations"), counted.at("activation_bytes")) << level;
    EXPECT_GE(memory.at("peak"), counted.at("peak_bytes")) << "scratch memory of the products";
    EXPECT_GT(manifest.at("seconds_per_step"), 0);
    EXPECT_EQ(manifest.at("model").at("layers").size(), 12u);
    EXPECT_EQ(column("run/steps.csv", "epoch").at(1), "0.16666666666666666")
        << "12 batches of 32 of 400 images";
  }
}

TEST_F(ModelCommandLine, IsDrawn) {
  described({"lenet5", "--draw", path("net.dot")});
  EXPECT_THAT(read("net.dot"), HasSubstr("\"conv1\" -> \"conv2\""));
  expect_one_line_error(
      fp16lab({"model", "lenet5", "--draw", path("net"), "--set", "data.path=" + path("data")}), 1,
      "model: --draw: ");
}

TEST_F(ModelCommandLine, AnySizeIsAMoment) {
  const auto result = fp16lab({"model", "paddle_linear9"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("604053504 parameters"));
  EXPECT_THAT(result.out, HasSubstr("2048 x 8192 x 8192"));
}

TEST_F(ModelCommandLine, EveryShippedNetworkHasATable) {
  for (const char* const name :
       {"recipe_gan", "recipe_two_models", "recipe_gradient_penalty", "deep_autoencoder"})
    EXPECT_GT(described({name, "--set", "data.test_subset=0"}).at("multiply_adds"), 0) << name;
  expect_one_line_error(fp16lab({"model"}), 2, "expected a configuration");
}

}  // namespace
}  // namespace fp16lab::experiments
