// Counting: the tap that has a tape's verbs count what they round, and sends another tap the counts
// (CountedTensor).
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/autograd/tap.hpp"
#include "engine/autograd/tape.hpp"

namespace fp16lab::engine {

class Counting final : public Tap {
 public:
  /// Counts on `tape`, which must outlive it, once it has begun and Tape::set_taps has it.
  explicit Counting(Tape& tape) : tape_(&tape) {}
  Counting(Tape& tape, Tap& listener, ObservedSet observed = {Observed::gradients}) : Counting(tape) {
    begin(listener, observed);
  }
  ~Counting() override { end(); }
  Counting(const Counting&) = delete;
  Counting& operator=(const Counting&) = delete;

  /// Counts these from now on, not in a backward pass, and tells `listener`: gradients, all of them, for
  /// policies decide by all; activations whose names the listener takes, and weights, which are counted
  /// together.
  void begin(Tap& listener, ObservedSet observed);
  void end();

  bool wants(const Site& site) override { return site.what == What::gradients && gradients_; }
  void see(const Event& event) override;

 private:
  struct WatchedRounding {
    std::uint32_t watch;
    int exponent;
    CastProbe probe;
  };
  /// A backward pass; a vjp may begin another one.
  struct Pass {
    CastProbe* outer = nullptr;  ///< Tape::probe before the pass
    bool counted = true;
    std::vector<WatchedRounding> watched;  ///< those of watches (ops::watch) whose gradient is incomplete
    std::uint32_t shown_operand = 0;       ///< 1 + the node whose cotangent's FP8 rounding was reported last
    CastProbe probe;                       ///< probe of the vjp that runs
    CastProbe* outside_vjp = nullptr;
  };
  Pass& pass() { return *passes_[depth_ - 1]; }
  bool counts_vjps() { return depth_ > 0 && gradients_ && pass().counted; }

  // ---- forward
  void see(const Recorded& recorded);
  CastProbe counts_of(const Tensor& operand);
  void keep_cast(const Tensor& value);
  void forget_casts();

  // ---- backward
  void begin_pass(const PassBegins& begins);
  void end_pass(const PassEnds& ends);
  void see(const VjpBegins& begins);
  void see(const VjpGave& gave);
  void see(const InnerGradient& inner);
  void see(const GradientScaled& scaled);
  /// `result` is about to be added to the gradient of site.input; `probe` is what its computation narrowed at
  /// a slot without a label. A watch's first gradient keeps it, if it is the gradient's own rounding, so the
  /// numbers agree: a vjp may also narrow on the way (a sum along an axis, say). All else is reported as a
  /// rounding.
  void keep_rounding(const VjpGave& gave, const CastProbe& probe);
  CastProbe taken_rounding(std::uint32_t watch);
  /// A rounding of a gradient of the node's result, at no place that has a label.
  void tell_rounding(std::uint32_t node, DType dtype, const CastProbe& probe, int exponent);
  /// Module scope + name.
  std::string_view name_in(std::uint32_t scope, std::string_view name);

  Tape* tape_;
  Tap* listener_ = nullptr;
  bool gradients_ = false, forward_ = false;
  CastProbe forward_probe_;  ///< probe of the value to be recorded next
  /// What casts of the forward pass counted since the last Tape::reset, by the memory of their results.
  std::unordered_map<const std::byte*, CastProbe> forward_casts_;
  std::vector<std::unique_ptr<Pass>> passes_;  ///< by depth; kept for their memory
  std::size_t depth_ = 0;
  std::string name_;  ///< kept for its capacity
};

/// While it lives, `listener` receives the gradients of a tape that has no other tap.
class CountingGuard {
 public:
  CountingGuard(Tape& tape, Tap& listener) : tape_(&tape), counting_(tape, listener) {
    tape.set_taps({&counting_});
  }
  ~CountingGuard() { tape_->set_taps({}); }
  CountingGuard(const CountingGuard&) = delete;
  CountingGuard& operator=(const CountingGuard&) = delete;

 private:
  Tape* tape_;
  Counting counting_;
};

}  // namespace fp16lab::engine
