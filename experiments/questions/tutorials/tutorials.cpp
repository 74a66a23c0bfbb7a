// Every system and variant of configs/tutorials.toml runs in this process, so that the loss before the first
// step and the bits of every stored weight after every step are known. A few runs that no configuration file
// can hold come on top.
#include "experiments/questions/tutorials/tutorials.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <memory>
#include <utility>

#include "engine/data/batch_source.hpp"
#include "engine/train/iteration.hpp"
#include "engine/train/method.hpp"
#include "experiments/app/config/run_identity.hpp"
#include "experiments/app/config/run_plan.hpp"
#include "experiments/app/process.hpp"
#include "experiments/app/progress.hpp"
#include "experiments/questions/questions.hpp"
#include "experiments/questions/tutorials/mindspore_draws.hpp"
#include "numerics/files/disk/atomic_file.hpp"
#include "numerics/files/run/run_folder.hpp"
#include "numerics/text/scale_text.hpp"
#include "reports/data/run_config.hpp"

namespace fp16lab::experiments {
namespace {

using engine::Variable;

/// The nine layers ran on a V100 SXM2 (16 GB), the three on a GPU of capability 7.0 that is not named; FP32
/// of the static graph prints the same loss, O1 (from a scale of 128) another last digit. O1 has
/// elementwise_add in its white list, the accumulation has not. That the O2 runs had no master weights is our
/// reading: Paddle's SGD had none to keep then. All MindSpore losses are of an O0 run; it prints no other.
constexpr TheirResult their_results[] = {
    {"paddle_mlp3", "fp32", "FP32", 1.24519622, 2.926},
    {"paddle_mlp3", "o1", "O1", 1.24815702, 1.294},
    {"paddle_mlp3", "o2-no-masters", "O2, no master weights", 1.25423336, 0.890},
    {"paddle_mlp3", "o1-accumulate10", "O1, ten batches accumulated", 1.25602019, 1.026},
    {"paddle_linear9", "fp32", "FP32", 0.6486028, 0.529},
    {"paddle_linear9", "o1-add", "O1", 0.6486219, 0.118},
    {"paddle_linear9", "o1-add-scale128", "O1, static graph (scale from 128)", 0.6486222, 0.117},
    {"paddle_linear9", "o2-no-masters", "O2, no master weights", 0.6743, 0.102},
    {"paddle_linear9", "o2-guard-8-of-9", "O2, guard on eight of nine layers", 0.6691731, 0.140},
    {"paddle_linear9", "o1-accumulate10", "O1, ten batches accumulated", 0.6602017, 0.113},
    {"mindspore_random_images", "as-written", "", 2.2682834},
};

bool comparable(const RunConfig& a, const RunConfig& b) {
  return a.optimizer.name == b.optimizer.name && a.train.accumulate == b.train.accumulate &&
         a.train.accumulate_mode == b.train.accumulate_mode;
}

/// "" for nothing.
std::string optional_text(const std::optional<double>& value, fmt::format_string<const double&> format) {
  return value ? fmt::format(format, *value) : "";
}

/// `loss` of the last batch over that of the system's plain FP32 run: how the tutorials' numbers compare.
std::optional<double> their_measure(const TutorialTable& table, const TutorialRun& run, double loss) {
  const TutorialRun* const plain = table.find(run.system, "fp32");
  if (plain == nullptr || !std::isfinite(loss)) return std::nullopt;
  return loss / plain->last_batch_loss;
}

std::optional<double> their_ratio(const TutorialRun& run) {
  const TheirResult* const theirs = their_result(run.system, run.variant);
  const TheirResult* const plain = their_result(run.system, "fp32");
  if (theirs == nullptr || plain == nullptr) return std::nullopt;
  return theirs->loss / plain->loss;
}

}  // namespace

const TheirResult* their_result(std::string_view system, std::string_view variant) {
  for (const TheirResult& result : their_results)
    if (result.system == system && result.variant == variant) return &result;
  return nullptr;
}

const TutorialRun* TutorialTable::find(std::string_view system, std::string_view variant) const {
  for (const TutorialRun& run : runs_)
    if (run.system == system && run.variant == variant) return &run;
  return nullptr;
}

const TutorialRun* TutorialTable::reference_of(const TutorialRun& run) const {
  for (const TutorialRun& candidate : runs_)
    if (candidate.system == run.system && identity_of(candidate.config).is_reference() &&
        comparable(candidate.config, run.config))
      return &candidate;
  return nullptr;
}

std::optional<double> TutorialTable::ratio_of(const TutorialRun& run) const {
  const TutorialRun* const reference = reference_of(run);
  if (reference == nullptr || !reference->loss || !run.loss) return std::nullopt;
  return *run.loss / *reference->loss;
}

std::optional<double> TutorialTable::progress_of(const TutorialRun& run) const {
  const TutorialRun* const reference = reference_of(run);
  if (reference == nullptr || !reference->loss || !run.loss) return std::nullopt;
  return (run.loss_before - *run.loss) / (reference->loss_before - *reference->loss);
}

std::optional<double> TutorialTable::span_of(const TutorialRun& run) const {
  const TutorialRun* const reference = reference_of(run);
  if (reference == nullptr || !reference->loss) return std::nullopt;
  double low = *reference->loss;
  double high = low;
  bool repeated = false;
  for (const TutorialRun& other : repetitions_) {
    if (other.system != run.system || !comparable(other.config, run.config) || !other.loss) continue;
    low = std::min(low, *other.loss);
    high = std::max(high, *other.loss);
    repeated = true;
  }
  if (!repeated) return std::nullopt;
  return (high - low) / *reference->loss;
}

std::string TutorialTable::text() const {
  std::string text = fmt::format(
      "{:<24} {:<23} {:>9} {:>9} {:>8} {:>7} {:>7} {:>7} {:>8} {:>8} {:>7} {:>7} {:>7} {:>8} {:>7}\n",
      "system", "variant", "at first", "at last", "/ FP32", "way", "seeds", "skipped", "still", "scale",
      "unmoved", "ours", "theirs", "loss", "seconds");
  const auto percent_text = [](const std::optional<double>& share) {
    return share ? fmt::format("{:.1f}%", 100 * *share) : std::string();
  };
  for (const TutorialRun& run : runs_) {
    const TheirResult* const theirs = their_result(run.system, run.variant);
    text += fmt::format(
        "{:<24} {:<23} {:>9.6f} {:>9} {:>8} {:>7} {:>7} {:>7} {:>7.2f}% {:>8.6g} {:>7} {:>7} {:>7} {:>8} "
        "{:>7}\n",
        run.system, run.variant, run.loss_before, run.loss ? fmt::format("{:.6f}", *run.loss) : "diverged",
        optional_text(ratio_of(run), "{:.5f}"), percent_text(progress_of(run)), percent_text(span_of(run)),
        run.skipped, 100 * run.weights.still(), run.final_scale,
        theirs != nullptr ? optional_text(their_measure(*this, run, run.last_batch_unmoved), "{:.4f}") : "",
        theirs != nullptr ? optional_text(their_measure(*this, run, run.last_batch_loss), "{:.4f}") : "",
        optional_text(their_ratio(run), "{:.4f}"),
        theirs != nullptr ? fmt::format("{:.6f}", theirs->loss) : "",
        theirs != nullptr ? optional_text(theirs->seconds, "{:.3f}") : "");
  }
  return text +
         "at first, at last: loss over the evaluation batches (synthetic data: the training batches) before "
         "the first and after the last step\n"
         "/ FP32: the last one over that of FP32 with the same optimizer and accumulation; way: how much of "
         "FP32's decrease it made;\n"
         "seeds: how far apart that FP32 run ends with three seeds. One run each: none of these says that "
         "one trains better or worse\n"
         "still: weights (without biases) whose stored bits never changed, after any step; scale: after the "
         "last step\n"
         "unmoved, ours, theirs: as the tutorials measure, the loss of the last batch before its step, over "
         "FP32's; unmoved: of our network before its first step, where one that never moves would stay\n"
         "loss, seconds: the tutorial's own, at its size and on its machine\n";
}

std::string TutorialTable::csv() const {
  std::string text =
      "system,variant,seed,steps,loss_before,loss,ratio_to_fp32,progress_to_fp32,fp32_span,accuracy,"
      "last_batch_unmoved,last_batch_loss,skipped_steps,final_scale,weights,weights_moved,biases,biases_"
      "moved,weights_digest,seconds,tutorial_loss,tutorial_seconds\n";
  const auto add = [&](const TutorialRun& run, const std::string& compared) {
    const TheirResult* const theirs = their_result(run.system, run.variant);
    text += fmt::format(
        "{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{:016x},{:.3f},{},{}\n", run.system, run.variant,
        run.config.train.seed, run.steps, run.loss_before, optional_text(run.loss, "{}"), compared,
        optional_text(run.accuracy, "{}"), run.last_batch_unmoved, run.last_batch_loss, run.skipped,
        run.final_scale, run.weights.elements, run.weights.moved, run.biases.elements, run.biases.moved,
        run.weights_digest, run.seconds, theirs != nullptr ? fmt::format("{}", theirs->loss) : "",
        theirs != nullptr ? optional_text(theirs->seconds, "{}") : "");
  };
  for (const TutorialRun& run : runs_)
    add(run, fmt::format("{},{},{}", optional_text(ratio_of(run), "{}"),
                         optional_text(progress_of(run), "{}"), optional_text(span_of(run), "{}")));
  for (const TutorialRun& run : repetitions_) add(run, ",,");
  return text;
}

// Runs that configuration files cannot hold, and what must be so.

namespace {

/// MindSpore's custom train-one-step cell: scale the loss, differentiate, multiply the gradients by 1/S in
/// the step itself, hand them to the optimizer. For scaler.drop_overflow_update = false and
/// optimizer.loss_scale = 1. Gradients must be FP32.
class CustomStep final : public engine::TrainingMethod {
 public:
  explicit CustomStep(double scale) : scale_(scale) {}
  void run(engine::Iteration& iteration) override {
    engine::Backend& backend = iteration.backend();
    engine::optim::Optimizer& optimizer = iteration.optimizer(0);
    {
      const engine::amp::AutocastGuard autocast(iteration.tape(), iteration.autocast());
      for (std::int64_t i = 0; i < iteration.micro_batches(); ++i) {
        const engine::data::Batch batch = iteration.begin_micro_batch(i);
        const Variable input = iteration.network_input(batch.inputs);
        const Variable output = iteration.network_output(iteration.model().forward(iteration.tape(), input));
        const Variable loss = iteration.loss_of(output, batch.targets);
        iteration.record_loss(loss);
        iteration.backward(iteration.accumulated(loss));
        iteration.tape().reset();
      }
    }
    if (!inverse_.defined()) {
      inverse_ = backend.empty(engine::Shape{1}, DType::f32);
      backend.fill(inverse_, 1.0 / scale_);
    }
    for (engine::Parameter* parameter : optimizer.parameters())
      if (parameter->has_gradient)
        backend.binary(engine::BinaryOp::multiply, parameter->gradient, inverse_, parameter->gradient);
    iteration.step(optimizer);
  }
  Evaluation evaluate(engine::Iteration& iteration, const engine::data::Batch& batch) override {
    return engine::Supervised().evaluate(iteration, batch);
  }

