// BackwardPass: one backward pass over a tape. Internal to engine/autograd: the driver of Tape::backward and
// Tape::gradients.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/autograd/tape.hpp"

namespace fp16lab::engine {

/// A pass's facts about the nodes, by id. Kept between passes for its memory only.
struct Tape::BackwardScratch {
  struct Entry {
    Tensor cotangent;             ///< when the pass is not recorded
    Variable recorded_cotangent;  ///< when it is
    bool wanted = false;          ///< a target of the pass
    bool is_output = false;
    bool on_path = false;          ///< a wanted node can be reached from here
    bool reached = false;          ///< by a cotangent, as far as the recorded slots show
    std::uint32_t occurrence = 0;  ///< nodes of this op before it in its scope; counted where a name needs it
    int exponent = 0;              ///< the cotangent carries 2^exponent (engine/autograd/gradient_scales.hpp)
    bool has_cotangent() const { return cotangent.defined() || recorded_cotangent.defined(); }
  };
  std::vector<Entry> entries;
  std::string rounding_name;
  std::vector<std::uint32_t> op_counts;  ///< by scope and op
};

/// One pass over a tape. Cotangents are Tensors when the pass is not recorded (temporaries of each node are
/// dropped at once), and Variables of the tape when it is.
class BackwardPass {
 public:
  enum class Mode {
    into_parameters,  ///< gradients are added to the parameters as soon as they are complete
    kept,             ///< gradients of the targets are kept for the caller
    recorded,         ///< and are differentiable themselves
  };

  BackwardPass(Tape& tape, std::string_view call, Mode mode, bool retain_graph, bool counted = true)
      : tape_(tape),
        scratch_(next_scratch(tape)),
        entries_(scratch_.entries),
        call_(call),
        mode_(mode),
        scales_(mode == Mode::into_parameters ? tape.gradient_scales_ : nullptr),
        create_graph_(mode == Mode::recorded),
        retain_graph_(retain_graph || create_graph_),
        grad_mode_(tape, create_graph_),
        autocast_off_(tape, nullptr) {
    entries_.resize(tape.nodes_.size());
    tape.tell(PassBegins{tape, counted});
  }
  ~BackwardPass() {
    tape_.tell(PassEnds{tape_});
    entries_.clear();
    --tape_.backward_depth_;
  }
  BackwardPass(const BackwardPass&) = delete;
  BackwardPass& operator=(const BackwardPass&) = delete;

  /// Sets the listener for gradients that are final; null: none.
  void tell_final(Tap* listener) { final_gradients_ = listener; }
  void add_output(const Variable& output, const Tensor* seed);

  /// Gradients are computed for, and where the mode says so kept at, these nodes.
  void add_target(std::uint32_t id) {
    entries_[id].wanted = true;
    first_ = std::min(first_, id);
  }
  bool has_target() const { return first_ < entries_.size(); }

  void run() {
    find_paths();
    check_released();
    if (tape_.context_.draws_roundings()) count_occurrences();
    for (std::uint32_t id = start_; id-- > first_;) {
      if (!entries_[id].on_path || !entries_[id].has_cotangent()) continue;
      propagate(id);
      if (final_gradients_ != nullptr) final_gradients_->see(Event(NodeDone{}));
    }
  }

  bool has_gradient(std::uint32_t id) const { return entries_[id].has_cotangent(); }
  Variable gradient(std::uint32_t id) {
    if (create_graph_) return entries_[id].recorded_cotangent;
    const Variable cotangent = tape_.constant(entries_[id].cotangent);
    tape_.tell(CotangentNamed{cotangent, id});
    return cotangent;
  }

 private:
  using Entry = Tape::BackwardScratch::Entry;

  static Tape::BackwardScratch& next_scratch(Tape& tape) {
    if (tape.scratch_.size() == tape.backward_depth_)
      tape.scratch_.push_back(std::make_unique<Tape::BackwardScratch>());
    return *tape.scratch_[tape.backward_depth_++];
  }

  void find_paths();
  /// Entry::occurrence of all nodes.
  void count_occurrences();
  bool released_reaches(std::uint32_t id) const;

  /// Throws, before anything changes, if the pass would need a released value. Only nodes that a cotangent
  /// can reach matter: a released sub-graph beside the path is no error.
  void check_released();

  void propagate(std::uint32_t id);

