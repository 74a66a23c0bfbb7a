#include "experiments/app/command_line.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <stdexcept>

#include "experiments/app/arguments.hpp"
#include "experiments/app/build_info.hpp"
#include "experiments/app/commands/compare_options.hpp"
#include "experiments/app/commands/hist_options.hpp"
#include "experiments/app/commands/mma_options.hpp"
#include "experiments/app/commands/policy_options.hpp"
#include "experiments/app/commands/replay_options.hpp"
#include "experiments/app/commands/sweep_options.hpp"
#include "experiments/app/commands/train_options.hpp"
#include "numerics/formats/decimal.hpp"
#include "numerics/formats/dtype.hpp"
#include "numerics/text/nearest_name.hpp"

namespace fp16lab::experiments {
namespace {

/// "f16:0x3c00, bf16:, tf32: (19 bits), ": the prefixes of bit patterns.
std::string bit_prefixes() {
  std::string text;
  for (const DType dtype : dtypes<is_floating>) {
    const int width = visit_dtype<is_floating>(dtype, [](auto row) { return decltype(row)::Format::width; });
    const bool whole_bytes = width == 8 * static_cast<int>(size_of(dtype));
    text += fmt::format("{}:{}{}, ", name_of(dtype), dtype == DType::f16 ? "0x3c00" : "",
                        whole_bytes ? "" : fmt::format(" ({} bits)", width));
  }
  return text;
}

/// "FP16, BF16, ".
std::string format_titles() {
  std::string text;
  for (const DType dtype : dtypes<is_floating>) text += title_of(dtype) + ", ";
  return text;
}

bool takes_value(const std::string& argument) {
  for (const char* option :
       {"-c", "--config", "--set", "-o", "--out", "--seed", "--threads", "--format", "--rounding"})
    if (argument == option) return true;
  return false;
}

/// `inspect -1.5 --json`: numbers with a sign are values, not options. Moves all values behind a "--".
std::vector<std::string> separate_values(const std::vector<std::string>& arguments) {
  std::vector<std::string> options, values;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    bool value = !arguments[i].starts_with("-");
    if (!value && arguments[i] != "--") {
      try {
        parse_number(arguments[i]);
        value = true;
      } catch (const std::invalid_argument&) {
        value = false;
      }
    }
    if (arguments[i] == "--") continue;
    (value ? values : options).push_back(arguments[i]);
    if (takes_value(arguments[i]) && i + 1 < arguments.size()) options.push_back(arguments[++i]);
  }
  options.emplace_back("--");
  options.insert(options.end(), values.begin(), values.end());
  return options;
}

constexpr const char* set_help =
    "Override a configuration key, such as --set scaler.policy=dynamic (repeatable)";

const CommonUse train_uses{.config = "Configuration in TOML",
                           .set = set_help,
                           .out = "Run folder (default: results/CONFIG-seedN)",
                           .seed = "Seed of weights and shuffling, as train.seed",
                           .threads = true};
const CommonUse sweep_uses{.config = "Sweep file in TOML",
                           .set = set_help,
                           .out = "Folder of the runs (default: results/SWEEP)",
                           .seed = "The one seed of all runs, in the place of the file's",
                           .threads = true};
const CommonUse replay_uses{
    .set =
        "A policy's parameter: torch.growth_interval=20, or scaler.growth_interval=20 for every policy that "
        "has it\n(repeatable)",
    .set_type = "POLICY.NAME=VALUE",
    .out = "Folder for replay.json, the table as CSV and a figure"};
const CommonUse policy_uses{.config = "Configuration in TOML, whose policy and parameters are taken",
                            .set = "A parameter of the policy, such as --set growth_interval=4 (repeatable)",
                            .set_type = "NAME=VALUE"};

/// The fp16lab program's commands and what they were given.
class Program {
 public:
  Program()
      : app_("fp16lab: FP16 and tensor-core arithmetic, loss scaling and gradient underflow, bit by bit",
             "fp16lab") {
    app_.set_help_flag("-h,--help", "Show this help");
    app_.set_version_flag("--version", version_line("fp16lab"));
    app_.footer(
        footer("  fp16lab train -c experiments/configs/classifier.toml --set amp.level=O1 -o results/try\n"
               "  fp16lab sweep -c experiments/configs/demo.toml -o results/demo --report"));
    app_.allow_extras();
    add_train();
    add_sweep();
    add_hist();
    add_replay();
    add_compare();
    add_report();
    add_inspect();
    add_softfloat();
    add_mma();
    add_policy();
    add_list("list",
             "Workloads, data sets, policies, AMP dialects, formats, tensor cores, configuration keys",
             "  fp16lab list\n  fp16lab list --json", run_list);
    add_list("devices", "Back ends and processors that are here",
             "  fp16lab devices\n  fp16lab devices --json", run_devices);
  }

