// Kills of fp16lab train at levels, with policies and with methods that keep more state than one scale: the run that goes
// on has the files of one that was not killed.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/experiments/app/run/resume_runs.hpp"

namespace fp16lab::experiments {
namespace {

class Kills : public Resume {
 protected:
  /// The scale of these runs overflows at first.
  void expect_a_kill_after_overflows_to_change_nothing(const std::vector<std::string>& more) {
    expect_a_kill_to_change_nothing(more);
    EXPECT_FALSE(overflows("whole").empty());
  }
};

TEST_F(Kills, AtO2ChangesNothing) {
  expect_a_kill_after_overflows_to_change_nothing({"amp.dialect=paddle", "amp.level=O2"});
}

TEST_F(Kills, WithoutMasterWeightsChangesNothing) {
  expect_a_kill_after_overflows_to_change_nothing(
      {"amp.dialect=paddle", "amp.level=O2", "amp.master_weights=false"});
}

TEST_F(Kills, WithTwoOptimizersChangesNothing) {
  model_ = R"(
loss = "bce_with_logits"
noise = 8
[[model.block]]
name = "generator"
layer = [{ type = "mlp", widths = [16, 784], output = "sigmoid" }, { type = "unflatten", unflattened_size = [1, 28, 28] }]
[[model.block]]
name = "discriminator"
layer = [{ type = "flatten" }, { type = "mlp", widths = [16, 1] }])";
  expect_a_kill_after_overflows_to_change_nothing({"train.method=gan"});
}

TEST_F(Kills, UnderLayerwiseChangesNothing) {
  // growth_factor 16 every 7 good steps, from settings(): scales overflow again and again.
  expect_a_kill_to_change_nothing(
      {"scaler.policy=layerwise", "scaler.initial_scale=256", "scaler.groups=fc1=2^14,fc2=2^10"});
  const auto skipped = column("whole/steps.csv", "skipped");
  EXPECT_GT(std::count(skipped.begin(), skipped.end(), "1"), 0);
}

TEST_F(Kills, UnderAdaLossChangesNothing) {
  expect_a_kill_to_change_nothing({"scaler.policy=ada-loss", "scaler.initial_scale=1",
                                   "scaler.update_per_n_iteration=5", "scaler.u_min=0.001"});
}

}  // namespace
}  // namespace fp16lab::experiments
