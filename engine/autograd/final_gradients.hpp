// FinalGradients: told, while a backward pass still runs, which gradients of parameters are there for good.
#pragma once

namespace fp16lab::engine {

struct Parameter;

/// In StepContext::final_gradients; asked in passes with BackwardOptions::last.
class FinalGradients {
 public:
  virtual ~FinalGradients() = default;
  /// Nothing adds to parameter.gradient before it is cleared: it may be taken, and another one put there.
  /// Called in the order of the pass, which is the same on all ranks; not for parameters that the pass does
  /// not reach.
  virtual void on_final(Parameter& parameter) = 0;
  /// Between two nodes of the pass.
  virtual void on_node() = 0;
};

}  // namespace fp16lab::engine
