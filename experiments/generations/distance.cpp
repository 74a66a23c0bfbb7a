#include "experiments/generations/distance.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <set>

#include "engine/train/trainer.hpp"
#include "experiments/exit_code.hpp"
#include "experiments/interrupt.hpp"
#include "experiments/prepared_run.hpp"
#include "numerics/files/run_folder.hpp"

namespace fp16lab::experiments {
namespace {

class NoObserver final : public engine::TrainObserver {
 public:
  bool wants_gradients(std::uint64_t) override { return false; }
  void on_gradient(const engine::GradientRecord&) override {}
  void on_step(const engine::StepRecord&) override {}
  void on_evaluation(const engine::EvaluationRecord&) override {}
  bool stop_requested() override { return false; }
};

/// One of the trainings, with its weights after the latest step.
class Training {
 public:
  Training(const PlannedRun& planned, int threads)
      : planned_(&planned), run_(prepare_run(planned.config, threads)) {
    trainer_ = std::make_unique<engine::Trainer>(*run_->backend, run_->workload, run_->train, run_->amp,
                                                 run_->scaler, run_->optimizer, observer_);
    look();
  }

  std::uint64_t steps() const { return run_->train.steps; }
  std::span<const float> weights() const { return weights_; }

  void step() {
    hash_ = trainer_->train_step().state_hash;
    look();
  }

  /// Is it the training whose final test value is judged?
  void require_recorded() const {
    if (!is_run_folder(planned_->folder)) return;
    const RunFolder folder = read_run_folder(planned_->folder);
    if (folder.steps.empty() || folder.steps.back().state_hash != hash_)
      throw CommandError(
          ExitCode::run_failed,
          fmt::format("{}: trained again it ends with another state_hash than {} has; remove that folder",
                      planned_->name, planned_->folder.string()));
  }

 private:
  void look() {
    weights_.clear();
    for (const engine::Parameter* parameter : trainer_->parameters()) {
      engine::Tensor wide = run_->backend->empty(parameter->value.shape(), DType::f32);
      run_->backend->cast(parameter->value, wide, nullptr);
      const std::size_t begin = weights_.size();
      weights_.resize(begin + static_cast<std::size_t>(wide.element_count()));
      run_->backend->download(wide, std::as_writable_bytes(std::span(weights_).subspan(begin)));
    }
  }

  const PlannedRun* planned_;
  std::unique_ptr<PreparedRun> run_;
  NoObserver observer_;
  std::unique_ptr<engine::Trainer> trainer_;
  std::vector<float> weights_;
  std::uint64_t hash_ = 0;
};

/// Of one workload and seed: `runs` by variant.
void measure_block(const std::map<std::string_view, const PlannedRun*>& runs,
                   std::span<const VariantPair> pairs, int threads,
                   const std::function<void(const std::string&)>& progress,
                   std::vector<DistanceCurve>& curves) {
  std::vector<DistanceCurve> block;
  std::map<std::string_view, std::unique_ptr<Training>> trainings;
  std::vector<std::pair<const Training*, const Training*>> compared;
  const auto training = [&](std::string_view variant) {
    std::unique_ptr<Training>& made = trainings[variant];
    if (made == nullptr) made = std::make_unique<Training>(*runs.at(variant), threads);
    return made.get();
  };
  for (const auto& [reference, variant] : pairs) {
    if (!runs.contains(reference) || !runs.contains(variant)) continue;
    compared.emplace_back(training(reference), training(variant));
    const PlannedRun& run = *runs.at(variant);
    block.push_back({.workload = run.workload,
                     .reference = std::string(reference),
                     .variant = std::string(variant),
                     .seed = run.config.train.seed,
                     .distances = {}});
  }
  if (block.empty()) return;
  const std::uint64_t steps = compared.front().first->steps();
  for (std::uint64_t step = 0; step <= steps; ++step) {
    if (interrupted()) throw CommandError(ExitCode::interrupted, "interrupted; the same command carries on");
    if (step > 0)
      for (const auto& [variant, one] : trainings) one->step();
    for (std::size_t i = 0; i < block.size(); ++i)
      block[i].distances.push_back(
          relative_distance(compared[i].first->weights(), compared[i].second->weights()));
    progress(fmt::format("distances: {} seed {}, step {}/{}", block.front().workload, block.front().seed,
                         step, steps));
  }
  for (const auto& [variant, one] : trainings) one->require_recorded();
  curves.insert(curves.end(), std::make_move_iterator(block.begin()), std::make_move_iterator(block.end()));
}

}  // namespace

double relative_distance(std::span<const float> a, std::span<const float> b) {
  double norm = 0, difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double x = a[i], d = x - static_cast<double>(b[i]);
    norm += x * x;
    difference += d * d;
  }
  return std::sqrt(difference / norm);
}

std::vector<DistanceCurve> measure_distances(const SweepPlan& plan, std::span<const VariantPair> pairs,
                                             std::size_t seeds, int threads,
                                             const std::function<void(const std::string&)>& progress) {
  std::vector<DistanceCurve> curves;
  std::vector<std::string> workloads;
  for (const PlannedRun& run : plan.runs)
    if (std::ranges::find(workloads, run.workload) == workloads.end()) workloads.push_back(run.workload);
  for (const std::string& workload : workloads) {
    std::map<std::int64_t, std::map<std::string_view, const PlannedRun*>> blocks;
    std::vector<std::int64_t> order;
    for (const PlannedRun& run : plan.runs) {
      if (run.workload != workload) continue;
      auto& block = blocks[run.config.train.seed];
      if (block.empty()) order.push_back(run.config.train.seed);
      block.emplace(run.variant, &run);
    }
    for (std::size_t i = 0; i < std::min(seeds, order.size()); ++i)
      measure_block(blocks.at(order[i]), pairs, threads, progress, curves);
  }
  return curves;
}

std::string distances_csv(const std::vector<DistanceCurve>& curves) {
  std::string text = "workload,reference,variant,seed,step,distance\n";
  for (const DistanceCurve& curve : curves)
    for (std::size_t step = 0; step < curve.distances.size(); ++step)
      text += fmt::format("{},{},{},{},{},{:.6g}\n", curve.workload, curve.reference, curve.variant,
                          curve.seed, step, curve.distances[step]);
  return text;
}

std::optional<double> growth_rate(std::span<const double> distances, double low, double high) {
  const auto first_above = [&](double level) {
    return std::ranges::find_if(distances, [level](double x) { return x >= level; });
  };
  const auto begin = first_above(low), end = first_above(high);
  const std::span<const double> growing(begin, end == distances.end() ? end : end + 1);
  if (begin >= end || growing.size() < fewest_growing_steps) return std::nullopt;
  const double middle = 0.5 * static_cast<double>(growing.size() - 1);
  double products = 0, squares = 0;
  for (std::size_t i = 0; i < growing.size(); ++i) {
    const double x = static_cast<double>(i) - middle;
    products += x * std::log(growing[i]);
    squares += x * x;
  }
  const double slope = products / squares;
  return std::isfinite(slope) ? std::optional(slope) : std::nullopt;
}

}  // namespace fp16lab::experiments
