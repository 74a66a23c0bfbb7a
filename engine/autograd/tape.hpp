// Tape: the record of a forward computation, and the driver of backward passes over it.
//
// Every operation (engine/autograd/ops.hpp) computes its value on the Backend and records one node: op,
// module scope, inputs, and one vector-Jacobian product per input. A vjp is written in terms of operations on
// Variables, so with create_graph the backward pass is itself recorded, and can be differentiated again.
//
// Bit rules (order of all additions): nodes are visited in descending order of recording, input slots in
// ascending order; the first contribution to a gradient is stored, later ones are added to it in that order.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/autograd/cast_policy.hpp"
#include "engine/autograd/errors.hpp"
#include "engine/autograd/gradient_observer.hpp"
#include "engine/autograd/op.hpp"
#include "engine/autograd/parameter.hpp"
#include "engine/autograd/variable.hpp"
#include "engine/backend/backend.hpp"

namespace fp16lab::engine {

/// Gradient of the outputs with respect to one input, from the gradient of the node's output. It may refer to
/// the node's inputs (by captured handles) and to its output; these are alive when it is called.
using Vjp = std::function<Variable(const Variable& cotangent, const Variable& output)>;

/// The name under which the gradient of an input slot is observed; none: not observed.
enum class SlotLabel : std::uint8_t { none, input, weight, bias, prediction };

struct Slot {
  Variable input;
  Vjp vjp;  ///< empty: no gradient flows into this input
  SlotLabel label = SlotLabel::none;
};

struct BackwardOptions {
  bool retain_graph = false;  ///< keep the values, so that another backward pass can follow
};

struct GradientsOptions {
  bool create_graph = false;  ///< record the backward pass; implies retain_graph
  bool retain_graph = false;
  bool allow_unused = false;  ///< an input without influence gets a gradient of zeros instead of an error
};

class Tape {
 public:
  static constexpr std::size_t max_inputs = 3;

  explicit Tape(Backend& backend) : backend_(&backend) {}
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  Backend& backend() const { return *backend_; }

  // ---- leaves
  // -------------------------------------------------------------------------------------------------------
  /// The parameter's master value as a leaf. The same leaf each time, until reset() or until its version
  /// changes.
  Variable parameter(Parameter& parameter);
  /// A leaf that requires a gradient (for Tape::gradients), and one that does not.
  Variable input(const Tensor& value);
  Variable constant(const Tensor& value);

  /// Forgets all nodes; every Variable made so far becomes stale. Memory of tensors returns to the pool.
  void reset();
  std::size_t node_count() const { return nodes_.size(); }

  // ---- backward
  // -----------------------------------------------------------------------------------------------------
  /// Adds d(output * seed)/d(parameter) to the FP32 gradient of every parameter that `output` depends on.
  /// Without a seed the output must have one element, and the seed is 1. Runs with autocast off, in the
  /// recorded dtypes. Values are released on the way (all but the output's), unless retain_graph.
  void backward(const Variable& output, BackwardOptions options = {});
  void backward(const Variable& output, const Tensor& seed, BackwardOptions options = {});

  /// d(sum of outputs * seeds)/d(input) for every input, as Variables of this tape (constants unless
  /// create_graph). `seeds` may be empty if every output has one element. Parameters' gradients are not
  /// touched.
  std::vector<Variable> gradients(std::span<const Variable> outputs, std::span<const Tensor> seeds,
                                  std::span<const Variable> inputs, GradientsOptions options = {});

  // ---- modes (see the guards below)
  // ---------------------------------------------------------------------------------
  bool grad_mode() const { return grad_mode_; }
  CastPolicy* cast_policy() const { return cast_policy_; }
  GradientObserver* observer() const { return observer_; }
  /// Not owned; null: nobody looks.
  void set_observer(GradientObserver* observer) { observer_ = observer; }
  /// Where narrowing verbs (cast, gemm, reduce) count; null outside observed vjps.
  CastProbe* probe() const { return probe_; }

