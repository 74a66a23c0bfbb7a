// fp16lab mismatch: how far the log-probabilities of two engines are apart on a run's test data, and why.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>

#include "analysis/probability_gap.hpp"
#include "engine/nn/perturbation.hpp"
#include "engine/train/observer.hpp"
#include "engine/train/trainer.hpp"
#include "experiments/app/commands.hpp"
#include "experiments/app/run/continuation.hpp"
#include "experiments/app/run/prepared_run.hpp"
#include "numerics/files/disk/atomic_file.hpp"
#include "numerics/files/disk/folder.hpp"
#include "numerics/files/run/run_folder.hpp"
#include "numerics/files/run/run_schema.hpp"
#include "numerics/text/own_command.hpp"
#include "numerics/text/text.hpp"

namespace fp16lab::experiments {
namespace {

constexpr std::size_t most_causes = 30;  // 64 engine runs

struct MismatchCommand {
  CommonOptions common;
  std::filesystem::path run;
  std::vector<std::string> b;
  double band = 2;
  bool json = false;
};

/// The log-probability of every target, batch after batch.
struct Predictions {
  std::vector<double> log_probabilities;
  std::vector<std::size_t> batches;
  std::vector<std::int32_t> targets;
};

class PredictionTap : public engine::Tap {
 public:
  explicit PredictionTap(engine::Backend& backend) : backend_(backend) {}

  void see(const engine::Event& event) override {
    const auto* const batch = event.as<engine::EvaluatedBatch>();
    if (batch == nullptr) return;
    if (batch->targets.dtype() != DType::i32)
      throw CommandError(ExitCode::usage,
                         "mismatch: the test data have soft labels; targets that are classes are needed");
    const engine::Tensor logits = engine::widened(backend_, batch->output);
    std::vector<float> values(static_cast<std::size_t>(logits.element_count()));
    backend_.download(logits, std::as_writable_bytes(std::span(values)));
    std::vector<std::int32_t> targets(static_cast<std::size_t>(batch->targets.element_count()));
    backend_.download(batch->targets, std::as_writable_bytes(std::span(targets)));
    const std::vector<double> found = analysis::log_probabilities(values, targets);
    predictions.log_probabilities.insert(predictions.log_probabilities.end(), found.begin(), found.end());
    predictions.targets.insert(predictions.targets.end(), targets.begin(), targets.end());
    predictions.batches.push_back(targets.size());
  }

  Predictions predictions;

 private:
  engine::Backend& backend_;
};

/// The engines between a and b: those settings of b that are on.
class Engines {
 public:
  explicit Engines(const MismatchCommand& command) : command_(command) {
    if (!is_run_folder(command.run))
      throw CommandError(ExitCode::usage, fmt::format("{}: no such run folder", command.run.string()));
    begun_ = std::move(*find_continuation(command.run));
    a_ = with({}, false);
  }

  std::uint64_t step() const { return begun_.step(); }
  const Predictions& a() const { return a_; }

  analysis::ProbabilityGap gap_with(const std::vector<std::string>& settings) {
    return gap_of(with(settings, false));
  }
  /// That of a itself with every weight moved by an ulp; nothing where weights have 16 bits.
  std::optional<analysis::ProbabilityGap> twin() {
    try {
      return gap_of(with({}, true));
    } catch (const std::invalid_argument&) {
      return std::nullopt;
    }
  }

 private:
  analysis::ProbabilityGap gap_of(const Predictions& b) const {
    if (b.targets != a_.targets)
      throw CommandError(ExitCode::usage,
                         "mismatch: the settings of b change the data; settings of amp, backend or another "
                         "train.batch_size leave the targets as they are");
    return analysis::probability_gap(a_.log_probabilities, b.log_probabilities, a_.batches, command_.band);
  }

  Predictions with(const std::vector<std::string>& settings, bool perturbed) {
    RunConfig config = begun_.folder_config;
    config.train.graph = false;
    apply_settings(config, command_.common.set, "--set");
    apply_settings(config, settings, "--b");
    const std::unique_ptr<PreparedRun> run =
        prepare_run(resolve_run(std::move(config)), command_.common.threads);
    if (run->workload.loss.kind != engine::LossKind::cross_entropy || run->workload.evaluation == nullptr)
      throw CommandError(
          ExitCode::usage,
          fmt::format("{}: log-probabilities are of classes or symbols: a run with cross_entropy, "
                      "and with test data, is needed",
                      command_.run.string()));
    PredictionTap tap(*run->backend);
    engine::Trainer trainer(*run->backend, run->workload, run->plan, tap);
    if (begun_.checkpoint) with_advice(command_.run, [&] { trainer.resume(*begun_.checkpoint); });
    if (perturbed) engine::nn::perturb_parameters(*run->backend, *run->workload.model, 1, 1);
    trainer.evaluate();
    return std::move(tap.predictions);
  }

