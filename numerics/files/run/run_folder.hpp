// Writing and reading run folders (schema: numerics/files/run/run_schema.hpp).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "numerics/files/disk/atomic_file.hpp"
#include "numerics/files/run/run_resume.hpp"
#include "numerics/files/run/run_schema.hpp"

namespace fp16lab {

/// Writes one run. Every append has reached the kernel when it returns; finish() is what makes a
/// run finished. Failures throw std::runtime_error with the path and the system's reason.
class RunWriter {
 public:
  /// Begins a run in `folder` (made with its parents if needed): manifest with state `running` (and `start`
  /// set to now if it is empty), config.toml, and the four line files, those in CSV with their headers. A
  /// folder that already holds a manifest throws std::runtime_error; see remove_run().
  RunWriter(std::filesystem::path folder, Manifest manifest);

  /// Continues the run in `folder` after `step`, whose state_hash this is (0: from the beginning): its line
  /// files are cut back to it (numerics/files/run/run_resume.hpp; `written`: the rows that its checkpoint
  /// speaks of). `manifest` is the folder's, with its resumption added as the last one; before anything is
  /// cut it is written with state `running`, and config.toml with it. A folder that cannot be cut there is
  /// left as it is (std::runtime_error). The caller holds the folder.
  static RunWriter resume(const std::filesystem::path& folder, Manifest manifest, std::uint64_t step,
                          std::uint64_t state_hash, const std::optional<RunRows>& written = {});

  void append(const StepRow& row);
  void append(const EvaluationRow& row);
  void append(const HistogramRow& row);
  void append(const OverflowRow& row);
  void append(const CulpritRow& row);  ///< the file begins with its first row
  void append(const RecipeRow& row);   ///< likewise

  /// Replaces the manifest by one that has it.
  void set_memory(const RunMemory& memory);

  /// Adds to those that the manifest of a continued run has; finish() writes it.
  void add_library_products(std::uint64_t products);

  /// Waits until the disk has every row.
  void sync();
  /// Syncs the line files, then replaces the manifest by one with this state, the message, the end time, the
  /// median of the steps' seconds, and the digests of the line files.
  void finish(ExitState state, std::string message = {});

  /// Written so far, those of the run that is continued included, with their digests.
  RunRows rows() const;
  const Manifest& manifest() const { return manifest_; }
  const std::filesystem::path& folder() const { return folder_; }

 private:
  RunWriter(std::filesystem::path folder, Manifest manifest, const RunCut& keep);

  std::filesystem::path folder_;
  Manifest manifest_;
  LineFile steps_;
  LineFile evaluations_;
  LineFile histograms_;
  LineFile overflows_;
  std::optional<LineFile> culprits_, recipe_;
};

/// Everything but the histograms, which may be large and are streamed.
struct RunFolder {
  std::filesystem::path path;
  Manifest manifest;
  std::vector<StepRow> steps;
  std::vector<EvaluationRow> evaluations;
  /// What was odd but harmless: "steps.csv: the last line is cut off (17 bytes) and was left out".
  std::vector<std::string> notes;
  /// What the folder lacks of what its run wrote: "histograms.jsonl is missing", "steps.csv has 30 rows, but
  /// the run wrote 40"; and what the run did not write: "steps.csv is not what the run wrote". For runs that
  /// are going on or were killed, and older folders, the list is incomplete.
  std::vector<std::string> damage;
  bool whole = true;  ///< none of it in `manifest`, `steps` and `evaluations`
  /// Is some of it in this file?
  bool damaged(std::string_view file) const;

  /// The run reached its end, and the records of how it ended are complete.
  bool finished() const { return manifest.state == ExitState::finished && whole; }
};

/// The median of the steps' seconds; the greater of two in the middle. Nothing without steps.
std::optional<double> median_seconds(std::span<const StepRow> steps);

/// Is there a run (a manifest) in this folder?
bool is_run_folder(const std::filesystem::path& folder);

/// Only the manifest, e.g. to ask whether a run is finished. A schema version that this build does not know,
/// damaged JSON, a missing key or a wrong type throws std::runtime_error naming the file and what is wrong.
Manifest read_manifest(const std::filesystem::path& folder);

/// Did lab.watch record it, beside a training run of PyTorch's? Its build names torch.
bool is_watched(const Manifest& manifest);

/// A sentence without its stop, where cuBLAS has computed products of the run; else empty.
std::string library_products_text(const Manifest& manifest);

/// A build of the program, for people and for comparing: "0123456789ab (GCC 12.2.0, -O3)". Equal names mean
/// equal bits.
std::string build_name(const std::string& git_hash, const std::string& compiler, const std::string& flags);
/// The builds that made the run: one, and the commits of those that continued it where they are others.
std::vector<std::string> builds_of(const Manifest& manifest);

/// Readable also while the run is going on or after it was killed: an unterminated last line is dropped and
/// noted. Any other damage throws std::runtime_error "FILE:LINE: reason".
RunFolder read_run_folder(const std::filesystem::path& folder);
/// The same where the folder's manifest is read already.
RunFolder read_run_folder(const std::filesystem::path& folder, Manifest manifest);

/// Calls `visit` for every line of histograms.jsonl that is about one of `which`, in file order, holding one
/// line at a time. Returns the length of a torn last line, which is left out (0: none).
std::size_t for_each_histogram(const std::filesystem::path& folder,
                               const std::function<void(const HistogramRow&)>& visit,
                               ObservedSet which = {Observed::gradients});
/// The same from byte `begin`, where a line begins, until `visit` returns false. It also gets the byte at
/// which its line begins, so that a row can be read again without those before it.
std::size_t for_each_histogram(const std::filesystem::path& folder, std::uint64_t begin,
                               const std::function<bool(const HistogramRow&, std::uint64_t)>& visit,
                               ObservedSet which = {Observed::gradients});
std::vector<HistogramRow> read_histograms(const std::filesystem::path& folder,
                                          ObservedSet which = {Observed::gradients});

/// The steps in which something overflowed; none for a folder without an overflows.jsonl. A torn last line is
/// left out.
std::vector<OverflowRow> read_overflows(const std::filesystem::path& folder);

/// The culprits of the steps in which something overflowed; none for a folder without a culprits.jsonl. A
/// torn last line is left out.
std::vector<CulpritRow> read_culprits(const std::filesystem::path& folder);
/// What operands lost to a recipe; none for a folder without a recipe.jsonl. A torn last line is left out.
std::vector<RecipeRow> read_recipe(const std::filesystem::path& folder);

/// Throws std::runtime_error unless what the schema names in `folder`, the claim aside, is what a run makes:
/// regular files and folders, no links, FIFOs or devices. Before a run is continued: some of it is written
/// only at the end.
void require_plain_run(const std::filesystem::path& folder);

/// Deletes what the schema names in `folder`, the manifest first (so that nothing half deleted reads as a
/// run), and the folder itself if nothing else is left in it. Checkpoints included; other files stay.
void remove_run(const std::filesystem::path& folder);

}  // namespace fp16lab
