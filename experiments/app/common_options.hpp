// What every command and every question was asked for.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "experiments/app/config/config.hpp"
#include "experiments/app/exit_code.hpp"

namespace fp16lab::experiments {

/// Options that every command and every question takes.
struct CommonOptions {
  std::vector<std::string> argv;
  std::filesystem::path config;  ///< --config; empty: not given
  std::vector<std::string> set;  ///< --set, in order
  std::filesystem::path out;     ///< --out; empty: not given
  std::optional<std::int64_t> seed;
  int threads = 1;
  bool quiet = false;
  std::string program = {};   ///< of an experiment: as it was called, before its messages
  std::string question = {};  ///< of an experiment: its question, as it is printed
};

/// Says on stderr which folder an experiment writes into.
void announce_output(const CommonOptions& common);

/// How a sweep goes about its runs.
struct SweepOptions {
  int jobs = 0;             ///< runs at a time; --threads is shared among them; 0: not given, one
  bool force = false;       ///< replace runs of another configuration or build
  bool mix_builds = false;  ///< take complete runs of other builds beside those of this one
};

struct RunPlan;  // experiments/app/config/run_plan.hpp

/// Defaults, then --config, then --set in order, then --seed; resolved and checked.
RunPlan resolve_run(const CommonOptions& common);
/// The same with `base` in the place of the defaults where there is no --config.
RunPlan resolve_run(const CommonOptions& common, const RunConfig& base);

}  // namespace fp16lab::experiments
