// A section of the acceptance: what it is given, its goals, and what it reports.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "analysis/claim.hpp"
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
  bool quick = false;           ///< fewer sizes, steps and repetitions
  std::filesystem::path out;    ///< where a section may put files of its own
  std::filesystem::path torch;  ///< what experiments/bench/torch_amp.py printed; empty: nothing
  std::string command;          ///< as it was typed
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

struct Section {
  const char* name;      ///< as --section takes it: "verbs"
  const char* question;  ///< what it answers
  bool timing;           ///< its numbers mean nothing in a rehearsal
  Goals (*goals)(const Settings& settings);
  SectionResult (*run)(const Settings& settings, const Goals& goals);
};

SectionResult describe_device(const Settings& settings, const Goals& none);
Goals probe_goals(const Settings& settings);
SectionResult probe_tensor_cores(const Settings& settings, const Goals& goals);
/// The GPU as a device of the probe; in a rehearsal the emulator in its place. std::runtime_error where there
/// is none.
std::unique_ptr<probe::Device> probed_device(const Settings& settings);
Goals product_goals(const Settings& settings);
SectionResult compare_products(const Settings& settings, const Goals& goals);
Goals verb_goals(const Settings& settings);
SectionResult compare_all_verbs(const Settings& settings, const Goals& goals);
Goals tile_goals(const Settings& settings);
SectionResult compare_all_tiles(const Settings& settings, const Goals& goals);
Goals training_goals(const Settings& settings);
SectionResult compare_training(const Settings& settings, const Goals& goals);
Goals gemm_goals(const Settings& settings);
SectionResult time_products(const Settings& settings, const Goals& goals);
Goals step_goals(const Settings& settings);
SectionResult time_steps(const Settings& settings, const Goals& goals);
Goals histogram_goals(const Settings& settings);
SectionResult time_histograms(const Settings& settings, const Goals& goals);
Goals memory_goals(const Settings& settings);
SectionResult measure_memory(const Settings& settings, const Goals& goals);

/// All of them, in the order of the report.
const std::vector<Section>& all_sections();

}  // namespace fp16lab::experiments::acceptance
