#include "experiments/device_acceptance/trained_case.hpp"

#include <utility>

namespace fp16lab::experiments::acceptance {

class TrainedCase::Watcher final : public engine::TrainObserver {
 public:
  explicit Watcher(bool histograms) : histograms_(histograms) {}
  bool wants_gradients(std::uint64_t) override { return histograms_; }
  void on_gradient(const engine::GradientRecord&) override {}
  void on_step(const engine::StepRecord&) override {}
  void on_evaluation(const engine::EvaluationRecord&) override {}
  bool stop_requested() override { return false; }

 private:
  bool histograms_;
};

RunConfig tutorial_config(const Settings& settings, const std::string& system,
                          const std::vector<std::string>& set) {
  const bool linear9 = system == "paddle_linear9";
  std::vector<std::string> all{
      "model.name=regression",
      "model.init=xavier_uniform",
      linear9 ? "model.widths=[8192, 8192, 8192, 8192, 8192, 8192, 8192, 8192, 8192, 8192]"
              : "model.widths=[4096, 4096, 4096, 4096]",
      linear9 ? "model.activation=none" : "model.activation=relu",
      linear9 ? "data.name=uniform" : "data.name=normal",
      linear9 ? "train.batch_size=2048" : "train.batch_size=512",
      "train.steps=1000",
      "train.accumulate_mode=sum",
      "optimizer.name=sgd",
      "optimizer.lr=1e-4",
      "optimizer.momentum=0",
      "amp.dialect=paddle",
      "scaler.policy=dynamic",
      "scaler.initial_scale=1024"};
  if (settings.rehearsal()) all.emplace_back("model.scale_down=256");
  all.insert(all.end(), set.begin(), set.end());
  RunConfig config;
  for (const std::string& setting : all) apply_setting(config, setting, "acceptance");
  config.backend.device = "cuda";  // what the configuration is checked for
  config.backend.tensor_core = settings.side.tensor_core;
  resolve_run(config, "acceptance");
  return config;
}

TrainedCase::TrainedCase(const RunConfig& config, std::unique_ptr<engine::Backend> backend, bool histograms,
                         bool activations)
    : run_(prepare_run(resolve_run(config), std::move(backend))), watcher_(std::make_unique<Watcher>(histograms)) {
  if (activations) run_->workload.method = std::make_unique<ForwardMemory>(activations_);
  trainer_ = std::make_unique<engine::Trainer>(*run_->backend, run_->workload, run_->plan, *watcher_);
}

TrainedCase::~TrainedCase() = default;

}  // namespace fp16lab::experiments::acceptance
