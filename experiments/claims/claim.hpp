// Numeric claims of mixed-precision tutorials, each with the value that this project computes for it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fp16lab::experiments::claims {

enum class Verdict {
  holds,  ///< printed "true"
  fails,  ///< "false"
  imprecise,  ///< right to fewer digits than it has, or in another reading than the one it asks for: `remark` says which
};
std::string_view name_of(Verdict verdict);

struct Claim {
  std::string topic;
  std::string source;   ///< who says so
  std::string words;    ///< what they say, in our words
  std::string claimed;  ///< their value, as they write it
  std::string exact;    ///< ours: always computed, never typed
  Verdict recorded;     ///< what we came to think of it
  Verdict computed;     ///< what follows from `exact`
  std::string command;  ///< shows it
  std::string remark = {};
};

/// Of a claimed number: holds if `exact`, rounded to the digits that the claim has, reads the same; imprecise within
/// 10 %; else it fails. std::invalid_argument if `claimed` is no number.
Verdict judge_number(const std::string& claimed, double exact);
inline Verdict judge_statement(bool holds) { return holds ? Verdict::holds : Verdict::fails; }
/// Of a statement that has two readings.
inline Verdict judge_readings(bool as_written, bool otherwise) {
  return as_written ? Verdict::holds : otherwise ? Verdict::imprecise : Verdict::fails;
}

std::vector<Claim> format_claims();       ///< what FP16 holds, and where it ends
std::vector<Claim> measurement_claims();  ///< ratios and sums of the numbers that they print
std::vector<Claim> training_claims();     ///< what scalers, autocast and accumulation do
/// Small runs of the two Paddle systems and MindSpore's LeNet-5, some five seconds. CommandError where their configurations are gone.
std::vector<Claim> level_claims(int threads);

}  // namespace fp16lab::experiments::claims
