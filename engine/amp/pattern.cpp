// Patterns of module paths.
#include <algorithm>

#include "engine/amp/level.hpp"

namespace fp16lab::engine::amp {

bool matches(std::string_view pattern, std::string_view path) {
  // Two pointers, going back to the last '*' when a literal fails: linear but for the stars. A pattern that is used
  // up matches at the end of the path, and at a '.', where what lies inside the named module begins.
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

bool matches_any(std::span<const std::string> patterns, std::string_view path) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [path](const std::string& pattern) { return matches(pattern, path); });
}

}  // namespace fp16lab::engine::amp
