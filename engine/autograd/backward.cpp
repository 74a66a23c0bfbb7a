// The driver of backward passes.
#include <algorithm>
#include <stdexcept>
#include <utility>

#include "engine/autograd/ops.hpp"
#include "engine/autograd/tape.hpp"

namespace fp16lab::engine {

namespace {

using Kind = AutogradError::Kind;

constexpr GradientKind kind_of(SlotLabel label) {
  return label == SlotLabel::weight || label == SlotLabel::bias ? GradientKind::weight
                                                                : GradientKind::activation;
}

}  // namespace

/// What a pass knows of the nodes, by id. Kept between passes for its memory only.
struct Tape::BackwardScratch {
  struct Entry {
    Tensor cotangent;             ///< when the pass is not recorded
    Variable recorded_cotangent;  ///< when it is
    bool wanted = false;          ///< a target of the pass
    bool is_output = false;
    bool on_path = false;  ///< a wanted node can be reached from here
    bool reached = false;  ///< by a cotangent, as far as the recorded slots tell
    bool has_cotangent() const { return cotangent.defined() || recorded_cotangent.defined(); }
  };
  struct WatchedRounding {
    std::uint32_t watch;
    CastProbe probe;
  };
  std::vector<Entry> entries;
  std::vector<WatchedRounding> watched;  ///< of watches whose gradient is not complete yet
  std::string observed_name;
};

// Here, where BackwardScratch is complete.
Tape::Tape(Backend& backend) : backend_(&backend) {}
Tape::~Tape() = default;

/// One pass over a tape. Cotangents are Tensors when the pass is not recorded (temporaries of each node are
/// dropped at once), and Variables of the tape when it is.
class BackwardPass {
 public:
  enum class Mode {
    into_parameters,  ///< gradients are added to the parameters as soon as they are complete
    kept,             ///< gradients of the targets are kept for the caller
    recorded,         ///< and are differentiable themselves
  };

  BackwardPass(Tape& tape, std::string_view call, Mode mode, bool retain_graph)
      : tape_(tape),
        scratch_(next_scratch(tape)),
        entries_(scratch_.entries),
        call_(call),
        mode_(mode),
        create_graph_(mode == Mode::recorded),
        retain_graph_(retain_graph || create_graph_),
        grad_mode_(tape, create_graph_),
        autocast_off_(tape, nullptr) {
    entries_.resize(tape.nodes_.size());
  }
  ~BackwardPass() {
    entries_.clear();
    scratch_.watched.clear();
    --tape_.backward_depth_;
  }
  BackwardPass(const BackwardPass&) = delete;
  BackwardPass& operator=(const BackwardPass&) = delete;

  void add_output(const Variable& output, const Tensor* seed) {
    const Tape::Node& node = tape_.node(output, call_);
    Tensor value;
    if (seed == nullptr) {
      if (node.shape.element_count() != 1) {
        throw AutogradError(Kind::missing_seed, std::string(call_) + ": the output " +
                                                    tape_.describe(output.id()) + " has shape " +
                                                    node.shape.to_string() +
                                                    "; only a scalar may go without a seed");
      }
      value = tape_.backend().empty(node.shape, node.dtype);
      tape_.backend().fill(value, 1.0);
    } else {
      if (!seed->defined() || seed->dtype() != node.dtype ||
          !(seed->shape() == node.shape || (seed->element_count() == 1 && node.shape.element_count() == 1))) {
        throw AutogradError(Kind::bad_seed, std::string(call_) + ": the seed is " + seed->describe() +
                                                ", but the output " + tape_.describe(output.id()) + " is " +
                                                std::string(name_of(node.dtype)) + " " +
                                                node.shape.to_string());
      }
      value = seed->reshaped(node.shape);
    }
    entries_[output.id()].is_output = true;
    start_ = std::max(start_, output.id() + 1);
    if (create_graph_) {
      accumulate(output.id(), tape_.constant(value));
    } else {
      accumulate(output.id(), value);
    }
  }

  /// Gradients are computed for, and where the mode says so kept at, these nodes.
  void add_target(std::uint32_t id) {
    entries_[id].wanted = true;
    first_ = std::min(first_, id);
  }
  bool has_target() const { return first_ < entries_.size(); }

  void run() {
    find_paths();
    check_released();
    for (std::uint32_t id = start_; id-- > first_;) {
      if (entries_[id].on_path && entries_[id].has_cotangent()) propagate(id);
    }
  }

