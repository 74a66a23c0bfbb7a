// Why a run ended early: the decision on facts by hand, the facts that steps leave, and runs that end in each
// way.
#include <cmath>
#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "engine/train/diagnosis.hpp"
#include "tests/engine/train/mlp_run.hpp"

namespace fp16lab::engine::test::diagnosis_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;
using Verdict = Diagnosis::Verdict;

/// A run that skipped 20 steps while S came down from 2^16 to 2^7, after steps that were taken.
RunFacts skipping() {
  RunFacts facts;
  facts.policy = "torch";
  facts.steps = 100;
  facts.skips_in_a_row = 10;
  facts.loss = 2.5;
  facts.scale = 0x1p7;
  facts.scale_before_skips = 0x1p16;
  facts.smallest_overflowing_scale = 0x1p7;
  facts.any_step_taken = true;
  facts.backoffs = 7;
  facts.scale_before_backoffs = 0x1p16;
  return facts;
}

TEST(Diagnosis, EveryCaseByItsFacts) {
  std::set<std::string> codes;
  const auto expect = [&](const RunFacts& facts, Verdict verdict, const std::string& code,
                          const std::string& words) {
    const Diagnosis diagnosis = diagnose(facts);
    EXPECT_EQ(diagnosis.code, code);
    EXPECT_EQ(diagnosis.verdict, verdict) << code;
    const std::string begin = code == "learning_rate_too_high" ? "bad learning rate: "
                              : verdict == Verdict::model      ? "bad model: "
                                                               : "bad scale: ";
    EXPECT_THAT(diagnosis.text, AllOf(StartsWith(begin), HasSubstr(words)));
    EXPECT_EQ(diagnosis.text.find('\n'), std::string::npos) << "one line";
    codes.insert(code);
  };
  RunFacts facts = skipping();
  expect(facts, Verdict::scale, "scale_too_high", "from 2^16 to 2^7 in 10 skipped steps");
  facts.backoffs = sinking_backoffs;
  expect(facts, Verdict::model, "scale_sinks", "8 back-offs without a growth, from 2^16 to 2^7");
  facts.any_step_taken = false;
  expect(facts, Verdict::scale, "scale_began_too_high", "S began at 2^16");
  facts.scale_before_skips = facts.scale;
  expect(facts, Verdict::scale, "scale_stuck", "stayed at 2^7 through all 10 overflows");
  facts.skips_in_a_row = 1;
  expect(facts, Verdict::scale, "scale_stuck", "S stayed at 2^7 at the one overflow, so the next step would");
  facts.skips_in_a_row = 10;
  facts.scale = 0x1p40;
  expect(facts, Verdict::scale, "scale_beyond_use",
         "S began at 2^7 and has come down to 2^40");  // whatever the numbers
  facts.any_step_taken = true;
  expect(facts, Verdict::scale, "scale_beyond_use", "grown to 2^40");
  facts.zero_steps = 12;
  expect(facts, Verdict::model, "zero_gradients", "exactly zero in the last 12 steps");
  facts.counts.emplace();
  facts.counts->activation.nan = 3;
  expect(facts, Verdict::model, "nan_before_rounding", "3 gradients are NaN");
  facts.smallest_overflowing_scale = 1;
  expect(facts, Verdict::model, "overflow_without_scaling", "S = 2^0");
  facts.loss = std::nan("");
  expect(facts, Verdict::model, "loss_not_finite", "the loss itself is nan");
  facts.weights = {.nan = 2, .infinite = 1, .first = "fc2.weight"};
  expect(facts, Verdict::model, "weights_not_finite", "fc2.weight holds 3 NaN");
  facts.checked = false;
  expect(facts, Verdict::scale, "unchecked_overflow", "nothing looks for overflows");
  facts.first_loss = 2.3;
  facts.greatest_loss = 22.9;
  expect(facts, Verdict::scale, "unchecked_overflow", "nothing looks for overflows");
  facts.greatest_loss = 23.1;
  expect(facts, Verdict::model, "learning_rate_too_high", "the loss grew from 2.3 to 23.1");
  facts.greatest_loss = 2.3;
  facts.first_weight_exponent = -3;
  facts.weight_exponent = 3;
  expect(facts, Verdict::model, "learning_rate_too_high", "the greatest weight grew from 2^-2 to 2^4");
  EXPECT_EQ(codes.size(), 12u);
}

TEST(Diagnosis, NaNIsTheModelsOnlyWhereNothingOverflowed) {
  RunFacts facts = skipping();
  facts.counts.emplace();
  facts.counts->weight.nan = 1;
  EXPECT_EQ(diagnose(facts).code, "nan_before_rounding");
  facts.counts->activation.infinite = 1;  // infinity minus infinity
  EXPECT_EQ(diagnose(facts).code, "scale_too_high");
  facts.counts->activation.infinite = 0;
  facts.counts->activation.bins[static_cast<std::size_t>(15 - ExponentHistogram::min_exponent)] =
      1;  // up to 2^16
  EXPECT_EQ(diagnose(facts).code, "scale_too_high");
  facts.counts->activation = {};
  facts.counts->activation.bins[static_cast<std::size_t>(14 - ExponentHistogram::min_exponent)] = 1;
  EXPECT_EQ(diagnose(facts).code, "nan_before_rounding");
}

