// The run folder: names, columns and the manifest that writers and readers agree on; rows are in
// run_rows.hpp.
//
//   manifest.json      who, what, where, how it ended          whole file, replaced atomically
//   config.toml        the resolved configuration              whole file
//   steps.csv          one row an optimizer iteration          grows line by line
//   evaluations.csv    one row an evaluation                   grows line by line
//   histograms.jsonl   one JSON object a tensor and step       grows line by line
//   overflows.jsonl    one JSON object a step with an overflow  grows line by line; empty where there was
//                                                               none
//   culprits.jsonl     one JSON object a culprit               grows line by line; only with
//                                                              observe.explain_overflow
//   checkpoints/step-000100.safetensors                        whole files, the newest ones kept
//   weights.safetensors                                        whole file, replaced atomically, with
//                                                              amp.save_dtype
//   op_stats.csv                                               whole file, of a run with --op-stats
//   figures/, report.html                                      written by reports/
//   replay.json, replay.csv, replay_traces.csv                 whole files, of `fp16lab replay RUN -o RUN`
//                                                              (numerics/files/run/replay_file.hpp)
//
// Texts are what others wrote: readers make all of them printable (numerics/text/text.hpp), apart from
// manifest.config and the words of manifest.argv, which are told by flatten_toml() and shell_line().
//
// A run is finished when its manifest says so and not before: a killed run reads as `running`. The `rows` of
// the manifest of a run that has ended have the SHA-256 of each file that grows line by line, and the last
// member of manifest.json and of replay.json is that of the file's own bytes before it (before the comma). A
// reader that finds others names the file, and a run that differs in its manifest, steps or evaluations is
// left out of verdicts. SHA-256, so that `sha256sum` on any machine can say the same.
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

#include "numerics/files/run/run_rows.hpp"

namespace fp16lab {

/// Rises with every change that an older reader would misread or refuse. Readers know all versions so far:
/// 1: as here, without the bits_per_character of evaluations.csv and the resumptions of the manifest;
/// 2: with them; columns are only ever added behind the others. Folders written before there was an
///    overflows.jsonl have none, and read as if nothing was known of overflows but found_inf. Those written
///    before manifests counted rows hold bits per byte as bits_per_character, which is another number where
///    the text is beyond ASCII;
/// 3: histograms.jsonl may have rows of other tensors than gradients (HistogramRow::observed).
inline constexpr int run_schema_version = 3;
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
/// Of a run whose ranks came to differ: step-N-rank-K.safetensors, a checkpoint each.
inline constexpr std::string_view ranks_differ = "ranks-differ";
inline constexpr std::string_view weights = "weights.safetensors";
inline constexpr std::string_view op_statistics = "op_stats.csv";
inline constexpr std::string_view figures = "figures";
inline constexpr std::string_view report = "report.html";
inline constexpr std::string_view replay = "replay.json";
inline constexpr std::string_view replay_summary = "replay.csv";
inline constexpr std::string_view replay_traces = "replay_traces.csv";
/// Whose the folder is while somebody writes in it (experiments/app/run/folder_claim.hpp); no run leaves it.
inline constexpr std::string_view claim = "claim.json";
}  // namespace run_file
/// In the folder of a sweep, beside its runs: NAME.toml is the configuration of a run that it means to make
/// in NAME, and tasks.csv lists those of the last plan in their order.
inline constexpr std::string_view sweep_plan = "plan";
inline constexpr std::string_view sweep_tasks = "tasks.csv";

inline constexpr std::array<std::string_view, 11> step_columns{
    "step", "loss",           "loss_scale", "found_inf", "skipped", "grad_norm",
    "lr",   "underflow_rate", "state_hash", "seconds",   "epoch"};
/// How many of them the oldest folders have.
inline constexpr std::size_t oldest_step_columns = 10;
inline constexpr std::array<std::string_view, 5> evaluation_columns{"step", "split", "loss", "accuracy",
                                                                    "bits_per_character"};
/// How many of them a folder of schema version 1 has.
inline constexpr std::size_t evaluation_columns_of_version_1 = 4;

enum class ExitState {
  running,   ///< still at work, or killed
  finished,  ///< all steps done
  stopped,   ///< asked to end early
  diverged,  ///< a loss not finite (50 in a row, or the last), a skip limit, or no step that could be taken
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
  /// Of every line of a file, by its name: what the run wrote. The last checkpoint has those of a run that is
  /// going on, except of steps.csv, whose times differ between equal runs; older folders have none.
  std::map<std::string, std::string, std::less<>> sha256{};
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

/// The processes that trained together.
struct RankRecord {
  std::string library{};             ///< what moved their bytes: "Open MPI v4.1.4"
  std::vector<std::string> hosts{};  ///< by rank
  bool operator==(const RankRecord&) const = default;
};

struct Manifest {
  std::string
      name{};  ///< what the user calls this configuration (train --name, a sweep's variant); usually empty
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
  std::optional<RankRecord> ranks{};       ///< absent where one process trained
  std::vector<DataFile> data{};
  std::string start{};               ///< UTC, "2026-01-31T12:34:56Z"
  std::optional<std::string> end{};  ///< absent while running
  ExitState state = ExitState::running;
  std::string message{};                  ///< why it failed or diverged; usually empty
  std::vector<Resumption> resumptions{};  ///< in order; folders of schema version 1 have none
  std::optional<RunRows> rows{};          ///< written before this manifest was; absent in older folders
  bool altered = false;                   ///< as it was read: its last member is the SHA-256 of another text
  /// The network, as `fp16lab model --json` tells it, without levels: JSON. Empty in older folders.
  std::string model{};
  std::optional<RunMemory> memory{};         ///< from the second step on; absent in older folders
  std::optional<double> seconds_per_step{};  ///< the median, once the run has ended

  bool operator==(const Manifest&) const = default;
};

/// The current time as manifests write it: "2026-01-31T12:34:56Z".
std::string utc_now();

}  // namespace fp16lab
