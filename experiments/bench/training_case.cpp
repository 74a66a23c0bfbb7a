#include "experiments/bench/training_case.hpp"

#include <fmt/format.h>
#include <sys/resource.h>

#include <map>
#include <span>
#include <string_view>
#include <utility>

#include "engine/backend/emulated/emulated_backend.hpp"
#include "engine/data/batch_source.hpp"
#include "engine/nn/models/mlp.hpp"
#include "experiments/app/config/learning_task.hpp"
#include "experiments/app/config/shipped_configs.hpp"
#include "numerics/random/philox.hpp"
#include "numerics/tensor_core/tensor_core_model.hpp"

namespace fp16lab::bench {
namespace {

using namespace engine;

constexpr std::int64_t characters = 88, words = 12000;  ///< of a text

/// Inputs uniform in [0, 1) and labels in turn; or windows (B, T) of symbols, each with the next as its
/// label.
class OneBatch final : public data::BatchSource {
 public:
  struct Windows {
    std::int64_t batch, steps, symbols;
  };
  OneBatch(Backend& backend, const Windows& windows) : rows_(windows.batch) {
    const auto upload = [&](const Shape& shape, std::uint64_t first) {
      std::vector<std::int32_t> values;
      for (std::int64_t i = 0; i < shape.element_count(); ++i)
        values.push_back(
            static_cast<std::int32_t>((first + static_cast<std::uint64_t>(i) * 2654435761U % 99991) %
                                      static_cast<std::uint64_t>(windows.symbols)));
      Tensor tensor = backend.empty(shape, DType::i32);
      backend.upload(std::as_bytes(std::span(values)), tensor);
      return tensor;
    };
    batch_.inputs = upload({windows.batch, windows.steps}, 0);
    batch_.targets = upload({windows.batch * windows.steps}, 17);
  }
  OneBatch(Backend& backend, const Shape& shape, std::int64_t classes) : rows_(shape[0]) {
    batch_.inputs = backend.empty(shape, DType::f32);
    backend.fill_uniform(batch_.inputs, PhiloxStream{.seed = 1, .stream = stream_id("bench.inputs")}, 0.0f,
                         1.0f);
    std::vector<std::int32_t> labels;
    for (std::int64_t row = 0; row < rows_; ++row) labels.push_back(static_cast<std::int32_t>(row % classes));
    batch_.targets = backend.empty({rows_}, DType::i32);
    backend.upload(std::as_bytes(std::span(labels)), batch_.targets);
  }
  std::uint64_t batches_per_epoch() const override { return 1; }
  std::int64_t rows_per_batch() const override { return rows_; }
  data::Batch batch(Backend&, std::uint64_t) override { return batch_; }

 private:
  std::int64_t rows_;
  data::Batch batch_;
};

class Watcher final : public TrainObserver {
 public:
  explicit Watcher(bool histograms) : histograms_(histograms) {}
  bool wants_gradients(std::uint64_t) override { return histograms_; }

 private:
  bool histograms_;
};

/// Peaks by "name/label/threads".
std::map<std::string, std::size_t>& peaks() {
  static std::map<std::string, std::size_t> all;
  return all;
}

class OneBatchTraining final : public TrainingCase {
 public:
  template <class MakeModel, class... Batch>
  OneBatchTraining(const std::string& name, const TrainingSetup& setup, optim::Algorithm algorithm,
                   const MakeModel& make_model, const Batch&... batch)
      : name_(fmt::format("{}/{}{}/threads:{}", name, setup.label, setup.histograms ? "+histograms" : "",
                          setup.threads)),
        backend_(make_emulated_backend(tensor_core_model("hopper"), setup.threads)),
        source_(*backend_, batch...),
        watcher_(setup.histograms) {
    workload_.model = make_model(*backend_);
    workload_.training = &source_;
    OptimizerOptions optimizer{.name = algorithm, .learning_rate = 0.0};
    if (algorithm == optim::Algorithm::sgd) optimizer.momentum = 0.9;
    ScalerOptions scaler;
    if (setup.amp.level != Level::O0)
      scaler = {.policy = "dynamic", .initial_scale = 1024.0, .growth_interval = 1 << 30};
    trainer_ = std::make_unique<Trainer>(*backend_, workload_, TrainOptions{.steps = 1}, setup.amp, scaler,
                                         optimizer, watcher_);
  }
  ~OneBatchTraining() override { peaks()[name_] = backend_->memory_statistics().peak_bytes_in_use; }
  OneBatchTraining(const OneBatchTraining&) = delete;
  OneBatchTraining& operator=(const OneBatchTraining&) = delete;

