// What an evaluation measures.
#pragma once

#include <optional>
#include <string_view>

#include "numerics/files/run/run_schema.hpp"

namespace fp16lab::reports {

enum class Quantity { loss, accuracy, bits_per_character };

/// "loss", "accuracy", "bits per character"
inline std::string_view name_of(Quantity quantity) {
  return quantity == Quantity::accuracy             ? "accuracy"
         : quantity == Quantity::bits_per_character ? "bits per character"
                                                    : "loss";
}

/// Absent where the run's workload is not judged by it.
inline std::optional<double> value_of(const EvaluationRow& row, Quantity quantity) {
  return quantity == Quantity::accuracy             ? row.accuracy
         : quantity == Quantity::bits_per_character ? row.bits_per_character
                                                    : row.loss;
}

}  // namespace fp16lab::reports
