// Two runs, step by step: are they the same bits, where do they part, how fast does the difference grow, and
// does it matter in the end?
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "numerics/files/run/run_schema.hpp"

namespace fp16lab::analysis {

/// Settings as flat text, "scaler.policy" -> "torch".
using Settings = std::map<std::string, std::string, std::less<>>;
struct SettingDifference {
  std::string key;
  std::optional<std::string> a, b;  ///< absent where a run has no such key
};
/// In the order of keys.
std::vector<SettingDifference> differing_settings(const Settings& a, const Settings& b);

/// |a - b| / max(|a|, |b|): 0 for the same bits, two NaNs, and two zeros; infinite where only one of them is
/// finite or where they are infinite in opposite directions.
double relative_difference(double a, double b);

/// One column over the steps that both runs have.
struct ColumnDifference {
  std::string_view name{};
  std::size_t differing = 0;             ///< steps in which the values differ at all
  std::optional<std::uint64_t> first{};  ///< the first of them
  std::size_t in_one = 0;                ///< steps of them in which only one run has a value
  double largest = 0;                    ///< the others' relative difference
  std::uint64_t largest_step = 0;        ///< where; 0: nowhere
  std::size_t above = 0;                 ///< steps in which it exceeds the threshold
  std::optional<std::uint64_t> first_above{};
};

struct StepPair {
  StepRow a, b;
};

/// |loss difference| ~ 2^(step / doubling_steps): a straight line through log10 of it by least squares, from
/// the first step in which the losses differ to the one before the difference has grown to a tenth of the
/// loss, where growth must end. Steps with equal or non-finite losses are left out.
struct ErrorGrowth {
  std::uint64_t first_step = 0, last_step = 0;
  std::size_t points = 0;
  double log10_at_first = 0;  ///< the line's value at first_step
  double log10_per_step = 0;  ///< its slope
  double r_squared = 0;       ///< what part of the variance the line explains
  /// log10(2) / slope; absent where the difference does not grow.
  std::optional<double> doubling_steps() const;
};
/// Fewer points than this have no line.
inline constexpr std::size_t fewest_points = 5;

struct StepsComparison {
  std::vector<StepPair> common{};  ///< in the order of steps
  std::size_t only_a = 0, only_b = 0;
  std::optional<std::uint64_t> first_state_difference{};  ///< first step whose state_hash differs
  std::size_t state_differences = 0;
  std::size_t states_of_two_versions = 0;   ///< not equal, and never to be compared: no difference
  std::vector<ColumnDifference> columns{};  ///< the numbers of StepRow but the seconds, in its order
  std::size_t skips_a = 0, skips_b = 0, skip_differences = 0;  ///< in the common steps
  std::optional<ErrorGrowth> growth{};
  /// Every step in both, and every column but the seconds, and but what older folders lack.
  bool equal = true;
  /// One of `columns`; without differences where there is no such one.
  ColumnDifference column(std::string_view name) const;
};
/// The steps whose state_hash is of version 1 in one run and of version 2 in the other: after `after` up to
/// `up_to`.
struct StepsOfTwoVersions {
  std::uint64_t after = 0, up_to = 0;
};
StepsOfTwoVersions steps_of_two_versions(const Manifest& a, const Manifest& b);

/// `threshold` >= 0 is relative.
StepsComparison compare_steps(std::span<const StepRow> a, std::span<const StepRow> b, double threshold,
                              StepsOfTwoVersions other_hashes = {});

struct EvaluationPair {
  EvaluationRow a, b;
};
struct EvaluationsComparison {
  std::vector<EvaluationPair> last{};  ///< for each split, at the last step that both have evaluated
  std::size_t common = 0, only_a = 0, only_b = 0;
  std::optional<std::uint64_t> first_difference{};
  bool equal = true;
};
EvaluationsComparison compare_evaluations(std::span<const EvaluationRow> a, std::span<const EvaluationRow> b);

/// The rows of a file that holds none, one or several a step.
struct EventsComparison {
  std::size_t rows_a = 0, rows_b = 0;
  std::optional<std::uint64_t> first_difference{};  ///< the first step with other rows
  bool equal() const { return !first_difference; }
};
EventsComparison compare_overflows(std::span<const OverflowRow> a, std::span<const OverflowRow> b);
EventsComparison compare_culprits(std::span<const CulpritRow> a, std::span<const CulpritRow> b);

struct OperandsComparison : EventsComparison {
  /// The operand whose shares of values that a recipe made zero differ most, over all steps: "fc1.input", "dw".
  struct Apart {
    std::string tensor, product;
    double a = 0, b = 0;
  };
  std::optional<Apart> most{};  ///< nothing where no share differs
};
OperandsComparison compare_operands(std::span<const RecipeRow> a, std::span<const RecipeRow> b);

/// The earth mover's distance between the exponents of finite non-zero values, in binades: how far, on
/// average, values must move along the axis of log2 magnitude to turn one distribution into the other. Both
/// are normalised to one; values carry a loss scale (finite, > 0), which is taken out. 0 for equal ones, 1 if
/// all values of one are twice those of the other. None if one of them has no finite non-zero value.
std::optional<double> earth_movers_distance(const ExponentHistogram& a, double scale_a,
                                            const ExponentHistogram& b, double scale_b);

/// One tensor over the steps that both runs have recorded of it.
struct TensorComparison {
  std::string tensor;     ///< "fc1.weight"; "fc1.output (e5m2)" of its cast inside a product
  std::string kind;       ///< "weight" or "activation"
  std::size_t steps = 0;  ///< compared
  bool equal =
      true;  ///< every counter on both sides of the cast, extremes where both know them, the loss scale
  std::optional<std::uint64_t> first_difference{};  ///< the step where that ends
  /// Compares the values before the cast, over the steps in which both have some.
  std::size_t with_distance = 0;
  double mean_distance = 0;
  double largest_distance = 0;
  std::uint64_t largest_step = 0;
  /// Exact zeros, summed over the steps. What the casts made zero is `after` less `before`, of the same run.
  struct Zeros {
    std::uint64_t before = 0, after = 0;
  } zeros_a, zeros_b;
};

struct HistogramsComparison {
  std::vector<TensorComparison> tensors{};  ///< in the order of run A
  std::vector<std::string> only_a{}, only_b{};
  std::size_t rows_a = 0, rows_b = 0;
  std::size_t unmatched_rows = 0;  ///< rows for tensors that both have, in steps that one has not recorded
  bool equal() const;              ///< every row of either run has its like in the other
};

/// Takes the rows of both runs in any order, then compares. Keeps those of A in a short form.
class HistogramComparer {
 public:
  void add_a(const HistogramRow& row);
  /// Each compared with A's row of the same step, tensor and kind: after all of those were added.
  void add_b(const HistogramRow& row);
  HistogramsComparison result() const;

