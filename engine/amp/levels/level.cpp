// Names of dialects and levels, and the checks that turn a user's options into a plan.
#include "engine/amp/levels/level.hpp"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <utility>

#include "engine/amp/levels/op_lists.hpp"
#include "engine/amp/levels/recipe.hpp"
#include "numerics/text/nearest_name.hpp"

namespace fp16lab::engine::amp {

namespace {

[[noreturn]] void refuse(std::string_view key, const std::string& value, const std::string& why) {
  throw std::invalid_argument("amp." + std::string(key) + " = " + value + ": " + why);
}

std::string quoted(std::string_view text) { return "\"" + std::string(text) + "\""; }

/// "paddle's O1"
std::string named(const AmpOptions& options) {
  return std::string(name_of(options.dialect)) + "'s " + std::string(name_of(options.level));
}

// ---- op names ----

bool is_listable(Op op) { return class_of(op) != OpClass::unlisted; }

std::vector<std::string_view> known_op_names(Dialect dialect) {
  std::vector<std::string_view> names;
  for (std::size_t i = 0; i < op_count; ++i) {
    if (is_listable(static_cast<Op>(i))) names.push_back(name_of(static_cast<Op>(i)));
  }
  for (const Level level : levels_of(dialect)) {
    for (const OpListRow& row : op_lists(dialect, level)) {
      if (!row.name.empty()) names.push_back(row.name);
    }
  }
  return names;
}

std::vector<Op> ops_from_names(const AmpOptions& options, std::string_view key,
                               std::span<const std::string> names) {
  std::vector<Op> ops;
  for (const std::string& name : names) {
    const std::optional<Op> op = op_from_name(options.dialect, name);
    if (!op || !is_listable(*op)) {
      refuse(key, quoted(name),
             "no op of this name, neither ours nor " + std::string(name_of(options.dialect)) + "'s" +
                 did_you_mean(name, known_op_names(options.dialect)));
    }
    if (*op == Op::linear && !fuses_bias(options.dialect, options.level))
      refuse(key, quoted(name),
             options.dialect == Dialect::paddle
                 ? "under paddle a linear layer is matmul_v2 and elementwise_add; name those"
                 : "at " + named(options) + " a dense layer is MatMul and BiasAdd; name those");
    ops.push_back(*op);
  }
  return ops;
}

void check_disjoint(const AmpOptions& options, const AmpPlan& plan) {
  for (std::size_t w = 0; w < plan.white.size(); ++w) {
    const auto black = std::find(plan.black.begin(), plan.black.end(), plan.white[w]);
    if (black == plan.black.end()) continue;
    const std::string& other = options.black[static_cast<std::size_t>(black - plan.black.begin())];
    refuse("white", quoted(options.white[w]),
           "the op is in amp.black too" + (other == options.white[w] ? "" : " (as " + quoted(other) + ")") +
               "; an op can be in one list only");
  }
}

// ---- patterns ----

std::optional<DType> floating_dtype(std::string_view name) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16})
    if (name_of(dtype) == name) return dtype;
  return std::nullopt;
}

void check_patterns(std::string_view key, std::span<const std::string> patterns) {
  for (const std::string& pattern : patterns) {
    if (pattern.empty())
      refuse(key, quoted(pattern), "a pattern names a module, as \"fc1\" or \"encoder.*\"");
  }
}

void check_scopes(const AmpOptions& options) {
  check_patterns("excluded", options.excluded);
  check_patterns("guard", options.guard);
  if (!options.guard.empty() && !options.use_guard) {
    refuse("guard", quoted(options.guard.front()),
           "guarded regions mean something with amp.use_guard = true only");
  }
}

std::vector<ToFloat> to_float_of(const AmpOptions& options) {
  std::vector<ToFloat> all;
  for (const std::string& entry : options.to_float) {
    const std::size_t equals = entry.rfind('=');
    const std::optional<DType> dtype = equals != std::string::npos && equals > 0
                                           ? floating_dtype(std::string_view(entry).substr(equals + 1))
                                           : std::nullopt;
    if (!dtype)
      refuse("to_float", quoted(entry),
             "expected PATTERN=DTYPE, such as \"fc3=f32\", with one of f32, f16, bf16");
    all.push_back({.pattern = entry.substr(0, equals), .dtype = *dtype});
  }
  return all;
}

// ---- overrides ----

