#include "engine/train/culprit_finder.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "engine/autograd/dispatch.hpp"

namespace fp16lab::engine {

namespace {

/// Events beyond are counted as the last one: a step with so many has its culprit among the first.
constexpr std::size_t most_events = 256;
/// It distinguishes so many operations that round to zero; those beyond count as the last one.
constexpr std::size_t most_roundings = std::numeric_limits<std::uint16_t>::max();

/// Element i of the result depends on element i of each operand, after broadcasting.
bool is_elementwise(Op op) {
  switch (op) {
    case Op::cast:
    case Op::add:
    case Op::subtract:
    case Op::multiply:
    case Op::divide:
    case Op::scale:
    case Op::divide_constant:
    case Op::negate:
    case Op::maximum:
    case Op::minimum:
      return true;
    default:
      return false;
  }
}

/// Where element `index` of a tensor of shape `to` comes from in one of shape `from`, which broadcasts to it.
std::size_t broadcast_source(std::uint64_t index, const Shape& to, const Shape& from) {
  std::uint64_t source = 0, stride = 1;
  for (int axis = 1; axis <= to.rank(); ++axis) {
    const auto extent = static_cast<std::uint64_t>(to[to.rank() - axis]);
    const std::uint64_t at = index % extent;
    index /= extent;
    if (axis > from.rank()) continue;
    const auto own = static_cast<std::uint64_t>(from[from.rank() - axis]);
    if (own != 1) source += at * stride;
    stride *= own;
  }
  return static_cast<std::size_t>(source);
}

bool broadcasts(const Shape& from, const Shape& to) {
  if (from.rank() > to.rank()) return false;
  for (int axis = 1; axis <= from.rank(); ++axis) {
    const std::int64_t own = from[from.rank() - axis];
    if (own != 1 && own != to[to.rank() - axis]) return false;
  }
  return true;
}

std::vector<std::int64_t> extents(const Shape& shape) {
  return {shape.extents().begin(), shape.extents().end()};
}

std::string joined(std::string_view layer, std::string_view name) {
  if (layer.empty() || name.empty()) return std::string(layer.empty() ? name : layer);
  return std::string(layer) + "." + std::string(name);
}

/// "relu of fc1"
std::string made_by(Op op, std::string_view layer) {
  return std::string(name_of(op)) + (layer.empty() ? "" : " of " + std::string(layer));
}

}  // namespace

void CulpritFinder::clear() {
  known_.clear();
  events_.clear();
  roundings_.clear();
  loss_scale_ = 1;
}

ValueMark CulpritFinder::counted(const Tensor& tensor) {
  ExponentHistogram counts;
  return counted(tensor, counts);
}

ValueMark CulpritFinder::counted(const Tensor& tensor, ExponentHistogram& counts) {
  ValueMark mark{.known = true, .nan = false, .origin = 0};
  if (!tensor.defined() || !is_tensor_float(tensor.dtype())) return mark;
  backend_->histogram(tensor, counts);
  mark.nan = counts.nan > 0;
  // The caller finds the op; until then it has none.
  mark.origin = counts.nan + counts.infinite > 0 ? std::numeric_limits<std::uint16_t>::max() : 0;
  return mark;
}

std::uint16_t CulpritFinder::worse(std::uint16_t a, std::uint16_t b) const {
  if (a == 0 || b == 0) return std::max(a, b);
  if (weak(a) != weak(b)) return weak(a) ? b : a;
  return std::min(a, b);
}

std::uint16_t CulpritFinder::inherited(std::span<const ValueMark> marks) const {
  std::uint16_t origin = 0;
  for (const ValueMark& mark : marks) origin = worse(origin, mark.origin);
  return origin;
}

void CulpritFinder::reached(std::uint16_t origin) {
  if (origin != 0) events_[origin - 1].facts.reached = true;
}

std::vector<float> CulpritFinder::host_values(const Tensor& tensor) {
  std::vector<float> values(static_cast<std::size_t>(tensor.element_count()));
  const Tensor wide = widened(*backend_, tensor);
  backend_->download(wide, std::as_writable_bytes(std::span(values)));
  return values;
}

std::uint64_t CulpritFinder::first_nonfinite(const Tensor& tensor) {
  const std::vector<float> values = host_values(tensor);
  const auto found =
      std::find_if(values.begin(), values.end(), [](float value) { return !std::isfinite(value); });
  return static_cast<std::uint64_t>(found - values.begin());
}

std::uint64_t CulpritFinder::first_new(const Tensor& value, std::span<const NamedTensor> operands) {
  const std::vector<float> values = host_values(value);
  std::vector<std::vector<float>> sources;
  for (const NamedTensor& operand : operands) {
    if (!broadcasts(operand.tensor.shape(), value.shape())) return values.size();
    sources.push_back(host_values(operand.tensor));
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::isfinite(values[i])) continue;
    bool fresh = true;
    for (std::size_t operand = 0; operand < sources.size(); ++operand)
      fresh = fresh &&
              std::isfinite(
                  sources[operand][broadcast_source(i, value.shape(), operands[operand].tensor.shape())]);
    if (fresh) return i;
  }
  return values.size();
}