  // ---- for the implementation of operations
  // -------------------------------------------------------------------------
  /// Records `value` as the result of `op`. In no-grad mode, or if no input requires a gradient, it is a
  /// constant.
  Variable record(Op op, Tensor value, std::initializer_list<Slot> slots);
  /// Throws AutogradError naming `user` if the handle is undefined, stale or of another tape.
  void check(const Variable& variable, std::string_view user) const;
  /// Can the handle still be used in a new operation (not stale, value not released)?
  bool usable(const Variable& variable) const;
  /// The parameter behind a leaf, or null.
  Parameter* parameter_of(const Variable& variable) const;

 private:
  friend class Variable;
  friend class ScopeGuard;
  friend class GradModeGuard;
  friend class CastPolicyGuard;
  friend class BackwardPass;

  struct Node {
    Op op = Op::leaf;
    bool requires_gradient = false;
    bool released = false;
    std::uint8_t input_count = 0;
    std::uint32_t scope = 0;  ///< index into scope_names_
    std::uint64_t generation = 0;
    std::array<std::uint32_t, max_inputs> inputs{};
    std::array<Vjp, max_inputs> vjps{};
    std::array<SlotLabel, max_inputs> labels{};
    Tensor value;
    Shape shape;
    DType dtype = DType::f32;
    Parameter* parameter = nullptr;
  };

  const Node& node(const Variable& variable, std::string_view user) const;
  void run_backward(const Variable& output, const Tensor* seed, BackwardOptions options);
  Variable push(Node node);
  Variable handle(std::uint32_t id);
  /// Drops the nodes from `size` on; their handles become stale.
  void truncate(std::size_t size);
  std::string describe(std::uint32_t id) const;  ///< "node 7 (linear in fc2)"

  Backend* backend_;
  std::vector<Node> nodes_;
  std::uint64_t generation_ = 1;
  bool grad_mode_ = true;
  CastPolicy* cast_policy_ = nullptr;
  GradientObserver* observer_ = nullptr;
  CastProbe* probe_ = nullptr;
  std::unordered_map<const Parameter*, std::pair<std::uint64_t, Variable>> parameter_leaves_;
  std::vector<std::string> scope_names_{""};
  std::unordered_map<std::string, std::uint32_t> scope_ids_{{"", 0}};
  std::uint32_t scope_ = 0;
};

/// Enters a module scope: nodes recorded inside belong to "outer.name".
class ScopeGuard {
 public:
  ScopeGuard(Tape& tape, std::string_view name);
  ~ScopeGuard() { tape_->scope_ = outer_; }
  ScopeGuard(const ScopeGuard&) = delete;
  ScopeGuard& operator=(const ScopeGuard&) = delete;

 private:
  Tape* tape_;
  std::uint32_t outer_;
};

/// Switches recording for backward on or off.
class GradModeGuard {
 public:
  GradModeGuard(Tape& tape, bool enabled) : tape_(&tape), outer_(tape.grad_mode_) {
    tape.grad_mode_ = enabled;
  }
  ~GradModeGuard() { tape_->grad_mode_ = outer_; }
  GradModeGuard(const GradModeGuard&) = delete;
  GradModeGuard& operator=(const GradModeGuard&) = delete;

 private:
  Tape* tape_;
  bool outer_;
};

/// Sets the cast policy; null: autocast off.
class CastPolicyGuard {
 public:
  CastPolicyGuard(Tape& tape, CastPolicy* policy) : tape_(&tape), outer_(tape.cast_policy_) {
    tape.cast_policy_ = policy;
  }
  ~CastPolicyGuard() { tape_->cast_policy_ = outer_; }
  CastPolicyGuard(const CastPolicyGuard&) = delete;
  CastPolicyGuard& operator=(const CastPolicyGuard&) = delete;

 private:
  Tape* tape_;
  CastPolicy* outer_;
};

}  // namespace fp16lab::engine