/// mindspore/train/amp.py, _auto_mixed_precision_process: "O2" if keep_batchnorm_fp32, else "O3", whichever
/// level is named. Its other path says the same cell by cell: network.to_float(float16), and then
/// _do_keep_batchnorm_fp32 wraps what the black list names, LayerNorm as well. The scaler stays the level's.
void keep_norms_as_mindspore(bool keep, AmpPlan& plan) {
  const LevelRules named = plan.rules;
  plan.level = keep ? Level::O2 : Level::O3;
  plan.rules = level_rules(Dialect::mindspore, plan.level);
  plan.rules.scaler = named.scaler;
  plan.rules.brings_scaler = named.brings_scaler;
}

void check_override(const AmpOptions& options, const LevelRules& rules, std::string_view key,
                    const std::optional<bool>& value) {
  if (!value || rules.low_model) return;
  const bool fp32 = rules.level == Level::O0;
  refuse(key, *value ? "true" : "false",
         "it is about a 16-bit model, but at " + named(options) + " parameters, inputs and outputs are FP32" +
             (fp32 ? "" : " and ops are cast one by one") +
             "; leave it out, or choose a level with a 16-bit model");
}

void apply_overrides(const AmpOptions& options, AmpPlan& plan) {
  LevelRules& rules = plan.rules;
  check_override(options, rules, "keep_batchnorm_fp32", options.keep_batchnorm_fp32);
  check_override(options, rules, "master_weights", options.master_weights);
  check_override(options, rules, "master_gradients", options.master_gradients);
  check_override(options, rules, "low_inputs", options.low_inputs);
  check_override(options, rules, "low_loss", options.low_loss);
  if (!rules.low_model) return;
  if (options.dialect == Dialect::mindspore && options.keep_batchnorm_fp32)
    keep_norms_as_mindspore(*options.keep_batchnorm_fp32, plan);

  // python/paddle/amp/auto_cast.py, need_keep_fp32: LayerNorm's parameters stay FP32 for float16 only.
  if (options.dialect == Dialect::paddle) rules.layer_norm_f32 = plan.low == DType::f16;
  rules.batch_norm_f32 = options.keep_batchnorm_fp32.value_or(rules.batch_norm_f32);
  rules.master_weights = options.master_weights.value_or(rules.master_weights);
  // Without an FP32 copy nothing needs FP32 gradients, unless they are asked for.
  if (!rules.master_weights) {
    rules.low_gradients = true;
    rules.unscales_to_f32 = false;
  }
  if (options.master_gradients) {
    rules.low_gradients = !*options.master_gradients;
    if (*options.master_gradients) rules.unscales_to_f32 = true;
  }
  rules.low_inputs = options.low_inputs.value_or(rules.low_inputs);
  plan.low_loss = options.low_loss.value_or(false);
  if (plan.low_loss) rules.f32_outputs = false;
}

void check_promotion(const AmpOptions& options, AmpPlan& plan) {
  if (options.use_promote) return;
  if (options.dialect != Dialect::paddle || plan.level != Level::O2) {
    refuse("use_promote", "false",
           "it is an option of paddle's O2; at " + named(options) + " unlisted ops cannot be made 16-bit");
  }
  plan.rules.unlisted = Unlisted::low;
}

void check_fp8(const AmpOptions& options, const AmpPlan& plan) {
  const bool operands = options.fp8_operands.has_value();
  const bool gradients = options.fp8_gradients.has_value();
  const std::string_view key = operands ? "fp8_operands" : "fp8_gradients";
  const std::optional<DType> format = operands ? options.fp8_operands : options.fp8_gradients;
  const std::string value = quoted(format ? name_of(*format) : "none");
  if ((operands || gradients) && plan.level == Level::O0)
    refuse(key, value, "at O0 no product has 16-bit operands; choose another level");
  if ((operands || gradients) && plan.product_formats.tf32)
    refuse(key, value, "with amp.dtype = \"tf32\" no product has 16-bit operands; choose f16 or bf16");
  if (operands != gradients) {
    refuse(key, value,
           std::string("amp.") + (operands ? "fp8_gradients" : "fp8_operands") +
               " is \"none\"; both operands of a product are rounded to FP8, or neither");
  }
}