  bool has_gradient(std::uint32_t id) const { return entries_[id].has_cotangent(); }
  Variable gradient(std::uint32_t id) {
    return create_graph_ ? entries_[id].recorded_cotangent : tape_.constant(entries_[id].cotangent);
  }

 private:
  using Entry = Tape::BackwardScratch::Entry;

  static Tape::BackwardScratch& next_scratch(Tape& tape) {
    if (tape.scratch_.size() == tape.backward_depth_)
      tape.scratch_.push_back(std::make_unique<Tape::BackwardScratch>());
    return *tape.scratch_[tape.backward_depth_++];
  }

  void find_paths() {
    for (std::uint32_t id = first_; id < start_; ++id) {
      bool reaches = entries_[id].wanted;
      for (const auto& slot : tape_.slots_of(tape_.nodes_[id]))
        reaches = reaches || (slot.vjp && entries_[slot.input].on_path);
      // A released node has no vjps left: whatever it may have reached, it is on the way.
      entries_[id].on_path = reaches || (tape_.nodes_[id].released && released_reaches(id));
    }
  }
  bool released_reaches(std::uint32_t id) const {
    const auto slots = tape_.slots_of(tape_.nodes_[id]);
    return std::any_of(slots.begin(), slots.end(),
                       [this](const auto& slot) { return entries_[slot.input].on_path; });
  }

  /// Throws, before anything changes, if the pass would need a released value. Only nodes that a cotangent can
  /// reach matter: a released sub-graph beside the path is no error.
  void check_released() {
    for (std::uint32_t id = start_; id-- > first_;) {
      Entry& entry = entries_[id];
      if (!entry.on_path || !(entry.reached || entry.has_cotangent())) continue;
      const Tape::Node& node = tape_.nodes_[id];
      if (node.released) {
        throw AutogradError(
            Kind::graph_released,
            std::string(call_) + ": the values of " + tape_.describe(id) +
                " were released by an earlier backward pass; pass retain_graph = true to that one");
      }
      for (const auto& slot : tape_.slots_of(node)) {
        if (slot.vjp) entries_[slot.input].reached = true;
      }
    }
  }

  void propagate(std::uint32_t id) {
    const std::size_t mark = tape_.nodes_.size();
    const std::uint32_t slot_count = tape_.nodes_[id].slot_count;
    if (slot_count > 0) {
      const Variable output = tape_.handle(id);
      const Variable cotangent = gradient(id);
      for (std::uint32_t slot = 0; slot < slot_count; ++slot) hand_on(id, slot, cotangent, output);
    }
    if (!create_graph_) tape_.truncate(mark);
    if (mode_ == Mode::into_parameters && entries_[id].wanted) add_to_parameter(id);
    if (mode_ == Mode::into_parameters || !entries_[id].wanted) {
      entries_[id].cotangent = {};
      entries_[id].recorded_cotangent = {};
    }
    if (!retain_graph_) release(id);
  }

  void hand_on(std::uint32_t id, std::uint32_t slot, const Variable& cotangent, const Variable& output) {
    const std::size_t position = tape_.nodes_[id].first_slot + slot;
    const std::uint32_t input = tape_.slots_[position].input;
    if (!tape_.slots_[position].vjp || !entries_[input].on_path) return;
    if (narrows_into_parameter(id, position)) {
      accumulate(input, cotangent.tensor());
      return;
    }
    // A copy: vjps record nodes, and the pool of slots may move.
    const Vjp vjp = tape_.slots_[position].vjp;
    const SlotLabel label = tape_.slots_[position].label;
    const bool watched = tape_.observer_ != nullptr && is_watch(input);
    CastProbe rounding;
    const Variable result = watched && label == SlotLabel::none
                                ? probed(rounding, [&] { return vjp(cotangent, output); })
                                : observed(id, label, [&] { return vjp(cotangent, output); });
    if (!result.defined()) return;
    check_result(id, input, result);
    if (watched) keep_rounding(input, result, rounding);
    if (create_graph_) {
      accumulate(input, result);
    } else {
      accumulate(input, result.tensor());
    }
  }

  /// Is the node the low view of an f32 master, whose gradients are kept in the view's dtype, and the first to reach it?
  /// Then its cotangent would be widened here and narrowed again in add_to_parameter, which is exact: it stays as it is,
  /// and there is no FP32 copy of the gradient.
  bool narrows_into_parameter(std::uint32_t id, std::size_t slot) const {
    const Tape::InputSlot& way = tape_.slots_[slot];
    const Tape::Node& leaf = tape_.nodes_[way.input];
    return mode_ == Mode::into_parameters && way.label == SlotLabel::none &&
           tape_.nodes_[id].op == Op::cast && leaf.parameter != nullptr && leaf.dtype == DType::f32 &&
           leaf.parameter->dtypes.gradient == tape_.nodes_[id].dtype && !entries_[way.input].has_cotangent();
  }

