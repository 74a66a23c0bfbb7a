// exp_generations: which rows are one function, which runs follow, distances, growth, and every verdict of
// its claims.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "experiments/app/config/shipped_configs.hpp"
#include "experiments/questions/generations/generations.hpp"
#include "tests/experiments/app/small_runs.hpp"

namespace fp16lab::experiments {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(GenerationRows, TheTableSaysWhichAreOneFunction) {
  for (const DType sums : {DType::f32, DType::f16}) {
    const auto row = [sums](const char* name) { return tensor_core_model(name, DType::f16, sums); };
    EXPECT_TRUE(same_function(row("turing"), row("ampere")));
    EXPECT_TRUE(same_function(row("ada"), row("ampere")));
    EXPECT_TRUE(same_function(row("blackwell"), row("hopper")));
    EXPECT_FALSE(same_function(row("volta"), row("ampere")));
    EXPECT_FALSE(same_function(row("ampere"), row("hopper")));
  }
  EXPECT_FALSE(
      same_function(tensor_core_model("hopper"), tensor_core_model("hopper", DType::f16, DType::f16)));
  TensorCoreModel changed = tensor_core_model("hopper");
  changed.underflow_zero = UnderflowZero::keeps_sign;
  EXPECT_FALSE(same_function(changed, tensor_core_model("hopper")));
}

TEST(GenerationsPlan, TrainsDistinctFunctionsWithEverySeedAndTheOthersWithOne) {
  CommonOptions common;
  common.config = shipped_config("generations.toml");
  common.out = "nowhere";
  const SweepPlan plan = generations_plan(common, false);
  std::map<std::pair<std::string, std::string>, std::size_t> seeds;
  for (const PlannedRun& run : plan.runs) ++seeds[{run.workload, run.variant}];
  for (const char* workload : {"classifier", "lenet5", "lstm", "gpt"}) {
    for (const char* variant : {"fp32", "fp32-twin", "volta", "ampere", "hopper", "hopper-ulp", "volta-f16",
                                "ampere-f16", "hopper-f16"})
      EXPECT_EQ((seeds[{workload, variant}]), 12u) << workload << " " << variant;
    for (const char* variant : {"turing", "ada", "blackwell", "turing-f16", "ada-f16", "blackwell-f16"})
      EXPECT_EQ((seeds[{workload, variant}]), 1u) << workload << " " << variant;
  }
  for (const std::string_view variant : fp8_rows) {
    EXPECT_EQ((seeds[{"classifier", std::string(variant)}]), fp8_seeds) << variant;
    EXPECT_FALSE(seeds.contains({"lstm", std::string(variant)})) << variant;
  }
  EXPECT_EQ((seeds[{"gpt", "blackwell-fp8"}]), 1u);
  // A short look at the same file: two seeds at the most.
  const SweepPlan quick = generations_plan(common, true);
  EXPECT_LT(quick.runs.size(), plan.runs.size() / 2);
  std::map<std::pair<std::string, std::string>, std::size_t> few;
  for (const PlannedRun& run : quick.runs) {
    EXPECT_EQ(run.config.train.steps, 12) << run.name;
    EXPECT_LE((++few[{run.workload, run.variant}]), 2u) << run.name;
  }
  EXPECT_EQ(few.size(), seeds.size());
  const std::vector<SameRows> same = same_rows(plan);
  ASSERT_EQ(same.size(), 5u);
  EXPECT_EQ(same[0].variant, "ampere");
  EXPECT_THAT(same[0].others, ElementsAre("turing", "ada"));
  EXPECT_THAT(same[0].function, HasSubstr("block of 8 products and c, F 24"));
}

TEST(GenerationDistance, IsRelativeAndZeroForEqualWeights) {
  const std::vector<float> a{3, 0, -4}, b{3, 0, -4.5f}, zeros{0, 0, 0};
  EXPECT_EQ(relative_distance(a, a), 0);
  EXPECT_DOUBLE_EQ(relative_distance(a, b), 0.1);
  EXPECT_DOUBLE_EQ(relative_distance(a, zeros), 1);
  EXPECT_TRUE(std::isnan(relative_distance(zeros, zeros)));
}

TEST(GenerationDistance, GrowthOfAKnownExponentialIsItsRate) {
  std::vector<double> distances;
  for (int step = 0; step < 200; ++step) distances.push_back(std::min(0.05, 1e-5 * std::exp(0.07 * step)));
  const auto rate = growth_rate(distances, 1e-3, 1e-2);
  ASSERT_TRUE(rate);
  EXPECT_NEAR(*rate, 0.07, 1e-12);
  EXPECT_FALSE(growth_rate(distances, 0.1, 1)) << "never there";
  EXPECT_FALSE(growth_rate(distances, 1e-3, 1.5e-3)) << "too few steps";
  EXPECT_FALSE(growth_rate(std::vector<double>(50, 0.0), 1e-3, 1e-2)) << "never apart";
  distances.resize(80);  // ends before the upper level
  EXPECT_NEAR(growth_rate(distances, 1e-3, 1e-2).value_or(0), 0.07, 1e-12);
}

TEST(GenerationSpread, FindsAKnownRatioAndNeedsThreeSeeds) {
  std::vector<std::vector<double>> wide, narrow;
  for (int seed = 0; seed < 8; ++seed) {
    const double level = 1 + 0.1 * seed, scatter = 0.010 + 0.001 * (seed % 3);
    wide.push_back(
        {level * std::exp(-2 * scatter), level, level * std::exp(2 * scatter)});  // variance 4 scatter^2
    narrow.push_back({level, level * std::exp(std::sqrt(2.0) * scatter)});        // variance scatter^2
  }
  const SpreadRatio ratio = Spread(wide, narrow).ratio();
  EXPECT_NEAR(ratio.ratio, 2, 1e-9);
  ASSERT_TRUE(ratio.interval);
  EXPECT_NEAR(ratio.interval->lower, 2, 1e-9) << "every seed says the same";
  EXPECT_NEAR(mean_ratio({Spread(wide, narrow), Spread(narrow, wide)}).ratio, 1, 1e-9);
  EXPECT_THAT(Spread({wide[0], wide[1]}, {narrow[0], narrow[1]}).jackknife_values(), IsEmpty());
  EXPECT_THAT(Spread(wide, std::vector<std::vector<double>>(8, {1.0, 1.0})).jackknife_values(), IsEmpty());
}

/// Made-up results of one workload.
class Results {
 public:
  explicit Results(int seeds) : seeds_(seeds) { measured_.workloads = {{.name = "made-up"}}; }
  /// Final values: `mean` percent off 1, and by seed `scatter` percent more or less, in a pattern of the
  /// variant's own.
  Results& add(std::string_view variant, double mean, double scatter, int pattern,
               std::vector<std::uint64_t> hashes = {}) {
    for (int seed = 1; seed <= seeds_; ++seed) {
      const double hash = 43758.5453 * std::sin(12.9898 * seed + 78.233 * pattern);
      const double noise = std::sqrt(3.0) * (2 * (hash - std::floor(hash)) - 1);  // mean 0, deviation 1
      const double value = std::exp(0.01 * (mean + scatter * noise));
      measured_.runs.push_back(
          {.workload = "made-up",
           .variant = std::string(variant),
           .seed = seed,
           .hashes = hashes.empty() ? std::vector<std::uint64_t>{std::uint64_t(100 + pattern)} : hashes,
           .loss = value,
           .metric = value});
    }
    return *this;
  }
  Generations& measured() { return measured_; }

