// What a run is: its workload, and the configuration that distinguishes it from other runs of that workload.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "numerics/files/run/record.hpp"

namespace fp16lab {

enum class Scaling { none, fixed, adaptive };
constexpr std::array<std::string_view, 3> names_of(Scaling) { return {"none", "fixed", "adaptive"}; }

/// It is decided once, when the run is written, by the code that knows what the run reads of its
/// configuration (experiments/app/config/run_identity.hpp). Runs with equal `workload_keys` are compared with
/// each other; those that also have equal `configuration_keys` differ in their seed only.
struct RunIdentity {
  /// "scaler.initial_scale" -> "8.0": values under dotted keys, text without quotes.
  using Keys = std::map<std::string, std::string, std::less<>>;
  FP16LAB_RECORD(RunIdentity, "manifest.json: identity", 3,
                 "What the run is. Reports name, group and order runs by it.");
  FP16LAB_FIELD(std::string, workload, {}, "the model and its data: \"classifier on fashion-mnist\"");
  FP16LAB_FIELD(
      Keys, workload_keys, {},
      "the keys that say what is trained and on what, where they differ from their defaults; never the seed");
  FP16LAB_FIELD(std::string, label, {},
                "the configuration in words: \"FP16 S=2^3\", \"FP32 twin\", \"FP16 paddle O2 torch\"");
  FP16LAB_FIELD(Keys, configuration_keys, {},
                "the keys that say in which precision, at which loss scale and on which arithmetic the run "
                "computes: amp.level, backend.device and scaler.policy, and others where they differ from "
                "their defaults (lab.watch: as it found them)");
  FP16LAB_FIELD(bool, fp32, true, "nothing is computed in fewer bits than FP32 has");
  FP16LAB_FIELD(Scaling, scaling, Scaling::none, "how the loss is scaled");
  FP16LAB_FIELD(std::string, policy, "none", "the policy that moves the loss scale");
  FP16LAB_FIELD(double, scale, 1, "the fixed or the initial loss scale; 1 without scaling");
  FP16LAB_FIELD(std::uint64_t, perturb_ulps, 0, "how many ulps every initial weight was moved by");
  FP16LAB_FIELD(std::uint64_t, seed, 0,
                "the seed of weights and shuffling; in runs of lab.watch its seed=, or 0 without one");
  FP16LAB_RECORD_END(RunIdentity);

  /// The value of a configuration key; empty where the run does not have it, or its default.
  std::string value(std::string_view configuration_key) const;
  /// FP32 without scaling: others are judged against it, where its initial weights were not moved.
  bool is_reference() const { return fp32 && scaling == Scaling::none; }
  /// What differs from FP32 is chaos alone.
  bool is_twin() const { return is_reference() && perturb_ulps == 1; }
};

/// The identity of a run with these keys; the other members follow from `all`, every key that it reads.
RunIdentity identity_of(const RunIdentity::Keys& all, RunIdentity::Keys workload,
                        RunIdentity::Keys configuration);

/// The value of a key, or `fallback` where it is not there; for a number also where it is none.
std::string value_or(const RunIdentity::Keys& keys, std::string_view key, std::string_view fallback);
double number_or(const RunIdentity::Keys& keys, std::string_view key, double fallback);

/// A dtype's name for people: "f16" -> "FP16", "f32" -> "FP32", "bf16" -> "BF16", "e5m2" -> "E5M2".
std::string format_name(std::string_view dtype);

}  // namespace fp16lab