std::uint16_t CulpritFinder::add(CulpritRow facts, const Tensor& value, std::span<const NamedTensor> operands,
                                 const Tensor& wide, std::uint64_t element, bool is_weak) {
  if (events_.size() == most_events) return static_cast<std::uint16_t>(most_events);
  facts.dtype = value.dtype();
  facts.shape = extents(value.shape());
  facts.loss_scale = loss_scale_;
  facts.element = element;
  if (!is_weak) {
    const std::vector<float> values = host_values(value);
    facts.value = static_cast<double>(values[element]);
    facts.nonfinite = static_cast<std::uint64_t>(
        std::count_if(values.begin(), values.end(), [](float x) { return !std::isfinite(x); }));
    if (const Tensor& before = value.dtype() == DType::f32 ? value : wide; before.defined()) {
      const std::vector<float> wide_values = host_values(before);
      facts.wide_value = static_cast<double>(wide_values[element]);
      facts.wide.emplace();
      backend_->histogram(before, *facts.wide);
      for (const float x : wide_values)
        if (std::isfinite(x))
          facts.wide_greatest = std::max(facts.wide_greatest, std::fabs(static_cast<double>(x)));
    }
    for (const NamedTensor& operand : operands) {
      CulpritOperandRow& told = facts.operands.emplace_back();
      told.name = operand.name;
      told.dtype = operand.tensor.dtype();
      told.shape = extents(operand.tensor.shape());
      backend_->histogram(operand.tensor, told.histogram);
      for (const float x : host_values(operand.tensor)) {
        const double magnitude = std::fabs(static_cast<double>(x));
        if (!std::isfinite(x) || magnitude == 0) continue;
        told.smallest = told.smallest == 0 ? magnitude : std::min(told.smallest, magnitude);
        told.greatest = std::max(told.greatest, magnitude);
      }
    }
  }
  events_.push_back({is_weak, std::move(facts)});
  return static_cast<std::uint16_t>(events_.size());
}

CulpritRow CulpritFinder::site_of(Tape& tape, Op op) const {
  CulpritRow facts;
  facts.micro_batch = tape.context().micro_batch;
  if (const BackwardSite* const site = tape.backward_site()) {
    facts.pass = CulpritPass::backward;
    facts.op = name_of(site->op);
    if (op != site->op) facts.part = name_of(op);
    facts.layer = tape.scope_path(site->scope);
    facts.tensor = joined(facts.layer, name_of(site->label));
    return facts;
  }
  const OpSite asked = tape.asked();
  const bool of_asked = asked.op != Op::leaf && asked.scope == tape.scope();
  facts.op = name_of(of_asked ? asked.op : op);
  if (of_asked && op != asked.op) facts.part = name_of(op);
  facts.layer = tape.scope_path(tape.scope());
  facts.tensor = joined(facts.layer, "output");
  return facts;
}

std::string CulpritFinder::name_of_operand(Tape& tape, const Variable& operand, SlotLabel label) const {
  if (const Parameter* const parameter = tape.cast_parameter_of(operand)) return parameter->name;
  if (const BackwardSite* const site = tape.backward_site();
      site != nullptr && operand.id() == site->cotangent)
    return "gradient";
  if (label != SlotLabel::none) return std::string(name_of(label));
  const Op op = tape.op_of(operand);
  if (op == Op::leaf) return "constant";
  return made_by(op, tape.scope_path(tape.scope_of(operand)));
}

