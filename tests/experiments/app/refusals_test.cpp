// Names that are refused: the message lists the layers that ops are counted for, and no other.
#include <gtest/gtest.h>

#include <set>
#include <sstream>

#include "tests/experiments/app/small_runs.hpp"

namespace fp16lab::experiments {
namespace {

class Refusals : public SmallRuns {};

TEST_F(Refusals, TheNamesAreThoseOfTheOps) {
  write_config();
  std::string text;
  for (int i = 0; i < 400; ++i) text += "In the beginning was the word. ";
  testing_support::write_bytes(path("text.txt"), text);
  std::vector<std::string> characters{
      "--set", "data.name=text",  "--set", "data.path=" + path("text.txt"), "--set", "data.test_subset=0",
      "--set", "model.context=8", "--set", "schedule.name=constant"};
  const std::vector<std::string> images{"--set", "data.path=" + path("data"), "--set", "data.test_subset=0"};
  const std::vector<std::pair<std::string, std::vector<std::string>>> networks{
      {"classifier", images},
      {"lenet5", images},
      {"recipe_gan", images},
      {"recipe_two_models", images},
      {"recipe_gradient_penalty", images},
      {"charlm_lstm", characters},
      {"charlm_transformer", characters}};
  const auto train = [&](const std::string& out, std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"train", "-o", path(out)});
    return fp16lab(arguments);
  };
  for (const auto& [name, settings] : networks) {
    std::vector<std::string> all{"-c",     name,
                                 "--set",  "train.steps=1",
                                 "--set",  "train.batch_size=8",
                                 "--set",  "train.accumulate=1",
                                 "--quiet"};
    all.insert(all.end(), settings.begin(), settings.end());
    std::vector<std::string> counted = all;
    counted.insert(counted.end(), {"--force", "--op-stats"});
    const auto result = train("counted", counted);
    ASSERT_EQ(result.exit_code, 0) << name << ": " << result.err;
    std::set<std::string> layers;
    for (const std::string& layer : column("counted/op_stats.csv", "layer"))
      if (!layer.empty()) layers.insert(layer);
    layers.insert("loss");

    all.insert(all.end(), {"--set", "amp.level=O1", "--set", "amp.excluded=nosuchlayer"});
    const auto refused = train("run", all);
    const std::string before = "known are ";
    const std::size_t begin = refused.err.find(before);
    ASSERT_NE(begin, std::string::npos) << name << ": " << refused.err;
    std::string known = refused.err.substr(begin + before.size());
    known = known.substr(0, known.find_first_of(";\n"));
    std::set<std::string> listed;
    std::istringstream stream(known);
    for (std::string word; std::getline(stream, word, ',');)
      listed.insert(word.substr(word.find_first_not_of(' ')));
    EXPECT_EQ(listed, layers) << name;
  }
}

}  // namespace
}  // namespace fp16lab::experiments
