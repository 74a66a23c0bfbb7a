#include "experiments/bench/ratio.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace fp16lab::bench {
namespace {

struct Line {
  std::string name, yardstick, unit;
  int threads;
  double rate, yardstick_rate, ratio;
};

std::vector<Line>& lines() {
  static std::vector<Line> all;
  return all;
}

double seconds(const std::function<void()>& call) {
  const auto start = std::chrono::steady_clock::now();
  call();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

void run_case(benchmark::State& state, const RatioCase& ratio_case) {
  std::vector<double> case_times, yardstick_times, ratios;
  const double yardstick_work = ratio_case.yardstick_work != 0 ? ratio_case.yardstick_work : ratio_case.work;
  ratio_case.run_yardstick();  // warm up both: pages, dispatch, thread pools
  ratio_case.run();
  while (state.KeepRunning()) {
    const double yardstick_time = seconds(ratio_case.run_yardstick);
    const double case_time = seconds(ratio_case.run);
    state.SetIterationTime(case_time);
    yardstick_times.push_back(yardstick_time);
    case_times.push_back(case_time);
    const double ratio = (ratio_case.work / case_time) / (yardstick_work / yardstick_time);
    ratios.push_back(ratio_case.as_cost ? 1.0 / ratio : ratio);
  }
  const Line line{ratio_case.name,
                  ratio_case.yardstick,
                  ratio_case.unit,
                  ratio_case.threads,
                  ratio_case.work / median(case_times),
                  yardstick_work / median(yardstick_times),
                  median(ratios)};
  state.counters[ratio_case.unit] = line.rate;
  state.counters[ratio_case.yardstick] = line.yardstick_rate;
  state.counters["ratio"] = line.ratio;
  // Google Benchmark calls again with more iterations until it has enough: the last call is the one that
  // counts.
  auto& all = lines();
  const auto old = std::find_if(all.begin(), all.end(), [&](const Line& other) {
    return other.name == line.name && other.threads == line.threads && other.yardstick == line.yardstick;
  });
  if (old == all.end())
    all.push_back(line);
  else
    *old = line;
}

}  // namespace

void register_ratio(const std::string& name, std::function<RatioCase()> make) {
  benchmark::RegisterBenchmark(name.c_str(),
                               [make = std::move(make)](benchmark::State& state) { run_case(state, make()); })
      ->UseManualTime()
      ->Unit(benchmark::kMicrosecond);
}

std::string summary() {
  std::string text = fmt::format("{:<44} {:>7} {:>9} {:>9}  {:<8} {:>6}  {}\n", "case", "threads", "rate",
                                 "yardstick", "unit", "ratio", "to");
  for (const Line& line : lines())
    text += fmt::format("{:<44} {:>7} {:>9.2f} {:>9.2f}  {:<8} {:>6.2f}  {}\n", line.name, line.threads,
                        line.rate, line.yardstick_rate, line.unit, line.ratio, line.yardstick);
  return text;
}

}  // namespace fp16lab::bench
