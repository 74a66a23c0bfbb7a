// bench_engine: what a training step costs, as times of a yardstick in the same process.
//
// Cases: a step under O1 on the Hopper model against sgemm on the shapes of its products (multilayer
// perceptron) and against our own FP32 step; the share that histograms of every gradient add; other levels
// and dtypes against O1; two threads against one; and what of a step threads can share (regions). Options are
// Google Benchmark's; environment as in bench_numerics.
#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "engine/backend/emulated/emulated_backend.hpp"
#include "engine/data/batch_source.hpp"
#include "engine/nn/models/mlp.hpp"
#include "engine/train/trainer.hpp"
#include "experiments/app/config/learning_task.hpp"
#include "experiments/app/config/shipped_configs.hpp"
#include "experiments/bench/environment.hpp"
#include "experiments/bench/ratio.hpp"
#include "experiments/bench/yardsticks.hpp"
#include "numerics/gemm/gemm.hpp"
#include "numerics/platform/worker_pool.hpp"
#include "numerics/random/philox.hpp"
#include "numerics/tensor_core/tensor_core_model.hpp"

namespace fp16lab::bench {

using namespace engine;

namespace {

struct TrainingSetup {
  engine::AmpOptions amp = {};  ///< with a loss scale of 1024 where the level is not O0
  std::string label = "O0";     ///< of the line about peak memory
  bool histograms = false;      ///< of every gradient in every step
  int threads = 1;
};

constexpr std::int64_t mlp_batch = 128;
const std::vector<std::int64_t> mlp_widths = {784, 1024, 1024, 10};
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

class Watcher final : public Tap {
 public:
  explicit Watcher(bool histograms) : histograms_(histograms) {}
  bool wants(const Site& site) override { return histograms_ && site.what == What::gradients; }

