// Tape: the record of a forward computation, and the driver of backward passes over it.
//
// Every operation (engine/autograd/ops.hpp) computes its value on the Backend and records one node: op,
// module scope, inputs, and one vector-Jacobian product per input. A vjp is written in terms of operations on
// Variables, so with create_graph the backward pass is itself recorded, and can be differentiated again.
//
// Bit rules (order of all additions): nodes are visited in descending order of recording, input slots in
// ascending order; the first contribution to a gradient is stored, later ones are added to it in that order.
//
// Memory: nodes, slots and the scratch of backward passes keep their capacity over reset(), and slots hold
// their vjps, so that a training step that records what the last one recorded calls no operator new.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/autograd/cast_policy.hpp"
#include "engine/autograd/gradient_scales.hpp"
#include "engine/autograd/op.hpp"
#include "engine/autograd/parameter.hpp"
#include "engine/autograd/tap.hpp"
#include "engine/autograd/tape_events.hpp"
#include "engine/autograd/variable.hpp"
#include "engine/autograd/vjp.hpp"
#include "engine/backend/backend.hpp"
#include "engine/parallel/shard_tree.hpp"
#include "engine/tensor/position_table.hpp"
#include "numerics/text/named_enum.hpp"

namespace fp16lab::engine {

/// The one error type of autograd: wrong use of tapes and variables, never a numerical event.
class AutogradError : public std::logic_error {
 public:
  enum class Kind {
    undefined_variable,     ///< a default-constructed Variable was used
    stale_variable,         ///< the tape was reset, or the temporary was dropped, since the Variable was made
    foreign_variable,       ///< Variables of two tapes in one operation
    graph_released,         ///< a second backward through values that the first one released
    missing_seed,           ///< backward from a non-scalar without a seed
    bad_seed,               ///< seed and output differ in shape or dtype, or their numbers differ
    no_gradient_path,       ///< the output does not depend on anything that requires a gradient
    unused_input,           ///< gradients() with an input that the outputs do not depend on
    unsafe_under_autocast,  ///< an op that gives wrong results in 16 bits; the message says which to use
    custom_op_under_autocast,  ///< a user-defined op that does not say in which dtype it computes
  };

  AutogradError(Kind kind, const std::string& message) : std::logic_error(message), kind_(kind) {}
  Kind kind() const { return kind_; }

 private:
  Kind kind_;
};

/// The name under which the gradient of an input slot is observed; none: not observed.
enum class SlotLabel : std::uint8_t { none, input, weight, bias, prediction };

constexpr std::array<std::string_view, 5> names_of(SlotLabel) {
  return {"", "input", "weight", "bias", "prediction"};
}

struct Slot {
  Variable input;
  Vjp vjp;  ///< empty: no gradient flows into this input
  SlotLabel label = SlotLabel::none;
  std::optional<DType> cotangent{};  ///< how the vjp rounds the cotangent on its way into a product
};

/// A forward pass's data from its training step: dropout draws its masks from it, BatchNorm takes the
/// statistics of the batch and updates the running ones.
struct StepContext {
  bool training = false;
  std::uint64_t seed = 0;         ///< for the streams of random masks
  std::uint32_t micro_batch = 0;  ///< within the optimizer iteration
  Tensor step = {};               ///< StepState, whose iteration is part of every mask's counter
  /// Backward passes round to 16 bits stochastically where a cast, or a verb that sums in FP32, rounds: with
  /// words of (seed, the rounding's place, iteration, micro-batch); see Tape::round_stochastically.
  bool stochastic_gradients = false;
  /// Backward passes round operands of products stochastically to codes (OperandRounding::stochastic).
  bool stochastic_operands = false;
  /// How the batch is cut (engine/autograd/by_shard.hpp).
  parallel::Shards shards = {};
  parallel::ShardTree* shard_tree = nullptr;  ///< not owned; with several shards, it adds them
  bool sync_batch_norm = false;               ///< statistics of all shards, where there are several
  Tap* final_gradients = nullptr;             ///< not owned; sees GradientFinal and NodeDone

