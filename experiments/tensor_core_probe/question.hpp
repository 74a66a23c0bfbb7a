// What is asked of the hardware, and how its answer is judged.
//
// A question is a few dot products of one instruction and at least two hypotheses that predict different words for
// them; the first hypothesis is what the model table claims. A question that cannot tell its hypotheses apart is a
// mistake of this program and throws.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "experiments/tensor_core_probe/device.hpp"
#include "experiments/tensor_core_probe/random_blocks.hpp"

namespace fp16lab::probe {

/// One dot product: shorter a and b are continued with +0.
struct Vector {
  std::string id;  ///< as in the golden files: "V37", "P2"
  std::vector<std::uint32_t> a, b;
  std::uint32_t c = 0;
};

struct Hypothesis {
  std::string name;    ///< "E0 = -22"
  std::string change;  ///< what the table must say if this one holds; empty for the claim
  DotProduct predict;
};

struct Question {
  std::string probe;  ///< "P1"
  std::string claim;  ///< "mma f16 accumulate: E0 = -22 (MMA-Sim)"
  Instruction instruction;
  std::vector<Vector> vectors;
  std::vector<Hypothesis> hypotheses;
  bool scale_d = true;
  /// Outputs of random wide-range data on which every hypothesis is tried too; 0: only the vectors.
  std::uint64_t random_outputs = 0;
};

/// A row for the golden file.
struct Observation {
  std::string id, model;
  OperandFormat operands;
  AccumulatorFormat accumulator;
  std::vector<std::uint32_t> a, b;
  std::uint32_t c = 0, d = 0;
  std::string instruction;
};

/// The same for an instruction beside the tensor core: operation and operands in the notation of plain_fp16.tsv.
struct HalfObservation {
  std::string operation, operands, result;
};

/// rehearsed: the claim holds of the emulator, which was asked in a GPU's place.
enum class Verdict : std::uint8_t { confirmed, refuted, not_here, rehearsed };
const char* name_of(Verdict verdict);  ///< "CONFIRMED", "REFUTED", "NOT HERE", "REHEARSED"

/// What is printed.
struct Finding {
  std::string probe;
  std::string claim;
  Verdict verdict = Verdict::not_here;
  std::vector<std::string> evidence = {};  ///< candidates and observed words, a line each
  std::string conclusion = {};             ///< what follows; how the table must change if refuted
  std::vector<Observation> observations = {};
  std::vector<HalfObservation> half_observations = {};
};

struct Settings {
  std::string generation;  ///< in place of the device's own; empty: that
  std::uint64_t seed = 1;
  std::uint64_t random_outputs = 10'000'000;  ///< of each instruction, shared by the distributions
  std::uint64_t conversion_stride = 1;        ///< every n-th FP32 pattern through cvt; odd
  int threads = 1;
};

/// Asks. std::logic_error if two hypotheses predict the same words.
Finding ask(Device& device, const Settings& settings, const Question& question);

/// P1 to P7, P10, P11 for this device: one question for each instruction concerned. Those that the device lacks become
/// findings that say so.
std::vector<Finding> ask_tensor_core(Device& device, const Settings& settings);

/// The questions themselves, for a device of this capability, whether or not it `has` the instructions.
std::vector<Question> tensor_core_questions(Capability capability, const Settings& settings);

/// P8: NaN patterns, .ftz, .sat and FP32 -> FP16 of the plain FP16 instructions.
std::vector<Finding> ask_half(Device& device, const Settings& settings);

/// Random operands of every distribution through every instruction, against its row of the table.
std::vector<Finding> compare_with_emulator(Device& device, const Settings& settings);

/// The words in the width of their format: "0c00 0800".
std::string hex(const std::vector<std::uint32_t>& words, OperandFormat format);
std::string hex(std::uint32_t word, AccumulatorFormat format);

/// fused_dot_add with this row.
DotProduct dot_product_of(const TensorCoreModel& row, OperandFormat format);

}  // namespace fp16lab::probe
