#include "experiments/questions/generations/generations.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <memory>
#include <sstream>
#include <stdexcept>

#include "engine/train/trainer.hpp"
#include "experiments/app/exit_code.hpp"
#include "experiments/app/process.hpp"
#include "experiments/app/run/prepared_run.hpp"
#include "experiments/questions/tensor_values.hpp"
#include "numerics/files/disk/folder.hpp"
#include "numerics/files/disk/read_file.hpp"
#include "numerics/files/run/run_folder.hpp"

namespace fp16lab::experiments {
namespace {

constexpr std::string_view csv_header =
    "workload,reference,variant,seed,step,distance,reference_hash,variant_hash";

/// The distance at the run's last step on disk; nothing where there is none.
std::optional<std::uint64_t> recorded_hash(const PlannedRun& planned) {
  if (!is_run_folder(planned.folder)) return std::nullopt;
  const RunFolder folder = read_run_folder(planned.folder);
  if (!folder.finished() || folder.steps.empty()) return std::nullopt;
  return folder.steps.back().state_hash;
}

/// One training run, with its weights after the latest step.
class Training {
 public:
  Training(const PlannedRun& planned, int threads)
      : planned_(&planned), run_(prepare_run(resolve_run(planned.config), threads)) {
    trainer_ = std::make_unique<engine::Trainer>(*run_->backend, run_->workload, run_->plan, nobody_);
    look();
  }

  std::uint64_t steps() const { return run_->plan.train.steps; }
  std::span<const float> weights() const { return weights_; }

  void step() {
    hash_ = trainer_->train_step().state_hash;
    look();
  }

  std::uint64_t hash() const { return hash_; }

  /// Is it the training whose final test value is judged?
  void require_recorded() const {
    const std::optional<std::uint64_t> recorded = recorded_hash(*planned_);
    if (recorded && *recorded != hash_)
      throw CommandError(
          ExitCode::run_failed,
          fmt::format("{}: trained again, it ends with another state_hash than {}; remove that folder",
                      planned_->name, planned_->folder.string()));
  }

 private:
  void look() {
    weights_.clear();
    for (const engine::Parameter* parameter : trainer_->parameters())
      append_values(*run_->backend, parameter->value, weights_);
  }

