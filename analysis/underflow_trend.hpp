// How the underflow rate of each tensor moves while training goes on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "numerics/files/run_schema.hpp"

namespace fp16lab::analysis {

struct TrendPoint {
  std::uint64_t step = 0;
  double loss_scale = 1;      ///< the scale the rate is for
  double underflow_rate = 0;  ///< lost / finite non-zero values, see numerics/range_counts.hpp
};

struct TensorTrend {
  std::string tensor;
  std::string kind;
  std::vector<TrendPoint> points;  ///< in the order they were added
};

/// Collects rows of histograms.jsonl; tensors stay in the order of their first row.
class UnderflowTrend {
 public:
  /// Without `scale`, each row is judged at the scale it carried; with it, all at this one.
  explicit UnderflowTrend(std::optional<double> scale = std::nullopt) : scale_(scale) {}
  void add(const HistogramRow& row);
  const std::vector<TensorTrend>& tensors() const { return tensors_; }

 private:
  std::optional<double> scale_;
  std::vector<TensorTrend> tensors_;
};

}  // namespace fp16lab::analysis