 private:
  bool histograms_;
};

/// Peaks by "name/label/threads".
std::map<std::string, std::size_t>& peaks() {
  static std::map<std::string, std::size_t> all;
  return all;
}

/// Training runs for benchmarks: a network, one batch that stays in memory, and a learning rate of zero, so
/// that every step does the same work.
class TrainingCase {
 public:
  template <class MakeModel, class... Batch>
  TrainingCase(const std::string& name, const TrainingSetup& setup, optim::Algorithm algorithm,
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
  ~TrainingCase() { peaks()[name_] = backend_->memory_statistics().peak_bytes_in_use; }
  TrainingCase(const TrainingCase&) = delete;
  TrainingCase& operator=(const TrainingCase&) = delete;

  void step() { trainer_->train_step(); }

 private:
  std::string name_;
  std::unique_ptr<Backend> backend_;
  OneBatch source_;
  Watcher watcher_;
  Workload workload_;
  std::unique_ptr<Trainer> trainer_;
};

/// Linear layers with ReLU and cross-entropy, SGD with momentum.
std::shared_ptr<TrainingCase> make_perceptron(const TrainingSetup& setup) {
  return std::make_shared<TrainingCase>(
      "mlp", setup, optim::Algorithm::sgd,
      [](Backend& backend) {
        nn::MlpOptions options;
        options.widths = mlp_widths;
        return std::make_unique<nn::Mlp>(backend, options);
      },
      Shape{mlp_batch, mlp_widths.front()}, mlp_widths.back());
}

/// The network of a shipped configuration on data of this shape.
std::unique_ptr<nn::Module> shipped_network(Backend& backend, std::string_view config,
                                            const experiments::DataShape& shape) {
  return experiments::make_model(backend, experiments::load_config(experiments::shipped_config(config)),
                                 shape);
}

/// Adam on one batch of windows of text.
std::shared_ptr<TrainingCase> make_text_case(const std::string& name, const TrainingSetup& setup,
                                             std::string_view config, const OneBatch::Windows& windows) {
  return std::make_shared<TrainingCase>(
      name, setup, optim::Algorithm::adam,
      [&](Backend& backend) {
        return shipped_network(backend, config,
                               {.input = {.extents = {windows.steps}, .vocabulary = windows.symbols},
                                .output = {.extents = {windows.symbols}, .rows = windows.steps}});
      },
      windows);
}

/// The shipped lenet5, 32 images of 32x32, SGD with momentum.
std::shared_ptr<TrainingCase> make_lenet5(const TrainingSetup& setup) {
  return std::make_shared<TrainingCase>(
      "lenet5", setup, optim::Algorithm::sgd,
      [](Backend& backend) {
        return shipped_network(backend, "lenet5.toml",
                               {.input = {.extents = {1, 32, 32}}, .output = {.extents = {10}}});
      },
      Shape{32, 1, 32, 32}, std::int64_t{10});
}

/// The shipped charlm_lstm and charlm_transformer, one batch of random symbols, Adam.
std::shared_ptr<TrainingCase> make_lstm(const TrainingSetup& setup) {
  return make_text_case("lstm", setup, "charlm_lstm.toml", {32, 64, characters});
}

std::shared_ptr<TrainingCase> make_gpt(const TrainingSetup& setup) {
  return make_text_case("gpt", setup, "charlm_transformer.toml", {16, 64, characters});
}

/// The same GPT over 12,000 words.
std::shared_ptr<TrainingCase> make_word_gpt(const TrainingSetup& setup) {
  return make_text_case("word_gpt", setup, "charlm_transformer.toml", {16, 64, words});
}

/// Peak memory of the tensors of every case so far, and of the process: one line each.
std::string memory_summary() {
  std::string text = fmt::format("{:<44} {:>12}\n", "peak memory", "MiB");
  for (const auto& [name, bytes] : peaks())
    text += fmt::format("{:<44} {:>12.1f}\n", name, static_cast<double>(bytes) / (1 << 20));
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return text + fmt::format("{:<44} {:>12.1f}\n", "the process (all cases)",
                            static_cast<double>(usage.ru_maxrss) / 1024);
}

// What threads can share of a training step: its parallel regions, as one thread does them.

struct Step {
  double seconds = 0;
  std::vector<SharedRegion> regions;
};

struct Line {
  std::string name;
  double milliseconds, regions, median_microseconds, serial_share, model_2, model_16;
};

std::vector<Line>& lines() {
  static std::vector<Line> all;
  return all;
}

double shared_seconds(const Step& step) {
  double sum = 0;
  for (const SharedRegion& region : step.regions) sum += region.seconds;
  return sum;
}

/// The step's time over that on so many cores.
double modelled_speedup(const Step& step, double cores) {
  constexpr double sharing = 2e-6;
  double seconds = step.seconds - shared_seconds(step);
  for (const SharedRegion& region : step.regions) {
    const auto tasks = static_cast<double>(region.tasks);
    seconds += std::min(region.seconds, region.seconds / std::min(cores, tasks) + sharing);
  }
  return step.seconds / seconds;
}

/// The fastest of several steps: what others do to the machine is in the slower ones.
Step best_step(TrainingCase& training) {
  Step best;
  training.step();
  for (int repetition = 0; repetition < 9; ++repetition) {
    Step step;
    step.regions.reserve(1 << 14);
    log_shared_regions(&step.regions);
    const auto start = std::chrono::steady_clock::now();
    training.step();
    step.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    log_shared_regions(nullptr);
    if (best.seconds == 0 || step.seconds < best.seconds) best = std::move(step);
  }
  return best;
}

Line line_of(const std::string& name, const Step& step) {
  std::vector<double> work;
  for (const SharedRegion& region : step.regions) work.push_back(region.seconds);
  std::ranges::sort(work);
  return {name,
          step.seconds * 1e3,
          static_cast<double>(step.regions.size()),
          work.empty() ? 0.0 : work[work.size() / 2] * 1e6,
          1.0 - shared_seconds(step) / step.seconds,
          modelled_speedup(step, 2),
          modelled_speedup(step, 16)};
}

/// Registers "regions/<name>" with Google Benchmark: steps of one thread in which every region with several
/// tasks is timed. Counters: milliseconds of a step, regions a step, the median region's microseconds, the
/// share of the step outside of regions, and `model_2` and `model_16`: how many times faster 2 and 16 cores
/// of one speed would be by a model, in which a region takes its work divided by the cores, but at least its
/// mean task, and two microseconds for sharing. Memory, caches and shared cores are not in it.
void register_regions(const std::string& name, std::function<std::shared_ptr<TrainingCase>()> make) {
  benchmark::RegisterBenchmark(fmt::format("regions/{}", name).c_str(),
                               [name, make = std::move(make)](benchmark::State& state) {
                                 const auto training = make();
                                 Line line{};
                                 while (state.KeepRunning()) line = line_of(name, best_step(*training));
                                 state.counters["ms"] = line.milliseconds;
                                 state.counters["regions"] = line.regions;
                                 state.counters["median_us"] = line.median_microseconds;
                                 state.counters["serial"] = line.serial_share;
                                 state.counters["model_2"] = line.model_2;
                                 state.counters["model_16"] = line.model_16;
                                 lines().push_back(line);
                               })
      ->Iterations(1)
      ->Unit(benchmark::kMillisecond);
}

/// One line a case: what ran so far.
std::string regions_summary() {
  if (lines().empty()) return {};
  std::string text =
      fmt::format("{:<24} {:>9} {:>8} {:>12} {:>8} {:>17} {:>18}\n", "parallel regions of a step", "ms",
                  "regions", "median us", "serial", "2 cores (model)", "16 cores (model)");
  for (const Line& line : lines())
    text += fmt::format("{:<26} {:>9.2f} {:>8} {:>12.1f} {:>7.0f}% {:>16.2f}x {:>17.2f}x\n", line.name,
                        line.milliseconds, line.regions, line.median_microseconds, 100 * line.serial_share,
                        line.model_2, line.model_16);
  return text + "\n";
}

/// sgemm on the shapes of one step of a perceptron: forward, weight gradients, and input gradients but the
/// first.
class PerceptronProducts {
 public:
  PerceptronProducts(std::int64_t batch, const std::vector<std::int64_t>& widths, int threads) {
    set_sgemm_threads(threads);
    for (std::size_t layer = 1; layer < widths.size(); ++layer) {
      const std::int64_t in = widths[layer - 1], out = widths[layer];
      products_.push_back(make({batch, out, in}, false, true));
      products_.push_back(make({out, in, batch}, true, false));
      if (layer > 1) products_.push_back(make({batch, in, out}, false, false));
    }
  }
  void run() {
    for (Product& p : products_) {
      const std::int64_t lda = p.a_transposed ? p.shape.m : p.shape.k,
                         ldb = p.b_transposed ? p.shape.k : p.shape.n;
      sgemm(p.shape, {p.a.data(), lda, p.a_transposed}, {p.b.data(), ldb, p.b_transposed}, p.d.data(),
            p.shape.n);
    }
  }

