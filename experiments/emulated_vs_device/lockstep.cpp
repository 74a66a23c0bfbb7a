#include "experiments/emulated_vs_device/lockstep.hpp"

#include <fmt/format.h>

#include <bit>
#include <chrono>
#include <stdexcept>
#include <utility>

#include "engine/backend/digest_functions.hpp"
#include "engine/backend/emulated/emulated_backend.hpp"
#include "engine/train/trainer.hpp"
#include "experiments/app/process.hpp"
#include "experiments/app/run/prepared_run.hpp"
#include "numerics/random/philox.hpp"
#include "numerics/tensor_core/tensor_core_model.hpp"

namespace fp16lab::experiments {
namespace {

/// Keeps the histograms of one step.
class Watcher final : public engine::TrainObserver {
 public:
  explicit Watcher(std::uint64_t every) : every_(every) {}
  bool wants_gradients(std::uint64_t step) override {
    seen_.clear();
    return every_ > 0 && (step - 1) % every_ == 0;
  }
  void on_gradient(const HistogramRow& row) override { seen_.push_back(row); }
  bool stop_requested() override { return interrupted(); }

  const std::vector<HistogramRow>& seen() const { return seen_; }

 private:
  std::uint64_t every_;
  std::vector<HistogramRow> seen_;
};

std::uint64_t hash_of(const std::vector<HistogramRow>& all) {
  std::uint64_t hash = 0, position = 0;
  const auto add = [&](std::uint64_t word) { hash += engine::functions::digest_word(word, position++, 0); };
  for (const HistogramRow& seen : all) {
    add(stream_id(seen.tensor));
    for (const ExponentHistogram* histogram : {&seen.before, &seen.after}) {
      for (const std::uint64_t bin : histogram->bins) add(bin);
      for (const std::uint64_t count : {histogram->zero, histogram->infinite, histogram->nan}) add(count);
    }
  }
  return hash;
}

/// Only a device records its steps (train.graph).
std::unique_ptr<PreparedRun> prepared(RunConfig config, std::unique_ptr<engine::Backend> backend) {
  config.train.graph = config.train.graph && backend->records();
  return prepare_run(resolve_run(std::move(config)), std::move(backend));
}

/// One back end with its run.
class Side {
 public:
  Side(const RunConfig& config, std::unique_ptr<engine::Backend> backend, const LockstepOptions& options)
      : run_(prepared(config, std::move(backend))), watcher_(options.histograms_every) {
    if (options.steps > 0) run_->plan.train.steps = options.steps;
    trainer_ = std::make_unique<engine::Trainer>(*run_->backend, run_->workload, run_->plan, watcher_);
  }

  engine::Backend& backend() { return *run_->backend; }
  engine::Trainer& trainer() { return *trainer_; }
  std::uint64_t steps() const { return run_->plan.train.steps; }
  double seconds() const { return seconds_; }
  const std::vector<HistogramRow>& histograms() const { return watcher_.seen(); }

  StepWords before_first_step() {
    StepWords words;
    words.row.state_hash = trainer_->state_hash();
    return words;
  }
  StepWords step() {
    const auto start = std::chrono::steady_clock::now();
    StepWords words{.row = trainer_->train_step()};
    seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    words.loss_overflow = trainer_->step_state().loss_overflow != 0.0f;
    words.gradient_hash = digest_of(backend(), gradients_of(*trainer_));
    words.histogram_hash = watcher_.seen().empty() ? 0 : hash_of(watcher_.seen());
    return words;
  }

