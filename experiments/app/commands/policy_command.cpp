// fp16lab policy: one loss-scale policy over a trace of steps.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <iostream>
#include <iterator>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>

#include "engine/amp/policy.hpp"
#include "experiments/app/commands.hpp"
#include "experiments/app/commands/policy_list.hpp"
#include "experiments/app/config/config.hpp"
#include "experiments/app/registry.hpp"
#include "numerics/files/disk/read_file.hpp"
#include "numerics/formats/decimal.hpp"
#include "numerics/formats/format_range.hpp"
#include "numerics/text/message.hpp"
#include "numerics/text/nearest_name.hpp"

namespace fp16lab::experiments {
namespace {

struct PolicyCommand {
  CommonOptions common;
  std::string policy;  ///< a name or an alias; empty: the configuration's
  std::string trace;   ///< F and O, or "-"; empty: not given
  std::string amax;    ///< numbers, or "-"; empty: not given
  bool list = false;
  bool json = false;
};

using engine::StepState;
using engine::amp::GradientStatistics;
using engine::amp::PolicyDescription;
using engine::amp::PolicyParameter;
using engine::amp::PowerOfTwo;
using engine::amp::ScalePolicy;
using engine::amp::ScalerOptions;

[[noreturn]] void policy_usage(const std::string& message) {
  throw CommandError(ExitCode::usage, "policy: " + message);
}

/// What the library says of names and values that it does not take.
template <class Call>
auto as_usage(const Call& call) {
  try {
    return call();
  } catch (const std::invalid_argument& error) {
    policy_usage(error.what());
  }
}

double number_of(const std::string& text, const std::string& where) {
  try {
    const ParsedNumber number = parse_number(text);
    if (number.kind == Exact::Kind::nan) return std::numeric_limits<double>::quiet_NaN();
    if (number.kind != Exact::Kind::infinite) return number.value.to_double();
    const double infinity = std::numeric_limits<double>::infinity();
    return number.value.negative() ? -infinity : infinity;
  } catch (const std::invalid_argument& error) {
    policy_usage(fmt::format("{}: {}", where, error.what()));
  }
}

PowerOfTwo power_of_two_of(const std::string& value, const std::string& setting) {
  if (value == "any") return PowerOfTwo::any;
  if (value == "warn") return PowerOfTwo::warn;
  if (value == "round_down") return PowerOfTwo::round_down;
  const std::vector<std::string_view> known = {"any", "warn", "round_down"};
  policy_usage(fmt::format("--set {}: {}", setting, known_are(value, known)));
}

/// "growth_interval=4" or "scaler.growth_interval=4".
void set_parameter(ScalerOptions& options, const PolicyDescription& policy, const std::string& setting) {
  const std::size_t equals = setting.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == setting.size())
    policy_usage(fmt::format("--set {}: expected NAME=VALUE, such as growth_interval=100", setting));
  std::string name = setting.substr(0, equals);
  const std::string value = setting.substr(equals + 1);
  if (name.starts_with("scaler.")) name = name.substr(7);
  if (name == "power_of_two") {
    options.power_of_two = power_of_two_of(value, setting);
    return;
  }
  constexpr std::array<std::string_view, 1> besides = {"power_of_two"};
  try {
    engine::amp::require_parameter(&policy, name, besides);
  } catch (const std::invalid_argument& error) {
    policy_usage(fmt::format("--set {}: {}", setting, error.what()));
  }
  const PolicyParameter* const parameter = policy.find(name);
  const bool is_switch = parameter->kind == PolicyParameter::Kind::boolean;
  const double number = is_switch && value == "true"    ? 1
                        : is_switch && value == "false" ? 0
                                                        : number_of(value, "--set " + setting);
  as_usage([&] { engine::amp::check_value(*parameter, number); });
  options.parameters.insert_or_assign(name, number);
}

ScalerOptions options_of(const PolicyCommand& command) {
  ScalerOptions options;
  if (command.policy.empty() && command.common.config.empty())
    policy_usage("expected --policy NAME, or --config FILE with a scaler.policy (--list shows all policies)");
  if (!command.policy.empty())
    as_usage([&] { options.policy = engine::amp::scale_policy(command.policy).name; });
  if (!command.common.config.empty()) {
    RunConfig config = load_config(command.common.config, NamedHow::by_user);
    const std::vector<std::string> unread = settings_unread(config);
    if (!command.policy.empty())
      for (const std::string& sentence :
           apply_settings(config, {"scaler.policy=" + options.policy}, "--policy"))
        say("note: {}", sentence);
    resolve_names(config);
    require_read(unread, config, command.common.config.string());
    options = config.scaler;
  }
  const PolicyDescription& policy = engine::amp::scale_policy(options.policy);
  for (const std::string& setting : command.common.set) set_parameter(options, policy, setting);
  return options;
}

std::string text_of(const std::string& argument) {
  if (argument != "-") return argument;
  return read_standard_input("the standard input", longest::table);
}

/// A step, before it is known at which scale it runs.
struct Step {
  bool overflow = false;
  double amax = 0;
};

std::vector<Step> steps_of_trace(const std::string& argument) {
  const bool from_stdin = argument == "-";
  std::vector<Step> steps;
  std::size_t line = 1, position = 0;
  for (const char c : text_of(argument)) {
    ++position;
    if (from_stdin && c == '\n') {
      ++line;
      position = 0;
    }
    if (from_stdin && (c == '\n' || c == '\r' || c == ' ' || c == '\t')) continue;
    if (c != 'F' && c != 'O') {
      const bool printable = c > ' ' && c < '\x7f';
      const std::string shown =
          printable ? fmt::format("'{}'", c) : fmt::format("byte 0x{:02x}", static_cast<unsigned char>(c));
      policy_usage(fmt::format("--trace: {} at {}position {}: expected F (finite) or O (overflow)", shown,
                               from_stdin ? fmt::format("line {}, ", line) : "", position));
    }
    steps.push_back({.overflow = c == 'O'});
  }
  return steps;
}

std::vector<Step> steps_of_amax(const std::string& argument) {
  std::vector<Step> steps;
  const std::string text = text_of(argument);
  const std::string_view separators = ", \t\r\n";
  for (std::size_t i = text.find_first_not_of(separators); i != std::string::npos;) {
    const std::size_t end = std::min(text.find_first_of(separators, i), text.size());
    const std::string number = text.substr(i, end - i);
    const std::string where = fmt::format("--amax: number {}", steps.size() + 1);
    const double amax = number_of(number, where);
    if (amax < 0) policy_usage(fmt::format("{}: '{}': expected a magnitude, 0 or more", where, number));
    steps.push_back({.amax = amax});
    i = text.find_first_not_of(separators, end);
  }
  return steps;
}

/// The gradient as it is before it is rounded to FP16, with the step's scale.
float scaled_gradient(double amax, double scale) { return static_cast<float>(amax * scale); }

ExitCode run_steps(const std::vector<Step>& steps, bool has_magnitudes, const ScalePolicy& policy) {
  fmt::memory_buffer out;
  fmt::format_to(std::back_inserter(out), "step,found_inf,scale,log2_scale,skipped\n");
  const auto flush = [&out] {
    std::cout.write(out.data(), static_cast<std::streamsize>(out.size()));
    out.clear();
  };
  StepState state = policy.initial;
  GradientStatistics statistics;
  std::optional<std::string> end;
  std::size_t number = 0;
  for (const Step& step : steps) {
    ++number;
    bool overflow = step.overflow;
    if (has_magnitudes) {
      const float gradient = scaled_gradient(step.amax, state.scale);
      overflow = fp16_range.overflows(static_cast<double>(gradient));
      statistics = {};
      statistics.weight.count(std::bit_cast<std::uint32_t>(gradient));
    }
    engine::amp::advance(policy, state,
                         {.found_inf = overflow, .statistics = has_magnitudes ? &statistics : nullptr});
    // An overflowed step is skipped under every policy, also where the scale stays.
    fmt::format_to(std::back_inserter(out), "{},{},{},{:.10g},{}\n", number, overflow ? 1 : 0, state.scale,
                   std::log2(state.scale), overflow ? 1 : 0);
    if (out.size() > 1u << 16u) flush();
    if (policy.stop != nullptr) end = policy.stop(state, policy.values);
    if (end) break;
  }
  flush();
  std::cout.flush();
  if (!std::cout) throw std::runtime_error("cannot write to the standard output");
  if (!end) return ExitCode::ok;
  say("fp16lab: policy {} ends the run at step {}: {}", policy.name, number, *end);
  return ExitCode::diverged;
}

ExitCode list(const PolicyCommand& command) {
  if (!command.trace.empty() || !command.amax.empty() || !command.common.set.empty())
    policy_usage("--list takes no --trace, --amax or --set");
  std::vector<const PolicyDescription*> shown;
  if (command.policy.empty()) {
    for (const PolicyDescription& policy : engine::amp::scale_policies()) shown.push_back(&policy);
  } else {
    shown.push_back(as_usage([&] { return &engine::amp::scale_policy(command.policy); }));
  }
  if (command.json) {
    nlohmann::ordered_json rows = nlohmann::ordered_json::array();
    for (const PolicyDescription* const policy : shown) rows.push_back(policy_json(*policy));
    fmt::print("{}\n", nlohmann::ordered_json{{"policies", std::move(rows)}}.dump(2));
    return ExitCode::ok;
  }
  for (const PolicyDescription* const policy : shown) {
    if (policy != shown.front()) fmt::print("\n");
    print_policy(*policy);
  }
  return ExitCode::ok;
}

ExitCode run_policy(const PolicyCommand& command) {
  if (command.list) return list(command);
  if (command.json) policy_usage("--json requires --list; a trace is printed as CSV");
  const ScalerOptions options = options_of(command);
  if (command.trace.empty() == command.amax.empty())
    policy_usage("expected either --trace FFOFF... or --amax LIST (or --list)");
  const ScalePolicy policy = as_usage([&] { return engine::amp::make_scale_policy(options); });
  if (policy.wants_statistics && command.amax.empty())
    policy_usage(fmt::format(
        "policy {} decides by the gradients' magnitudes: give --amax LIST instead of --trace", policy.name));
  const bool has_magnitudes = !command.amax.empty();
  const std::vector<Step> steps =
      has_magnitudes ? steps_of_amax(command.amax) : steps_of_trace(command.trace);
  if (!command.common.quiet) {
    if (options.power_of_two == PowerOfTwo::warn)
      if (const std::optional<std::string> inexact = engine::amp::inexact_unscaling(options, policy))
        say("fp16lab: warning: {}", *inexact);
    if (engine::amp::scale_policy(policy.name).per_layer)
      say("fp16lab: policy {} moves scales of layers, which a trace does not have; the loss scale is shown",
          policy.name);
  }
  return run_steps(steps, has_magnitudes, policy);
}

}  // namespace

