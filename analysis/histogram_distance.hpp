// How far apart two distributions of gradient magnitudes are, and what two runs' histograms differ in, tensor
// by tensor.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "numerics/files/run/run_schema.hpp"

namespace fp16lab::analysis {

/// The earth mover's distance between the exponents of finite non-zero values, in binades: how far, on
/// average, values must move along the axis of log2 magnitude to turn one distribution into the other. Both
/// are normalised to one; values carry a loss scale (finite, > 0), which is taken out. 0 for equal ones, 1 if
/// all values of one are twice those of the other. None where one of them has no finite non-zero value.
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
  std::size_t unmatched_rows = 0;  ///< of tensors that both have, in steps that one has not recorded
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

}  // namespace fp16lab::analysis
