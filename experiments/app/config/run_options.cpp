#include "experiments/app/config/run_options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "engine/amp/scalers/layer_scaler.hpp"
#include "experiments/app/run/run_backend.hpp"
#include "numerics/tensor_core/tensor_core_model.hpp"

namespace fp16lab::experiments {
namespace {

/// "auto", "true" or "false": the table of keys allows nothing else.
std::optional<bool> choice(const std::string& text) {
  if (text == "auto") return std::nullopt;
  return text == "true";
}

engine::amp::ToFloat to_float(const std::string& entry) {
  const std::size_t equals = entry.rfind('=');
  if (equals != std::string::npos && equals > 0)
    if (const auto dtype = dtype_called<is_tensor_float>(std::string_view(entry).substr(equals + 1)))
      return {.pattern = entry.substr(0, equals), .dtype = *dtype};
  throw std::invalid_argument(fmt::format(
      "amp.to_float = \"{}\": expected PATTERN=DTYPE, such as \"fc3=f32\", with one of f32, f16, bf16",
      entry));
}

constexpr std::string_view fp8_is_emulated = "products of FP8 are emulated only";
constexpr std::string_view f16_sums_are_emulated = "sums of products in FP16 are emulated only";

bool rounds_to_fp8(const engine::amp::AmpPlan& plan) {
  return plan.product_formats.operands.has_value() || plan.product_formats.gradients.has_value();
}

/// Sums in FP16 are of products of FP16, on the emulated back end, where the row has them.
void check_accumulator(const RunConfig& config, bool uses_bf16) {
  if (config.backend.accumulator == name_of(DType::f32)) return;
  constexpr std::string_view key = "backend.accumulator = \"f16\"";
  if (config.backend.device == "cuda")
    throw std::invalid_argument(
        fmt::format("{} with backend.device = \"cuda\": {}; expected backend.device = \"emulated\"", key,
                    f16_sums_are_emulated));
  if (uses_bf16)
    throw std::invalid_argument(fmt::format(
        "{} with BF16: tensor cores sum products of BF16 in FP32 only; expected backend.accumulator = "
        "\"f32\", or FP16 in amp.dtype and amp.to_float",
        key));
  const std::optional<std::string_view> row = configured_tensor_core(config.backend);
  if (!row) return;
  try {
    tensor_core_model(*row, DType::f16, DType::f16);
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(fmt::format("{}: {}", key, error.what()));
  }
}

/// Do these tensor cores have products of `format` with FP32 accumulation?
bool multiplies(std::string_view tensor_core, DType format) {
  const std::span<const TensorCoreModel> rows = tensor_core_models();
  return std::any_of(rows.begin(), rows.end(), [&](const TensorCoreModel& row) {
    return row.name == tensor_core && row.operands.contains(format) && row.accumulator() == DType::f32;
  });
}

}  // namespace

engine::TrainOptions train_options(const RunConfig& config, std::uint64_t steps) {
  engine::TrainOptions options;
  options.steps = steps;
  options.accumulate = config.train.accumulate;
  options.accumulate_mode =
      config.train.accumulate_mode == "sum" ? engine::AccumulateMode::sum : engine::AccumulateMode::mean;
  options.clip_norm = config.train.clip_norm;
  options.clip_value = config.train.clip_value;
  options.seed = static_cast<std::uint64_t>(config.train.seed);
  options.evaluate_every = static_cast<std::uint64_t>(config.train.evaluate_every);
  options.skip_limit = static_cast<std::uint64_t>(config.train.skip_limit);
  options.graph = config.train.graph;
  return options;
}

engine::amp::AmpOptions amp_options(const RunConfig& config) {
  const AmpConfig& amp = config.amp;
  engine::amp::AmpOptions options;
  options.level = engine::amp::level_from_name(amp.level);
  options.dtype = amp.dtype == "bf16" ? DType::bf16 : DType::f16;
  options.dialect = engine::amp::dialect_from_name(amp.dialect);
  options.white = amp.white;
  options.black = amp.black;
  options.excluded = amp.excluded;
  options.use_guard = amp.use_guard;
  options.guard = amp.guard;
  for (const std::string& entry : amp.to_float) options.to_float.push_back(to_float(entry));
  options.keep_batchnorm_fp32 = choice(amp.keep_batchnorm_fp32);
  options.master_weights = choice(amp.master_weights);
  options.master_gradients = choice(amp.master_gradients);
  options.low_inputs = choice(amp.low_inputs);
  options.low_loss = choice(amp.low_loss);
  options.use_promote = amp.use_promote;
  options.allow_banned = amp.allow_banned;
  options.fp8_operands = dtype_called<is_fp8>(amp.fp8_operands);
  options.fp8_gradients = dtype_called<is_fp8>(amp.fp8_gradients);
  return options;
}

std::string scaler_policy(const RunConfig& config) {
  if (config.scaler.policy != "auto") return config.scaler.policy;
  const engine::amp::LevelRules& rules = engine::amp::level_rules(
      engine::amp::dialect_from_name(config.amp.dialect), engine::amp::level_from_name(config.amp.level));
  return rules.brings_scaler ? std::string(rules.scaler) : "none";
}

engine::amp::ScalerOptions scaler_options(const RunConfig& config) {
  engine::amp::ScalerOptions options;
  options.policy = scaler_policy(config);
  for (const auto& [name, value] : config.scaler.parameters)
    if (value) options.parameters.emplace(name, *value);
  options.power_of_two = config.scaler.power_of_two == "any"    ? engine::amp::PowerOfTwo::any
                         : config.scaler.power_of_two == "warn" ? engine::amp::PowerOfTwo::warn
                                                                : engine::amp::PowerOfTwo::round_down;
  options.enabled = config.scaler.enabled;
  options.drop_overflow_update = config.scaler.drop_overflow_update;
  options.per_loss = config.scaler.per_loss;
  options.rescue = config.scaler.rescue;
  for (const std::string& group : config.scaler.groups)
    options.groups.push_back(engine::amp::scale_group(group));
  return options;
}

engine::optim::OptimizerOptions optimizer_options(const RunConfig& config, std::uint64_t steps) {
  engine::optim::OptimizerOptions options;
  options.name = config.optimizer.name;
  options.learning_rate = config.optimizer.lr;
  options.momentum = config.optimizer.momentum;
  options.nesterov = config.optimizer.nesterov;
  options.weight_decay = config.optimizer.weight_decay;
  options.beta1 = config.optimizer.beta1;
  options.beta2 = config.optimizer.beta2;
  options.epsilon = config.optimizer.epsilon;
  options.loss_scale = config.optimizer.loss_scale;
  options.schedule.name = config.schedule.name;
  options.schedule.warmup_steps = static_cast<std::uint64_t>(config.schedule.warmup_steps);
  options.schedule.total_steps =
      config.schedule.total_steps == 0 ? steps : static_cast<std::uint64_t>(config.schedule.total_steps);
  options.schedule.minimum_factor = config.schedule.minimum_factor;
  options.schedule.step_interval = static_cast<std::uint64_t>(config.schedule.step_interval);
  options.schedule.step_factor = config.schedule.step_factor;
  return options;
}

std::optional<DType> save_dtype(const RunConfig& config) {
  if (config.amp.save_dtype == name_of(DType::f64)) return DType::f64;
  return dtype_called<is_tensor_float>(config.amp.save_dtype);
}

void check_precision(const RunConfig& config) {
  const engine::amp::AmpPlan plan = engine::amp::resolve(amp_options(config));
  engine::amp::make_scale_policy(scaler_options(config));
  engine::check(train_options(config, 1), scaler_options(config));
  engine::amp::scales_layers(scaler_options(config), plan);

  const auto require = [&](DType format, std::string_view key, std::string_view value) {
    const std::optional<std::string_view> row = configured_tensor_core(config.backend);
    if (!row || multiplies(*row, format)) return;
    std::vector<std::string_view> fitting;
    for (const std::string_view name : fp16lab::tensor_core_names())
      if (multiplies(name, format)) fitting.push_back(name);
    throw std::invalid_argument(fmt::format(
        "{} = \"{}\" with backend.tensor_core = \"{}\": these tensor cores have no {} products; expected one "
        "of {}",
        key, value, *row, name_of(format), fmt::join(fitting, ", ")));
  };
  const auto uses = [&](DType dtype) {
    return std::any_of(plan.to_float.begin(), plan.to_float.end(),
                       [dtype](const engine::amp::ToFloat& entry) { return entry.dtype == dtype; });
  };
  const bool low_is_bf16 = plan.level != engine::amp::Level::O0 && plan.low == DType::bf16;
  check_accumulator(config, low_is_bf16 || uses(DType::bf16));
  if (low_is_bf16) require(DType::bf16, "amp.dtype", config.amp.dtype);
  if (uses(DType::bf16)) require(DType::bf16, "amp.to_float", "bf16");
  const auto check_fp8 = [&](engine::Fp8Rounding rounding, std::string_view key, std::string_view value) {
    if (rounding.has_value() && config.backend.device == "cuda")
      throw std::invalid_argument(fmt::format(
          "{} = \"{}\" with backend.device = \"cuda\": {}; expected backend.device = \"emulated\"", key,
          value, fp8_is_emulated));
    if (rounding) require(*rounding, key, value);
  };
  check_fp8(plan.product_formats.operands, "amp.fp8_operands", config.amp.fp8_operands);
  check_fp8(plan.product_formats.gradients, "amp.fp8_gradients", config.amp.fp8_gradients);
}

std::string_view needs_emulation(const RunConfig& config) {
  if (config.backend.accumulator == name_of(DType::f16)) return f16_sums_are_emulated;
  return rounds_to_fp8(engine::amp::resolve(amp_options(config))) ? fp8_is_emulated : std::string_view();
}

double scale_left_to_optimizer(const RunConfig& config) {
  const ScalerConfig& scaler = config.scaler;
  if (!scaler.enabled || scaler.drop_overflow_update || scaler_policy(config) == "none") return 1;
  return scaler.parameter("initial_scale").value_or(1);
}

}  // namespace fp16lab::experiments