Command policy_command() {
  return {.name = "policy",
          .description =
              "Run a loss-scale policy over a trace of steps: prints CSV of step, found_inf, scale, "
              "log2_scale, skipped; the scale is\nthe one after that step's update. --set NAME=VALUE sets a "
              "parameter. If the policy's own rule ends the run,\nthe trace ends there, with exit code 4.",
          .examples =
              "  fp16lab policy --policy megatron --set hysteresis=2 --set growth_interval=4 --trace "
              "FFFFFOFFFFOO\n"
              "  fp16lab policy --policy lost-mass --amax 2^-4,2^-3,0.5,7,2^-4\n"
              "  fp16lab policy --list --json",
          .uses = {.config = "Configuration in TOML that gives the policy and its parameters",
                   .set = "A parameter of the policy, such as --set growth_interval=4 (repeatable)",
                   .set_type = "NAME=VALUE",
                   .set_offer = offer_policy_settings},
          .declare = [](Options& options) -> Command::Run {
            auto command = std::make_shared<PolicyCommand>();
            options
                .add("--policy", command->policy,
                     "Name (fp16lab policy --list shows all); default: the configuration's")
                .type("NAME")
                .offers(offer_words(policy_names()));
            options
                .add("--trace", command->trace,
                     "One letter per step: F, all gradients finite; O, an overflow. '-' reads standard "
                     "input, ignoring blanks\nand line ends")
                .type("FFOFF...");
            options
                .add(
                    "--amax", command->amax,
                    "Instead of --trace: the largest unscaled gradient of each step, separated by commas or "
                    "blanks; a step overflows\nwhere amax times the scale is beyond FP16. Policies that "
                    "decide by statistics see a single gradient of this\nmagnitude. '-' reads standard input")
                .type("LIST");
            options.flag("--list", command->list,
                         "Show the policy (without --policy: all) with parameters, defaults, sources");
            options.flag("--json", command->json, "With --list: print JSON");
            return [command](const CommonOptions& common) {
              command->common = common;
              return run_policy(*command);
            };
          }};
}

}  // namespace fp16lab::experiments
