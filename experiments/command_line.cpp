#include "experiments/command_line.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <stdexcept>

#include "experiments/arguments.hpp"
#include "experiments/build_info.hpp"
#include "numerics/decimal.hpp"
#include "numerics/nearest_name.hpp"
#include "numerics/tensor_core_model.hpp"

namespace fp16lab::experiments {
namespace {

std::uint64_t step_number(const std::string& option, const std::string& text) {
  std::uint64_t step = 0;
  if (!CLI::detail::lexical_cast(text, step) || text.starts_with("-") || step == 0)
    usage_error(fmt::format("{}: '{}': expected a step, 1 or more", option, text));
  return step;
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

/// The fp16lab program's commands and what they were given.
class Program {
 public:
  Program()
      : app_("fp16lab: FP16 and tensor-core arithmetic, loss scaling and gradient underflow, bit by bit",
             "fp16lab") {
    app_.set_help_flag("-h,--help", "Show this help");
    app_.set_version_flag("--version", fmt::format("fp16lab 0.1.0 ({}, {})", git_hash(), compiler_name()));
    app_.footer(
        footer("  fp16lab train -c experiments/configs/classifier.toml --set amp.level=O1 -o results/try\n"
               "  fp16lab sweep -c experiments/configs/demo.toml -o results/demo --report"));
    app_.allow_extras();
    add_train();
    add_sweep();
    add_hist();
    add_report();
    add_inspect();
    add_softfloat();
    add_mma();
    add_list("list",
             "Workloads, data sets, policies, AMP dialects, formats, tensor cores, configuration keys",
             "  fp16lab list\n  fp16lab list --json", run_list);
    add_list("devices", "Back ends and processors that are here",
             "  fp16lab devices\n  fp16lab devices --json", run_devices);
  }

  ExitCode run(std::vector<std::string> arguments) {
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
                std::function<ExitCode(const CommonOptions&)> run) {
    CLI::App* command = app_.add_subcommand(name, description);
    add_common(*command, arguments_);
    command->footer(footer(examples));
    command->callback(
        [this, run = std::move(run)] { run_ = [this, run] { return run(finish(arguments_)); }; });
    return command;
  }

  void add_train() {
    CLI::App* command =
        add("train", "One training run into one run folder; a JSON summary on stdout",
            "  fp16lab train -c experiments/configs/classifier.toml -o results/classifier\n"
            "  fp16lab train -c experiments/configs/autoencoder.toml --set amp.level=O1 --seed 2\n"
            "  fp16lab train -c experiments/configs/lenet5.toml --set amp.dialect=paddle --set amp.level=O2 "
            "--op-stats\n"
            "  fp16lab train -c experiments/configs/classifier.toml --set backend.device=cuda --graph\n"
            "  fp16lab train --resume -o results/classifier",
            [this](const CommonOptions& common) {
              train_.common = common;
              if (graph_) train_.common.set.emplace_back("train.graph=true");
              if (!dump_gradients_.empty()) {
                train_.dump_step = step_number("--dump-gradients", dump_gradients_.at(0));
                train_.dump_gradients = dump_gradients_.at(1);
              }
              return run_train(train_);
            });
    command->add_flag("--force", train_.force, "Replace the run in the output folder");
    command->add_flag(
        "--resume", train_.resume,
        "Continue the run in the output folder from its newest checkpoint (see checkpoint.every), "
        "with its own configuration and the same bits");
    command->add_flag(
        "--graph", graph_,
        "Capture a step once as a CUDA graph and replay it, as train.graph; needs backend.device=cuda");
    command->add_flag("--op-stats", train_.op_statistics,
                      "Count the ops of the first step by dtype and layer: a table with advice on stderr, "
                      "op_stats.csv in the folder");
    command
        ->add_option("--dump-initial", train_.dump_initial,
                     "Write the initial parameters and buffers as safetensors, then train")
        ->type_name("FILE");
    command
        ->add_option("--dump-gradients", dump_gradients_,
                     "Write step STEP's batches, weights and unscaled gradients as safetensors")
        ->type_name("STEP FILE")
        ->type_size(2)
        ->expected(1)
        ->allow_extra_args(false);
  }

  void add_sweep() {
    CLI::App* command = add("sweep", "A grid of runs, resumable; a summary table on stdout",
                            "  fp16lab sweep -c experiments/configs/demo.toml -o results/demo --report\n"
                            "  fp16lab sweep -c experiments/configs/full.toml -o results/full --dry-run",
                            [this](const CommonOptions& common) {
                              sweep_.common = common;
                              return run_sweep(sweep_);
                            });
    command->add_flag("--report", sweep_.report, "Also write figures and report.html into the output folder");
    command->add_flag("--dry-run", sweep_.dry_run, "Only print the runs as CSV");
  }

  void add_hist() {
    CLI::App* command =
        add("hist", "Where the recorded gradients of a run sit in FP16, at its scale or any other",
            "  fp16lab hist results/classifier --scale 2^15\n"
            "  fp16lab hist results/classifier --step 100 --json",
            [this](const CommonOptions& common) {
              hist_.common = common;
              return run_hist(hist_);
            });
    command->add_option("RUN", hist_.inputs, "Run folders")->required();
    command
        ->add_option("--scale", hist_.scale, "Loss scale to judge at, 2^K or a number (default: as recorded)")
        ->type_name("SCALE");
    command->add_option("--step", hist_.step, "Recorded step (default: the last one)")
        ->type_name("N")
        ->check(at_least(0));
    command->add_flag("--json", hist_.json, "JSON instead of a table");
  }

  void add_report() {
    CLI::App* command =
        add("report", "Figures and one offline report.html from run folders alone",
            "  fp16lab report results/demo/classifier-* -o results/demo\n"
            "  fp16lab report results/classifier-seed1 results/classifier-seed2 -o results/both",
            [this](const CommonOptions& common) {
              report_.common = common;
              return run_report(report_);
            });
    command->add_option("RUN", report_.runs, "Run folders")->required();
  }

  void add_inspect() {
    CLI::App* command =
        add("inspect",
            "One value in every format and rounding mode: bits, fields and formula, exact decimal, ulp, "
            "neighbours,\nerrors, exception flags (tininess after rounding), and how likely stochastic "
            "rounding goes up",
            "  fp16lab inspect 0.00006666666 2^-25 65519.99\n"
            "  fp16lab inspect f16:0x045e -inf --format FP16 --format 6,10 --rounding upward --json",
            [this](const CommonOptions& common) {
              inspect_.common = common;
              return run_inspect(inspect_);
            });
    command
        ->add_option(
            "VALUE", inspect_.values,
            "Decimal, hexadecimal float (0x1.8p-3), power of two (2^-24), inf, nan, or bits: f16:0x3c00, "
            "bf16:, tf32: (19 bits), f32:, f64:, e4m3:, e5m2:, or a format of your own, 6,10:0x1234")
        ->required();
    command
        ->add_option(
            "--format", inspect_.formats,
            "Only this format (repeatable): FP16, BF16, TF32, FP32, FP64, E4M3, E5M2, or your own as "
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
        [this](const CommonOptions& common) {
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
    CLI::App* command = add(
        "mma",
        "Tensor-core dot products as a filter: d = c + a.b as the hardware computes it. Input lines:\n"
        "  a-words TAB b-words TAB c-word      words in hexadecimal with spaces between them, any K\n"
        "Output: the same line, TAB, d-word. Words have 2 digits (e4m3, e5m2), 4 (f16, bf16) or 8 (f32;\n"
        "tf32 is an FP32 register whose low 13 bits are ignored, all 8 digits required). 0x, capitals and\n"
        "missing leading zeros are fine. Empty lines and lines that begin with # pass through unchanged.\n"
        "A malformed line ends the run with exit code 2 after the answers before it.",
        "  printf '3c00 b800\\t3c00 3c00\\t3f800000\\n' | fp16lab mma --model hopper\n"
        "  fp16lab mma --model ampere --in bf16 --verify < captured.tsv > mismatches.tsv",
        [this](const CommonOptions& common) {
          mma_.common = common;
          return run_mma(mma_);
        });
    const std::string models = fmt::format("{}", fmt::join(fp16lab::tensor_core_names(), ", "));
    command->add_option("--model", mma_.model, models + " (fp16lab list shows their rows)")
        ->type_name("NAME");
    command->add_option("--in", mma_.in, "Operands: f16 (default), bf16, tf32, e4m3, e5m2")->type_name("FMT");
    command
        ->add_option("--in-b", mma_.in_b, "Operands of b where they differ: e4m3 with e5m2, or the reverse")
        ->type_name("FMT");
    command->add_option("--acc", mma_.acc, "Accumulator c and result d: f32 (default), f16")
        ->type_name("FMT");
    command->add_flag(
        "--verify", mma_.verify,
        "Each line has a fourth field, the d-word of some hardware: write only lines that differ, "
        "with our d-word behind them; exit code 5 if there is one");
    const std::string open = "What published models leave open";
    command
        ->add_option("--subnormal-accumulator", mma_.subnormal_accumulator,
                     "Alignment exponent of a subnormal FP16 c: emin (default) or own_exponent")
        ->type_name("RULE")
        ->group(open);
    command
        ->add_option("--underflow-zero", mma_.underflow_zero,
                     "A negative sum that rounds to zero: keeps_sign (default) or positive")
        ->type_name("RULE")
        ->group(open);
    command
        ->add_option("--fp8-order", mma_.fp8_order,
                     "FP8 through FP16 (hopper, blackwell): the first block takes k mod 4 in {0,1} "
                     "(pairs, default) or k < 16 (halves)")
        ->type_name("ORDER")
        ->group(open);
    command->add_option("--exponent-floor", mma_.exponent_floor, "E0, the least exponent of the alignment")
        ->type_name("N")
        ->group(open);
    command->add_option("--block-size", mma_.block_size, "L, products in a fused block")
        ->type_name("N")
        ->group(open);
    command->add_option("--fraction-bits", mma_.fraction_bits, "F, bits kept below the largest exponent")
        ->type_name("N")
        ->group(open);
  }

  void add_list(const std::string& name, const std::string& description, const std::string& examples,
                ExitCode (*function)(const ListCommand&)) {
    CLI::App* command = add(name, description, examples, [this, function](const CommonOptions& common) {
      list_.common = common;
      return function(list_);
    });
    command->add_flag("--json", list_.json, "JSON instead of tables");
  }

  CLI::App app_;
  CommonArguments arguments_;
  TrainCommand train_;
  std::vector<std::string> dump_gradients_;  ///< STEP, FILE
  bool graph_ = false;                       ///< train --graph
  SoftfloatCommand softfloat_;
  MmaCommand mma_;
  SweepCommand sweep_;
  HistCommand hist_;
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
