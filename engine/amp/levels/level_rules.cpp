// The levels of the four dialects, one row each.
#include <array>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/amp/levels/level.hpp"
#include "numerics/text/nearest_name.hpp"

namespace fp16lab::engine::amp {

namespace {

/// FP32: nothing is cast, nothing is kept apart.
constexpr LevelRules fp32(std::string_view source) {
  return {.level = Level::O0,
          .batch_norm_f32 = false,
          .layer_norm_f32 = false,
          .master_weights = false,
          .unscales_to_f32 = false,
          .source = source};
}

/// Op lists on FP32 parameters: the rules for low models do not apply.
constexpr LevelRules lists(Level level, Unlisted unlisted, std::string_view scaler, std::string_view source) {
  LevelRules rules = fp32(source);
  rules.level = level;
  rules.uses_lists = true;
  rules.unlisted = unlisted;
  rules.scaler = scaler;
  return rules;
}

constexpr std::array torch_rules = {
    fp32("torch/amp/autocast_mode.py: autocast(enabled=False)"),
    // torch has no levels; its autocast is what the others call O1.
    lists(Level::O1, Unlisted::follow, "torch", "aten/src/ATen/autocast_mode.h; torch/amp/grad_scaler.py"),
};

constexpr std::array paddle_rules = {
    fp32("python/paddle/amp/auto_cast.py: amp_guard"),
    lists(Level::OD, Unlisted::wide, "paddle",
          "python/paddle/amp/amp_lists.py; paddle/fluid/eager/amp_utils.h"),
    lists(Level::O1, Unlisted::follow, "paddle",
          "python/paddle/amp/amp_lists.py; paddle/fluid/eager/amp_utils.h"),
    LevelRules{
        .level = Level::O2,
        .uses_lists = true,
        .unlisted = Unlisted::follow,
        .low_model = true,
        .batch_norm_f32 = true,
        .layer_norm_f32 = true,  // where low is f16: need_keep_fp32 keeps LayerNorm for float16 only
        .master_weights = true,  // master_weight = None means multi-precision optimizers
        .low_gradients = true,   // without master_grad
        .unscales_to_f32 = false,
        .low_inputs = false,  // white ops cast them when they come
        // Paddle's own loss follows its inputs: FP16 where logits and labels are, FP32 where the labels are
        // FP32. Here it is FP32 in every dialect unless low_loss asks for the other.
        .f32_outputs = true,
        .scaler = "paddle",
        .source =
            "python/paddle/amp/auto_cast.py: amp_decorate, need_keep_fp32; amp_lists.py: EXTRA_BLACK_LIST"},
};

/// Parameters are stored in FP32 and cast where they are used; their gradients are FP32.
constexpr LevelRules mindspore_low(Level level, bool norms_f32, std::string_view scaler,
                                   std::string_view source) {
  return {.level = level,
          .uses_lists = norms_f32,
          .unlisted = Unlisted::follow,
          .narrows_black_results = norms_f32,  // _OutputTo16 around each cell of the black list
          .low_model = true,
          .batch_norm_f32 = norms_f32,
          .layer_norm_f32 = norms_f32,
          .master_weights = true,
          .low_gradients = false,
          .unscales_to_f32 = true,
          .low_inputs = true,   // network.to_float(float16)
          .f32_outputs = true,  // _OutputTo32
          .scaler = scaler,
          .brings_scaler = scaler != "none",
          .source = source};
}

constexpr LevelRules mindspore_o1_rules() {
  LevelRules rules = lists(Level::O1, Unlisted::follow, "none", "mindspore/train/amp.py: _auto_white_list");
  rules.widens_white_results = true;  // "insert cast float32 after the operators"
  return rules;
}

/// 2.x decides primitive by primitive, without a scaler; WithLossCell casts what the network gives to FP32.
constexpr LevelRules mindspore_auto_rules() {
  LevelRules rules = lists(Level::automatic, Unlisted::follow, "none",
                           "mindspore/train/amp.py (2.10): AMP_AUTO_WHITE_LIST, AMP_AUTO_BLACK_LIST, "
                           "_config_level, _add_loss_network");
  rules.f32_outputs = true;
  return rules;
}

constexpr std::array mindspore_rules = {
    fp32("mindspore/train/amp.py: _config_level"),
    mindspore_o1_rules(),
    mindspore_auto_rules(),
    mindspore_low(Level::O2, true, "mindspore", "mindspore/train/amp.py: _auto_black_list, _config_level"),
    mindspore_low(Level::O3, false, "none", "mindspore/train/amp.py: auto_mixed_precision, _config_level"),
};

/// convert_network or .half(); the patched forward casts inputs to FP16 and outputs to FP32.
constexpr LevelRules apex_low(Level level, bool guarded, std::string_view scaler) {
  return {.level = level,
          .uses_lists = false,
          .unlisted = Unlisted::follow,
          .low_model = true,
          .batch_norm_f32 = guarded,
          .layer_norm_f32 = false,
          .low_statistics = true,  // model.to(float16), where convert_network does not keep BatchNorm's
          .master_weights = guarded,
          .low_gradients = true,
          .unscales_to_f32 = guarded,  // unscaled from the model's gradients into the master weights'
          .low_inputs = true,
          .f32_outputs = true,
          .scaler = scaler,
          .brings_scaler = scaler != "none",
          .source = "apex e13873de: apex/amp/frontend.py; _initialize.py; _process_optimizer.py"};
}

constexpr LevelRules apex_o1() {
  LevelRules rules =
      lists(Level::O1, Unlisted::follow, "apex", "apex e13873de: apex/amp/frontend.py: O1; apex/amp/lists");
  rules.brings_scaler = true;
  return rules;
}

constexpr std::array apex_rules = {
    fp32("apex e13873de: apex/amp/frontend.py: O0"),
    apex_o1(),
    apex_low(Level::O2, true, "apex"),
    apex_low(Level::O3, false, "none"),
};

constexpr std::array torch_levels = {Level::O0, Level::O1};
constexpr std::array paddle_levels = {Level::O0, Level::OD, Level::O1, Level::O2};
constexpr std::array mindspore_levels = {Level::O0, Level::O1,        Level::O2,
                                         Level::O3, Level::automatic, Level::automatic_r1_7};
constexpr std::array apex_levels = {Level::O0, Level::O1, Level::O2, Level::O3};

std::span<const LevelRules> rules_of(Dialect dialect) {
  switch (dialect) {
    case Dialect::torch:
      return torch_rules;
    case Dialect::paddle:
      return paddle_rules;
    case Dialect::mindspore:
      return mindspore_rules;
    case Dialect::apex:
      return apex_rules;
  }
  throw std::logic_error("amp: unknown dialect");
}

}  // namespace

std::span<const Level> levels_of(Dialect dialect) {
  switch (dialect) {
    case Dialect::torch:
      return torch_levels;
    case Dialect::paddle:
      return paddle_levels;
    case Dialect::mindspore:
      return mindspore_levels;
    case Dialect::apex:
      return apex_levels;
  }
  throw std::logic_error("amp: unknown dialect");
}

bool fuses_bias(Dialect dialect, Level level) {
  return dialect != Dialect::paddle && !(dialect == Dialect::mindspore && level == Level::automatic);
}

const LevelRules& level_rules(Dialect dialect, Level level) {
  // r1.7's "auto" (mindspore/train/amp.py: _check_level) is O2 on a GPU, O3 on Ascend.
  const Level meant = dialect == Dialect::mindspore && level == Level::automatic_r1_7 ? Level::O2 : level;
  for (const LevelRules& rules : rules_of(dialect))
    if (rules.level == meant) return rules;
  std::string known;
  for (const Level one : levels_of(dialect)) known += (known.empty() ? "" : ", ") + std::string(name_of(one));
  std::vector<std::string_view> others;
  for (const Dialect other : every<Dialect>)
    for (const Level one : levels_of(other))
      if (one == level) others.push_back(name_of(other));
  std::string way;  // "; for O2 set amp.dialect to paddle, mindspore or apex"
  for (std::size_t i = 0; i < others.size(); ++i)
    way += (i == 0                   ? "; for " + std::string(name_of(level)) + " set amp.dialect to "
            : i + 1 == others.size() ? std::string(" or ")
                                     : std::string(", ")) +
           std::string(others[i]);
  throw std::invalid_argument("amp.level = \"" + std::string(name_of(level)) + "\": amp.dialect = \"" +
                              std::string(name_of(dialect)) + "\" has " + known + way);
}

}  // namespace fp16lab::engine::amp
