// One small network, op by op, against the dtypes that MindSpore gave the same network: mindspore 2.10.0 (CPU
// wheel), amp.auto_mixed_precision(net, level, dtype = mstype.float16), training mode, FP32 input (8, 16);
// read from a run on 2026-11-21. Dense(16, 16), ReLU, LayerNorm, BatchNorm1d, Sigmoid, Dense(16, 4), Softmax;
// and of the first Dense's output: + 1.0, ReduceMean, exp.
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/amp/levels/autocast.hpp"
#include "engine/amp/levels/decorate.hpp"
#include "engine/nn/linear.hpp"
#include "engine/nn/normalization.hpp"
#include "tests/engine/autograd/support.hpp"
#include "tests/engine/nn/support.hpp"

namespace fp16lab::engine::test {
namespace {

using Dtypes = std::map<std::string, DType>;

class PeerNet final : public nn::Module {
 public:
  explicit PeerNet(Backend& backend)
      : fc_(add_child(
            std::make_unique<nn::Linear>(backend, "fc", nn::LinearOptions{.inputs = 16, .outputs = 16}))),
        ln_(add_child(std::make_unique<nn::LayerNorm>(backend, "ln", 16))),
        bn_(add_child(std::make_unique<nn::BatchNorm>(backend, "bn", nn::BatchNormOptions{.features = 16}))),
        fc2_(add_child(
            std::make_unique<nn::Linear>(backend, "fc2", nn::LinearOptions{.inputs = 16, .outputs = 4}))) {}

  Variable forward(Tape& tape, const Variable& x) override {
    const Variable fc = fc_.forward(tape, x), relu = ops::relu(fc), ln = ln_.forward(tape, relu),
                   bn = bn_.forward(tape, ln), sigmoid = ops::sigmoid(bn), fc2 = fc2_.forward(tape, sigmoid);
    // A scalar constant has the dtype of the tensor beside it, as a number in Python.
    const Variable one = ops::cast(tape.constant(tensor_of(tape.backend(), {1}, {1.0f})), fc.dtype());
    seen = {{"fc", fc.dtype()},
            {"relu", relu.dtype()},
            {"ln", ln.dtype()},
            {"bn", bn.dtype()},
            {"sigmoid", sigmoid.dtype()},
            {"fc2", fc2.dtype()},
            {"softmax", ops::softmax(fc2, 1).dtype()},
            {"add", ops::add(fc, one).dtype()},
            {"mean", ops::mean(fc).dtype()},
            {"exp", ops::exp(fc).dtype()}};
    return fc2;
  }

  Dtypes seen;

 private:
  nn::Linear& fc_;
  nn::LayerNorm& ln_;
  nn::BatchNorm& bn_;
  nn::Linear& fc2_;
};

/// MindSpore's output: every op of a level gave one dtype; outputs and parameters were Float32 at all of
/// them.
struct PeerLevel {
  amp::Level level;
  DType every_op;
};
constexpr PeerLevel mindspore_levels[] = {{amp::Level::O0, DType::f32},
                                          {amp::Level::O1, DType::f32},
                                          {amp::Level::O2, DType::f16},
                                          {amp::Level::O3, DType::f16}};

TEST(MindSporeRun, EveryOpHandsOnTheDtypeThatTheFrameworkDoes) {
  for (const PeerLevel& peer : mindspore_levels) {
    SCOPED_TRACE(name_of(peer.level));
    const auto backend = hopper_backend();
    Tape tape(*backend);
    tape.set_context({.training = true, .step = backend->make_step_state(StepState{})});
    PeerNet net(*backend);
    amp::Autocast autocast(tape, {.level = peer.level, .dialect = amp::Dialect::mindspore});
    const amp::AmpPlan& plan = autocast.plan();
    amp::decorate(*backend, net.parameters(), plan);
    Variable x = tape.constant(tensor_of(*backend, {8, 16}, uniform_values(8 * 16, 1, 1.0f)));
    if (plan.rules.low_inputs) x = ops::cast(x, plan.low);
    const amp::AutocastGuard guard(tape, autocast);
    const Variable y = net.forward(tape, x);
    for (const auto& [op, dtype] : net.seen) EXPECT_EQ(name_of(dtype), name_of(peer.every_op)) << op;
    EXPECT_EQ(plan.rules.f32_outputs || y.dtype() == DType::f32, true) << "their network's output is FP32";
    for (const Parameter* parameter : net.parameters())
      EXPECT_EQ(parameter->value.dtype(), DType::f32) << parameter->name;
  }
}

}  // namespace
}  // namespace fp16lab::engine::test