/// The formats of products that the recipe asks for.
void apply_recipe(const AmpOptions& options, AmpPlan& plan) {
  const bool none = options.recipe == "none";
  const std::string value = quoted(options.recipe);
  const Recipe* const row = find_recipe(options.recipe);
  if (!none && row == nullptr) {
    std::vector<std::string_view> names{"none"};
    for (const Recipe& known : recipes()) names.push_back(known.name);
    refuse("recipe", value, "no recipe has this name: " + known_are(options.recipe, names));
  }
  const auto check_part = [&](bool wanted, bool has, std::string_view key) {
    if (!wanted && !has)
      refuse(key, "false", "amp.recipe is " + value + ", which has no such part; expected true, or nvfp4");
  };
  check_part(options.recipe_stochastic, row != nullptr && row->stochastic, "recipe_stochastic");
  check_part(options.recipe_hadamard, row != nullptr && row->hadamard, "recipe_hadamard");
  check_part(options.recipe_2d, row != nullptr && row->square_weights, "recipe_2d");
  check_patterns("recipe_wide", options.recipe_wide);
  if (none && !options.recipe_wide.empty())
    refuse("recipe_wide", quoted(options.recipe_wide.front()),
           "without amp.recipe all layers stay wide; leave it out, or choose a recipe");
  if (none) return;
  if (plan.level == Level::O0)
    refuse("recipe", value, "at O0 no product has 16-bit operands; choose another level");
  if (plan.product_formats.tf32)
    refuse("recipe", value, "with amp.dtype = \"tf32\" no product has 16-bit operands; choose f16 or bf16");
  if (options.fp8_operands || options.fp8_gradients)
    refuse("recipe", value,
           "amp.fp8_operands and amp.fp8_gradients round the same operands, without scales; expected one "
           "of the two");
  plan.product_formats =
      formats_of(*row, options.recipe_stochastic, options.recipe_hadamard, options.recipe_2d);
  plan.recipe_wide = options.recipe_wide;
}

void check_dtype(const AmpOptions& options, const AmpPlan& plan) {
  if (plan.level == Level::O0 || plan.low == DType::f16 || plan.low == DType::bf16) return;
  const std::string value = quoted(name_of(plan.low));
  if (plan.low != DType::tf32) refuse("dtype", value, "must be f16, bf16 or tf32");
  if (plan.rules.low_model)
    refuse(
        "dtype", value,
        "no tensor is stored in TF32, but at " + named(options) +
            " the model is low; expected f16 or bf16, or amp.level = \"O1\", where products alone are TF32");
}

void check_rounding(const AmpOptions& options, const AmpPlan& plan) {
  if (options.rounding == LowRounding::stochastic_weights && !plan.low_weights())
    refuse("rounding", quoted("stochastic_weights"),
           "it rounds updates of 16-bit weights, but at " + named(options) +
               " the weights that are updated are FP32; expected another one, or a level with a 16-bit model "
               "and amp.master_weights = false");
  if (!plan.stochastic_gradients()) return;
  const bool halves_named = std::any_of(plan.to_float.begin(), plan.to_float.end(),
                                        [](const ToFloat& entry) { return entry.dtype != DType::f32; });
  const bool low = plan.level != Level::O0 && !plan.product_formats.tf32;
  if (!low && !halves_named)
    refuse("rounding",
           quoted(options.rounding == LowRounding::stochastic ? "stochastic" : "stochastic_gradients"),
           std::string("it is of what is rounded to 16 bits, but ") +
               (plan.level == Level::O0 ? "at " + named(options) + " all is FP32"
                                        : "with amp.dtype = \"tf32\" all tensors are FP32") +
               "; expected \"nearest\", or another level or dtype");
}

}  // namespace

AmpPlan resolve(const AmpOptions& options) {
  std::vector<ToFloat> to_float = to_float_of(options);
  const OperandRounding operand{.fp8 = options.fp8_operands}, gradient{.fp8 = options.fp8_gradients};
  const LevelRules& rules = level_rules(options.dialect, options.level);
  AmpPlan plan{.dialect = options.dialect,
               .level = rules.level,
               .low = options.dtype,
               .rules = rules,
               .allow_banned = options.allow_banned,
               .use_guard = options.use_guard,
               .excluded = options.excluded,
               .guard = options.guard,
               .to_float = std::move(to_float),
               .product_formats = {.forward = {operand, operand},
                                   .dx = {gradient, operand},
                                   .dw = {gradient, operand},
                                   .tf32 = rules.level != Level::O0 && options.dtype == DType::tf32},
               .rounding = options.rounding};
  check_dtype(options, plan);
  check_scopes(options);
  plan.white = ops_from_names(options, "white", options.white);
  plan.black = ops_from_names(options, "black", options.black);
  check_disjoint(options, plan);
  apply_overrides(options, plan);
  check_promotion(options, plan);
  if (options.allow_banned && options.dialect != Dialect::apex)
    refuse("allow_banned", "true",
           "apex alone lets banned ops through; amp.dialect is " + quoted(name_of(options.dialect)));
  check_fp8(options, plan);
  apply_recipe(options, plan);
  check_rounding(options, plan);
  return plan;
}

}  // namespace fp16lab::engine::amp
