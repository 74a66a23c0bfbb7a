#include "experiments/app/run/continuation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <stdexcept>
#include <string_view>

#include "experiments/app/config/network_rows.hpp"
#include "experiments/app/exit_code.hpp"
#include "experiments/app/run/run_backend.hpp"
#include "numerics/files/disk/folder.hpp"
#include "numerics/files/run/run_folder.hpp"
#include "numerics/files/run/run_resume.hpp"

namespace fp16lab::experiments {
namespace {

constexpr std::array<std::string_view, 2> length_keys{"train.steps", "train.epochs"};
constexpr std::string_view other_bits = "its steps so far would have had other bits";

bool by_cublas(const BackendRecord& record) { return record.gemm && record.gemm->starts_with("cublas"); }

bool is_length(const ConfigKey& key) {
  return std::find(length_keys.begin(), length_keys.end(), key.name) != length_keys.end();
}

/// Do two values mean the same bits? Rows are compared as far as the configurations say them, devices not at
/// all (the rest is require_same_arithmetic's), and cuBLAS has bits of its own.
bool same_arithmetic(const ConfigKey& key, const RunConfig& before, const RunConfig& after) {
  if (key.name == "backend.tensor_core") {
    const auto row = configured_tensor_core(before.backend), now = configured_tensor_core(after.backend);
    return !row || !now || *row == *now;
  }
  if (key.name == "backend.gemm") return gemm_route(before.backend.gemm) == gemm_route(after.backend.gemm);
  return key.role == KeyRole::machine || key.role == KeyRole::watching;
}

[[noreturn]] void refuse_other_bits(std::string_view key, std::string_view after, std::string_view before,
                                    const std::filesystem::path& folder, std::string_view reason) {
  throw CommandError(
      ExitCode::usage,
      fmt::format("--resume: {} = {}, but the run in {} has {}, and {}; begin another run in another folder",
                  key, after, folder.string(), before, reason));
}

/// Does the learning rate of a step depend on how long the run is?
bool schedule_follows_length(const RunConfig& config) {
  return ends(config.optimizer.schedule.name) && config.optimizer.schedule.total_steps == 0;
}

}  // namespace

void with_advice(const std::filesystem::path& folder, const std::function<void()>& load) {
  try {
    load();
  } catch (const std::runtime_error& error) {
    const std::vector<StoredCheckpoint> all = stored_checkpoints(folder);
    const std::string instead =
        all.size() > 1 ? "continue from " + all[all.size() - 2].path.filename().string() : "begin again";
    throw CommandError(ExitCode::run_failed,
                       fmt::format("{} (delete this file to {})", error.what(), instead));
  }
}

std::optional<Continuation> find_continuation(const std::filesystem::path& folder) {
  if (!is_run_folder(folder)) return std::nullopt;
  Continuation found;
  found.manifest = read_manifest(folder);
  if (found.manifest.altered)
    throw CommandError(ExitCode::run_failed,
                       fmt::format("--resume: {} is not what the run wrote (it has another SHA-256); restore "
                                   "it from a copy, or start again with --force",
                                   (folder / run_file::manifest).string()));
  const std::filesystem::path config = folder / run_file::config;
  found.folder_config = is_there(config)
                            ? load_config(config)
                            : parse_config(found.manifest.config, (folder / run_file::manifest).string());
  found.begun_with = parse_config(found.manifest.config, (folder / run_file::manifest).string());

  const std::vector<StoredCheckpoint> all = stored_checkpoints(folder);
  if (all.empty()) return found;
  with_advice(folder, [&] {
    const StoredCheckpoint& newest = all.back();
    found.checkpoint = std::make_unique<engine::CheckpointFile>(newest.path);
    if (found.checkpoint->iteration() != newest.step)
      throw std::runtime_error(fmt::format("{}: holds iteration {}, not that of its name",
                                           newest.path.string(), found.checkpoint->iteration()));
    found.begun_with = parse_config(found.checkpoint->metadata("config"),
                                    fmt::format("{}: metadata: config", newest.path.string()));
    if (const std::string* rows = found.checkpoint->find_metadata(rows_key)) {
      try {
        found.rows = parse_run_rows(*rows);
      } catch (const std::runtime_error& error) {
        throw std::runtime_error(
            fmt::format("{}: metadata: {}: {}", newest.path.string(), rows_key, error.what()));
      }
    }
  });
  return found;
}

bool other_length(const RunConfig& begun_with, const RunConfig& now) {
  const auto of_length = [](const KeyDifference& difference) { return is_length(*difference.key); };
  return std::ranges::any_of(key_differences(begun_with, now), of_length);
}

void require_resumable(const RunConfig& begun_with, const RunConfig& now,
                       const std::filesystem::path& folder) {
  std::vector<KeyDifference> others = key_differences(begun_with, now);
  std::erase_if(others, [&](const KeyDifference& difference) {
    return (is_length(*difference.key) && !schedule_follows_length(begun_with)) ||
           same_arithmetic(*difference.key, begun_with, now);
  });
  // What both read comes first: it is why the others are read by one alone.
  std::ranges::stable_partition(
      others, [](const KeyDifference& difference) { return !difference.a.empty() && !difference.b.empty(); });
  if (!others.empty()) {
    const auto& [key, before, after] = others.front();
    refuse_other_bits(
        key->name, after.empty() ? "not set" : after, before.empty() ? "nothing" : before, folder,
        is_length(*key)
            ? fmt::format("its {} schedule ends with the run", name_of(begun_with.optimizer.schedule.name))
            : std::string(other_bits));
  }
  if (begun_with.model.rows == now.model.rows) return;
  const std::map<std::string, std::string> before = network_values(begun_with.model.rows);
  const std::map<std::string, std::string> after = network_values(now.model.rows);
  for (const auto* values : {&after, &before})
    for (const auto& [key, value] : *values) {
      const auto old = before.find(key), changed = after.find(key);
      const std::string none = "nothing";
      const std::string& a = changed == after.end() ? none : changed->second;
      const std::string& b = old == before.end() ? none : old->second;
      if (a != b) refuse_other_bits(key, a, b, folder, other_bits);
    }
}

void require_same_arithmetic(const Manifest& manifest, const RunConfig& begun_with, const BackendRecord& now,
                             const std::filesystem::path& folder) {
  const auto quoted = [](std::string_view text) { return fmt::format("\"{}\"", text); };
  const BackendRecord before = manifest.backend.value_or(BackendRecord{
      .device = std::string(name_of(begun_with.backend.device)),
      .tensor_core = std::string(configured_tensor_core(begun_with.backend).value_or(now.tensor_core))});
  if (before.tensor_core != now.tensor_core)
    refuse_other_bits("backend.tensor_core", quoted(now.tensor_core), quoted(before.tensor_core), folder,
                      other_bits);
  if (before.device != now.device && (by_cublas(before) || by_cublas(now)))
    refuse_other_bits("backend.device", quoted(now.device), quoted(before.device), folder,
                      "with backend.gemm = \"cublas\" their bits differ");
}

void require_same_ranks(const Manifest& manifest, const RunConfig& begun_with,
                        const std::optional<RankRecord>& now, const std::filesystem::path& folder) {
  if (begun_with.parallel.wire.order != engine::parallel::SumOrder::library) return;
  const auto text = [](const std::optional<RankRecord>& ranks) {
    return ranks ? fmt::format("{} ranks of {}", ranks->hosts.size(), ranks->library)
                 : std::string("one process");
  };
  if (text(now) == text(manifest.ranks)) return;
  throw CommandError(
      ExitCode::usage,
      fmt::format(
          "--resume: with parallel.order = mpi bits are those of the ranks and their library: the run in {} "
          "has {}, and this is {}; expected the same ones",
          folder.string(), text(manifest.ranks), text(now)));
}

void require_same_data(const Manifest& manifest, std::span<const engine::data::SourceFile> files) {
  const auto refuse = [](const std::string& what) {
    throw CommandError(ExitCode::usage, fmt::format("--resume: the data have changed: {}", what));
  };
  if (files.size() != manifest.data.size())
    refuse(fmt::format("{} files, but the run was begun with {}", files.size(), manifest.data.size()));
  for (std::size_t i = 0; i < files.size(); ++i)
    if (files[i].sha256 != manifest.data[i].sha256)
      refuse(fmt::format("{} has the SHA-256 {}, but the run was begun with {} ({})", files[i].path.string(),
                         files[i].sha256, manifest.data[i].sha256, manifest.data[i].path));
}

}  // namespace fp16lab::experiments
