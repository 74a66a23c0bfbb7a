#include "engine/amp/scalers/scaler_support.hpp"

#include <algorithm>
#include <stdexcept>

#include "engine/amp/scalers/scaler_programs.hpp"

namespace fp16lab::engine::amp {

namespace {

std::string first_parameter(const ScaledOptimizer& optimizer) {
  return optimizer.parameters().empty() ? std::string() : optimizer.parameters().front()->name;
}

}  // namespace

std::size_t slot_of(const ScaledOptimizer& optimizer, std::string_view call) {
  if (optimizer.index() < 0 || optimizer.index() >= max_optimizers) {
    throw std::invalid_argument(std::string(call) + ": optimizer " + std::string(optimizer.name()) +
                                " has index " + std::to_string(optimizer.index()) + ", must be in [0, " +
                                std::to_string(max_optimizers) + ")");
  }
  return static_cast<std::size_t>(optimizer.index());
}

std::string describe(std::string_view call, const ScaledOptimizer& optimizer) {
  const std::string first = first_parameter(optimizer);
  const std::string of = first.empty() ? " without parameters"
                                       : " of " + first + (optimizer.parameters().size() > 1 ? " ..." : "");
  return std::string(call) + "(" + std::string(optimizer.name()) + " " + std::to_string(optimizer.index()) +
         of + ")";
}

ScalerError misuse(ScalerError::Kind kind, std::string_view call, const ScaledOptimizer& optimizer,
                   const std::string& what) {
  return {kind, call, optimizer.name(), first_parameter(optimizer), describe(call, optimizer) + ": " + what};
}

void require_gradients(const ScaledOptimizer& optimizer, std::string_view call) {
  const auto parameters = optimizer.parameters();
  const bool reached = std::any_of(parameters.begin(), parameters.end(),
                                   [](const Parameter* parameter) { return parameter->has_gradient; });
  if (reached) return;
  throw misuse(
      ScalerError::Kind::no_gradients, call, optimizer,
      "none of its " + std::to_string(parameters.size()) +
          " parameters has a gradient; run a backward pass through them first, or leave this optimizer out "
          "of this iteration (others may step)");
}

void require_own_slot(const ScaledOptimizer& optimizer, const ScaledOptimizer* present,
                      std::string_view call) {
  if (present == nullptr || present == &optimizer) return;
  throw std::invalid_argument(
      describe(call, optimizer) +
      ": another optimizer with the same index takes part in this iteration; every optimizer "
      "of a scaler needs an index of its own");
}

void clear_found_inf(Backend& backend, Tensor& step) {
  backend.run({.name = "scaler.clear_found_inf", .function = &clear_found_inf_program, .parameters = {}},
              step);
}

}  // namespace fp16lab::engine::amp
