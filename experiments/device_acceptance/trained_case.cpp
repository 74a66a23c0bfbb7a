#include "experiments/device_acceptance/trained_case.hpp"

#include <utility>

#include "experiments/app/config/shipped_configs.hpp"

namespace fp16lab::experiments::acceptance {

class TrainedCase::Watcher final : public engine::TrainObserver {
 public:
  explicit Watcher(bool histograms) : histograms_(histograms) {}
  bool wants_gradients(std::uint64_t) override { return histograms_; }

 private:
  bool histograms_;
};

RunConfig tutorial_config(const Settings& settings, const std::string& system,
                          const std::vector<std::string>& set) {
  std::vector<std::string> all{"train.steps=1000"};
  if (settings.rehearsal()) all.emplace_back("model.scale_down=256");
  all.insert(all.end(), set.begin(), set.end());
  RunConfig config = load_config(shipped_config(system + ".toml"));
  apply_settings(config, all, "acceptance");
  config.backend.device = "cuda";  // what the configuration is checked for
  config.backend.tensor_core = settings.side.tensor_core;
  leave_out_unread(config);
  resolve_run(config, "acceptance");
  return config;
}

TrainedCase::TrainedCase(const RunConfig& config, std::unique_ptr<engine::Backend> backend, bool histograms)
    : run_(prepare_run(resolve_run(config), std::move(backend))),
      watcher_(std::make_unique<Watcher>(histograms)) {
  trainer_ = std::make_unique<engine::Trainer>(*run_->backend, run_->workload, run_->plan, *watcher_);
}

TrainedCase::~TrainedCase() = default;

}  // namespace fp16lab::experiments::acceptance
