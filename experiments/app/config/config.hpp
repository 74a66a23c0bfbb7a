// The configuration of one run: typed, complete and checked.
//
// One table of keys (config_keys) drives parsing, --set, error messages, the documentation of `fp16lab list`
// and the resolved config.toml. It binds to the engine's own options; defaults are the member initialisers.
#pragma once

#include <array>
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

#include "engine/amp/levels/level.hpp"
#include "engine/amp/policy.hpp"
#include "engine/backend/emulated/emulated_backend.hpp"
#include "engine/data/arrays.hpp"
#include "engine/data/loader.hpp"
#include "engine/data/text.hpp"
#include "engine/nn/initialization.hpp"
#include "engine/nn/losses.hpp"
#include "engine/nn/network/layer_row.hpp"
#include "engine/optim/optimizer.hpp"
#include "engine/train/workload.hpp"
#include "numerics/files/disk/read_file.hpp"
#include "numerics/formats/dtype.hpp"
#include "numerics/text/named_enum.hpp"

namespace fp16lab::experiments {

/// [[model.layer]] and [[model.block]], and what they share.
struct ModelConfig {
  std::string name = "classifier";
  engine::nn::NetworkRows rows = default_rows();
  engine::nn::LossKind loss = engine::nn::LossKind::cross_entropy;
  double label_smoothing = 0;
  bool one_hot = false;
  double huber_delta = 1;
  engine::nn::Initialization init = engine::nn::Initialization::torch_linear;
  engine::Layout layout = engine::Layout::nchw;
  std::int64_t context = 64;
  std::int64_t noise = 64;
  std::int64_t scale_down = 1;

