#include "reports/data/run_set.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <iterator>
#include <map>
#include <numeric>
#include <set>
#include <stdexcept>
#include <system_error>
#include <tuple>
#include <utility>

#include "numerics/files/disk/folder.hpp"
#include "numerics/files/disk/read_file.hpp"
#include "numerics/text/text.hpp"

namespace fp16lab::reports {
namespace {

/// Gives the run what follows from its manifest.
void tell_run(Run& run, const TellRun& tell, const std::string& where) {
  Manifest& manifest = run.folder.manifest;
  if (tell) {
    ToldRun told = tell(manifest);
    run.config = flatten_toml(told.config, where);
    manifest.identity = std::move(told.identity);
  } else {
    run.config = flatten_toml(manifest.config, where);
    if (!manifest.identity) manifest.identity = identity_by_sections(run.config);
  }
  run.seed = run.id().seed;
}

Run load_run(const std::filesystem::path& folder, const TellRun& tell) {
  Run run;
  run.folder = read_run_folder(folder);
  // Rows that are not what the run wrote, or not proved to be, are parsed now rather than halfway through a page.
  if (!run.folder.damage.empty() || run.folder.manifest.state == ExitState::running) {
    if (is_file(folder / run_file::histograms)) for_each_histogram(folder, [](const HistogramRow&) {});
    read_overflows(folder);
    read_culprits(folder);
  }
  tell_run(run, tell, (folder / run_file::manifest).string());
  const std::filesystem::path clean = std::filesystem::absolute(folder).lexically_normal();
  run.name = printable((clean.has_filename() ? clean : clean.parent_path()).filename().string());
  return run;
}

Run missing_run(const std::filesystem::path& planned, const TellRun& tell) {
  Run run;
  run.missing = true;
  run.name = printable(planned.stem().string());
  run.folder.path = planned.parent_path().parent_path() / planned.stem();
  run.folder.manifest.config = read_file(planned);
  run.folder.manifest.state = ExitState::failed;
  tell_run(run, tell, planned.string());
  return run;
}

/// "key=value" for each of `settings` that not all of `bearers` have with that value; the same keys for every
/// one of them.
std::vector<std::string> differences(const std::vector<FlatConfig>& settings,
                                     const std::vector<std::size_t>& bearers) {
  struct Value {
    const std::string* text = nullptr;
    std::size_t bearers = 0;  ///< with it
    bool one = true;          ///< no bearer has another
  };
  std::map<std::string_view, Value> values;
  for (const std::size_t i : bearers)
    for (const auto& [key, text] : settings[i]) {
      Value& value = values[key];
      if (value.text == nullptr) value.text = &text;
      ++value.bearers;
      value.one = value.one && text == *value.text;
    }
  std::vector<std::string> all;
  for (const std::size_t i : bearers) {
    std::string& list = all.emplace_back();
    for (const auto& [key, text] : settings[i]) {
      const Value& value = values.at(key);
      // A missing key is as good as an empty one.
      if (value.one && (value.bearers == bearers.size() || text.empty())) continue;
      // Groups name a policy's parameters as the policy does: "growth_interval=200".
      std::string_view name = key;
      if (name.starts_with("scaler.")) name.remove_prefix(std::string_view("scaler.").size());
      list += fmt::format("{}{}={}", list.empty() ? "" : ", ", name, text);
    }
  }
  return all;
}

/// The folder's name without its seed, as a sweep writes it: "lenet5-o2-seed1" -> "lenet5-o2".
std::string without_seed(const std::string& name) {
  const std::size_t seed = name.rfind("-seed");
  const bool numbered = seed != std::string::npos && seed + 5 < name.size() &&
                        name.find_first_not_of("0123456789", seed + 5) == std::string::npos;
  return numbered ? name.substr(0, seed) : name;
}

/// What the folders' names of these runs have in common, in whole words between hyphens: what a sweep calls
/// their workload, or their variant. Empty if there is nothing.
std::string common_name(const std::vector<Run>& runs, const std::vector<std::size_t>& members) {
  std::string common = without_seed(runs[members.front()].name);
  for (const std::size_t index : members) {
    const std::string name = without_seed(runs[index].name);
    if (name == common) continue;
    std::size_t length = 0;
    while (length < std::min(name.size(), common.size()) && name[length] == common[length]) ++length;
    const bool whole =
        length == common.size() ? name[length] == '-' : length == name.size() && common[length] == '-';
    if (!whole) {
      const std::size_t hyphen = length == 0 ? std::string::npos : common.rfind('-', length - 1);
      length = hyphen == std::string::npos ? 0 : hyphen;
    }
    common.resize(length);
  }
  return common;
}

/// What a sweep calls the workload of these runs, whose folders it names WORKLOAD-VARIANT-seedN; empty where no sweep
/// made them, or several did.
std::string name_in_sweep(const std::vector<Run>& runs, const std::vector<std::size_t>& members) {
  std::string found;
  for (const std::size_t index : members) {
    const Run& run = runs[index];
    if (run.missing) continue;
    const std::string variant = "-" + run.folder.manifest.name;
    std::string name = without_seed(run.name);
    if (variant == "-" || name == run.name || !name.ends_with(variant)) return {};
    name.resize(name.size() - variant.size());
    if (!found.empty() && name != found) return {};
    found = name;
  }
  return found;
}

/// Longer lists of differences make poor names; the folders' names replace them where they distinguish the
/// bearers.
constexpr std::size_t longest_differences = 48;

/// Appends to each name that occurs more than once the settings that distinguish its bearers, or, where those
/// are many, their folders' names (`short_names`).
template <class Named>
void make_names_unique(std::vector<Named>& items, std::string Named::*name,
                       const std::vector<FlatConfig>& settings, const std::vector<std::string>& short_names) {
  const auto append_differences = [&](const std::vector<std::size_t>& bearers) {
    const std::vector<std::string> texts = differences(settings, bearers);
    for (std::size_t i = 0; i < bearers.size(); ++i)
      if (!texts[i].empty()) items[bearers[i]].*name += " (" + texts[i] + ")";
  };
  std::map<std::string, std::vector<std::size_t>> bearers_of;
  for (std::size_t i = 0; i < items.size(); ++i) bearers_of[items[i].*name].push_back(i);
  for (const auto& [shared, bearers] : bearers_of) {
    if (bearers.size() < 2) continue;
    std::size_t longest = 0;
    std::map<std::string, std::vector<std::size_t>> by_short_name;
    for (const std::string& text : differences(settings, bearers)) longest = std::max(longest, text.size());
    for (const std::size_t i : bearers) by_short_name[short_names[i]].push_back(i);
    if (longest <= longest_differences || by_short_name.size() < 2 || by_short_name.contains("")) {
      append_differences(bearers);
      continue;
    }
    for (const auto& [short_name, same] : by_short_name) {
      for (const std::size_t i : same) items[i].*name = fmt::format("{}: {}", short_name, shared);
      if (same.size() > 1) append_differences(same);
    }
  }
}

using IdentityKeys = RunIdentity::Keys RunIdentity::*;

/// Those of `members` that have equal keys together, in the order in which they come.
std::vector<std::vector<std::size_t>> grouped(const std::vector<Run>& runs,
                                              const std::vector<std::size_t>& members, IdentityKeys keys) {
  std::map<FlatConfig, std::size_t> numbers;
  std::vector<std::vector<std::size_t>> groups;
  for (const std::size_t index : members) {
    const auto [found, is_new] = numbers.try_emplace(runs[index].id().*keys, groups.size());
    if (is_new) groups.emplace_back();
    groups[found->second].push_back(index);
  }
  return groups;
}

/// The settings that distinguish the groups: every key that counts for one of them, with the value that each
/// has, a default too.
std::vector<FlatConfig> settings_of(const std::vector<Run>& runs,
                                    const std::vector<std::vector<std::size_t>>& groups, IdentityKeys keys) {
  std::set<std::string> counting;
  for (const std::vector<std::size_t>& group : groups)
    for (const auto& [key, value] : runs[group.front()].id().*keys) counting.insert(key);
  std::vector<FlatConfig> settings;
  for (const std::vector<std::size_t>& group : groups) {
    const Run& run = runs[group.front()];
    FlatConfig& own = settings.emplace_back(run.id().*keys);
    for (const std::string& key : counting)
      if (const auto found = run.config.find(key); found != run.config.end()) own.insert(*found);
  }
  return settings;
}

/// "fp32-twin" means the same as "FP32 twin".
bool same_words(std::string_view a, std::string_view b) {
  const auto plain = [](unsigned char c) { return c == '-' ? ' ' : std::tolower(c); };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [&](unsigned char x, unsigned char y) { return plain(x) == plain(y); });
}

int rank(const RunIdentity& id) {
  return (id.fp32 ? 0 : 10) + (id.perturb_ulps == 0 ? 0 : 5) +
         (id.scaling == Scaling::none    ? 0
          : id.scaling == Scaling::fixed ? 1
                                         : 2);
}

std::vector<Configuration> group_configurations(const std::vector<Run>& runs,
                                                const std::vector<std::size_t>& members) {
  const std::string workload = common_name(runs, members);
  const std::vector<std::vector<std::size_t>> equal =
      grouped(runs, members, &RunIdentity::configuration_keys);
  const std::vector<FlatConfig> settings = settings_of(runs, equal, &RunIdentity::configuration_keys);
  std::vector<Configuration> groups;
  for (const std::vector<std::size_t>& group : equal) {
    const RunIdentity& id = runs[group.front()].id();
    groups.push_back({id, id.label, group});
  }
  for (Configuration& group : groups) {
    // Every name that its runs were given, once.
    std::vector<std::string> names;
    for (const std::size_t run : group.runs)
      if (const std::string& one = runs[run].folder.manifest.name;
          !one.empty() && std::ranges::find(names, one) == names.end())
        names.push_back(one);
    constexpr std::size_t most_names = 3;
    const std::string name = names.size() > most_names
                                 ? fmt::format("{}, {} and {} more", names[0], names[1], names.size() - 2)
                                 : fmt::format("{}", fmt::join(names, ", "));
    // "policy-torch" adds as little to "FP16 torch" as "fp32" to "FP32".
    const std::string_view said = std::string_view(group.label).substr(group.label.find(' ') + 1);
    const bool says_more = !same_words(name, group.label) && !same_words(name, "policy-" + std::string(said));
    if (!name.empty() && says_more) group.label = name + ": " + group.label;
  }
  std::vector<std::string> variants;
  for (const Configuration& group : groups) {
    const std::string name = common_name(runs, group.runs);
    variants.push_back(name.size() > workload.size() ? name.substr(workload.empty() ? 0 : workload.size() + 1)
                                                     : "");
  }
  make_names_unique(groups, &Configuration::label, settings, variants);
  for (Configuration& group : groups)
    std::stable_sort(group.runs.begin(), group.runs.end(), [&](std::size_t a, std::size_t b) {
      return std::tie(runs[a].missing, runs[a].seed) < std::tie(runs[b].missing, runs[b].seed);
    });
  std::stable_sort(groups.begin(), groups.end(), [](const Configuration& a, const Configuration& b) {
    return std::make_tuple(rank(a.id), a.id.scale, a.label) <
           std::make_tuple(rank(b.id), b.id.scale, b.label);
  });
  return groups;
}

/// Notes on runs. Keeps the first ones of each kind: a reader needs no ten thousand equal ones.
class RunNotes {
 public:
  void add(std::string_view kind, std::string note) {
    if (++seen_[kind] <= most) notes_.push_back(std::move(note));
  }
  void add(const Run& run) {
    for (const std::string& note : run.folder.notes) add("odd, but harmless", run.name + ": " + note);
    if (run.missing) {
      add("missing", run.name + " is missing: the sweep planned it, but the run does not exist");
      return;
    }
    const Manifest& manifest = run.folder.manifest;
    const bool left_out =
        (manifest.state == ExitState::finished || manifest.state == ExitState::diverged) && !run.folder.whole;
    for (const std::string& damage : run.folder.damage)
      add("damaged", fmt::format("{} is damaged: {}{}", run.name, damage,
                                 left_out ? "; it is left out of the verdicts" : ""));
    switch (manifest.state) {
      case ExitState::finished:
        break;
      case ExitState::running:
        add("not finished",
            fmt::format("{} has not finished (or was killed) after {} steps; it is left out of the verdicts",
                        run.name, run.folder.steps.size()));
        break;
      case ExitState::stopped:
        add("stopped early",
            fmt::format("{} was stopped early after {} steps; it is left out of the verdicts", run.name,
                        run.folder.steps.size()));
        break;
      case ExitState::diverged:
        add("diverged",
            fmt::format("{} diverged{}{}", run.name, manifest.message.empty() ? "" : ": ", manifest.message));
        break;
      case ExitState::failed:
        add("failed",
            fmt::format("{} failed ({}); it is left out of the verdicts", run.name, manifest.message));
        break;
    }
  }
  std::vector<std::string> all() && {
    for (const auto& [kind, seen] : seen_)
      if (seen > most)
        notes_.push_back(fmt::format("{} of this kind: {}", counted(seen - most, "more note"), kind));
    return std::move(notes_);
  }