  void accumulate(std::uint32_t id, const Variable& contribution) {
    Variable& sum = entries_[id].recorded_cotangent;
    sum = sum.defined() ? ops::add(sum, contribution) : contribution;
  }
  void accumulate(std::uint32_t id, const Tensor& contribution) {
    Tensor& cotangent = entries_[id].cotangent;
    if (!cotangent.defined()) {
      cotangent = contribution;
      return;
    }
    cotangent = converted(std::move(cotangent), contribution.dtype());  // see narrows_into_parameter
    // Vjps may hand the same memory to several inputs, or give back what they were given.
    if (cotangent.owns_memory_alone()) {
      tape_.backend().binary(BinaryOp::add, cotangent, contribution, cotangent);
      return;
    }
    Tensor sum = tape_.backend().empty(contribution.shape(), contribution.dtype());
    tape_.backend().binary(BinaryOp::add, cotangent, contribution, sum);
    cotangent = std::move(sum);
  }

  /// All contributions are in: they come from nodes with greater ids.
  void add_to_parameter(std::uint32_t id) {
    Backend& backend = tape_.backend();
    Parameter& parameter = *tape_.nodes_[id].parameter;
    const DType dtype = parameter.dtypes.gradient;
    // Narrowing is exact where the model's view has this dtype: the value was widened on the way to an FP32 master.
    const Tensor contribution = converted(std::exchange(entries_[id].cotangent, {}), dtype);
    const bool fits = parameter.gradient.defined() && parameter.gradient.dtype() == dtype;
    if (parameter.has_gradient && !fits) {
      throw std::logic_error("Tape::backward: the gradient of " + parameter.name + " is " +
                             parameter.gradient.describe() + ", but it is to be " +
                             std::string(name_of(dtype)) + "; clear it first");
    }
    if (parameter.has_gradient) {
      backend.binary(BinaryOp::add, parameter.gradient, contribution, parameter.gradient);
    } else if (contribution.owns_memory_alone()) {
      parameter.gradient = contribution.reshaped(parameter.value.shape());
    } else {  // cotangents may share memory with each other, the buffer is the parameter's own
      if (!fits) parameter.gradient = backend.empty(parameter.value.shape(), dtype);
      backend.copy(contribution, parameter.gradient);
    }
    parameter.has_gradient = true;
  }
  Tensor converted(Tensor x, DType dtype) const {
    if (x.dtype() == dtype) return x;
    Tensor out = tape_.backend().empty(x.shape(), dtype);
    tape_.backend().cast(x, out);
    return out;
  }

  void release(std::uint32_t id) {
    Tape::Node& node = tape_.nodes_[id];
    if (node.op == Op::leaf) return;
    for (std::uint32_t slot = 0; slot < node.slot_count; ++slot)
      tape_.slots_[node.first_slot + slot].vjp = {};
    node.released = true;
    if (!entries_[id].is_output) node.value = {};
  }

  // ---- watches (ops::watch): the vjp of a watch rounds nothing. Where one operation gave its whole gradient, that
  // operation's rounding is shown; a sum of several is shown as stored.
  bool is_watch(std::uint32_t id) const {
    const Tape::Node& node = tape_.nodes_[id];
    return node.op == Op::identity && node.slot_count == 1 &&
           tape_.slots_[node.first_slot].label != SlotLabel::none;
  }
  /// `gradient` is about to be accumulated; `probe` is what its computation narrowed. That is its own rounding if the
  /// numbers agree: a vjp may also narrow on the way (a sum along an axis, say).
  void keep_rounding(std::uint32_t watch, const Variable& gradient, const CastProbe& probe) {
    if (entries_[watch].has_cotangent()) {
      taken_rounding(watch);
    } else if (gradient.dtype() != DType::f32 &&
               probe.counted == static_cast<std::uint64_t>(gradient.shape().element_count())) {
      scratch_.watched.push_back({watch, probe});
    }
  }
  CastProbe taken_rounding(std::uint32_t watch) {
    auto& kept = scratch_.watched;
    const auto found =
        std::find_if(kept.begin(), kept.end(), [watch](const auto& entry) { return entry.watch == watch; });
    if (found == kept.end()) return {};
    const CastProbe probe = found->probe;
    kept.erase(found);
    return probe;
  }

