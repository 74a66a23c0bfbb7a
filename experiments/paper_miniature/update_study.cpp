#include "experiments/paper_miniature/update_study.hpp"

#include <memory>
#include <span>
#include <utility>

#include "engine/train/trainer.hpp"
#include "experiments/app/exit_code.hpp"
#include "experiments/app/process.hpp"
#include "experiments/app/run/prepared_run.hpp"
#include "numerics/arithmetic/arithmetic.hpp"
#include "numerics/convert/convert.hpp"

namespace fp16lab::experiments {
namespace {

using Half = SmallFloat<Binary16>;

/// The stored values, widened: 16-bit ones exactly.
std::vector<float> values_of(engine::Backend& backend, const engine::Tensor& tensor) {
  engine::Tensor wide = tensor;
  if (tensor.dtype() != DType::f32) {
    wide = backend.empty(tensor.shape(), DType::f32);
    backend.cast(tensor, wide);
  }
  std::vector<float> values(static_cast<std::size_t>(wide.element_count()));
  backend.download(wide, std::as_writable_bytes(std::span(values)));
  return values;
}

void count(UpdateStudy& study, const std::vector<float>& before, const std::vector<float>& after) {
  study.elements += before.size();
  for (std::size_t i = 0; i < before.size(); ++i) {
    const float update = after[i] - before[i];
    study.updates.count(bits_of(update));
    if (update == 0.0f) continue;
    const Half weight = narrow<Binary16>(before[i]), step = narrow<Binary16>(update);
    if ((step.bits() & Binary16::magnitude_mask) == 0)
      ++study.too_small;
    else if (add(weight, step).bits() == weight.bits())
      ++study.absorbed;
  }
}

class UpdateWatcher final : public engine::TrainObserver {
 public:
  UpdateWatcher(std::uint64_t every, UpdateStudy& study) : every_(every), study_(&study) {}
  void watch(engine::Backend& backend, const std::vector<engine::Parameter*>& parameters) {
    backend_ = &backend;
    for (engine::Parameter* parameter : parameters)
      if (!parameter->name.ends_with("bias")) weights_.push_back(parameter);
    keep();
  }

  void on_step(const StepRow& row) override {
    if (looks_at(row.step) && !row.skipped) {
      for (std::size_t i = 0; i < weights_.size(); ++i)
        count(*study_, before_[i], values_of(*backend_, weights_[i]->value));
      ++study_->steps;
    }
    if (looks_at(row.step + 1)) keep();
  }
  bool stop_requested() override { return interrupted(); }

 private:
  bool looks_at(std::uint64_t step) const { return (step - 1) % every_ == 0; }
  void keep() {
    before_.clear();
    for (const engine::Parameter* weight : weights_) before_.push_back(values_of(*backend_, weight->value));
  }

  std::uint64_t every_;
  UpdateStudy* study_;
  engine::Backend* backend_ = nullptr;
  std::vector<engine::Parameter*> weights_;
  std::vector<std::vector<float>> before_;
};

}  // namespace

UpdateStudy study_updates(const RunConfig& config, std::uint64_t every, int threads) {
  const std::unique_ptr<PreparedRun> prepared = prepare_run(resolve_run(config), threads);
  UpdateStudy study;
  UpdateWatcher watcher(every, study);
  engine::Trainer trainer(*prepared->backend, prepared->workload, prepared->plan, watcher);
  watcher.watch(*prepared->backend, trainer.parameters());
  if (trainer.run().end == engine::RunResult::End::stopped)
    throw CommandError(ExitCode::interrupted, "interrupted; the same command carries on");
  return study;
}

}  // namespace fp16lab::experiments
