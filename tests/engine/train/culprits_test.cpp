// CulpritFinder: constructed networks whose culprit is known by hand, and that looking for it changes no bit.
#include "engine/train/culprit_finder.hpp"

#include <gmock/gmock.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "engine/nn/models/mlp.hpp"
#include "engine/train/methods/gan.hpp"
#include "engine/train/methods/gradient_penalty.hpp"
#include "engine/train/methods/two_models.hpp"
#include "tests/engine/train/culprit_net.hpp"
#include "tests/support/gan.hpp"
#include "tests/support/temporary_folder.hpp"

namespace fp16lab::engine::test::culprits_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float nan = std::numeric_limits<float>::quiet_NaN();

/// fc2.weight with this row, and zeros.
std::vector<float> second_row(std::size_t row, float value) {
  std::vector<float> weights(15, 0.0f);
  for (std::size_t i = 0; i < 5; ++i) weights[row * 5 + i] = value;
  return weights;
}

const CulpritOperandRow& operand(const CulpritRow& culprit, const std::string& name) {
  for (const CulpritOperandRow& known : culprit.operands)
    if (known.name == name) return known;
  throw std::out_of_range("no operand " + name);
}

/// The culprits of the only step that overflowed.
std::vector<CulpritRow> culprits_of(MethodRun& run) {
  run.trainer.run();
  EXPECT_THAT(run.recorder.overflows, SizeIs(1));
  if (run.recorder.overflows.empty()) return {};
  EXPECT_THAT(run.recorder.explained, ElementsAre(run.recorder.overflows.front().step));
  return run.recorder.culprits;
}

TEST(Culprits, AnOverflowInAChosenLinear) {
  // h = 1 five times; fc2's row 1 sums 5 * 30000 = 150000, and 30000 is an FP16 number.
  const auto run = culprit_run(equal_rows(4, 1.0f), {.second = second_row(1, 30000.0f)}, one_step(1.0));
  const auto culprits = culprits_of(*run);
  ASSERT_THAT(culprits, SizeIs(1)) << "the backward pass only has what the forward pass left it";
  const CulpritRow& culprit = culprits.front();
  EXPECT_EQ(culprit.pass, CulpritPass::forward);
  EXPECT_EQ(culprit.cause, CulpritCause::operation);
  EXPECT_EQ(culprit.op, "linear");
  EXPECT_EQ(culprit.part, "");
  EXPECT_EQ(culprit.layer, "fc2");
  EXPECT_EQ(culprit.tensor, "fc2.output");
  EXPECT_EQ(culprit.dtype, DType::f16);
  EXPECT_THAT(culprit.shape, ElementsAre(4, 3));
  EXPECT_EQ(culprit.element, 1u);
  EXPECT_EQ(culprit.nonfinite, 4u);
  EXPECT_EQ(culprit.value, static_cast<double>(infinity));
  EXPECT_EQ(culprit.wide_value, 150000.0);
  EXPECT_EQ(culprit.wide_greatest, 150000.0);
  EXPECT_EQ(culprit.wide->at(17), 4u) << "150000 is in (2^17, 2^18]";
  EXPECT_TRUE(culprit.reached);
  EXPECT_EQ(operand(culprit, "input").greatest, 1.0);
  EXPECT_EQ(operand(culprit, "input").smallest, 1.0);
  EXPECT_EQ(operand(culprit, "input").histogram.total(), 20u);
  EXPECT_EQ(operand(culprit, "fc2.weight").greatest, 30000.0);
  EXPECT_EQ(operand(culprit, "fc2.weight").dtype, DType::f16);
}

/// f(h) in the scope "act".
CulpritNetOptions between(float first, Variable (*f)(const Variable&)) {
  return {.first = first, .second = second_row(0, 0x1p-10f), .between = [f](Tape& tape, const Variable& h) {
            const ScopeGuard scope(tape, "act");
            return f(h);
          }};
}

TEST(Culprits, ASquareInFp16) {
  const auto run =
      culprit_run(equal_rows(2, 1.0f), between(300.0f, [](const Variable& h) { return ops::multiply(h, h); }),
                  one_step(1.0));
  const auto culprits = culprits_of(*run);
  ASSERT_THAT(culprits, SizeIs(1));
  EXPECT_EQ(culprits[0].op, "multiply");
  EXPECT_EQ(culprits[0].layer, "act");
  EXPECT_EQ(culprits[0].element, 0u);
  EXPECT_EQ(culprits[0].nonfinite, 10u);
  EXPECT_EQ(culprits[0].wide_value, 90000.0);
}