  const PlannedRun* planned_;
  std::unique_ptr<PreparedRun> run_;
  engine::Tap nobody_;
  std::unique_ptr<engine::Trainer> trainer_;
  std::vector<float> weights_;
  std::uint64_t hash_ = 0;
};

/// The runs of one workload and seed, by variant.
using Block = std::map<std::string_view, const PlannedRun*>;

std::vector<DistanceCurve> curves_of(const Block& runs, std::span<const VariantPair> pairs) {
  std::vector<DistanceCurve> curves;
  for (const auto& [reference, variant] : pairs)
    if (runs.contains(reference) && runs.contains(variant))
      curves.push_back({.workload = runs.at(variant)->workload,
                        .reference = std::string(reference),
                        .variant = std::string(variant),
                        .seed = static_cast<std::int64_t>(runs.at(variant)->config.train.seed)});
  return curves;
}

/// Fills `curves` from those that are known; false where one is not, or is of other runs than those on disk.
bool recall(const Block& runs, const std::vector<DistanceCurve>& known, std::vector<DistanceCurve>& curves) {
  return std::ranges::all_of(curves, [&](DistanceCurve& curve) {
    const auto found = std::ranges::find_if(known, [&](const DistanceCurve& old) {
      return old.workload == curve.workload && old.seed == curve.seed && old.reference == curve.reference &&
             old.variant == curve.variant && recorded_hash(*runs.at(old.reference)) == old.reference_hash &&
             recorded_hash(*runs.at(old.variant)) == old.variant_hash;
    });
    if (found != known.end()) curve = *found;
    return found != known.end();
  });
}

void measure(const Block& runs, const DistanceOptions& options, std::vector<DistanceCurve>& curves) {
  std::map<std::string_view, std::unique_ptr<Training>> trainings;
  for (DistanceCurve& curve : curves) {
    curve.distances.clear();
    for (const std::string& variant : {curve.reference, curve.variant})
      if (const PlannedRun* run = runs.at(variant); !trainings.contains(run->variant))
        trainings.emplace(run->variant, std::make_unique<Training>(*run, options.threads));
  }
  const std::uint64_t steps = trainings.begin()->second->steps();
  for (std::uint64_t step = 0; step <= steps; ++step) {
    if (interrupted()) throw CommandError(ExitCode::interrupted, "interrupted; the same command continues");
    if (step > 0)
      for (const auto& [variant, one] : trainings) one->step();
    for (DistanceCurve& curve : curves)
      curve.distances.push_back(relative_distance(trainings.at(curve.reference)->weights(),
                                                  trainings.at(curve.variant)->weights()));
    if (options.progress)
      options.progress(fmt::format("distances: {} seed {}, step {}/{}", curves.front().workload,
                                   curves.front().seed, step, steps));
  }
  for (const auto& [variant, one] : trainings) one->require_recorded();
  for (DistanceCurve& curve : curves) {
    curve.reference_hash = trainings.at(curve.reference)->hash();
    curve.variant_hash = trainings.at(curve.variant)->hash();
  }
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
                                             const DistanceOptions& options) {
  std::vector<std::string> workloads;
  std::map<std::string, std::vector<Block>> blocks;  // by seed, in the plan's order
  for (const PlannedRun& run : plan.runs) {
    if (!blocks.contains(run.workload)) workloads.push_back(run.workload);
    std::vector<Block>& of_workload = blocks[run.workload];
    const auto same_seed = std::ranges::find_if(of_workload, [&](const Block& block) {
      return block.begin()->second->config.train.seed == run.config.train.seed;
    });
    Block& block = same_seed == of_workload.end() ? of_workload.emplace_back() : *same_seed;
    block.emplace(run.variant, &run);
  }
  std::vector<DistanceCurve> all;
  for (std::size_t seed = 0; seed < options.seeds; ++seed)
    for (const std::string& workload : workloads) {
      if (seed >= blocks.at(workload).size()) continue;
      const Block& block = blocks.at(workload)[seed];
      std::vector<DistanceCurve> curves = curves_of(block, pairs);
      if (curves.empty()) continue;
      if (!recall(block, options.known, curves)) measure(block, options, curves);
      all.insert(all.end(), curves.begin(), curves.end());
      if (options.keep) options.keep(all);
    }
  return all;
}

std::string distances_csv(const std::vector<DistanceCurve>& curves) {
  std::string text = fmt::format("{}\n", csv_header);
  for (const DistanceCurve& curve : curves)
    for (std::size_t step = 0; step < curve.distances.size(); ++step)
      text += fmt::format("{},{},{},{},{},{:.9g},{:016x},{:016x}\n", curve.workload, curve.reference,
                          curve.variant, curve.seed, step, curve.distances[step], curve.reference_hash,
                          curve.variant_hash);
  return text;
}

std::vector<DistanceCurve> read_distances(const std::filesystem::path& file) {
  std::vector<DistanceCurve> curves;
  if (!is_there(file)) return curves;
  std::istringstream lines(read_file(file, longest::table));
  std::string line;
  for (std::size_t number = 1; std::getline(lines, line); ++number) {
    if (number == 1 && line == csv_header) continue;
    std::istringstream words(line);
    std::array<std::string, 8> field;
    for (std::string& word : field) std::getline(words, word, ',');
    try {
      DistanceCurve curve{
          .workload = field[0], .reference = field[1], .variant = field[2], .seed = std::stoll(field[3])};
      curve.reference_hash = std::stoull(field[6], nullptr, 16);
      curve.variant_hash = std::stoull(field[7], nullptr, 16);
      const std::size_t step = std::stoul(field[4]);
      if (step == 0) curves.push_back(std::move(curve));
      if (curves.empty() || curves.back().distances.size() != step)
        throw std::invalid_argument("a step is missing");
      curves.back().distances.push_back(std::stod(field[5]));
    } catch (const std::logic_error&) {
      throw std::runtime_error(
          fmt::format("{}:{}: expected the next step's {}; remove this file to measure again", file.string(),
                      number, csv_header));
    }
  }
  return curves;
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