 private:
  struct Product {
    GemmShape shape;
    bool a_transposed, b_transposed;
    std::vector<float> a, b, d;
  };
  static Product make(GemmShape shape, bool a_transposed, bool b_transposed) {
    const auto values = [](std::int64_t count) {
      std::vector<float> all(static_cast<std::size_t>(count));
      for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<float>(i % 17) / 16.0f - 0.5f;
      return all;
    };
    return {shape,
            a_transposed,
            b_transposed,
            values(shape.m * shape.k),
            values(shape.k * shape.n),
            values(shape.m * shape.n)};
  }
  std::vector<Product> products_;
};

RatioCase step_case(const std::string& name, const std::string& yardstick, int threads) {
  RatioCase result;
  result.name = name;
  result.yardstick = yardstick;
  result.unit = "steps/s";
  result.work = result.yardstick_work = 1.0;
  result.threads = threads;
  result.as_cost = true;
  return result;
}

using MakeCase = std::shared_ptr<TrainingCase> (*)(const TrainingSetup&);

/// The step of one set-up against that of another.
void register_steps(const std::string& name, const std::string& yardstick, int threads, MakeCase make,
                    TrainingSetup setup, TrainingSetup yardstick_setup) {
  setup.threads = yardstick_setup.threads = threads;
  register_ratio(fmt::format("{}/threads:{}", name, threads), [=] {
    const auto mine = make(setup);
    const auto other = make(yardstick_setup);
    RatioCase result = step_case(name, yardstick, threads);
    result.run = [mine] { mine->step(); };
    result.run_yardstick = [other] { other->step(); };
    return result;
  });
}

void register_products(const std::string& name, int threads, TrainingSetup setup) {
  setup.threads = threads;
  register_ratio(fmt::format("{}/threads:{}", name, threads), [=] {
    const auto mine = make_perceptron(setup);
    const auto products = std::make_shared<PerceptronProducts>(mlp_batch, mlp_widths, threads);
    RatioCase result = step_case(name, "sgemm", threads);
    result.run = [mine] { mine->step(); };
    result.run_yardstick = [products] { products->run(); };
    return result;
  });
}

void register_all(int threads) {
  using engine::Level;
  using engine::amp::Dialect;
  const TrainingSetup fp32{};
  const TrainingSetup mixed{.amp = {.level = Level::O1}, .label = "O1"};
  const TrainingSetup observed{.amp = {.level = Level::O1}, .label = "O1", .histograms = true};
  const std::vector<TrainingSetup> others = {
      {.amp = {.level = Level::O1, .dtype = DType::bf16}, .label = "O1-bf16"},
      {.amp = {.level = Level::O1, .fp8_operands = DType::e4m3, .fp8_gradients = DType::e5m2},
       .label = "O1-fp8"},
      {.amp = {.level = Level::O2, .dialect = Dialect::paddle}, .label = "paddle-O2"},
      {.amp = {.level = Level::O2, .dialect = Dialect::paddle, .master_weights = false},
       .label = "paddle-O2-no-masters"},
      {.amp = {.level = Level::O3, .dialect = Dialect::mindspore}, .label = "mindspore-O3"}};
  register_products("mlp/O1", threads, mixed);
  register_products("mlp/O0", threads, fp32);
  for (const auto& [name, make] : {std::pair{"mlp", static_cast<MakeCase>(&make_perceptron)},
                                   std::pair{"lenet5", static_cast<MakeCase>(&make_lenet5)}}) {
    register_steps(fmt::format("{}/O1", name), "O0", threads, make, mixed, fp32);
    register_steps(fmt::format("{}/O1+histograms", name), "O1", threads, make, observed, mixed);
    for (const TrainingSetup& other : others)
      register_steps(fmt::format("{}/{}", name, other.label), "O1", threads, make, other, mixed);
  }
}

struct Network {
  const char* name;
  MakeCase make;
};
constexpr Network networks[] = {{"mlp", &make_perceptron},
                                {"lenet5", &make_lenet5},
                                {"lstm", &make_lstm},
                                {"gpt", &make_gpt},
                                {"word_gpt", &make_word_gpt}};

/// Two threads against one, and the regions that they share.
void register_threads(bool two) {
  for (const Network& network : networks)
    for (const engine::Level level : {engine::Level::O0, engine::Level::O1}) {
      TrainingSetup setup{.amp = {.level = level}, .label = std::string(name_of(level))};
      const std::string name = fmt::format("{}/{}", network.name, setup.label);
      register_regions(name, [=, make = network.make] { return make(setup); });
      if (!two) continue;
      register_ratio(fmt::format("{}/two-threads", name), [=, make = network.make] {
        TrainingSetup shared = setup;
        shared.threads = 2;
        const auto mine = make(shared), other = make(setup);
        RatioCase result = step_case(fmt::format("{}/two-threads", name), "one thread", 2);
        result.run = [mine] { mine->step(); };
        result.run_yardstick = [other] { other->step(); };
        return result;
      });
    }
}

}  // namespace
}  // namespace fp16lab::bench

int main(int argc, char** argv) {
  using namespace fp16lab::bench;
  start_again_with_environment(argv);
  choose_targets();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::AddCustomContext("gemm_target", fp16lab::gemm_target_name());
  benchmark::AddCustomContext("sgemm_core", sgemm_core());
  for (const int threads : {1, 2})
    if (threads <= static_cast<int>(std::thread::hardware_concurrency())) register_all(threads);
  register_threads(std::thread::hardware_concurrency() >= 2);
  benchmark::RunSpecifiedBenchmarks();
  fmt::print("\n{}\n{}{}", summary(), regions_summary(), memory_summary());
  benchmark::Shutdown();
  return 0;
}
