// TensorLog: what was counted of the tensors of one iteration, summed over its micro-batches.
//
// An observed tensor has a kind (Observed), a name, a dtype, and the counts before and after rounding. A tape
// shows gradients and forward values; the iteration counts weights, updates and optimizer state
// (engine/train/iteration.cpp).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/amp/observation.hpp"
#include "engine/autograd/tap.hpp"
#include "engine/autograd/tape_events.hpp"
#include "engine/tensor/position_table.hpp"
#include "engine/train/observer.hpp"
#include "numerics/histogram/cast_counts.hpp"

namespace fp16lab::engine {

class Sharding;  // engine/train/sharding.hpp

class TensorLog final : public Tap {
 public:
  /// Forgets what was counted. `wanted`: for the iteration to come, `step`; `tap` says which names.
  void begin(std::uint64_t step, ObservedSet wanted, Tap& tap);
  /// What a recording of another step counts, in this one.
  void take(const TensorLog& recorded, std::uint64_t step) {
    *this = recorded;
    step_ = step;
  }
  /// The backward passes are done again (engine/train/rescue.hpp).
  void forget_gradients();
  /// The optimizer of this slot has skipped its step: it changed nothing.
  void forget_updates(int optimizer);
  /// What the iteration is to count. Gradients may also be counted for policies.
  ObservedSet wanted() const { return wanted_; }
  bool wants(Observed observed, std::string_view name) const;

  // ---- the interface to Counting
  bool wants(const Site& site) override { return wants(static_cast<Observed>(site.what), site.name); }
  /// CountedTensor. Gradients with other exponents are counted apart, until they are reported; with other
  /// dtypes, for good. Several casts of a weight to one dtype count once: they are of the same values.
  void see(const Event& event) override;

  // ---- what the iteration counts itself
  /// Was the parameter cast in this iteration?
  bool has_weight(std::string_view name) const;
  void on_weight(const Parameter& parameter, const CastProbe& probe);
  void on_optimizer_state(std::string_view name, DType dtype, const CastProbe& probe);
  /// Takes the update of a weight that is stored in `dtype`.
  void on_update(std::string_view name, DType dtype, int optimizer, const UpdateProbes& probes);

  /// Were there any gradients?
  bool seen() const;
  /// Completes the counts of the iteration, once; those below need it. With `sharding`, which may be null,
  /// values and gradients of examples are those of all ranks; all of them call it.
  void settle(Backend& backend, Sharding* sharding = nullptr);
  /// Shows the tap every wanted tensor's sums (HistogramRow), in the order of their first appearance;
  /// `loss_scale` is S, to which a gradient's own exponent comes. Uses with several exponents are brought to
  /// the largest.
  void report(double loss_scale) const;
  /// A loss-scale policy's statistics of the iteration: sums over gradients of 16 bits, or over all where
  /// there is none. Intermediate roundings are not among them.
  amp::GradientStatistics statistics() const;
  /// What the casts of gradients did, over all of them: intermediate ones too. Nothing where there was none
  /// (level O0).
  std::optional<CastCounts> cast_counts() const;

 private:
  /// The parts of an update's counts; everything else has values only.
  enum class Part : std::uint8_t { values, change, quiet };
  struct Which {
    Observed observed = Observed::gradients;
    Part part = Part::values;
    GradientKind kind = GradientKind::weight;
    DType dtype = DType::f32;
    int exponent = 0;
    bool intermediate = false;  ///< as in HistogramRow
    int optimizer = -1;         ///< an update's
    bool operator==(const Which&) const = default;
  };
  struct Entry {
    Which which;
    std::string name;
    CastProbe sum;
    bool of_all_ranks = false;  ///< settled over them
  };
  void add(const Which& which, std::string_view name, const CastProbe& probe);
  std::span<const Entry> entries() const { return std::span(entries_).first(used_); }
  const Entry* find(const Which& which, std::string_view name) const;
  /// Under which `places_` has it.
  static std::uint64_t key_of(Observed observed, std::string_view name);
  /// For each entry the next use of the same gradient; `nowhere`: there is none, or it is no gradient.
  std::vector<std::size_t> uses_of_gradients() const;
  /// `next`: from uses_of_gradients.
  void report_gradient(HistogramRow& row, std::span<const std::size_t> next, std::size_t first,
                       double loss_scale) const;
  template <class Predicate>
  void forget(const Predicate& forgotten);
  /// What a probe counted, for the entry that it belongs to.
  struct Unsettled {
    CastProbe probe;
    std::size_t entry = 0;
  };
  ObservedSet wanted_;
  Tap* tap_ = nullptr;
  std::uint64_t step_ = 0;
  std::vector<Entry> entries_;
  std::size_t used_ = 0;  ///< entries of this iteration; the rest keeps its memory
  PositionTable places_;  ///< their places
  std::vector<Unsettled> unsettled_;
  std::vector<CastProbe*> probes_;  ///< unsettled_'s; kept for its capacity
};

}  // namespace fp16lab::engine
