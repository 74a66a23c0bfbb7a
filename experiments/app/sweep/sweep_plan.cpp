#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "engine/amp/policies/layer_rule.hpp"
#include "engine/amp/policy.hpp"
#include "experiments/app/arguments.hpp"
#include "experiments/app/config/run_identity.hpp"
#include "experiments/app/config/run_plan.hpp"
#include "experiments/app/registry.hpp"
#include "experiments/app/sweep/sweep.hpp"
#include "numerics/files/disk/read_file.hpp"
#include "numerics/text/nearest_name.hpp"
#include "numerics/text/nesting.hpp"
#include "numerics/text/own_command.hpp"
#include "numerics/text/text.hpp"

namespace fp16lab::experiments {
namespace {

[[noreturn]] void fail(const std::string& where, const std::string& what) {
  throw CommandError(ExitCode::usage, fmt::format("{}: {}", where, what));
}

std::string line_of(const std::string& source, const toml::node& node) {
  return fmt::format("{}:{}", source, node.source().begin.line);
}

constexpr SweepFileKey file_keys[] = {
    {"workload.name", "text", "", "begins the names of its runs' folders: letters, digits, '-', '_' and '.'"},
    {"workload.config", "text", "", "the configuration of its runs: a file, relative to the sweep file"},
    {"workload.set", "a list of \"key=value\"", "[]", "over the configuration, as --set"},
    {"workload.seeds", "a list of integers", "[1]", "train.seed of its runs; --seed and --seeds override it"},
    {"workload.variants", "a list of names", "all", "the variants that it is run with"},
    {"variant.name", "text", "", "the next part of the names, and its name in tables and figures"},
    {"variant.set", "a list of \"key=value\"", "[]",
     "over the workload's configuration; --set comes after it"},
};

/// "name", "config", ... of "workload".
std::vector<std::string> keys_of(const std::string& table) {
  std::vector<std::string> keys;
  for (const SweepFileKey& key : file_keys)
    if (key.name.starts_with(table + ".")) keys.emplace_back(key.name.substr(table.size() + 1));
  return keys;
}

void require_known_keys(const toml::table& table, const std::string& source,
                        const std::vector<std::string>& known) {
  for (const auto& [key, node] : table) {
    const std::string name(key.str());
    if (std::find(known.begin(), known.end(), name) == known.end())
      fail(fmt::format("{}:{}", source, key.source().begin.line),
           fmt::format("unknown key '{}' in a sweep; expected {}{}", name, fmt::join(known, ", "),
                       did_you_mean(name, known)));
  }
}

std::string required_text(const toml::table& table, const std::string& source, const char* key) {
  const toml::node* node = table.get(key);
  if (node == nullptr) fail(line_of(source, table), fmt::format("'{}' is missing", key));
  if (!node->is_string() || node->as_string()->get().empty())
    fail(line_of(source, *node), fmt::format("{}: expected text", key));
  return node->as_string()->get();
}

std::vector<std::string> optional_texts(const toml::table& table, const std::string& source, const char* key,
                                        const char* kind = "\"key=value\"") {
  std::vector<std::string> texts;
  const toml::node* node = table.get(key);
  if (node == nullptr) return texts;
  if (!node->is_array()) fail(line_of(source, *node), fmt::format("{}: expected a list of {}", key, kind));
  for (const toml::node& item : *node->as_array()) {
    if (!item.is_string()) fail(line_of(source, item), fmt::format("{}: expected a list of {}", key, kind));
    texts.push_back(item.as_string()->get());
  }
  return texts;
}

std::vector<std::uint64_t> seeds_of(const toml::table& table, const std::string& source) {
  const toml::node* node = table.get("seeds");
  if (node == nullptr) return {1};
  std::vector<std::uint64_t> seeds;
  bool in_range = true;
  if (node->is_array())
    for (const toml::node& item : *node->as_array()) {
      const std::int64_t seed = item.is_integer() ? item.as_integer()->get() : -1;
      in_range = in_range && seed >= 0 && seed <= largest_count;
      seeds.push_back(static_cast<std::uint64_t>(seed));
    }
  if (seeds.empty() || !in_range)
    fail(line_of(source, *node),
         fmt::format("seeds: expected a list of integers from 0 to {}", largest_count));
  return seeds;
}

/// The tables of [[name]], at least one.
std::vector<const toml::table*> tables_of(const toml::table& root, const std::string& source,
                                          const std::string& name) {
  const toml::node* node = root.get(name);
  if (node == nullptr) fail(source, fmt::format("no [[{}]] in this sweep", name));
  std::vector<const toml::table*> tables;
  if (node->is_array())
    for (const toml::node& item : *node->as_array())
      if (item.is_table()) tables.push_back(item.as_table());
  if (tables.empty()) fail(line_of(source, *node), fmt::format("{}: expected [[{}]] tables", name, name));
  return tables;
}

/// Does the workload take part in the variant?
bool joins(const SweepWorkload& workload, const SweepVariant& variant) {
  return workload.variants.empty() || std::find(workload.variants.begin(), workload.variants.end(),
                                                variant.name) != workload.variants.end();
}

void require_known_variants(const SweepWorkload& workload, const std::vector<SweepVariant>& variants) {
  std::vector<std::string> known;
  known.reserve(variants.size());
  for (const SweepVariant& variant : variants) known.push_back(variant.name);
  for (const std::string& name : workload.variants)
    if (std::find(known.begin(), known.end(), name) == known.end())
      fail(workload.where, fmt::format("variants: there is no [[variant]] with the name '{}'{}", name,
                                       did_you_mean(name, known)));
}

const std::string policy_prefix = "policy-";

SweepVariant fp32_variant(const std::string& where) {
  return {.name = "fp32", .set = {"amp.level=O0", "scaler.policy=none"}, .where = where};
}

/// An FP32 reference where the file has none, and a variant for each policy.
void add_policies(const std::vector<std::string>& policies, std::string_view level,
                  std::vector<SweepWorkload>& workloads, std::vector<SweepVariant>& variants) {
  if (policies.empty()) return;
  std::vector<SweepVariant> added;
  const auto is_reference = [](const SweepVariant& variant) { return variant.name == "fp32"; };
  if (std::none_of(variants.begin(), variants.end(), is_reference))
    added.push_back(fp32_variant("--policies"));
  const std::vector<std::string> known = policy_names();
  std::vector<std::string> wanted;
  for (const std::string& policy : policies) {
    if (policy == "all") {
      for (const auto& description : engine::amp::scale_policies()) wanted.emplace_back(description.name);
    } else if (std::find(known.begin(), known.end(), policy) == known.end()) {
      fail("--policies", fmt::format("no policy '{}'{}", policy, did_you_mean(policy, known)));
    } else {
      wanted.push_back(policy);
    }
  }
  for (const std::string& policy : wanted) {
    SweepVariant variant{.name = policy_prefix + policy,
                         .set = {fmt::format("amp.level={}", level), "scaler.policy=" + policy},
                         .where = "--policies"};
    // Both scale only what scaler.groups names, and without a name the configuration is refused. Names of
    // layers differ from workload to workload, so one pattern takes every layer. 2^8 rather than 1, at which
    // the run would begin as one without scaling: under groups, whose scale grows by 2^(1/1000) a step, a
    // short run would also end as one.
    if (policy == engine::amp::layerwise_policy || policy == engine::amp::groups_policy)
      variant.set.emplace_back("scaler.groups=[\"*=2^8\"]");
    added.push_back(std::move(variant));
  }
  for (SweepWorkload& workload : workloads)
    if (!workload.variants.empty())
      for (const SweepVariant& variant : added) workload.variants.push_back(variant.name);
  variants.insert(variants.end(), added.begin(), added.end());
}

/// Has it a section of a run's configuration?
bool is_run_config(const toml::table& root) {
  const std::span<const ConfigKey> keys = config_keys();
  return std::any_of(keys.begin(), keys.end(), [&root](const ConfigKey& key) {
    return root.contains(key.name.substr(0, key.name.find('.')));
  });
}

/// Names become parts of folder names.
void require_plain_name(const std::string& name, const std::string& where) {
  const bool plain = !name.empty() && std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
  });
  if (!plain || name.front() == '.')
    fail(where,
         fmt::format("name = \"{}\": expected letters, digits, '-', '_' and '.', not beginning with '.'",
                     name));
}

