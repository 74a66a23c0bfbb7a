// Levels: what O0, OD, O1, O2, O3, auto and auto-r1.7 mean in each framework's dialect, as data.
//
// A level says two things: what happens at op dispatch (op lists, engine/amp/levels/op_lists.hpp) and what
// the model is made of (dtypes of parameters, gradients, inputs and outputs). AmpOptions is what a user
// writes; resolve() checks it and gives the AmpPlan that everything else follows, with no option left open.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/autograd/cast_policy.hpp"
#include "engine/autograd/op.hpp"
#include "numerics/formats/dtype.hpp"
#include "numerics/text/named_enum.hpp"

namespace fp16lab::engine::amp {

/// Whose levels and op lists.
enum class Dialect { torch, paddle, mindspore, apex };
constexpr std::array<std::string_view, 4> names_of(Dialect) {
  return {"torch", "paddle", "mindspore", "apex"};
}

enum class Level {
  O0,              ///< FP32
  OD,              ///< paddle: only the white list in 16 bits
  O1,              ///< op lists on FP32 parameters
  O2,              ///< a 16-bit model (norms in FP32), with or without master weights
  O3,              ///< 16 bits throughout
  automatic,       ///< "auto", mindspore 2.x: lists of primitives, on FP32 parameters
  automatic_r1_7,  ///< "auto-r1.7", mindspore before 2.x: O2 on a GPU, which both back ends model
};

constexpr std::array<std::string_view, 7> names_of(Level) {
  return {"O0", "OD", "O1", "O2", "O3", "auto", "auto-r1.7"};
}
/// The levels that a dialect has, O0 first.
std::span<const Level> levels_of(Dialect dialect);

/// Is the bias of a linear layer or a convolution a part of the product, so that one list entry decides about
/// both? Not in paddle, nor in mindspore's auto: see CastPolicy::fuses_bias.
bool fuses_bias(Dialect dialect, Level level);

/// What becomes of an op that is in no list.
enum class Unlisted {
  follow,  ///< 16 bits only if all of its floating inputs are; mixed inputs promote to the widest
  wide,    ///< FP32 (paddle's OD)
  low,     ///< 16 bits (paddle's O2 with use_promote = false)
};

/// What a level means where the user's options do not say otherwise. "low" is AmpOptions::dtype.
struct LevelRules {
  Level level = Level::O0;
  bool uses_lists = false;  ///< white ops in low, black ops in FP32, cast at dispatch
  Unlisted unlisted = Unlisted::follow;
  bool widens_white_results = false;   ///< a white op's result is cast back to FP32 (mindspore O1)
  bool narrows_black_results = false;  ///< a black op's result is cast back to low (mindspore O2)
  bool low_model = false;              ///< parameters are low, but those of norms that stay FP32:
  bool batch_norm_f32 = true;
  bool layer_norm_f32 = true;        ///< paddle: for f16 only
  bool low_statistics = false;       ///< BatchNorm's running statistics are low where its parameters are
  bool master_weights = true;        ///< for a low model: FP32 copies of its weights take the updates
  bool low_gradients = false;        ///< for a low model: gradients add up in low
  bool unscales_to_f32 = true;       ///< for low gradients with master weights
  bool low_inputs = false;           ///< floating inputs of the network are cast to low
  bool f32_outputs = false;          ///< outputs of the network are cast to FP32 before the loss
  std::string_view scaler = "none";  ///< the framework's own loss-scale policy at this level
  bool brings_scaler = false;    ///< the level itself makes that scaler; false: the user does (torch, paddle)
  std::string_view source = {};  ///< file and function of the framework that says so
};
/// std::invalid_argument naming the dialect's levels if it has no such one.
const LevelRules& level_rules(Dialect dialect, Level level);

/// A pattern of module paths and a dtype: "fc3=f32".
struct ToFloat {
  std::string pattern;
  DType dtype = DType::f32;
};

/// What is rounded stochastically to 16 bits, and not to nearest: updates of weights without a master copy
/// (WeightStore, engine/backend/update.hpp), gradients in backward passes
/// (StepContext::stochastic_gradients), or both.
enum class LowRounding { nearest, stochastic, stochastic_weights, stochastic_gradients };

/// Patterns match a module path and all modules inside it; '*' matches any characters, '?' one. "fc2" matches
/// the scopes "fc2" and "fc2.gate", not "fc21".
struct AmpOptions {
  Level level = Level::O0;
  /// low: f16 or bf16; ignored at O0. tf32 at levels of op lists alone (OD, O1, auto): tensors stay FP32,
  /// and products that would be low round their operands to TF32 on the way into the tensor core, as
  /// PyTorch's allow_tf32 lets them.
  DType dtype = DType::f16;
  Dialect dialect = Dialect::torch;
  std::vector<std::string> white =
      {};  ///< ops moved to a list, by our name or the dialect's ("elementwise_add");
  std::vector<std::string> black = {};     ///< an op in both is an error
  std::vector<std::string> excluded = {};  ///< layers that stay FP32: their parameters and what they compute
  bool use_guard = false;  ///< low only inside guarded regions: scopes that match `guard`, and
  std::vector<std::string> guard =
      {};  ///< Fp16Region objects (engine/amp/levels/autocast.hpp); elsewhere FP32
  /// "PATTERN=DTYPE", such as "fc3=f32": wins over lists, levels, excluded and guard; the last match counts.
  std::vector<std::string> to_float = {};
  /// BatchNorm's parameters stay FP32; in mindspore it also decides in what BatchNorm and LayerNorm compute:
  /// true as at O2, false as at O3.
  std::optional<bool> keep_batchnorm_fp32 = {};
  std::optional<bool> master_weights = {};
  std::optional<bool> master_gradients = {};  ///< true: gradients of a low model add up in FP32
  std::optional<bool> low_inputs = {};        ///< default: as the level says
  std::optional<bool> low_loss =
      {};                     ///< true: a network's low output goes into the loss unchanged, and the loss is
                              ///< rounded to low; default false: outputs are cast to FP32 first
  bool use_promote = true;    ///< paddle's O2: false makes unlisted ops low
  bool allow_banned = false;  ///< compute banned ops in FP32 instead of refusing them (apex)
  std::optional<DType> fp8_operands{};  ///< for matmul and linear in 16 bits: an experiment
  std::optional<DType> fp8_gradients{};
  /// Scales for blocks in linear layers: a row of recipes() (engine/amp/levels/recipe.hpp), or none.
  std::string recipe = "none";
  bool recipe_stochastic = true, recipe_hadamard = true, recipe_2d = true;  ///< parts of nvfp4
  std::vector<std::string> recipe_wide = {};                                ///< layers that stay in 16 bits
  LowRounding rounding = LowRounding::nearest;
};

/// AmpOptions after resolution: checked, and nothing open.
struct AmpPlan {
  Dialect dialect = Dialect::torch;
  Level level = Level::O0;  ///< never automatic_r1_7
  DType low = DType::f16;   ///< tf32: for products alone, see AmpOptions::dtype
  LevelRules rules = {};    ///< with the user's overrides; all false at O0
  bool low_loss = false;
  bool allow_banned = false;
  bool use_guard = false;
  std::vector<std::string> excluded = {}, guard = {};
  std::vector<ToFloat> to_float = {};
  std::vector<Op> white = {}, black = {};  ///< custom lists, in our ops
  ProductFormats product_formats = {};
  std::vector<std::string> recipe_wide = {};
  LowRounding rounding = LowRounding::nearest;

