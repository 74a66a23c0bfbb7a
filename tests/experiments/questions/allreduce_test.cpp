// exp_allreduce: the mean over ranks, with scalings around the sum, who skips, and the program. (Orders of the
// sum: tests/engine/parallel/nccl_order_test.cpp.)
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/backend/emulated/emulated_backend.hpp"
#include "experiments/questions/allreduce/agreement.hpp"
#include "experiments/questions/allreduce/gradient_mean.hpp"
#include "numerics/tensor_core/tensor_core_model.hpp"
#include "tests/engine/parallel/order_twins.hpp"
#include "tests/experiments/app/small_runs.hpp"

namespace fp16lab::experiments::allreduce::allreduce_test {
namespace {

using engine::parallel::mixed;

constexpr float infinity = std::numeric_limits<float>::infinity();

// ---- scalings around the sum

Variant half_ring(Unscale unscale, Predivide predivide) {
  return {{DType::f16, predivide, SumOrder::nccl_ring}, unscale};
}

TEST(GradientMean, PredivideKeepsASumThatPostdivideLosesToInfinity) {
  const std::vector<std::vector<float>> gradients{{60000, 1}, {60000, 3}};
  const Mean post = reduce_mean(half_ring(Unscale::after, Predivide::one), gradients, 1);
  EXPECT_EQ(post.born, 1u);
  EXPECT_TRUE(std::isinf(post.values[0]));
  EXPECT_EQ(post.values[1], 2);
  const Mean pre = reduce_mean(half_ring(Unscale::after, Predivide::all), gradients, 1);
  EXPECT_EQ(pre.born, 0u);
  EXPECT_EQ(pre.values, (std::vector<float>{60000, 2}));
}

TEST(GradientMean, AnInfinityThatARankBroughtIsNotBorn) {
  const std::vector<std::vector<float>> gradients{{infinity}, {1}};
  EXPECT_EQ(reduce_mean({}, gradients, 1).born, 0u);
}

TEST(GradientMean, UnscalingBeforeTheWireLosesWhatTheScaleHadSaved) {
  // 2^-26 after unscaling: below 2^-25. Scaled by 2^10 it is 2^-16, a subnormal FP16 number.
  const std::vector<std::vector<float>> gradients(4, {0x1p-16f});
  const ExactMean exact = exact_mean(gradients, 1024);
  EXPECT_EQ(exact.values[0], 0x1p-26);
  const Mean early = reduce_mean(half_ring(Unscale::before, Predivide::one), gradients, 1024);
  EXPECT_EQ(early.values[0], 0);
  EXPECT_EQ(compare(early, exact).lost, 1u);
  EXPECT_EQ(compare(early, exact).absolute, 0x1p-26);
  const Mean late = reduce_mean(half_ring(Unscale::after, Predivide::one), gradients, 1024);
  EXPECT_EQ(late.values[0], 0x1p-26f);
  EXPECT_EQ(compare(late, exact).lost, 0u);
  EXPECT_EQ(compare(late, exact).absolute, 0);
}

TEST(GradientMean, SplitDividesByTheRootOnEachSide) {
  // R = 16, root 4: 16 x 2^-23 / 4 keeps 2^-25 away from the tie that predivide (2^-27) falls below.
  const std::vector<std::vector<float>> gradients(16, {0x1p-22f});
  EXPECT_EQ(reduce_mean(half_ring(Unscale::after, Predivide::root), gradients, 1).values[0], 0x1p-22f);
  EXPECT_EQ(reduce_mean(half_ring(Unscale::after, Predivide::all), gradients, 1).values[0], 0);
}

/// What real ranks are compared with, by definitions that share nothing with it.
TEST(GradientMean, TreeOfShardsAndBrainFloatsHaveTheTwinsBits) {
  using engine::parallel::binary_twin;
  using engine::parallel::ring_twin;
  const auto values = mixed(8, 300);
  std::vector<std::vector<float>> gradients;
  for (const auto& row : values) gradients.emplace_back(row.begin(), row.end());
  const auto mean = [&](DType wire, SumOrder order) {
    return reduce_mean({{wire, Predivide::one, order}, Unscale::after}, gradients, 1).values;
  };
  const std::vector<float> f32 = mean(DType::f32, SumOrder::tree), f16 = mean(DType::f16, SumOrder::tree),
                           bf16 = mean(DType::bf16, SumOrder::tree),
                           ring = mean(DType::bf16, SumOrder::nccl_ring);
  std::vector<std::vector<double>> brains = values;
  for (std::vector<double>& row : brains)
    for (double& value : row) value = engine::parallel::to_brain(value);
  for (std::size_t i = 0; i < 300; ++i) {
    EXPECT_EQ(f32[i], binary_twin(values, i, 0, 8, engine::parallel::to_single) / 8);
    EXPECT_EQ(f16[i], binary_twin(values, i, 0, 8, engine::parallel::to_half) / 8);
    EXPECT_EQ(bf16[i], binary_twin(brains, i, 0, 8, engine::parallel::to_brain) / 8);
    EXPECT_EQ(ring[i], ring_twin(brains, i, 300, engine::parallel::to_brain) / 8);
  }
  EXPECT_NE(bf16, ring);
  const Variant library{{DType::f32, Predivide::one, SumOrder::library}, Unscale::after};
  EXPECT_THROW(reduce_mean(library, gradients, 1), std::invalid_argument);
  const Variant tree{{DType::f32, Predivide::one, SumOrder::tree}, Unscale::after};
  EXPECT_THROW(reduce_mean(tree, Gradients(gradients).first(3), 1), std::invalid_argument);
}

TEST(GradientMean, FormulaOfTheBytesOnRealRanks) {
  const engine::parallel::WireOptions tree{DType::f32, Predivide::all, SumOrder::tree};
  const engine::parallel::WireOptions ring{DType::f16, Predivide::all, SumOrder::nccl_ring};
  // Eight shards on three ranks: 2, 3 and 3 of them, the last two runs made of two subtrees; ten elements: 3,
  // 3 and 4.
  EXPECT_EQ(formula_bytes(tree, 10, 8, 3, 0), 4u * (1 * 7 + 2 * 3));
  EXPECT_EQ(formula_bytes(tree, 10, 8, 3, 1), 4u * (2 * 7 + 2 * 3));
  EXPECT_EQ(formula_bytes(tree, 10, 8, 3, 2), 4u * (2 * 6 + 2 * 4));
  EXPECT_EQ(formula_bytes(ring, 10, 8, 3, 2), 2u * (3 * 6 + 2 * 4));
  EXPECT_EQ(formula_bytes(tree, 10, 8, 2, 0), 4u * (5 + 5));
  EXPECT_EQ(formula_bytes(ring, 10, 8, 1, 0), 0u);
}

TEST(GradientMean, ExactMeanAndItsNorms) {
  const std::vector<std::vector<float>> gradients{{3, -2, infinity}, {5, 2, 1}};
  const ExactMean exact = exact_mean(gradients, 2);
  EXPECT_EQ(exact.values[0], 2);
  EXPECT_EQ(exact.values[1], 0);
  EXPECT_FALSE(exact.finite[2]);
  EXPECT_EQ(exact.norm, 2);
  EXPECT_EQ(exact.absolute_norm, std::sqrt(4.0 + 1.0));
}

TEST(GradientMean, EveryVariantStaysWithinItsBound) {
  for (const int ranks : {2, 3, 5, 8})
    for (const double scale : {1.0, 1000.0, 65536.0}) {
      std::vector<std::vector<float>> gradients;
      for (const auto& values : mixed(ranks, 200)) gradients.emplace_back(values.begin(), values.end());
      const ExactMean exact = exact_mean(gradients, scale);
      for (const Variant& variant : all_variants()) {
        const Mean mean = reduce_mean(variant, gradients, scale);
        EXPECT_EQ(mean.born, 0u);
        const double error = compare(mean, exact).absolute, bound = error_bound(variant, exact, ranks, scale);
        EXPECT_LE(error, bound) << describe(variant) << ", " << ranks << " ranks, S = " << scale;
        if (variant.mean.wire == DType::f32) {
          EXPECT_LT(bound, 1e-5 * exact.absolute_norm);
        }
      }
    }
  EXPECT_EQ(all_variants().size(), 24u);
}

// ---- who skips

TEST(Agreement, RanksStayReplicasOnlyWhereFoundInfIsShared) {
  const auto backend = engine::make_emulated_backend(tensor_core_model("hopper"), 1);
  const std::vector<float> weights{1, 2, 3};
  // Scaled by 4. The overflow is in the last element, which rank 2 owns where the mean is sharded.
  const std::vector<std::vector<float>> gradients{{4, 8, 12}, {4, 8, infinity}, {4, 8, 12}};
  const Iteration iteration{.weights = &weights,
                            .gradients = gradients,
                            .learning_rate = 1,
                            .scaler = {.policy = "dynamic", .initial_scale = 4}};
  const auto skips = [&](Check check) {
    std::vector<bool> skipped;
    for (const RankOutcome& outcome : run_ranks(*backend, iteration, check)) {
      EXPECT_EQ(outcome.scale, outcome.skipped ? 2.0 : 4.0) << "who skips backs off";
      skipped.push_back(outcome.skipped);
    }
    return skipped;
  };
  EXPECT_EQ(skips(Check::local), (std::vector<bool>{false, true, false}));
  EXPECT_EQ(skips(Check::local_max), (std::vector<bool>{true, true, true}));
  EXPECT_EQ(skips(Check::mean), (std::vector<bool>{true, true, true}));
  EXPECT_EQ(skips(Check::shards), (std::vector<bool>{false, false, true}));
  EXPECT_EQ(skips(Check::shards_max), (std::vector<bool>{true, true, true}));

  const auto local = run_ranks(*backend, iteration, Check::local);
  EXPECT_EQ(local[0].nonfinite_weights, 1u) << "it stepped by an infinite gradient";
  EXPECT_EQ(local[1].nonfinite_weights, 0u);
  EXPECT_EQ(local[0].state_hash, local[2].state_hash);
  EXPECT_NE(local[0].state_hash, local[1].state_hash);
  const auto shards = run_ranks(*backend, iteration, Check::shards);
  EXPECT_EQ(shards[0].nonfinite_weights, 0u) << "the owner of the infinite chunk skipped it";
  for (const Check check : all_checks)
    EXPECT_EQ(distinct_states(run_ranks(*backend, iteration, check)), agrees_by_construction(check) ? 1u : 2u)
        << name_of(check);
}

TEST(Agreement, WithoutAnOverflowAllChecksTakeTheSameStep) {
  const auto backend = engine::make_emulated_backend(tensor_core_model("hopper"), 1);
  const std::vector<float> weights{1, 2, 3, 4};
  const std::vector<std::vector<float>> gradients{{4, 8, 12, 16}, {8, 8, 8, 8}};
  const Iteration iteration{.weights = &weights,
                            .gradients = gradients,
                            .learning_rate = 0.5f,
                            .scaler = {.policy = "dynamic", .initial_scale = 4}};
  const std::uint64_t expected = run_ranks(*backend, iteration, Check::mean)[0].state_hash;
  for (const Check check : all_checks)
    for (const RankOutcome& outcome : run_ranks(*backend, iteration, check)) {
      EXPECT_FALSE(outcome.skipped);
      EXPECT_EQ(outcome.state_hash, expected)
          << name_of(check) << ": powers of two, so all orders have the same bits";
    }
}

// ---- the program, on a small network

class ExpAllreduce : public SmallRuns {
 protected:
  testing_support::Finished run(const std::string& out, const std::string& threads) {
    return run_inside("exp_allreduce", {"-c", write_config().string(), "--ranks", "2,3", "--steps", "2",
                                        "--scale", "65536", "-o", out, "--threads", threads});
  }
};

TEST_F(ExpAllreduce, ItsClaimsHoldAndItsTablesAreComplete) {
  const testing_support::Finished result = run("first", "1");
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_EQ(result.out.find("verdict: FAILS"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("verdict: HOLDS"), std::string::npos) << result.out;
  const nlohmann::json claims = nlohmann::json::parse(read("first/claims.json"))["claims"];
  EXPECT_EQ(claims.size(), 6u);
  EXPECT_EQ(claims[0]["verdict"], "HOLDS");
  EXPECT_EQ(column("first/exp_allreduce.csv", "ranks").size(), 48u) << "24 variants for each number of ranks";
  EXPECT_EQ(column("first/found_inf.csv", "rank").size(), 15u) << "five checks on three ranks";
  const std::uint64_t elements = 784 * 16 + 16 + 16 * 10 + 10;
  EXPECT_EQ(column("first/exp_allreduce.csv", "mean_bytes_per_rank").front(), std::to_string(4 * elements));

  const testing_support::Finished again = run("second", "2");
  EXPECT_EQ(again.out, result.out) << "no bit depends on the number of threads";
  EXPECT_EQ(read("second/exp_allreduce.csv"), read("first/exp_allreduce.csv"));
  EXPECT_EQ(read("second/found_inf.csv"), read("first/found_inf.csv"));
}

TEST_F(ExpAllreduce, BadOptionsAreUsageErrors) {
  const std::string config = write_config().string();
  const std::vector<std::vector<std::string>> bad{
      {"--ranks", "1"},  {"--ranks", "2,,3"}, {"--ranks", "two"},       {"--steps", "0"},
      {"--scale", "-1"}, {"--scale", "big"},  {"--set", "amp.level=O9"}};
  for (const std::vector<std::string>& option : bad) {
    const testing_support::Finished result =
        run_inside("exp_allreduce", {"-c", config, "-o", "bad", option[0], option[1]});
    EXPECT_EQ(result.exit_code, 2) << option[0] << " " << option[1];
    EXPECT_NE(result.err.find(option[1].substr(0, option[1].find('='))), std::string::npos) << result.err;
  }
}

}  // namespace
}  // namespace fp16lab::experiments::allreduce::allreduce_test
