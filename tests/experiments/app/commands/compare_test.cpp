// fp16lab compare through the binary: equal runs, runs of other seeds and lengths, what is missing, exit
// codes.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <tuple>

#include "tests/experiments/app/small_runs.hpp"
#include "tests/support/array_files.hpp"
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
  for (const char* file : {"both/compare.json", "both/compare.csv", "both/compare.figure.json", "both/compare.svg"})
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

std::string floats(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

TEST_F(Compare, DumpsTensorByTensor) {
  using testing_support::npy;
  using testing_support::stored;
  using testing_support::write_bytes;
  using testing_support::zip;
  // z comes before a in this file. 1/3 in FP16 is 0x3555, 1 is 0x3c00 and its second neighbour 0x3c02.
  write_bytes(path("wide.npz"),
              zip({stored("z.npy", npy("<f4", "(1, 2)", floats({1.0f / 3, -2}))),
                   stored("a.npy", npy("<f4", "(2,)", floats({1, 1.0f / 3}))),
                   stored("module.b.npy", npy("<f4", "(1,)", floats({5}))),
                   stored("ids.npy", npy("<i2", "(2,)", testing_support::from_hex("0100 0200"))),
                   stored("mine.npy", npy("<f4", "(1,)", floats({1})))}));
  write_bytes(path("narrow.npz"),
              zip({stored("a.npy", npy("<f2", "(2,)", testing_support::from_hex("023c 5535"))),
                   stored("b.npy", npy("<f4", "(1, 1)", floats({5}))),
                   stored("ids.npy", npy("<i2", "(2,)", testing_support::from_hex("0100 0300"))),
                   stored("yours.npy", npy("<f4", "(1,)", floats({1}))),
                   stored("z.npy", npy("<f2", "(1, 2)", testing_support::from_hex("5535 00c0")))}));
  const auto table = compare("wide.npz", "narrow.npz", {"--strict", "-o", path("both")});
  EXPECT_EQ(table.exit_code, 5) << table.err;
  EXPECT_THAT(
      table.out,
      HasSubstr(
          "3 of 3 tensors differ. A cast alone explains 1 of them: rounding A to FP16 gives B. The first "
          "in the order of A that it does not explain is a: 1 of 2 elements by more than a cast, first [0], "
          "A 3f800000 = 1, B 3c02 = 1.00195312; at most 2 ulps of FP16, relative L2 0.00185."));
  EXPECT_THAT(table.out,
              HasSubstr(" Only in A: 1 tensor; only in B: 1 tensor. Not compared, because shapes or types do "
                        "not fit: 1."));
  EXPECT_THAT(table.out, HasSubstr("what a cast alone explains: 1 tensor"));
  const std::string every = compare("wide.npz", "narrow.npz", {"--all"}).out;
  EXPECT_LT(every.find("\nz "), every.find("\na ")) << "the order of A";
  EXPECT_THAT(table.out, HasSubstr("\"module.\" and"));
  const nlohmann::json json = nlohmann::json::parse(read("both/compare.json"));
  EXPECT_EQ(json["claims"][0]["verdict"], "FAILS");
  EXPECT_EQ(json["tensors"][0]["tensor"], "z");
  EXPECT_EQ(json["tensors"][0]["beyond_cast"], 0);
  EXPECT_EQ(json["tensors"][1]["ulps"], 2);
  EXPECT_EQ(json["tensors"][1]["ulps_of"], "f16");
  EXPECT_EQ(json["tensors"][2]["trouble"], "other shapes");
  EXPECT_EQ(json["tensors"][3]["first"]["b"], 3.0);
  EXPECT_EQ(column("both/compare.csv", "differing"),
            (std::vector<std::string>{"1", "2", "0", "1", "0", "0"}));
  EXPECT_EQ(compare("wide.npz", "wide.npz", {"--strict"}).exit_code, 0);
  const auto chosen = compare("wide.npz", "narrow.npz", {"--include", "z", "--strict"});
  EXPECT_THAT(chosen.out, HasSubstr("A cast alone explains all of it: rounding A to FP16 gives B."));
  EXPECT_EQ(chosen.exit_code, 5);
}

TEST_F(Compare, DumpsWithScalesStepsAndBytes) {
  using testing_support::npy;
  using testing_support::write_bytes;
  write_bytes(path("plain.npy"), npy("<f4", "(2,)", floats({0.75f, -3})));
  write_bytes(path("scaled.npy"), npy("<f4", "(2,)", floats({0.75f * 65536, -3 * 65536.0f})));
  const auto hint = compare("plain.npy", "scaled.npy");
  EXPECT_THAT(hint.out,
              HasSubstr("every tensor of B is about 2^16 times the other one: a loss scale? --scale-b 2^16"));
  const auto taken = compare("plain.npy", "scaled.npy", {"--scale-b", "2^16", "--strict"});
  EXPECT_EQ(taken.exit_code, 0) << taken.out << taken.err;
  EXPECT_THAT(taken.out, HasSubstr("The one tensor that both have is the same, bit for bit."));
  EXPECT_THAT(taken.out, HasSubstr("Note: B: a loss scale of 2^16 is taken out"));
  // Words of BF16, 0.75 and -3, in folders: steps by number.
  for (const char* const side : {"x", "y"})
    for (const int step : {9, 10}) {
      std::filesystem::create_directories(path(side));
      const bool other = side[0] == 'y';
      write_bytes(
          path(std::string(side) + "/step-" + std::to_string(step) + ".npz"),
          testing_support::zip({testing_support::stored(
              "w.npy", npy("<u2", "(2,)", testing_support::from_hex(other ? "403f 41c0" : "403f 40c0")))}));
    }
  const auto steps = compare("x", "y", {"--as", "bf16"});
  EXPECT_EQ(steps.exit_code, 0) << steps.err;
  EXPECT_THAT(steps.out,
              HasSubstr("is step-9: w: 1 of 2 elements, first [1], A c040 = -3, B c041 = -3.015625; at most "
                        "1 ulp of BF16"));
  EXPECT_LT(steps.out.find("\nstep-9: w"), steps.out.find("\nstep-10: w"));
  EXPECT_THAT(compare("x", "y").out, HasSubstr("first [1], A c040 = 49216, B c041 = 49217"));
  expect_one_line_error(compare("x", "y", {"--scale-a", "0"}), 2,
                        "--scale-a 0: expected a finite number above 0");
  expect_one_line_error(compare("x", "y", {"--include", "v"}), 2, "--include v: no tensor has such a name");
}

TEST_F(Compare, RunFoldersAsDumpsOfTheirWeights) {
  ASSERT_EQ(train("first", {"--set", "checkpoint.every=20"}).exit_code, 0);
  ASSERT_EQ(train("second", {"--set", "checkpoint.every=20"}).exit_code, 0);
  ASSERT_EQ(train("third", {"--set", "checkpoint.every=20", "--set", "amp.level=O0"}).exit_code, 0);
  const auto same = compare("first", "second", {"--tensors", "--strict"});
  EXPECT_EQ(same.exit_code, 0) << same.out << same.err;
  EXPECT_THAT(same.out, HasSubstr("are the same, bit for bit."));
  const auto other = compare("first", "third", {"--tensors", "--include", "fc1.*"});
  EXPECT_EQ(other.exit_code, 0) << other.err;
  EXPECT_THAT(other.out, HasSubstr("The first by name that differs is checkpoints/step-000020: fc1."));
  EXPECT_THAT(other.out, HasSubstr("ulps of FP32, relative L2"));
  expect_one_line_error(compare("first", "third", {"--scale-a", "2"}), 2,
                        "are for dumps; --tensors compares");
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
