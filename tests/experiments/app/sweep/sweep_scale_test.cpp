// Sweeps of very many runs: what it takes to look at finished runs grows with their number and no faster, and
// one task does not look at the others.
//
// In CTest 250 runs are compared with 2,000. `cmake --build build --target sweep_of_10000_runs` makes 10,000,
// prints what each command takes and holds it to its bounds.
#include <gtest/gtest.h>

#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "tests/experiments/app/sweep/sweep_runs.hpp"
#include "tests/support/older_manifest.hpp"

namespace fp16lab::experiments {
namespace {

using nlohmann::ordered_json;

struct Size {
  int variants, seeds;
  int runs() const { return 2 * variants * seeds; }
};

class SweepScale : public SweepRuns {
 protected:
  /// A sweep of two workloads with loss scales and seeds in the folder `out`, all runs of it finished: one is
  /// trained, the others are copies of it under their own configurations.
  void make(const std::string& out, Size size) {
    write_sweep_file(out, size);
    ASSERT_EQ(sweep_of(out, {"--collect", "--quiet"}).exit_code, 0) << "writes the plan";
    ASSERT_EQ(sweep_of(out, {"--task", "1", "--quiet"}).exit_code, 0);
    const std::string trained = "batch10-fp32-seed1";
    const std::string steps = read(out + "/" + trained + "/steps.csv");
    ordered_json manifest =
        ordered_json::parse(testing_support::without_digests(read(out + "/" + trained + "/manifest.json")));
    int number = 0;
    for (const auto& entry : std::filesystem::directory_iterator(path(out + "/plan"))) {
      const std::string name = entry.path().stem().string();
      if (entry.path().extension() != ".toml" || name == trained) continue;
      const std::filesystem::path folder = path(out + "/" + name);
      std::filesystem::create_directory(folder);
      for (const char* const same : {"evaluations.csv", "histograms.jsonl", "overflows.jsonl"})
        std::filesystem::create_hard_link(path(out + "/" + trained + "/" + same), folder / same);
      const std::string config = testing_support::slurp(entry.path());
      manifest["config"] = config;
      testing_support::write_bytes(folder / "manifest.json", manifest.dump(2) + "\n");
      testing_support::write_bytes(folder / "config.toml", config);
      std::string own = steps;  // with another last loss
      const std::size_t loss = own.rfind("\n20,") + 4;
      own.replace(loss, own.find(',', loss) - loss, "0." + std::to_string(100000 + ++number));
      testing_support::write_bytes(folder / "steps.csv", own);
    }
    ASSERT_EQ(number + 1, size.runs());
  }
  testing_support::Finished sweep_of(const std::string& out, const std::vector<std::string>& more,
                                     const std::map<std::string, std::string>& environment = {}) {
    std::vector<std::string> arguments{"sweep", "-c", path(out + ".toml"), "-o", path(out)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return testing_support::run_program(fp16lab_binary, arguments, folder_, environment);
  }

  /// What the commands take of a processor, in seconds: the least of `times` each, by name.
  std::map<std::string, double> costs(const std::string& out, Size size, int times,
                                      const std::map<std::string, std::string>& environment = {}) {
    const std::string last = std::to_string(size.runs());
    const std::vector<std::pair<std::string, std::vector<std::string>>> commands{{"plan", {"--dry-run"}},
                                                                                 {"tasks", {"--list-tasks"}},
                                                                                 {"task", {"--task", last}},
                                                                                 {"resume", {}},
                                                                                 {"collect", {"--collect"}}};
    std::map<std::string, double> seconds;
    for (const auto& [name, arguments] : commands)
      for (int time = 0; time < times; ++time) {
        const testing_support::Finished result = sweep_of(out, arguments, environment);
        EXPECT_EQ(result.exit_code, 0) << name << ": " << result.err;
        seconds.try_emplace(name, result.seconds);
        seconds[name] = std::min(seconds[name], result.seconds);
        const std::size_t said = (result.out + result.err).find(name == "plan" ? ",complete\n" : "complete");
        EXPECT_NE(said, std::string::npos) << name << ": " << result.out << result.err;
      }
    return seconds;
  }

 private:
  void write_sweep_file(const std::string& out, Size size) {
    write_config("20");
    std::string seeds, text;
    for (int seed = 1; seed <= size.seeds; ++seed) seeds += (seed == 1 ? "" : ", ") + std::to_string(seed);
    for (const char* const batch : {"10", "20"})
      text += "[[workload]]\nname = \"batch" + std::string(batch) +
              "\"\nconfig = \"small.toml\"\nset = [\"train.batch_size=" + batch + "\"]\nseeds = [" + seeds +
              "]\n";
    text += "[[variant]]\nname = \"fp32\"\nset = [\"amp.level=O0\", \"scaler.policy=none\"]\n";
    for (int k = 1; k < size.variants; ++k) {
      const std::string scale = std::to_string(k);
      text += "[[variant]]\nname = \"fixed-" + scale +
              "\"\nset = [\"scaler.policy=fixed\", \"scaler.initial_scale=" + scale + "\"]\n";
    }
    testing_support::write_bytes(path(out + ".toml"), text);
  }
};

TEST_F(SweepScale, CostsGrowNoFasterThanTheNumberOfRuns) {
  const Size few{.variants = 5, .seeds = 25}, many{.variants = 5, .seeds = 200};
  make("few", few);
  make("many", many);
  // Pictures take the same time for both, and most of it.
  const std::map<std::string, std::string> no_programs{{"PATH", "/nowhere"}};
  const std::map<std::string, double> before = costs("few", few, 3, no_programs);
  for (const auto& [name, seconds] : costs("many", many, 2, no_programs)) {
    // Eight times the runs: at most 8 where all is proportional, up to 64 where every run is compared with
    // every other. The start of the program, some hundredths of a second, is in both.
    EXPECT_LT(seconds, 14 * before.at(name)) << name << ", 2,000 runs against 250";
  }
}

TEST_F(SweepScale, OneTaskOpensNoOtherRun) {
  const Size size{.variants = 2, .seeds = 10};
  make("out", size);
  for (const auto& entry : std::filesystem::directory_iterator(path("out"))) {
    const bool other = entry.is_directory() && entry.path().filename() != "plan" &&
                       entry.path().filename() != "batch20-fixed-1-seed10";
    if (other) testing_support::write_bytes(entry.path() / "manifest.json", "damaged");
  }
  const auto result = fp16lab({"sweep", "-o", path("out"), "--task", "40"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.err, "sweep: batch20-fixed-1-seed10 is already complete\n");
}

/// Not in CTest.
TEST_F(SweepScale, TenThousandRuns) {
  const Size size{.variants = 50, .seeds = 100};
  make("out", size);
  const std::map<std::string, double> seconds = costs("out", size, 1);
  const auto bytes = std::filesystem::file_size(path("out/report.html"));
  for (const auto& [name, cost] : seconds) std::printf("%s: %.2f s of a processor\n", name.c_str(), cost);
  std::printf("report.html: %.2f MB\n", 1e-6 * static_cast<double>(bytes));
  EXPECT_LT(seconds.at("plan"), 2);
  EXPECT_LT(seconds.at("tasks"), 2);
  EXPECT_LT(seconds.at("task"), 0.5);
  EXPECT_LT(seconds.at("collect"), 30);
  EXPECT_LT(bytes, 5'000'000u);
  EXPECT_NE(read("out/report.html").find("10000 runs as 100 configurations of 2 workloads."),
            std::string::npos);
}

}  // namespace
}  // namespace fp16lab::experiments