  /// With `probe` as the tape's.
  template <class Compute>
  Variable probed(CastProbe& probe, const Compute& compute) {
    struct Restore {
      Tape& tape;
      CastProbe* outer;
      ~Restore() { tape.probe_ = outer; }
    } const restore{tape_, tape_.probe_};
    tape_.probe_ = &probe;
    return compute();
  }

  template <class Compute>
  Variable observed(std::uint32_t id, SlotLabel label, const Compute& compute) {
    if (tape_.observer_ == nullptr || label == SlotLabel::none) return compute();
    CastProbe probe;
    const Variable result = probed(probe, compute);
    if (!result.defined()) return result;
    if (probe.counted == 0) probe = taken_rounding(id);
    if (probe.counted == 0)  // nothing was narrowed on the way: count the values themselves
      tape_.backend().histogram(result.tensor(), probe);
    std::string& name = scratch_.observed_name;
    name = tape_.scopes_[tape_.nodes_[id].scope].path;
    if (!name.empty()) name += '.';
    name += name_of(label);
    tape_.observer_->on_gradient(name, kind_of(label), result.dtype(), probe);
    return result;
  }

  void check_result(std::uint32_t id, std::uint32_t input, const Variable& result) const {
    const Tape::Node& node = tape_.nodes_[input];
    if (result.dtype() == node.dtype && result.shape() == node.shape) return;
    throw std::logic_error(std::string(call_) + ": the vjp of " + tape_.describe(id) + " gave " +
                           std::string(name_of(result.dtype())) + " " + result.shape().to_string() +
                           " for an input of " + std::string(name_of(node.dtype)) + " " +
                           node.shape.to_string());
  }

  Tape& tape_;
  Tape::BackwardScratch& scratch_;
  std::vector<Entry>& entries_;
  std::string_view call_;
  Mode mode_;
  bool create_graph_;
  bool retain_graph_;
  GradModeGuard grad_mode_;
  CastPolicyGuard autocast_off_;
  std::uint32_t start_ = 0;           ///< one above the highest output
  std::uint32_t first_ = UINT32_MAX;  ///< the lowest target
};

void Tape::backward(const Variable& output, BackwardOptions options) {
  run_backward(output, nullptr, options);
}

void Tape::backward(const Variable& output, const Tensor& seed, BackwardOptions options) {
  run_backward(output, &seed, options);
}

void Tape::run_backward(const Variable& output, const Tensor* seed, BackwardOptions options) {
  BackwardPass pass(*this, "Tape::backward", BackwardPass::Mode::into_parameters, options.retain_graph);
  pass.add_output(output, seed);
  for (std::uint32_t id = 0; id <= output.id(); ++id) {
    if (nodes_[id].parameter != nullptr) pass.add_target(id);
  }
  if (!node(output, "Tape::backward").requires_gradient || !pass.has_target()) {
    throw AutogradError(Kind::no_gradient_path, "Tape::backward: the output " + describe(output.id()) +
                                                    " does not depend on any parameter");
  }
  pass.run();
}

std::vector<Variable> Tape::gradients(std::span<const Variable> outputs, std::span<const Tensor> seeds,
                                      std::span<const Variable> inputs, GradientsOptions options) {
  if (!seeds.empty() && seeds.size() != outputs.size()) {
    throw AutogradError(Kind::bad_seed, "Tape::gradients: " + std::to_string(seeds.size()) + " seeds for " +
                                            std::to_string(outputs.size()) + " outputs");
  }
  std::vector<Variable> results(inputs.size());
  BackwardPass pass(*this, "Tape::gradients",
                    options.create_graph ? BackwardPass::Mode::recorded : BackwardPass::Mode::kept,
                    options.retain_graph);
  for (const Variable& input : inputs) {
    check(input, "Tape::gradients");
    pass.add_target(input.id());
  }
  for (std::size_t i = 0; i < outputs.size(); ++i)
    pass.add_output(outputs[i], seeds.empty() ? nullptr : &seeds[i]);
  pass.run();
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (pass.has_gradient(inputs[i].id())) {
      results[i] = pass.gradient(inputs[i].id());
    } else if (options.allow_unused) {
      Tensor zeros = backend_->empty(inputs[i].shape(), inputs[i].dtype());
      backend_->fill(zeros, 0.0);
      results[i] = constant(zeros);
    } else {
      throw AutogradError(Kind::unused_input, "Tape::gradients: the outputs do not depend on input " +
                                                  std::to_string(i) + ", " + describe(inputs[i].id()) +
                                                  "; allow_unused = true gives it zeros");
    }
  }
  return results;
}

}  // namespace fp16lab::engine
