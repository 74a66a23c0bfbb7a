// Patterns of module paths.
#include <algorithm>
#include <stdexcept>

#include "engine/amp/levels/level.hpp"
#include "numerics/text/nearest_name.hpp"

namespace fp16lab::engine::amp {

bool matches(std::string_view pattern, std::string_view path) {
  // Two pointers, going back to the last '*' when a literal fails: linear but for the stars. A pattern that
  // is used up matches at the end of the path, and at a '.', where the path inside the named module begins.
  std::size_t p = 0, at = 0;
  std::size_t star = std::string_view::npos, resume = 0;
  while (true) {
    if (p == pattern.size() && (at == path.size() || path[at] == '.')) return true;
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = at;
    } else if (p < pattern.size() && at < path.size() && (pattern[p] == '?' || pattern[p] == path[at])) {
      ++p;
      ++at;
    } else if (star != std::string_view::npos && resume < path.size()) {
      p = star + 1;
      at = ++resume;
    } else {
      return false;
    }
  }
}

namespace {

/// The last match counts: an entry must have a name that no later one takes.
void check_used(const std::vector<ToFloat>& entries, const NetworkNames& names) {
  for (auto entry = entries.begin(); entry != entries.end(); ++entry) {
    const auto has_its_own = [&](const std::string& name) {
      return matches(entry->pattern, name) &&
             std::none_of(entry + 1, entries.end(),
                          [&name](const ToFloat& later) { return matches(later.pattern, name); });
    };
    if (std::any_of(names.layers.begin(), names.layers.end(), has_its_own) ||
        std::any_of(names.parameters.begin(), names.parameters.end(), has_its_own))
      continue;
    throw std::invalid_argument("amp.to_float = \"" + entry->pattern + "=" +
                                std::string(name_of(entry->dtype)) +
                                "\": later entries take all that it names, and the last match counts; leave "
                                "it out, or put it after them");
  }
}

}  // namespace

void check_patterns(const AmpPlan& plan, const NetworkNames& names) {
  const bool parameters_count = plan.rules.low_model || plan.level == Level::O0;
  const auto check = [&](std::string_view key, std::string_view pattern) {
    const auto named = [pattern](const std::string& name) { return matches(pattern, name); };
    if (std::any_of(names.layers.begin(), names.layers.end(), named)) return;
    const auto parameter = std::find_if(names.parameters.begin(), names.parameters.end(), named);
    const std::string what = "amp." + std::string(key) + " = \"" + std::string(pattern) + "\": ";
    const std::vector<std::string_view> layers(names.layers.begin(), names.layers.end());
    if (parameter == names.parameters.end())
      throw std::invalid_argument(what + "no layer or parameter of the network has such a name; layers: " +
                                  known_are(pattern, layers));
    if (!parameters_count)
      throw std::invalid_argument(what + "it names parameters only (" + *parameter + "), which are FP32 at " +
                                  std::string(name_of(plan.level)) +
                                  " anyway; name their layers: " + known_are(pattern, layers));
  };
  for (const std::string& pattern : plan.excluded) check("excluded", pattern);
  for (const std::string& pattern : plan.guard) check("guard", pattern);
  for (const ToFloat& entry : plan.to_float) check("to_float", entry.pattern);
  for (const std::string& pattern : plan.recipe_wide)
    if (std::none_of(names.layers.begin(), names.layers.end(),
                     [&](const std::string& layer) { return matches(pattern, layer); }))
      throw std::invalid_argument(
          "amp.recipe_wide = \"" + pattern + "\": no layer of the network has such a name; layers: " +
          known_are(pattern, std::vector<std::string_view>(names.layers.begin(), names.layers.end())));
  check_used(plan.to_float, names);
}

bool matches_any(std::span<const std::string> patterns, std::string_view path) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [path](const std::string& pattern) { return matches(pattern, path); });
}

}  // namespace fp16lab::engine::amp
