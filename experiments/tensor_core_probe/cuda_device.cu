// The probe's GPU: that of experiments/capture/capture.cu, and wgmma where there is a Hopper.
#define FP16LAB_CAPTURE_KERNELS
#include "experiments/capture/capture.cu"
#include "experiments/tensor_core_probe/device.hpp"

namespace fp16lab::probe {
namespace {

class ProbedGpu final : public Gpu {
 public:
  using Gpu::run;
  bool has(const Instruction& in) const override {
    return in.unit == Unit::wgmma ? info().capability.architecture() == 90 : Gpu::has(in);
  }
  Words run(const Instruction& in, const Tiles& tiles, bool scale_d) override {
    if (in.unit != Unit::wgmma) return Gpu::run(in, tiles, scale_d);
    return run_with(in, tiles, [&](unsigned count, const DeviceTiles& on_device) {
      launch_wgmma(in, count, on_device, scale_d);
    });
  }
};

}  // namespace

std::unique_ptr<Device> open_cuda_device(std::string& reason) {
  try {
    return std::make_unique<ProbedGpu>();
  } catch (const std::runtime_error& error) {
    reason = error.what();
    return nullptr;
  }
}

}  // namespace fp16lab::probe
