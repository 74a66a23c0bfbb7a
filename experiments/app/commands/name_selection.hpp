// Which tensors a command looks at: its options --include and --exclude.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace fp16lab::experiments {

/// Patterns as in the configuration (engine/amp/levels/level.hpp): '*' and '?', and a module's name stands
/// for all that is inside it.
class NameSelection {
 public:
  NameSelection(std::vector<std::string> include, std::vector<std::string> exclude);

  /// Does an --include name it?
  bool includes(std::string_view name);
  /// Is it among the tensors asked for: included, or nothing is, and not excluded?
  bool takes(std::string_view name);
  /// Once every name was seen: CommandError(usage) for a pattern that matched none, with the nearest names.
  void check() const;

 private:
  struct Pattern {
    const char* option;
    std::string text;
    bool matched = false;
  };
  bool any_matches(std::vector<Pattern>& patterns, std::string_view name);

  std::vector<Pattern> include_, exclude_;
  std::set<std::string, std::less<>> seen_;
};

}  // namespace fp16lab::experiments
