// What was claimed, by which criterion, what was measured, and what follows: one form for every experiment.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "numerics/text/named_enum.hpp"

namespace fp16lab::analysis {

enum class Verdict : std::uint8_t {
  holds,
  fails,
  cannot_tell,  ///< measured, and not enough to say: a result
  /// measured where it decides nothing: on a stand-in for the device, or in a run that is too short
  rehearsed,
  not_run,  ///< nothing was measured
};
using fp16lab::name_of;
constexpr std::array<std::string_view, 5> names_of(Verdict) {
  return {"HOLDS", "FAILS", "CANNOT TELL", "REHEARSED", "NOT RUN"};
}
inline Verdict verdict_of(bool holds) { return holds ? Verdict::holds : Verdict::fails; }

struct Claim {
  std::string claim;
  std::string criterion;      ///< written before the run: what must be measured for it to hold
  std::string measured = {};  ///< or why there is nothing; empty: nothing
  Verdict verdict = Verdict::not_run;
  std::string topic = {};               ///< the heading above the claim; empty: none
  std::vector<std::string> notes = {};  ///< evidence, source, command: a line each
  bool decides = true;                  ///< false: a goal whose miss prints "BEHIND" and changes no exit code
  /// What we came to think of a claim that is not ours: then only another verdict is a mismatch.
  std::optional<Verdict> recorded = {};
};

/// name_of, "BEHIND" for a goal that decides nothing, "FAILS, as recorded", "HOLDS, RECORDED AS FAILS".
std::string verdict_text(const Claim& claim);
/// Does it say that something is not as it must be? A claim that fails; one with a record: any other verdict
/// than that, where something was measured.
bool is_mismatch(const Claim& claim);
bool any_mismatch(std::span<const Claim> claims);

/// Prints number, criterion, measurement and verdict on separate lines, then notes, with topics as headings.
std::string claims_text(std::span<const Claim> claims);
/// A line each, for long lists of single values: "  HOLDS        words: measured (expected criterion)",
/// without the criterion where that is what was measured.
std::string claims_lines(std::span<const Claim> claims);
/// "12 claims: 10 hold, 1 fails, 1 cannot be told"; claims with a record add "; 11 of 11 as recorded".
std::string claims_count(std::span<const Claim> claims);
/// {"question": ..., "claims": [{"topic"?, "claim", "criterion", "measured", "verdict", "recorded"?,
/// "decides"?, "notes"?}]}
std::string claims_json(std::string_view question, std::span<const Claim> claims);

}  // namespace fp16lab::analysis
