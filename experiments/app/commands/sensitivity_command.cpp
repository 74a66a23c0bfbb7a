// fp16lab sensitivity: which layers of a run must stay in FP32, tried on its next step.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "analysis/layer_search.hpp"
#include "analysis/value_difference.hpp"
#include "engine/train/trainer.hpp"
#include "experiments/app/commands.hpp"
#include "experiments/app/commands/name_selection.hpp"
#include "experiments/app/run/continuation.hpp"
#include "experiments/app/run/prepared_run.hpp"
#include "numerics/files/run/run_folder.hpp"
#include "numerics/text/own_command.hpp"
#include "numerics/text/scale_text.hpp"
#include "numerics/text/text.hpp"

namespace fp16lab::experiments {
namespace {

constexpr double infinite = std::numeric_limits<double>::infinity();
/// A gradient counts against its own norm, or against this part of all gradients' norm where that is more.
constexpr double least_share = 1e-3;

struct SensitivityCommand {
  CommonOptions common;
  std::filesystem::path run;
  double margin = 0.05;
  std::vector<std::string> include, exclude;
  bool json = false;
};

/// What a step gave.
struct StepValues {
  double loss = 0, loss_scale = 1;
  struct Gradient {
    std::string name;
    DType type = DType::f32;
    std::vector<std::byte> bytes;
  };
  std::vector<Gradient> gradients{};
};

/// Does one step of a run, after its newest checkpoint or from its beginning, with layers in FP32.
class OneStep {
 public:
  OneStep(const std::filesystem::path& folder, int threads) : threads_(threads) {
    if (!is_run_folder(folder))
      throw CommandError(ExitCode::usage, fmt::format("{}: no such run folder", folder.string()));
    begun_ = std::move(*find_continuation(folder));
    config_ = begun_.folder_config;
    if (config_.amp.level == engine::Level::O0)
      throw CommandError(ExitCode::usage,
                         fmt::format("{}: amp.level is O0, which computes in FP32: there is no layer to test",
                                     folder.string()));
    // What is asked about are gradients as they are, not clipped ones.
    config_.train.clip_norm = config_.train.clip_value = 0;
    config_.train.graph = false;
    if (config_.train.steps > 0) config_.train.steps = std::max(config_.train.steps, begun_.step() + 1);
    reference_ = with({"*"});
    double all = 0;
    for (const StepValues::Gradient& gradient : reference_.gradients) {
      norms_.push_back(difference(gradient, gradient).norm_a);
      all = std::hypot(all, norms_.back());
    }
    for (double& norm : norms_) norm = std::max(norm, least_share * all);
    if (!std::isfinite(reference_.loss) || !std::isfinite(all))
      throw CommandError(
          ExitCode::run_failed,
          fmt::format("{}: the step is not finite in FP32 either (loss {:g}); train --explain-overflow "
                      "says which operation made it",
                      folder.string(), reference_.loss));
  }

  std::uint64_t step() const { return begun_.step() + 1; }
  const std::vector<std::string>& layers() const { return layers_; }
  double loss_scale() const { return reference_.loss_scale; }
  const RunConfig& config() const { return config_; }

  /// How far the step is from that in FP32: {of the loss, relative; the greatest of a gradient; which one's}.
  struct Error {
    double loss = 0, gradients = 0;
    std::string parameter{};
    double greatest() const { return std::max(loss, gradients); }
  };
  Error error_with(const std::vector<std::string>& layers) {
    const StepValues found = with(layers);
    Error error{.loss = std::fabs(found.loss - reference_.loss) /
                        std::max(std::fabs(reference_.loss), std::numeric_limits<double>::min())};
    if (!(error.loss < infinite)) error.loss = infinite;
    for (std::size_t i = 0; i < reference_.gradients.size(); ++i) {
      double one = infinite;
      if (i < found.gradients.size() && found.gradients[i].name == reference_.gradients[i].name) {
        const analysis::ValueDifference between = difference(found.gradients[i], reference_.gradients[i]);
        const double distance = between.relative_l2 * std::max(between.norm_a, between.norm_b);
        if (between.nonfinite_a == 0) one = distance == 0 ? 0 : distance / norms_[i];
      }
      if (one > error.gradients) error = {error.loss, one, reference_.gradients[i].name};
    }
    return error;
  }

 private:
  static analysis::ValueDifference difference(const StepValues::Gradient& a, const StepValues::Gradient& b) {
    analysis::ValueComparer comparer({a.type}, {b.type});
    comparer.add(a.bytes, b.bytes);
    return comparer.result();
  }

  StepValues with(const std::vector<std::string>& layers) {
    RunConfig config = config_;
    config.amp.excluded.insert(config.amp.excluded.end(), layers.begin(), layers.end());
    const std::unique_ptr<PreparedRun> run = prepare_run(resolve_run(std::move(config)), threads_);
    engine::Tap nobody;
    engine::Trainer trainer(*run->backend, run->workload, run->plan, nobody);
    if (begun_.checkpoint) resume(trainer);
    if (layers_.empty())
      for (const std::string& scope : run->workload.model->scopes())
        if (std::ranges::find(layers_, scope) == layers_.end()) layers_.push_back(scope);
    const StepRow row = trainer.train_step();
    StepValues values{.loss = row.loss, .loss_scale = row.loss_scale};
    for (const engine::Parameter* parameter : trainer.parameters()) {
      if (!parameter->has_gradient) continue;
      StepValues::Gradient gradient{parameter->name, parameter->gradient.dtype(),
                                    std::vector<std::byte>(parameter->gradient.byte_count())};
      run->backend->download(parameter->gradient, gradient.bytes);
      values.gradients.push_back(std::move(gradient));
    }
    return values;
  }

