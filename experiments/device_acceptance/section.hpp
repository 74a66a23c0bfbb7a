// A section of the acceptance: what it is given, its goals, and what it reports.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/claim.hpp"
#include "tests/engine/backend/cases/verb_cases.hpp"
#include "experiments/emulated_vs_device/device_side.hpp"

namespace fp16lab::probe {
class Device;  // experiments/tensor_core_probe/device.hpp
}

namespace fp16lab::experiments::acceptance {

using analysis::Claim;
using analysis::Verdict;

struct Settings {
  DeviceSide side;
  int threads = 1;
  std::uint64_t seed = 1;
  bool quick = false;                       ///< fewer sizes, steps and repetitions
  std::filesystem::path out;                ///< where a section may put files of its own
  std::filesystem::path torch;              ///< what experiments/bench/torch_amp.py printed; empty: nothing
  std::string command;                      ///< as it was typed
  std::vector<std::string> arguments = {};  ///< the same without the program: what its children get, too
  double silence = 1800;                    ///< seconds after which a child that says nothing is killed
  std::string section = {};                 ///< the one that runs
  std::filesystem::path journal = {};       ///< of its cases (journal.hpp); empty: nobody would read one
  std::function<void(const std::string&)> progress;

  bool rehearsal() const { return side.rehearsal; }
  /// `full` on a GPU, `quick_value` with --quick, `rehearsed` where kernels run on the CPU.
  template <class T>
  T sized(const T& full, const T& quick_value, const T& rehearsed) const {
    return rehearsal() ? rehearsed : quick ? quick_value : full;
  }
};

/// What a section will be judged by, fixed before it runs.
struct Goal {
  Claim
      claim;  ///< name and criterion, not run: "paddle_linear9 O2 against torch.amp eager", "<= 1 x its time"
  double limit = 0;       ///< of speed and memory
  bool lower = true;      ///< the limit is a lower one
  std::string unit = {};  ///< behind the limit and what was measured
};
/// Speed and memory. Missed, a goal is behind: that is said, and decides nothing.
Goal at_least(std::string name, double limit, std::string unit);
Goal at_most(std::string name, double limit, std::string unit);
/// Bits: missed, the GPU is not accepted.
Goal no_difference(std::string name);

/// Judges a limit; never in a rehearsal.
Claim judged(const Settings& settings, const Goal& goal, std::optional<double> value);
/// Fails unless it holds, in rehearsals too.
Claim must_hold(const Settings& settings, const Goal& goal, std::string measured, bool holds);
/// The same of counts; fails where nothing was compared.
Claim none_differ(const Settings& settings, const Goal& goal, std::uint64_t differing, std::uint64_t of,
                  const std::string& what);
/// The same of what only a GPU has: in a rehearsal the emulator would be compared with itself.
Claim none_differ_on_gpu(const Settings& settings, const Goal& goal, std::uint64_t differing,
                         std::uint64_t of, const std::string& what);

/// A table of the report: rows of text, and the same in JSON.
struct Table {
  std::string caption;
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;
};

struct SectionResult {
  std::vector<Table> tables;
  std::vector<std::string> notes;  ///< paragraphs; what differs is said here
  std::vector<Claim> claims;       ///< one for each goal, in their order
};

using Goals = std::vector<Goal>;

/// Cases, and the extents on which they run.
struct CaseList {
  std::vector<VerbCase> cases;
  CaseSize size = CaseSize::full;
};

struct Section {
  const char* name;      ///< as --section takes it: "verbs"
  const char* question;  ///< what it answers
  bool timing;           ///< its numbers mean nothing in a rehearsal
  Goals (*goals)(const Settings& settings);
  SectionResult (*run)(const Settings& settings, const Goals& goals);
  /// What it compares by compare_on_device; null: nothing.
  CaseList (*cases)(const Settings& settings) = nullptr;
  bool first = false;  ///< one of the ten first checks on a device
};

Goals no_goals(const Settings& settings);
SectionResult describe_device(const Settings& settings, const Goals& none);
Goals test_goals(const Settings& settings);
SectionResult run_gpu_tests(const Settings& settings, const Goals& goals);
Goals probe_goals(const Settings& settings);
SectionResult probe_tensor_cores(const Settings& settings, const Goals& goals);
/// The GPU as a device of the probe; in a rehearsal the emulator in its place. std::runtime_error where there
/// is none.
std::unique_ptr<probe::Device> probed_device(const Settings& settings);
Goals large_goals(const Settings& settings);
CaseList large_cases(const Settings& settings);
SectionResult compare_large(const Settings& settings, const Goals& goals);
Goals sanitizer_goals(const Settings& settings);
SectionResult run_sanitizers(const Settings& settings, const Goals& goals);
Goals capture_goals(const Settings& settings);
CaseList capture_cases(const Settings& settings);
SectionResult compare_captures(const Settings& settings, const Goals& goals);
Goals count_goals(const Settings& settings);
CaseList count_cases(const Settings& settings);
SectionResult compare_counts(const Settings& settings, const Goals& goals);
Goals product_goals(const Settings& settings);
CaseList product_cases(const Settings& settings);
SectionResult compare_products(const Settings& settings, const Goals& goals);
SectionResult profile_product(const Settings& settings, const Goals& none);
Goals verb_goals(const Settings& settings);
CaseList verb_cases(const Settings& settings);
SectionResult compare_all_verbs(const Settings& settings, const Goals& goals);
Goals tile_goals(const Settings& settings);
CaseList tile_case_list(const Settings& settings);
SectionResult compare_all_tiles(const Settings& settings, const Goals& goals);
Goals training_goals(const Settings& settings);
SectionResult compare_training(const Settings& settings, const Goals& goals);
/// The same of a step that is replayed as a graph, products by `route`: "mma", "cublas".
SectionResult compare_graph_training(const Settings& settings, const Goal& goal, const std::string& route);
Goals gemm_goals(const Settings& settings);
SectionResult time_products(const Settings& settings, const Goals& goals);
Goals step_goals(const Settings& settings);
SectionResult time_steps(const Settings& settings, const Goals& goals);
Goals histogram_goals(const Settings& settings);
SectionResult time_histograms(const Settings& settings, const Goals& goals);
Goals memory_goals(const Settings& settings);
SectionResult measure_memory(const Settings& settings, const Goals& goals);

/// All of them, in the order of the report: the ten first checks, then what takes long.
const std::vector<Section>& all_sections();
/// std::runtime_error where there is none of that name.
const Section& section_called(std::string_view name);

}  // namespace fp16lab::experiments::acceptance
