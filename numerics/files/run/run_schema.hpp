// The run folder: names, columns and records that writers and readers agree on.
//
//   manifest.json      who, what, where, how it ended          whole file, replaced atomically
//   config.toml        the resolved configuration              whole file
//   steps.csv          one row an optimizer iteration          grows line by line
//   evaluations.csv    one row an evaluation                   grows line by line
//   histograms.jsonl   one JSON object a tensor and step       grows line by line
//   overflows.jsonl    one JSON object a step with an overflow  grows line by line; empty where there was none
//   culprits.jsonl     one JSON object a culprit               grows line by line; only with observe.explain_overflow
//   checkpoints/step-000100.safetensors                        whole files, the newest ones kept
//   weights.safetensors                                        whole file, replaced atomically, with amp.save_dtype
//   op_stats.csv                                               whole file, of a run with --op-stats
//   figures/, report.html                                      written by reports/
//   replay.json, replay.csv, replay_traces.csv                 whole files, of `fp16lab replay RUN -o RUN`
//                                                              (numerics/files/run/replay_file.hpp)
//
// A run is finished when its manifest says so and not before: a killed run reads as `running`.
// Numbers are the shortest decimals that read back to the same value. Non-finite ones are nan, inf, -inf in
// CSV and the strings "NaN", "Infinity", "-Infinity" in JSON, which has no such numbers. A CSV field of an
// absent value is empty.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "numerics/formats/dtype.hpp"
#include "numerics/histogram/exponent_histogram.hpp"

namespace fp16lab {

/// Rises with every change that an older reader would misread or refuse. Readers know all versions so far:
/// 1: as here, without the bits_per_character of evaluations.csv and the resumptions of the manifest
/// 2: with them; columns are only ever added behind the others. Folders written before there was an overflows.jsonl
///    have none, and read as if nothing was known of overflows but found_inf. Those written before manifests counted rows
///    hold bits per byte as bits_per_character, which is another number where the text is beyond ASCII
inline constexpr int run_schema_version = 2;
inline constexpr std::string_view run_schema_name = "fp16lab-run";

namespace run_file {
inline constexpr std::string_view manifest = "manifest.json";
inline constexpr std::string_view config = "config.toml";
inline constexpr std::string_view steps = "steps.csv";
inline constexpr std::string_view evaluations = "evaluations.csv";
inline constexpr std::string_view histograms = "histograms.jsonl";
inline constexpr std::string_view overflows = "overflows.jsonl";
inline constexpr std::string_view culprits = "culprits.jsonl";
inline constexpr std::string_view checkpoints = "checkpoints";
inline constexpr std::string_view weights = "weights.safetensors";
inline constexpr std::string_view op_statistics = "op_stats.csv";
inline constexpr std::string_view figures = "figures";
inline constexpr std::string_view report = "report.html";
inline constexpr std::string_view replay = "replay.json";
inline constexpr std::string_view replay_summary = "replay.csv";
inline constexpr std::string_view replay_traces = "replay_traces.csv";
}  // namespace run_file
/// In the folder of a sweep, beside its runs: NAME.toml is the configuration of a run that it means to make in NAME.
inline constexpr std::string_view sweep_plan = "plan";

inline constexpr std::array<std::string_view, 10> step_columns{
    "step",      "loss", "loss_scale",     "found_inf",  "skipped",
    "grad_norm", "lr",   "underflow_rate", "state_hash", "seconds"};
inline constexpr std::array<std::string_view, 5> evaluation_columns{"step", "split", "loss", "accuracy",
                                                                    "bits_per_character"};
/// How many of them a folder of schema version 1 has.
inline constexpr std::size_t evaluation_columns_of_version_1 = 4;

enum class ExitState {
  running,   ///< still at work, or killed
  finished,  ///< all steps done
  stopped,   ///< asked to end early
  diverged,  ///< loss non-finite for long, or skip limit
  failed,    ///< an error; `message` says which
};
std::string_view name_of(ExitState state);
std::optional<ExitState> exit_state_of(std::string_view name);

struct DataFile {
  std::string path{};
  std::string sha256{};  ///< 64 hex digits
  bool operator==(const DataFile&) const = default;
};

/// A run that was continued after a kill or an interruption.
struct Resumption {
  std::uint64_t step = 0;  ///< the last step of the checkpoint; 0: from the beginning
  std::string time{};      ///< UTC
  std::string git_hash{};  ///< of the sources that continued it
  bool operator==(const Resumption&) const = default;
};

/// What computed a run.
struct BackendRecord {
  std::string device{};                     ///< "emulated" or "cuda"
  std::string tensor_core{};                ///< the row that products of 16 bits follow
  std::string note{};                       ///< why backend.device = "auto" took it; else empty
  std::optional<std::string> capability{};  ///< of the GPU, "9.0"
  std::optional<std::string> runtime{};     ///< version of CUDA's libraries, "13.0"
  std::optional<std::string> gemm{};        ///< backend.gemm
  bool operator==(const BackendRecord&) const = default;
};

/// How many rows each line file has; headers are none.
struct RunRows {
  std::uint64_t steps = 0, evaluations = 0, histograms = 0, overflows = 0, culprits = 0;
  bool operator==(const RunRows&) const = default;
};

struct LineFileName {
  std::string_view name;
  std::uint64_t RunRows::*rows;
};
inline constexpr std::array<LineFileName, 5> line_files{{{run_file::steps, &RunRows::steps},
                                                         {run_file::evaluations, &RunRows::evaluations},
                                                         {run_file::histograms, &RunRows::histograms},
                                                         {run_file::overflows, &RunRows::overflows},
                                                         {run_file::culprits, &RunRows::culprits}}};

struct Manifest {
  std::string name{};  ///< what the user calls this configuration (train --name, a sweep's variant); usually empty
  std::vector<std::string> argv{};
  std::string config{};    ///< the resolved TOML, the same text as config.toml
  std::string git_hash{};  ///< of the sources, with "-dirty-DIGEST" where they had changed
  std::map<std::string, std::uint64_t> seeds{};  ///< by purpose: {"train": 1}
  std::string cpu{};
  int threads = 1;
  std::string compiler{};
  std::string flags{};
  std::string gemm_target{};         ///< the vector target that ran the products: "avx512"
  std::optional<std::string> gpu{};  ///< absent where no GPU took part
  std::optional<std::string> driver{};
  std::optional<BackendRecord> backend{};  ///< absent in folders from before there were several
  std::vector<DataFile> data{};
  std::string start{};               ///< UTC, "2026-01-31T12:34:56Z"
  std::optional<std::string> end{};  ///< absent while running
  ExitState state = ExitState::running;
  std::string message{};                  ///< why it failed or diverged; usually empty
  std::vector<Resumption> resumptions{};  ///< in order; folders of schema version 1 have none
  std::optional<RunRows> rows{};          ///< written before this manifest was; absent in older folders

