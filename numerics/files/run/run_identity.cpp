#include "numerics/files/run/run_identity.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>

#include "numerics/text/scale_text.hpp"

namespace fp16lab {
namespace {

std::uint64_t count_or_0(const RunIdentity::Keys& keys, std::string_view key) {
  const std::string text = value_or(keys, key, "0");
  std::uint64_t count = 0;
  std::from_chars(text.data(), text.data() + text.size(), count);
  return count;
}

std::string label_of(const RunIdentity& run, const RunIdentity::Keys& all) {
  const std::string dtype = value_or(all, "amp.dtype", "f16");
  std::string label = run.fp32 ? "FP32" : format_name(dtype);
  if (!run.fp32) {
    // The dialect defines the levels; torch's O1 is the default.
    const std::string dialect = value_or(all, "amp.dialect", "torch");
    const std::string level = value_or(all, "amp.level", "O0");
    if (dialect != "torch") label += " " + dialect;
    if (level != "O1" || dialect != "torch") label += " " + level;
  }
  if (run.scaling == Scaling::fixed)
    label += " S=" + scale_text(run.scale);
  else if (run.scaling == Scaling::adaptive)
    label += " " + run.policy;
  else if (!run.fp32 && dtype != "tf32")  // it has FP32's range and needs no scaling
    label += " no scaling";
  if (!run.fp32 && value_or(all, "backend.accumulator", "") == "f16") label += ", FP16 acc";
  if (const std::string plan = value_or(all, "backend.library", "instruction");
      !run.fp32 && plan != "instruction")
    label += ", " + plan;
  if (!run.fp32 && value_or(all, "backend.overflow", "") == "saturate") label += ", saturating";
  if (const std::string recipe = value_or(all, "amp.recipe", "none"); !run.fp32 && recipe != "none")
    label += ", " + recipe;
  if (value_or(all, "scaler.on_overflow", "") == "zero") label += ", zeros at overflow";
  if (value_or(all, "optimizer.kahan", "") == "true") label += ", Kahan";
  if (std::string rounding = value_or(all, "amp.rounding", "nearest"); rounding != "nearest") {
    std::ranges::replace(rounding, '_', ' ');
    label += ", " + rounding;
  }
  if (run.is_twin())
    label += " twin";
  else if (run.perturb_ulps != 0)
    label += fmt::format(" +{} ulp{}", run.perturb_ulps, run.perturb_ulps == 1 ? "" : "s");
  return label;
}

}  // namespace

std::string RunIdentity::value(std::string_view configuration_key) const {
  return value_or(configuration_keys, configuration_key, "");
}

RunIdentity identity_of(const RunIdentity::Keys& all, RunIdentity::Keys workload,
                        RunIdentity::Keys configuration) {
  RunIdentity run;
  const std::string model = value_or(all, "model.name", "unnamed model");
  const std::string data = value_or(all, "data.name", "");
  run.workload = data.empty() ? model : model + " on " + data;
  const std::string level = value_or(all, "amp.level", "O0");
  run.fp32 = level == "O0" && value_or(all, "amp.to_float", "[]") == "[]";
  if (value_or(all, "scaler.enabled", "true") != "false") run.policy = value_or(all, "scaler.policy", "none");
  if (run.policy == "dynamic") run.policy = "torch";  // its older name
  const bool fixed = run.policy == "fixed" || run.policy == "mindspore-fixed";
  run.scaling = run.policy == "none" ? Scaling::none : fixed ? Scaling::fixed : Scaling::adaptive;
  if (run.scaling != Scaling::none) run.scale = number_or(all, "scaler.initial_scale", 1);
  run.perturb_ulps = count_or_0(all, "train.perturb_ulps");
  run.seed = count_or_0(all, "train.seed");
  run.label = label_of(run, all);

  // FP32 is the same in every dialect and on every tensor core, and no scale the same with every parameter.
  std::erase_if(configuration, [&run](const auto& key_and_value) {
    const std::string& key = key_and_value.first;
    if (key.starts_with("amp.") || key.starts_with("backend.")) return run.fp32;
    return run.scaling == Scaling::none && key.starts_with("scaler.") && key != "scaler.on_overflow";
  });
  configuration["amp.level"] = level;
  configuration["scaler.policy"] = run.policy;
  if (const auto device = all.find("backend.device"); device != all.end()) configuration.insert(*device);
  run.workload_keys = std::move(workload);
  run.configuration_keys = std::move(configuration);
  return run;
}

std::string value_or(const RunIdentity::Keys& keys, std::string_view key, std::string_view fallback) {
  const auto found = keys.find(key);
  return found == keys.end() ? std::string(fallback) : found->second;
}

double number_or(const RunIdentity::Keys& keys, std::string_view key, double fallback) {
  const std::string text = value_or(keys, key, "");
  double value = fallback;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size() ? value : fallback;
}

std::string format_name(std::string_view dtype) {
  const std::optional<DType> known = dtype_called<is_floating>(dtype);
  return known ? title_of(*known) : std::string(dtype);
}

}  // namespace fp16lab
