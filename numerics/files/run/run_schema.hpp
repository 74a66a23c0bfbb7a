// The run folder: its files, the manifest, and what writers and readers agree on. run_folder_files says what
// each file is, run_rows.hpp and replay_file.hpp what a row of it holds (`fp16lab list records`).
//
// Texts are what others wrote: readers make all of them printable (numerics/text/text.hpp), apart from
// manifest.config and the words of manifest.argv, which flatten_toml() and shell_line() print.
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

#include "numerics/files/run/run_identity.hpp"
#include "numerics/files/run/run_rows.hpp"

namespace fp16lab {

/// Rises with every change that an older reader would misread or refuse. Readers know all versions so far:
/// 1: as here, without the bits_per_character of evaluations.csv and the resumptions of the manifest;
/// 2: with them; columns are only ever added after the others. Folders written before there was an
///    overflows.jsonl have none, and read as if nothing was known of overflows but found_inf. Those written
///    before manifests counted rows hold bits per byte as bits_per_character, which is another number where
///    the text is beyond ASCII;
/// 3: histograms.jsonl may have rows of other tensors than gradients (HistogramRow::observed); there may be a
///    recipe.jsonl, whose rows `rows` counts where there are any.
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
inline constexpr std::string_view recipe = "recipe.jsonl";
inline constexpr std::string_view checkpoints = "checkpoints";
/// For a run whose ranks came to differ: step-N-rank-K.safetensors, a checkpoint each.
inline constexpr std::string_view ranks_differ = "ranks-differ";
inline constexpr std::string_view weights = "weights.safetensors";
inline constexpr std::string_view op_statistics = "op_stats.csv";
inline constexpr std::string_view figures = "figures";
inline constexpr std::string_view report = "report.html";
inline constexpr std::string_view replay = "replay.json";
inline constexpr std::string_view replay_summary = "replay.csv";
inline constexpr std::string_view replay_traces = "replay_traces.csv";
inline constexpr std::string_view mismatch = "mismatch.json";
/// The folder's owner while a process writes in it (experiments/app/run/folder_claim.hpp); no run leaves it.
inline constexpr std::string_view claim = "claim.json";
}  // namespace run_file
/// What the schema names, the manifest first: without it nothing half deleted reads as a run.
struct RunFileName {
  std::string_view name;
  std::string_view what;
  bool is_folder = false;
};
inline constexpr std::array<RunFileName, 18> run_folder_files{{
    {run_file::manifest, "who, what, where, how it ended; whole file, replaced atomically"},
    {run_file::config, "the resolved configuration; whole file"},
    {run_file::steps, "one row an optimizer iteration; grows line by line"},
    {run_file::evaluations, "one row an evaluation; grows line by line"},
    {run_file::histograms, "one JSON object a tensor and step; grows line by line"},
    {run_file::overflows,
     "one JSON object a step with an overflow; grows line by line; empty where there was none"},
    {run_file::culprits, "one JSON object a culprit; grows line by line; only with observe.explain_overflow"},
    {run_file::recipe,
     "one JSON object an operand, product and step; grows line by line; only with amp.recipe or lab.recipe"},
    {run_file::checkpoints, "step-000100.safetensors ...: whole files, the newest ones kept", true},
    {run_file::ranks_differ, "step-000100-rank-1.safetensors ...: of a run whose ranks came to differ", true},
    {run_file::weights, "whole file, replaced atomically, with amp.save_dtype"},
    {run_file::op_statistics, "whole file, of a run with --op-stats"},
    {run_file::figures, "written by reports", true},
    {run_file::report, "written by reports"},
    {run_file::replay, "whole file, of fp16lab replay RUN -o RUN"},
    {run_file::replay_summary, "whole file, beside replay.json"},
    {run_file::replay_traces, "whole file, beside replay.json"},
    {run_file::mismatch, "whole file, of fp16lab mismatch RUN -o RUN, or lab.mismatch"},
}};

