#include "experiments/bench/regions.hpp"

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "numerics/platform/worker_pool.hpp"

namespace fp16lab::bench {
namespace {

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

}  // namespace

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

}  // namespace fp16lab::bench
