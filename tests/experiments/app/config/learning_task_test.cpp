// Every shipped task through the real binary, scaled down: it runs at every level, learns, and says how well.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>

#include "tests/experiments/app/small_runs.hpp"

namespace fp16lab::experiments {
namespace {

using nlohmann::json;
using testing::Each;
using testing::HasSubstr;

const std::string configs = FP16LAB_SOURCE_DIR "/experiments/configs/";

class LearningTasks : public SmallRuns {
 protected:
  /// 3200 characters, 26 different ones, with structure to learn.
  std::string text_file() {
    const std::string words = "the quick brown fox jumps over the lazy dog and then it sleeps in the sun.\n";
    std::string text;
    for (std::size_t i = 0; text.size() < 3200; ++i) text += words.substr(i * 5 % 40);
    testing_support::write_bytes(path("words.txt"), text.substr(0, 3200));
    return path("words.txt");
  }
  std::string image_folder() {
    if (!std::filesystem::exists(folder_ / "data"))
      testing_support::write_small_fashion(folder_ / "data", 400, 100);
    return path("data");
  }

  /// The shipped configuration `name`, made small, with `more` on top; the run is called `out`.
  testing_support::Finished small(const std::string& name, const std::string& out,
                                  const std::vector<std::string>& more = {}, int threads = 2) {
    std::vector<std::string> settings{"train.steps=40", "train.evaluate_every=20",
                                      "observe.histograms_every=0"};
    const auto add = [&settings](const std::vector<std::string>& list) {
      settings.insert(settings.end(), list.begin(), list.end());
    };
    if (name.starts_with("charlm")) {
      add({"data.name=text", "data.path=" + text_file(), "data.test_subset=0", "model.context=16",
           "train.batch_size=8", "schedule.warmup_steps=5", "optimizer.lr=0.01"});
      add(name == "charlm_lstm" ? small_lstm : small_transformer);
    } else {
      add({"data.path=" + image_folder(), "train.batch_size=20", "train.accumulate=1"});
      if (name == "classifier") add({"model.layer.mlp1.widths=[16,10]"});
      if (name == "autoencoder") add({"model.layer.mlp1.widths=[8,784]"});
    }
    add(more);
    std::vector<std::string> arguments{"train",   "-c",        configs + name + ".toml", "-o", path(out),
                                       "--quiet", "--threads", std::to_string(threads)};
    for (const std::string& setting : settings) arguments.insert(arguments.end(), {"--set", setting});
    return fp16lab(arguments);
  }

