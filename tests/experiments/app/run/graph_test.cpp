// train --graph: every shipped configuration has the bits, counts and overflows that it has verb by verb, or
// is refused by name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/experiments/app/known_runs.hpp"
#include "tests/experiments/app/small_runs.hpp"

namespace fp16lab::experiments {
namespace {

/// What a graph cannot hold, and the refusal.
const std::map<std::string, std::string> refused{
    {"recipe_gan",
     "train.graph = true: the training method (train.method) reads numbers from the host in every step"}};

/// The first run of each configuration in the list.
std::vector<KnownRun> shipped() {
  std::vector<KnownRun> runs;
  std::set<std::string> seen;
  for (KnownRun& run : known_runs())
    if (seen.insert(run.config).second) runs.push_back(std::move(run));
  return runs;
}

class Graph : public SmallRuns {
 protected:
  /// Six steps: kinds of steps are done once, recorded, and replayed.
  testing_support::Finished train_shipped(const KnownRun& run, const std::string& out,
                                          const std::vector<std::string>& more) {
    const std::filesystem::path file = source_folder / "experiments/configs" / (run.config + ".toml");
    std::vector<std::string> settings{"train.batch_size=16", "train.steps=6", "train.evaluate_every=0",
                                      "observe.histograms_every=2"};
    settings.insert(settings.end(), run.settings.begin(), run.settings.end());
    if (testing_support::slurp(file).find("warmup_steps") != std::string::npos)
      settings.emplace_back("schedule.warmup_steps=2");
    std::vector<std::string> all{"train", "--quiet", "--threads", "2", "-c", file.string(), "-o", path(out)};
    for (const std::string& setting : settings) all.insert(all.end(), {"--set", setting});
    all.insert(all.end(), more.begin(), more.end());
    return fp16lab(all);
  }
};

class ShippedGraph : public Graph, public testing::WithParamInterface<KnownRun> {};

TEST_P(ShippedGraph, HasTheBitsOfVerbByVerb) {
  const auto graph = train_shipped(GetParam(), "graph", {"--graph"});
  if (const auto why = refused.find(GetParam().config); why != refused.end()) {
    expect_one_line_error(graph, 2, why->second);
    return;
  }
  ASSERT_EQ(graph.exit_code, 0) << graph.err;
  const auto eager = train_shipped(GetParam(), "eager", {});
  ASSERT_EQ(eager.exit_code, 0) << eager.err;
  EXPECT_EQ(column("graph/steps.csv", "state_hash").size(), 6u);
  EXPECT_EQ(steps("graph"), steps("eager"));
  EXPECT_EQ(read("graph/histograms.jsonl"), read("eager/histograms.jsonl"));
  EXPECT_EQ(read("graph/overflows.jsonl"), read("eager/overflows.jsonl"));
}

INSTANTIATE_TEST_SUITE_P(All, ShippedGraph, testing::ValuesIn(shipped()),
                         [](const auto& known) { return known.param.config; });

/// Paddle's static rule, whose gradients become zeros, in the form that it has there: checkpoints and
/// evaluations come between replays, and a run goes on from one as a graph or verb by verb.
TEST_F(Graph, RunsPaddlesStaticRuleOverCheckpoints) {
  const std::vector<std::string> settings{"--set",  "amp.dialect=paddle",
                                          "--set",  "scaler.policy=paddle-static",
                                          "--set",  "scaler.initial_scale=16777216",
                                          "--set",  "scaler.growth_interval=3",
                                          "--set",  "scaler.on_overflow=zero",
                                          "--set",  "checkpoint.every=4",
                                          "--set",  "train.evaluate_every=3",
                                          "--quiet"};
  const auto trained = [&](const std::string& out, int count, bool graph) {
    std::vector<std::string> more = settings;
    more.insert(more.end(), {"--set", "train.steps=" + std::to_string(count)});
    if (graph) more.emplace_back("--graph");
    const auto result = train(out, more);
    EXPECT_EQ(result.exit_code, 0) << result.err;
  };
  trained("eager", 12, false);
  trained("graph", 12, true);
  EXPECT_EQ(steps("graph"), steps("eager"));
  EXPECT_EQ(read("graph/evaluations.csv"), read("eager/evaluations.csv"));
  EXPECT_EQ(read("graph/overflows.jsonl"), read("eager/overflows.jsonl"));
  EXPECT_EQ(read("eager/overflows.jsonl").find("\"parameters\":[]"), std::string::npos)
      << "whose gradients became zeros is known";
  EXPECT_NE(read("graph/overflows.jsonl").find("\"step\":4"), std::string::npos)
      << read("graph/overflows.jsonl");
  for (const bool graph : {false, true}) {
    const std::string out = graph ? "on_as_graph" : "on_verb_by_verb";
    trained(out, 8, true);
    std::vector<std::string> on{"train", "--resume", "-o", path(out), "--quiet", "--set", "train.steps=12"};
    on.insert(on.end(), {"--set", graph ? "train.graph=true" : "train.graph=false"});
    const auto result = fp16lab(on);
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(column(out + "/steps.csv", "state_hash"), column("eager/steps.csv", "state_hash")) << out;
  }
}

}  // namespace
}  // namespace fp16lab::experiments
