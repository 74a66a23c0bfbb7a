#include "engine/amp/levels/autocast.hpp"

#include <algorithm>
#include <array>
#include <string>

#include "engine/amp/levels/op_statistics.hpp"
#include "engine/autograd/ops.hpp"

namespace fp16lab::engine::amp {

namespace {

std::vector<OpListRow> lists_of(const AmpPlan& plan) {
  std::vector<OpListRow> lists(op_count);
  for (std::size_t i = 0; i < op_count; ++i) {
    const Op op = static_cast<Op>(i);
    lists[i] = plan.rules.uses_lists ? row_of(plan.dialect, plan.level, plan.low, op)
                                     : OpListRow{op, OpList::follows};
  }
  for (const Op op : plan.white) lists[static_cast<std::size_t>(op)] = {op, OpList::white};
  for (const Op op : plan.black) lists[static_cast<std::size_t>(op)] = {op, OpList::black};
  return lists;
}

constexpr bool is_loss(Op op) {
  return op == Op::softmax_cross_entropy || op == Op::mse_loss || op == Op::l1_loss || op == Op::huber_loss ||
         op == Op::binary_cross_entropy || op == Op::binary_cross_entropy_with_logits;
}

/// What native promotion gives: f16 and bf16 together need f32.
DType widest(std::span<const DType> inputs) { return inputs.size() == 1 ? inputs.front() : DType::f32; }

[[noreturn]] void refuse_banned(const OpListRow& row) {
  throw AutogradError(AutogradError::Kind::unsafe_under_autocast,
                      std::string(name_of(row.op)) + ": unsafe under autocast: " + std::string(row.reason) +
                          "; use " + std::string(name_of(row.remedy)) + ", or switch autocast off around it");
}

}  // namespace

Autocast::Autocast(AmpPlan plan, const Tape& tape)
    : tape_(&tape),
      plan_(std::move(plan)),
      lists_(lists_of(plan_)),
      has_patterns_(!plan_.excluded.empty() || !plan_.guard.empty() || !plan_.to_float.empty() ||
                    !plan_.recipe_wide.empty()) {}

const Autocast::ScopeRule& Autocast::rule_of(std::uint32_t scope) {
  if (!has_patterns_) {
    static constexpr ScopeRule none{};
    return none;
  }
  if (scope >= rules_.size()) rules_.resize(scope + 1);
  ScopeRule& rule = rules_[scope];
  if (rule.known) return rule;
  const std::string_view path = tape_->scope_path(scope);
  rule.known = true;
  rule.excluded = matches_any(plan_.excluded, path);
  rule.guarded = matches_any(plan_.guard, path);
  rule.wide = matches_any(plan_.recipe_wide, path);
  for (const ToFloat& entry : plan_.to_float)
    if (matches(entry.pattern, path)) rule.to_float = entry.dtype;
  return rule;
}

bool Autocast::stays_f32(const ScopeRule& rule) const {
  return rule.excluded || (plan_.use_guard && !rule.guarded && regions_ == 0);
}

DType Autocast::decide(OpSite site, std::span<const DType> inputs) {
  const ScopeRule& rule = rule_of(site.scope);
  if (rule.to_float) return *rule.to_float;
  if (plan_.level == Level::O0) return widest(inputs);
  if (stays_f32(rule) || plan_.product_formats.tf32) return DType::f32;
  const OpListRow& row = lists_[static_cast<std::size_t>(site.op)];
  switch (row.list) {
    case OpList::white:
      return plan_.low;
    case OpList::black:
      return DType::f32;
    case OpList::banned:
      if (!plan_.allow_banned) refuse_banned(row);
      return DType::f32;
    case OpList::follows:
      break;
  }
  return unlisted(site.op, inputs);
}

DType Autocast::unlisted(Op op, std::span<const DType> inputs) const {
  if (plan_.rules.low_model && is_product(op) && inputs.size() > 1) return plan_.low;
  if (plan_.low_loss && is_loss(op)) return inputs.front();
  switch (plan_.rules.unlisted) {
    case Unlisted::follow:
      break;
    case Unlisted::wide:
      return DType::f32;
    case Unlisted::low:
      return plan_.low;
  }
  return widest(inputs);
}

DType Autocast::compute_dtype(OpSite site, std::span<const DType> inputs) {
  const DType dtype = decide(site, inputs);
  casting_for_ = site;
  if (statistics_ != nullptr)
    statistics_->on_op(tape_->scope_path(site.scope), site.op, counted_dtype(site, dtype));
  return dtype;
}

DType Autocast::result_dtype(OpSite site, DType computed) {
  const bool widens = plan_.rules.widens_white_results && computed == plan_.low;
  const bool narrows = plan_.rules.narrows_black_results && computed == DType::f32;
  if (!widens && !narrows) return computed;
  const ScopeRule& rule = rule_of(site.scope);
  if (rule.to_float || stays_f32(rule)) return computed;
  const OpList list = lists_[static_cast<std::size_t>(site.op)].list;
  if (widens && list == OpList::white) return DType::f32;
  if (narrows && list == OpList::black) return plan_.low;
  return computed;
}

bool Autocast::fuses_bias() const { return engine::amp::fuses_bias(plan_.dialect, plan_.level); }

bool Autocast::rounds_to_tf32(OpSite site) {
  if (!plan_.product_formats.tf32) return false;
  const ScopeRule& rule = rule_of(site.scope);
  return !rule.to_float && !stays_f32(rule) &&
         lists_[static_cast<std::size_t>(site.op)].list == OpList::white;
}

ProductFormats Autocast::product_formats(OpSite site, bool of_layer) {
  ProductFormats formats = plan_.product_formats;
  formats.tf32 = rounds_to_tf32(site);
  if (!plan_.has_recipe()) return formats;
  if (!of_layer || rule_of(site.scope).wide) return {.tf32 = formats.tf32};
  recipe_records_.attach(formats, tape_->scope_path(site.scope));
  return formats;
}

void Autocast::on_custom_op(OpSite site, DType dtype) {
  casting_for_ = site;
  if (statistics_ != nullptr) statistics_->on_op(tape_->scope_path(site.scope), site.op, dtype);
}

void Autocast::on_product(OpSite site, const ProductShape& shape, DType dtype) {
  if (statistics_ != nullptr)
    statistics_->on_product(tape_->scope_path(site.scope), site.op, shape, counted_dtype(site, dtype));
}

Variable Autocast::cast(const Variable& input, DType dtype) {
  const auto computed = [&] {
    if (statistics_ != nullptr)
      statistics_->on_cast(tape_->scope_path(casting_for_.scope), casting_for_.op, dtype);
    return ops::cast(input, dtype);
  };
  Tape& tape = input.tape();
  Parameter* const parameter = tape.parameter_of(input);
  if (parameter == nullptr) return computed();
  const auto key = reinterpret_cast<std::uintptr_t>(parameter);
  const std::size_t place = cached_.find(key, [&](std::size_t position) {
    const Entry& known = cache_[position];
    return known.version == parameter->version && known.dtype == dtype && known.grad_mode == tape.grad_mode();
  });
  if (place != PositionTable::nowhere) {
    Entry* const entry = &cache_[place];
    ++cache_hits_;
    // usable() compares tape, generation and id, so a Variable of a tape that was reset is never handed out.
    // The same holds for one from before the parameter was frozen, or thawed.
    const bool flows = input.requires_gradient() && tape.grad_mode();
    if (!tape.usable(entry->variable) || entry->variable.requires_gradient() != flows)
      entry->variable = ops::cast_as(input, entry->value);
    return entry->variable;
  }
  const Variable variable = computed();
  cached_.put(key, cache_.size());
  cache_.push_back({parameter, parameter->version, dtype, tape.grad_mode(), variable.tensor(), variable});
  return variable;
}

}  // namespace fp16lab::engine::amp