ValueMark CulpritFinder::mark_of(Tape& tape, const Variable& variable) {
  if (variable.id() < known_.size() && known_[variable.id()].generation == variable.generation())
    return known_[variable.id()].mark;
  const Tensor value = tape.value_of(variable);
  ValueMark mark = counted(value);
  if (!mark.finite()) {
    const Parameter* const parameter = tape.parameter_of(variable);
    CulpritRow facts = site_of(tape, Op::leaf);
    facts.pass = CulpritPass::forward;
    facts.cause = parameter != nullptr ? CulpritCause::parameter : CulpritCause::constant;
    facts.op = {};
    facts.part = {};
    facts.tensor = parameter != nullptr ? parameter->name : joined(facts.layer, "constant");
    const bool is_weak = parameter == nullptr && !mark.nan;
    const auto known = std::find_if(events_.begin(), events_.end(), [](const Found& e) { return e.weak; });
    mark.origin = is_weak && known != events_.end()
                      ? static_cast<std::uint16_t>(known - events_.begin() + 1)  // one represents all
                      : add(std::move(facts), value, {}, {}, first_nonfinite(value), is_weak);
  }
  adopt(variable, mark);
  return mark;
}

void CulpritFinder::adopt(const Variable& variable, ValueMark mark) {
  if (variable.id() >= known_.size()) known_.resize(variable.id() + 1);
  known_[variable.id()] = {variable.generation(), mark};
}

std::uint16_t CulpritFinder::rounding_of(const Variable& variable) const {
  const bool known =
      variable.id() < known_.size() && known_[variable.id()].generation == variable.generation();
  return known ? known_[variable.id()].rounding : std::uint16_t{0};
}

std::uint16_t CulpritFinder::rounding_in(const Recorded& recorded, const ExponentHistogram& counts) {
  if (counts.zero == 0) return 0;
  Tape& tape = recorded.tape;
  const Tensor value = tape.value_of(recorded.result);
  if (value.dtype() != DType::f32 && is_elementwise(recorded.op)) {
    const Tensor wide =
        recorded.op == Op::cast ? tape.value_of(recorded.operands.front().input) : recorded.unrounded();
    ExponentHistogram before;
    if (wide.defined()) backend_->histogram(wide, before);
    if (wide.defined() && before.zero < counts.zero) {
      const std::string name = made_by(recorded.op, tape.scope_path(tape.scope()));
      const auto known = std::find(roundings_.begin(), roundings_.end(), name);
      const auto index = static_cast<std::size_t>(known - roundings_.begin());
      if (known == roundings_.end()) roundings_.push_back(name);
      return static_cast<std::uint16_t>(std::min<std::size_t>(index + 1, most_roundings));
    }
  }
  for (const Slot& slot : recorded.operands)
    if (const std::uint16_t rounding = rounding_of(slot.input); rounding != 0) return rounding;
  return 0;
}

void CulpritFinder::see(const Event& event) {
  if (const auto* recorded = event.as<Recorded>()) {
    see(*recorded);
  } else if (const auto* named = event.as<CotangentNamed>()) {
    adopt(named->cotangent, gradient_mark(named->node));
  } else if (const auto* gave = event.as<VjpGave>()) {
    if (gave->result.defined()) see(*gave);
  } else if (const auto* handed = event.as<GradientHandedOn>()) {
    given_ = gradient_mark(handed->node);
  } else if (const auto* added = event.as<GradientAdded>()) {
    see(*added);
  } else if (const auto* replaced = event.as<GradientReplaced>()) {
    gradient_mark(replaced->node) = mark_of(replaced->tape, replaced->gradient);
  } else if (const auto* whole = event.as<ParameterGradient>()) {
    see(*whole);
  } else if (const auto* seeded = event.as<Seeded>()) {
    see(*seeded);
  } else if (event.as<PassBegins>() != nullptr) {
    if (gradient_marks_.size() == depth_) gradient_marks_.emplace_back();
    gradient_marks_[depth_++].clear();
  } else if (event.as<PassEnds>() != nullptr) {
    --depth_;
  }
}

ValueMark& CulpritFinder::gradient_mark(std::uint32_t node) {
  std::vector<ValueMark>& marks = gradient_marks_[depth_ - 1];
  if (node >= marks.size()) marks.resize(node + 1);
  return marks[node];
}