TEST(Diagnosis, SaysWhatEndedTheRun) {
  RunFacts facts = skipping();
  EXPECT_EQ(diagnose(facts).reason, "10 skipped steps in a row (train.skip_limit)");
  facts.end = RunFacts::End::policy_stop;
  facts.policy = "fairseq";
  facts.stop_reason = "minimum loss scale reached";
  EXPECT_EQ(diagnose(facts).reason, "policy \"fairseq\" ends the run: minimum loss scale reached");
  facts.end = RunFacts::End::nonfinite_losses;
  facts.nonfinite_losses = 50;
  EXPECT_EQ(diagnose(facts).reason, "the loss was not finite in 50 steps in a row");
}

TEST(Diagnosis, FactsOfStepsAreKept) {
  FactKeeper keeper;
  std::uint64_t step = 0;
  const auto note = [&](double scale, bool skipped, double norm, double next) {
    StepRow record;
    record.step = ++step;
    record.loss = 1;
    record.loss_scale = scale;
    record.found_inf = record.skipped = skipped;
    record.grad_norm = norm;
    keeper.note(record, next);
  };
  note(16, true, std::numeric_limits<double>::infinity(), 8);
  EXPECT_FALSE(keeper.facts(1, 0).any_step_taken);
  note(8, false, 0.5, 8);
  note(8, false, 0, 8);
  note(8, false, 0, 16);
  RunFacts facts = keeper.facts(0, 0);
  EXPECT_TRUE(facts.any_step_taken);
  EXPECT_EQ(facts.zero_steps, 2u);
  EXPECT_EQ(facts.backoffs, 0u) << "it has grown";
  EXPECT_EQ(facts.smallest_overflowing_scale, std::numeric_limits<double>::infinity()) << "none in this row";
  note(16, true, std::nan(""), 4);
  note(4, true, std::nan(""), 1);
  facts = keeper.facts(2, 0);
  EXPECT_EQ(facts.steps, 6u);
  EXPECT_EQ(facts.zero_steps, 2u) << "of steps that were taken";
  EXPECT_EQ(facts.backoffs, 2u);
  EXPECT_EQ(facts.scale_before_backoffs, 16);
  EXPECT_EQ(facts.scale_before_skips, 16);
  EXPECT_EQ(facts.smallest_overflowing_scale, 4);
  EXPECT_EQ(facts.scale, 4);
}

// ---- runs ----

MlpRunSetup o1(const ScalerOptions& scaler, std::uint64_t skip_limit, std::uint64_t steps = 60) {
  MlpRunSetup setup;
  setup.amp.level = Level::O1;
  setup.scaler = scaler;
  setup.train = {.steps = steps, .skip_limit = skip_limit};
  return setup;
}

std::string code_of(MlpRun& run) {
  const RunResult result = run.trainer.run();
  EXPECT_EQ(result.end, RunResult::End::diverged);
  return result.diagnosis ? std::string(result.diagnosis->code) : "none";
}

void spoil(MlpRun& run, std::size_t parameter, float value) {
  Tensor weight = run.trainer.parameters()[parameter]->value;
  std::vector<float> values = values_of(*run.backend, weight);
  values.front() = value;
  run.backend->upload(std::as_bytes(std::span(values)), weight);
}

TEST(Diagnosis, OfRuns) {
  MlpRun high(o1({.policy = "torch", .initial_scale = 0x1p60}, 5));
  EXPECT_EQ(code_of(high), "scale_beyond_use");
  MlpRun began(o1({.policy = "torch", .initial_scale = 0x1p36}, 5));
  EXPECT_EQ(code_of(began), "scale_began_too_high");
  MlpRun stuck(o1({.policy = "fixed", .initial_scale = 0x1p36}, 5));
  EXPECT_EQ(code_of(stuck), "scale_stuck");
  MlpRun spoilt(o1({.policy = "torch"}, 5));
  spoil(spoilt, 0, std::numeric_limits<float>::quiet_NaN());
  EXPECT_EQ(code_of(spoilt), "weights_not_finite");
  // Without a limit: fifty losses.
  MlpRun losses(o1({.policy = "torch"}, 0, 80));
  spoil(losses, 0, std::numeric_limits<float>::infinity());
  const RunResult result = losses.trainer.run();
  EXPECT_EQ(result.steps, Trainer::divergence_limit);
  ASSERT_TRUE(result.diagnosis.has_value());
  EXPECT_EQ(result.diagnosis->code, "weights_not_finite");
  EXPECT_THAT(result.diagnosis->reason, HasSubstr("50 steps"));
  // FP16 activations beyond 65504 are infinite in a forward pass whose weights are finite; a loss of NaN or
  // Inf.
  MlpRun forward(o1({.policy = "torch"}, 5));
  spoil(forward, 2, 60000.0f);
  spoil(forward, 0, 60000.0f);
  spoil(forward, 1, 60000.0f);
  EXPECT_EQ(code_of(forward), "loss_not_finite");
  MlpRun fine(o1({.policy = "torch", .initial_scale = 1024}, 5, 4));
  EXPECT_FALSE(fine.trainer.run().diagnosis.has_value());
}

TEST(Diagnosis, ThePolicysOwnEnd) {
  // fairseq ends a run whose scale would fall below its minimum.
  MlpRun run(
      o1({.policy = "fairseq", .initial_scale = 0x1p40, .parameters = {{"min_loss_scale", 0x1p38}}}, 0));
  const RunResult result = run.trainer.run();
  EXPECT_EQ(result.end, RunResult::End::diverged);
  ASSERT_TRUE(result.diagnosis.has_value());
  EXPECT_THAT(result.diagnosis->reason, HasSubstr("policy \"fairseq\" ends the run: "));
  EXPECT_LT(result.steps, 60u);
}

}  // namespace
}  // namespace fp16lab::engine::test::diagnosis_test
