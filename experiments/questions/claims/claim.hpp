// Numeric claims of mixed-precision tutorials, each with the value that this project computes for it.
#pragma once

#include <string>
#include <vector>

#include "analysis/claim.hpp"

namespace fp16lab::experiments::claims {

using analysis::Verdict;

/// What follows from a computed value.
struct Judgement {
  Verdict verdict = Verdict::fails;
  /// How a failing claim fails: it is right to fewer digits than it has, or in another reading than the one
  /// it asks for.
  bool imprecise = false;
  bool operator==(const Judgement&) const = default;
};

/// A tutorial's claim.
struct Said {
  std::string topic;
  std::string source;   ///< who says so
  std::string words;    ///< what they say, in our words
  std::string claimed;  ///< their value, as they write it
  std::string exact;    ///< ours: always computed, never typed
  Verdict recorded;     ///< what we came to think of it
  Judgement computed;   ///< what follows from `exact`
  std::string command;  ///< shows it
  std::string remark = {};
};
/// Its criterion is the claimed value; what was measured begins with "imprecise: " where it is; notes:
/// source, remark and "$ command".
analysis::Claim claim_of(const Said& said);

/// Judges a claimed number: holds if `exact`, rounded to the digits that the claim has, reads the same;
/// imprecise within 10 %; else it fails. std::invalid_argument if `claimed` is no number.
Judgement judge_number(const std::string& claimed, double exact);
/// Judges a statement; `otherwise`: it holds in another reading.
inline Judgement judge_statement(bool as_written, bool otherwise = false) {
  return {analysis::verdict_of(as_written), !as_written && otherwise};
}

std::vector<Said> format_claims();       ///< what FP16 holds, and where it ends
std::vector<Said> measurement_claims();  ///< ratios and sums of the numbers that they print
std::vector<Said> training_claims();     ///< what scalers, autocast and accumulation do
/// Small runs of the two Paddle systems and MindSpore's LeNet-5, some five seconds. Errors as
/// load_config where their configurations are gone.
std::vector<Said> level_claims(int threads);

}  // namespace fp16lab::experiments::claims
