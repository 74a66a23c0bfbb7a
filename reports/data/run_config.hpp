// The resolved configuration of a run, as flat text, and what reports call the run because of it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace fp16lab::reports {

/// "scaler.initial_scale" -> "8.0": every value of the TOML text under its dotted key, strings without
/// quotes.
using FlatConfig = std::map<std::string, std::string, std::less<>>;

/// `where` names the source in the std::runtime_error of bad TOML. Keys and values are printable, whatever it holds.
FlatConfig flatten_toml(std::string_view toml, std::string_view where);

/// The value of a key, or `fallback` where the configuration does not have it; of a number also where it is
/// none.
std::string value_or(const FlatConfig& config, std::string_view key, std::string_view fallback);
double number_or(const FlatConfig& config, std::string_view key, double fallback);

enum class Precision { fp32, low };
enum class Scaling { none, fixed, adaptive };

/// What distinguishes the runs of one workload: precision, loss scaling, and whether the initial weights were
/// moved.
struct ConfigurationId {
  Precision precision = Precision::fp32;
  Scaling scaling = Scaling::none;
  double scale = 1;               ///< the fixed or initial loss scale; 1 without scaling
  std::int64_t perturb_ulps = 0;  ///< by which every initial weight was moved
  /// "FP32", "FP32 twin", "FP16 no scaling", "FP16 S=2^3", "FP16 torch +1 ulp", "FP16 paddle O2 torch"
  std::string label;
  /// FP32 without scaling whose initial weights were moved by one ulp: what differs from FP32 is chaos alone.
  bool is_twin() const {
    return precision == Precision::fp32 && scaling == Scaling::none && perturb_ulps == 1;
  }
};
ConfigurationId configuration_of(const FlatConfig& config);

/// The name of a loss-scale policy: "torch" also where the configuration says "dynamic", its older name;
/// "none" where the scaler is switched off.
std::string policy_of(const FlatConfig& config);

/// The settings that belong to the configuration, not to the workload; keys without effect are left out (the
/// scale of a run without scaling). Runs with equal settings differ in their seed only.
FlatConfig configuration_settings(const FlatConfig& config);

/// The settings that make the workload: all but those of the configuration, the seed, and what only observes
/// or judges.
FlatConfig workload_settings(const FlatConfig& config);

/// "classifier on fashion-mnist": model.name and data.name.
std::string workload_name(const FlatConfig& config);

/// A dtype's name for people: "f16" -> "FP16", "f32" -> "FP32", "bf16" -> "BF16", "e5m2" -> "E5M2".
std::string format_name(std::string_view dtype);

/// Powers with raised exponents for people: "FP16 S=2^-3" -> "FP16 S=2⁻³".
std::string pretty(std::string_view text);

}  // namespace fp16lab::reports
