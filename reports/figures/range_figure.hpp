// The figure of a range report: in which zones of a format the values of each tensor lie at a scale.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "analysis/range_report.hpp"
#include "numerics/files/run/observed.hpp"
#include "numerics/formats/dtype.hpp"
#include "numerics/histogram/exponent_histogram.hpp"
#include "reports/figures/figure.hpp"

namespace fp16lab::reports {

struct ScaledTensor {
  std::string name;
  ExponentHistogram values;
  double recorded_scale = 1;  ///< that the values carry
};

struct RangeFigure {
  std::string subject;           ///< whose gradients these are: "run, step 30"
  bool name_has_format = false;  ///< where several formats are drawn
  DType format = DType::f16;
  Observed observed = Observed::gradients;  ///< zones are analysis::judged_range's
  std::optional<double> scale;              ///< none: each tensor at its own
};

struct DrawnFigure {
  std::string stem;     ///< name of its files, without ending
  std::string problem;  ///< why nothing was drawn, in one line; empty: drawn
};

/// hist-SUBJECT, with a kind of tensors other than gradients and the format where needed: a panel of all
/// tensors together, then one each, the worst first (TensorState::worse_than), as many as there is room for;
/// the caption says how many are left out.
/// `report` holds the same tensors by name; at least one.
DrawnFigure draw_range_figure(const RangeFigure& figure, std::span<const ScaledTensor> tensors,
                              const analysis::RangeReport& report, const std::filesystem::path& folder,
                              const DrawingOptions& options = {});

}  // namespace fp16lab::reports
