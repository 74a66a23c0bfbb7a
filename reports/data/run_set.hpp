// Run folders, sorted into workloads, configurations and seeds.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "numerics/files/run/run_folder.hpp"
#include "reports/data/run_config.hpp"

namespace fp16lab::reports {

struct Run {
  RunFolder folder;
  FlatConfig config;  ///< every key that the run reads
  std::string name;   ///< the folder's own name
  std::uint64_t seed = 0;
  bool missing = false;  ///< planned by a sweep, but not there: only name, seed and configuration are known
  /// load_runs knows it of every run.
  const RunIdentity& id() const { return *folder.manifest.identity; }
};

/// Runs that differ in their seed only. `label` begins with the name that the user gave them, if there is one
/// ("mine: FP16 torch"), and is unique within the workload: where two configurations would share one, the
/// settings in which they differ are appended.
struct Configuration {
  RunIdentity id;
  std::string label;
  std::vector<std::size_t> runs;  ///< indices into RunSet::runs, by seed
};

struct Workload {
  /// "classifier on fashion-mnist", or what a sweep calls it, where that is another name than the model's; unique in the
  /// set.
  std::string name;
  std::vector<Configuration>
      configurations;  ///< FP32, its twin, no scaling, fixed scales ascending, adaptive policies
  /// The FP32 configuration that the others are judged against, and the one whose initial weights were moved
  /// by one ulp; nullptr if there is none.
  const Configuration* reference() const;
  const Configuration* twin() const;
};

struct RunSet {
  std::vector<Run> runs;
  std::vector<Workload> workloads;  ///< by name
  /// Unfinished or missing runs, torn lines (the first 20 of each kind), repeated seeds, several builds.
  std::vector<std::string> notes;
  std::vector<std::string> builds;      ///< fp16lab::builds_of its runs but those of lab.watch, each once
  std::vector<std::string> unreadable;  ///< why runs were left out: "RUN/steps.csv:5: ..."
  std::size_t missing() const;          ///< how many of `runs`
};

/// How the report names a run: its configuration and its identity.
struct ToldRun {
  std::string config;
  RunIdentity identity;
};
/// Names a run by its manifest: a build that knows configurations reads those of older builds as it would
/// write them today (experiments::told). Nothing: as the manifest says, or by sections.
using TellRun = std::function<ToldRun(const Manifest&)>;

/// Reads everything but histograms. Runs whose files cannot be parsed are left out; std::runtime_error where that
/// leaves none, as for an empty list. Runs that have not finished are kept and noted; so are those of `missing`:
/// configurations, as a sweep's plan keeps them (fp16lab::sweep_plan), whose run is not there.
RunSet load_runs(std::span<const std::filesystem::path> folders,
                 std::span<const std::filesystem::path> missing = {}, const TellRun& tell = {});

/// What a note says of one of RunSet::unreadable.
std::string unreadable_text(const std::string& error);

/// The run whose gradients represent a configuration: the first finished one that has histograms, else the
/// first that has histograms, else nullptr.
const Run* representative(const RunSet& set, const Configuration& configuration);

}  // namespace fp16lab::reports