/// Keys as they are given to many runs at once: to the whole sweep, a workload or a variant. Each must mean
/// something
/// to one of those runs at least, or to what the same place chose where --set chose otherwise.
class GivenKeys {
 public:
  void add(const std::string& where, const std::string& setting, const RunConfig& config) {
    const auto [given, first] = why_unread_.try_emplace({where, setting});
    if (first || !given->second.empty()) given->second = why_unread(config, setting);
  }
  void require_read_once() const {
    for (const auto& [given, why] : why_unread_)
      if (!why.empty()) refuse_config(given.first, fmt::format("{}: {}", given.second, why));
  }

 private:
  /// By place and "key=value"; empty once a run reads the key.
  std::map<std::pair<std::string, std::string>, std::string> why_unread_;
};

}  // namespace

std::span<const SweepFileKey> sweep_file_keys() { return file_keys; }

SweepPlan make_plan(const std::vector<SweepWorkload>& workloads, const std::vector<SweepVariant>& variants,
                    const CommonOptions& common) {
  SweepPlan plan;
  plan.folder = common.out;
  std::set<std::string> names;
  GivenKeys keys;
  const auto note = [&plan](const PlannedRun& run, const std::vector<std::string>& sentences) {
    for (const std::string& sentence : sentences) {
      std::string line = fmt::format("{}-{}: {}", run.workload, run.variant, sentence);
      if (std::ranges::find(plan.notes, line) == plan.notes.end()) plan.notes.push_back(std::move(line));
    }
  };
  for (const SweepWorkload& workload : workloads) {
    require_known_variants(workload, variants);
    for (const SweepVariant& variant : variants) {
      if (!joins(workload, variant)) continue;
      const std::vector<std::uint64_t> seeds =
          common.seed ? std::vector{static_cast<std::uint64_t>(*common.seed)} : workload.seeds;
      for (const std::uint64_t seed : seeds) {
        PlannedRun run;
        run.workload = workload.name;
        run.variant = variant.name;
        run.name = fmt::format("{}-{}-seed{}", workload.name, variant.name, seed);
        run.folder = plan.folder / run.name;
        run.config = workload.config;
        note(run, apply_settings(run.config, variant.set, variant.where));
        resolve_data_path(run.config, common.config.parent_path());
        RunConfig of_variant = run.config;
        resolve_names(of_variant, run.name);
        note(run, apply_settings(run.config, common.set, "--set"));
        resolve_data_path(run.config, {});
        run.config.train.seed = seed;
        resolve_names(run.config, run.name);
        for (const std::string& setting : workload.given) keys.add(workload.where, setting, run.config);
        for (const std::string& setting : variant.set) {
          keys.add(variant.where, setting, of_variant);
          keys.add(variant.where, setting, run.config);
        }
        for (const std::string& setting : common.set) keys.add("--set", setting, run.config);
        note(run, leave_out_unread(run.config));
        resolve_run(run.config, run.name);
        if (!names.insert(run.name).second) fail("sweep", fmt::format("the run {} appears twice", run.name));
        plan.runs.push_back(std::move(run));
      }
    }
  }
  keys.require_read_once();
  return plan;
}