  double number_in(const std::string& file, const std::string& name, std::size_t row) const {
    return std::stod(column(file, name).at(row));
  }
};

TEST_F(LearningTasks, EveryOneLearnsInFp32AndInFp16WithDynamicScaling) {
  for (const std::string name :
       {"classifier", "autoencoder", "lenet5", "charlm_lstm", "charlm_transformer"}) {
    double final_loss[2] = {};
    for (const std::string level : {"O0", "O1"}) {
      const std::string run = name + level;
      const auto result =
          small(name, run,
                {"amp.level=" + level, "scaler.policy=" + std::string(level == "O1" ? "dynamic" : "none")});
      ASSERT_EQ(result.exit_code, 0) << run << ": " << result.err;
      const double first = number_in(run + "/steps.csv", "loss", 0);
      const double last = number_in(run + "/evaluations.csv", "loss", 1);
      EXPECT_LT(last, 0.95 * first) << run;
      final_loss[level == "O1"] = last;
    }
    EXPECT_NE(final_loss[0], final_loss[1]) << name << ": O1 rounds";
  }
}

TEST_F(LearningTasks, TheSameBitsForAnyNumberOfThreads) {
  for (const std::string name : {"lenet5", "charlm_lstm", "charlm_transformer"}) {
    const std::vector<std::string> settings{"amp.level=O1", "train.steps=10"};
    ASSERT_EQ(small(name, name + "1", settings, 1).exit_code, 0);
    ASSERT_EQ(small(name, name + "2", settings, 2).exit_code, 0);
    EXPECT_EQ(column(name + "1/steps.csv", "state_hash"), column(name + "2/steps.csv", "state_hash")) << name;
    EXPECT_EQ(read(name + "1/evaluations.csv"), read(name + "2/evaluations.csv")) << name;
  }
}

/// The shipped configuration on synthetic data, at a 64th of its widths and batches.
class Synthetic : public SmallRuns {
 protected:
  testing_support::Finished small(const std::string& out, const std::vector<std::string>& more,
                                  int threads = 1) {
    std::vector<std::string> arguments{
        "train",   "-c",        configs + "paddle_linear9.toml", "-o", path(out),
        "--quiet", "--threads", std::to_string(threads)};
    for (const std::string& setting : more) arguments.insert(arguments.end(), {"--set", setting});
    arguments.insert(arguments.end(), {"--set", "model.scale_down=64"});
    return fp16lab(arguments);
  }
};

TEST_F(Synthetic, EveryEpochHasTheSameBatchesAndTheyAreTheEvaluationToo) {
  ASSERT_EQ(small("still", {"optimizer.lr=0"}).exit_code, 0);
  const std::vector<std::string> losses = column("still/steps.csv", "loss");
  ASSERT_EQ(losses.size(), 20u) << "two epochs of ten";
  EXPECT_EQ(std::vector(losses.begin(), losses.begin() + 10), std::vector(losses.begin() + 10, losses.end()));
  EXPECT_NE(losses[0], losses[1]);
  EXPECT_EQ(column("still/evaluations.csv", "split"), std::vector<std::string>{"train"})
      << "there is no test set";
  double sum = 0;
  for (std::size_t i = 0; i < 10; ++i) sum += std::stod(losses[i]);
  EXPECT_DOUBLE_EQ(std::stod(column("still/evaluations.csv", "loss").at(0)), sum / 10);
}

TEST_F(Synthetic, TheManifestNamesASeedAndNoFile) {
  const auto result = small("run", {"train.steps=1", "train.seed=7"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const json manifest = json::parse(read("run/manifest.json"));
  EXPECT_TRUE(manifest.at("data").empty()) << manifest.at("data");
  EXPECT_EQ(manifest.at("seeds").at("data"), 7);
}

TEST_F(Synthetic, TheSameBitsForAnyNumberOfThreadsAndOtherBitsForAnotherSeed) {
  for (const std::string data : {"uniform", "normal"}) {
    ASSERT_EQ(small(data + "1", {"data.name=" + data}, 1).exit_code, 0);
    ASSERT_EQ(small(data + "2", {"data.name=" + data}, 2).exit_code, 0);
    ASSERT_EQ(small(data + "3", {"data.name=" + data, "train.seed=2"}, 1).exit_code, 0);
    const auto hashes = [&](const std::string& run) {
      return column(data + run + "/steps.csv", "state_hash");
    };
    EXPECT_EQ(hashes("1"), hashes("2"));
    EXPECT_NE(hashes("1"), hashes("3"));
  }
}

TEST_F(LearningTasks, TextIsJudgedInBitsPerCharacterAndImagesByAccuracy) {
  const auto text = small("charlm_lstm", "text");
  ASSERT_EQ(text.exit_code, 0) << text.err;
  const auto bits = column("text/evaluations.csv", "bits_per_character");
  ASSERT_EQ(bits.size(), 2u) << "steps 20 and 40";
  for (std::size_t row = 0; row < bits.size(); ++row)
    EXPECT_EQ(std::stod(bits[row]), number_in("text/evaluations.csv", "loss", row) / std::numbers::ln2);
  EXPECT_THAT(column("text/evaluations.csv", "accuracy"), Each(""));
  const json summary = json::parse(text.out);
  EXPECT_EQ(summary.at("evaluation_bits_per_character").get<double>(), std::stod(bits.back()));
  EXPECT_FALSE(summary.contains("evaluation_accuracy"));
  // 26 characters are at most log2(26) = 4.7 bits.
  EXPECT_LT(std::stod(bits.back()), 4.7);

  const auto images = small("lenet5", "images");
  ASSERT_EQ(images.exit_code, 0) << images.err;
  EXPECT_THAT(column("images/evaluations.csv", "bits_per_character"), Each(""));
  EXPECT_GT(json::parse(images.out).at("evaluation_accuracy").get<double>(), 0.1) << "better than chance";
}

/// README's recipe with a text of the user's own: the shipped configuration and a file of 100 kB, nothing
/// else.
TEST_F(LearningTasks, AShippedConfigurationTakesASmallTextOfOnesOwn) {
  std::string text;
  while (text.size() < 100'000) text += read(std::filesystem::path(text_file()).filename().string());
  testing_support::write_bytes(path("own.txt"), text.substr(0, 100'000));
  for (const std::string name : {"charlm_lstm", "charlm_transformer"}) {
    const std::vector<std::string> recipe{"train",
                                          "-c",
                                          configs + name + ".toml",
                                          "-o",
                                          path(name),
                                          "--set",
                                          "data.name=text",
                                          "--set",
                                          "data.path=" + path("own.txt"),
                                          "--set",
                                          "train.steps=1",
                                          "--set",
                                          "schedule.warmup_steps=0"};
    const auto result = fp16lab(recipe);
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.err, HasSubstr("note: data.test_subset = 65536, but the last tenth of this text is "
                                      "10000 bytes: the test uses all of them"));
    EXPECT_EQ(column(name + "/evaluations.csv", "step"), std::vector<std::string>{"1"});
    // What is asked for on the command line is not less for that.
    std::vector<std::string> asked = recipe;
    asked[4] = path("asked");
    asked.insert(asked.end(), {"--set", "data.test_subset=65536", "--quiet"});
    expect_one_line_error(fp16lab(asked), 2,
                          "data.test_subset = 65536: expected at most 10000, the bytes that there are");
  }
}

TEST_F(LearningTasks, OfWordsPredictsWordsAndStillCountsBitsOfCharacters) {
  const auto result =
      small("charlm_transformer", "words", {"data.tokens=words", "amp.level=O1", "train.batch_size=4"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const double loss = number_in("words/evaluations.csv", "loss", 1);
  EXPECT_LT(loss, 0.8 * number_in("words/steps.csv", "loss", 0));
  const auto manifest = json::parse(read("words/manifest.json"));
  EXPECT_THAT(manifest.at("data").at(1).at("path").get<std::string>(), HasSubstr(" words"));
  // A word of this text has four or five characters with the space before it.
  const double symbols =
      number_in("words/evaluations.csv", "bits_per_character", 1) / (loss / std::numbers::ln2);
  EXPECT_GT(symbols, 1 / 5.5);
  EXPECT_LT(symbols, 1 / 3.5);
}

TEST_F(LearningTasks, BitsPerCharacterCountCharactersNotBytes) {
  // The same words in ASCII and with three bytes for every letter.
  std::string chinese;
  for (int i = 0; i < 40000; ++i) {
    const int word = i * 7 % 50 + i / 800 % 9;
    chinese += {'\xe4', static_cast<char>(0xb8 + word / 64), static_cast<char>(0x80 + word % 64)};
  }
  testing_support::write_bytes(path("chinese.txt"), chinese);
  const std::vector<std::string> settings{"data.path=" + path("chinese.txt"), "train.steps=2"};
  const auto result = small("charlm_lstm", "chinese", settings);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const double loss = number_in("chinese/evaluations.csv", "loss", 0);
  const double bits = number_in("chinese/evaluations.csv", "bits_per_character", 0);
  // 12,000 bytes of test text; 46 batches of 16 windows of 16, from the second byte on: a third of 11,776
  // rounds down to the characters that begin among them.
  EXPECT_NEAR(bits, 3 * loss / std::numbers::ln2, 1e-3 * bits);

  std::vector<std::string> loud{"train", "-c", configs + "charlm_lstm.toml", "-o", path("loud")};
  for (const std::string& setting : settings) loud.insert(loud.end(), {"--set", setting});
  loud.insert(loud.end(), {"--set", "data.name=text"});
  EXPECT_THAT(fp16lab(loud).err, HasSubstr("40000 characters in 120000 bytes of UTF-8"));
}

TEST_F(LearningTasks, TheManifestNamesTheTextAndItsVocabulary) {
  ASSERT_EQ(small("charlm_lstm", "run", {"train.steps=1"}).exit_code, 0);
  const json data = json::parse(read("run/manifest.json")).at("data");
  ASSERT_EQ(data.size(), 2u);
  EXPECT_EQ(data.at(0).at("path"), path("words.txt"));
  EXPECT_THAT(data.at(1).at("path").get<std::string>(), HasSubstr("vocabulary of "));
  EXPECT_EQ(data.at(1).at("sha256").get<std::string>().size(), 64u);
}

TEST_F(LearningTasks, LeNetTakesBothLayouts) {
  const std::vector<std::string> settings{"train.steps=10", "train.evaluate_every=0"};
  ASSERT_EQ(small("lenet5", "nchw", settings).exit_code, 0);
  ASSERT_EQ(small("lenet5", "nhwc", {settings[0], settings[1], "model.layout=nhwc"}).exit_code, 0);
  // Another order of the same sums, and fc1's weights meet other activations: near in loss, not in bits.
  EXPECT_NEAR(number_in("nchw/steps.csv", "loss", 0), number_in("nhwc/steps.csv", "loss", 0), 0.2);
  EXPECT_NE(column("nchw/steps.csv", "state_hash"), column("nhwc/steps.csv", "state_hash"));
}

TEST_F(LearningTasks, TextThatDoesNotFitIsOneClearError) {
  const auto fails = [&](const std::vector<std::string>& more, int exit_code, const std::string& part) {
    expect_one_line_error(small("charlm_lstm", "run", more), exit_code, part);
    EXPECT_FALSE(std::filesystem::exists(path("run"))) << "nothing is left";
  };
  fails({"data.path=" + path("absent.txt")}, 1, "absent.txt (chosen by data.path)");
  fails({"data.path="}, 2, "needs data.path");
  fails({"model.context=2880"}, 2, "a training text of 2880 bytes (of 3200 in the file) is too short");
  fails({"model.context=320"}, 2, "a test text of 320 bytes");
  fails({"train.batch_size=180"}, 2, "179 windows of 16: expected 1 to 179");
  fails({"data.subset=2881"}, 2, "data.subset = 2881: expected at most 2880");
  fails({"data.test_subset=321"}, 2, "data.test_subset = 321: expected at most 320");
  fails({"data.name=fashion-mnist", "data.path=" + image_folder()}, 2,
        "model.context=16: data.name = fashion-mnist");
  expect_one_line_error(fp16lab({"train", "-c", configs + "charlm_lstm.toml", "-o", path("run"), "--set",
                                 "data.name=fashion-mnist", "--set", "data.path=" + image_folder(), "--set",
                                 "data.test_subset=0"}),
                        2, "layer 'embedding' (embedding): takes symbols, not numbers");
  testing_support::write_bytes(path("empty.txt"), "");
  fails({"data.path=" + path("empty.txt")}, 1, "is empty");
}

TEST_F(LearningTasks, ASweepComparesBitsPerCharacter) {
  testing_support::write_bytes(
      path("base.toml"),
      "[model]\nname = \"tiny\"\ncontext = 16\nlayer = [{ type = \"embedding\", embedding_dim = 16 }, "
      "{ type = \"multihead_attention\", num_heads = 2, causal = true }, "
      "{ type = \"flatten\", start_dim = 0, end_dim = 1 }, { type = \"linear\" }]\n[data]\n"
      "name = \"text\"\npath = \"" +
          text_file() + "\"\n[train]\nsteps = 5\nbatch_size = 8\n");
  testing_support::write_bytes(
      path("sweep.toml"),
      "[[workload]]\nname = \"gpt\"\nconfig = \"base.toml\"\n"
      "[[variant]]\nname = \"fp32\"\n[[variant]]\nname = \"o1\"\nset = [\"amp.level=O1\"]\n");
  const auto result = fp16lab({"sweep", "-c", path("sweep.toml"), "-o", path("out"), "--quiet"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(column("out/summary.csv", "metric"), Each("test bits per character"));
  EXPECT_THAT(result.out, HasSubstr("bits per character"));
  const json summary = json::parse(read("out/summary.json"));
  EXPECT_EQ(summary.at(0).at("better"), "lower");
}

}  // namespace
}  // namespace fp16lab::experiments
