// Tap: the one way to look at a training run. An observer implements two functions: which sites it takes, and
// what it does with an event.
//
// Each layer defines its events, plain structures, beside what sends them: engine/autograd/tape_events.hpp (a
// tape), engine/optim/optimizer.hpp (an update), engine/train/observer.hpp (a run). A tap takes those that it
// knows and ignores the others:
//
//   void see(const Event& event) override {
//     if (const auto* row = event.as<StepRow>()) losses.push_back(row->loss);
//   }
//
// What no tap takes is not computed, and costs a branch. Looking costs time and never changes a bit.
#pragma once

#include <cstdint>
#include <string_view>
#include <typeinfo>

#include "numerics/files/run/observed.hpp"

namespace fp16lab::engine {

/// What taps may take. The first five are the tensors that can be counted (Observed, in its order).
enum class What : std::uint8_t {
  gradients,
  activations,
  weights,
  updates,
  optimizer_state,
  values,         ///< every value that a tape records, forward and backward
  overflows,      ///< in a step: the names of what overflowed
  culprits,       ///< with overflows: which operation made the first Inf or NaN
  op_statistics,  ///< in a step: which operation ran in which dtype
  operands,       ///< in a step: what the operands of products lost to a recipe
  checkpoint,     ///< the state after a step
  stop,           ///< that the run ends early
};

constexpr What what_of(Observed observed) { return static_cast<What>(observed); }
constexpr bool contains(ObservedSet observed, What what) {
  return what <= What::optimizer_state && observed.contains(static_cast<Observed>(what));
}

/// The state of a run after an iteration.
enum class RunMoment {
  going_on,
  stopped,   ///< a stop was requested: the run ends here, before its last step
  finished,  ///< this was the last step; the evaluation at the end is still to come
};

/// A question to a tap: is this wanted?
struct Site {
  What what = What::gradients;
  std::uint64_t step = 0;  ///< 1-based; 0: where no run is
  /// The tensor (HistogramRow::tensor), once it is known; empty: any name. A tap answers the same for a name
  /// in every step of a run.
  std::string_view name = {};
  RunMoment moment = RunMoment::going_on;  ///< for a checkpoint
};

/// A structure of any type, valid during the call of Tap::see.
class Event {
 public:
  template <class T>
  explicit Event(const T& seen) : type_(&typeid(T)), seen_(&seen) {}

  /// Null: it is something else.
  template <class T>
  const T* as() const {
    return *type_ == typeid(T) ? static_cast<const T*>(seen_) : nullptr;
  }

 private:
  const std::type_info* type_;
  const void* seen_;
};

class Tap {
 public:
  virtual ~Tap() = default;
  virtual bool wants(const Site& /*site*/) { return false; }
  virtual void see(const Event& /*event*/) {}
};

}  // namespace fp16lab::engine