  ExitCode run(std::vector<std::string> arguments) {
    require_utf8(arguments);
    arguments_.options.argv = arguments;
    arguments.erase(arguments.begin());
    if (arguments.empty()) usage_error(fmt::format("expected a command: {}", fmt::join(names(), ", ")));
    if (!arguments.front().starts_with("-")) {
      const std::vector<std::string> known = names();
      if (std::find(known.begin(), known.end(), arguments.front()) == known.end())
        usage_error(
            fmt::format("unknown command '{}'{}", arguments.front(), did_you_mean(arguments.front(), known)));
    }
    if (arguments.front() == "inspect") {
      arguments = separate_values(arguments);
      // The command itself was taken for a value: the first one.
      const auto command = std::find(arguments.begin(), arguments.end(), "inspect");
      std::rotate(arguments.begin(), command, command + 1);
    }
    std::reverse(arguments.begin(), arguments.end());  // CLI11 parses from the back
    try {
      app_.parse(arguments);
    } catch (const CLI::CallForHelp&) {
      const std::vector<CLI::App*> chosen = app_.get_subcommands();
      fmt::print("{}", (chosen.empty() ? app_ : *chosen.front()).help());
      throw;
    } catch (const CLI::CallForVersion& version) {
      fmt::print("{}\n", version.what());
      throw;
    } catch (const CLI::ParseError&) {
      refuse_all_extras();  // an unknown option is the likelier mistake behind "value missing"
      throw;
    }
    refuse_all_extras();
    return run_();
  }

 private:
  std::vector<std::string> names() {
    std::vector<std::string> list;
    for (const CLI::App* command : app_.get_subcommands([](const CLI::App*) { return true; }))
      list.push_back(command->get_name());
    return list;
  }

  void refuse_all_extras() {
    refuse_extras(app_, "fp16lab");
    for (const CLI::App* command : app_.get_subcommands())
      refuse_extras(*command, "fp16lab " + command->get_name());
  }

  /// `run` is called with the common options filled in.
  CLI::App* add(const std::string& name, const std::string& description, const std::string& examples,
                const CommonUse& use, std::function<ExitCode(const CommonOptions&)> run) {
    CLI::App* command = app_.add_subcommand(name, description);
    add_common(*command, arguments_, use);
    command->footer(footer(examples));
    command->callback(
        [this, run = std::move(run)] { run_ = [this, run] { return run(finish(arguments_)); }; });
    return command;
  }

  void add_train() {
    add_train_options(*add("train", train_description, train_examples, train_uses,
                           [this](const CommonOptions& common) { return run_train(finish(train_, common)); }),
                      train_);
  }

  void add_sweep() {
    add_sweep_options(*add("sweep", sweep_description, sweep_examples, sweep_uses,
                           [this](const CommonOptions& common) {
                             sweep_.common = common;
                             return run_sweep(sweep_);
                           }),
                      sweep_);
  }

  void add_hist() {
    add_hist_options(*add("hist", hist_description, hist_examples,
                          {.out = "Folder for the histogram as a figure", .threads = true},
                          [this](const CommonOptions& common) {
                            hist_.common = common;
                            return run_hist(hist_);
                          }),
                     hist_);
  }

  void add_replay() {
    add_replay_options(*add("replay", replay_description, replay_examples, replay_uses,
                            [this](const CommonOptions& common) {
                              replay_.common = common;
                              return run_replay(replay_);
                            }),
                       replay_);
  }

  void add_compare() {
    add_compare_options(*add("compare", compare_description, compare_examples,
                             {.out = "Folder for the table, the differences as CSV and a figure"},
                             [this](const CommonOptions& common) {
                               compare_.common = common;
                               return run_compare(compare_);
                             }),
                        compare_);
  }

  void add_report() {
    CLI::App* command = add(
        "report", "Figures and one offline report.html from runs, sweeps and replays alone",
        "  fp16lab report results/demo\n"
        "  fp16lab report results/classifier-seed1 results/classifier-seed2 results/replay -o results/both",
        {.out = "Folder of the page (default: the one folder given, or results/report)"},
        [this](const CommonOptions& common) {
          report_.common = common;
          return run_report(report_);
        });
    command->add_option("RUN", report_.runs, "Run folders, folders of runs (a sweep's), or what replay wrote")
        ->required()
        ->check(not_empty("a folder"));
    command->add_flag(
        "--mix-builds", report_.mix_builds,
        "Compare runs of several builds of the program (commit, compiler, flags) with each other");
  }