  /// The vjp of a slot of the node; for a stack, what it makes of each gradient, stacked
  /// (engine/autograd/by_shard.hpp).
  Variable applied(std::uint32_t id, const Vjp& vjp, const Variable& cotangent, const Variable& output);
  void hand_on(std::uint32_t id, std::uint32_t slot, const Variable& cotangent, const Variable& output);

  // ---- gradient scales (engine/autograd/gradient_scales.hpp)
  /// Gives the cotangent of a product its required exponent.
  void rescale(std::uint32_t id);
  /// Brings the gradient of a node and a contribution to it to one exponent.
  void meet(std::uint32_t id, Tensor& contribution, int exponent);
  /// A gradient of the node with 2^change more, which carries 2^exponent.
  Tensor scaled(std::uint32_t id, const Tensor& gradient, int change, int exponent);

  /// Tape::backward_site while it lives.
  class SiteGuard : StateGuard<const BackwardSite*> {
   public:
    SiteGuard(Tape& tape, const BackwardSite& site) : StateGuard(tape.backward_site_, &site) {}
  };

  /// Lets the tape round stochastically, if the context says so, in the vjp of an input slot of a node.
  class RoundedByChance {
   public:
    RoundedByChance(BackwardPass& pass, std::uint32_t id, std::uint32_t slot);
    /// In no vjp: the gradient of a parameter, as it is stored.
    RoundedByChance(BackwardPass& pass, const Parameter& parameter);
    ~RoundedByChance() { tape_.rounding_ = outer_; }
    RoundedByChance(const RoundedByChance&) = delete;
    RoundedByChance& operator=(const RoundedByChance&) = delete;

   private:
    Tape& tape_;
    Tape::GradientRounding* outer_;
    Tape::GradientRounding rounding_;
  };

  /// Is the node the low view of an f32 master, whose gradients are kept in the view's dtype or may stay in
  /// it, and the first to reach it? Then its cotangent would be widened here and narrowed again in
  /// add_to_parameter, or widened by the code that adds shards, which is exact: it stays unchanged, and there
  /// is no FP32 copy of the gradient.
  bool narrows_into_parameter(std::uint32_t id, std::size_t slot) const;

  void accumulate(std::uint32_t id, const Variable& contribution);
  void accumulate(std::uint32_t id, Tensor contribution, int exponent);

  /// All contributions are in: they come from nodes with greater ids.
  void add_to_parameter(std::uint32_t id);
  /// Has the parameter of this leaf another one, which the pass comes to later?
  bool has_leaf_below(std::uint32_t id) const;
  /// Will the gradient that reaches this leaf be its parameter's whole one, reported as final?
  bool is_whole_gradient(std::uint32_t id) const {
    return final_gradients_ != nullptr && !tape_.nodes_[id].parameter->has_gradient && !has_leaf_below(id);
  }
  /// Without the power of two that layers gave it: exact in FP32.
  Tensor unscaled(const Parameter& parameter, const Tensor& gradient, int exponent) const;
  Tensor converted(Tensor x, DType dtype) const {
    if (x.dtype() == dtype) return x;
    Tensor out = tape_.backend().empty(x.shape(), dtype);
    tape_.backend().cast(x, out);
    return out;
  }
  /// The same as the parameter's gradient is stored.
  Tensor stored(std::uint32_t id, Tensor x, const Parameter& parameter);

  void release(std::uint32_t id) {
    Tape::Node& node = tape_.nodes_[id];
    if (node.op == Op::leaf) return;
    for (std::uint32_t slot = 0; slot < node.slot_count; ++slot)
      tape_.slots_[node.first_slot + slot].vjp = {};
    node.released = true;
    if (!entries_[id].is_output) node.value = {};
  }

  void check_result(std::uint32_t id, std::uint32_t input, const Variable& result) const;

  Tape& tape_;
  Tape::BackwardScratch& scratch_;
  std::vector<Entry>& entries_;
  std::string_view call_;
  Mode mode_;
  GradientScales* scales_;  ///< null: all exponents stay 0
  Tap* final_gradients_ = nullptr;
  bool create_graph_;
  bool retain_graph_;
  GradModeGuard grad_mode_;
  CastPolicyGuard autocast_off_;
  std::uint32_t start_ = 0;           ///< one above the highest output
  std::uint32_t first_ = UINT32_MAX;  ///< the lowest target
};

}  // namespace fp16lab::engine
