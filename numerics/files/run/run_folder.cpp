#include "numerics/files/run/run_folder.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <fstream>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "numerics/files/disk/folder.hpp"
#include "numerics/files/disk/read_file.hpp"
#include "numerics/files/run/record_csv.hpp"
#include "numerics/files/run/record_json.hpp"
#include "numerics/text/text.hpp"

namespace fp16lab {
namespace {

std::filesystem::path make_run_folder(std::filesystem::path folder) {
  make_folders(folder);
  if (is_run_folder(folder))
    throw std::runtime_error(
        fmt::format("{} already holds a run; remove it or choose another folder", folder.string()));
  return folder;
}

/// The manifest goes first: from then on the folder is a run that is not finished.
Manifest write_beginning(const std::filesystem::path& folder, Manifest manifest, const RunRows& kept) {
  manifest.state = ExitState::running;
  manifest.name = printable(manifest.name);  // a class of Python may be called anything
  manifest.rows = kept;
  manifest.end.reset();
  manifest.seconds_per_step.reset();
  if (manifest.start.empty()) manifest.start = utc_now();
  write_file_atomically(folder / run_file::manifest, to_json(manifest));
  write_file_atomically(folder / run_file::config, manifest.config);
  return manifest;
}

/// Calls a function for each line, its number given; leaves out a torn last line and returns its length.
/// Errors that `read` throws get file and line.
template <class Read>
std::size_t for_each_line(const std::filesystem::path& path, std::uint64_t begin, const Read& read) {
  LineReader lines(path, begin);
  std::string_view line;
  for (std::size_t number = 1; lines.next(line); ++number) {
    try {
      read(line, number);
    } catch (const std::runtime_error& error) {
      throw std::runtime_error(fmt::format("{}:{}: {}", path.string(), number, printable(error.what())));
    }
  }
  return lines.torn_bytes();
}

/// Rows of a CSV file that has all of their columns, or those of an older schema.
template <class Row>
std::vector<Row> read_rows(const std::filesystem::path& path, std::vector<std::string>& notes) {
  std::vector<Row> rows;
  std::size_t columns = field_count<Row>;
  // A run killed before its header is complete has no rows.
  const std::size_t torn = for_each_line(path, 0, [&](std::string_view line, std::size_t number) {
    if (number > 1) return rows.push_back(parse_csv<Row>(line, columns));
    while (columns > oldest_columns<Row>() && line != csv_header<Row>(columns)) --columns;
    if (line != csv_header<Row>(columns))
      throw std::runtime_error(fmt::format(
          "the header must be '{}'{}", csv_header<Row>(),
          line.ends_with('\r') ? ", ended by a line feed alone: a carriage return is there" : ""));
  });
  if (torn > 0)
    notes.push_back(fmt::format("{}: the last line is cut off ({} bytes) and was left out",
                                path.filename().string(), torn));
  return rows;
}

}  // namespace

RunWriter::RunWriter(std::filesystem::path folder, Manifest manifest)
    : RunWriter(make_run_folder(std::move(folder)), std::move(manifest), RunCut{}) {}

void RunWriter::set_memory(const RunMemory& memory) {
  manifest_.memory = memory;
  write_file_atomically(folder_ / run_file::manifest, to_json(manifest_));
}

void RunWriter::add_library_products(std::uint64_t products) {
  if (products > 0 && manifest_.backend)
    manifest_.backend->library_products = manifest_.backend->library_products.value_or(0) + products;
}

RunWriter::RunWriter(std::filesystem::path folder, Manifest manifest, const RunCut& keep)
    : folder_(std::move(folder)),
      manifest_(write_beginning(folder_, std::move(manifest), keep.rows())),
      steps_(folder_ / run_file::steps, keep.steps.bytes),
      evaluations_(folder_ / run_file::evaluations, keep.evaluations.bytes),
      histograms_(folder_ / run_file::histograms, keep.histograms.bytes),
      overflows_(folder_ / run_file::overflows, keep.overflows.bytes) {
  const auto keep_or_remove = [this](std::optional<LineFile>& file, std::string_view name,
                                     const std::optional<FileCut>& cut) {
    if (cut)
      file.emplace(folder_ / name, cut->bytes);
    else
      remove_file(folder_ / name);  // the resumed run's
  };
  keep_or_remove(culprits_, run_file::culprits, keep.culprits);
  keep_or_remove(recipe_, run_file::recipe, keep.recipe);
  if (keep.steps.bytes == 0) steps_.append(csv_header<StepRow>());
  if (keep.evaluations.bytes == 0) evaluations_.append(csv_header<EvaluationRow>());
}

RunWriter RunWriter::resume(const std::filesystem::path& folder, Manifest manifest, std::uint64_t step,
                            std::uint64_t state_hash, const std::optional<RunRows>& written) {
  return {folder, std::move(manifest), step == 0 ? RunCut{} : find_cut(folder, step, state_hash, written)};
}

void RunWriter::append(const StepRow& row) {
  steps_.append(to_csv(row));
  ++manifest_.rows->steps;
}
void RunWriter::append(const EvaluationRow& row) {
  if (row.split.empty() || row.split.find_first_of(",\"\n\r") != std::string::npos)
    throw std::invalid_argument(fmt::format("'{}' cannot be the split of an evaluation", row.split));
  evaluations_.append(to_csv(row));
  ++manifest_.rows->evaluations;
}
void RunWriter::append(const HistogramRow& row) {
  histograms_.append(run_json::to_json_line(row));
  ++manifest_.rows->histograms;
}
void RunWriter::append(const OverflowRow& row) {
  overflows_.append(run_json::to_json_line(row));
  ++manifest_.rows->overflows;
}
void RunWriter::append(const CulpritRow& row) {
  if (!culprits_) culprits_.emplace(folder_ / run_file::culprits, LineFile::Mode::create);
  culprits_->append(run_json::to_json_line(row));
  ++manifest_.rows->culprits;
}
void RunWriter::append(const RecipeRow& row) {
  if (!recipe_) recipe_.emplace(folder_ / run_file::recipe, LineFile::Mode::create);
  recipe_->append(run_json::to_json_line(row));
  ++manifest_.rows->recipe;
}

RunRows RunWriter::rows() const {
  RunRows rows = *manifest_.rows;
  for (const LineFile* const file : {&steps_, &evaluations_, &histograms_, &overflows_,
                                     culprits_ ? &*culprits_ : nullptr, recipe_ ? &*recipe_ : nullptr})
    if (file != nullptr) rows.sha256[file->path().filename().string()] = file->sha256();
  return rows;
}

void RunWriter::sync() {
  steps_.sync();
  evaluations_.sync();
  histograms_.sync();
  overflows_.sync();
  if (culprits_) culprits_->sync();
  if (recipe_) recipe_->sync();
}

void RunWriter::finish(ExitState state, std::string message) {
  // Rows first, the word "finished" last: no order of events makes an incomplete run read as finished.
  sync();
  manifest_.state = state;
  manifest_.message = std::move(message);
  manifest_.end = utc_now();
  manifest_.rows = rows();
  std::vector<std::string> notes;
  manifest_.seconds_per_step = median_seconds(read_rows<StepRow>(folder_ / run_file::steps, notes));
  write_file_atomically(folder_ / run_file::manifest, to_json(manifest_));
}

std::optional<double> median_seconds(std::span<const StepRow> steps) {
  if (steps.empty()) return std::nullopt;
  std::vector<double> seconds;
  for (const StepRow& step : steps) seconds.push_back(step.seconds);
  const auto middle = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
  std::nth_element(seconds.begin(), middle, seconds.end());
  return *middle;
}

bool is_run_folder(const std::filesystem::path& folder) {
  std::error_code error;
  return std::filesystem::exists(folder / run_file::manifest, error);
}

Manifest read_manifest(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / run_file::manifest;
  if (!is_run_folder(folder))
    throw std::runtime_error(
        fmt::format("{} is not a run folder: it has no {}", folder.string(), run_file::manifest));
  const std::string text = read_file(path);
  try {
    return parse_manifest(text);
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(fmt::format("{}: {}", path.string(), printable(error.what())));
  }
}

std::string build_name(const std::string& git_hash, const std::string& compiler, const std::string& flags) {
  return compiler.empty() ? git_hash : git_hash + " (" + compiler + ", " + flags + ")";
}

bool is_watched(const Manifest& manifest) { return manifest.git_hash.find(", torch ") != std::string::npos; }

std::string library_products_text(const Manifest& manifest) {
  if (!manifest.backend || !manifest.backend->library_products) return "";
  return fmt::format(
      "cuBLAS computed {} products, in an order of its own: the promise of equal bits does not hold for this "
      "run",
      *manifest.backend->library_products);
}

std::vector<std::string> builds_of(const Manifest& manifest) {
  std::vector<std::string> builds{build_name(manifest.git_hash, manifest.compiler, manifest.flags)};
  for (const Resumption& resumption : manifest.resumptions)
    if (resumption.git_hash != manifest.git_hash)
      builds.push_back(resumption.git_hash + " (continued a run)");
  return builds;
}

namespace {

constexpr std::string_view not_written = "is not what the run wrote (it has another SHA-256)";

/// What a run that has ended says of config.toml; the manifest has the same text.
std::string damage_of_config(const RunFolder& run) {
  const std::filesystem::path path = run.path / run_file::config;
  if (!is_there(path)) return fmt::format("{} is missing", run_file::config);
  return read_file(path) == run.manifest.config
             ? ""
             : fmt::format("{} is not what {} says", run_file::config, run_file::manifest);
}

/// Compares the files with what the manifest says was written, and finds gaps in the steps.
void find_damage(RunFolder& run) {
  const bool ended = run.manifest.state != ExitState::running;
  const bool digested = ended && run.manifest.rows && !run.manifest.rows->sha256.empty();
  if (run.manifest.altered) {
    run.damage.push_back(fmt::format("{} {}", run_file::manifest, not_written));
    run.whole = false;
  }
  if (digested)
    if (std::string what = damage_of_config(run); !what.empty()) run.damage.push_back(std::move(what));
  for (const LineFileName& file : line_files) {
    const bool told = file.rows == &RunRows::steps || file.rows == &RunRows::evaluations;
    const std::uint64_t written = run.manifest.rows ? *run.manifest.rows.*file.rows : 0;
    const std::optional<LinesDigest> found = digest_lines(run.path / file.name);
    std::string what;
    const std::uint64_t present = file.rows == &RunRows::steps ? run.steps.size()
                                  : told                       ? run.evaluations.size()
                                                               : found.value_or(LinesDigest{}).lines;
    if (!found && !told) {
      // Older runs kept no overflows; the files of culprits and recipes begin with their first rows. A run
      // may have been killed before it made its files, but not after its first step.
      const bool may_lack = file.rows == &RunRows::overflows
                                ? !run.manifest.rows
                                : file.rows == &RunRows::culprits || file.rows == &RunRows::recipe;
      if (written > 0)
        what = fmt::format("{} is missing, with {} rows", file.name, written);
      else if (!may_lack && (ended || !run.steps.empty()))
        what = fmt::format("{} is missing", file.name);
    } else if (run.manifest.rows && (ended ? present != written : present < written)) {
      what = fmt::format("{} has {} rows, but the run wrote {}", file.name, present, written);
    } else if (digested) {
      const auto digest = run.manifest.rows->sha256.find(file.name);
      if (digest != run.manifest.rows->sha256.end() && digest->second != found.value_or(LinesDigest{}).sha256)
        what = fmt::format("{} {}", file.name, not_written);
    }
    if (what.empty()) continue;
    run.damage.push_back(std::move(what));
    run.whole = run.whole && !told;
  }
  for (std::size_t i = 0; i < run.steps.size(); ++i) {
    if (run.steps[i].step == i + 1) continue;
    run.damage.push_back(fmt::format("{}:{}: step {} follows step {}", run_file::steps, i + 2,
                                     run.steps[i].step, i == 0 ? 0 : run.steps[i - 1].step));
    run.whole = false;
    break;
  }
}

}  // namespace

bool RunFolder::damaged(std::string_view file) const {
  return std::any_of(damage.begin(), damage.end(),
                     [file](const std::string& what) { return what.starts_with(file); });
}

RunFolder read_run_folder(const std::filesystem::path& folder) {
  return read_run_folder(folder, read_manifest(folder));
}

RunFolder read_run_folder(const std::filesystem::path& folder, Manifest manifest) {
  RunFolder run;
  run.path = folder;
  run.manifest = std::move(manifest);
  // Killed between the manifest and a line file: no rows yet. Missing from a run that ended: an error of
  // LineReader.
  const auto begun = [&](std::string_view name) {
    return run.manifest.state != ExitState::running || is_there(folder / name);
  };
  if (begun(run_file::steps)) run.steps = read_rows<StepRow>(folder / run_file::steps, run.notes);
  if (begun(run_file::evaluations))
    run.evaluations = read_rows<EvaluationRow>(folder / run_file::evaluations, run.notes);
  find_damage(run);
  return run;
}

std::size_t for_each_histogram(const std::filesystem::path& folder,
                               const std::function<void(const HistogramRow&)>& visit, ObservedSet which) {
  const auto visit_all = [&](const HistogramRow& row, std::uint64_t) {
    visit(row);
    return true;
  };
  return for_each_histogram(folder, 0, visit_all, which);
}

std::size_t for_each_histogram(const std::filesystem::path& folder, std::uint64_t begin,
                               const std::function<bool(const HistogramRow&, std::uint64_t)>& visit,
                               ObservedSet which) {
  const std::filesystem::path path = folder / run_file::histograms;
  LineReader lines(path, begin);
  std::string_view line;
  for (std::size_t number = 1; lines.next(line); ++number) {
    HistogramRow row;
    try {
      row = run_json::parse_json_line<HistogramRow>(line);
    } catch (const std::runtime_error& error) {
      throw std::runtime_error(fmt::format("{}:{}: {}", path.string(), number, printable(error.what())));
    }
    if (which.contains(row.observed) && !visit(row, begin)) return 0;
    begin += line.size() + 1;
  }
  return lines.torn_bytes();
}

std::vector<HistogramRow> read_histograms(const std::filesystem::path& folder, ObservedSet which) {
  std::vector<HistogramRow> rows;
  const auto keep = [&](const HistogramRow& row) { rows.push_back(row); };
  for_each_histogram(folder, keep, which);
  return rows;
}

namespace {

/// The rows of a JSONL file that may be missing.
template <class Row>
std::vector<Row> read_optional_lines(const std::filesystem::path& path) {
  std::vector<Row> rows;
  if (is_there(path))
    for_each_line(path, 0, [&](std::string_view line, std::size_t) {
      rows.push_back(run_json::parse_json_line<Row>(line));
    });
  return rows;
}

}  // namespace

std::vector<OverflowRow> read_overflows(const std::filesystem::path& folder) {
  return read_optional_lines<OverflowRow>(folder / run_file::overflows);
}

std::vector<CulpritRow> read_culprits(const std::filesystem::path& folder) {
  return read_optional_lines<CulpritRow>(folder / run_file::culprits);
}

std::vector<RecipeRow> read_recipe(const std::filesystem::path& folder) {
  return read_optional_lines<RecipeRow>(folder / run_file::recipe);
}

void require_plain_run(const std::filesystem::path& folder) {
  for (const RunFileName& file : run_folder_files) {
    if (!file.is_folder)
      require_replaceable(folder / file.name);
    else if (is_there(folder / file.name))
      make_folder_inside(folder / file.name);
  }
  for (const StoredCheckpoint& checkpoint : stored_checkpoints(folder)) require_replaceable(checkpoint.path);
}

void remove_run(const std::filesystem::path& folder) {
  for (const RunFileName& file : run_folder_files) remove_everything(folder / file.name);
  std::error_code not_empty;
  std::filesystem::remove(folder, not_empty);
}

}  // namespace fp16lab