  void step() override { trainer_->train_step(); }

 private:
  std::string name_;
  std::unique_ptr<Backend> backend_;
  OneBatch source_;
  Watcher watcher_;
  Workload workload_;
  std::unique_ptr<Trainer> trainer_;
};

}  // namespace

std::shared_ptr<TrainingCase> make_perceptron(const TrainingSetup& setup, std::int64_t batch,
                                              const std::vector<std::int64_t>& widths) {
  return std::make_shared<OneBatchTraining>(
      "mlp", setup, optim::Algorithm::sgd,
      [&](Backend& backend) {
        nn::MlpOptions options;
        options.widths = widths;
        return std::make_unique<nn::Mlp>(backend, options);
      },
      Shape{batch, widths.front()}, widths.back());
}

namespace {

/// The network of a shipped configuration on data of this shape.
std::unique_ptr<nn::Module> shipped_network(Backend& backend, std::string_view config,
                                            const experiments::DataShape& shape) {
  return experiments::make_model(backend, experiments::load_config(experiments::shipped_config(config)),
                                 shape);
}

/// Adam on one batch of windows of text.
std::shared_ptr<TrainingCase> make_text_case(const std::string& name, const TrainingSetup& setup,
                                             std::string_view config, const OneBatch::Windows& windows) {
  return std::make_shared<OneBatchTraining>(
      name, setup, optim::Algorithm::adam,
      [&](Backend& backend) {
        return shipped_network(backend, config,
                               {.input = {.extents = {windows.steps}, .vocabulary = windows.symbols},
                                .output = {.extents = {windows.symbols}, .rows = windows.steps}});
      },
      windows);
}

}  // namespace

std::shared_ptr<TrainingCase> make_lenet5(const TrainingSetup& setup) {
  return std::make_shared<OneBatchTraining>(
      "lenet5", setup, optim::Algorithm::sgd,
      [](Backend& backend) {
        return shipped_network(backend, "lenet5.toml",
                               {.input = {.extents = {1, 32, 32}}, .output = {.extents = {10}}});
      },
      Shape{32, 1, 32, 32}, std::int64_t{10});
}
std::shared_ptr<TrainingCase> make_lstm(const TrainingSetup& setup) {
  return make_text_case("lstm", setup, "charlm_lstm.toml", {32, 64, characters});
}
std::shared_ptr<TrainingCase> make_gpt(const TrainingSetup& setup) {
  return make_text_case("gpt", setup, "charlm_transformer.toml", {16, 64, characters});
}
std::shared_ptr<TrainingCase> make_word_gpt(const TrainingSetup& setup) {
  return make_text_case("word_gpt", setup, "charlm_transformer.toml", {16, 64, words});
}

std::string memory_summary() {
  std::string text = fmt::format("{:<44} {:>12}\n", "peak memory", "MiB");
  for (const auto& [name, bytes] : peaks())
    text += fmt::format("{:<44} {:>12.1f}\n", name, static_cast<double>(bytes) / (1 << 20));
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return text + fmt::format("{:<44} {:>12.1f}\n", "the process (all cases)",
                            static_cast<double>(usage.ru_maxrss) / 1024);
}

}  // namespace fp16lab::bench