 private:
  std::unique_ptr<PreparedRun> run_;
  Watcher watcher_;
  std::unique_ptr<engine::Trainer> trainer_;
  double seconds_ = 0;
};

std::string text(double value) {
  return fmt::format("{} ({:016x})", value, std::bit_cast<std::uint64_t>(value));
}
std::string text(bool value) { return value ? "true" : "false"; }
std::string text(std::uint64_t value) { return fmt::format("{:016x}", value); }
std::string text(const std::optional<double>& value) { return value ? text(*value) : "none"; }

bool same(double a, double b) { return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b); }
bool same(bool a, bool b) { return a == b; }
bool same(std::uint64_t a, std::uint64_t b) { return a == b; }
bool same(const std::optional<double>& a, const std::optional<double>& b) {
  return a.has_value() == b.has_value() && (!a || same(*a, *b));
}

/// The first tensor, in the order of the backward pass, of whose values the two counted different numbers.
FirstDifference histogram_difference(const std::vector<HistogramRow>& emulated,
                                     const std::vector<HistogramRow>& device) {
  FirstDifference difference{.quantity = "histograms",
                             .emulated = fmt::format("{} tensors", emulated.size()),
                             .device = fmt::format("{} tensors", device.size())};
  for (std::size_t i = 0; i < emulated.size() && i < device.size(); ++i) {
    const HistogramRow &ours = emulated[i], &theirs = device[i];
    if (ours == theirs) continue;
    difference.quantity = fmt::format("histogram of {}", ours.tensor);
    difference.emulated = fmt::format("{} values", ours.before.total());
    difference.device = fmt::format("{} values of {}", theirs.before.total(), theirs.tensor);
    const auto look = [&](const char* when, const ExponentHistogram& mine, const ExponentHistogram& other) {
      const auto compare = [&](const std::string& bin, std::uint64_t a, std::uint64_t b) {
        if (a == b) return;
        difference.emulated += fmt::format(", {} {}: {}", when, bin, a);
        difference.device += fmt::format(", {} {}: {}", when, bin, b);
      };
      for (int e = ExponentHistogram::min_exponent; e <= ExponentHistogram::max_exponent; ++e)
        compare(fmt::format("2^{}", e), mine.at(e), other.at(e));
      compare("zero", mine.zero, other.zero);
      compare("infinite", mine.infinite, other.infinite);
      compare("nan", mine.nan, other.nan);
      compare("bits of the smallest", mine.smallest, other.smallest);
      compare("bits of the greatest", mine.greatest, other.greatest);
    };
    look("before", ours.before, theirs.before);
    look("after", ours.after, theirs.after);
    break;
  }
  return difference;
}

/// In the order in which a step computes them, so that the first one is nearest to the cause.
std::optional<FirstDifference> compare(const StepWords& emulated, const StepWords& device,
                                       const std::vector<HistogramRow>& emulated_histograms,
                                       const std::vector<HistogramRow>& device_histograms) {
  const StepRow &a = emulated.row, &b = device.row;
  std::optional<FirstDifference> difference;
  const auto look = [&](std::string_view quantity, auto ours, auto theirs) {
    if (!difference && !same(ours, theirs))
      difference =
          FirstDifference{.quantity = std::string(quantity), .emulated = text(ours), .device = text(theirs)};
  };
  look("lr", a.lr, b.lr);
  look("loss_scale", a.loss_scale, b.loss_scale);
  look("loss", a.loss, b.loss);
  look("loss_overflow", emulated.loss_overflow, device.loss_overflow);
  if (!difference && emulated_histograms != device_histograms)
    difference = histogram_difference(emulated_histograms, device_histograms);
  look("found_inf", a.found_inf, b.found_inf);
  look("gradient_hash", emulated.gradient_hash, device.gradient_hash);
  for_each_field<StepRow>([&](const auto& field) {
    if (field.name != "seconds") look(field.name, a.*field.member, b.*field.member);
  });
  return difference;
}

}  // namespace

Lockstep run_lockstep(const RunConfig& config, std::unique_ptr<engine::Backend> emulated,
                      std::unique_ptr<engine::Backend> device, const LockstepOptions& options) {
  if (emulated->tensor_core() != device->tensor_core())
    throw std::invalid_argument(fmt::format("run_lockstep: the emulated tensor cores are {}, the device's {}",
                                            emulated->tensor_core(), device->tensor_core()));
  Lockstep result;
  result.tensor_core = device->tensor_core();
  Side ours(config, std::move(emulated), options), theirs(config, std::move(device), options);
  result.steps_asked = ours.steps();
  for (std::uint64_t step = 0; step <= result.steps_asked && !result.first; ++step) {
    if (interrupted()) {
      result.interrupted = true;
      break;
    }
    const StepPair pair = step == 0 ? StepPair{ours.before_first_step(), theirs.before_first_step()}
                                    : StepPair{ours.step(), theirs.step()};
    result.steps.push_back(pair);
    result.skipped_steps += pair.emulated.row.skipped ? 1 : 0;
    result.first = compare(pair.emulated, pair.device, ours.histograms(), theirs.histograms());
    if (result.first) {
      result.first->step = step;
      result.first->tensors = differing_tensors(ours.backend(), tensors_of(ours.trainer()), theirs.backend(),
                                                tensors_of(theirs.trainer()));
    } else if (options.progress) {
      options.progress(step, result.steps_asked);
    }
  }
  result.emulated_seconds = ours.seconds();
  result.device_seconds = theirs.seconds();
  return result;
}

Lockstep run_lockstep(const RunConfig& config, const std::string& row, int threads,
                      std::unique_ptr<engine::Backend> device, const LockstepOptions& options) {
  return run_lockstep(config, engine::make_emulated_backend(tensor_core_model(row), threads),
                      std::move(device), options);
}

}  // namespace fp16lab::experiments
