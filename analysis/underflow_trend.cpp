#include "analysis/underflow_trend.hpp"

#include <algorithm>

#include "numerics/range_counts.hpp"

namespace fp16lab::analysis {

void UnderflowTrend::add(const HistogramRow& row) {
  auto found = std::find_if(tensors_.begin(), tensors_.end(),
                            [&](const TensorTrend& trend) { return trend.tensor == row.tensor; });
  if (found == tensors_.end()) found = tensors_.insert(tensors_.end(), {row.tensor, row.kind, {}});
  const double scale = scale_.value_or(row.loss_scale);
  // The counted values already carry row.loss_scale.
  found->points.push_back({row.step, scale, underflow_rate(row.before, scale / row.loss_scale)});
}

}  // namespace fp16lab::analysis