TEST(Culprits, WhatRoundedADivisorToZeroIsNamed) {
  // 1e-5 is an FP16 number (a subnormal one), 1e-10 is none: 1 / 0, in FP32 of the same operands too.
  const auto run = culprit_run(equal_rows(2, 1.0f),
                               between(1.0f,
                                       [](const Variable& h) {
                                         const Variable small = ops::scale(h, 1e-5f);
                                         const Variable none = ops::scale(small, 1e-5f);
                                         return ops::divide(h, ops::relu(none));
                                       }),
                               one_step(1.0));
  const auto culprits = culprits_of(*run);
  ASSERT_FALSE(culprits.empty());
  EXPECT_EQ(culprits[0].op, "divide");
  EXPECT_EQ(culprits[0].wide_value, static_cast<double>(infinity));
  EXPECT_EQ(operand(culprits[0], "relu of act (rounded to zero by scale of act)").histogram.zero, 10u);
  EXPECT_EQ(operand(culprits[0], "linear of fc1").histogram.zero, 0u);

  // Zeros that no rounding made.
  const auto exact = culprit_run(
      equal_rows(2, 1.0f),
      between(1.0f, [](const Variable& h) { return ops::divide(h, ops::subtract(h, h)); }), one_step(1.0));
  const auto of_zeros = culprits_of(*exact);
  ASSERT_FALSE(of_zeros.empty());
  EXPECT_EQ(operand(of_zeros[0], "subtract of act").histogram.zero, 10u);
}

TEST(Culprits, AnExponentialThatTheListsPutIntoFp16) {
  const CulpritNetOptions net = between(12.0f, [](const Variable& h) { return ops::exp(h); });
  RunSetup setup = one_step(1.0);
  setup.amp.white = {"exp"};
  const auto low = culprit_run(equal_rows(2, 1.0f), net, setup);
  const auto culprits = culprits_of(*low);
  ASSERT_THAT(culprits, SizeIs(1));
  EXPECT_EQ(culprits[0].op, "exp");
  EXPECT_EQ(culprits[0].layer, "act");
  // e^12 = 162754.79..., to the half ulp that an FP32 function may be off, and more.
  EXPECT_NEAR(culprits[0].wide_value.value(), 162754.791419, 0.02);

  // torch's own lists compute it in FP32. It is finite there, and the next layer casts it.
  const auto wide = culprit_run(equal_rows(2, 1.0f), net, one_step(1.0));
  const auto next = culprits_of(*wide);
  ASSERT_THAT(next, SizeIs(1));
  EXPECT_EQ(next[0].op, "linear");
  EXPECT_EQ(next[0].part, "cast");
  EXPECT_EQ(next[0].layer, "fc2");
  EXPECT_NEAR(next[0].wide_value.value(), 162754.791419, 0.02);
}

TEST(Culprits, AnExponentialThatOverflowsInFp32Too) {
  const auto run = culprit_run(equal_rows(2, 1.0f),
                               between(100.0f, [](const Variable& h) { return ops::exp(h); }), one_step(1.0));
  const auto culprits = culprits_of(*run);
  ASSERT_FALSE(culprits.empty());
  EXPECT_EQ(culprits[0].op, "exp");
  EXPECT_EQ(culprits[0].dtype, DType::f32);
  EXPECT_EQ(culprits[0].wide_value, static_cast<double>(infinity));
}

/// logits (a, -a, 0) for the label 1: softmax is (1, 0, 0), and dX[0] = S (a + a).
CulpritNetOptions opposed(float a) {
  CulpritNetOptions net{.first = 16.0f};
  net.second[0] = a;
  net.second[5] = -a;
  return net;
}

TEST(Culprits, AGradientThatALargeScalePushesOut) {
  const auto run = culprit_run(equal_rows(1, 0x1p-4f, 1), opposed(3000.0f), one_step(64.0));
  const auto culprits = culprits_of(*run);
  ASSERT_THAT(culprits, SizeIs(1));
  const CulpritRow& culprit = culprits.front();
  EXPECT_EQ(culprit.pass, CulpritPass::backward);
  EXPECT_EQ(culprit.op, "linear");
  EXPECT_EQ(culprit.part, "matmul");
  EXPECT_EQ(culprit.layer, "fc2");
  EXPECT_EQ(culprit.tensor, "fc2.input");
  EXPECT_EQ(culprit.loss_scale, 64.0);
  EXPECT_THAT(culprit.shape, ElementsAre(1, 5));
  EXPECT_EQ(culprit.element, 0u);
  EXPECT_EQ(culprit.nonfinite, 1u);
  EXPECT_EQ(culprit.wide_value, 64.0 * 6000.0);
  EXPECT_EQ(operand(culprit, "fc2.weight").greatest, 3000.0);
  EXPECT_TRUE(culprit.reached);
}