  void resume(engine::Trainer& trainer) {
    try {
      trainer.resume(*begun_.checkpoint);
    } catch (const std::runtime_error& error) {
      throw CommandError(
          ExitCode::run_failed,
          fmt::format("{}; a level whose weights have 16 bits cannot continue with other layers in FP32: use "
                      "a run without checkpoints, which tests its first step",
                      error.what()));
    }
  }

  int threads_;
  Continuation begun_;
  RunConfig config_;
  std::vector<std::string> layers_;
  StepValues reference_;
  std::vector<double> norms_;
};

std::string text_of(const OneStep::Error& error) {
  return fmt::format("error of the loss {:.2g}, error of the gradients {:.2g}{}", error.loss, error.gradients,
                     error.parameter.empty() ? "" : " (" + error.parameter + ")");
}

ExitCode run_sensitivity(const SensitivityCommand& command) {
  OneStep step(command.run, command.common.threads);
  NameSelection selection(command.include, command.exclude);
  std::vector<std::string> layers;
  for (const std::string& layer : step.layers())
    if (selection.takes(layer)) layers.push_back(layer);
  selection.check();
  std::map<std::vector<std::string>, OneStep::Error> errors;
  const analysis::LayerList list =
      analysis::shortest_list(layers, command.margin, [&](const std::vector<std::string>& wide) {
        return (errors[wide] = step.error_with(wide)).greatest();
      });
  const OneStep::Error without = errors[{}], within = errors[list.layers];
  const std::string set = "amp.excluded=" + fmt::format("{}", fmt::join(step.config().amp.excluded, ",")) +
                          (step.config().amp.excluded.empty() ? "" : ",") +
                          fmt::format("{}", fmt::join(list.layers, ","));
  const std::string next =
      own_command({"train", "-c", (command.run / run_file::config).string(), "--set", set});
  if (command.json) {
    nlohmann::ordered_json damage = nlohmann::ordered_json::object();
    for (const auto& [layer, error] : list.damage) damage[layer] = json_number(error);
    const auto error_json = [](const OneStep::Error& error) {
      return nlohmann::ordered_json{{"loss", json_number(error.loss)},
                                    {"gradients", json_number(error.gradients)},
                                    {"parameter", error.parameter}};
    };
    const nlohmann::ordered_json json{{"run", command.run.string()},
                                      {"step", step.step()},
                                      {"loss_scale", step.loss_scale()},
                                      {"margin", command.margin},
                                      {"layers", list.layers},
                                      {"restored", list.restored},
                                      {"without", error_json(without)},
                                      {"within", error_json(within)},
                                      {"damage", damage},
                                      {"tried", list.tried}};
    fmt::print("{}\n", json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
    return ExitCode::ok;
  }
  fmt::print("{}: step {}, {}, loss scale {}, against all layers in FP32; margin {:g}\nas it is: {}\n",
             printable(command.run.string()), step.step(), name_of(step.config().amp.level),
             scale_text(step.loss_scale()), command.margin, text_of(without));
  if (!list.restored) {
    fmt::print("with {} in FP32: {}: no list of layers restores it\n", counted(layers.size(), "layer"),
               text_of(within));
    return ExitCode::ok;
  }
  if (list.layers.empty()) {
    fmt::print("No layer needs FP32.\n");
    return ExitCode::ok;
  }
  fmt::print("in FP32: {}\nthen: {}; each of them is needed ({})\n\n", fmt::join(list.layers, ", "),
             text_of(within), counted(list.tried, "step") + " tried");
  std::size_t width = 5;
  for (const std::string& layer : layers) width = std::max(width, layer.size());
  fmt::print("{:<{}}  error with it alone in 16 bits\n", "layer", width);
  for (const std::string& layer : layers) fmt::print("{:<{}}  {:.3g}\n", layer, width, list.damage.at(layer));
  fmt::print("\nNext: {}\n", next);
  return ExitCode::ok;
}

}  // namespace

Command sensitivity_command() {
  return {
      .name = "sensitivity",
      .description =
          "Find the layers of a run that must stay in FP32: the step after its newest checkpoint, or its "
          "first step, is\nrepeated with sets of layers in FP32 (amp.excluded) until loss and gradients are "
          "within a margin of the\nsame step with all layers in FP32; then layers that are not needed are "
          "removed from the list, each\nby a trial. A gradient's error is relative to its norm, or to a "
          "thousandth of\nall gradients' norm where that is larger.",
      .examples =
          "  fp16lab sensitivity results/classifier\n"
          "  fp16lab sensitivity results/classifier --margin 0.01 --exclude 'loss*' --json",
      .uses = {.threads = true},
      .declare = [](Options& options) -> Command::Run {
        auto command = std::make_shared<SensitivityCommand>();
        options.add("RUN", command->run, "Run folder").required().not_empty("a folder").offers(offer_runs());
        options
            .add("--margin", command->margin,
                 "Relative error of the loss and of every gradient that counts as harmless (default: 0.05)")
            .type("X")
            .not_negative();
        options
            .add(
                "--include", command->include,
                "Only layers with this name; '*' and '?' are wildcards, \"h0\" is all inside h0 (repeatable)")
            .type("PATTERN")
            .repeatable();
        options.add("--exclude", command->exclude, "Leave out layers with this name (repeatable)")
            .type("PATTERN")
            .repeatable();
        options.flag("--json", command->json, "Print JSON instead of text");
        return [command](const CommonOptions& common) {
          command->common = common;
          return run_sensitivity(*command);
        };
      }};
}

}  // namespace fp16lab::experiments
