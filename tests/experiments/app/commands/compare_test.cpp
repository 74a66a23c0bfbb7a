// fp16lab compare through the binary: equal runs, runs of other seeds and lengths, what is missing, exit
// codes.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <tuple>

#include "tests/experiments/app/small_runs.hpp"
#include "tests/support/older_manifest.hpp"

namespace fp16lab::experiments {
namespace {

using ::testing::HasSubstr;

class Compare : public SmallRuns {
 protected:
  testing_support::Finished compare(const std::string& a, const std::string& b,
                                    const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments{"compare", path(a), path(b)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return fp16lab(arguments);
  }
};

TEST_F(Compare, TheSameRunTwiceHasTheSameBits) {
  ASSERT_EQ(train("first").exit_code, 0);
  ASSERT_EQ(train("second", {"--threads", "2"}).exit_code, 0);
  const testing_support::Finished result = compare("first", "second", {"--strict", "-o", path("both")});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("The runs are the same, bit for bit: the states of all 40 steps"));
  EXPECT_THAT(result.out, testing::Not(HasSubstr("claim"))) << "nobody claimed anything";
  EXPECT_THAT(result.out, HasSubstr("Configuration: the same"));
  for (const char* file : {"both/compare.json", "both/compare.csv", "both/compare.dat", "both/compare.gp"})
    EXPECT_TRUE(std::filesystem::exists(path(file))) << file;
  EXPECT_EQ(column("both/compare.csv", "same_state"), std::vector<std::string>(40, "1"));
  EXPECT_EQ(column("both/compare.csv", "loss_a"), column("first/steps.csv", "loss"));

