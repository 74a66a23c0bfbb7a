// What happened in a run, or what a format would make of the values of a dump, worst first: values that are
// not finite, overflow and skipped steps, underflow, distortion by subnormals. Said of a run from the rows of
// its folder alone, so that train, sweep, hist, lab.watch and the page say the same.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "analysis/range_report.hpp"
#include "numerics/files/run/run_folder.hpp"
#include "numerics/histogram/cast_counts.hpp"
#include "numerics/text/named_enum.hpp"

namespace fp16lab::analysis {

enum class Trouble {
  non_finite,  ///< a loss, an evaluation or a gradient of a step that was taken is Inf or NaN
  overflow,    ///< steps were skipped, or casts gave Inf or NaN
  underflow,   ///< casts made values zero
  distortion,  ///< values were rounded as subnormals, with fewer bits than their format has
};
using fp16lab::name_of;
constexpr std::array<std::string_view, 4> names_of(Trouble) {
  return {"non_finite", "overflow", "underflow", "distortion"};
}

struct Finding {
  Trouble trouble = Trouble::non_finite;
  /// Does it need mending? Not: steps that are skipped while a policy looks for its scale, up to 1 % later,
  /// and zeros that add less than a tenth to the rounding error of every tensor (FitSums).
  bool serious = false;
  std::string tensor{};                  ///< the worst; if several overflow, the one nearest to the loss
  std::optional<std::uint64_t> since{};  ///< the first step in which it happened
  std::string text{};                    ///< sentences for people, with the cause where it is known
};

struct Account {
  std::vector<Finding> findings;  ///< in the order of Trouble, each at most once
  bool trained = true;            ///< the account describes a run; false: given values
  std::uint64_t steps = 0, skipped = 0;
  bool counted = false;      ///< the run counted gradients; for values: one is finite and not 0
  bool counts_casts = true;  ///< and what rounded them was seen (not in a watched run)
  /// What the casts of gradients did, each at the scale of its step; nothing where none was made or seen.
  std::optional<CastCounts> casts{};
  /// The range over which the scale has fallen, if it has not grown once: how many steps it skips once it is
  /// found is not known then.
  std::optional<std::pair<double, double>> searching{};
  /// From where to where the loss of a step went, if it more than doubled.
  std::optional<std::pair<double, double>> rose{};
  /// Which operand lost most as codes with scales for blocks (amp.recipe): sentences, or nothing.
  std::string recipe{};
  std::string next{};  ///< own_command(), and its purpose: "fp16lab hist results/mine (where ...)"

  bool took_no_step() const { return steps > 0 && skipped == steps; }
  /// The most serious one; nothing where none is serious.
  const Finding* worst() const;
  /// Is more wrong here than there? By the most serious findings, then by skipped steps and what became zero.
  bool worse_than(const Account& other) const;
  /// The account found nothing that needs mending; in a run a step was taken, the scale is found, the loss
  /// did not rise, and gradients and casts were counted to see it.
  bool nothing_to_fix() const {
    return worst() == nullptr && counted &&
           (!trained || (steps > skipped && !searching && !rose && counts_casts));
  }
};

/// What comes next where a training run in PyTorch gave an Inf or NaN at this loss scale.
std::string explained_in_pytorch(double scale);

/// Does steps.csv have losses? Not where lab.watch got none: then all are NaN, and unknown.
bool tells_loss(const RunFolder& run);

/// Reads the rest of the folder: overflows, culprits, what a recipe lost, and every histogram of gradients,
/// one at a time.
Account account_of(const RunFolder& run);
/// What `format` would make of these values at `scale` (none: each at the scale that it carried). The caller
/// sets `next`.
Account account_of(const RangeReport& report, DType format, std::optional<double> scale);

/// One line a finding; "Nothing to fix: ..." if there is none; what is not known.
std::string findings_text(const Account& account);
/// The same, and a line with the next command.
std::string account_text(const Account& account);
/// {"steps", "skipped", "nothing_to_fix", "findings": [{"trouble", "serious", "tensor", "since", "text"}],
/// "next"}
std::string account_json(const Account& account);

}  // namespace fp16lab::analysis