 private:
  double scale_;
  engine::Tensor inverse_;  ///< f32, one element: 1/S
};

/// The batches of another source, but one of them has targets so far away that the scaled gradient of its
/// loss has no FP16 value, while the loss itself is a finite FP32 number.
class OverflowingSource final : public engine::data::BatchSource {
 public:
  /// `target`: every target of micro-batch `index`, counted over the whole run.
  OverflowingSource(std::unique_ptr<engine::data::BatchSource> source, std::uint64_t index, float target)
      : source_(std::move(source)), index_(index), target_(target) {}

  std::uint64_t batches_per_epoch() const override { return source_->batches_per_epoch(); }
  std::int64_t rows_per_batch() const override { return source_->rows_per_batch(); }
  std::string_view split() const override { return source_->split(); }
  engine::data::Batch batch(engine::Backend& backend, std::uint64_t index) override {
    engine::data::Batch batch = source_->batch(backend, index);
    if (index == index_) backend.fill(batch.targets, static_cast<double>(target_));
    return batch;
  }

 private:
  std::unique_ptr<engine::data::BatchSource> source_;
  std::uint64_t index_;
  float target_;
};

constexpr std::string_view linear9 = "paddle_linear9";
constexpr std::string_view custom_step = "mindspore_custom_step";
constexpr std::string_view random_images = "mindspore_random_images";

/// A target whose squared error is a finite FP32 sum at any of the sizes, and whose scaled gradient has no
/// FP16 value: 2 * 1e10 / (2048 * 8192) * 1024 is 1.2e6.
constexpr float far_away = 1e10f;
/// Where it is in the first window of ten.
constexpr std::uint64_t overflowing_micro_batch = 3;

using Asked = Question<TutorialTable>;

Asked near_fp32(std::string_view what, std::string_view variant) {
  return {
      .claim = fmt::format("{} ends at FP32's loss, but for a thousandth, in its one run", what),
      .criterion = fmt::format(
          "|loss({}) - loss(fp32)| < {} loss(fp32); one seed, so a fact of these two runs", variant, as_fp32),
      .judge = [variant](const TutorialTable& table) -> Answer {
        const TutorialRun* const run = table.find(linear9, variant);
        if (run == nullptr || table.reference_of(*run) == nullptr) return {};
        const std::optional<double> ratio = table.ratio_of(*run);
        if (!ratio) return {Verdict::fails, "a run diverged"};
        return {verdict_of(std::abs(*ratio - 1) < as_fp32),
                fmt::format("{:.7f} against {:.7f}, off by {:.2e}", *run->loss,
                            *table.reference_of(*run)->loss, std::abs(*ratio - 1))};
      }};
}

std::string loss_text(const TutorialRun& run) {
  return run.loss ? fmt::format("loss {:.7f}", *run.loss) : fmt::format("diverged after {} steps", run.steps);
}

Asked other_result(std::string claim, std::string_view right, std::string_view wrong) {
  return {.claim = std::move(claim),
          .criterion = "other bits than with one division",
          .judge = [right, wrong](const TutorialTable& table) -> Answer {
            const TutorialRun* const right_run = table.find(custom_step, right);
            const TutorialRun* const wrong_run = table.find(custom_step, wrong);
            if (right_run == nullptr || wrong_run == nullptr) return {};
            return {verdict_of(right_run->weights_digest != wrong_run->weights_digest),
                    fmt::format("{}; divided once: {}", loss_text(*wrong_run), loss_text(*right_run))};
          }};
}

}  // namespace

void add_special_runs(TutorialTable& table, int threads,
                      const std::function<void(const std::string&)>& progress) {
  if (const TutorialRun* const written = table.find(custom_step, "as-written")) {
    RunConfig config = written->config;
    config.optimizer.loss_scale = 1;
    progress(divides_in_the_step);
    table.add(
        run_tutorial(std::string(custom_step), divides_in_the_step, config, threads, [](PreparedRun& run) {
          run.workload.method =
              std::make_unique<CustomStep>(run.plan.config.scaler.parameter("initial_scale").value());
        }));
  }
  if (const TutorialRun* const accumulated = table.find(linear9, "o1-accumulate10")) {
    RunConfig config = accumulated->config;
    config.train.steps = 2;
    progress(overflow_in_window);
    table.add(run_tutorial(std::string(linear9), overflow_in_window, config, threads, [](PreparedRun& run) {
      run.batches.training = std::make_unique<OverflowingSource>(std::move(run.batches.training),
                                                                 overflowing_micro_batch, far_away);
      run.workload.training = run.batches.training.get();
    }));
    // Ten batches an epoch: the second window has the batches of the first, so this is what it should come
    // to.
    config.train.steps = 1;
    engine::ScalerOptions& scaler = config.scaler;
    scaler.parameters["initial_scale"] =
        scaler.parameter("initial_scale").value() * scaler.parameter("backoff_factor").value();
    progress(after_dropped_window);
    table.add(run_tutorial(std::string(linear9), after_dropped_window, config, threads));
  }
}

std::vector<Question<TutorialTable>> tutorial_questions() {
  return {
      near_fp32("O1", "o1"),
      near_fp32("O2 with master weights", "o2-masters"),
      {.claim = "without master weights, O2 does not move: SGD at 1e-4 is below half a spacing of most FP16 "
                "weights",
       .criterion =
           fmt::format("more than {:.0f} % of the stored FP16 weights keep their 16 bits through every step",
                       100 * frozen_share),
       .judge = [](const TutorialTable& table) -> Answer {
         const TutorialRun* const run = table.find(linear9, "o2-no-masters");
         if (run == nullptr) return {};
         const std::optional<double> progress = table.progress_of(*run);
         return {verdict_of(run->weights.still() > frozen_share),
                 fmt::format("{:.2f} % of {} weights ({:.2f} % of {} biases, which begin at 0); the loss "
                             "makes {} of FP32's way",
                             100 * run->weights.still(), run->weights.elements, 100 * run->biases.still(),
                             run->biases.elements,
                             progress ? fmt::format("{:.2f} %", 100 * *progress) : "an unknown part")};
       }},
      {.claim = "it does not matter who divides by the loss scale: the step, the optimizer or the scaler",
       .criterion = "equal bits in every weight after the last step",
       .judge = [](const TutorialTable& table) -> Answer {
         const TutorialRun* const optimizer = table.find(custom_step, "as-written");
         const TutorialRun* const scaler = table.find(custom_step, "scaler-divides");
         const TutorialRun* const step = table.find(custom_step, divides_in_the_step);
         if (optimizer == nullptr || scaler == nullptr || step == nullptr) return {};
         return {verdict_of(step->weights_digest == optimizer->weights_digest &&
                            scaler->weights_digest == optimizer->weights_digest),
                 fmt::format("digests {:016x} (step), {:016x} (optimizer), {:016x} (scaler); {}",
                             step->weights_digest, optimizer->weights_digest, scaler->weights_digest,
                             loss_text(*optimizer))};
       }},
      other_result(
          "a forgotten division changes the bits even under AdamW, whose steps know the size of a gradient "
          "by epsilon only",
          "as-written", "division-forgotten"),
      other_result("so does a doubled one", "as-written", "division-doubled"),
      other_result("under SGD a forgotten division changes the bits: it multiplies the learning rate by the "
                   "loss scale",
                   "sgd-optimizer-divides", "sgd-division-forgotten"),
      other_result("and a doubled one divides it", "sgd-optimizer-divides", "sgd-division-doubled"),
      {.claim = "one micro-batch that overflows drops its whole window, and the scale backs off once",
       .criterion =
           "1 of 2 steps skipped, no weight moved by it, and then the bits of a run that began with half "
           "the scale",
       .judge = [](const TutorialTable& table) -> Answer {
         const TutorialRun* const run = table.find(linear9, overflow_in_window);
         const TutorialRun* const clean = table.find(linear9, after_dropped_window);
         if (run == nullptr || clean == nullptr) return {};
         const bool untouched = run->digest_after_first_step == run->digest_before;
         const bool equal = run->weights_digest == clean->weights_digest;
         return {
             verdict_of(run->skipped == 1 && untouched && equal && run->final_scale == clean->final_scale),
             fmt::format(
                 "{} of {} steps skipped, weights {} after the first, scale {} at the end, then {} bits",
                 run->skipped, run->steps, untouched ? "untouched" : "moved", scale_text(run->final_scale),
                 equal ? "equal" : "other")};
       }},
      {.claim = "LeNet-5 on the tutorial's own draws: the tutorial's ten numbers, here",
       .criterion =
           fmt::format("the last batch of each of ten epochs has the printed loss, but for {}", as_printed),
       .judge = [](const TutorialTable& table) -> Answer {
         const TutorialRun* const run = table.find(random_images, "as-written");
         if (run == nullptr || run->epoch_losses.empty()) return {};
         if (run->epoch_losses.size() != std::size(mindspore_losses))
           return {Verdict::fails, fmt::format("{} losses", run->epoch_losses.size())};
         double farthest = 0;
         for (std::size_t epoch = 0; epoch < run->epoch_losses.size(); ++epoch)
           farthest = std::max(farthest, std::abs(run->epoch_losses[epoch] - mindspore_losses[epoch]));
         return {verdict_of(farthest <= as_printed),
                 fmt::format("from {:.7f} to {:.7f}; the farthest is {:.1e} from its number",
                             run->epoch_losses.front(), run->epoch_losses.back(), farthest)};
       }},
      {.claim = "nothing is learnt in 320 steps but how often each label occurs",
       .criterion = "after them the loss over all images is not below the entropy of their labels, the least "
                    "loss of one answer for all",
       .judge = [](const TutorialTable& table) -> Answer {
         const TutorialRun* const run = table.find(random_images, "as-written");
         if (run == nullptr) return {};
         return {verdict_of(run->loss && run->label_entropy && *run->loss >= *run->label_entropy),
                 fmt::format("{} after {} steps, {:.7f} before them; entropy {:.7f}", loss_text(*run),
                             run->steps, run->loss_before, run->label_entropy.value_or(0))};
       }}};
}

// Paddle's tutorials at their own size: one run a column, so no verdicts.

namespace {

/// Micro-batches of a step.
std::size_t accumulated(const RunFolder& run) {
  const reports::FlatConfig config = reports::flatten_toml(run.manifest.config, run.path.string());
  return static_cast<std::size_t>(number_or(config, "train.accumulate", 1));
}

/// The mean of the last `steps` steps.
double mean_loss(const RunFolder& run, std::size_t steps) {
  double sum = 0;
  for (std::size_t i = run.steps.size() - steps; i < run.steps.size(); ++i) sum += run.steps[i].loss;
  return sum / static_cast<double>(steps);
}

std::string percent(double loss, double reference) {
  return fmt::format("{:+.3f} %", 100 * (loss / reference - 1));
}

std::string row_of(const TheirResult& theirs, const std::optional<RunFolder>& run,
                   const std::optional<RunFolder>& fp32) {
  const TheirResult& their_fp32 = *their_result(theirs.system, "fp32");
  const bool is_fp32 = &theirs == &their_fp32;
  const std::string begin = fmt::format("| {} | {} | {} | ", theirs.title, theirs.loss,
                                        is_fp32 ? "" : percent(theirs.loss, their_fp32.loss));
  const auto without = [&](const std::string& why) {
    return fmt::format("{}{} | | | {} | |\n", begin, why, theirs.seconds.value());
  };
  if (!run) return without("not run");
  if (!run->finished()) return without(fmt::format("stopped after step {}", run->steps.size()));
  const std::size_t batches = accumulated(*run);
  const bool compares = !is_fp32 && fp32 && fp32->finished() && fp32->steps.size() >= batches;
  double seconds = 0;
  std::size_t skipped = 0;
  for (const StepRow& step : run->steps) {
    seconds += step.seconds;
    skipped += step.skipped ? 1 : 0;
  }
  return begin + fmt::format("{:.7f} | {} | {} of {} | {} | {:.0f} |\n", run->steps.back().loss,
                             compares ? percent(run->steps.back().loss, mean_loss(*fp32, batches)) : "",
                             skipped, run->steps.size(), theirs.seconds.value(), seconds);
}

/// Markdown: a table for each tutorial, of runs in the folder of a sweep (configs/tutorials_full.toml), a row
/// for each of its results: loss, and distance from FP32, theirs and ours. A run that is not there or not
/// finished has no figures but how far it came. "Loss" is the tutorials' measure, that of the last batch
/// before its step; where ten batches are accumulated, our steps record the mean of the ten, and the distance
/// is from FP32's mean over the same ten batches. CommandError(usage) for a folder without any of these runs;
/// std::runtime_error for a damaged one.
std::string full_size_tables(const std::filesystem::path& folder) {
  std::string text;
  bool any = false;
  for (const auto& [system, title] :
       {std::pair{"paddle_mlp3", "Three Linear layers of 4096 (Paddle's short tutorial)"},
        {"paddle_linear9", "Nine Linear layers of 8192 (Paddle's guide)"}}) {
    text += fmt::format(
        "{}{}\n\n| | loss, theirs | from FP32 | loss, ours | from FP32 | skipped steps | seconds, theirs | "
        "ours |\n|---|---|---|---|---|---|---|---|\n",
        text.empty() ? "" : "\n", title);
    std::optional<RunFolder> fp32;
    for (const TheirResult& theirs : their_results) {
      if (theirs.system != system) continue;
      const std::filesystem::path place = folder / fmt::format("{}-{}-seed1", system, theirs.variant);
      std::optional<RunFolder> run;
      if (is_run_folder(place)) run = read_run_folder(place);
      if (theirs.variant == "fp32") fp32 = run;
      any = any || run;
      text += row_of(theirs, run, fp32);
    }
  }
  if (!any)
    throw CommandError(ExitCode::usage,
                       fmt::format("--runs {}: no run of tutorials_full.toml is there; make them with cmake "
                                   "--build build --target tutorials_full",
                                   folder.string()));
  return text;
}

TutorialTable measure(const CommonOptions& common, const SweepPlan& plan) {
  const std::filesystem::path csv = common.out / "exp_tutorials.csv";
  Progress progress(common.quiet);
  TutorialTable table;
  for (const PlannedRun& planned : plan.runs) {
    progress.show(fmt::format("{}: {}/{} {} {}", common.program, table.runs().size() + 1, plan.runs.size(),
                              planned.workload, planned.variant));
    table.add(run_tutorial(planned.workload, planned.variant, planned.config, common.threads,
                           draws_of(planned.workload)));
    write_file_atomically(csv, table.csv());  // what there is survives an interrupt
  }
  // What a random start does to an FP32 run; on synthetic data another seed is another task.
  for (const PlannedRun& planned : plan.runs) {
    if (task_of(planned.config).data == engine::data::DataKind::synthetic ||
        !identity_of(planned.config).is_reference())
      continue;
    for (const std::int64_t more : {1, 2}) {
      RunConfig config = planned.config;
      config.train.seed += more;
      progress.show(fmt::format("{}: {} {} seed {}", common.program, planned.workload, planned.variant,
                                config.train.seed));
      table.add_repetition(run_tutorial(planned.workload, planned.variant, config, common.threads));
    }
  }
  add_special_runs(table, common.threads, [&](const std::string& name) {
    progress.show(fmt::format("{}: {}", common.program, name));
  });
  write_file_atomically(csv, table.csv());
  return table;
}

}  // namespace

Command::Run ask_tutorials(Options& options) {
  struct Given {
    bool full = false;
    std::string runs, weights;
  };
  auto given = std::make_shared<Given>();
  options.flag("--full", given->full,
               "Use the tutorials' own sizes (gigabytes of memory, and hours without a GPU)");
  options.add(
      "--runs", given->runs,
      "Only print the tables of Paddle's tutorials beside the runs of this folder (tutorials_full.toml)");
  options.add("--weights", given->weights,
              "Only write the initial weights of MindSpore's tutorial to this file (safetensors)");
  return [given](const CommonOptions& common) {
    if (!given->weights.empty()) {
      write_mindspore_weights(given->weights);
      return ExitCode::ok;
    }
    if (!given->runs.empty()) {
      fmt::print("{}", full_size_tables(given->runs));
      return ExitCode::ok;
    }
    const SweepPlan plan = load_sweep(common, given->full);
    catch_interrupts();
    return run_study<TutorialTable>(
        common, {.questions = tutorial_questions(),
                 .measure = [&] { return measure(common, plan); },
                 .describe = [](const TutorialTable& table) -> Described { return {table.text()}; }});
  };
}

}  // namespace fp16lab::experiments