  /// Does a backward pass need random words?
  bool draws_roundings() const { return stochastic_gradients || stochastic_operands; }
  /// Are BatchNorm's statistics those of more shards than one?
  bool synchronises() const { return sync_batch_norm && shards.total > 1; }
};

struct BackwardOptions {
  bool retain_graph = false;  ///< keep the values, so that another backward pass can follow
  /// No later pass adds to gradients that this one reaches, before they are cleared:
  /// StepContext::final_gradients gets them.
  bool last = false;
};

struct GradientsOptions {
  bool create_graph = false;  ///< record the backward pass; implies retain_graph
  bool retain_graph = false;
  bool allow_unused = false;  ///< an input without influence gets a gradient of zeros instead of an error
  bool counted = true;        ///< gradient counters see what it rounds
};

/// The taps of a tape, which see its events in this order. Not owned.
class Taps {
 public:
  Taps() = default;
  Taps(std::initializer_list<Tap*> taps) {
    for (Tap* const tap : taps) add(*tap);
  }
  /// std::length_error beyond the third.
  void add(Tap& tap) {
    if (count_ == taps_.size()) throw std::length_error("Taps: a tape has three at most");
    taps_[count_++] = &tap;
  }
  bool any() const { return count_ > 0; }
  bool want(What what) const {
    for (std::size_t i = 0; i < count_; ++i)
      if (taps_[i]->wants({.what = what})) return true;
    return false;
  }
  template <class T>
  void tell(const T& seen) const {
    for (std::size_t i = 0; i < count_; ++i) taps_[i]->see(Event(seen));
  }

 private:
  std::array<Tap*, 3> taps_{};
  std::size_t count_ = 0;
};

class Tape {
 public:
  explicit Tape(Backend& backend);
  ~Tape();
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  Backend& backend() const { return *backend_; }

  // ---- leaves ----
  /// The parameter as the network sees it: its value as a leaf, or, where dtypes.model is narrower, the cast
  /// of that leaf (computed once per version, in Parameter::model_value). The same Variable each time, until
  /// reset(), until the version changes, or until a backward pass has released the cast.
  Variable parameter(Parameter& parameter);
  /// A leaf that requires a gradient (for Tape::gradients), and one that does not.
  Variable input(const Tensor& value);
  Variable constant(const Tensor& value);

  /// Forgets all nodes; every Variable made so far becomes stale. Memory of tensors returns to the pool.
  void reset();
  std::size_t node_count() const { return nodes_.size(); }

  // ---- backward ----
  /// Adds d(output * seed)/d(parameter) to the gradient of every parameter that `output` depends on, in the
  /// dtype that ParameterDTypes::gradient says (16-bit gradients round at every addition). std::logic_error
  /// if a gradient that was not cleared has another dtype. Without a seed the output must have one element,
  /// and the seed is 1. Runs with autocast off, in the recorded dtypes. Each node's value and captures are
  /// released as soon as its gradient has been handed on (all but the output's value), unless retain_graph; a
  /// second pass through them is AutogradError::Kind::graph_released and changes nothing.
  void backward(const Variable& output, BackwardOptions options = {});
  void backward(const Variable& output, const Tensor& seed, BackwardOptions options = {});

  /// d(sum of outputs * seeds)/d(input) for every input, as Variables of this tape (constants unless
  /// create_graph). `seeds` may be empty if every output has one element. Parameters' gradients are not
  /// touched.
  std::vector<Variable> gradients(std::span<const Variable> outputs, std::span<const Tensor> seeds,
                                  std::span<const Variable> inputs, GradientsOptions options = {});

  // ---- modes (see the guards below) ----
  bool grad_mode() const { return grad_mode_; }
  CastPolicy* cast_policy() const { return cast_policy_; }
  /// The module scope that ops are recorded in now, by number, and the path of a number ("encoder.fc1"; 0 is
  /// the root, without a name). Numbers keep their meaning over reset().
  std::uint32_t scope() const { return scope_; }
  std::string_view scope_path(std::uint32_t scope) const { return scopes_[scope].path; }
  const StepContext& context() const { return context_; }
  /// Holds until the next call; reset() keeps it. Default: not training.
  void set_context(StepContext context) { context_ = std::move(context); }
  /// Steps of the rows that operations see now (engine/autograd/by_shard.hpp): 1, where an example's rows are
  /// adjacent.
  std::int64_t row_steps() const { return row_steps_; }
  /// The taps that see the tape's events from now on: one that takes What::values every value, others what
  /// they know of the rest.
  const Taps& taps() const { return taps_; }
  void set_taps(const Taps& taps) {
    taps_ = taps;
    follows_values_ = taps.want(What::values);
  }
  /// Does a tap take every value? Operations then offer the FP32 sources of their roundings.
  bool follows_values() const { return follows_values_; }
  template <class T>
  void tell(const T& seen) const {
    if (taps_.any()) taps_.tell(seen);
  }
  GradientScales* gradient_scales() const { return gradient_scales_; }
  /// Not owned; null: every gradient of a pass carries the scale of its seed. Asked by Tape::backward.
  void set_gradient_scales(GradientScales* scales) { gradient_scales_ = scales; }
  /// Where narrowing verbs (cast, gemm, reduce) count; null: they do not. What was counted since the last
  /// node belongs to the value that is recorded next.
  CastProbe* probe() const { return probe_; }
  void set_probe(CastProbe* probe) { probe_ = probe; }  ///< for Counting
  /// Are roundings to 16 bits stochastic now? Only while a vjp of a backward pass runs, with
  /// StepContext::stochastic_gradients.
  bool rounds_stochastically() const { return rounding_ != nullptr && context_.stochastic_gradients; }
  /// The stream of the next stochastic rounding of the vjp that runs: "<...>.<i>/<what>", see
  /// round_stochastically. std::logic_error outside of vjps, or if the context has no such roundings.
  PhiloxStream next_rounding(std::string_view what);
  /// Rounds `wide` (f32) into `out` (16 bits), and counts both. The stream's name is
  /// "<module path>.<op>.<n>.<slot>.<i>/gradient": rounding i of the vjp of input slot `slot` of the n-th
  /// such op in the module, all counted from 0 in the order of the forward pass, or of the vjp. An element's
  /// number in the stream is that in the whole batch: for rows that of the row, and for a stack of gradients
  /// by shard, or one of them, that in the stack of all shards.
  void round_stochastically(const Tensor& wide, Tensor& out, CastProbe* probe);
  /// How many the vjp that runs has made so far. What computes the same for several shards, one after the
  /// other, begins with the same number for each.
  std::uint32_t roundings() const { return rounding_ == nullptr ? 0 : rounding_->count; }
  void set_roundings(std::uint32_t count) {
    if (rounding_ != nullptr) rounding_->count = count;
  }