  bool operator==(const Manifest&) const = default;
};

/// A row of steps.csv. `loss` is the unscaled training loss, `loss_scale` the one used in this step.
struct StepRow {
  std::uint64_t step = 0;
  double loss = 0;
  double loss_scale = 1;
  bool found_inf = false;
  bool skipped = false;
  double grad_norm = 0;
  double lr = 0;
  /// Where gradients were counted in this step and were cast: the share of their finite values that are not zero that the
  /// casts made zero. (Older folders: that FP16 would make zero, whatever they were stored in.)
  std::optional<double> underflow_rate{};
  std::uint64_t state_hash = 0;  ///< 16 hex digits in the file
  double seconds = 0;
  bool operator==(const StepRow&) const = default;
};

struct EvaluationRow {
  std::uint64_t step = 0;
  std::string split{};  ///< "train" or "test"
  double loss = 0;
  std::optional<double> accuracy{};            ///< of classifiers
  std::optional<double> bits_per_character{};  ///< of language models: loss / ln 2 * bytes of a character
  bool operator==(const EvaluationRow&) const = default;
};

/// A line of histograms.jsonl: the values of one gradient tensor in one step, which still carry `loss_scale`.
/// JSON keys: step, tensor, kind, dtype, loss_scale, before, after; each histogram is {zero, inf, nan,
/// first_exponent, counts}, where counts[i] belongs to the bin (2^(first_exponent+i), 2^(first_exponent+i+1)]
/// and empty bins at both ends are left out; smallest and greatest magnitude are those of the finite values that are not
/// zero. Where there is no such value they are absent; older folders have none at all, and everything below 2^-127 in
/// the bin of -127. A dtype of e4m3 or e5m2 is that of a cast inside products, of a tensor that is stored wider. Rows of
/// roundings on the way between the layers' gradients also have "intermediate": true; loss-scale policies see the others.
struct HistogramRow {
  std::uint64_t step = 0;
  std::string tensor{};  ///< "fc1.weight"
  std::string kind{};    ///< "weight" or "activation"
  DType dtype = DType::f32;
  bool intermediate = false;
  double loss_scale = 1;
  ExponentHistogram before{};  ///< FP32, before rounding to `dtype`
  ExponentHistogram after{};   ///< as stored
  bool operator==(const HistogramRow&) const = default;
};

enum class OverflowKind {
  gradient,  ///< a gradient was not finite
  loss,      ///< a 16-bit loss times the loss scale was beyond its dtype, and all gradients were finite
  both,
};
std::string_view name_of(OverflowKind kind);

/// The backward pass of an overflowed step was done again at lower scales (scaler.rescue).
struct RescueRow {
  std::uint64_t attempts = 0;
  double loss_scale = 1;  ///< of the last attempt
  bool rescued = false;   ///< it did not overflow, and the step was taken
  bool operator==(const RescueRow&) const = default;
};

/// A line of overflows.jsonl: a step in which something overflowed. JSON keys: step, kind, loss_scale, optimizers,
/// parameters, and where the step was rescued or that was tried: rescue {attempts, loss_scale, rescued}. kind, loss_scale
/// and parameters are then of the first backward pass.
struct OverflowRow {
  std::uint64_t step = 0;
  OverflowKind kind = OverflowKind::gradient;
  double loss_scale = 1;  ///< used in this step
  std::vector<std::string>
      optimizers{};  ///< that skipped their update, by the name of their parameters' group
  std::vector<std::string> parameters{};  ///< whose gradients held an Inf or NaN
  std::optional<RescueRow> rescue{};
  bool operator==(const OverflowRow&) const = default;
};

/// What would have saved a value that overflowed.
enum class CulpritVerdict {
  fp32_cast,    ///< FP16 was too narrow in the forward pass
  lower_scale,  ///< S was too large
  model,        ///< it was no number in FP32 either
  data,         ///< nor in the batch
  unknown,
};
std::string_view name_of(CulpritVerdict verdict);

/// A value that went into the operation at fault.
struct CulpritOperandRow {
  std::string name{};  ///< "fc2.weight", "gradient"
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape{};
  double smallest = 0;  ///< magnitude that is finite and not zero; 0: there is none
  double greatest = 0;
  ExponentHistogram histogram{};
  bool operator==(const CulpritOperandRow&) const = default;
};

/// A line of culprits.jsonl: what made the first non-finite value of a pass, in a step with an overflow. JSON keys as the
/// members; index (of the element, by axis) is added, and `wide`, `wide_value` and `finite_scale` are null where they are not known.
struct CulpritRow {
  std::uint64_t step = 0;
  std::string pass{};   ///< "forward" or "backward"
  std::string cause{};  ///< "operation", "infinity", "parameter", "data", "constant", "loss_scale"
  std::string op{};     ///< as op lists name it
  std::string part{};   ///< the operation within it, where that is another one
  std::string layer{};
  std::string tensor{};
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape{};
  std::uint64_t micro_batch = 0;
  double loss_scale = 1;
  std::uint64_t element = 0;  ///< row-major
  double value = 0;
  std::uint64_t nonfinite = 0;
  std::optional<double> wide_value{};  ///< the element before it was rounded to 16 bits
  double wide_greatest = 0;            ///< finite magnitude of its tensor
  std::optional<ExponentHistogram> wide{};
  std::vector<CulpritOperandRow> operands{};
  bool reached = false;  ///< the loss, or the gradient of a parameter
  CulpritVerdict verdict = CulpritVerdict::unknown;
  std::string black{};     ///< an entry for amp.black that would have saved it; empty: none
  std::string excluded{};  ///< and one for amp.excluded
  std::uint64_t binades = 0;  ///< by so many S would have had to be lower for this tensor; 0: not said
  /// The greatest S 2^-k at which no gradient of the step overflowed when the backward passes were done again; 0: none,
  /// down to 2^-24. Nothing: that was not tried.
  std::optional<double> finite_scale{};
  std::string advice{};       ///< a sentence
  bool operator==(const CulpritRow&) const = default;
};

/// The current time as manifests write it: "2026-01-31T12:34:56Z".
std::string utc_now();

}  // namespace fp16lab
