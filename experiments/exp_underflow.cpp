// exp_underflow: do gradients that round to zero in FP16 hurt this regression, and does loss scaling bring it
// back?
//
// Two claims, each with its criterion fixed here, before anything is measured:
//   1. Without loss scaling the run ends worse: its final test loss is above FP32's by more
//      than 5 % and by more than three times the larger spread (max - min) over seeds of the two.
//   2. Loss scaling brings it back: at least one scaled configuration ends within 1 % of FP32 (or below it).
// Beside them, as the reason: the share of the non-zero loss gradients (dL/dy) that round to zero.
#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <optional>

#include "analysis/comparison.hpp"
#include "experiments/command_line.hpp"
#include "experiments/sweep.hpp"
#include "numerics/cast_counts.hpp"
#include "numerics/files/atomic_file.hpp"
#include "numerics/files/run_folder.hpp"
#include "numerics/range_counts.hpp"

namespace fp16lab::experiments {
namespace {

constexpr double worse_percent = 5.0;
constexpr double recovered_percent = 1.0;
/// The tensor that the loss hands to the network: dL/dy.
constexpr std::string_view loss_gradient = "loss.prediction";

/// Names as in the demonstration sweeps, so that -o results/demo reuses their runs.
const std::vector<SweepVariant>& variants() {
  static const std::vector<SweepVariant> list{
      {"fp32", {"amp.level=O0", "scaler.policy=none"}},
      {"none", {"amp.level=O1", "scaler.policy=none"}},
      {"fixed-2p3", {"amp.level=O1", "scaler.policy=fixed", "scaler.initial_scale=2^3"}},
      {"fixed-2p7", {"amp.level=O1", "scaler.policy=fixed", "scaler.initial_scale=2^7"}},
  };
  return list;
}

/// All seeds of one variant.
struct Measured {
  std::string variant;
  std::vector<double> losses;  ///< final test losses; infinite for a run that diverged
  bool complete = true;
  CastCounts casts;                  ///< what the run's own casts did to dL/dy; nothing in FP32
  ExponentHistogram loss_gradients;  ///< dL/dy before them, scale included
  std::optional<analysis::Comparison> against_fp32;
};

Measured measure(const SweepPlan& plan, const std::string& variant) {
  Measured measured;
  measured.variant = variant;
  for (const PlannedRun& planned : plan.runs) {
    if (planned.variant != variant) continue;
    if (!is_done(planned)) {
      measured.complete = false;
      continue;
    }
    const RunFolder run = read_run_folder(planned.folder);
    measured.losses.push_back(run.finished() && !run.evaluations.empty()
                                  ? run.evaluations.back().loss
                                  : std::numeric_limits<double>::infinity());
    for_each_histogram(planned.folder, [&measured](const HistogramRow& row) {
      if (row.tensor != loss_gradient) return;
      measured.loss_gradients += row.before;
      if (const auto casts = cast_counts(row.dtype, row.before, row.after)) measured.casts += *casts;
    });
  }
  return measured;
}

/// What FP16 would lose of dL/dy at the scale that it had.
double in_fp16(const Measured& measured) { return underflow_rate(measured.loss_gradients, fp16_range, 1.0); }

std::string describe(const Measured& measured) {
  const analysis::Quality quality = analysis::quality_of(measured.losses);
  std::string text =
      fmt::format("{}: final test loss {:.6g} (min {:.6g}, max {:.6g}, {} seeds)", measured.variant,
                  quality.mean, quality.minimum, quality.maximum, quality.seeds);
  if (measured.against_fp32)
    text += fmt::format(", {:+.2f} % against fp32", measured.against_fp32->difference_percent);
  if (measured.casts.values == 0)
    return text + fmt::format(", {:.2f} % of dL/dy would round to zero in FP16", 100 * in_fp16(measured));
  return text + fmt::format(", {:.2f} % of dL/dy rounded to zero", 100 * measured.casts.underflow_rate());
}

std::string csv(const std::vector<Measured>& all) {
  std::string text =
      "variant,seeds,mean_loss,min_loss,max_loss,difference_percent,spread,loss_gradient_underflow,"
      "loss_gradient_underflow_in_fp16\n";
  for (const Measured& measured : all) {
    const analysis::Quality quality = analysis::quality_of(measured.losses);
    text +=
        fmt::format("{},{},{},{},{},{},{},{},{}\n", measured.variant, quality.seeds, quality.mean,
                    quality.minimum, quality.maximum,
                    measured.against_fp32 ? fmt::format("{}", measured.against_fp32->difference_percent) : "",
                    measured.against_fp32 ? fmt::format("{}", measured.against_fp32->spread) : "",
                    measured.casts.values == 0 ? "" : fmt::format("{}", measured.casts.underflow_rate()),
                    in_fp16(measured));
  }
  return text;
}

enum class Outcome { pass, fail, undecided };
const char* name_of(Outcome outcome) {
  return outcome == Outcome::pass ? "PASS" : outcome == Outcome::fail ? "FAIL" : "UNDECIDED";
}

void print_claim(int number, const std::string& claim, const std::string& criterion,
                 const std::string& numbers, Outcome outcome) {
  fmt::print("claim {}: {}\n  criterion: {}\n  measured: {}\n  verdict: {}\n", number, claim, criterion,
             numbers, name_of(outcome));
}

Outcome judge_harm(const Measured& unscaled, std::string& numbers) {
  const analysis::Comparison& comparison = *unscaled.against_fp32;
  const double difference = comparison.candidate.mean - comparison.reference.mean;
  numbers = fmt::format("none is {:+.2f} % off fp32; difference {:.6g}, 3 x spread {:.6g}",
                        comparison.difference_percent, difference, 3 * comparison.spread);
  if (!unscaled.complete || comparison.reference.seeds < 2 || comparison.candidate.seeds < 2) {
    numbers += "; a spread needs two complete seeds on both sides";
    return Outcome::undecided;
  }
  if (comparison.reference.non_finite > 0) {
    numbers += "; FP32 itself diverged";
    return Outcome::undecided;
  }
  if (comparison.candidate.non_finite > 0) {
    numbers += "; without scaling a run diverged";
    return Outcome::pass;
  }
  return comparison.difference_percent > worse_percent && difference > 3 * comparison.spread ? Outcome::pass
                                                                                             : Outcome::fail;
}

Outcome judge_recovery(const std::vector<Measured>& all, std::string& numbers) {
  Outcome outcome = Outcome::fail;
  bool complete = true;
  for (const Measured& measured : all) {
    if (measured.variant == "fp32" || measured.variant == "none") continue;
    complete = complete && measured.complete && measured.against_fp32->candidate.seeds > 0;
    const bool recovered = measured.against_fp32->candidate.non_finite == 0 &&
                           measured.against_fp32->difference_percent <= recovered_percent;
    if (measured.complete && recovered) outcome = Outcome::pass;
    numbers += fmt::format("{}{} {:+.2f} %", numbers.empty() ? "" : ", ", measured.variant,
                           measured.against_fp32->difference_percent);
  }
  return outcome == Outcome::fail && !complete ? Outcome::undecided : outcome;
}

ExitCode run_exp_underflow(const CommonOptions& common, const SweepOptions& options) {
  CommonOptions base = common;
  base.set.clear();  // make_plan applies them last
  base.seed.reset();
  const SweepPlan plan = make_plan({{"autoencoder", resolve_config(base), {1, 2}}}, variants(), common);
  const SweepOutcome sweep = execute_sweep(plan, common, options);
  if (sweep.interrupted)
    throw CommandError(ExitCode::interrupted, "interrupted; the same command carries on");

  std::vector<Measured> all;
  for (const SweepVariant& variant : variants()) all.push_back(measure(plan, variant.name));
  for (std::size_t i = 1; i < all.size(); ++i)
    all[i].against_fp32 = analysis::compare(all[0].losses, all[i].losses, analysis::Better::lower);
  write_file_atomically(common.out / "exp_underflow.csv", csv(all));

  fmt::print(
      "question: do gradients that round to zero in FP16 hurt this regression, and does loss scaling bring "
      "it "
      "back?\n");
  for (const Measured& measured : all) fmt::print("measured: {}\n", describe(measured));
  std::string harm_numbers;
  std::string recovery_numbers;
  const Outcome harm = judge_harm(all[1], harm_numbers);
  const Outcome recovery = judge_recovery(all, recovery_numbers);
  print_claim(
      1, "without loss scaling, FP16 training ends worse than FP32",
      fmt::format(
          "final test loss of none above fp32 by more than {} % and by more than 3 x the spread over seeds",
          worse_percent),
      harm_numbers, harm);
  print_claim(2, "loss scaling brings it back",
              fmt::format("a scaled configuration within {} % of fp32", recovered_percent), recovery_numbers,
              recovery);

  if (!sweep.failed.empty()) return ExitCode::run_failed;
  return harm == Outcome::fail || recovery == Outcome::fail ? ExitCode::mismatch : ExitCode::ok;
}

}  // namespace
}  // namespace fp16lab::experiments

int main(int argc, char** argv) {
  using namespace fp16lab::experiments;
  SweepOptions options;
  return experiment_main(
      argc, argv,
      {"exp_underflow",
       "Do gradients that round to zero in FP16 hurt this regression, and does loss scaling bring it back?",
       "  exp_underflow -o results/exp_underflow\n"
       "  exp_underflow -o results/demo --quiet",
       {},
       {},
       &options},
      {.out = "results/exp_underflow", .config = "autoencoder.toml"},
      [&options](const CommonOptions& common) { return run_exp_underflow(common, options); });
}
