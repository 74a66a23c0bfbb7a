// What mma and reveal take of a library's plan on the command line: its name, and the call that it is asked
// for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "experiments/app/arguments.hpp"
#include "numerics/gemm/library_plan.hpp"

namespace fp16lab::experiments {

/// As given; absent or empty: not given.
struct PlanOptions {
  std::string plan, call;
  std::optional<int> m, n, batch, library_threads, parts;
  std::vector<std::string> transposed;
  bool fast_accumulation = false;
  std::string join, partials;
};

/// Declares them, `plan_help` after the names of the plans.
void declare_plan(Options& options, PlanOptions& values, const std::string& plan_help);

/// The row that this plan takes for operands of one format (planned_row, with its errors).
const TensorCoreModel& row_called(const PlanOptions& options, std::string_view name, DType operands,
                                  DType accumulator);

/// A plan, and the call whose outputs are asked for; K is given later.
class CalledPlan {
 public:
  CalledPlan() = default;
  /// std::invalid_argument for an unknown name, an option on which the plan does not depend, and a row with
  /// other sums than FP32.
  CalledPlan(const PlanOptions& options, const TensorCoreModel& row, DType a, DType b);

  /// "instruction": one chain, which c enters.
  bool is_one_chain() const { return plan_ == nullptr; }
  std::string_view name() const { return plan_->name; }
  /// ", an output of mm of 1024 x 1024", where the order depends on it; else nothing.
  std::string call_text() const;
  /// The product for an output of K products; std::invalid_argument where the plan has no rule.
  PlannedProduct product(const TensorCoreModel& row, std::size_t k) const;

 private:
  const LibraryPlan* plan_ = nullptr;
  ProductCall call_;
};

}  // namespace fp16lab::experiments