 private:
  int seeds_;
  Generations measured_;
};

Verdict verdict_on(const std::string& claim, const Generations& measured) {
  for (const Question<Generations>& question : generation_questions())
    if (question.claim.starts_with(claim)) return question.judge(measured).verdict;
  ADD_FAILURE() << "no claim \"" << claim << "\"";
  return Verdict::not_run;
}

TEST(GenerationClaims, EqualRowsHaveEqualBits) {
  const std::string claim = "Tensor cores whose rows hold the same numbers";
  Results results(2);
  EXPECT_EQ(verdict_on(claim, results.measured()), Verdict::not_run);
  results.add("ampere", 0, 0, 1, {1, 2, 3}).add("ada", 0, 0, 2, {1, 2, 3});
  results.measured().same = {{.variant = "ampere", .others = {"ada"}, .function = ""}};
  EXPECT_EQ(verdict_on(claim, results.measured()), Verdict::holds);
  results.measured().runs.back().hashes.back() = 4;
  EXPECT_EQ(verdict_on(claim, results.measured()), Verdict::fails);
}

TEST(GenerationClaims, OtherRowsPart) {
  const std::string claim = "Rows with other numbers part";
  EXPECT_EQ(verdict_on(claim, Results(2).measured()), Verdict::not_run);
  EXPECT_EQ(
      verdict_on(claim, Results(2).add("volta", 0, 0, 1, {1, 2}).add("hopper", 0, 0, 2, {1, 3}).measured()),
      Verdict::holds);
  EXPECT_EQ(
      verdict_on(claim, Results(2).add("volta", 0, 0, 1, {1, 2}).add("hopper", 0, 0, 2, {1, 2}).measured()),
      Verdict::fails);
}

TEST(GenerationClaims, WordsDecideOnFinalValues) {
  const std::string fp32 = "With FP16 products and FP32 sums", each = "With FP32 sums, generations train",
                    sums = "FP16 sums train", fp8 = "With FP8 products";
  const auto made = [](double hopper, double scatter) {
    Results results(10);
    results.add("fp32", 0, scatter, 1).add("fp32-twin", 0, scatter, 2).add("volta", 0, scatter, 3);
    results.add("ampere", 0, scatter, 4).add("hopper", hopper, scatter, 5).add("hopper-f16", 0, scatter, 6);
    results.add("hopper-fp8", 0, scatter, 7)
        .add("ada-fp8", hopper, scatter, 8)
        .add("hopper-wgmma-fp8", 0, scatter, 9);
    return results.measured();
  };
  const Generations equal = made(0, 0.2), worse = made(4, 0.2), better = made(-4, 0.2), noisy = made(0, 20);
  for (const std::string& claim : {fp32, each, sums, fp8}) {
    EXPECT_EQ(verdict_on(claim, equal), Verdict::holds) << claim;
    EXPECT_EQ(verdict_on(claim, noisy), Verdict::cannot_tell) << claim;
    EXPECT_EQ(verdict_on(claim, Results(3).measured()), Verdict::not_run) << claim;
  }
  EXPECT_EQ(verdict_on(fp32, worse), Verdict::fails);
  EXPECT_EQ(verdict_on(fp32, better), Verdict::cannot_tell) << "not equal, and not worse";
  EXPECT_EQ(verdict_on(each, better), Verdict::fails);
  EXPECT_EQ(verdict_on(sums, better), Verdict::fails) << "FP16 sums worse than hopper's FP32 sums";
  EXPECT_EQ(verdict_on(fp8, worse), Verdict::fails);
  // Worse than FP32, but not than its twin: FP32's own noise.
  Generations noise = worse;
  for (TrainedRun& run : noise.runs)
    if (run.variant == "fp32-twin") run.metric *= std::exp(0.04);
  EXPECT_EQ(verdict_on(fp32, noise), Verdict::cannot_tell);
}

TEST(GenerationClaims, ScatterOfGenerationsAgainstOneUlp) {
  const auto made = [](int seeds, double generations, double ulp) {
    Results results(seeds);
    results.add("fp32", 0, ulp, 1).add("fp32-twin", 0, ulp, 2);
    results.add("volta", 0, generations, 3).add("ampere", 0, generations, 4).add("hopper", 0, 0.5 * ulp, 5);
    results.add("hopper-ulp", 0, 1.3 * ulp, 6);
    return results.measured();
  };
  for (const std::string claim :
       {"The generation of the tensor core changes", "... and no more than that bit"}) {
    EXPECT_EQ(verdict_on(claim, made(40, 0.2, 1)), Verdict::holds) << claim;
    EXPECT_EQ(verdict_on(claim, made(40, 20, 1)), Verdict::fails) << claim;
    EXPECT_EQ(verdict_on(claim, made(3, 1, 1)), Verdict::cannot_tell) << claim;
    EXPECT_EQ(verdict_on(claim, Results(3).add("fp32", 0, 1, 1).measured()), Verdict::not_run) << claim;
  }
}

/// Curves of three generations that part at `rate` a step beside weights one ulp apart, which part at 0.07.
std::vector<DistanceCurve> curves_of(double rate, double scatter) {
  std::vector<DistanceCurve> curves;
  for (int seed = 1; seed <= 5; ++seed)
    for (const auto& [reference, variant] : drawn_pairs()) {
      const bool ulp = variant == one_ulp_variant;
      const double own = ulp ? 0.07 : rate * std::exp(scatter * std::sin(7.0 * seed));
      DistanceCurve curve{.workload = "made-up",
                          .reference = std::string(reference),
                          .variant = std::string(variant),
                          .seed = seed,
                          .distances = {}};
      for (int step = 0; step < 300; ++step)
        curve.distances.push_back(std::min(0.1, 1e-6 * std::exp(own * step)));
      curves.push_back(std::move(curve));
    }
  return curves;
}

TEST(GenerationClaims, GrowthAgainstOneUlp) {
  EXPECT_EQ(judge_growth(curves_of(0.07, 0.02)).verdict, Verdict::holds);
  EXPECT_EQ(judge_growth(curves_of(0.14, 0.02)).verdict, Verdict::fails);
  EXPECT_EQ(judge_growth(curves_of(0.035, 0.02)).verdict, Verdict::fails);
  EXPECT_EQ(judge_growth(curves_of(0.07, 0.6)).verdict, Verdict::cannot_tell);
  EXPECT_EQ(judge_growth(curves_of(1e-6, 0)).verdict, Verdict::cannot_tell) << "never far enough apart";
  EXPECT_EQ(judge_growth({}).verdict, Verdict::not_run);
}

class SmallGenerations : public SmallRuns {
 protected:
  void SetUp() override {
    write_config("8");
    std::vector<std::pair<std::string, std::vector<std::string>>> variants{{"fp32", {"amp.level=O0"}}};
    for (const char* row : {"volta", "ampere", "turing", "hopper"})
      variants.push_back({row, {fmt::format("backend.tensor_core={}", row)}});
    variants.push_back({"hopper-ulp", {"backend.tensor_core=hopper", "train.perturb_ulps=1"}});
    variants.push_back({"hopper-f16", {"backend.tensor_core=hopper", "backend.accumulator=f16"}});
    for (auto& [name, settings] : variants)
      settings.insert(settings.end(), {"scaler.policy=none", "observe.histograms_every=0"});
    common_.config = write_sweep({"small"}, "1, 2", variants);
    common_.out = folder_ / "out";
  }
  CommonOptions common_;
};

TEST_F(SmallGenerations, TrainJudgeAndDraw) {
  const auto result =
      run_inside("exp_generations", {"-c", path("sweep.toml"), "-o", path("out"), "--distance-seeds", "1",
                                     "--threads", "2", "--jobs", "2", "--quiet"});
  ASSERT_TRUE(result.exit_code == 0 || result.exit_code == 5)
      << result.err;  // its claims are not about this network
  const auto json = nlohmann::json::parse(read("out/claims.json"));
  ASSERT_EQ(json.at("claims").size(), generation_questions().size());
  EXPECT_EQ(json.at("claims").at(0).at("verdict"), "HOLDS") << json.at("claims").at(0).dump();
  EXPECT_EQ(json.at("claims").at(1).at("verdict"), "HOLDS") << json.at("claims").at(1).dump();
  EXPECT_THAT(result.out, HasSubstr("ampere = turing"));
  EXPECT_FALSE(std::filesystem::exists(path("out/small-turing-seed2")));
  EXPECT_TRUE(std::filesystem::exists(path("out/figures/distances.png")));
  EXPECT_THAT(read("out/distances.csv"), HasSubstr("small,fp32,fp32-twin,1,8,"));
  EXPECT_THAT(read("out/exp_generations.csv"), HasSubstr("small,hopper,volta,points,2,"));

  // Known distances of these very runs are taken; of others they are measured again.
  const std::string start = "small,fp32,fp32-twin,1,8,", measured = read("out/distances.csv");
  std::string known = measured;
  const std::size_t begin = known.find(start) + start.size();
  known.replace(begin, known.find(',', begin) - begin, "0.5");
  const auto distances_after = [&](const std::string& before) {
    testing_support::write_bytes(folder_ / "out/distances.csv", before);
    run_inside("exp_generations", {"-c", path("sweep.toml"), "-o", path("out"), "--distance-seeds", "1",
                                   "--threads", "1", "--quiet"});
    return read("out/distances.csv");
  };
  EXPECT_EQ(distances_after(known), known);
  const std::string hash = known.substr(known.rfind(',') + 1, 16);
  for (std::size_t at = known.find(hash); at != std::string::npos; at = known.find(hash, at))
    known.replace(at, 16, "0123456789abcdef");
  EXPECT_EQ(distances_after(known), measured);
  expect_one_line_error(
      run_inside("exp_generations", {"--distance-seeds", "-1", "--quiet", "-o", path("other")}), 2,
      "--distance-seeds");
}

TEST_F(SmallGenerations, DistancesOfEqualRowsAreZeroAndOfOthersNot) {
  const SweepPlan plan = generations_plan(common_, false);
  constexpr std::array<VariantPair, 4> pairs{
      {{"ampere", "turing"}, {"ampere", "volta"}, {"fp32", "fp32-twin"}, {"ampere", "nothing"}}};
  const std::vector<DistanceCurve> curves = measure_distances(plan, pairs, {.seeds = 1});
  ASSERT_EQ(curves.size(), 3u);
  for (const DistanceCurve& curve : curves) ASSERT_EQ(curve.distances.size(), 9u);
  EXPECT_THAT(curves[0].distances, testing::Each(0.0));
  EXPECT_EQ(curves[1].distances.front(), 0) << "the same weights";
  EXPECT_GT(curves[1].distances.back(), 0);
  // One ulp is between 2^-24 and 2^-23 of a weight.
  EXPECT_GT(curves[2].distances.front(), std::ldexp(1.0, -24));
  EXPECT_LT(curves[2].distances.front(), std::ldexp(1.0, -23));

  testing_support::write_bytes(folder_ / "distances.csv", distances_csv(curves));
  const std::vector<DistanceCurve> read = read_distances(folder_ / "distances.csv");
  ASSERT_EQ(read.size(), 3u);
  EXPECT_EQ(read[1].variant, "volta");
  EXPECT_EQ(read[1].variant_hash, curves[1].variant_hash);
  EXPECT_NEAR(read[2].distances[3], curves[2].distances[3], 1e-15);
  EXPECT_THAT(read_distances(folder_ / "nowhere.csv"), IsEmpty());
  testing_support::write_bytes(folder_ / "torn.csv", "small,fp32,volta,1,1,0,0,0\n");
  EXPECT_THROW(read_distances(folder_ / "torn.csv"), std::runtime_error);
}

}  // namespace
}  // namespace fp16lab::experiments
