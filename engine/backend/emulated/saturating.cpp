// The emulated back end as the saturating mode of Ascend has it (FloatOverflow::saturate).
//
// CANN, aclrtFloatOverflowMode: in saturation mode a result that would be Inf is the largest magnitude, and
// one that would be NaN is 0; the Atlas training series has no other mode. The device keeps a float status:
// MindSpore 2.10 clears it before a step and takes it for the step's overflow, instead of looking at the
// gradients (mindspore/nn/wrap/loss_scale.py: start_overflow_check, get_overflow_status). Here both concern
// FP16 results alone; an Inf among FP32 gradients is an overflow as usual. Moves of elements round nothing,
// and probes count what was stored before it saturated.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>

#include "engine/backend/emulated/backend_impl.hpp"
#include "engine/backend/emulated/emulated_backend.hpp"
#include "engine/backend/emulated/recording.hpp"

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

class SaturatingBackend : public EmulatedBackend {
 public:
  using EmulatedBackend::EmulatedBackend;

 protected:
  void rounded(Tensor& out) override {
    if (out.dtype() != DType::f16) return;
    auto* const words = reinterpret_cast<std::uint16_t*>(out.data());
    workers().for_each_element_chunk(out.element_count(), [&](std::int64_t begin, std::int64_t end) {
      if (saturate_words(words + begin, end - begin)) status_.store(true, std::memory_order_relaxed);
    });
  }

  /// A step begins with a clear status, and so does a backward pass that is done again.
  void do_run(const ScalarProgram& program, Tensor& step) override {
    EmulatedBackend::do_run(program, step);
    if (program.name == "train.begin_iteration" || program.name == "train.begin_rescue") status_ = false;
  }
  /// found_inf is also the status.
  void do_gradient_pass(const GradientPassCall& call) override {
    EmulatedBackend::do_gradient_pass(call);
    if (!status_ || call.pass != GradientPass::unscale) return;
    StepState state = read_step_state(*call.step);
    state.found_inf[static_cast<std::size_t>(call.optimizer)] = 1.0f;
    write_step_state(state, *call.step);
  }

 private:
  std::atomic<bool> status_ = false;
};

}  // namespace

std::unique_ptr<Backend> make_emulated_backend(const TensorCoreModel& model, int threads,
                                               FloatOverflow overflow, const LibraryOrder& library) {
  if (overflow == FloatOverflow::saturate)
    return std::make_unique<Recordable<SaturatingBackend>>(model, threads, library);
  return std::make_unique<Recordable<EmulatedBackend>>(model, threads, library);
}

std::unique_ptr<Backend> make_emulated_backend(std::string_view tensor_core, DType accumulator, int threads,
                                               FloatOverflow overflow, const LibraryOrder& library) {
  const DType operands = usual_operands(tensor_core, accumulator);
  return make_emulated_backend(tensor_core_model(tensor_core, operands, accumulator), threads, overflow,
                               library);
}

}  // namespace fp16lab::engine