void add_twins(SweepPlan& plan) {
  SweepPlan all{.folder = plan.folder, .runs = {}, .notes = plan.notes};
  std::map<std::string, std::uint64_t> ulps;  // by name
  for (const PlannedRun& run : plan.runs) ulps.emplace(run.name, run.config.train.perturb_ulps);
  bool any = false, any_unmoved = false;
  for (PlannedRun& run : plan.runs) {
    PlannedRun twin = run;
    all.runs.push_back(std::move(run));
    const RunConfig& config = twin.config;
    if (!identity_of(config).is_reference()) continue;
    any = true;
    if (config.train.perturb_ulps != 0) continue;
    any_unmoved = true;
    twin.variant += "-twin";
    twin.name = fmt::format("{}-{}-seed{}", twin.workload, twin.variant, config.train.seed);
    twin.folder = plan.folder / twin.name;
    twin.config.train.perturb_ulps = 1;
    twin.config.observe.histograms_every = 0;
    const auto [there, added] = ulps.emplace(twin.name, twin.config.train.perturb_ulps);
    if (there->second == 0)
      fail("--twin",
           fmt::format("the run {} of this sweep has the name of a twin but is not one", twin.name));
    if (added) all.runs.push_back(std::move(twin));
  }
  if (!any)
    fail("--twin",
         "no run of this sweep is in FP32 (amp.level = \"O0\" without a scaler), so none has a twin");
  if (!any_unmoved)
    fail("--twin",
         "train.perturb_ulps moves the weights of every FP32 run of this sweep, so no FP32 run is left to "
         "have a twin: leave it at 0");
  plan = std::move(all);
}

namespace {

/// A file's name as a workload's, which is a part of folders' names.
std::string plain_name(const std::filesystem::path& file) {
  std::string name = file.stem().string();
  for (char& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '-' && c != '_' && c != '.') c = '-';
  return name;
}

/// The configuration of one run as a sweep of one workload.
SweepWorkload workload_of_run(const CommonOptions& common) {
  SweepWorkload workload{
      .name = plain_name(common.config), .config = load_config(common.config), .seeds = {}};
  workload.where = common.config.string();
  require_plain_name(workload.name, workload.where);
  resolve_data_path(workload.config, common.config.parent_path());
  for (std::uint64_t i = 0; i < 3; ++i) workload.seeds.push_back(workload.config.train.seed + i);
  return workload;
}

}  // namespace

