// bench_device: how fast a GPU multiplies and trains, and what a training holds in its memory.
//
// Rows are Google Benchmark's, their times medians on the device's clock:
//
//   product/WAY/N        n x n products, B transposed; TFLOP/s of 2 n^3 operations
//   step/SYSTEM/VARIANT  a training step of the tutorials' networks; "looked_at" counts every gradient too;
//                        MiB of activations and of everything at its peak
//
// What cuBLAS and PyTorch make of the same work: WAY cuBLAS, and experiments/bench/torch_amp.py.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "engine/train/trainer.hpp"
#include "experiments/app/config/shipped_configs.hpp"
#include "experiments/app/exit_code.hpp"
#include "experiments/app/run/prepared_run.hpp"
#include "experiments/questions/device_side.hpp"
#include "numerics/text/message.hpp"

namespace fp16lab::bench {
namespace {

using engine::GemmRoute;
using experiments::DeviceSide;
using experiments::TimingPlan;

/// One way to multiply square matrices.
struct Way {
  const char* name;
  GemmRoute route;
  DType dtype;
  bool tf32 = false;
  std::int64_t largest = 8192;  ///< larger products would take too long
};
constexpr Way ways[] = {
    {"FP32_fma_chain", GemmRoute::mma, DType::f32, false, 4096},
    {"FP32_cuBLAS", GemmRoute::cublas, DType::f32},
    {"TF32_cuBLAS", GemmRoute::cublas, DType::f32, true},
    {"FP16_mma", GemmRoute::mma, DType::f16},
    {"FP16_cuBLAS", GemmRoute::cublas, DType::f16},
    {"BF16_mma", GemmRoute::mma, DType::bf16},
};

/// Normal numbers: what a product draws of a GPU's power depends on its data.
engine::Tensor operand(engine::Backend& backend, std::int64_t n, DType dtype, std::string_view name) {
  engine::Tensor wide = backend.empty({n, n}, DType::f32);
  backend.fill_normal(wide, {.seed = 1, .stream = stream_id(name)}, 0.0f, 1.0f);
  if (dtype == DType::f32) return wide;
  engine::Tensor low = backend.empty({n, n}, dtype);
  backend.cast(wide, low);
  return low;
}

void multiply(benchmark::State& state, const DeviceSide& side, const Way& way, std::int64_t n) {
  const auto backend = side.make({.gemm = way.route, .tf32 = way.tf32});
  const engine::Tensor a = operand(*backend, n, way.dtype, "a"), b = operand(*backend, n, way.dtype, "b");
  engine::Tensor out = backend->empty({n, n}, way.dtype);
  const TimingPlan plan = side.rehearsal
                              ? TimingPlan{.warm_up = 1, .repetitions = 1}
                              : TimingPlan{.warm_up = 3, .repetitions = 9, .least_milliseconds = 30};
  for (auto iteration : state) {
    (void)iteration;
    const double seconds = 1e-3 * time_of(*backend, plan, [&] {
                                    backend->gemm({.a = a, .b = b, .out = out, .transpose_b = true});
                                  }).median;
    state.SetIterationTime(seconds);
    const auto extent = static_cast<double>(n);
    state.counters["TFLOP/s"] = 2 * extent * extent * extent / seconds * 1e-12;
  }
}

struct Variant {
  const char* name;
  std::vector<std::string> set;
  GemmRoute route = GemmRoute::mma;
  bool tf32 = false;
  bool looked_at = false;  ///< every gradient of every step is counted
};
const std::vector<std::string> o0{"amp.level=O0", "scaler.policy=none"}, o1{"amp.level=O1"},
    o2{"amp.level=O2"};
const std::vector<Variant>& variants() {
  static const std::vector<Variant> all{
      {"FP32_cuBLAS", o0, GemmRoute::cublas},
      {"FP32_fma_chain", o0},
      {"TF32_cuBLAS", o0, GemmRoute::cublas, true},
      {"O1", o1},
      {"O1_looked_at", o1, GemmRoute::mma, false, true},
      {"O1_cuBLAS", o1, GemmRoute::cublas},
      {"O2", o2},
      {"O2_looked_at", o2, GemmRoute::mma, false, true},
      {"O2_cuBLAS", o2, GemmRoute::cublas},
      {"O2_without_masters", {"amp.level=O2", "amp.master_weights=false"}},
      {"O2_graph", {"amp.level=O2", "train.graph=true"}},
  };
  return all;
}

class Watcher final : public engine::Tap {
 public:
  explicit Watcher(bool looks) : looks_(looks) {}
  bool wants(const engine::Site& site) override { return looks_ && site.what == engine::What::gradients; }

