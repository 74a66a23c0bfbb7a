#include "experiments/app/commands/name_selection.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "engine/amp/levels/level.hpp"
#include "experiments/app/exit_code.hpp"
#include "numerics/text/nearest_name.hpp"
#include "numerics/text/text.hpp"

namespace fp16lab::experiments {
namespace {

/// "fc1", "fc1.gate" and "fc1.gate.weight": what a pattern may mean.
std::vector<std::string> with_modules(const std::set<std::string, std::less<>>& names) {
  std::vector<std::string> known;
  for (const std::string& name : names) {
    for (std::size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1))
      known.push_back(name.substr(0, dot));
    known.push_back(name);
  }
  std::sort(known.begin(), known.end());
  known.erase(std::unique(known.begin(), known.end()), known.end());
  return known;
}

}  // namespace

NameSelection::NameSelection(std::vector<std::string> include, std::vector<std::string> exclude) {
  for (std::string& text : include) include_.push_back({"--include", std::move(text)});
  for (std::string& text : exclude) exclude_.push_back({"--exclude", std::move(text)});
}

bool NameSelection::any_matches(std::vector<Pattern>& patterns, std::string_view name) {
  bool any = false;
  for (Pattern& pattern : patterns) {
    if (!engine::amp::matches(pattern.text, name)) continue;
    pattern.matched = any = true;
  }
  return any;
}

bool NameSelection::includes(std::string_view name) { return any_matches(include_, name); }

bool NameSelection::takes(std::string_view name) {
  if (include_.empty() && exclude_.empty()) return true;
  seen_.emplace(name);
  const bool excluded = any_matches(exclude_, name);
  return (include_.empty() || includes(name)) && !excluded;
}

void NameSelection::check() const {
  constexpr std::size_t shown_at_most = 8;
  for (const std::vector<Pattern>* patterns : {&include_, &exclude_})
    for (const Pattern& pattern : *patterns) {
      if (pattern.matched) continue;
      std::vector<std::string> shown(seen_.begin(), seen_.end());
      shown.resize(std::min(shown.size(), shown_at_most));
      throw CommandError(
          ExitCode::usage,
          printable(fmt::format(
              "{} {}: no tensor has such a name; there are {}{}{}", pattern.option, pattern.text,
              fmt::join(shown, ", "),
              seen_.size() > shown.size() ? fmt::format(" and {} more", seen_.size() - shown.size()) : "",
              did_you_mean(pattern.text, with_modules(seen_)))));
    }
}

}  // namespace fp16lab::experiments
