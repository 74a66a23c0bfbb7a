// The emulated back end as the saturating mode of Ascend has it (FloatOverflow::saturate).
//
// CANN, aclrtFloatOverflowMode: in saturation mode a result that would be Inf is the largest magnitude, and
// one that would be NaN is 0; the Atlas training series has no other mode. The device keeps a float status:
// MindSpore 2.10 clears it before a step and takes it for the step's overflow, instead of looking at the
// gradients (mindspore/nn/wrap/loss_scale.py: start_overflow_check, get_overflow_status). Here both are of
// FP16 results alone; an Inf among FP32 gradients is an overflow as ever. Moves of elements round nothing,
// and probes count what was stored before it saturated.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>

#include "engine/backend/emulated/backend_impl.hpp"
#include "engine/backend/emulated/emulated_backend.hpp"

namespace fp16lab::engine {

namespace {

/// Saturates FP16 words in place; was there an Inf or NaN?
bool saturate_words(std::uint16_t* words, std::int64_t count) {
  bool found = false;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint16_t magnitude = words[i] & Binary16::magnitude_mask;
    if (magnitude < Binary16::infinity) continue;
    found = true;
    words[i] = magnitude > Binary16::infinity
                   ? std::uint16_t{0}
                   : static_cast<std::uint16_t>((words[i] ^ magnitude) | Binary16::max_finite);
  }
  return found;
}

class SaturatingBackend final : public EmulatedBackend {
 public:
  using EmulatedBackend::EmulatedBackend;

  void cast(const Tensor& x, Tensor& out, CastProbe* probe) override {
    EmulatedBackend::cast(x, out, probe);
    saturate(out);
  }
  void cast_stochastic(const Tensor& x, Tensor& out, const PhiloxStream& stream, const Tensor& step,
                       CastProbe* probe) override {
    EmulatedBackend::cast_stochastic(x, out, stream, step, probe);
    saturate(out);
  }
  void unary(UnaryOp op, const Tensor& x, Tensor& out) override {
    EmulatedBackend::unary(op, x, out);
    saturate(out);
  }
  void binary(BinaryOp op, const Tensor& a, const Tensor& b, Tensor& out) override {
    EmulatedBackend::binary(op, a, b, out);
    saturate(out);
  }
  void scale(const Tensor& x, float factor, Tensor& out) override {
    EmulatedBackend::scale(x, factor, out);
    saturate(out);
  }
  void divide(const Tensor& x, float divisor, Tensor& out) override {
    EmulatedBackend::divide(x, divisor, out);
    saturate(out);
  }
  void reduce(ReduceOp op, const Tensor& x, int axis, Tensor& out, CastProbe* probe) override {
    EmulatedBackend::reduce(op, x, axis, out, probe);
    saturate(out);
  }
  void scatter_rows(const Tensor& x, const Tensor& index, Tensor& out, CastProbe* probe) override {
    EmulatedBackend::scatter_rows(x, index, out, probe);
    saturate(out);
  }
  void gemm(const GemmCall& call) override {
    EmulatedBackend::gemm(call);
    saturate(call.out);
  }
  void lstm_cell(const LstmCellCall& call) override {
    EmulatedBackend::lstm_cell(call);
    for (Tensor* const out : {&call.gates, &call.cells, &call.outputs, &call.hidden}) saturate(*out);
  }
  void lstm_cell_gradient(const LstmCellGradientCall& call) override {
    EmulatedBackend::lstm_cell_gradient(call);
    saturate(call.gate_gradients);
    saturate(call.step_gradients);
    if (call.previous_cell_gradient != nullptr) saturate(*call.previous_cell_gradient);
  }
  void conv2d(const Tensor& x, const Tensor& weight, const Conv2dGeometry& geometry, const Tensor* bias,
              Tensor& out, CastProbe* probe) override {
    EmulatedBackend::conv2d(x, weight, geometry, bias, out, probe);
    saturate(out);
  }
  void conv2d_input_gradient(const Tensor& gradient, const Tensor& weight, const Conv2dGeometry& geometry,
                             const Tensor* bias, Tensor& out, CastProbe* probe) override {
    EmulatedBackend::conv2d_input_gradient(gradient, weight, geometry, bias, out, probe);
    saturate(out);
  }
  void conv2d_weight_gradient(const Tensor& x, const Tensor& gradient, const Conv2dGeometry& geometry,
                              Tensor& out, CastProbe* probe) override {
    EmulatedBackend::conv2d_weight_gradient(x, gradient, geometry, out, probe);
    saturate(out);
  }
  void pool_place(const Tensor& x, const Tensor& index, Layout layout, Tensor& out) override {
    EmulatedBackend::pool_place(x, index, layout, out);
    saturate(out);
  }
  void average_pool2d(const Tensor& x, const Pool2dGeometry& geometry, Tensor& out) override {
    EmulatedBackend::average_pool2d(x, geometry, out);
    saturate(out);
  }
  void average_pool2d_transposed(const Tensor& x, const Pool2dGeometry& geometry, Tensor& out) override {
    EmulatedBackend::average_pool2d_transposed(x, geometry, out);
    saturate(out);
  }

  /// A step begins with a clear status, and so does a backward pass that is done again.
  void run(const ScalarProgram& program, Tensor& step) override {
    EmulatedBackend::run(program, step);
    if (program.name == "train.begin_iteration" || program.name == "train.begin_rescue") status_ = false;
  }
  /// found_inf is also the status.
  void unscale(std::span<Tensor> gradients, int optimizer, Tensor& step) override {
    EmulatedBackend::unscale(gradients, optimizer, step);
    if (!status_) return;
    StepState state = read_step_state(step);
    state.found_inf[static_cast<std::size_t>(optimizer)] = 1.0f;
    write_step_state(state, step);
  }

  void update(const UpdateCall& call) override {
    EmulatedBackend::update(call);
    saturate(call.weight);
  }

 private:
  void saturate(Tensor& out) {
    if (out.dtype() != DType::f16) return;
    auto* const words = reinterpret_cast<std::uint16_t*>(out.data());
    workers().for_each_element_chunk(out.element_count(), [&](std::int64_t begin, std::int64_t end) {
      if (saturate_words(words + begin, end - begin)) status_.store(true, std::memory_order_relaxed);
    });
  }

  std::atomic<bool> status_ = false;
};

}  // namespace

std::unique_ptr<Backend> make_emulated_backend(const TensorCoreModel& model, int threads,
                                               FloatOverflow overflow, const LibraryOrder& library) {
  if (overflow == FloatOverflow::saturate)
    return std::make_unique<SaturatingBackend>(model, threads, library);
  return std::make_unique<EmulatedBackend>(model, threads, library);
}

std::unique_ptr<Backend> make_emulated_backend(std::string_view tensor_core, DType accumulator, int threads,
                                               FloatOverflow overflow, const LibraryOrder& library) {
  const DType operands = usual_operands(tensor_core, accumulator);
  return make_emulated_backend(tensor_core_model(tensor_core, operands, accumulator), threads, overflow,
                               library);
}

}  // namespace fp16lab::engine
