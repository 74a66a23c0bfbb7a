#include "experiments/tutorials/tutorial_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "experiments/app/config/run_identity.hpp"
#include "experiments/app/config/run_plan.hpp"

namespace fp16lab::experiments {
namespace {

/// The nine layers ran on a V100 SXM2 (16 GB), the three on a GPU of capability 7.0 that is not named; FP32
/// of the static graph prints the same loss, O1 (from a scale of 128) another last digit. O1 has
/// elementwise_add in its white list, the accumulation has not. That the O2 runs had no master weights is our
/// reading: Paddle's SGD had none to keep then. All MindSpore losses are of an O0 run; it prints no other.
constexpr TheirResult their_results[] = {
    {"paddle_linear9", "fp32", 0.6486028, 0.529},
    {"paddle_linear9", "o1-add", 0.6486219, 0.118},
    {"paddle_linear9", "o1-add-scale128", 0.6486222, 0.117},
    {"paddle_linear9", "o2-no-masters", 0.6743, 0.102},
    {"paddle_linear9", "o2-guard-8-of-9", 0.6691731, 0.140},
    {"paddle_linear9", "o1-accumulate10", 0.6602017, 0.113},
    {"paddle_mlp3", "fp32", 1.24519622, 2.926},
    {"paddle_mlp3", "o1", 1.24815702, 1.294},
    {"paddle_mlp3", "o2-no-masters", 1.25423336, 0.890},
    {"paddle_mlp3", "o1-accumulate10", 1.25602019, 1.026},
    {"mindspore_random_images", "as-written", 2.2682834},
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

}  // namespace fp16lab::experiments
