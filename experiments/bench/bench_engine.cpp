// bench_engine: what a training step costs, as times of a yardstick in the same process.
//
// Cases: a step under O1 on the Hopper model against sgemm on the shapes of its products (multilayer
// perceptron) and against our own FP32 step; the share that histograms of every gradient add; other levels
// and dtypes against O1; two threads against one; and what of a step threads can share (regions). Options are
// Google Benchmark's; environment as in bench_numerics.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <thread>
#include <utility>

#include "experiments/bench/environment.hpp"
#include "experiments/bench/ratio.hpp"
#include "experiments/bench/regions.hpp"
#include "experiments/bench/training_case.hpp"
#include "experiments/bench/yardsticks.hpp"
#include "numerics/gemm/gemm.hpp"

namespace fp16lab::bench {
namespace {

constexpr std::int64_t mlp_batch = 128;
const std::vector<std::int64_t> mlp_widths = {784, 1024, 1024, 10};

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

std::shared_ptr<TrainingCase> make_perceptron(const TrainingSetup& setup) {
  return make_perceptron(setup, mlp_batch, mlp_widths);
}

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