  /// A perceptron 512-256-128-10 over flat images.
  static engine::nn::NetworkRows default_rows();
};

struct DataConfig {
  std::string name = "fashion-mnist";
  std::string path;
  std::int64_t subset = 0;
  std::int64_t test_subset = 0;
  bool test_subset_is_set = false;  ///< by apply_setting: then fewer will not do; no key of its own
  bool shuffle = true;
  engine::data::Tokens tokens = engine::data::Tokens::bytes;
  std::vector<std::string> train{"x_train", "y_train"};
  std::vector<std::string> test{"x_test", "y_test"};
  double test_size = 0;
  std::uint64_t test_seed = 1;
  engine::data::ExampleKind layout = engine::data::ExampleKind::automatic;
  std::int64_t classes = 0;
  bool standardise = false;  ///< data.normalise = "standard"
  std::int64_t padding = 0;
  bool flip = false;
  std::int64_t crop_padding = 0;
  std::optional<engine::data::Targets> targets{};  ///< nothing: as the loss says
  std::int64_t batches = 10;
  std::vector<std::int64_t> inputs{1};
  std::int64_t outputs = 1;
  bool operator==(const DataConfig&) const = default;
};

/// How a step goes (engine/train/methods).
enum class Method : std::uint8_t { supervised, gradient_penalty, two_models, gan };
constexpr std::array<std::string_view, 4> names_of(Method) {
  return {"supervised", "gradient_penalty", "two_models", "gan"};
}

/// The trainer's options, and what a run decides besides them.
struct TrainConfig : engine::TrainOptions {
  TrainConfig() { seed = 1; }
  std::int64_t epochs = 1;  ///< where `steps` is 0
  std::int64_t batch_size = 128;
  std::string initial{};
  std::uint64_t perturb_ulps = 0;
  Method method = Method::supervised;
  double penalty = 1;
};

/// Where verbs run; automatic: on a device that can do what the run asks for, else emulated.
enum class Device : std::uint8_t { emulated, cuda, automatic };
constexpr std::array<std::string_view, 3> names_of(Device) { return {"emulated", "cuda", "auto"}; }

/// Who multiplies matrices on a device: automatic as mma, cublas_any_order as cublas.
enum class Gemm : std::uint8_t { automatic, mma, cublas, cublas_any_order };
constexpr std::array<std::string_view, 4> names_of(Gemm) {
  return {"auto", "mma", "cublas", "cublas-any-order"};
}

struct BackendConfig {
  Device device = Device::emulated;
  std::string tensor_core = "auto";
  DType accumulator = DType::f32;
  std::string library = "instruction";
  std::int64_t library_threads = 1;
  engine::FloatOverflow overflow = engine::FloatOverflow::infinity;
  std::int64_t ordinal = 0;
  Gemm gemm = Gemm::automatic;
};

struct ObserveConfig {
  std::int64_t histograms_every = 50;
  std::vector<std::string> tensors{"gradients"};  ///< names of Observed
  std::vector<std::string> names{};               ///< patterns; empty: all
  bool explain_overflow = false;
};

struct CheckpointConfig {
  std::int64_t every = 0;
  std::int64_t keep = 2;
  std::optional<DType> save_dtype;  ///< amp.save_dtype; nothing: no weights.safetensors
};

/// The differences that count as none, fixed before a run and kept with it: percent of a loss, points of an
/// accuracy.
struct ReportConfig {
  double margin_loss = 1;
  double margin_accuracy = 0.5;
  bool operator==(const ReportConfig&) const = default;
};

/// The value of a key as files have it. Nothing: a parameter that the configured loss-scale policy does not
/// have, or what a model's own section does not say.
using ConfigValue = std::variant<std::monostate, std::string, std::int64_t, double, bool,
                                 std::vector<std::int64_t>, std::vector<std::string>>;

/// The value of scaler.policy until resolve_names.
inline constexpr std::string_view automatic_policy = "auto";

/// Sections that an engine's struct of options has are that struct.
struct RunConfig {
  ModelConfig model;
  DataConfig data;
  TrainConfig train;
  /// With schedule.*. `schedule.total_steps` 0: with the run.
  engine::optim::OptimizerOptions optimizer{.learning_rate = 0.05, .momentum = 0.9};
  /// What [optimizer.generator] and its like say: by model, then by the field of [optimizer]. Nothing else of
  /// a model's optimizer differs from `optimizer`.
  std::map<std::string, std::map<std::string, ConfigValue>> own_optimizers;
  engine::amp::AmpOptions amp;
  engine::amp::ScalerOptions scaler{.policy = std::string(automatic_policy)};
  BackendConfig backend;
  ObserveConfig observe;
  CheckpointConfig checkpoint;
  engine::ParallelOptions parallel;
  ReportConfig report;
  /// Equal where a run could not tell them apart: keys that are read by their values, and parameters of
  /// loss-scale policies by the values that the policy uses.
  bool operator==(const RunConfig& other) const;
};

/// What a key's values are. A parameter of loss-scale policies is a double here, whatever its kind.
enum class ConfigType { text, integer, real, boolean, integers, texts, parameter };

/// What a number may be.
struct ConfigRange {
  double minimum = -std::numeric_limits<double>::infinity();
  double maximum = std::numeric_limits<double>::infinity();
  bool minimum_excluded = false;
  bool maximum_excluded = false;
  bool fp32 = false;  ///< it is computed with in FP32, which must hold it (fp32_holds), in the range too
};

/// What a key belongs to. A run that goes on (--resume) takes other values of machine and watching keys: no
/// bit
/// of a step depends on them, but on a back end that does not promise the others' bits.
enum class KeyRole {
  workload,       ///< what is trained, on what: runs of one workload are compared with each other
  configuration,  ///< precision, loss scale, whose arithmetic, from weights moved by how much
  machine,        ///< where it runs, and where files are
  watching,       ///< what is looked at and kept, and when a run that fails ends
};
using fp16lab::name_of;
constexpr std::array<std::string_view, 4> names_of(KeyRole) {
  return {"workload", "configuration", "machine", "watching"};
}

/// Values of another key with which a run reads a key.
struct ReadWith {
  std::string key;                  ///< "optimizer.name"
  std::vector<std::string> values;  ///< as plain_value has them: "sgd"
  bool others = false;              ///< all but these
};

struct ConfigKey {
  std::string name;  ///< "scaler.policy"
  ConfigType type = ConfigType::text;
  std::function<ConfigValue(const RunConfig&)> read;
  /// A value of the type, checked.
  std::function<void(RunConfig&, const ConfigValue&)> write;
  std::string doc;
  ConfigRange range;  ///< of numbers, and of the elements of lists
  std::vector<std::string>
      choices{};  ///< of strings; empty: any text. "true" and "false" may be written bare
  /// The parameter of a loss-scale policy that the key sets; else null.
  const engine::amp::PolicyParameter* parameter = nullptr;
  KeyRole role = KeyRole::workload;
  /// Who reads it: each of these must hold by one of its alternatives, whose keys are read themselves. Empty:
  /// every run.
  std::vector<std::vector<ReadWith>> readers{};