/// In the folder of a sweep, beside its runs: NAME.toml is the configuration of a run that it means to make
/// in NAME, and tasks.csv lists those of the last plan in their order.
inline constexpr std::string_view sweep_plan = "plan";
inline constexpr std::string_view sweep_tasks = "tasks.csv";

enum class ExitState {
  running,   ///< still at work, or killed
  finished,  ///< all steps done
  stopped,   ///< asked to end early
  diverged,  ///< a loss not finite (50 in a row, or the last), a skip limit, or no step that could be taken
  failed,    ///< an error; `message` says which
};
constexpr std::array<std::string_view, 5> names_of(ExitState) {
  return {"running", "finished", "stopped", "diverged", "failed"};
}

struct DataFile {
  FP16LAB_RECORD(DataFile, "manifest.json: data", 1, "A file that the run read its data from.");
  FP16LAB_FIELD(std::string, path, {}, "as it was opened");
  FP16LAB_FIELD(std::string, sha256, {}, "64 hex digits");
  FP16LAB_RECORD_END(DataFile);
};

struct Resumption {
  FP16LAB_RECORD(Resumption, "manifest.json: resumptions", 2,
                 "A run was continued after a kill or an interruption.");
  FP16LAB_FIELD(std::uint64_t, step, 0, "the last step of the checkpoint; 0: from the beginning");
  FP16LAB_FIELD(std::string, time, {}, "UTC");
  FP16LAB_FIELD(std::string, git_hash, {}, "of the sources that continued it");
  FP16LAB_RECORD_END(Resumption);
};

struct BackendRecord {
  FP16LAB_RECORD(BackendRecord, "manifest.json: backend", 2, "What computed the run.");
  FP16LAB_FIELD(std::string, device, {}, "\"emulated\" or \"cuda\"");
  FP16LAB_FIELD(std::string, tensor_core, {}, "the row that products of 16 bits follow");
  FP16LAB_FIELD(std::string, note, {}, "why backend.device = \"auto\" took it; else empty");
  FP16LAB_FIELD(std::optional<std::string>, capability, {}, "of the GPU, \"9.0\"");
  FP16LAB_FIELD(std::optional<std::string>, runtime, {}, "version of CUDA's libraries, \"13.0\"");
  FP16LAB_FIELD(std::optional<std::string>, gemm, {}, "backend.gemm");
  FP16LAB_FIELD(
      std::optional<std::uint64_t>, library_products, {},
      "products that cuBLAS computed, in an order of its own: outside of the promise of equal bits; "
      "once the run has ended, of the first rank, and without those of processes that were killed",
      .since = 3);
  FP16LAB_RECORD_END(BackendRecord);
};

/// How many rows each line file has; headers are none.
struct RunRows {
  std::uint64_t steps = 0, evaluations = 0, histograms = 0, overflows = 0, culprits = 0, recipe = 0;
  /// Digests of every line of a file, by its name: what the run wrote. The last checkpoint has those of a run
  /// that is going on, except for steps.csv, whose times differ between equal runs; older folders have none.
  std::map<std::string, std::string, std::less<>> sha256{};
  bool operator==(const RunRows&) const = default;
};

struct LineFileName {
  std::string_view name;
  std::uint64_t RunRows::*rows;
};
inline constexpr std::array<LineFileName, 6> line_files{{{run_file::steps, &RunRows::steps},
                                                         {run_file::evaluations, &RunRows::evaluations},
                                                         {run_file::histograms, &RunRows::histograms},
                                                         {run_file::overflows, &RunRows::overflows},
                                                         {run_file::culprits, &RunRows::culprits},
                                                         {run_file::recipe, &RunRows::recipe}}};

struct RankRecord {
  FP16LAB_RECORD(RankRecord, "manifest.json: ranks", 3, "The processes that trained together.");
  FP16LAB_FIELD(std::string, library, {}, "what moved their bytes: \"Open MPI v4.1.4\"");
  FP16LAB_FIELD(std::vector<std::string>, hosts, {}, "by rank");
  FP16LAB_RECORD_END(RankRecord);
};

