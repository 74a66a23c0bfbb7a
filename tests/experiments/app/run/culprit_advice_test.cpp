// Advice about culprits is tried: what it says is put into the configuration, and the overflow must be gone.
#include <gmock/gmock.h>

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "analysis/first_culprit.hpp"
#include "tests/engine/train/culprit_net.hpp"
#include "tests/support/lenet5.hpp"

namespace fp16lab::experiments::culprit_advice_test {
namespace {

using namespace engine;        // NOLINT(google-build-using-namespace): the engine's words, and its tests'
using namespace engine::test;  // NOLINT(google-build-using-namespace)

/// The rows of one step; empty where nothing overflowed.
std::vector<CulpritRow> rows_of(const CulpritNetOptions& net, const std::vector<HostBatch>& batches,
                                const RunSetup& setup) {
  const auto run = culprit_run(batches, net, setup);
  run->trainer.run();
  std::vector<CulpritRow> rows = run->recorder.culprits;
  for (CulpritRow& row : rows) analysis::advise(row);
  EXPECT_EQ(run->recorder.overflows.empty(), rows.empty());
  return rows;
}

CulpritNetOptions tall_output() {
  CulpritNetOptions net;
  for (std::size_t i = 0; i < 5; ++i) net.second[5 + i] = 30000.0f;
  return net;
}

TEST(CulpritAdvice, ExcludingTheLayerSavesIt) {
  const auto batches = equal_rows(4, 1.0f);
  RunSetup setup = one_step(1.0);
  const auto rows = rows_of(tall_output(), batches, setup);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].verdict, CulpritVerdict::fp32_cast);
  setup.amp.excluded = {rows[0].excluded};
  EXPECT_TRUE(rows_of(tall_output(), batches, setup).empty());
}

TEST(CulpritAdvice, BlackeningTheOpSavesIt) {
  const auto batches = equal_rows(4, 1.0f);
  RunSetup setup = one_step(1.0);
  const auto rows = rows_of(tall_output(), batches, setup);
  ASSERT_EQ(rows.size(), 1u);
  setup.amp.black = {rows[0].black};
  EXPECT_TRUE(rows_of(tall_output(), batches, setup).empty());
  setup.amp.black = {"softmax"};
  EXPECT_FALSE(rows_of(tall_output(), batches, setup).empty()) << "another op does not help";
}

/// A square in the scope "act" of 300, before a layer that brings it down again.
CulpritNetOptions square() {
  CulpritNetOptions net{.first = 300.0f};
  for (std::size_t i = 0; i < 5; ++i) net.second[i] = 0x1p-20f;
  net.between = [](Tape& tape, const Variable& h) {
    const ScopeGuard scope(tape, "act");
    return ops::multiply(h, h);
  };
  return net;
}

TEST(CulpritAdvice, IsFollowedUntilNothingOverflows) {
  // 90000 is saved in FP32 and overflows where the next layer casts it: the second advice is about that.
  const auto batches = equal_rows(2, 1.0f);
  RunSetup setup = one_step(1.0);
  std::vector<std::string> advised;
  for (auto rows = rows_of(square(), batches, setup); !rows.empty();
       rows = rows_of(square(), batches, setup)) {
    ASSERT_EQ(rows[0].verdict, CulpritVerdict::fp32_cast) << analysis::culprit_line(rows[0]);
    ASSERT_LT(advised.size(), 3u) << analysis::culprit_line(rows[0]);
    advised.push_back(rows[0].excluded);
    setup.amp.excluded.push_back(rows[0].excluded);
  }
  EXPECT_EQ(advised, (std::vector<std::string>{"act", "fc2"}));
}

TEST(CulpritAdvice, TheExponentialGoesBackToFp32) {
  CulpritNetOptions net{.first = 12.0f};
  net.between = [](Tape& tape, const Variable& h) {
    const ScopeGuard scope(tape, "act");
    return ops::log(ops::exp(h));  // FP32 in torch's lists, and the logarithm is small again
  };
  const auto batches = equal_rows(2, 1.0f);
  RunSetup setup = one_step(1.0);
  setup.amp.white = {"exp"};
  const auto rows = rows_of(net, batches, setup);
  ASSERT_FALSE(rows.empty());
  EXPECT_EQ(rows[0].op, "exp");
  EXPECT_EQ(rows[0].black, "exp");
  setup.amp.white = {};
  setup.amp.black = {rows[0].black};
  EXPECT_TRUE(rows_of(net, batches, setup).empty());
}

