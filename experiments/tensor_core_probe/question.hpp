// What is asked of the hardware, and how its answer is judged.
//
// A question is the vectors of a row of experiments/capture/questions.hpp for one instruction, and at least
// two hypotheses that predict different words for them; the first is what the table of tensor cores claims. A
// question that cannot tell its hypotheses apart is a mistake of this program and throws.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "analysis/claim.hpp"
#include "experiments/tensor_core_probe/device.hpp"
#include "experiments/tensor_core_probe/judge.hpp"

namespace fp16lab::probe {

using analysis::Claim;
using analysis::Verdict;

struct Hypothesis {
  std::string name;    ///< "E0 = -22"
  std::string change;  ///< what the table must say if this one holds
  DotProduct predict;
};

struct Question {
  std::string probe;  ///< "P1"
  std::string claim;  ///< "mma f16 accumulate: E0 = -22 (MMA-Sim)"
  const Instruction& instruction;
  std::vector<Vector> vectors;
  std::vector<Hypothesis> hypotheses;
  bool scale_d = true;
  /// Outputs of random wide-range data on which every hypothesis is tried too; 0: only the vectors.
  std::uint64_t random_outputs = 0;
};

/// A row for the golden file.
struct Observation {
  std::string model;
  const Instruction* instruction;
  Vector vector;
  std::uint32_t d = 0;
};

/// The device's answer to a claim. Topic: the probe, "P1", or "R" of random operands. What was measured ends
/// with how the table must change if the claim fails; of an instruction that the device lacks it says so, and
/// nothing was run. Notes: candidates and observed words, a line each.
struct Finding {
  Claim claim;
  std::vector<Observation> observations = {};
  /// The same for an instruction beside the tensor core: operation, operands and result with tabs between
  /// them, in the notation of plain_fp16.tsv.
  std::vector<std::string> half_observations = {};
};

struct Settings {
  std::string generation;  ///< in place of the device's own; empty: that
  std::uint64_t seed = 1;
  std::uint64_t random_outputs = 10'000'000;  ///< of each instruction, shared by the distributions
  std::uint64_t conversion_stride = 1;        ///< every n-th FP32 pattern through cvt; odd
  int threads = 1;
  bool only_criteria = false;  ///< nothing is run: the claims as they are before the run
};

/// Measures what the claim says, which `body` does, unless only criteria are asked for. What the device
/// cannot answer becomes what was measured.
void measure(const Settings& settings, Claim& claim, const std::function<void()>& body);

/// The verdict of a claim that holds where the first hypothesis agrees; else measured says which one does.
void conclude(Claim& claim, std::span<const Hypothesis> hypotheses, const std::vector<bool>& agrees);

/// Asks. std::logic_error if two hypotheses predict the same words.
Finding ask(Device& device, const Settings& settings, const Question& question);

/// P1 to P7, P10 to P12 for this device: one question for each instruction concerned. Those that the device
/// lacks become findings that say so.
std::vector<Finding> ask_tensor_core(Device& device, const Settings& settings);

/// The questions themselves, for a device of this capability, whether or not it `has` the instructions.
std::vector<Question> tensor_core_questions(Capability capability, const Settings& settings);

/// P8: NaN patterns, .ftz, .sat and FP32 -> FP16 of the plain FP16 instructions.
std::vector<Finding> ask_half(Device& device, const Settings& settings);
/// One result as numerics/arithmetic/gpu_half.hpp says, of one half also where the instruction is packed.
std::uint32_t emulated(const HalfInstruction& in, std::uint32_t x, std::uint32_t y, std::uint32_t z);

/// Random operands of every distribution through every instruction, against its row of the table.
std::vector<Finding> compare_with_emulator(Device& device, const Settings& settings);

/// All of these, one after the other. `begin` hears what comes next.
std::vector<Finding> ask_everything(Device& device, const Settings& settings,
                                    const std::function<void(const char*)>& begin = {});
std::vector<Claim> claims_of(std::span<const Finding> findings);

/// "NVIDIA H200, compute capability 9.0, driver 580.65.06 (CUDA 13.0), CUDA runtime 13.0"
std::string describe(const DeviceInfo& info);

/// In `folder`, each written atomically: probe.tsv (tests/golden/tensor_core_*.tsv: id, model, in, acc,
/// options, a, b, c, d, source, in which the device is), probe_fp16.tsv (tests/golden/plain_fp16.tsv:
/// operation, operands, result) and report.md, a table of claims and verdicts, then all evidence.
void write_records(const std::filesystem::path& folder, const DeviceInfo& info,
                   std::span<const Finding> findings);

}  // namespace fp16lab::probe
