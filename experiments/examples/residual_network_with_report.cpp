// A network of one's own, with BatchNorm and a residual sum: trained in FP16, recorded, and shown as a page.
#include <iostream>
#include <memory>

#include "fp16lab/engine/backend/emulated/emulated_backend.hpp"
#include "fp16lab/engine/data/synthetic.hpp"
#include "fp16lab/engine/nn/linear.hpp"
#include "fp16lab/engine/nn/normalization.hpp"
#include "fp16lab/engine/train/trainer.hpp"
#include "fp16lab/numerics/files/run/run_folder.hpp"
#include "fp16lab/reports/page/report.hpp"

using namespace fp16lab;
using namespace fp16lab::engine;

class ResidualNetwork final : public nn::Module {
 public:
  explicit ResidualNetwork(Backend& backend)
      : first_(add_child(std::make_unique<nn::Linear>(backend, "fc1", nn::LinearOptions{8, 32}))),
        second_(add_child(std::make_unique<nn::Linear>(backend, "fc2", nn::LinearOptions{32, 32}))),
        norm_(
            add_child(std::make_unique<nn::BatchNorm>(backend, "bn2", nn::BatchNormOptions{.features = 32}))),
        head_(add_child(std::make_unique<nn::Linear>(backend, "fc3", nn::LinearOptions{32, 1}))) {}
  Variable forward(Tape& tape, const Variable& x) override {
    const Variable a = ops::relu(first_.forward(tape, x));
    const Variable b = ops::relu(ops::add(a, norm_.forward(tape, second_.forward(tape, a))));
    return head_.forward(tape, b);
  }

 private:
  nn::Linear &first_, &second_;
  nn::BatchNorm& norm_;
  nn::Linear& head_;
};

/// Rows that the trainer hands over are the rows of a run folder. Gradients are counted in every tenth step.
class Recorder final : public Tap {
 public:
  explicit Recorder(RunWriter& writer) : writer_(&writer) {}
  bool wants(const Site& site) override { return site.what == What::gradients && site.step % 10 == 0; }
  void see(const Event& event) override {
    if (const auto* row = event.as<HistogramRow>()) writer_->append(*row);
    if (const auto* row = event.as<StepRow>()) writer_->append(*row);
  }

 private:
  RunWriter* writer_;
};

int main(int argc, char** argv) {
  const std::filesystem::path folder = argc > 1 ? argv[1] : "results/residual";
  const auto backend = make_emulated_backend(tensor_core_model("hopper"), /*threads=*/1);
  data::SyntheticBatches numbers({.batch_size = 32, .inputs = {8}, .outputs = 1, .batches = 4});
  Workload workload{
      .model = std::make_unique<ResidualNetwork>(*backend), .training = &numbers, .loss = LossKind::mse};
  RunWriter writer(folder, {.config = "[model]\nname = \"residual\"\n[amp]\nlevel = \"O1\"\n"});
  Recorder recorder(writer);
  Trainer trainer(*backend, workload, {.steps = 60}, {.level = Level::O1}, {.policy = "torch"},
                  {.name = optim::Algorithm::adam, .learning_rate = 0.01}, recorder);
  const RunResult result = trainer.run();
  writer.finish(ExitState::finished);
  std::cout << "loss " << result.final_train_loss << " after " << result.steps << " steps, "
            << result.skipped_steps << " of them skipped\n"
            << reports::write_report({&folder, 1}, folder.string() + "-report").string() << '\n';
}
