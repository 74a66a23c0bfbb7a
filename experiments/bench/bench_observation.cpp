// bench_observation: what counting costs a training step. One run of a configuration; its steps count in turn
// nothing, each kind of tensors, and everything, so that each has its yardstick right beside it. Counting
// includes the rows that are written. Bits are the same in all steps.
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "experiments/app/arguments.hpp"
#include "experiments/app/command_line.hpp"
#include "experiments/app/run/prepared_run.hpp"
#include "numerics/files/run/run_folder.hpp"

namespace fp16lab::experiments {
namespace {

/// What a step counts: nothing, each kind of tensors, everything.
constexpr std::size_t turns = every<Observed>.size() + 2;
constexpr std::uint64_t warm_up = 2 * turns;

std::size_t turn_of(std::uint64_t step) { return step % turns; }
std::string_view name_of_turn(std::size_t turn) {
  return turn == 0 ? "nothing" : turn + 1 == turns ? "everything" : name_of(every<Observed>[turn - 1]);
}

class Watcher final : public engine::Tap {
 public:
  explicit Watcher(RunWriter& writer) : writer_(&writer) {}
  bool wants(const engine::Site& site) override {
    const std::size_t turn = turn_of(site.step), kind = static_cast<std::size_t>(site.what);
    return kind < every<Observed>.size() && (turn == kind + 1 || turn + 1 == turns);
  }
  void see(const engine::Event& event) override {
    if (const auto* const row = event.as<HistogramRow>()) writer_->append(*row);
  }

 private:
  RunWriter* writer_;
};

/// Process time where one thread works: others on the machine then count little. Else wall-clock time.
double now(int threads) {
  timespec time{};
  clock_gettime(threads == 1 ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

struct ObservationBench {
  int rounds = 60;
};

ExitCode run(const CommonOptions& common, const ObservationBench& bench) {
  RunPlan plan = resolve_run(common);
  const std::uint64_t steps = warm_up + turns * static_cast<std::uint64_t>(bench.rounds);
  plan.config.train.steps = plan.train.steps = steps;
  plan.config.train.evaluate_every = plan.train.evaluate_every = 0;
  const auto prepared = prepare_run(std::move(plan), common.threads);
  prepared->workload.evaluation = nullptr;
  if (is_run_folder(common.out)) remove_run(common.out);
  RunWriter writer(common.out, {});
  Watcher watcher(writer);
  engine::Trainer trainer(*prepared->backend, prepared->workload, prepared->plan, watcher);
  std::array<std::vector<double>, turns> seconds;
  for (std::uint64_t step = 1; step <= steps; ++step) {
    const double begin = now(common.threads);
    trainer.train_step();
    if (step > warm_up) seconds[turn_of(step)].push_back(now(common.threads) - begin);
  }

  fmt::print("{:<16} {:>9} {:>9} {:>24}\n", "counted", "ms a step", "least", "median ratio to nothing");
  for (std::size_t turn = 0; turn < turns; ++turn) {
    const std::vector<double>& its = seconds[turn];
    std::vector<double> ratios;
    for (std::size_t i = 0; i < its.size(); ++i) ratios.push_back(its[i] / seconds[0][i]);
    fmt::print("{:<16} {:>9.3f} {:>9.3f} {:>24.3f}\n", name_of_turn(turn), 1e3 * median(its),
               1e3 * *std::min_element(its.begin(), its.end()), median(ratios));
  }
  return ExitCode::ok;
}

}  // namespace
}  // namespace fp16lab::experiments

int main(int argc, char** argv) {
  using namespace fp16lab::experiments;
  ObservationBench bench;
  return experiment_main(
      argc, argv,
      {.name = "bench_observation",
       .question = "What counting gradients, and everything that can be counted, costs a training step",
       .examples = "{} -c lenet5 --set amp.level=O1 --threads 2",
       .out = "results/bench_observation",
       .config = "classifier.toml",
       .declare = [&](Options& options) -> Command::Run {
         options.add("--rounds", bench.rounds, "Steps of each kind (default: 60)").type("N").at_least(1);
         return [&](const CommonOptions& common) { return run(common, bench); };
       }});
}