  const MismatchCommand& command_;
  Continuation begun_;
  Predictions a_;
};

/// A setting of b, as the only one that differs from a, and as the only one that does not.
struct Cause {
  std::string name;
  analysis::ProbabilityGap alone, without;
};

std::string text_of(const analysis::ProbabilityGap& gap) {
  if (gap.mean_magnitude == 0) return "0 (all equal)";
  std::string text = fmt::format("{:.3g}", gap.mean_magnitude);
  if (gap.interval) text += fmt::format(" [{:.3g}, {:.3g}]", gap.interval->lower, gap.interval->upper);
  return text;
}

nlohmann::ordered_json json_of(const analysis::ProbabilityGap& gap) {
  return {{"mean_magnitude", json_number(gap.mean_magnitude)},
          {"interval", gap.interval ? nlohmann::ordered_json{gap.interval->lower, gap.interval->upper}
                                    : nlohmann::ordered_json()},
          {"mean", json_number(gap.mean)},
          {"largest", json_number(gap.largest)},
          {"largest_at", gap.largest_at},
          {"outside", json_number(gap.outside)}};
}

ExitCode run_mismatch(const MismatchCommand& command) {
  if (command.b.empty())
    throw CommandError(ExitCode::usage, "mismatch: expected what engine b does otherwise: --b KEY=VALUE");
  if (!(command.band >= 1))
    throw CommandError(ExitCode::usage, fmt::format("--band {:g}: expected 1 or more", command.band));
  if (command.b.size() > most_causes)
    throw CommandError(ExitCode::usage, fmt::format("mismatch: {} settings of b; at most {} (64 engine runs)",
                                                    command.b.size(), most_causes));
  Engines engines(command);
  const analysis::ProbabilityGap all = engines.gap_with(command.b);
  const std::optional<analysis::ProbabilityGap> twin = engines.twin();
  std::vector<Cause> causes;
  for (std::size_t i = 0; i < command.b.size(); ++i) {
    std::vector<std::string> others = command.b;
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(i));
    const bool one = others.empty();
    causes.push_back({command.b[i], one ? all : engines.gap_with({command.b[i]}),
                      one ? engines.gap_with({}) : engines.gap_with(others)});
  }
  const auto interplay = [&](const Cause& cause) {
    return all.mean_magnitude - cause.without.mean_magnitude - cause.alone.mean_magnitude;
  };
  std::ranges::stable_sort(
      causes, [](const Cause& x, const Cause& y) { return x.alone.mean_magnitude > y.alone.mean_magnitude; });
  nlohmann::ordered_json json{{"run", command.run.string()},
                              {"step", engines.step()},
                              {"targets", all.targets},
                              {"batches", engines.a().batches.size()},
                              {"band", command.band},
                              {"b", json_of(all)},
                              {"twin", twin ? json_of(*twin) : nlohmann::ordered_json()}};
  for (const Cause& cause : causes)
    json["causes"].push_back({{"setting", cause.name},
                              {"alone", json_of(cause.alone)},
                              {"without", json_of(cause.without)},
                              {"interplay", json_number(interplay(cause))}});
  const std::string text = json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + '\n';
  if (!command.common.out.empty()) {
    make_folders(command.common.out);
    write_file_atomically(std::filesystem::path(command.common.out) / run_file::mismatch, text);
  }
  if (command.json) {
    fmt::print("{}", text);
    return ExitCode::ok;
  }
  fmt::print(
      "{}: {}, {} in {}\n", printable(command.run.string()),
      engines.step() == 0 ? std::string("initial weights") : fmt::format("after step {}", engines.step()),
      counted(all.targets, "target"), counted(engines.a().batches.size(), "batch"));
  fmt::print(
      "log-probabilities, b against a: mean distance {0}\nmean difference {1:.3g}, largest {2:.3g} (target "
      "{3}), "
      "importance ratios outside of 1/{4:g} to {4:g}: {5:.3g} %\n",
      text_of(all), all.mean, all.largest, all.largest_at, command.band, 100 * all.outside);
  if (twin) fmt::print("control, a with every weight moved by one ulp: {}\n", text_of(*twin));
  std::size_t width = 5, of_alone = 5, of_without = 10;
  for (const Cause& cause : causes) {
    width = std::max(width, cause.name.size());
    of_alone = std::max(of_alone, text_of(cause.alone).size());
    of_without = std::max(of_without, text_of(cause.without).size());
  }
  fmt::print("\n{:<{}}  {:<{}}  {:<{}}  interplay\n", "cause", width, "alone", of_alone, "without it",
             of_without);
  for (const Cause& cause : causes)
    fmt::print("{:<{}}  {:<{}}  {:<{}}  {:.2g}\n", cause.name, width, text_of(cause.alone), of_alone,
               text_of(cause.without), of_without, interplay(cause));
  return ExitCode::ok;
}

}  // namespace

Command mismatch_command() {
  return {
      .name = "mismatch",
      .description =
          "Say how far two engines are apart in the log-probabilities that they give to a run's test data, "
          "and "
          "which\nsetting makes the distance. Engine a is the run as it is (with --set), b does otherwise "
          "what "
          "--b says; weights\nare those of the newest checkpoint, or the first ones. Each setting of b is "
          "tried "
          "alone and left out alone; what\nis more than both is their interplay. Equal engines give exactly "
          "0.",
      .examples =
          "  fp16lab mismatch results/gpt --b backend.tensor_core=ampere --b amp.dtype=bf16\n"
          "  fp16lab mismatch results/gpt --set data.test_subset=8192 --b 'amp.excluded=[\"head\"]' --json\n"
          "  fp16lab mismatch results/gpt --b amp.dtype=bf16 -o results/gpt && fp16lab report results/gpt",
      .uses = {.set = "What both engines do otherwise than the run, such as --set data.test_subset=8192 "
                      "(repeatable)",
               .out = "Folder for mismatch.json; the page of a run shows the one in the run's folder",
               .threads = true},
      .declare = [](Options& options) -> Command::Run {
        auto command = std::make_shared<MismatchCommand>();
        options.add("RUN", command->run, "Run folder").required().not_empty("a folder").offers(offer_runs());
        options.add("--b", command->b, "What engine b does otherwise: one cause (repeatable)")
            .type("KEY=VALUE")
            .repeatable()
            .offers(offer_settings());
        options.add("--band", command->band, "Importance ratios outside of 1/X to X are counted (default: 2)")
            .type("X")
            .not_negative();
        options.flag("--json", command->json, "Print JSON instead of text");
        return [command](const CommonOptions& common) {
          command->common = common;
          return run_mismatch(*command);
        };
      }};
}

}  // namespace fp16lab::experiments