  ConfigKey as(KeyRole what) &&;
  /// Adds to `readers`.
  ConfigKey read_with(std::string key, std::vector<std::string> values) &&;
  ConfigKey read_unless(std::string key, std::vector<std::string> values) &&;
  ConfigKey read_by(std::vector<ReadWith> alternatives) &&;
};

/// Every key, in the order of the resolved config.toml: sections in one piece.
std::span<const ConfigKey> config_keys();
/// After them those of sections that repeat keys of [optimizer] for one of two models, such as
/// [optimizer.generator]: all but optimizer.kahan and optimizer.loss_scale, which belong to the run's level
/// and scaler. Where they are not set they read as nothing.
std::span<const ConfigKey> all_config_keys();

/// Values of keys that differ, of those that either configuration reads; empty where it does not.
struct KeyDifference {
  const ConfigKey* key;
  std::string a, b;  ///< as value_text
};
std::vector<KeyDifference> key_differences(const RunConfig& a, const RunConfig& b);

/// "optimizer.name = sgd, rmsprop": the key's readers; a semicolon between what must hold. Empty: every run.
std::string readers_text(const ConfigKey& key);
/// Does a run of this configuration read the key? One that it does not read changes neither a bit nor an
/// output.
bool is_read(const RunConfig& config, const ConfigKey& key);
/// "optimizer.name = adam does not read it; sgd does". Empty where the key is read.
std::string why_unread(const RunConfig& config, const ConfigKey& key);
/// The same of the key that a "key=value" sets; what a network's rows say is read always.
std::string why_unread(const RunConfig& config, std::string_view setting);
/// "key = value" for each key that nothing reads and that has another value than its default.
std::vector<std::string> settings_unread(const RunConfig& config);
/// Gives those their defaults. Result: a sentence each.
std::vector<std::string> leave_out_unread(RunConfig& config);
/// CommandError(usage) that begins with `where` for each "key=value" whose key `config` does not read, in one
/// line.
void require_read(const std::vector<std::string>& settings, const RunConfig& config, std::string_view where);

/// "an integer, 1 or more", "one of none, fixed, dynamic": for messages and documentation.
std::string expectation_of(const ConfigKey& key);
/// The value of a key as TOML text. Empty for a parameter that the configured policy does not have, or that
/// may have any policy yet ("auto").
std::string value_text(const RunConfig& config, const ConfigKey& key);

/// Text as TOML quotes it.
std::string toml_string(const std::string& text);

/// CommandError(usage) "WHERE: WHAT", in one printable line.
[[noreturn]] void refuse_config(std::string_view where, const std::string& what);

/// Refuses what printable() would change: names enter tables, figures, pages and scripts.
void require_printable(std::string_view text, std::string_view key, std::string_view where);

/// Reads TOML text over the defaults. `source` names it in messages. Throws CommandError(usage) "SOURCE:LINE:
/// ..." on bad syntax, an unknown key (with the nearest known one), a wrong type or an impossible value.
RunConfig parse_config(std::string_view toml, std::string_view source);
/// The same from a file; a missing or unreadable one is a usage error too.
RunConfig load_config(const std::filesystem::path& path, NamedHow named = NamedHow::found);
/// Takes data.path, where it is relative, from `folder` (empty: the working one) and keeps it absolute, so
/// that a run goes on from any folder.
void resolve_data_path(RunConfig& config, const std::filesystem::path& folder);

/// Applies one "key=value" (of --set, or of a sweep's variant). The value is TOML; text needs no quotes, and
/// real numbers may be written as powers of two ("2^15"). Throws CommandError(usage) that begins with
/// `where`. A list of texts may be written as in TOML, ["add", "relu"], or short: add,relu.
void apply_setting(RunConfig& config, std::string_view setting, std::string_view where);

/// apply_setting for each, in order. Where another loss-scale policy runs afterwards than before, it takes
/// its own
/// defaults: parameters that the configuration had, and no setting gives, were meant for the other one and
/// go.
/// Result: what goes though the policy has it too, a sentence each. (leave_out_unread says what else goes.)
std::vector<std::string> apply_settings(RunConfig& config, const std::vector<std::string>& settings,
                                        std::string_view where);

/// Once all settings are there: puts the row's name in the place of a chip's in backend.tensor_core, and the
/// policy that amp.level brings in amp.dialect ("none" if it brings none) in the place of scaler.policy =
/// "auto". std::invalid_argument for a chip whose rows differ in a format of the run, and for a level that
/// the dialect does not have.
void resolve_names(RunConfig& config);
/// CommandError(usage) that begins with `where` instead.
void resolve_names(RunConfig& config, std::string_view where);
/// The resolved configuration with every key that is read; parse_config gives back an equal one.
std::string to_toml(const RunConfig& config);

}  // namespace fp16lab::experiments