 private:
  using Name = std::pair<std::string, std::string>;  ///< TensorComparison::tensor, kind
  /// The bins in use only: gradients span a few dozen of 255.
  struct Short {
    explicit Short(const ExponentHistogram& histogram);
    ExponentHistogram whole() const;
    std::size_t first = 0;
    std::vector<std::uint64_t> counts;
    std::uint64_t zero, infinite, nan;
    std::uint32_t smallest, greatest;
  };
  struct ShortRow {
    double loss_scale;
    Short before, after;
  };
  struct Of {
    std::map<std::uint64_t, ShortRow> rows;
    TensorComparison comparison;
    double sum_of_distances = 0;
    bool in_a = false, in_b = false;
  };
  Of& of(const HistogramRow& row);

  std::map<Name, Of> tensors_;
  std::vector<Name> order_;
  std::size_t rows_a_ = 0, rows_b_ = 0, unmatched_b_ = 0;
};

struct RunComparison {
  std::string name_a, name_b;
  double threshold = 0;
  std::vector<SettingDifference> settings{};
  StepsComparison steps{};
  EvaluationsComparison evaluations{};
  HistogramsComparison histograms{};
  EventsComparison overflows{}, culprits{};
  OperandsComparison operands{};
  std::vector<std::string> notes{};    ///< what limits the comparison, in plain words
  std::vector<std::string> missing{};  ///< records that a folder has lost, with its letter

  /// Are all records of both runs equal, with none missing? Different settings alone are no difference, but
  /// rows that one run recorded because of them and the other did not are one.
  bool equal() const {
    return steps.equal && evaluations.equal && histograms.equal() && overflows.equal() && culprits.equal() &&
           operands.equal() && missing.empty();
  }
};

}  // namespace fp16lab::analysis