void CulpritFinder::see(const Recorded& recorded) {
  const auto& [tape, op, result, operands] = recorded;
  std::vector<ValueMark> marks;
  marks.reserve(operands.size());
  for (const Slot& slot : operands) marks.push_back(mark_of(tape, slot.input));
  const Tensor value = tape.value_of(result);
  ExponentHistogram counts;
  ValueMark mark = counted(value, counts);
  const std::uint16_t rounding = rounding_in(recorded, counts);
  if (!mark.finite()) {
    std::vector<NamedTensor> named;
    for (const Slot& slot : operands)
      if (const Tensor tensor = tape.value_of(slot.input);
          tensor.defined() && is_tensor_float(tensor.dtype())) {
        named.push_back({name_of_operand(tape, slot.input, slot.label), tensor});
        if (const std::uint16_t by = rounding_of(slot.input); by != 0)
          named.back().name += " (rounded to zero by " + roundings_[by - 1] + ")";
      }
    mark.origin = inherited(marks);
    const bool had_nan = std::any_of(marks.begin(), marks.end(), [](const ValueMark& m) { return m.nan; });
    std::uint64_t element = static_cast<std::uint64_t>(value.element_count());
    CulpritRow facts = site_of(tape, op);
    if (mark.origin == 0) {
      element = first_nonfinite(value);
    } else if (weak(mark.origin) && is_elementwise(op)) {
      element = first_new(value, named);
    }
    if (element == static_cast<std::uint64_t>(value.element_count()) && weak(mark.origin) && mark.nan &&
        !had_nan) {
      facts.cause = CulpritCause::infinity;
      const std::vector<float> values = host_values(value);
      element = static_cast<std::uint64_t>(
          std::find_if(values.begin(), values.end(), [](float x) { return std::isnan(x); }) - values.begin());
    }
    if (element < static_cast<std::uint64_t>(value.element_count())) {
      Tensor wide = value.dtype() == DType::f32 ? Tensor() : recorded.unrounded();
      if (op == Op::cast && !named.empty()) wide = wide_copy(*backend_, named.front().tensor);
      mark.origin = add(std::move(facts), value, named, wide, element);
    }
  }
  adopt(result, mark);
  known_[result.id()].rounding = rounding;
}

void CulpritFinder::on_network_input(Tape& tape, const Variable& variable, const Tensor& inputs) {
  ValueMark mark = counted(variable.tensor());
  if (!mark.finite()) {
    CulpritRow facts = site_of(tape, Op::cast);
    facts.op = name_of(Op::cast);
    facts.part = {};
    facts.layer = {};
    facts.tensor = "inputs";
    const bool of_data = !counted(inputs).finite();
    if (of_data) facts.cause = CulpritCause::data;
    const std::array operands{NamedTensor{"batch", inputs}};
    const Tensor& shown = of_data ? inputs : variable.tensor();
    mark.origin = add(std::move(facts), shown, of_data ? std::span<const NamedTensor>() : operands,
                      wide_copy(*backend_, inputs), first_nonfinite(shown));
  }
  adopt(variable, mark);
}

void CulpritFinder::on_scaled_loss(Tape& tape, const Tensor& loss, const Tensor& seed, const Tensor& scaled) {
  if (counted(scaled).finite() || !counted(loss).finite() || !counted(seed).finite()) return;
  CulpritRow facts = site_of(tape, Op::scale);
  facts.pass = CulpritPass::backward;
  facts.cause = CulpritCause::loss_scale;
  facts.op = {};
  facts.part = {};
  facts.layer = {};
  facts.tensor = "loss x loss_scale";
  loss_scale_ = static_cast<double>(host_values(seed).front());
  Tensor wide = backend_->empty(loss.shape(), DType::f32);
  backend_->binary(BinaryOp::multiply, wide_copy(*backend_, loss), wide_copy(*backend_, seed), wide);
  reached(add(std::move(facts), scaled,
              std::array{NamedTensor{"loss", loss}, NamedTensor{"loss_scale", seed}}, wide, 0));
}

void CulpritFinder::see(const Seeded& seeded) {
  const auto& [tape, output, seed] = seeded;
  if (tape.backward_site() == nullptr) reached(mark_of(tape, output).origin);
  ValueMark mark = counted(seed);
  const std::vector<float> values = host_values(seed);
  if (values.size() == 1) loss_scale_ = static_cast<double>(values.front());
  if (!mark.finite()) {
    CulpritRow facts;
    facts.pass = CulpritPass::backward;
    facts.cause = CulpritCause::loss_scale;
    facts.micro_batch = tape.context().micro_batch;
    facts.tensor = "loss_scale";
    mark.origin = add(std::move(facts), seed, {}, {}, first_nonfinite(seed));
  }
  given_ = mark;
  if (ValueMark& known = gradient_mark(output.id()); !known.known) known = mark;
}