 private:
  bool looks_;
};

void train(benchmark::State& state, const DeviceSide& side, const std::string& system,
           const Variant& variant) {
  std::vector<std::string> set{"train.steps=1000"};
  if (side.rehearsal) set.emplace_back("model.scale_down=256");
  set.insert(set.end(), variant.set.begin(), variant.set.end());
  experiments::RunConfig config = experiments::load_config(experiments::shipped_config(system + ".toml"));
  experiments::apply_settings(config, set, "bench_device");
  config.backend.device = experiments::Device::cuda;  // what the configuration is checked for
  config.backend.tensor_core = side.tensor_core;
  experiments::leave_out_unread(config);
  const auto run =
      prepare_run(experiments::resolve_run(config), side.make({.gemm = variant.route, .tf32 = variant.tf32}));
  Watcher watcher(variant.looked_at);
  engine::Trainer trainer(*run->backend, run->workload, run->plan, watcher);
  const TimingPlan plan = side.rehearsal ? TimingPlan{.warm_up = 2, .repetitions = 1}
                                         : TimingPlan{.warm_up = 4, .repetitions = 15};
  for (auto iteration : state) {
    (void)iteration;
    state.SetIterationTime(1e-3 * time_of(*run->backend, plan, [&] { trainer.train_step(); }).median);
    const RunMemory memory = trainer.memory();
    const auto mebibytes = [](std::uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
    state.counters["activations_MiB"] = mebibytes(memory.activations);
    state.counters["peak_MiB"] = mebibytes(memory.peak);
  }
}

int errors = 0;  ///< rows that could not run

/// A row of one iteration, which times as often as its plan says. An exception ends the row and not the
/// program.
template <class Body>
void add(const std::string& name, const Body& body) {
  benchmark::RegisterBenchmark(name.c_str(),
                               [body](benchmark::State& state) {
                                 try {
                                   body(state);
                                 } catch (const std::exception& error) {
                                   state.SkipWithError(error.what());
                                   ++errors;
                                 }
                               })
      ->Iterations(1)
      ->UseManualTime()
      ->Unit(benchmark::kMillisecond);
}

void add_all(const DeviceSide& side) {
  for (const Way& way : ways) {
    for (const std::int64_t n :
         side.rehearsal ? std::vector<std::int64_t>{16} : std::vector<std::int64_t>{1024, 2048, 4096, 8192})
      if (n <= way.largest)
        add(fmt::format("product/{}/{}", way.name, n),
            [&side, &way, n](benchmark::State& state) { multiply(state, side, way, n); });
  }
  for (const char* const system : {"paddle_linear9", "paddle_mlp3"})
    for (const Variant& variant : variants())
      add(fmt::format("step/{}/{}", system, variant.name),
          [&side, &variant, system](benchmark::State& state) { train(state, side, system, variant); });
}

}  // namespace
}  // namespace fp16lab::bench

int main(int argc, char** argv) {
  using namespace fp16lab;
  char** const end =
      std::remove_if(argv, argv + argc, [](const char* one) { return std::strcmp(one, "--rehearse") == 0; });
  const bool rehearse = end != argv + argc;  // on the PTX machine: its times are meaningless
  argc = static_cast<int>(end - argv);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  try {
    const experiments::DeviceSide side = rehearse ? experiments::open_rehearsal() : experiments::open_gpu();
    benchmark::AddCustomContext("device", side.description);
    bench::add_all(side);
    if (benchmark::RunSpecifiedBenchmarks() == 0) ++bench::errors;
  } catch (const experiments::CommandError& error) {
    say("bench_device: {}", error.what());
    return static_cast<int>(error.code);
  }
  benchmark::Shutdown();
  return bench::errors == 0 ? 0 : 1;
}