SweepPlan load_sweep(const CommonOptions& given, bool keep_sizes, const std::vector<std::string>& policies,
                     std::optional<std::uint64_t> seeds) {
  CommonOptions common = given;
  if (common.config.empty()) throw CommandError(ExitCode::usage, "sweep needs a sweep file, such as -c demo");
  const std::string source = common.config.string();
  toml::table root;
  try {
    const std::string text = read_file(common.config, longest::document, NamedHow::by_user);
    if (const std::optional<std::size_t> line = too_deep_in_toml(text))
      fail(fmt::format("{}:{}", source, *line), fmt::format("nested deeper than {}", deepest_nesting));
    root = toml::parse(text, source);
  } catch (const toml::parse_error& error) {
    fail(fmt::format("{}:{}", source, error.source().begin.line), std::string(error.description()));
  } catch (const std::runtime_error& error) {
    fail("--config", error.what());
  }
  const bool of_run = !root.contains("workload") && !root.contains("variant") && is_run_config(root);
  using Tables = std::vector<const toml::table*>;
  std::vector<SweepWorkload> workloads;
  std::vector<SweepVariant> variants;
  std::string_view level = "O1";
  if (of_run) {
    workloads.push_back(workload_of_run(common));
    const RunConfig& config = workloads.front().config;
    const bool fp32 = config.amp.level == engine::Level::O0;
    if (!fp32) level = name_of(config.amp.level);
    if (policies.empty() && fp32)
      fail(source,
           "this is the configuration of one run in FP32 (amp.level = \"O0\"): give --policies to compare it "
           "with, or " +
               own_command({"train", "-c", source}));
    if (policies.empty()) variants = {fp32_variant(source), {.name = "as-given", .set = {}, .where = source}};
  } else {
    require_known_keys(root, source, {"workload", "variant"});
  }
  for (const toml::table* table : of_run ? Tables{} : tables_of(root, source, "workload")) {
    require_known_keys(*table, source, keys_of("workload"));
    SweepWorkload workload;
    workload.name = required_text(*table, source, "name");
    workload.where = line_of(source, *table);
    require_plain_name(workload.name, workload.where);
    const std::filesystem::path file = common.config.parent_path() / required_text(*table, source, "config");
    workload.config = load_config(file);
    resolve_data_path(workload.config, file.parent_path());
    const std::vector<std::string> settings = optional_texts(*table, source, "set");
    workload.given = settings_unread(workload.config);
    if (!keep_sizes) {
      apply_settings(workload.config, settings, workload.where);
      workload.given.insert(workload.given.end(), settings.begin(), settings.end());
    }
    resolve_data_path(workload.config, common.config.parent_path());
    workload.seeds = seeds_of(*table, source);
    workload.variants = optional_texts(*table, source, "variants", "names");
    if (table->contains("variants") && workload.variants.empty())
      fail(line_of(source, *table->get("variants")), "variants: expected at least one name");
    workloads.push_back(std::move(workload));
  }
  const bool named = !of_run && (policies.empty() || root.contains("variant"));
  for (const toml::table* table : named ? tables_of(root, source, "variant") : Tables{}) {
    require_known_keys(*table, source, keys_of("variant"));
    SweepVariant variant;
    variant.name = required_text(*table, source, "name");
    variant.where = line_of(source, *table);
    require_plain_name(variant.name, variant.where);
    variant.set = optional_texts(*table, source, "set");
    variants.push_back(std::move(variant));
  }
  add_policies(policies, level, workloads, variants);
  if (seeds) {
    for (SweepWorkload& workload : workloads) {
      const std::uint64_t first =
          common.seed ? static_cast<std::uint64_t>(*common.seed) : workload.seeds.front();
      workload.seeds.clear();
      for (std::uint64_t i = 0; i < *seeds; ++i) workload.seeds.push_back(first + i);
    }
    common.seed.reset();
  }
  SweepPlan plan = make_plan(workloads, variants, common);
  const auto begins_as_given = [](const PlannedRun& run) {
    return run.variant.starts_with(policy_prefix) && run.config.scaler.parameters.contains("initial_scale");
  };
  if (!policies.empty() && std::ranges::any_of(plan.runs, begins_as_given))
    plan.notes.emplace_back("all policies start at the given scaler.initial_scale, not at their own");
  return plan;
}

}  // namespace fp16lab::experiments
