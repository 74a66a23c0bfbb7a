// Autocast: casts at op dispatch, from op lists, with a cache of cast parameters.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "engine/amp/op_lists.hpp"
#include "engine/autograd/cast_policy.hpp"
#include "engine/autograd/tape.hpp"

namespace fp16lab::engine::amp {

/// O0: FP32 throughout. O1: op lists at dispatch, FP32 master weights.
enum class Level { O0, O1 };

std::string_view name_of(Level level);
/// "O0" or "O1"; std::invalid_argument otherwise.
Level level_from_name(std::string_view name);

struct AmpOptions {
  Level level = Level::O0;
  DType dtype = DType::f16;  ///< of the white list; ignored at O0
  Dialect dialect = Dialect::torch;
};

/// A parameter is cast once per version, dtype and grad mode: micro-batches share the result. Clear it after
/// each optimizer step (AutocastGuard also clears it on exit).
class Autocast final : public CastPolicy {
 public:
  /// std::invalid_argument if `options.dtype` is not a dtype that the back ends multiply in (f16).
  explicit Autocast(const AmpOptions& options);

  /// AutogradError::Kind::unsafe_under_autocast for an op that the dialect bans, naming the reason and the op to
  /// use.
  DType compute_dtype(Op op, std::span<const DType> inputs) const override;
  Variable cast(const Variable& input, DType dtype) override;

  void clear_cache() { cache_.clear(); }
  std::size_t cache_size() const { return cache_.size(); }
  /// Casts of parameters that needed no computation.
  std::uint64_t cache_hits() const { return cache_hits_; }
  const AmpOptions& options() const { return options_; }

 private:
  struct Entry {
    const Parameter* parameter;
    std::uint64_t version;
    DType dtype;
    bool grad_mode;
    Tensor value;
    Variable variable;  ///< on the tape of the last use; re-recorded from `value` when that is gone
  };

  AmpOptions options_;
  std::vector<Entry> cache_;  ///< tens of entries: a search beats hashing, and clearing keeps the memory
  std::uint64_t cache_hits_ = 0;
};

/// Autocast is on in a scope: `with autocast():`. At level O0 nothing is set. Clears the cache on exit.
class AutocastGuard {
 public:
  AutocastGuard(Tape& tape, Autocast& autocast)
      : autocast_(&autocast), policy_(tape, autocast.options().level == Level::O0 ? nullptr : &autocast) {}
  ~AutocastGuard() { autocast_->clear_cache(); }
  AutocastGuard(const AutocastGuard&) = delete;
  AutocastGuard& operator=(const AutocastGuard&) = delete;

 private:
  Autocast* autocast_;
  CastPolicyGuard policy_;
};

}  // namespace fp16lab::engine::amp