struct Manifest {
  using Seeds = std::map<std::string, std::uint64_t>;
  FP16LAB_RECORD(Manifest, "manifest.json", 1,
                 "Who made the run, with what and where, and how it ended. `schema` and `schema_version` "
                 "come first, `sha256` last.");
  FP16LAB_FIELD(std::string, name, {},
                "what the user calls this configuration (train --name, a sweep's variant); usually empty",
                .since = 2);
  FP16LAB_FIELD(ExitState, state, ExitState::running, "how it ended; running: it is at work, or was killed");
  FP16LAB_FIELD(std::string, message, {}, "why it failed or diverged; usually empty");
  FP16LAB_FIELD(std::string, start, {}, "UTC, \"2026-01-31T12:34:56Z\"");
  FP16LAB_FIELD(std::optional<std::string>, end, {}, "UTC; none while it is running");
  FP16LAB_FIELD(std::vector<Resumption>, resumptions, {}, "in order", .since = 2);
  FP16LAB_FIELD(std::optional<RunRows>, rows, {},
                "of each file that grows line by line, written before this manifest was", .since = 2);
  FP16LAB_FIELD(
      int, state_hash_version, 1,
      "of the state_hash in steps.csv; hashes of two versions are never compared. Version 2 leaves out "
      "powers of beta1 and beta2 that no optimizer of the run reads; older folders have 1",
      .since = 3);
  FP16LAB_FIELD(std::uint64_t, first_state_hash_until, 0,
                "the last step whose state_hash is of version 1 all the same: an older build began the run",
                .since = 3);
  FP16LAB_FIELD(std::vector<std::string>, argv, {}, "the command line", .as_it_is = true);
  FP16LAB_FIELD(Seeds, seeds, {}, "by purpose: {\"train\": 1}");
  FP16LAB_FIELD(std::string, git_hash, {}, "of the sources, with \"-dirty-DIGEST\" where they had changed");
  FP16LAB_FIELD(std::string, cpu, {}, "its name");
  FP16LAB_FIELD(int, threads, 1, "that computed");
  FP16LAB_FIELD(std::string, compiler, {}, "and its version");
  FP16LAB_FIELD(std::string, flags, {}, "of the compiler");
  FP16LAB_FIELD(std::string, gemm_target, {}, "the vector target that ran the products: \"avx512\"");
  FP16LAB_FIELD(std::optional<std::string>, gpu, {}, "none where no GPU took part");
  FP16LAB_FIELD(std::optional<std::string>, driver, {}, "of the GPU");
  FP16LAB_FIELD(std::optional<BackendRecord>, backend, {}, "device and versions", .since = 2);
  FP16LAB_FIELD(std::optional<RankRecord>, ranks, {}, "none where one process trained", .since = 3);
  FP16LAB_FIELD(std::vector<DataFile>, data, {}, "by their digests");
  FP16LAB_FIELD(std::optional<RunMemory>, memory, {}, "from the second step on", .since = 3);
  FP16LAB_FIELD(std::optional<double>, seconds_per_step, {}, "the median, once the run has ended", .since = 3,
                .unit = "s");
  FP16LAB_FIELD(std::string, model, {}, "the network, as `fp16lab model --json` tells it, without levels",
                .since = 3, .json = true);
  FP16LAB_FIELD(std::optional<RunIdentity>, identity, {}, "none in older folders", .since = 3);
  FP16LAB_FIELD(std::string, config, {}, "the resolved TOML, the same text as config.toml", .as_it_is = true);
  bool altered = false;  ///< as it was read: its last member is the SHA-256 of another text
  FP16LAB_RECORD_END(Manifest);
};

/// The text of manifest.json, sealed, and its reader: std::runtime_error with the reason only.
std::string to_json(const Manifest& manifest);
Manifest parse_manifest(std::string_view text);

/// The current time as manifests write it: "2026-01-31T12:34:56Z".
std::string utc_now();

}  // namespace fp16lab
