#include "numerics/files/run/run_resume.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <stdexcept>
#include <string>
#include <system_error>

#include "numerics/files/disk/atomic_file.hpp"
#include "numerics/files/disk/folder.hpp"
#include "numerics/files/disk/read_file.hpp"
#include "numerics/files/disk/sha256.hpp"
#include "numerics/files/run/record_csv.hpp"
#include "numerics/files/run/record_json.hpp"
#include "numerics/files/run/run_schema.hpp"
#include "numerics/text/text.hpp"

namespace fp16lab {
namespace {

constexpr std::string_view name_prefix = "step-";
constexpr std::string_view name_suffix = ".safetensors";

/// Files that a run replaces as a whole, besides checkpoints.
bool is_whole_file(std::string_view name) {
  return name == run_file::manifest || name == run_file::config || name == run_file::weights ||
         name == run_file::op_statistics;
}

/// The number at the beginning of `text`; nothing if there is none, or if `end` does not follow it.
std::optional<std::uint64_t> number_before(std::string_view text, std::string_view end) {
  std::uint64_t number = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{}) return std::nullopt;
  const auto digits = static_cast<std::size_t>(stop - text.data());
  return text.substr(digits).starts_with(end) ? std::optional(number) : std::nullopt;
}

/// The part of a line file before a cut.
struct LineFileFormat {
  std::filesystem::path path;
  std::string header{};       ///< empty: the file has none
  std::string_view prefix{};  ///< rows begin with it and the step
};

/// What stays up to the last row whose step is at most `last`. `check` sees every row that stays and throws
/// std::runtime_error with the reason. `written` and `sha256`: how many must stay, and the digest of what
/// stays, where that is known.
FileCut cut_after(const LineFileFormat& format, std::uint64_t last, std::optional<std::uint64_t> written,
                  const std::string* sha256,
                  const std::function<void(std::string_view, std::uint64_t)>& check) {
  const std::string path = format.path.string();
  std::size_t number = 1;
  const auto fail = [&](const std::string& why) {
    throw std::runtime_error(fmt::format("{}:{}: {}", path, number, printable(why)));
  };
  if (written == 0 && !is_there(format.path)) return {};
  LineReader lines(format.path);
  FileCut cut;
  Sha256 digest;
  for (std::string_view line; lines.next(line); ++number) {
    if (number == 1 && !format.header.empty()) {
      if (line != format.header) fail(fmt::format("the header must be '{}'", format.header));
    } else {
      const std::optional<std::uint64_t> step = line.starts_with(format.prefix)
                                                    ? number_before(line.substr(format.prefix.size()), ",")
                                                    : std::nullopt;
      if (!step) fail(fmt::format("expected {}STEP,...", format.prefix));
      if (*step > last) break;
      try {
        check(line, *step);
      } catch (const std::runtime_error& error) {
        fail(error.what());
      }
      ++cut.rows;
    }
    cut.bytes += line.size() + 1;
    digest.update(line);
    digest.update("\n");
  }
  if (cut.bytes == 0 && !format.header.empty() && written != 0)
    fail(fmt::format("the header must be '{}'", format.header));
  if (written && cut.rows != *written)
    fail(fmt::format("{} rows up to step {} end here, but {} had been written before the checkpoint",
                     cut.rows, last, *written));
  if (sha256 != nullptr && cut.rows > 0 && digest.hex_digest() != *sha256)
    throw std::runtime_error(fmt::format(
        "{}: the rows up to step {} are not those that had been written before the checkpoint (their "
        "SHA-256 is another one)",
        path, last));
  return cut;
}

}  // namespace

std::filesystem::path checkpoint_path(const std::filesystem::path& run_folder, std::uint64_t step) {
  return run_folder / run_file::checkpoints / fmt::format("{}{:06}{}", name_prefix, step, name_suffix);
}

std::vector<StoredCheckpoint> stored_checkpoints(const std::filesystem::path& run_folder) {
  std::vector<StoredCheckpoint> found;
  for (std::filesystem::path& path : entries_of(run_folder / run_file::checkpoints)) {
    const std::string name = path.filename().string();
    if (!name.starts_with(name_prefix) || !name.ends_with(name_suffix)) continue;
    const auto step = number_before(std::string_view(name).substr(name_prefix.size()), name_suffix);
    if (step && path == checkpoint_path(run_folder, *step)) found.push_back({*step, std::move(path)});
  }
  std::sort(found.begin(), found.end(),
            [](const StoredCheckpoint& a, const StoredCheckpoint& b) { return a.step < b.step; });
  return found;
}

