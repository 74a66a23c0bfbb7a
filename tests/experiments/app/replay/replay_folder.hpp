// Hand-made run folders for tests of replays: values typed in, histograms counted by an own rule.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "numerics/files/run/run_folder.hpp"

namespace fp16lab::experiments {

enum class Extremes { known, unknown };  ///< folders of older versions do not have them

/// Bin (2^e, 2^(e+1)] by halving and doubling; nothing of ExponentHistogram's own counting. `values` are FP32
/// numbers, or are rounded to one.
inline ExponentHistogram counted(const std::vector<double>& values, Extremes extremes) {
  ExponentHistogram histogram;
  float smallest = 0, greatest = 0;
  for (const double value : values) {
    double magnitude = std::abs(value);
    if (magnitude == 0)
      ++histogram.zero;
    else if (std::isnan(value))
      ++histogram.nan;
    else if (std::isinf(value))
      ++histogram.infinite;
    else {
      const auto stored = static_cast<float>(magnitude);
      smallest = smallest == 0 ? stored : std::min(smallest, stored);
      greatest = std::max(greatest, stored);
      int e = 0;
      for (; magnitude > 2; magnitude /= 2) ++e;
      for (; magnitude <= 1; magnitude *= 2) --e;
      ++histogram.bins[static_cast<std::size_t>(e - ExponentHistogram::min_exponent)];
    }
  }
  if (extremes == Extremes::known) {
    std::memcpy(&histogram.smallest, &smallest, sizeof smallest);
    std::memcpy(&histogram.greatest, &greatest, sizeof greatest);
  }
  return histogram;
}

struct MadeTensor {
  std::string name = "fc1.weight";
  std::vector<double> values{};  ///< unscaled gradients
  std::string kind = "weight";
  DType dtype = DType::f32;
};

struct MadeStep {
  std::vector<MadeTensor> tensors{};  ///< empty: this step has no histograms
  double loss_scale = 1;
  bool found_inf = false;
};

inline Manifest made_manifest(const std::string& config = "[model]\nname = \"classifier\"\n") {
  Manifest manifest;
  manifest.config = config;
  return manifest;
}

/// Steps 1, 2, ... Values in the file carry their step's loss scale.
inline void make_run(const std::filesystem::path& folder, const std::vector<MadeStep>& steps,
                     const std::string& config = "[model]\nname = \"classifier\"\n",
                     Extremes extremes = Extremes::known) {
  RunWriter writer(folder, made_manifest(config));
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const MadeStep& step = steps[i];
    for (const MadeTensor& tensor : step.tensors) {
      std::vector<double> scaled;
      for (const double value : tensor.values) scaled.push_back(value * step.loss_scale);
      const ExponentHistogram counts = counted(scaled, extremes);
      writer.append(HistogramRow{.step = i + 1,
                                 .tensor = tensor.name,
                                 .kind = tensor.kind,
                                 .dtype = tensor.dtype,
                                 .loss_scale = step.loss_scale,
                                 .before = counts,
                                 .after = counts});
    }
    StepRow row;
    row.step = i + 1;
    row.loss_scale = step.loss_scale;
    row.found_inf = row.skipped = step.found_inf;
    writer.append(row);
  }
  writer.finish(ExitState::finished);
}

/// As a version wrote it that did not know the extremes.
inline void make_older_run(const std::filesystem::path& folder, const std::vector<MadeStep>& steps) {
  make_run(folder, steps, "[model]\nname = \"classifier\"\n", Extremes::unknown);
}

}  // namespace fp16lab::experiments