/// logits (a, -a, 0) for the label 1: dX[0] = S 2a.
CulpritNetOptions opposed() {
  CulpritNetOptions net{.first = 16.0f};
  net.second[0] = 3000.0f;
  net.second[5] = -3000.0f;
  return net;
}

TEST(CulpritAdvice, SoManyBinadesLessSaveAGradientAndNotOneLess) {
  const auto batches = equal_rows(1, 0x1p-4f, 1);
  const auto rows = rows_of(opposed(), batches, one_step(64.0));
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].verdict, CulpritVerdict::lower_scale);
  ASSERT_EQ(rows[0].binades, 3u) << "384000 / 8 = 48000";
  EXPECT_EQ(rows[0].finite_scale, 8.0) << "nothing else overflows";
  const auto lower = [&](std::uint64_t k) { return std::ldexp(64.0, -static_cast<int>(k)); };
  EXPECT_TRUE(rows_of(opposed(), batches, one_step(lower(rows[0].binades))).empty());
  EXPECT_FALSE(rows_of(opposed(), batches, one_step(lower(rows[0].binades - 1))).empty());
  // Or FP32 for this layer: its gradients are, too, and what flows on to fc1 is cast where it fits.
  RunSetup wide = one_step(64.0);
  wide.amp.excluded = {rows[0].excluded, "fc1"};
  EXPECT_TRUE(rows_of(opposed(), batches, wide).empty());
}

/// What was checked is so: no overflow at the scale that was found, and one at twice that.
template <class RowsAt>
void expect_the_greatest_finite_scale(const CulpritRow& row, const RowsAt& rows_at) {
  ASSERT_EQ(row.verdict, CulpritVerdict::lower_scale) << analysis::culprit_line(row);
  ASSERT_TRUE(row.finite_scale.has_value());
  ASSERT_GT(*row.finite_scale, 0);
  EXPECT_TRUE(rows_at(*row.finite_scale).empty()) << analysis::culprit_line(row);
  EXPECT_FALSE(rows_at(2 * *row.finite_scale).empty()) << analysis::culprit_line(row);
  const std::string text = analysis::culprit_line(row);
  EXPECT_NE(text.find("(checked"), std::string::npos) << text;
}

TEST(CulpritAdvice, TheFirstCastOfTheBackwardPass) {
  const auto batches = equal_rows(4, 1.0f);
  const auto rows_at = [&](double scale) { return rows_of({}, batches, one_step(scale)); };
  const auto rows = rows_at(0x1p24);
  ASSERT_FALSE(rows.empty());
  expect_the_greatest_finite_scale(rows[0], rows_at);
  EXPECT_GE(*rows[0].finite_scale, 0x1p16) << "sums of four rows of at most S / 6 are S 2/3";
}

/// A training step of LeNet-5 on made-up images.
std::vector<CulpritRow> lenet_rows(const RunSetup& setup) {
  std::vector<HostBatch> batches(2, HostBatch{.shape = {8, 1, 32, 32}, .inputs = {}});
  for (std::size_t b = 0; b < batches.size(); ++b) {
    for (std::size_t i = 0; i < 8 * 32 * 32; ++i)
      batches[b].inputs.push_back(static_cast<float>((i * i + 31 * b + i / 7) % 64) / 32.0f - 1.0f);
    batches[b].labels.assign(8, 3);  // one class: every row pulls fc3.bias the same way
  }
  MethodRun run(
      batches, [](Backend& backend) { return std::make_unique<LeNet5>(backend, LeNet5Options{.seed = 1}); },
      MethodRun::MakeMethod{}, setup);
  run.recorder.explain = true;
  run.trainer.run();
  std::vector<CulpritRow> rows = run.recorder.culprits;
  for (CulpritRow& row : rows) analysis::advise(row);
  return rows;
}

TEST(CulpritAdvice, TheScaleForALeNetStepIsCheckedAfterItsFirstOverflow) {
  // What the first tensor needs is not enough for those after it, which its infinities hid.
  for (const double scale : {0x1p30, 0x1p24}) {
    const auto rows_at = [](double s) { return lenet_rows(one_step(s)); };
    const auto rows = rows_at(scale);
    ASSERT_EQ(rows.size(), 1u);
    expect_the_greatest_finite_scale(rows[0], rows_at);
    const double of_the_first = std::ldexp(scale, -static_cast<int>(rows[0].binades));
    EXPECT_LT(*rows[0].finite_scale, of_the_first);
    EXPECT_FALSE(rows_at(of_the_first).empty());
  }
}