TEST(Culprits, TheFirstCastOfTheBackwardPass) {
  // softmax of equal logits: dL/dlogits = (1/3 - 1, 1/3, 1/3) / 4 rows, times 2^24.
  const auto run = culprit_run(equal_rows(4, 1.0f), {}, one_step(0x1p24));
  const auto culprits = culprits_of(*run);
  ASSERT_THAT(culprits, SizeIs(1));
  EXPECT_EQ(culprits[0].pass, CulpritPass::backward);
  EXPECT_EQ(culprits[0].op, "cast");
  EXPECT_EQ(culprits[0].tensor, "loss.prediction");
  EXPECT_EQ(culprits[0].element, 0u);
  EXPECT_EQ(culprits[0].nonfinite, 12u);
  EXPECT_NEAR(culprits[0].wide_value.value(), -0x1p24 * 2.0 / 3.0 / 4.0, 1.0);
}

TEST(Culprits, DataThatAreNoNumbers) {
  std::vector<HostBatch> batches = equal_rows(4, 1.0f, 0, 2);
  batches[1].inputs[7] = nan;
  RunSetup setup = one_step(1.0);
  setup.train.accumulate = 2;
  const auto run = culprit_run(batches, {}, setup);
  const auto culprits = culprits_of(*run);
  ASSERT_THAT(culprits, SizeIs(1));
  EXPECT_EQ(culprits[0].cause, CulpritCause::data);
  EXPECT_EQ(culprits[0].tensor, "inputs");
  EXPECT_EQ(culprits[0].element, 7u);
  EXPECT_EQ(culprits[0].micro_batch, 1u);
  EXPECT_THAT(culprits[0].shape, ElementsAre(4, 6));
}

TEST(Culprits, InputsBeyondFp16) {
  // At O1 the first layer casts them; at O2 the level does, before the network.
  const auto o1 = culprit_run(equal_rows(2, 1e5f), {}, one_step(1.0));
  const auto by_layer = culprits_of(*o1);
  ASSERT_THAT(by_layer, SizeIs(1));
  EXPECT_EQ(by_layer[0].op, "linear");
  EXPECT_EQ(by_layer[0].part, "cast");
  EXPECT_EQ(by_layer[0].layer, "fc1");
  EXPECT_EQ(by_layer[0].wide_value, 1e5);

  RunSetup setup = one_step(1.0);
  setup.amp = {.level = Level::O2, .dialect = amp::Dialect::apex};
  const auto o2 = culprit_run(equal_rows(2, 1e5f), {}, setup);
  const auto by_level = culprits_of(*o2);
  ASSERT_THAT(by_level, SizeIs(1));
  EXPECT_EQ(by_level[0].cause, CulpritCause::operation);
  EXPECT_EQ(by_level[0].tensor, "inputs");
  EXPECT_EQ(by_level[0].wide_value, 1e5);
}

TEST(Culprits, AWeightThatWasNoNumberBefore) {
  std::vector<float> second(15, 0.0f);
  second[4] = nan;
  const auto run = culprit_run(equal_rows(2, 1.0f), {.second = second}, one_step(1.0));
  const auto culprits = culprits_of(*run);
  ASSERT_THAT(culprits, SizeIs(1));
  EXPECT_EQ(culprits[0].cause, CulpritCause::parameter);
  EXPECT_EQ(culprits[0].tensor, "fc2.weight");
  EXPECT_EQ(culprits[0].element, 4u);
}

/// scores + mask, softmax over the last axis: -infinity by design.
Variable masked_softmax(const Variable& h, float fill) {
  Tape& tape = h.tape();
  const Variable mask = tape.constant(tensor_of(tape.backend(), {1, 5}, {0.0f, 0.0f, fill, 0.0f, -infinity}));
  return ops::softmax(ops::add(h, mask), 1);
}

TEST(Culprits, AMaskIsNone) {
  // S = 2^24 overflows in the backward pass, after a forward pass that is full of intended infinities.
  const CulpritNetOptions net{.second = second_row(0, 1.0f),
                              .between = [](Tape&, const Variable& h) { return masked_softmax(h, 0.0f); }};
  const auto run = culprit_run(equal_rows(2, 1.0f), net, one_step(0x1p24));
  const auto culprits = culprits_of(*run);
  ASSERT_THAT(culprits, SizeIs(1));
  EXPECT_EQ(culprits[0].pass, CulpritPass::backward);
  EXPECT_EQ(culprits[0].tensor, "loss.prediction");
}

