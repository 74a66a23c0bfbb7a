#include "engine/autograd/counting.hpp"

#include <algorithm>
#include <utility>

#include "engine/autograd/dispatch.hpp"

namespace fp16lab::engine {

namespace {

constexpr GradientKind kind_of(SlotLabel label) {
  return label == SlotLabel::weight || label == SlotLabel::bias ? GradientKind::weight
                                                                : GradientKind::activation;
}

}  // namespace

void Counting::begin(Tap& listener, ObservedSet observed) {
  end();
  listener_ = &listener;
  gradients_ = observed.contains(Observed::gradients);
  forward_ = observed.contains(Observed::activations) || observed.contains(Observed::weights);
  if (forward_) tape_->set_probe(&forward_probe_);
}

void Counting::end() {
  if (forward_) tape_->set_probe(nullptr);
  gradients_ = forward_ = false;
  forget_casts();
}

void Counting::see(const Event& event) {
  if (const auto* recorded = event.as<Recorded>()) return see(*recorded);
  if (const auto* begins = event.as<VjpBegins>()) return see(*begins);
  if (const auto* gave = event.as<VjpGave>()) return see(*gave);
  if (const auto* begins = event.as<PassBegins>()) return begin_pass(*begins);
  if (const auto* ends = event.as<PassEnds>()) return end_pass(*ends);
  if (const auto* constant = event.as<RoundedConstant>()) {
    if (forward_ && depth_ == 0) keep_cast(constant->value);
  } else if (const auto* dropped = event.as<ValueDropped>()) {
    if (forward_) forward_casts_.erase(dropped->value.data());
  } else if (event.as<TapeReset>() != nullptr) {
    forget_casts();
  } else if (const auto* inner = event.as<InnerGradient>()) {
    see(*inner);
  } else if (const auto* scaled = event.as<GradientScaled>()) {
    see(*scaled);
  } else if (const auto* narrowed = event.as<GradientNarrowed>()) {
    if (counts_vjps()) tell_rounding(narrowed->node, narrowed->dtype, narrowed->probe, narrowed->exponent);
  }
}

std::string_view Counting::name_in(std::uint32_t scope, std::string_view name) {
  name_ = tape_->scope_path(scope);
  if (!name_.empty()) name_ += '.';
  return name_ += name;
}

// ---- forward ----

void Counting::keep_cast(const Tensor& value) {
  forward_casts_.insert_or_assign(value.data(), std::exchange(forward_probe_, {}));
}

void Counting::forget_casts() {
  forward_casts_.clear();
  forward_probe_ = {};
}

CastProbe Counting::counts_of(const Tensor& operand) {
  const auto known = forward_casts_.find(operand.data());
  if (known != forward_casts_.end() && operand.dtype() != DType::f32) return known->second;
  CastProbe probe;
  tape_->backend().histogram(operand, probe);
  return probe;
}

void Counting::see(const Recorded& recorded) {
  if (!forward_ || depth_ > 0) return;
  const auto tell = [&](Observed observed, std::string_view name, DType dtype, const CastProbe& probe) {
    listener_->see(Event(CountedTensor{.observed = observed,
                                       .name = name,
                                       .kind = GradientKind::activation,
                                       .dtype = dtype,
                                       .probe = probe}));
  };
  const auto wanted = [&](std::string_view part) {
    return listener_->wants({.what = What::activations, .name = name_in(tape_->scope(), part)});
  };
  const Tensor value = tape_->value_of(recorded.result);
  const bool rounded = forward_probe_.counted > 0;
  const bool passes_on = recorded.op == Op::cast || recorded.op == Op::identity;
  bool gives = false;  // is it the result of a layer with a weight?
  for (const Slot& slot : recorded.operands) {
    gives = gives || (slot.label == SlotLabel::weight && !passes_on);
    if (slot.label != SlotLabel::input && slot.label != SlotLabel::prediction) continue;
    const Tensor operand = tape_->value_of(slot.input);
    if (operand.defined() && wanted(name_of(slot.label)))
      tell(Observed::activations, name_, operand.dtype(), counts_of(operand));
  }
  if (recorded.op == Op::cast && rounded) {
    if (const Parameter* const parameter = tape_->parameter_of(recorded.operands.front().input))
      tell(Observed::weights, parameter->name, value.dtype(), forward_probe_);
    else
      return keep_cast(value);
  } else if (gives && wanted("output")) {
    const bool counted_elsewhere = tape_->shares_values() && tape_->context().shards.first > 0;
    if (counted_elsewhere)
      forward_probe_ = {};
    else if (!rounded)
      tape_->backend().histogram(value, forward_probe_);
    tell(Observed::activations, name_, value.dtype(), forward_probe_);
  }
  forward_probe_ = {};
}

// ---- backward ----

void Counting::begin_pass(const PassBegins& begins) {
  if (passes_.size() == depth_) passes_.push_back(std::make_unique<Pass>());
  Pass& pass = *passes_[depth_++];
  pass.outer = tape_->probe();
  pass.counted = begins.counted;
  pass.watched.clear();
  pass.shown_operand = 0;
  if (!forward_ || depth_ > 1) return;
  forget_casts();  // their memory may be given back
  tape_->set_probe(nullptr);
}

void Counting::end_pass(const PassEnds&) {
  tape_->set_probe(pass().outer);
  --depth_;
}

void Counting::see(const VjpBegins& begins) {
  if (!counts_vjps()) return;
  Pass& now = pass();
  const BackwardSite& site = begins.site;
  if (site.operand.has_value() && now.shown_operand != site.node + 1) {  // once for all of its slots
    now.shown_operand = site.node + 1;
    CastProbe probe;
    tape_->backend().histogram(begins.cotangent.tensor(), *site.operand, probe);
    const bool layer = site.label != SlotLabel::none;
    listener_->see(Event(CountedTensor{.observed = Observed::gradients,
                                       .name = name_in(site.scope, layer ? "output" : "matmul"),
                                       .kind = GradientKind::activation,
                                       .dtype = *site.operand,
                                       .probe = probe,
                                       .exponent = site.exponent,
                                       .intermediate = true}));
  }
  now.probe = {};
  now.outside_vjp = tape_->probe();
  tape_->set_probe(&now.probe);
}

void Counting::see(const VjpGave& gave) {
  if (!counts_vjps()) return;
  Pass& now = pass();
  tape_->set_probe(now.outside_vjp);
  if (!gave.result.defined()) return;
  const BackwardSite& site = gave.site;
  if (site.label == SlotLabel::none) return keep_rounding(gave, now.probe);
  CastProbe probe = now.probe;
  if (probe.counted == 0) probe = taken_rounding(site.node);
  if (probe.counted == 0)  // nothing was narrowed on the way: count the values themselves
    tape_->backend().histogram(gave.result.tensor(), probe);
  listener_->see(Event(CountedTensor{.observed = Observed::gradients,
                                     .name = name_in(site.scope, name_of(site.label)),
                                     .kind = kind_of(site.label),
                                     .dtype = gave.result.dtype(),
                                     .probe = probe,
                                     .exponent = site.exponent}));
  keep_rounding(gave, {});
}

void Counting::see(const InnerGradient& inner) {
  if (!counts_vjps()) return;
  listener_->see(Event(CountedTensor{.observed = Observed::gradients,
                                     .name = name_in(inner.scope, name_of(inner.label)),
                                     .kind = kind_of(inner.label),
                                     .dtype = inner.dtype,
                                     .probe = inner.probe,
                                     .exponent = tape_->backward_site()->exponent}));
}

void Counting::see(const GradientScaled& scaled) {
  if (!counts_vjps() || scaled.before.dtype() == DType::f32) return;
  Backend& backend = tape_->backend();
  CastProbe probe;
  Tensor narrowed = backend.empty(scaled.before.shape(), scaled.before.dtype());
  backend.cast(times_power_of_two(backend, wide_copy(backend, scaled.before), scaled.change), narrowed,
               &probe);
  tell_rounding(scaled.node, scaled.before.dtype(), probe, scaled.exponent);
}

void Counting::tell_rounding(std::uint32_t node, DType dtype, const CastProbe& probe, int exponent) {
  const Variable source = tape_->origin_of(tape_->handle(node));
  const Parameter* const parameter = tape_->parameter_of(source);
  if (parameter != nullptr) {  // not the parameter's own name: its labelled slots have that
    name_ = parameter->name;
    name_ += ".gradient";
  } else {
    name_in(tape_->scope_of(source), name_of(tape_->op_of(source)));
  }
  listener_->see(
      Event(CountedTensor{.observed = Observed::gradients,
                          .name = name_,
                          .kind = parameter != nullptr ? GradientKind::weight : GradientKind::activation,
                          .dtype = dtype,
                          .probe = probe,
                          .exponent = exponent,
                          .intermediate = true}));
}

void Counting::keep_rounding(const VjpGave& gave, const CastProbe& probe) {
  const DType dtype = gave.result.dtype();
  if (dtype == DType::f32) return;
  const std::uint32_t input = gave.site.input;
  const int exponent = gave.site.exponent;
  if (tape_->is_watch(tape_->handle(input))) {
    auto& kept = pass().watched;
    if (gave.first) {
      if (probe.counted == static_cast<std::uint64_t>(gave.result.shape().element_count())) {
        kept.push_back({input, exponent, probe});
        return;
      }
    } else if (const auto first = std::find_if(kept.begin(), kept.end(),
                                               [input](const auto& entry) { return entry.watch == input; });
               first != kept.end()) {  // the watch will show the sum as stored
      tell_rounding(input, dtype, first->probe, first->exponent);
      kept.erase(first);
    }
  }
  if (probe.counted > 0) tell_rounding(input, dtype, probe, exponent);
}

CastProbe Counting::taken_rounding(std::uint32_t watch) {
  auto& kept = pass().watched;
  const auto found =
      std::find_if(kept.begin(), kept.end(), [watch](const auto& entry) { return entry.watch == watch; });
  if (found == kept.end()) return {};
  CastProbe probe = found->probe;
  kept.erase(found);
  return probe;
}

}  // namespace fp16lab::engine
