// Autocast: casts at op dispatch, from op lists, with a cache of cast parameters.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "engine/amp/levels/level.hpp"
#include "engine/amp/levels/op_lists.hpp"
#include "engine/amp/levels/recipe.hpp"
#include "engine/autograd/cast_policy.hpp"
#include "engine/autograd/tape.hpp"
#include "engine/tensor/position_table.hpp"

namespace fp16lab::engine::amp {

class OpStatistics;  // engine/amp/levels/op_statistics.hpp

/// Decides, op by op, in this order:
///   1. to_float of the scope, where a pattern matches: that dtype;
///   2. outside the guard, or in an excluded layer: FP32;
///   3. a banned op is refused (or FP32, with allow_banned);
///   4. the custom lists, then the dialect's;
///   5. under a low model, a product of inputs that differ (a 16-bit layer after an FP32 one, say): low;
///   6. with AmpPlan::low_loss, a loss: its prediction's dtype, which its target takes as well;
///   7. unlisted ops as the level says.
/// If low is TF32 all of this is FP32 but for to_float, and nothing is refused; rule 2 and the lists say
/// which products have TF32 operands.
/// At O0 without to_float every op follows its inputs.
/// A parameter is cast once per version, dtype and grad mode: micro-batches share the result. Clear it after
/// each optimizer step (the outermost AutocastGuard also clears it on exit).
class Autocast final : public CastPolicy {
 public:
  /// Casts for the ops of `tape`, whose scopes it knows by number. std::invalid_argument as amp::resolve.
  Autocast(const Tape& tape, const AmpOptions& options) : Autocast(resolve(options), tape) {}
  /// In this order, so that a list in braces after the tape is AmpOptions.
  Autocast(AmpPlan plan, const Tape& tape);

  /// AutogradError::Kind::unsafe_under_autocast for an op that the dialect bans, naming the reason and the op
  /// to use.
  DType compute_dtype(OpSite site, std::span<const DType> inputs) override;
  /// A white op's result goes back to FP32 in mindspore's O1, a black one's back to low in its O2; not where
  /// to_float has decided, nor in excluded layers.
  DType result_dtype(OpSite site, DType computed) override;
  void on_custom_op(OpSite site, DType dtype) override;
  Variable cast(const Variable& input, DType dtype) override;
  bool fuses_bias() const override;
  ProductFormats product_formats(OpSite site, bool of_layer) override;
  void on_product(OpSite site, const ProductShape& shape, DType dtype) override;

  void clear_cache() {
    cache_.clear();
    cached_.clear();
  }
  std::size_t cache_size() const { return cache_.size(); }
  /// Casts of parameters that needed no computation.
  std::uint64_t cache_hits() const { return cache_hits_; }
  const AmpPlan& plan() const { return plan_; }

  /// Counts calls, casts and products from now on; null: no counts. Not owned. Counting changes no bit, and
  /// at O0 it makes AutocastGuard set this policy, which then decides FP32 throughout.
  void set_statistics(OpStatistics* statistics) { statistics_ = statistics; }
  OpStatistics* statistics() const { return statistics_; }
  /// Of layers whose operands the plan's recipe rounds.
  RecipeRecords& recipe_records() { return recipe_records_; }
  /// Is there anything to do at op dispatch?
  bool acts() const { return plan_.acts() || statistics_ != nullptr; }

 private:
  friend class AutocastGuard;
  friend class Fp16Region;

  struct Entry {
    const Parameter* parameter;
    std::uint64_t version;
    DType dtype;
    bool grad_mode;
    Tensor value;
    Variable variable;  ///< on the tape of the last use; re-recorded from `value` when that is gone
  };
  /// What the patterns say of a scope, found out once.
  struct ScopeRule {
    bool known = false;
    bool excluded = false;
    bool guarded = false;
    bool wide = false;  ///< AmpOptions::recipe_wide
    std::optional<DType> to_float;
  };
  const ScopeRule& rule_of(std::uint32_t scope);
  bool stays_f32(const ScopeRule& rule) const;
  DType decide(OpSite site, std::span<const DType> inputs);
  /// Does the product at `site`, if it computes in FP32, round its operands to TF32?
  bool rounds_to_tf32(OpSite site);
  /// The dtype in which `op` computes, for statistics.
  DType counted_dtype(OpSite site, DType dtype) {
    return dtype == DType::f32 && is_product(site.op) && rounds_to_tf32(site) ? DType::tf32 : dtype;
  }
  DType unlisted(Op op, std::span<const DType> inputs) const;

  const Tape* tape_;
  AmpPlan plan_;
  std::vector<OpListRow> lists_;  ///< by op: from the plan's dialect, level and dtype, with the custom lists
  bool has_patterns_ = false;
  OpSite casting_for_;  ///< the op that was decided on last: casts until the next one are its inputs'
  std::vector<ScopeRule> rules_;  ///< by scope number
  std::vector<Entry> cache_;
  PositionTable cached_;  ///< in cache_, by the parameter's address
  std::uint64_t cache_hits_ = 0;
  OpStatistics* statistics_ = nullptr;
  RecipeRecords recipe_records_;
  int guards_ = 0;   ///< AutocastGuards alive
  int regions_ = 0;  ///< Fp16Regions alive
};

/// Autocast is on, or off, in a scope: `with autocast(enabled):`. Guards nest; at level O0 nothing is set.
/// The outermost guard clears the cache on exit.
class AutocastGuard {
 public:
  AutocastGuard(Tape& tape, Autocast& autocast, bool enabled = true)
      : autocast_(&autocast), policy_(tape, enabled && autocast.acts() ? &autocast : nullptr) {
    ++autocast.guards_;
  }
  ~AutocastGuard() {
    if (--autocast_->guards_ == 0) autocast_->clear_cache();
  }
  AutocastGuard(const AutocastGuard&) = delete;
  AutocastGuard& operator=(const AutocastGuard&) = delete;

 private:
  Autocast* autocast_;
  CastPolicyGuard policy_;
};

/// Paddle's fp16_guard: with AmpOptions::use_guard, ops are low only inside such a region or in a scope that
/// matches AmpOptions::guard. Without use_guard it does nothing. Regions nest.
class Fp16Region {
 public:
  explicit Fp16Region(Autocast& autocast) : autocast_(&autocast) { ++autocast.regions_; }
  ~Fp16Region() { --autocast_->regions_; }
  Fp16Region(const Fp16Region&) = delete;
  Fp16Region& operator=(const Fp16Region&) = delete;

 private:
  Autocast* autocast_;
};

}  // namespace fp16lab::engine::amp