  // One bit of one state.
  std::string steps = read("second/steps.csv");
  const std::string hash = column("second/steps.csv", "state_hash")[24];
  std::string other = hash;
  other.back() = hash.back() == '0' ? '1' : '0';
  steps.replace(steps.find(hash), hash.size(), other);
  testing_support::write_bytes(path("second/steps.csv"), steps);
  EXPECT_EQ(compare("first", "second").exit_code, 0);
  const testing_support::Finished strict = compare("first", "second", {"--strict"});
  EXPECT_EQ(strict.exit_code, 5);
  EXPECT_THAT(strict.out, HasSubstr("their states part at step 25 (1 of 40 common steps"));
  EXPECT_THAT(strict.out, HasSubstr("B: steps.csv is not what the run wrote (it has another SHA-256)"));
}

TEST_F(Compare, OnePairTellsNothingOfQuality) {
  ASSERT_EQ(train("first").exit_code, 0);
  ASSERT_EQ(train("second", {"--seed", "2"}).exit_code, 0);
  const testing_support::Finished table = compare("first", "second");
  EXPECT_THAT(table.out,
              HasSubstr("the last evaluations are one pair, which cannot tell what matters: 3 seeds"));
  EXPECT_THAT(table.out, HasSubstr("Note: train.seed differs"));
}

TEST_F(Compare, OtherSettingsLengthsAndHistograms) {
  ASSERT_EQ(train("long").exit_code, 0);
  ASSERT_EQ(train("short",
                  {"--set", "train.steps=30", "--set", "amp.level=O0", "--set", "observe.histograms_every=0"})
                .exit_code,
            0);
  const testing_support::Finished table = compare("long", "short");
  EXPECT_EQ(table.exit_code, 0) << table.err;
  EXPECT_THAT(table.out, ::testing::ContainsRegex("amp.level +O1 +O0\n"));
  EXPECT_THAT(table.out, HasSubstr("Only in A: 10 steps; only in B: 0."));
  EXPECT_THAT(table.out, HasSubstr("Note: B: no histograms recorded"));
  const testing_support::Finished text = compare("long", "short", {"--json", "--threshold", "0.5"});
  const nlohmann::json json = nlohmann::json::parse(text.out);
  EXPECT_EQ(json["equal"], false);
  EXPECT_EQ(json["claims"][0]["verdict"], "FAILS");
  EXPECT_EQ(json["claims"][0]["claim"], "A and B have the same bits");
  EXPECT_EQ(json["threshold"], 0.5);
  EXPECT_EQ(json["steps"]["common"], 30);
  EXPECT_EQ(json["steps"]["only_a"], 10);
  EXPECT_EQ(json["steps"]["first_state_difference"], 1);
  EXPECT_GT(json["steps"]["loss"]["differing"], 20);
  EXPECT_EQ(json["steps"]["loss"]["above"], 0);  // FP16 is no other training
  EXPECT_EQ(json["histograms"]["rows_b"], 0);

  // A killed run: state running, a torn last line.
  std::string manifest = testing_support::without_digests(read("short/manifest.json")),
              steps = read("short/steps.csv");
  manifest.replace(manifest.find("\"finished\""), 10, "\"running\"");
  testing_support::write_bytes(path("short/manifest.json"), manifest);
  testing_support::write_bytes(path("short/steps.csv"), steps.substr(0, steps.size() - 9));
  const testing_support::Finished killed = compare("short", "long");
  EXPECT_EQ(killed.exit_code, 0) << killed.err;
  EXPECT_THAT(killed.out, HasSubstr("Note: A: the run is running, its last step is 29"));
  EXPECT_THAT(killed.out, HasSubstr("cut off"));
}

TEST_F(Compare, RecordsThatAreMissingAreADifference) {
  // Overflows at first, so that every file has rows.
  const std::vector<std::string> settings{"--set", "scaler.policy=dynamic",
                                          "--set", "scaler.initial_scale=2^40",
                                          "--set", "observe.explain_overflow=true"};
  ASSERT_EQ(train("whole", settings).exit_code, 0);
  ASSERT_EQ(train("cut", settings).exit_code, 0);
  EXPECT_EQ(compare("whole", "cut", {"--strict"}).exit_code, 0);
  struct Damage {
    std::string file, record;
  };
  for (const auto& [file, record] : {Damage{"histograms.jsonl", "histograms"},
                                     {"overflows.jsonl", "overflows"},
                                     {"culprits.jsonl", "culprits"},
                                     {"evaluations.csv", "evaluations"},
                                     {"steps.csv", ""}}) {
    const std::string good = read("cut/" + file);
    const std::size_t last_line = good.rfind('\n', good.size() - 2) + 1;
    const auto expect_different = [&](const std::string& content, const std::string& missing) {
      testing_support::write_bytes(path("cut/" + file), content);
      for (const auto& [a, b, which] : {std::tuple{"whole", "cut", "B"}, {"cut", "whole", "A"}}) {
        const auto strict = compare(a, b, {"--strict"});
        EXPECT_EQ(strict.exit_code, 5) << file << strict.out << strict.err;
        EXPECT_EQ(strict.out.find("bit for bit"), std::string::npos) << strict.out;
        if (!record.empty()) {
          EXPECT_THAT(strict.out, HasSubstr("Differing records: " + record));
        }
        EXPECT_THAT(strict.out, HasSubstr("Damaged: " + std::string(which) + ": " + file + missing));
      }
      EXPECT_EQ(compare("whole", "cut").exit_code, 0);
    };
    expect_different(good.substr(0, last_line), " has ");
    expect_different(good.substr(0, good.size() - 3), " has ");  // in the middle of a line
    const bool csv = file.ends_with(".csv");
    if (!csv) expect_different("", " has 0 rows");
    std::filesystem::remove(path("cut/" + file));
    const auto gone = compare("whole", "cut", {"--strict"});
    EXPECT_EQ(gone.exit_code, 5);
    EXPECT_THAT(csv ? gone.err : gone.out, HasSubstr(file + " is missing"));
    testing_support::write_bytes(path("cut/" + file), good);
  }
  EXPECT_EQ(compare("whole", "cut", {"--strict"}).exit_code, 0);

  // Both lack the same: equal to each other, but not what the runs recorded.
  for (const char* run : {"whole/histograms.jsonl", "cut/histograms.jsonl"})
    std::filesystem::remove(path(run));
  const auto both = compare("whole", "cut", {"--strict"});
  EXPECT_EQ(both.exit_code, 5);
  EXPECT_THAT(both.out, HasSubstr("Records are damaged."));
}

TEST_F(Compare, TensorsOfTwoSeeds) {
  ASSERT_EQ(train("one", {"--seed", "1"}).exit_code, 0);
  ASSERT_EQ(train("two", {"--seed", "2"}).exit_code, 0);
  const nlohmann::json json = nlohmann::json::parse(compare("one", "two", {"--json"}).out);
  const nlohmann::json& tensors = json["histograms"]["tensors"];
  ASSERT_FALSE(tensors.empty());
  EXPECT_EQ(json["histograms"]["unmatched_rows"], 0);
  for (const nlohmann::json& tensor : tensors) {
    EXPECT_GE(tensor["zeros_a"]["after"], tensor["zeros_a"]["before"]) << tensor;
    EXPECT_GE(tensor["largest_distance"], tensor["mean_distance"]) << tensor;
    EXPECT_LT(tensor["mean_distance"], 5) << tensor;  // the same net on the same data
  }
}

TEST_F(Compare, BadInputIsNamed) {
  expect_one_line_error(compare("nowhere", "else"), 2, "nowhere: no such run folder");
  std::filesystem::create_directories(path("empty"));
  expect_one_line_error(compare("empty", "empty"), 2, "empty: not a run folder (no manifest.json)");
  EXPECT_EQ(fp16lab({"compare", path("empty")}).exit_code, 2);
  EXPECT_EQ(compare("empty", "empty", {"third"}).exit_code, 2);
  EXPECT_EQ(compare("empty", "empty", {"--threshold", "-1"}).exit_code, 2);
}

}  // namespace
}  // namespace fp16lab::experiments