 private:
  static constexpr std::size_t most = 20;

  std::vector<std::string> notes_;
  std::map<std::string_view, std::size_t> seen_;
};

}  // namespace

const Configuration* Workload::reference() const {
  for (const Configuration& configuration : configurations)
    if (configuration.id.fp32 && configuration.id.perturb_ulps == 0) return &configuration;
  return nullptr;
}

const Configuration* Workload::twin() const {
  for (const Configuration& configuration : configurations)
    if (configuration.id.is_twin()) return &configuration;
  return nullptr;
}

std::size_t RunSet::missing() const {
  return static_cast<std::size_t>(
      std::count_if(runs.begin(), runs.end(), [](const Run& run) { return run.missing; }));
}

std::string unreadable_text(const std::string& error) {
  return "a run is left out, because it cannot be read: " + error;
}

RunSet load_runs(std::span<const std::filesystem::path> folders,
                 std::span<const std::filesystem::path> missing, const TellRun& tell) {
  if (folders.empty()) throw std::runtime_error("no run folders to report on");
  RunSet set;
  for (const std::filesystem::path& folder : folders) try {
      set.runs.push_back(load_run(folder, tell));
    } catch (const std::runtime_error& error) {
      set.unreadable.emplace_back(error.what());
    }
  if (set.runs.empty()) throw std::runtime_error(set.unreadable.front());
  std::size_t watched = 0;
  for (const Run& run : set.runs) {
    watched += is_watched(run.folder.manifest) ? 1 : 0;
    if (is_watched(run.folder.manifest)) continue;
    for (std::string& build : builds_of(run.folder.manifest))
      if (std::find(set.builds.begin(), set.builds.end(), build) == set.builds.end())
        set.builds.push_back(std::move(build));
  }
  if (watched > 0 && !set.builds.empty())
    set.notes.push_back(
        fmt::format("{} trained by PyTorch (lab.watch) and the others by fp16lab: their bits differ anyway",
                    watched == 1 ? "one run was" : fmt::format("{} runs were", watched)));
  for (const std::filesystem::path& planned : missing) set.runs.push_back(missing_run(planned, tell));

  std::vector<std::size_t> all(set.runs.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  const std::vector<std::vector<std::size_t>> members = grouped(set.runs, all, &RunIdentity::workload_keys);
  std::vector<std::string> short_names;
  for (const std::vector<std::size_t>& group : members) {
    const std::string& told = set.runs[group.front()].id().workload;
    const std::string named = name_in_sweep(set.runs, group);
    set.workloads.push_back({named.empty() || told.starts_with(named + " on ") ? told : named, {}});
    short_names.push_back(common_name(set.runs, group));
  }
  make_names_unique(set.workloads, &Workload::name,
                    settings_of(set.runs, members, &RunIdentity::workload_keys), short_names);
  for (std::size_t w = 0; w < set.workloads.size(); ++w)
    set.workloads[w].configurations = group_configurations(set.runs, members[w]);
  std::stable_sort(set.workloads.begin(), set.workloads.end(),
                   [](const Workload& a, const Workload& b) { return a.name < b.name; });

  RunNotes notes;
  for (const std::string& error : set.unreadable) notes.add("unreadable", unreadable_text(error));
  for (const Run& run : set.runs) notes.add(run);
  std::ranges::move(std::move(notes).all(), std::back_inserter(set.notes));
  if (set.builds.size() > 1)
    set.notes.push_back(fmt::format("these runs were made by {} builds, whose bits may differ: {}",
                                    set.builds.size(), fmt::join(set.builds, "; ")));
  for (const Workload& workload : set.workloads)
    for (const Configuration& configuration : workload.configurations) {
      std::set<std::uint64_t> seeds, repeated;
      for (const std::size_t index : configuration.runs)
        if (const std::uint64_t seed = set.runs[index].seed; !seeds.insert(seed).second)
          repeated.insert(seed);
      if (!repeated.empty())
        set.notes.push_back(
            fmt::format("{}, {}: more than one run of seed {}; the first of each is judged in pairs",
                        workload.name, configuration.label, fmt::join(repeated, ", ")));
    }
  return set;
}

const Run* representative(const RunSet& set, const Configuration& configuration) {
  const auto has_histograms = [](const Run& run) {
    std::error_code error;
    const auto size = std::filesystem::file_size(run.folder.path / run_file::histograms, error);
    return !error && size > 0;
  };
  const Run* any = nullptr;
  for (const std::size_t index : configuration.runs) {
    const Run& run = set.runs[index];
    if (!has_histograms(run)) continue;
    if (run.folder.finished()) return &run;
    if (any == nullptr) any = &run;
  }
  return any;
}

}  // namespace fp16lab::reports
