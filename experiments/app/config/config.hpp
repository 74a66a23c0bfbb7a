// The configuration of one run: typed, complete and checked.
//
// One table of keys (config_keys) drives parsing, --set, error messages, the documentation of `fp16lab list`
// and the resolved config.toml. The defaults are the member initialisers below.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace fp16lab::engine::amp {
struct PolicyParameter;  // engine/amp/policy_parameters.hpp
}

namespace fp16lab::experiments {

struct ModelConfig {
  std::string name = "classifier";
  std::vector<std::int64_t> widths{784, 512, 256, 128, 10};
  std::string activation = "relu";
  std::string init = "torch_linear";
  std::string layout = "nchw";
  bool batch_norm = false;
  std::int64_t embedding = 64;
  std::int64_t hidden = 128;
  std::int64_t heads = 4;
  std::int64_t layers = 1;
  std::int64_t context = 64;
  double dropout = 0;
  double penalty = 1;
  std::vector<std::int64_t> generator{64, 128, 256, 784};
  std::vector<std::int64_t> discriminator{784, 256, 128, 1};
  std::int64_t scale_down = 1;
  bool operator==(const ModelConfig&) const = default;
};

struct DataConfig {
  std::string name = "fashion-mnist";
  std::string path;
  std::int64_t subset = 0;
  std::int64_t test_subset = 0;
  bool test_subset_is_set = false;  ///< by apply_setting: then fewer will not do; no key of its own
  std::string normalise = "unit";
  std::int64_t batches = 10;
  bool operator==(const DataConfig&) const = default;
};

struct TrainConfig {
  std::int64_t steps = 0;
  std::int64_t epochs = 1;
  std::int64_t batch_size = 128;
  std::int64_t accumulate = 1;
  std::string accumulate_mode = "mean";
  double clip_norm = 0;
  double clip_value = 0;
  std::int64_t seed = 1;
  std::int64_t evaluate_every = 0;
  std::int64_t skip_limit = 0;
  std::int64_t perturb_ulps = 0;
  bool graph = false;
  bool operator==(const TrainConfig&) const = default;
};

struct OptimizerConfig {
  std::string name = "sgd";
  double lr = 0.05;
  double momentum = 0.9;
  bool nesterov = false;
  double weight_decay = 0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double loss_scale = 1;
  bool operator==(const OptimizerConfig&) const = default;
};

struct ScheduleConfig {
  std::string name = "constant";
  std::int64_t warmup_steps = 0;
  std::int64_t total_steps = 0;
  double minimum_factor = 0;
  std::int64_t step_interval = 0;
  double step_factor = 0.1;
  bool operator==(const ScheduleConfig&) const = default;
};

struct AmpConfig {
  std::string level = "O0";
  std::string dtype = "f16";
  std::string dialect = "torch";
  std::vector<std::string> white;
  std::vector<std::string> black;
  std::vector<std::string> excluded;
  bool use_guard = false;
  std::vector<std::string> guard;
  std::vector<std::string> to_float;
  std::string keep_batchnorm_fp32 = "auto";
  std::string master_weights = "auto";
  std::string master_gradients = "auto";
  std::string low_inputs = "auto";
  std::string low_loss = "auto";
  bool use_promote = true;
  bool allow_banned = false;
  std::string fp8_operands = "none";
  std::string fp8_gradients = "none";
  std::string save_dtype;
  bool operator==(const AmpConfig&) const = default;
};

struct ScalerConfig {
  std::string policy = "auto";
  /// By name (engine/amp/policy_parameters.hpp). What is not given has the policy's own default.
  std::map<std::string, std::optional<double>, std::less<>> parameters{};
  std::string power_of_two = "warn";
  bool enabled = true;
  bool drop_overflow_update = true;
  bool per_loss = false;
  std::int64_t rescue = 0;
  std::vector<std::string> groups;
  /// What the policy uses: as given, or its default; nothing where it has no such parameter, or where the policy is
  /// still "auto".
  std::optional<double> parameter(std::string_view name) const;
  /// Equal where a run could not tell them apart: by the values that the policy uses.
  bool operator==(const ScalerConfig& other) const;
};

struct BackendConfig {
  std::string device = "emulated";
  std::string tensor_core = "auto";
  std::string accumulator = "f32";
  std::int64_t ordinal = 0;
  std::string gemm = "auto";
  std::string pins{};
  bool operator==(const BackendConfig&) const = default;
};

struct ObserveConfig {
  std::int64_t histograms_every = 50;
  bool explain_overflow = false;
  bool operator==(const ObserveConfig&) const = default;
};

struct CheckpointConfig {
  std::int64_t every = 0;
  std::int64_t keep = 2;
  bool operator==(const CheckpointConfig&) const = default;
};

/// The differences that count as none, fixed before a run and kept with it: percent of a loss, points of an accuracy.
struct ReportConfig {
  double margin_loss = 1;
  double margin_accuracy = 0.5;
  bool operator==(const ReportConfig&) const = default;
};

struct RunConfig {
  ModelConfig model;
  DataConfig data;
  TrainConfig train;
  OptimizerConfig optimizer;
  ScheduleConfig schedule;
  AmpConfig amp;
  ScalerConfig scaler;
  BackendConfig backend;
  ObserveConfig observe;
  CheckpointConfig checkpoint;
  ReportConfig report;
  bool operator==(const RunConfig&) const = default;
};

/// Where a key's value lives: string, integer, real, boolean, list of integers, list of strings, parameter of a
/// loss-scale policy.
using ConfigField = std::variant<std::string*, std::int64_t*, double*, bool*, std::vector<std::int64_t>*,
                                 std::vector<std::string>*, std::optional<double>*>;

/// What a number may be.
struct ConfigRange {
  double minimum = -std::numeric_limits<double>::infinity();
  double maximum = std::numeric_limits<double>::infinity();
  bool minimum_excluded = false;
  bool maximum_excluded = false;
};

struct ConfigKey {
  std::string name;  ///< "scaler.policy"
  std::function<ConfigField(RunConfig&)> field;
  ConfigRange range;                 ///< of numbers, and of the elements of lists
  std::vector<std::string> choices;  ///< of strings; empty: any text. "true" and "false" may be written bare
  std::string doc;
  /// Of parameters of loss-scale policies, else null.
  const engine::amp::PolicyParameter* parameter = nullptr;
};

/// Every key, in the order of the resolved config.toml: sections in one piece.
std::span<const ConfigKey> config_keys();

/// "an integer, 1 or more", "one of none, fixed, dynamic": for messages and documentation.
std::string expectation_of(const ConfigKey& key);
/// The value of a key as TOML text. Empty for a parameter that the configured policy does not have.
std::string value_text(const RunConfig& config, const ConfigKey& key);

/// Reads TOML text over the defaults. `source` names it in messages. Throws CommandError(usage) "SOURCE:LINE:
/// ..." on bad syntax, an unknown key (with the nearest known one), a wrong type or an impossible value.
RunConfig parse_config(std::string_view toml, std::string_view source);
/// The same from a file; a missing or unreadable one is a usage error too.
RunConfig load_config(const std::filesystem::path& path);

/// Applies one "key=value" (of --set, or of a sweep's variant). The value is TOML; text needs no quotes, and
/// real numbers may be written as powers of two ("2^15"). Throws CommandError(usage) that begins with
/// `where`. A list of texts may be written as in TOML, ["add", "relu"], or short: add,relu.
void apply_setting(RunConfig& config, std::string_view setting, std::string_view where);

/// Puts scaler_policy (experiments/app/config/run_options.hpp) in the place of "auto", once all settings are there.
/// CommandError(usage) that begins with `where`.
void resolve_scaler_policy(RunConfig& config, std::string_view where);
/// The parameter of loss-scale policies that a "key=value" sets: "growth_interval" of "scaler.growth_interval=20"; empty
/// where it sets another key.
std::string policy_parameter_of(std::string_view setting);

/// Whoever chooses another policy over a file that gives parameters to its own need not take them back: a parameter that
/// `given` has must be one of its own policy or of the policy that runs, which `config` has. CommandError(usage) that
/// begins with `where`, with the nearest name, otherwise.
void require_policy_parameters(const RunConfig& given, const RunConfig& config, std::string_view where);
/// The parameters that `settings` (of --set) give must be those of the configured policy.
void require_policy_parameters(const std::vector<std::string>& settings, const RunConfig& config,
                               std::string_view where);

/// Checks what concerns several keys at once: CommandError(usage) that begins with `where`.
void validate_config(const RunConfig& config, std::string_view where);

/// The resolved configuration with every key; parse_config gives back an equal one.
std::string to_toml(const RunConfig& config);

}  // namespace fp16lab::experiments