TEST(Culprits, ASumThatOverflowsBesideAMaskIsFoundByElement) {
  // 40000 + 40000 overflows in the third column, next to the column that the mask has at -infinity.
  const CulpritNetOptions net{
      .first = 40000.0f, .second = second_row(0, 1.0f), .between = [](Tape& tape, const Variable& h) {
        const ScopeGuard scope(tape, "scores");
        return masked_softmax(h, 40000.0f);
      }};
  RunSetup setup = one_step(1.0);
  setup.amp.white = {"add"};  // the mask is FP32, and would take the sum with it
  const auto run = culprit_run(equal_rows(2, 1.0f), net, setup);
  const auto culprits = culprits_of(*run);
  ASSERT_FALSE(culprits.empty());
  EXPECT_EQ(culprits[0].op, "add");
  EXPECT_EQ(culprits[0].layer, "scores");
  EXPECT_EQ(culprits[0].element, 2u);
  EXPECT_EQ(culprits[0].wide_value, 80000.0);
}

TEST(Culprits, ARowOfMaskOnly) {
  const CulpritNetOptions net{.second = second_row(0, 1.0f), .between = [](Tape& tape, const Variable& h) {
                                const ScopeGuard scope(tape, "scores");
                                const Variable mask = tape.constant(
                                    tensor_of(tape.backend(), {1, 5}, std::vector<float>(5, -infinity)));
                                return ops::softmax(ops::add(h, mask), 1);
                              }};
  const auto run = culprit_run(equal_rows(2, 1.0f), net, one_step(1.0));
  const auto culprits = culprits_of(*run);
  ASSERT_FALSE(culprits.empty());
  EXPECT_EQ(culprits[0].cause, CulpritCause::infinity);
  EXPECT_EQ(culprits[0].layer, "scores");
  EXPECT_TRUE(std::isnan(culprits[0].value));
}

TEST(Culprits, SumsOfSixteenBitGradientsOverMicroBatches) {
  // At O2 of apex gradients add up in FP16: each micro-batch brings less than 65504, two of them more.
  RunSetup setup = one_step(64.0);
  setup.amp = {.level = Level::O2, .dialect = amp::Dialect::apex};
  setup.train.accumulate = 2;
  setup.train.accumulate_mode = AccumulateMode::sum;
  const auto run = culprit_run(equal_rows(1, 0x1p-4f, 1), opposed(1000.0f * 0.5f), setup);
  // dX[0] = 64 * 1000 = 64000 each time: fc1.bias gets 64000 twice.
  const auto culprits = culprits_of(*run);
  ASSERT_THAT(culprits, SizeIs(1));
  EXPECT_EQ(culprits[0].pass, CulpritPass::backward);
  EXPECT_EQ(culprits[0].tensor, "fc1.bias");
  EXPECT_EQ(culprits[0].part, "add");
  EXPECT_EQ(culprits[0].micro_batch, 1u);
  EXPECT_EQ(culprits[0].wide_value, 128000.0);
}

TEST(Culprits, NothingIsBlamedWhereNothingOverflows) {
  const auto run = culprit_run(equal_rows(4, 1.0f), {.second = second_row(1, 1.0f)}, one_step(1024.0));
  run->trainer.run();
  EXPECT_THAT(run->recorder.overflows, IsEmpty());
}

// ---- bits -------------------------------------------------------------------------------------------------

/// The same hashes with and without; returns the culprits of the overflows, which were all explained.
std::vector<CulpritRow> expect_no_bit_changed(const std::function<std::unique_ptr<MethodRun>()>& make) {
  const auto plain = make(), explained = make();
  explained->recorder.explain = true;
  plain->trainer.run();
  explained->trainer.run();
  EXPECT_EQ(hashes_of(*plain), hashes_of(*explained));
  EXPECT_EQ(plain->weights(), explained->weights());
  EXPECT_EQ(plain->recorder.overflows.size(), explained->recorder.overflows.size());
  EXPECT_THAT(plain->recorder.explained, IsEmpty());
  std::set<std::uint64_t> told;
  for (const CulpritRow& culprit : explained->recorder.culprits) told.insert(culprit.step);
  for (const OverflowRow& record : explained->recorder.overflows)
    EXPECT_TRUE(told.contains(record.step)) << "step " << record.step;
  EXPECT_EQ(told.size(), explained->recorder.overflows.size());
  return explained->recorder.culprits;
}

