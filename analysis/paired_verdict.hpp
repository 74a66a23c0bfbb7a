// Is a variant equal to its reference, better or worse? Paired statistics over seeds: runs of one seed share
// their weights and their batches, so the luck of the seed is in both and leaves with the difference.
//
// Four words, decided in this order:
//   worse        a run diverged where its reference did not
//   cannot tell  fewer than three pairs
//   equal        two one-sided t tests (Schuirmann, J. Pharmacokinet. Biopharm. 15, 1987) against -+ the
//                margin: the larger p passes Benjamini-Hochberg (J. R. Stat. Soc. B 57, 1995) at 5 % in the
//                family's equivalence tests
//   worse, better  the two-sided paired t test passes Holm's procedure (Scand. J. Statist. 6, 1979) at 5 % in
//                the family's difference tests: of 100 tables without a difference at most 5 say one
//   cannot tell  else, with the detectable difference and the number of seeds that would decide
// Left out of the difference tests are pairs so small that they would be equal, alone and unadjusted,
// whatever their signs: rms sqrt(1 + t(0.95, n - 1)^2 / (n - 1)) <= margin. They can only be equal or
// inconclusive. This selection costs nothing: without a difference, and for normal values, t is independent
// of their sum of squares (Bourgon, Gentleman, Huber, PNAS 107, 2010), so what is left has the p that it
// would have had. (Leaving out what is *called* equal would not do: that looks at the mean.) The margin is
// fixed before the runs; no data move it. The tests assume that differences are independent and normal. If
// they are skewed and there is no difference (exponential, five seeds), 13 % of single pairs report one, and
// 21 to 43 % of tables with 4 to 40 noisy pairs.
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

/// Final values of a group of runs: one configuration, several seeds.
struct Quality {
  int seeds = 0;
  int non_finite = 0;  ///< seeds whose value is NaN or infinite; left out of the rest
  double mean = 0;     ///< NaN where no finite value is left
  double minimum = 0;
  double maximum = 0;
};
Quality quality_of(std::span<const double> final_values);

inline constexpr double false_discovery_rate = 0.05;  ///< the rate for a family's equivalence tests
inline constexpr double family_error_rate = 0.05;     ///< any false one among its difference tests
inline constexpr double stated_power = 0.8;
inline constexpr int fewest_pairs = 3;
inline constexpr int most_seeds = 200;  ///< above, seeds_needed says nothing

/// 100 ln(variant / reference). Takes losses and bits per character, which must be above 0 and finite, else
/// NaN. Tests and margins use these, because ratios are as far below 1 as above it; the report gives
/// percent_of them.
double loss_difference(double variant, double reference);
/// 100 (exp(difference / 100) - 1): 18.86 is +20.75 %. For a mean of such differences: how far the geometric
/// mean of the ratios is from 1.
double percent_of(double loss_difference);
/// 100 (variant - reference), points. Takes accuracies as fractions.
double accuracy_difference(double variant, double reference);

struct Interval {
  double lower = 0, upper = 0;
  bool contains(double x) const { return lower <= x && x <= upper; }
};
std::optional<Interval> percent_of(const std::optional<Interval>& of_loss_differences);
/// Student's interval of a mean: mean -+ t(confidence, n - 1) s / sqrt(n) (Biometrika 6, 1908). Nothing for
/// fewer than two values, and where one is not finite. std::invalid_argument for a confidence that is not
/// between 0 and 1.
std::optional<Interval> mean_interval(std::span<const double> values, double confidence = 0.95);
/// The interval that holds one more value with 95 %: mean -+ t s sqrt(1 + 1/n). Nothing for fewer than three
/// values, and where all are the same.
std::optional<Interval> single_run_band(std::span<const double> values);

/// A variant against its reference: one member of a family.
struct PairedSample {
  std::vector<double> differences{};  ///< variant - reference, one a seed that ended finite on both sides
  int diverged = 0;                   ///< seeds in which the variant diverged and its reference did not
  int dropped = 0;                    ///< seeds without a usable reference: it diverged
  double margin = 1;                  ///< in the differences' unit, above 0
  bool is_of_losses = false;          ///< by loss_difference: the judgement prints percent_of them
  bool higher_is_better = false;      ///< a positive difference is better
  std::uint64_t bits = 0;             ///< equal and not 0: the same runs under another name, one test
};

enum class Word : std::uint8_t { equal, better, worse, cannot_tell };
using fp16lab::name_of;
constexpr std::array<std::string_view, 4> names_of(Word) {
  return {"equal", "better", "worse", "cannot tell"};
}

struct Judgement {
  Word word = Word::cannot_tell;
  int pairs = 0, diverged = 0, dropped = 0;
  double mean = 0;       ///< in the metric's own sign, as the differences; NaN without any
  double deviation = 0;  ///< deviation of the differences, also of losses; NaN for fewer than two
  double margin = 1;
  std::optional<Interval>
      interval{};  ///< 95 %, not adjusted for the family; from three pairs on that are not all equal
  std::optional<double> p_equal{}, p_differs{};
  /// The two-sided test passed: of "worse" and "better", and of an "equal" that is measurably off.
  bool differs = false;
  /// The interval of such a difference at the level of its step of Holm's, 1 - 5 % / (m - k + 1) where k - 1
  /// of m tests have a smaller p: the one that excludes 0 exactly where the test passes.
  std::optional<Interval> adjusted{};
  /// For "cannot tell" with an interval; both unadjusted. The smallest |difference| that the two-sided 5 %
  /// test finds with 80 %; and the smallest number of pairs with which the equivalence test recognises a true
  /// difference of 0 with 80 %, at the 80 % upper bound of the deviation (nothing: above most_seeds, "not at
  /// this margin").
  std::optional<double> detectable{};
  std::optional<int> seeds_needed{};
};

/// All pairs of one table. Samples of the same `bits` are one test.
std::vector<Judgement> judge(std::span<const PairedSample> family);

/// How many seeds a judgement of fewer than fewest_pairs has ("no pair", "one seed", "two seeds"), else its
/// word: for narrow columns.
std::string_view short_words_of(const Judgement& judgement);
/// In words, with the differences' unit ("%" or "points"): "equal within 1 % (measurably +0.30 %)", "worse",
/// "worse (1 of 5 diverged)", "one seed: three are needed for a verdict", "cannot tell (a difference of 1.3 %
/// would have been seen; 14 seeds would tell; both unadjusted)".
std::string words_of(const Judgement& judgement, std::string_view unit);
/// "0.5 points", "1 point", "1 %".
std::string with_unit(double value, std::string_view unit);
/// "[-0.12, +0.30]", "[-0.0041, +0.0038]", "" without an interval: two digits, more where both ends are
/// small.
std::string interval_text(const std::optional<Interval>& interval);

/// Power of the equivalence test of n >= 2 pairs at a true difference of 0, for margin / true deviation =
/// `ratio`.
double equivalence_power(int pairs, double ratio);
/// The |difference| / deviation that the two-sided 5 % test of n >= 2 pairs finds with 80 %.
double detectable_effect(int pairs);

}  // namespace fp16lab::analysis