  void add_inspect() {
    CLI::App* command =
        add("inspect",
            "One value in every format and rounding mode: bits, fields and formula, exact decimal, ulp, "
            "neighbours,\nerrors, exception flags (tininess after rounding), and how likely stochastic "
            "rounding goes up",
            "  fp16lab inspect 0.00006666666 2^-25 65519.99\n"
            "  fp16lab inspect f16:0x045e -inf --format FP16 --format 6,10 --rounding upward --json",
            {}, [this](const CommonOptions& common) {
              inspect_.common = common;
              return run_inspect(inspect_);
            });
    command
        ->add_option("VALUE", inspect_.values,
                     "Decimal, hexadecimal float (0x1.8p-3), power of two (2^-24), inf, nan, or bits: " +
                         bit_prefixes() + "or a format of your own, 6,10:0x1234")
        ->required();
    command
        ->add_option(
            "--format", inspect_.formats,
            "Only this format (repeatable): " + format_titles() +
                "or your own as "
                "EXPONENT_BITS,PRECISION (FP16 is 5,11); ',numbers' after it makes the top binade numbers "
                "and its last code the only NaN (E4M3 is 4,4,numbers)")
        ->type_name("FORMAT")
        ->expected(1)
        ->take_all();
    command
        ->add_option("--rounding", inspect_.roundings,
                     "Only this rounding (repeatable): nearest_even, toward_zero, upward, downward, "
                     "nearest_away, stochastic")
        ->type_name("MODE")
        ->expected(1)
        ->take_all();
    command->add_flag("--json", inspect_.json, "JSON instead of text");
  }

  void add_softfloat() {
    CLI::App* command = add(
        "softfloat",
        "Scalar arithmetic as a filter for Berkeley TestFloat: each input line holds one call's operands in\n"
        "hexadecimal (a result and flags behind them are ignored), each output line these operands, the "
        "result "
        "and\nthe exception flags (1 inexact, 2 underflow, 4 overflow, 8 divide by zero, 16 invalid). "
        "Integers "
        "out of\nrange become the nearest one, NaN becomes 0; NaN results are the canonical NaN.",
        "  testfloat_gen f16_mulAdd | fp16lab softfloat f16_mulAdd | testfloat_ver f16_mulAdd\n"
        "  echo 3C00 4200 | fp16lab softfloat f16_div --rounding max --tininess before",
        {}, [this](const CommonOptions& common) {
          softfloat_.common = common;
          return run_softfloat(softfloat_);
        });
    command->add_option(
        "FUNCTION", softfloat_.function,
        "FORMAT_ and add, sub, mul, mulAdd, div, rem, sqrt, roundToInt, eq, le, lt, eq_signaling, "
        "le_quiet or lt_quiet; or TYPE_to_TYPE. Formats: f16, f32, f64, bf16, tf32, e4m3, e5m2; "
        "integers: ui32, ui64, i32, i64");
    command
        ->add_option(
            "--rounding", softfloat_.rounding,
            "near_even (default), minMag (towards zero), min (down), max (up), near_maxMag (ties away)")
        ->type_name("MODE");
    command
        ->add_option("--tininess", softfloat_.tininess,
                     "Underflow is detected before or after rounding (default: after)")
        ->type_name("WHEN");
    command->add_flag("--exact,!--notexact", softfloat_.exact,
                      "roundToInt and F_to_INTEGER raise inexact, or never do (default)");
    command->add_flag("--list", softfloat_.list, "Print all functions: name, operands, result");
  }

  void add_mma() {
    add_mma_options(*add("mma", mma_description, mma_examples, {},
                         [this](const CommonOptions& common) {
                           mma_.common = common;
                           return run_mma(mma_);
                         }),
                    mma_);
  }

  void add_policy() {
    add_policy_options(*add("policy", policy_description, policy_examples, policy_uses,
                            [this](const CommonOptions& common) {
                              policy_.common = common;
                              return run_policy(policy_);
                            }),
                       policy_);
  }

  void add_list(const std::string& name, const std::string& description, const std::string& examples,
                ExitCode (*function)(const ListCommand&)) {
    CLI::App* command = add(name, description, examples, {}, [this, function](const CommonOptions& common) {
      list_.common = common;
      return function(list_);
    });
    command->add_flag("--json", list_.json, "JSON instead of tables");
  }

  CLI::App app_;
  CommonArguments arguments_;
  TrainArguments train_;
  SoftfloatCommand softfloat_;
  MmaCommand mma_;
  PolicyCommand policy_;
  SweepCommand sweep_;
  HistCommand hist_;
  ReplayCommand replay_;
  CompareCommand compare_;
  ReportCommand report_;
  InspectCommand inspect_;
  ListCommand list_;
  std::function<ExitCode()> run_;
};

}  // namespace

int fp16lab_main(int argc, char** argv) {
  return guarded("fp16lab", [&] { return Program().run(std::vector<std::string>(argv, argv + argc)); });
}

}  // namespace fp16lab::experiments
