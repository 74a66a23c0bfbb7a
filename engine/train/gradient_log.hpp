// GradientLog: sums what a tape shows of the gradients of one iteration over its micro-batches.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/amp/observation.hpp"
#include "engine/autograd/gradient_observer.hpp"
#include "engine/train/observer.hpp"
#include "numerics/histogram/cast_counts.hpp"

namespace fp16lab::engine {

class GradientLog final : public GradientObserver {
 public:
  void clear() {
    used_ = 0;
    unsettled_.clear();
  }
  void on_gradient(std::string_view name, GradientKind kind, DType dtype, const CastProbe& probe) override {
    on_scaled_gradient(name, kind, dtype, probe, 0);
  }
  /// Uses of one tensor with other exponents are counted apart, until they are reported; with other dtypes,
  /// for good.
  void on_scaled_gradient(std::string_view name, GradientKind kind, DType dtype, const CastProbe& probe,
                          int exponent) override {
    add(name, kind, dtype, probe, exponent, false);
  }
  void on_rounding(std::string_view name, GradientKind kind, DType dtype, const CastProbe& probe,
                   int exponent) override {
    add(name, kind, dtype, probe, exponent, true);
  }

  /// Were there any gradients?
  bool seen() const { return used_ > 0; }
  /// Completes the counts of the iteration, once; those below need it.
  void settle(Backend& backend);
  /// Hands every tensor's sums to `observer`, in the order of their first appearance in the backward pass;
  /// `loss_scale` is S, to which a tensor's own exponent comes. Uses with several exponents are brought to
  /// the largest (HistogramRow).
  void report(TrainObserver& observer, std::uint64_t step, double loss_scale) const;
  /// What a loss-scale policy learns of the iteration: sums over tensors of 16 bits, or over all where there
  /// is none. Intermediate roundings are not among them.
  amp::GradientStatistics statistics() const;
  /// What the casts of the iteration did, over all of them: intermediate ones too. Nothing where there was
  /// none (level O0).
  std::optional<CastCounts> cast_counts() const;

 private:
  struct Entry {
    std::string name;
    GradientKind kind = GradientKind::weight;
    DType dtype = DType::f32;
    int exponent = 0;
    bool intermediate = false;  ///< as in HistogramRow
    CastProbe probe;
  };
  void add(std::string_view name, GradientKind kind, DType dtype, const CastProbe& probe, int exponent,
           bool intermediate);
  /// What a probe counted, for the entry that it belongs to.
  struct Unsettled {
    CastProbe probe;
    std::size_t entry = 0;
  };
  std::vector<Entry> entries_;
  std::size_t used_ = 0;  ///< entries of this iteration; the rest keeps its memory
  std::vector<Unsettled> unsettled_;
  std::vector<CastProbe*> probes_;  ///< of unsettled_; kept for its capacity
};

}  // namespace fp16lab::engine