  /// Are weights 16 bits wide, without an FP32 copy? Some may stay FP32 all the same.
  bool low_weights() const { return rules.low_model && !rules.master_weights; }
  /// Which roundings are stochastic? "stochastic" means all that there are.
  bool stochastic_weights() const {
    return rounding == LowRounding::stochastic_weights ||
           (rounding == LowRounding::stochastic && low_weights());
  }
  bool stochastic_gradients() const {
    return rounding == LowRounding::stochastic || rounding == LowRounding::stochastic_gradients;
  }
  bool has_recipe() const { return product_formats.forward.a.quantizer != nullptr; }
  /// Is anything to be decided at op dispatch? False for O0 without to_float.
  bool acts() const { return level != Level::O0 || !to_float.empty(); }
};

/// Checks everything that concerns several options at once. std::invalid_argument "amp.KEY = VALUE: ..."
/// naming what would be right: an entry of to_float that is not PATTERN=DTYPE; a level that the dialect does
/// not have; a dtype that is not f16 or bf16, nor tf32 where that can be; an unknown op name (with the
/// nearest known one); an op in both lists; an override without meaning at the level (master_weights at O1,
/// as apex refuses it); allow_banned outside apex; FP8 operands or a recipe where none has 16 bits, or both;
/// a part of a recipe that it has not; stochastic rounding
/// where nothing is rounded to 16 bits, or, of weights, where none has 16.
AmpPlan resolve(const AmpOptions& options);

/// What patterns can name in a network.
struct NetworkNames {
  std::vector<std::string> layers;      ///< scopes of its ops: "fc1", "h0.attn.scores", "loss"
  std::vector<std::string> parameters;  ///< "fc1.weight"
};
/// std::invalid_argument "amp.KEY = PATTERN: ..." with the nearest name for a pattern of excluded, guard,
/// to_float or recipe_wide that matches nothing. Parameters count, but not for recipe_wide, where the model is
/// low, and at O0, where there is nothing to name; elsewhere they are FP32 whatever a pattern says.
void check_patterns(const AmpPlan& plan, const NetworkNames& names);

/// Does `pattern` match the module path? See AmpOptions.
bool matches(std::string_view pattern, std::string_view path);
bool matches_any(std::span<const std::string> patterns, std::string_view path);

}  // namespace fp16lab::engine::amp
