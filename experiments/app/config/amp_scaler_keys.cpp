// Keys amp.* and scaler.*: in which precision, and at which loss scale.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "engine/amp/levels/recipe.hpp"
#include "experiments/app/config/config_key_rows.hpp"
#include "experiments/app/registry.hpp"

namespace fp16lab::experiments::keys {

namespace {

Named<std::optional<bool>> auto_or_bool() { return {{"auto", {}}, {"true", true}, {"false", false}}; }
Named<std::optional<DType>> fp8_formats() {
  Named<std::optional<DType>> formats{{"none", {}}};
  for (const DType dtype : dtypes<is_fp8>) formats.emplace_back(name_of(dtype), dtype);
  return formats;
}
Choices recipe_names() {
  Choices names{"none"};
  for (const engine::amp::Recipe& recipe : engine::amp::recipes()) names.emplace_back(recipe.name);
  return names;
}
Named<std::optional<DType>> saved_dtypes() {
  return {{"", {}}, {"f32", DType::f32}, {"f16", DType::f16}, {"bf16", DType::bf16}, {"f64", DType::f64}};
}
Named<engine::amp::PowerOfTwo> powers_of_two() {
  using enum engine::amp::PowerOfTwo;
  return {{"any", any}, {"warn", warn}, {"round_down", round_down}};
}
Named<engine::amp::LowRounding> low_roundings() {
  using enum engine::amp::LowRounding;
  return {{"nearest", nearest},
          {"stochastic", stochastic},
          {"stochastic_weights", stochastic_weights},
          {"stochastic_gradients", stochastic_gradients}};
}

/// Which policies have a parameter; long lists are those of `fp16lab list policies`.
std::string users_of(const std::string& parameter) {
  constexpr std::size_t most_named = 6;
  std::vector<std::string_view> with, without;
  for (const engine::amp::PolicyDescription& policy : engine::amp::scale_policies())
    (policy.find(parameter) != nullptr ? with : without).push_back(policy.name);
  if (with.size() <= most_named) return fmt::format("{}", fmt::join(with, ", "));
  if (without.size() <= most_named) return fmt::format("every policy but {}", fmt::join(without, ", "));
  return fmt::format("{} policies: list policies", with.size());
}

/// A parameter of loss-scale policies.
ConfigKey parameter_key(const engine::amp::PolicyParameter& parameter) {
  const std::string name(parameter.name);
  const bool common = std::ranges::any_of(engine::amp::guard_parameters,
                                          [&name](const auto& guard) { return guard.name == name; });
  const auto read = [name](const RunConfig& config) -> ConfigValue {
    if (config.scaler.policy == automatic_policy) return {};
    const std::optional<double> value = config.scaler.parameter(name);
    return value ? ConfigValue(*value) : ConfigValue();
  };
  const auto write = [name](RunConfig& config, const ConfigValue& value) {
    config.scaler.parameters.insert_or_assign(name, std::get<double>(value));
  };
  return {
      .name = "scaler." + name,
      .type = ConfigType::parameter,
      .read = read,
      .write = write,
      .doc = fmt::format("{} (of {})", parameter.help, common ? "every policy" : users_of(name)),
      .range = {parameter.minimum, parameter.maximum, parameter.minimum_excluded, parameter.maximum_excluded},
      .parameter = &parameter};
}

}  // namespace

std::vector<ConfigKey> of_amp() {
  return all_as(
      KeyRole::configuration,
      {
          FP16LAB_KEY(amp.level, "O0: FP32; others as amp.dialect means them (fp16lab list shows each)",
                      named(every<engine::amp::Level>)),
          FP16LAB_KEY(amp.dtype,
                      "the 16-bit type, called low below; tf32, at O1, OD and auto: tensors stay FP32, and "
                      "operands of low products are rounded to TF32 (torch's allow_tf32)",
                      Named<DType>{{"f16", DType::f16}, {"bf16", DType::bf16}, {"tf32", DType::tf32}})
              .read_unless("amp.level", {"O0"}),
          FP16LAB_KEY(amp.dialect, "framework whose levels and op lists apply",
                      named(every<engine::amp::Dialect>)),
          FP16LAB_KEY(amp.white, "further ops that compute in low, by fp16lab's name or the dialect's")
              .read_by(anything_cast()),
          FP16LAB_KEY(amp.black, "further ops that compute in FP32").read_by(anything_cast()),
          FP16LAB_KEY(amp.excluded,
                      "patterns of layers that stay FP32; * stands for any characters, ? for one")
              .read_by(anything_cast()),
          FP16LAB_KEY(amp.use_guard,
                      "low only inside guarded regions: amp.guard, and what a model guards itself")
              .read_by(anything_cast()),
          FP16LAB_KEY(amp.guard, "patterns of guarded layers, with amp.use_guard")
              .read_with("amp.use_guard", {"true"}),
          FP16LAB_KEY(
              amp.to_float,
              "PATTERN=DTYPE (f32, f16, bf16): layers that compute in that type; overrides everything else"),
          FP16LAB_KEY(amp.keep_batchnorm_fp32,
                      "(low models) BatchNorm's parameters stay FP32; (mindspore) BatchNorm and LayerNorm "
                      "compute in FP32 (true, as at O2) or low (false, as at O3); auto: as the level says",
                      auto_or_bool())
              .read_unless("amp.level", {"O0"}),
          FP16LAB_KEY(
              amp.master_weights,
              "(low models only) FP32 copies of the weights take the updates; auto: as the level says",
              auto_or_bool())
              .read_unless("amp.level", {"O0"}),
          FP16LAB_KEY(amp.master_gradients,
                      "(low models only) gradients add up in FP32; auto: as the level says", auto_or_bool())
              .read_unless("amp.level", {"O0"}),
          FP16LAB_KEY(amp.low_inputs, "the network's inputs are cast to low; auto: as the level says",
                      auto_or_bool())
              .read_unless("amp.level", {"O0"}),
          FP16LAB_KEY(amp.low_loss, "the loss is computed from low outputs and rounded to low; auto: no",
                      auto_or_bool())
              .read_unless("amp.level", {"O0"}),
          FP16LAB_KEY(amp.use_promote,
                      "(paddle's O2 only) false makes ops in no list low, whatever their inputs")
              .read_with("amp.dialect", {"paddle"})
              .read_with("amp.level", {"O2"}),
          FP16LAB_KEY(amp.allow_banned, "(apex only) compute banned ops in FP32 instead of refusing them")
              .read_with("amp.dialect", {"apex"})
              .read_unless("amp.level", {"O0"}),
          FP16LAB_KEY(amp.fp8_operands, "an experiment: operands of products are rounded to FP8 first",
                      fp8_formats())
              .read_unless("amp.level", {"O0"}),
          FP16LAB_KEY(amp.fp8_gradients, "the same for the gradients in the products of the backward pass",
                      fp8_formats())
              .read_unless("amp.level", {"O0"}),
          FP16LAB_KEY(amp.recipe,
                      "(emulated only) linear layers multiply codes with scales for blocks, in the forward "
                      "pass and both products of the backward pass; what fills a last block is zeros, which "
                      "change nothing. Other products, and gradients of gradients, stay in low",
                      recipe_names())
              .read_unless("amp.level", {"O0"}),
          FP16LAB_KEY(amp.recipe_stochastic, "(nvfp4) codes of gradients are rounded stochastically")
              .read_with("amp.recipe", {"nvfp4"}),
          FP16LAB_KEY(
              amp.recipe_hadamard,
              "(nvfp4) both operands of a weight's gradient go through a random Hadamard transform of "
              "16 along the tokens first")
              .read_with("amp.recipe", {"nvfp4"}),
          FP16LAB_KEY(amp.recipe_2d, "(nvfp4) blocks of weights are 16 x 16, not 1 x 16")
              .read_with("amp.recipe", {"nvfp4"}),
          FP16LAB_KEY(amp.recipe_wide, "patterns of layers whose products stay in low")
              .read_unless("amp.recipe", {"none"}),
          FP16LAB_KEY(amp.rounding,
                      "to 16 bits; stochastic: up or down by chance, right on average: gradients in backward "
                      "passes, and "
                      "updates of 16-bit weights without master weights (the others: one of the two)",
                      low_roundings())
              .read_by(anything_cast()),
          FP16LAB_KEY_AS(
              "amp.save_dtype", checkpoint.save_dtype,
              "also write weights.safetensors, cast to this type, with every checkpoint and at the "
              "end; empty: no",
              saved_dtypes())
              .as(KeyRole::watching),
      });
}

std::vector<ConfigKey> of_scaler() {
  std::vector<ConfigKey> keys{
      FP16LAB_KEY(scaler.policy,
                  "how the loss scale moves; auto: the level's own (mindspore's O2 and auto-r1.7, apex's O1 "
                  "and O2), else none",
                  auto_or(policy_names())),
  };
  for (const engine::amp::PolicyParameter& parameter : engine::amp::policy_parameters())
    keys.push_back(parameter_key(parameter));
  const std::vector<ConfigKey> others{
      FP16LAB_KEY(scaler.power_of_two,
                  "scales that are not powers of two make unscaling inexact: accept them, warn, or use the "
                  "power below",
                  powers_of_two())
          .read_unless("scaler.policy", {"none"}),
      FP16LAB_KEY(scaler.enabled, "false: nothing is scaled, unscaled, checked or skipped"),
      FP16LAB_KEY(scaler.drop_overflow_update,
                  "false (policies none and fixed): gradients are neither checked nor unscaled and every "
                  "step is taken; optimizer.loss_scale must divide"),
      FP16LAB_KEY(scaler.on_overflow,
                  "what happens to a step with an overflow; zero: gradients become 0 and the optimizer steps "
                  "(static graphs of paddle; not its adam and adamw, which skip)",
                  Named<engine::amp::OnOverflow>{{"skip", engine::amp::OnOverflow::skip},
                                                 {"zero", engine::amp::OnOverflow::zero}}),
      FP16LAB_KEY(scaler.per_loss,
                  "(models with several losses: two_models, gan) each loss has its own scale; records show "
                  "that of loss 0"),
      FP16LAB_KEY(
          scaler.rescue,
          "how often the backward pass of an overflowed step is repeated at the lower scale that the policy "
          "chooses, before the step is skipped; keeps the values of all micro-batches until then. 0: never",
          ConfigRange{0, 1000}),
      FP16LAB_KEY(scaler.groups,
                  "(layerwise and groups only) PATTERN=SCALE, layers by a pattern of their weights' names, "
                  "and their initial scale (\"fc1=2^8\", \"*=2^4\"); the first match counts")
          .read_with("scaler.policy", {"layerwise", "groups"}),
  };
  keys.insert(keys.end(), others.begin(), others.end());
  return all_as(KeyRole::configuration, std::move(keys));
}

}  // namespace fp16lab::experiments::keys
