// What each command of fp16lab was asked to do. Filled by the command line, carried out by the *_command.cpp
// files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "experiments/app/config/config.hpp"
#include "experiments/app/exit_code.hpp"
#include "experiments/app/run/live_mode.hpp"

namespace fp16lab::experiments {

/// Options that every command and every experiment binary takes.
struct CommonOptions {
  std::vector<std::string> argv;
  std::filesystem::path config;  ///< --config; empty: not given
  std::vector<std::string> set;  ///< --set, in order
  std::filesystem::path out;     ///< --out; empty: not given
  std::optional<std::int64_t> seed;
  int threads = 1;
  bool quiet = false;
};

struct TrainCommand {
  CommonOptions common;
  bool force = false;                    ///< replace a finished run
  bool resume = false;                   ///< continue the run in the output folder
  std::string name;                      ///< of the configuration, for tables and figures
  std::filesystem::path dump_initial;    ///< empty: not given
  std::filesystem::path dump_gradients;  ///< of the iteration dump_step; empty: not given
  std::uint64_t dump_step = 0;
  bool op_statistics = false;  ///< count the ops of the first step
  LiveMode live = LiveMode::off;
  std::filesystem::path tensorboard;  ///< --tensorboard; empty: not given
};
ExitCode run_train(const TrainCommand& command);

/// How a sweep goes about its runs.
struct SweepOptions {
  int jobs = 1;             ///< runs at a time; --threads is shared among them
  bool force = false;       ///< replace runs of another configuration or build
  bool mix_builds = false;  ///< take complete runs of other builds beside those of this one
};

struct SweepCommand {
  CommonOptions common;
  SweepOptions options;
  bool report = false;   ///< also write report.html
  bool dry_run = false;  ///< only check and print the plan
  bool twin = false;     ///< add_twins
  std::vector<std::string> policies;  ///< added to the file's variants; "all": every one
};
ExitCode run_sweep(const SweepCommand& command);

struct HistCommand {
  CommonOptions common;
  std::vector<std::filesystem::path> inputs;  ///< run folders, dumps, patterns
  std::vector<std::string> formats;           ///< to judge in; empty: in which the values were stored, else f16
  std::vector<std::string> include, exclude;  ///< patterns of tensor names
  std::string scale;                  ///< "2^15" or a number; empty: as recorded
  std::string recorded_scale;         ///< what the values of dumps carry; empty: what they say, else 1
  std::optional<std::uint64_t> step;  ///< default: the last recorded one
  bool exact_mass = false;            ///< of dumps: also exact sums
  bool json = false;
};
ExitCode run_hist(const HistCommand& command);

struct ReplayCommand {
  CommonOptions common;
  std::filesystem::path run;
  std::vector<std::string> policies;     ///< empty: all
  std::optional<std::int64_t> interval;  ///< growth intervals become at most this
  bool recorded_only = false;            ///< leave steps without histograms out
  bool json = false;
};
ExitCode run_replay(const ReplayCommand& command);

struct CompareCommand {
  CommonOptions common;
  std::filesystem::path a, b;
  double threshold = 0.01;  ///< relative
  bool strict = false;      ///< any differing bit is exit code 5
  bool json = false;
};
ExitCode run_compare(const CompareCommand& command);

struct ReportCommand {
  CommonOptions common;
  std::vector<std::filesystem::path> runs;
  bool mix_builds = false;  ///< judge runs of several builds by each other
};
ExitCode run_report(const ReportCommand& command);

struct InspectCommand {
  CommonOptions common;
  std::vector<std::string> values;
  std::vector<std::string> formats;    ///< names or "E,P[,numbers]"; empty: all named formats
  std::vector<std::string> roundings;  ///< names; empty: all
  bool json = false;
};
ExitCode run_inspect(const InspectCommand& command);

struct SoftfloatCommand {
  CommonOptions common;
  std::string function;                ///< as TestFloat names it
  std::string rounding = "near_even";  ///< TestFloat's names
  std::string tininess = "after";      ///< "before" or "after" rounding
  bool exact = false;                  ///< roundings to integers raise inexact
  bool list = false;
};
ExitCode run_softfloat(const SoftfloatCommand& command);

struct MmaCommand {
  CommonOptions common;
  std::string model;        ///< a tensor-core model's name
  std::string in = "f16";   ///< format of a's words
  std::string in_b;         ///< of b's; empty: as a's
  std::string acc = "f32";  ///< of c and d
  bool verify = false;      ///< lines hold d too; only mismatches are written
  // Changes to the model's row; absent or empty: as the table has it.
  std::optional<int> block_size, fraction_bits, exponent_floor;
  std::string subnormal_accumulator, underflow_zero, fp8_order;
};
ExitCode run_mma(const MmaCommand& command);

struct PolicyCommand {
  CommonOptions common;
  std::string policy;  ///< a name or an alias; empty: the configuration's
  std::string trace;   ///< F and O, or "-"; empty: not given
  std::string amax;    ///< numbers, or "-"; empty: not given
  bool list = false;
  bool json = false;
};
ExitCode run_policy(const PolicyCommand& command);

struct ListCommand {
  CommonOptions common;
  bool json = false;
};
ExitCode run_list(const ListCommand& command);
ExitCode run_devices(const ListCommand& command);

struct RunPlan;  // experiments/app/config/run_plan.hpp

/// Defaults, then --config, then --set in order, then --seed; resolved and checked.
RunPlan resolve_run(const CommonOptions& common);
/// The same with `base` in the place of the defaults where there is no --config.
RunPlan resolve_run(const CommonOptions& common, const RunConfig& base);

}  // namespace fp16lab::experiments
