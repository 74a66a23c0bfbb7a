#include "experiments/device_acceptance/trained_case.hpp"

#include <stdexcept>
#include <utility>

#include "experiments/app/config/shipped_configs.hpp"

namespace fp16lab::experiments::acceptance {

namespace {

/// Else what it is cast to is made, and counted, in the forward pass.
bool reads_as_it_is(engine::Iteration& iteration, const engine::Variable& input) {
  return iteration.autocast().plan().level != engine::amp::Level::O1 &&
         input.dtype() == iteration.model().parameters().front()->dtypes.model;
}

/// Does what engine::Supervised does with one micro-batch, and looks at the pool between its two passes.
class ForwardMemory final : public engine::TrainingMethod {
 public:
  explicit ForwardMemory(std::size_t& bytes) : bytes_(&bytes) {}

  void run(engine::Iteration& iteration) override {
    if (iteration.micro_batches() != 1) throw std::logic_error("ForwardMemory: one micro-batch is watched");
    const auto in_use = [&] { return iteration.backend().memory_statistics().bytes_in_use; };
    {
      const engine::amp::AutocastGuard autocast(iteration.tape(), iteration.autocast());
      engine::data::Batch batch = iteration.begin_micro_batch(0);
      const engine::Variable input = iteration.network_input(batch.inputs);
      batch.inputs = {};
      const std::size_t before = in_use();
      const engine::Variable values = iteration.model().forward(iteration.tape(), input);
      *bytes_ = in_use() - before + (reads_as_it_is(iteration, input) ? input.tensor().byte_count() : 0);
      const engine::Variable loss = iteration.loss_of(iteration.network_output(values), batch.targets);
      iteration.record_loss(loss);
      iteration.backward(iteration.accumulated(loss));
      iteration.tape().reset();
    }
    engine::optim::Optimizer& optimizer = iteration.optimizer(0);
    iteration.unscale(optimizer);
    iteration.clip(optimizer);
    iteration.step(optimizer);
  }
  Evaluation evaluate(engine::Iteration& iteration, const engine::data::Batch& batch) override {
    return engine::Supervised().evaluate(iteration, batch);
  }

 private:
  std::size_t* bytes_;
};

}  // namespace

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
  for (const std::string& setting : all) apply_setting(config, setting, "acceptance");
  config.backend.device = "cuda";  // what the configuration is checked for
  config.backend.tensor_core = settings.side.tensor_core;
  resolve_run(config, "acceptance");
  return config;
}

TrainedCase::TrainedCase(const RunConfig& config, std::unique_ptr<engine::Backend> backend, bool histograms,
                         bool activations)
    : run_(prepare_run(resolve_run(config), std::move(backend))),
      watcher_(std::make_unique<Watcher>(histograms)) {
  if (activations) run_->workload.method = std::make_unique<ForwardMemory>(activation_bytes_);
  trainer_ = std::make_unique<engine::Trainer>(*run_->backend, run_->workload, run_->plan, *watcher_);
}

TrainedCase::~TrainedCase() = default;

}  // namespace fp16lab::experiments::acceptance
