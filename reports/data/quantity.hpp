// What an evaluation measures.
#pragma once

#include <optional>
#include <string_view>

#include "numerics/files/run/run_schema.hpp"

namespace fp16lab::reports {

/// Every evaluation has the loss; what else it has its network decides.
enum class Quantity { loss, accuracy, bits_per_character };

/// "loss", "accuracy", "bits_per_character": the column of evaluations.csv.
inline std::string_view name_of(Quantity quantity) {
  return quantity == Quantity::accuracy             ? "accuracy"
         : quantity == Quantity::bits_per_character ? "bits_per_character"
                                                    : "loss";
}
/// The same for people: "bits per character".
inline std::string_view words_of(Quantity quantity) {
  return quantity == Quantity::bits_per_character ? "bits per character" : name_of(quantity);
}

/// Absent where the run's workload is not judged by it.
inline std::optional<double> value_of(const EvaluationRow& row, Quantity quantity) {
  return quantity == Quantity::accuracy             ? row.accuracy
         : quantity == Quantity::bits_per_character ? row.bits_per_character
                                                    : row.loss;
}

}  // namespace fp16lab::reports