void make_checkpoint_folder(const std::filesystem::path& run_folder) {
  make_folder_inside(run_folder / run_file::checkpoints);
}

void remove_old_checkpoints(const std::filesystem::path& run_folder, std::uint64_t keep) {
  const std::vector<StoredCheckpoint> all = stored_checkpoints(run_folder);
  if (keep == 0 || all.size() <= keep) return;
  for (std::size_t i = 0; i < all.size() - keep; ++i) remove_file(all[i].path);
}

void remove_temporary_files(const std::filesystem::path& run_folder) {
  const std::filesystem::path checkpoints = run_folder / run_file::checkpoints;
  std::error_code none;
  const bool linked = std::filesystem::is_symlink(checkpoints, none);  // another's files, then
  for (const std::filesystem::path& folder : {run_folder, checkpoints}) {
    if (folder == checkpoints && linked) continue;
    for (const std::filesystem::path& path : entries_of(folder)) {
      const std::string name = path.filename().string();
      std::string_view whole;
      if (!AtomicFile::is_temporary(name, whole)) continue;
      const bool ours = folder == run_folder ? is_whole_file(whole)
                                             : whole.starts_with(name_prefix) && whole.ends_with(name_suffix);
      if (ours) remove_file(path);
    }
  }
}

RunRows RunCut::rows() const {
  return {.steps = steps.rows,
          .evaluations = evaluations.rows,
          .histograms = histograms.rows,
          .overflows = overflows.rows,
          .culprits = culprits ? culprits->rows : 0,
          .recipe = recipe ? recipe->rows : 0};
}

RunCut find_cut(const std::filesystem::path& run_folder, std::uint64_t step, std::uint64_t state_hash,
                const std::optional<RunRows>& written) {
  const auto rows = [&](std::uint64_t RunRows::*file) {
    return written ? std::optional((*written).*file) : std::nullopt;
  };
  const auto digest = [&](std::string_view name) -> const std::string* {
    if (!written) return nullptr;
    const auto found = written->sha256.find(name);
    return found == written->sha256.end() ? nullptr : &found->second;
  };
  const auto jsonl = [&](std::string_view name, std::uint64_t RunRows::*file, auto parse) {
    return cut_after({.path = run_folder / name, .prefix = "{\"step\":"}, step, rows(file), digest(name),
                     [parse](std::string_view line, std::uint64_t) { parse(line); });
  };
  const std::filesystem::path steps = run_folder / run_file::steps;
  std::uint64_t reached = 0;
  const auto check = [&](std::string_view line, std::uint64_t number) {
    if (number != reached + 1)
      throw std::runtime_error(fmt::format("step {} follows step {}", number, reached));
    reached = number;
    const StepRow row = parse_csv<StepRow>(line);
    if (number == step && row.state_hash != state_hash)
      throw std::runtime_error(
          fmt::format("step {} has the state_hash {:016x}, but its checkpoint has {:016x}", number,
                      row.state_hash, state_hash));
  };
  RunCut cut;
  cut.steps =
      cut_after({.path = steps, .header = csv_header<StepRow>()}, step, {}, digest(run_file::steps), check);
  if (reached != step)
    throw std::runtime_error(
        fmt::format("{} ends at step {}, before its checkpoint of step {}", steps.string(), reached, step));
  cut.evaluations =
      cut_after({.path = run_folder / run_file::evaluations, .header = csv_header<EvaluationRow>()}, step - 1,
                rows(&RunRows::evaluations), digest(run_file::evaluations),
                [](std::string_view line, std::uint64_t) { parse_csv<EvaluationRow>(line); });
  cut.histograms = jsonl(run_file::histograms, &RunRows::histograms, run_json::parse_json_line<HistogramRow>);
  if (written || is_there(run_folder / run_file::overflows))
    cut.overflows = jsonl(run_file::overflows, &RunRows::overflows, run_json::parse_json_line<OverflowRow>);
  if ((written && written->culprits > 0) || is_there(run_folder / run_file::culprits))
    cut.culprits = jsonl(run_file::culprits, &RunRows::culprits, run_json::parse_json_line<CulpritRow>);
  if ((written && written->recipe > 0) || is_there(run_folder / run_file::recipe))
    cut.recipe = jsonl(run_file::recipe, &RunRows::recipe, run_json::parse_json_line<RecipeRow>);
  return cut;
}

}  // namespace fp16lab