RunSetup overflowing(Level level, amp::Dialect dialect) {
  RunSetup setup;
  setup.train = {.steps = 6, .accumulate = 2, .seed = 3};
  setup.amp = {.level = level, .dialect = dialect};
  setup.scaler = {.policy = "dynamic", .initial_scale = 0x1p20, .growth_interval = 3};
  return setup;
}

TEST(Culprits, SupervisedStepsKeepTheirBitsAtEveryLevel) {
  for (const amp::Dialect dialect : every<amp::Dialect>) {
    for (const Level level : amp::levels_of(dialect)) {
      SCOPED_TRACE(std::string(name_of(dialect)) + " " + std::string(name_of(level)));
      const RunSetup setup = overflowing(level, dialect);
      const auto culprits = expect_no_bit_changed([&] {
        return std::make_unique<MethodRun>(
            class_batches(7), [](Backend& backend) { return std::make_unique<StatefulNet>(backend); },
            MethodRun::MakeMethod{}, setup);
      });
      EXPECT_EQ(culprits.empty(), level == Level::O0);
      for (const CulpritRow& culprit : culprits) {
        if (culprit.pass == CulpritPass::forward) continue;
        ASSERT_TRUE(culprit.finite_scale.has_value()) << culprit.step;
        EXPECT_LT(*culprit.finite_scale, culprit.loss_scale);
        EXPECT_GT(*culprit.finite_scale, 0);
      }
    }
  }
}

TEST(Culprits, OtherMethodsKeepTheirBits) {
  const RunSetup setup = overflowing(Level::O1, amp::Dialect::torch);
  const auto overflows = [&](const MethodRun::MakeModel& model, const MethodRun::MakeMethod& method,
                             const RunSetup& with) {
    return expect_no_bit_changed(
        [&] { return std::make_unique<MethodRun>(class_batches(7), model, method, with); });
  };
  const MethodRun::MakeModel mlp = [](Backend& backend) {
    return std::make_unique<nn::Mlp>(backend, nn::MlpOptions{.widths = {6, 5, 3}, .seed = 3});
  };
  EXPECT_FALSE(overflows(
                   mlp, [] { return std::make_unique<GradientPenalty>(); }, setup)
                   .empty());
  for (const bool per_loss : {false, true}) {
    SCOPED_TRACE(per_loss);
    RunSetup with = setup;
    with.scaler.per_loss = per_loss;
    EXPECT_FALSE(overflows(
                     [](Backend& backend) {
                       return gan_of(backend, {4, 8, 6}, {6, 5, 1});
                     },
                     [] { return std::make_unique<AdversarialTraining>(); }, with)
                     .empty());
    EXPECT_FALSE(overflows(
                     [](Backend& backend) {
                       const auto part = [&](const char* path) {
                         return std::make_unique<nn::Mlp>(
                             backend, nn::MlpOptions{.widths = {6, 5, 3}, .path = path, .seed = 3});
                       };
                       return std::make_unique<nn::ModelPair>(part("model0"), part("model1"));
                     },
                     [] { return std::make_unique<TwoModels>(); }, with)
                     .empty());
  }
}

TEST(Culprits, AResumedRunNamesTheSame) {
  const testing_support::TemporaryFolder folder;
  const RunSetup setup = overflowing(Level::O1, amp::Dialect::torch);
  const auto make = [&] {
    auto run = std::make_unique<MethodRun>(
        class_batches(7), [](Backend& backend) { return std::make_unique<StatefulNet>(backend); },
        MethodRun::MakeMethod{}, setup);
    run->recorder.explain = true;
    return run;
  };
  const auto whole = make(), tail = make();
  whole->recorder.folder = folder.path();
  whole->trainer.run();
  ASSERT_GT(whole->recorder.overflows.size(), 1u);
  tail->trainer.resume(CheckpointFile(folder.path() / "1"));
  tail->trainer.run();
  ASSERT_EQ(tail->recorder.overflows.size() + 1, whole->recorder.overflows.size());
  std::vector<CulpritRow> later = whole->recorder.culprits;
  std::erase_if(later, [](const CulpritRow& row) { return row.step == 1; });
  ASSERT_EQ(tail->recorder.culprits.size(), later.size());
  for (std::size_t i = 0; i < later.size(); ++i) {
    const CulpritRow &a = later[i], &b = tail->recorder.culprits[i];
    EXPECT_EQ(a.step, b.step);
    EXPECT_EQ(a.tensor, b.tensor);
    EXPECT_EQ(a.element, b.element);
    EXPECT_EQ(a.wide_value, b.wide_value);
  }
}

}  // namespace
}  // namespace fp16lab::engine::test::culprits_test