  // ---- for taps ----
  /// The gradient that is being computed; null in forward passes.
  const BackwardSite* backward_site() const { return backward_site_; }
  /// The op that a cast policy decided on last, and where: casts of its inputs and its result, and the parts
  /// of a composite, are its own.
  OpSite asked() const { return asked_; }
  Op op_of(const Variable& variable) const { return node(variable, "Tape::op_of").op; }
  std::uint32_t scope_of(const Variable& variable) const { return node(variable, "Tape::scope_of").scope; }
  /// The value, or an undefined Tensor if it was released.
  Tensor value_of(const Variable& variable) const { return node(variable, "Tape::value_of").value; }
  /// The parameter that this is, or is a cast of; null for anything else.
  const Parameter* cast_parameter_of(const Variable& variable) const;
  Variable handle(std::uint32_t node) { return {this, nodes_[node].generation, node}; }
  /// The value that it copies, by casts and watches (ops::watch); itself where it is no copy.
  Variable origin_of(Variable variable);
  bool is_watch(const Variable& variable) const;
  /// Within SharedValueGuard?
  bool shares_values() const { return shared_values_; }

  // ---- for the implementation of operations ----
  /// Records `value` as the result of `op`. In no-grad mode, or if no input requires a gradient, it is a
  /// constant.
  Variable record(Op op, Tensor value, std::initializer_list<Slot> slots) {
    return record(op, std::move(value), std::span<const Slot>(slots.begin(), slots.size()));
  }
  Variable record(Op op, Tensor value, std::span<const Slot> slots);
  /// For operations with any number of inputs: an empty list, to be filled and recorded. Its memory is
  /// reused.
  std::vector<Slot> take_slots() { return std::move(spare_slots_); }
  Variable record(Op op, Tensor value, std::vector<Slot>&& slots);
  /// Gives up the value of an intermediate result that no vjp needs and no caller has a handle of: its memory
  /// returns to the pool. Shape and dtype stay known, and gradients flow through the node as before.
  void drop_value(const Variable& variable);
  /// The op that a cast policy is about to decide on; kept where values are followed.
  void note_asked(Op op) {
    if (follows_values_ && cast_policy_ != nullptr) asked_ = {op, scope_};
  }
  /// If values are followed: `compute` gives the FP32 source of `value` (16 bits, recorded next).
  template <class Compute>
  void offer_wide(const Tensor& value, Compute compute) {
    if (!follows_values_ || value.dtype() == DType::f32) return;
    wide_of_ = value;
    wide_value_ = std::move(compute);
  }
  /// Throws AutogradError naming `user` if the handle is undefined, stale or of another tape.
  void check(const Variable& variable, std::string_view user) const;
  /// Can the handle still be used in a new operation (not stale, value not released)?
  bool usable(const Variable& variable) const;
  /// The parameter of a leaf, or null.
  Parameter* parameter_of(const Variable& variable) const;

 private:
  friend class Variable;
  friend struct Recorded;
  friend class ScopeGuard;
  friend class GradModeGuard;
  friend class CastPolicyGuard;
  friend class BackwardPass;
  friend class OneShardGuard;
  friend class RowStepsGuard;
  friend class SharedValueGuard;

