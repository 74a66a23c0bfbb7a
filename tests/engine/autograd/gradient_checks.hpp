// Every op has a gradient check: which file has it, and whether what that file checks calls the op.
#pragma once

#include <bitset>
#include <span>
#include <vector>

#include "engine/autograd/cast_policy.hpp"
#include "engine/autograd/dispatch.hpp"
#include "tests/engine/autograd/twin.hpp"

namespace fp16lab::engine::test {

/// The file NAME_test.cpp.
enum class CheckedIn {
  gradients,
  convolution,
  conv_transpose,
  pooling,
  normalization_twin,
  loss_twin,
  custom_op
};

/// Where an op has no line, gradients_test.cpp has to have it.
constexpr CheckedIn checked_in(Op op) {
  switch (op) {
    case Op::conv2d:
    case Op::conv2d_input_gradient:
    case Op::conv2d_weight_gradient:
      return CheckedIn::convolution;
    case Op::conv_transpose2d:
      return CheckedIn::conv_transpose;
    case Op::max_pool2d:
    case Op::pool_pick:
    case Op::pool_place:
    case Op::average_pool2d:
    case Op::average_pool2d_transposed:
      return CheckedIn::pooling;
    case Op::softmax:
    case Op::log_softmax:
    case Op::layer_norm:
    case Op::rms_norm:
    case Op::group_norm:
    case Op::batch_norm:
      return CheckedIn::normalization_twin;
    case Op::softmax_cross_entropy:
    case Op::mse_loss:
    case Op::l1_loss:
    case Op::huber_loss:
    case Op::binary_cross_entropy:
    case Op::binary_cross_entropy_with_logits:
      return CheckedIn::loss_twin;
    case Op::custom:
      return CheckedIn::custom_op;
    default:
      return CheckedIn::gradients;
  }
}

/// Notes every op that a function calls or records, and changes nothing.
class OpRecorder final : public Tap, public CastPolicy {
 public:
  std::bitset<op_count> ops;

  bool wants(const Site& site) override { return site.what == What::values; }
  void see(const Event& event) override {
    if (const auto* recorded = event.as<Recorded>()) note(recorded->op);
  }

  DType compute_dtype(OpSite site, std::span<const DType> inputs) override {
    note(site.op);
    return inputs.size() == 1 ? inputs.front() : DType::f32;
  }
  Variable cast(const Variable& input, DType dtype) override { return ops::cast(input, dtype); }

 private:
  void note(Op op) { ops.set(static_cast<std::size_t>(op)); }
};

/// What a file checks: its functions, called once.
class GradientChecks {
 public:
  void add(const Function& function, const std::vector<HostTensor>& inputs) {
    const auto backend = hopper_backend();
    Tape tape(*backend);
    tape.set_taps({&recorder_});
    const CastPolicyGuard guard(tape, &recorder_);
    function(tape, inputs_on(tape, inputs));
  }
  void add(const std::vector<TwinCase>& cases) {
    for (const TwinCase& one : cases) add(one.function, one.inputs);
  }
  /// A leaf is no op.
  void expect_all_of(CheckedIn file) const {
    for (std::size_t i = 0; i < op_count; ++i) {
      const Op op = static_cast<Op>(i);
      EXPECT_TRUE(op == Op::leaf || checked_in(op) != file || recorder_.ops.test(i))
          << name_of(op) << ": its gradient is not checked";
    }
  }

 private:
  OpRecorder recorder_;
};

}  // namespace fp16lab::engine::test
