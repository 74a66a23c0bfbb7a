// A section of the acceptance: what it is given, what it reports, and the goals that it judges.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "experiments/emulated_vs_device/device_side.hpp"

namespace fp16lab::probe {
class Device;  // experiments/tensor_core_probe/device.hpp
}

namespace fp16lab::experiments::acceptance {

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

enum class Verdict : std::uint8_t {
  pass,
  missed,     ///< bits differ, or could not be compared: the GPU is not accepted
  behind,     ///< slower or larger than the goal: that is said, and decides nothing
  rehearsed,  ///< it ran without a GPU: no evidence about any
  not_measured,
};
std::string name_of(Verdict verdict);  ///< "PASS", "MISSED", "BEHIND", "REHEARSED", "not measured"

/// A target of the project, and what was measured.
struct Goal {
  std::string name;      ///< "paddle_linear9 O2, route cublas, against cuBLAS FP32 (TF32 off)"
  std::string target;    ///< ">= 10 x"
  std::string measured;  ///< "11.3 x", or why there is nothing
  Verdict verdict = Verdict::not_measured;
};

/// Speed and memory: behind unless value >= limit (or <=); never judged in a rehearsal.
Goal at_least(const Settings& settings, std::string name, double limit, std::optional<double> value,
              const std::string& unit);
Goal at_most(const Settings& settings, std::string name, double limit, std::optional<double> value,
             const std::string& unit);
/// Bits: missed unless it holds, in rehearsals too.
Goal must_hold(const Settings& settings, std::string name, std::string target, std::string measured,
               bool holds);
/// The same of counts; missed where nothing was compared.
Goal none_differ(const Settings& settings, std::string name, std::uint64_t differing, std::uint64_t of,
                 const std::string& what);
/// The same of what only a GPU has: in a rehearsal the emulator would be compared with itself.
Goal none_differ_on_gpu(const Settings& settings, std::string name, std::uint64_t differing, std::uint64_t of,
                        const std::string& what);

/// A table of the report: rows of text, and the same in JSON.
struct Table {
  std::string caption;
  std::vector<std::string> columns;
  std::vector<std::vector<std::string>> rows;
};

struct SectionResult {
  std::vector<Table> tables;
  std::vector<std::string> notes;  ///< paragraphs; what differs is said here
  std::vector<Goal> goals;
};

struct Section {
  const char* name;      ///< as --section takes it: "verbs"
  const char* question;  ///< what it answers
  bool timing;           ///< its numbers mean nothing in a rehearsal
  SectionResult (*run)(const Settings& settings);
};

SectionResult describe_device(const Settings& settings);
SectionResult probe_tensor_cores(const Settings& settings);
/// The GPU as a device of the probe; in a rehearsal the emulator in its place. std::runtime_error where there is none.
std::unique_ptr<probe::Device> probed_device(const Settings& settings);
SectionResult compare_products(const Settings& settings);
SectionResult compare_all_verbs(const Settings& settings);
SectionResult compare_all_tiles(const Settings& settings);
SectionResult compare_training(const Settings& settings);
SectionResult time_products(const Settings& settings);
SectionResult time_steps(const Settings& settings);
SectionResult time_histograms(const Settings& settings);
SectionResult measure_memory(const Settings& settings);

/// All of them, in the order of the report.
const std::vector<Section>& all_sections();

}  // namespace fp16lab::experiments::acceptance
