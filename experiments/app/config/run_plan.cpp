#include "experiments/app/config/run_plan.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/train/rescue.hpp"
#include "experiments/app/config/network_rows.hpp"
#include "experiments/app/exit_code.hpp"
#include "experiments/app/run/run_backend.hpp"
#include "numerics/gemm/library_plan.hpp"
#include "numerics/tensor_core/tensor_core_model.hpp"

namespace fp16lab::experiments {
namespace {

constexpr std::string_view fp8_is_emulated = "products of FP8 are emulated only";
constexpr std::string_view recipes_are_emulated = "operands with scales for blocks are emulated only";
constexpr std::string_view f16_sums_are_emulated = "sums of products in FP16 are emulated only";
constexpr std::string_view saturation_is_emulated = "no GPU saturates results; that is emulated only";

/// Sums in FP16 are of products of FP16, on the emulated back end, where the row has them. `uses`: is there
/// a product of this format?
template <class Uses>
void check_accumulator(const BackendConfig& backend, const Uses& uses) {
  if (backend.accumulator == DType::f32) return;
  constexpr std::string_view key = "backend.accumulator = \"f16\"";
  if (backend.device == Device::cuda)
    throw std::invalid_argument(
        fmt::format("{} with backend.device = \"cuda\": {}; expected backend.device = \"emulated\"", key,
                    f16_sums_are_emulated));
  for (const auto& [format, name] : {std::pair{DType::bf16, "BF16"}, std::pair{DType::tf32, "TF32"}})
    if (uses(format))
      throw std::invalid_argument(fmt::format(
          "{} with {}: tensor cores sum products of {} in FP32 only; expected backend.accumulator = \"f32\", "
          "or FP16 in amp.dtype and amp.to_float",
          key, name, name));
  const std::optional<std::string_view> row = configured_tensor_core(backend);
  if (!row) return;
  try {
    tensor_core_model(*row, DType::f16, DType::f16);
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(fmt::format("{}: {}", key, error.what()));
  }
}

constexpr std::string_view libraries_are_emulated = "orders of libraries are emulated only";

/// A plan of a library is on the emulated back end, where it takes the row and the formats of the products.
void check_library(const BackendConfig& backend, std::span<const DType> formats) {
  if (backend.library == library_plans().front().name) return;
  const std::string key = fmt::format("backend.library = \"{}\"", backend.library);
  if (backend.device == Device::cuda)
    throw std::invalid_argument(
        fmt::format("{} with backend.device = \"cuda\": {}; expected backend.device = \"emulated\"", key,
                    libraries_are_emulated));
  if (backend.accumulator != DType::f32)
    throw std::invalid_argument(
        fmt::format("{} with backend.accumulator = \"{}\": its partial sums are FP32; expected "
                    "backend.accumulator = \"f32\"",
                    key, name_of(backend.accumulator)));
  const std::optional<std::string_view> row = configured_tensor_core(backend);
  if (!row) return;
  try {
    for (const DType format : formats)
      library_plan(backend.library)
          .product(planned_row(library_plan(backend.library), *row, format, format, DType::f32),
                   {.shape = {64, 64, 64}, .a = format, .b = format});
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

/// What the training method cannot do, in the engine's own words.
void check_method(const RunPlan& plan) {
  std::unique_ptr<engine::TrainingMethod> method = std::make_unique<engine::Supervised>();
  if (auto other = make_method(plan.config)) method = std::move(other);
  engine::check_per_loss(plan.scaler, method->losses());
  engine::check_rescue(plan.scaler, *method);
  engine::check_graph(plan.train, *method);
}

/// What [optimizer.MODEL] sections make of [optimizer].
std::map<std::string, engine::optim::OptimizerOptions, std::less<>> own_optimizers(const RunConfig& config) {
  std::map<std::string, engine::optim::OptimizerOptions, std::less<>> all;
  for (const auto& [model, said] : config.own_optimizers) {
    if (said.empty()) continue;
    RunConfig whole = config;
    for (const auto& [field, value] : said) {
      const auto key = std::ranges::find(config_keys(), "optimizer." + field, &ConfigKey::name);
      key->write(whole, value);
    }
    all.emplace(model, whole.optimizer);
  }
  return all;
}

/// std::invalid_argument.
RunPlan resolved(RunConfig config) {
  resolve_names(config);
  engine::amp::AmpOptions amp = config.amp;
  for (std::string& row : to_float_of(config.model.rows)) amp.to_float.push_back(std::move(row));
  RunPlan plan{engine::plan_training(config.train, amp, config.scaler, config.optimizer, config.parallel,
                                     own_optimizers(config)),
               std::move(config)};
  check_products(plan, plan.config.backend);
  engine::check(plan.parallel, plan.config.train.batch_size);
  if (plan.parallel.shards > 1 && plan.config.backend.library != library_plans().front().name)
    throw std::invalid_argument(
        fmt::format("parallel.shards = {} with backend.library = \"{}\": the order would depend on how many "
                    "shards a rank has; expected parallel.shards = 1 for it",
                    plan.parallel.shards, plan.config.backend.library));
  if (plan.parallel.shards > 1 && plan.config.observe.explain_overflow)
    throw std::invalid_argument(
        fmt::format("parallel.shards = {} with observe.explain_overflow = true: values are followed in one "
                    "shard only; expected parallel.shards = 1 for it",
                    plan.parallel.shards));
  return plan;
}

}  // namespace

RunPlan resolve_run(RunConfig config) {
  try {
    return resolved(std::move(config));
  } catch (const std::invalid_argument& error) {
    throw CommandError(ExitCode::usage, error.what());
  }
}

RunPlan resolve_run(RunConfig config, std::string_view where) {
  require_read(settings_unread(config), config, where);
  check_task(config, where);
  if (config.train.steps == 0 && config.train.epochs == 0)
    refuse_config(where, "train.steps and train.epochs are both 0: expected one of them to be 1 or more");
  try {
    RunPlan plan = resolved(std::move(config));
    check_method(plan);
    return plan;
  } catch (const std::invalid_argument& error) {
    refuse_config(where, error.what());
  }
}

void check_products(const RunPlan& plan, const BackendConfig& backend) {
  const engine::amp::AmpPlan& amp = plan.amp;
  const auto require = [&](DType format, std::string_view key, std::string_view value) {
    const std::optional<std::string_view> row = configured_tensor_core(backend);
    if (!row || multiplies(*row, format)) return;
    std::vector<std::string_view> fitting;
    for (const std::string_view name : fp16lab::tensor_core_names())
      if (multiplies(name, format)) fitting.push_back(name);
    throw std::invalid_argument(fmt::format(
        "{} = \"{}\" with backend.tensor_core = \"{}\": these tensor cores have no {} products; expected one "
        "of {}",
        key, value, *row, name_of(format), fmt::join(fitting, ", ")));
  };
  const auto names = [&](DType dtype) {
    return std::any_of(amp.to_float.begin(), amp.to_float.end(),
                       [dtype](const engine::amp::ToFloat& entry) { return entry.dtype == dtype; });
  };
  const auto is_low = [&](DType dtype) { return amp.level != engine::amp::Level::O0 && amp.low == dtype; };
  if (backend.overflow == engine::FloatOverflow::saturate && backend.device == Device::cuda)
    throw std::invalid_argument(fmt::format(
        "backend.overflow = \"saturate\" with backend.device = \"cuda\": {}; expected backend.device "
        "= \"emulated\"",
        saturation_is_emulated));
  check_accumulator(backend, [&](DType dtype) { return is_low(dtype) || names(dtype); });
  std::vector<DType> planned;
  const std::optional<DType> fp8 = amp.product_formats.forward.a.fp8;
  if (fp8) planned.push_back(*fp8);
  for (const DType format : {DType::f16, DType::bf16})
    if ((is_low(format) && !fp8) || names(format)) planned.push_back(format);
  check_library(backend, planned);
  for (const DType low : {DType::bf16, DType::tf32})
    if (is_low(low)) require(low, "amp.dtype", name_of(low));
  if (names(DType::bf16)) require(DType::bf16, "amp.to_float", "bf16");
  const auto check_fp8 = [&](std::optional<DType> rounding, std::string_view key) {
    if (!rounding) return;
    if (backend.device == Device::cuda)
      throw std::invalid_argument(fmt::format(
          "{} = \"{}\" with backend.device = \"cuda\": {}; expected backend.device = \"emulated\"", key,
          name_of(*rounding), fp8_is_emulated));
    require(*rounding, key, name_of(*rounding));
  };
  check_fp8(amp.product_formats.forward.a.fp8, "amp.fp8_operands");
  check_fp8(amp.product_formats.dx.a.fp8, "amp.fp8_gradients");
  if (!amp.has_recipe()) return;
  const std::string key = fmt::format("amp.recipe = \"{}\"", plan.config.amp.recipe);
  if (backend.device == Device::cuda)
    throw std::invalid_argument(
        fmt::format("{} with backend.device = \"cuda\": {}; expected backend.device = \"emulated\"", key,
                    recipes_are_emulated));
  if (backend.library != library_plans().front().name)
    throw std::invalid_argument(
        fmt::format("{} with backend.library = \"{}\": its plan has no rule for operands with scales for "
                    "blocks; expected "
                    "backend.library = \"{}\"",
                    key, backend.library, library_plans().front().name));
  const Quantizer& of_x = *amp.product_formats.forward.a.quantizer;
  if (of_x.scale == DType::f32) require(of_x.element, "amp.recipe", plan.config.amp.recipe);
}

std::string_view needs_emulation(const RunConfig& config) {
  if (config.backend.accumulator == DType::f16) return f16_sums_are_emulated;
  if (config.backend.overflow == engine::FloatOverflow::saturate) return saturation_is_emulated;
  if (config.backend.library != library_plans().front().name) return libraries_are_emulated;
  if (config.amp.recipe != "none") return recipes_are_emulated;
  return config.amp.fp8_operands || config.amp.fp8_gradients ? fp8_is_emulated : std::string_view();
}

double scale_left_to_optimizer(const engine::TrainingPlan& plan) {
  if (!plan.scaler.enabled || plan.scaler.drop_overflow_update) return 1;
  return plan.policy.values.find("initial_scale").value_or(1);
}

}  // namespace fp16lab::experiments