void CulpritFinder::see(const VjpGave& gave) {
  Tape& tape = gave.tape;
  const Variable& result = gave.result;
  const bool known = result.id() < known_.size() && known_[result.id()].generation == result.generation();
  if (known || tape.op_of(result) != Op::leaf) {
    given_ = mark_of(tape, result);
    return;
  }
  // Verbs without an op computed this value: only the inputs are known.
  const Tensor value = result.tensor();
  given_ = counted(value);
  if (!given_.finite()) {
    const std::array marks{mark_of(tape, gave.cotangent), mark_of(tape, gave.output)};
    given_.origin = inherited(marks);
    if (given_.origin == 0) {
      std::vector<NamedTensor> operands{{"gradient", gave.cotangent.tensor()}};
      if (const Tensor forward = tape.value_of(gave.output); forward.defined())
        operands.push_back({"output", forward});
      given_.origin = add(site_of(tape, gave.site.op), value, operands, {}, first_nonfinite(value));
    }
  }
  adopt(result, given_);
}

void CulpritFinder::see(const GradientAdded& added) {
  const auto& [tape, node, before, addend, sum] = added;
  ValueMark& mark = gradient_mark(node);
  if (!before.defined()) {
    mark = given_;
    return;
  }
  const std::array marks{mark, given_};
  mark = counted(sum);
  if (mark.finite()) return;
  mark.origin = inherited(marks);
  if (mark.origin != 0) return;
  CulpritRow facts = site_of(tape, Op::add);
  facts.pass = CulpritPass::backward;
  facts.part = name_of(Op::add);
  Tensor wide;
  if (sum.dtype() != DType::f32) {
    wide = backend_->empty(sum.shape(), DType::f32);
    backend_->binary(BinaryOp::add, wide_copy(*backend_, before), wide_copy(*backend_, addend), wide);
  }
  mark.origin =
      add(std::move(facts), sum,
          std::array{NamedTensor{"gradient so far", before}, NamedTensor{"gradient to add", addend}}, wide,
          first_nonfinite(sum));
}

void CulpritFinder::see(const ParameterGradient& whole) {
  const auto& [tape, node, parameter, contribution, before] = whole;
  const ValueMark mark = gradient_mark(node);
  const Tensor& gradient = parameter.gradient;
  reached(mark.origin);
  if (!mark.finite() || counted(gradient).finite() || !counted(before).finite()) return;
  CulpritRow facts;
  facts.pass = CulpritPass::backward;
  facts.op = name_of(Op::cast);
  if (before.defined()) facts.part = name_of(Op::add);
  facts.layer = parameter.name.substr(0, std::min(parameter.name.rfind('.'), parameter.name.size()));
  facts.tensor = parameter.name;
  facts.micro_batch = tape.context().micro_batch;
  Tensor wide = wide_copy(*backend_, contribution.reshaped(gradient.shape()));
  std::vector<NamedTensor> operands{{"gradient", contribution}};
  if (before.defined()) {
    operands.push_back({"gradient so far", before});
    backend_->binary(BinaryOp::add, wide, wide_copy(*backend_, before), wide);
  }
  reached(add(std::move(facts), gradient, operands, wide, first_nonfinite(gradient)));
}

std::vector<CulpritRow> CulpritFinder::culprits() const {
  struct Wanted {
    bool reached, weak;
  };
  // From what surely did it to what may have.
  for (const Wanted wanted : {Wanted{true, false}, Wanted{true, true}, Wanted{false, false}}) {
    std::vector<CulpritRow> found;
    for (const CulpritPass pass : {CulpritPass::forward, CulpritPass::backward}) {
      const auto event = std::find_if(events_.begin(), events_.end(), [&](const Found& e) {
        return e.facts.pass == pass && e.facts.reached == wanted.reached && e.weak == wanted.weak;
      });
      if (event != events_.end()) found.push_back(event->facts);
    }
    if (!found.empty()) return found;
  }
  return {};
}

}  // namespace fp16lab::engine
