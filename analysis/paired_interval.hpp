// How much better or worse, with the luck of the seed taken out: differences of runs that share their seed.
#pragma once

#include <optional>
#include <span>

namespace fp16lab::analysis {

/// Student's interval for the mean of paired differences ("Student", The Probable Error of a Mean, Biometrika 6, 1908):
/// mean -+ t(confidence, n - 1) * s / sqrt(n). It takes the differences for independent and normal.
struct PairedInterval {
  int pairs = 0;
  double mean = 0;
  double lower = 0, upper = 0;
  bool contains(double difference) const { return lower <= difference && difference <= upper; }
};

/// `differences`: candidate minus reference, one a seed. Nothing for fewer than two, or if one of them is not finite:
/// the interval of what is left would leave out the very runs that matter. std::invalid_argument for a confidence that
/// is not between 0 and 1.
std::optional<PairedInterval> paired_interval(std::span<const double> differences, double confidence = 0.95);

}  // namespace fp16lab::analysis
