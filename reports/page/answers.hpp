// The three questions that a visitor comes with, each answered in a sentence.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "reports/page/report_data.hpp"

namespace fp16lab::reports {

/// The sentences (with marks) are about one configuration beside FP32: the one that is worse than FP32, or,
/// where none or several are, the one that loses the larger share of its gradients to zero. If only FP32 has
/// gradients, they are about what FP16 would make of them.
struct Answers {
  std::string wrong;  ///< what is Inf, NaN or skipped, else what underflows, and how much
  std::string costs;  ///< what it costs against FP32 and against FP32's own noise
  std::string fixes;  ///< which scale or policy fixes it
  std::optional<std::size_t> configuration{};  ///< index into workload->configurations
  std::optional<std::size_t> tensor{};         ///< the gradient that loses most
};
Answers answers_of(const WorkloadMaterial& material);

}  // namespace fp16lab::reports