  struct Node {
    Op op = Op::leaf;
    bool requires_gradient = false;
    bool released = false;
    DType dtype = DType::f32;
    std::uint32_t scope = 0;       ///< index into scopes_
    std::uint32_t first_slot = 0;  ///< its slots are adjacent in slots_
    std::uint32_t slot_count = 0;  ///< 0 for leaves and constants
    std::uint64_t generation = 0;
    /// The steps of time-major rows; 1 for others, and for what is computed from parameters alone.
    std::int32_t row_steps = 1;
    bool of_parameters = false;  ///< computed of parameters alone: the same for all examples
    Shape shape;                 ///< known after the value is gone
    Tensor value;
    Parameter* parameter = nullptr;
  };
  struct InputSlot {
    std::uint32_t input = 0;  ///< node id
    SlotLabel label = SlotLabel::none;
    std::optional<DType> cotangent{};
    Vjp vjp;
  };
  struct ParameterLeaf {
    const Parameter* parameter = nullptr;
    std::uint64_t version = 0;
    Variable leaf;
    Variable view;  ///< the leaf, or its cast to dtypes.model
  };
  /// The cast of a leaf to the dtype that the model sees, from Parameter::model_value.
  Variable model_view(Parameter& parameter, const Variable& leaf);
  struct Scope {
    std::string path;             ///< "encoder.fc1"
    std::size_t name_offset = 0;  ///< where its own name begins in `path`
    std::uint32_t outer = 0;      ///< the enclosing scope
  };
  struct BackwardScratch;
  /// The site at which gradients are rounded stochastically now.
  struct GradientRounding {
    std::string& name;  ///< for streams; grows and shrinks after `place`
    std::size_t place;  ///< length of the part that names the vjp
    std::uint32_t count = 0;
    std::int64_t rows = 0, steps = 1;  ///< for the value whose gradient it is, if its rows are time-major
  };

  const Node& node(const Variable& variable, std::string_view user) const;
  void run_backward(const Variable& output, const Tensor* seed, BackwardOptions options);
  Variable push(Node&& node);
  std::span<const InputSlot> slots_of(const Node& node) const {
    return std::span(slots_).subspan(node.first_slot, node.slot_count);
  }
  /// The scope `name` inside the present one.
  std::uint32_t inner_scope(std::string_view name);
  /// Drops the nodes from `size` on; their handles become stale.
  void truncate(std::size_t size);
  std::string describe(std::uint32_t id) const;  ///< "node 7 (linear in fc2)"

  Backend* backend_;
  std::vector<Node> nodes_;
  std::vector<InputSlot> slots_;   ///< in order of recording
  std::vector<Slot> spare_slots_;  ///< empty: the memory of the list that was recorded last
  std::uint64_t generation_ = 1;
  bool grad_mode_ = true;
  CastPolicy* cast_policy_ = nullptr;
  StepContext context_;
  std::int64_t row_steps_ = 1;
  bool shared_values_ = false;  ///< SharedValueGuard
  Taps taps_;
  bool follows_values_ = false;
  GradientScales* gradient_scales_ = nullptr;
  CastProbe* probe_ = nullptr;
  GradientRounding* rounding_ = nullptr;
  const BackwardSite* backward_site_ = nullptr;
  OpSite asked_;
  Tensor wide_of_;
  std::function<Tensor()> wide_value_;
  std::vector<ParameterLeaf> parameter_leaves_;  ///< in this generation
  PositionTable leaf_of_;                        ///< in parameter_leaves_, by the parameter's address
  std::vector<Scope> scopes_{1};                 ///< [0] is the root, without a name
  PositionTable inner_scopes_;                   ///< in scopes_, by the outer scope and the own name
  std::uint32_t scope_ = 0;
  std::vector<std::unique_ptr<BackwardScratch>> scratch_;  ///< one for each depth of nested passes
  std::size_t backward_depth_ = 0;
};

/// Gives a part of a tape's state another value while it lives.
template <class T>
class StateGuard {
 public:
  StateGuard(const StateGuard&) = delete;
  StateGuard& operator=(const StateGuard&) = delete;

 protected:
  StateGuard(T& state, const T& inside) : state_(&state), outer_(std::exchange(state, inside)) {}
  ~StateGuard() { *state_ = outer_; }

 private:
  T* state_;
  T outer_;
};

/// Enters a module scope: nodes recorded inside belong to "outer.name".
class ScopeGuard : StateGuard<std::uint32_t> {
 public:
  ScopeGuard(Tape& tape, std::string_view name) : StateGuard(tape.scope_, tape.inner_scope(name)) {}
};

/// Switches recording for backward on or off.
class GradModeGuard : StateGuard<bool> {
 public:
  GradModeGuard(Tape& tape, bool enabled) : StateGuard(tape.grad_mode_, enabled) {}
};

/// Sets the cast policy; null: autocast off.
class CastPolicyGuard : StateGuard<CastPolicy*> {
 public:
  CastPolicyGuard(Tape& tape, CastPolicy* policy) : StateGuard(tape.cast_policy_, policy) {}
};

}  // namespace fp16lab::engine