TEST(CulpritAdvice, IsCheckedWithMicroBatchesAndLossesOf16BitsToo) {
  for (const amp::Dialect dialect : every<amp::Dialect>)
    for (const Level level : amp::levels_of(dialect)) {
      if (level == Level::O0) continue;
      SCOPED_TRACE(std::string(name_of(dialect)) + " " + std::string(name_of(level)));
      const auto rows_at = [&](double scale) {
        RunSetup setup = one_step(scale);
        setup.train.accumulate = 2;
        setup.amp.dialect = dialect;
        setup.amp.level = level;
        return lenet_rows(setup);
      };
      const auto rows = rows_at(0x1p24);
      ASSERT_FALSE(rows.empty());
      expect_the_greatest_finite_scale(rows.back(), rows_at);
    }
}

TEST(CulpritAdvice, SaysWhereNothingWasTried) {
  // A scale for each layer: no single one is to be found.
  RunSetup setup = one_step(1);
  setup.scaler = {.policy = "layerwise", .initial_scale = 0x1p24, .groups = {"*=1"}};
  const auto rows = rows_of({}, equal_rows(4, 1.0f), setup);
  ASSERT_FALSE(rows.empty());
  EXPECT_FALSE(rows[0].finite_scale.has_value());
  EXPECT_NE(rows[0].advice.find("was not tested"), std::string::npos) << rows[0].advice;
}

TEST(CulpritAdvice, ADivisorThatWasRoundedToZeroIsNotCalledTheModels) {
  CulpritNetOptions net;
  net.between = [](Tape& tape, const Variable& h) {
    const ScopeGuard scope(tape, "act");
    return ops::scale(ops::divide(h, ops::scale(ops::scale(h, 1e-5f), 1e-5f)), 1e-10f);
  };
  RunSetup setup = one_step(1.0);
  const auto rows = rows_of(net, equal_rows(2, 1.0f), setup);
  ASSERT_FALSE(rows.empty());
  EXPECT_EQ(rows[0].verdict, CulpritVerdict::unknown) << analysis::culprit_line(rows[0]);
  EXPECT_NE(analysis::culprit_line(rows[0]).find(
                "|scale of act (rounded to zero by scale of act)|: 10 of 10 zero. Advice: Inf also when "
                "computed in FP32 of these operands, which 16 bits may have rounded"),
            std::string::npos)
      << analysis::culprit_line(rows[0]);
  setup.amp.excluded = {"fc1", "act"};
  EXPECT_TRUE(rows_of(net, equal_rows(2, 1.0f), setup).empty()) << "1e-10 is an FP32 number";
}

TEST(CulpritAdvice, NothingHelpsAgainstNumbersThatAreNone) {
  auto batches = equal_rows(2, 1.0f);
  batches[0].inputs[3] = std::nanf("");
  const auto rows = rows_of({}, batches, one_step(1.0));
  ASSERT_FALSE(rows.empty());
  EXPECT_EQ(rows[0].verdict, CulpritVerdict::data);
  EXPECT_EQ(rows[0].black + rows[0].excluded, "");
  EXPECT_EQ(rows[0].binades, 0u);
  RunSetup fp32 = one_step(1.0);
  fp32.amp = {.level = Level::O0};
  EXPECT_FALSE(rows_of({}, batches, fp32).empty()) << "FP32 does not";

  const auto exponential = [] {
    CulpritNetOptions net{.first = 100.0f};
    net.between = [](Tape&, const Variable& h) { return ops::exp(h); };
    return net;
  }();
  const auto model = rows_of(exponential, equal_rows(2, 1.0f), one_step(1.0));
  ASSERT_FALSE(model.empty());
  EXPECT_EQ(model[0].verdict, CulpritVerdict::model);
  EXPECT_FALSE(rows_of(exponential, equal_rows(2, 1.0f), fp32).empty()) << "e^100 is no FP32 number";
}

}  // namespace
}  // namespace fp16lab::experiments::culprit_advice_test
