#include "numerics/text/nearest_name.hpp"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <numeric>
#include <utility>
#include <vector>

namespace fp16lab {
namespace {

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }
bool same_letter(char a, char b) { return lower(a) == lower(b); }

/// Levenshtein distance by dynamic programming, one row at a time.
template <class Same>
std::size_t edit_distance(std::string_view from, std::string_view to, const Same& same) {
  std::vector<std::size_t> row(to.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < from.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < to.size(); ++j) {
      const std::size_t substituted = diagonal + (same(from[i], to[j]) ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({substituted, row[j] + 1, diagonal + 1});
    }
  }
  return row[to.size()];
}

}  // namespace

bool equal_but_for_case(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, same_letter);
}

std::string_view nearest_name(std::string_view name, std::span<const std::string_view> known) {
  std::string_view best;
  std::pair<std::size_t, std::size_t> best_distance;  // capitals decide between names that are equally near
  for (const std::string_view candidate : known) {
    const std::pair distance(edit_distance(name, candidate, same_letter),
                             edit_distance(name, candidate, std::equal_to<char>()));
    const bool close = 2 * distance.first < std::max(name.size(), candidate.size());
    if (close && (best.empty() || distance < best_distance)) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

std::string did_you_mean(std::string_view name, std::span<const std::string_view> known) {
  const std::string_view nearest = nearest_name(name, known);
  return nearest.empty() ? "" : "; did you mean '" + std::string(nearest) + "'?";
}

std::string did_you_mean(std::string_view name, std::span<const std::string> known) {
  return did_you_mean(name, std::vector<std::string_view>(known.begin(), known.end()));
}

std::string known_are(std::string_view name, std::span<const std::string_view> known) {
  std::string text = "known are";
  for (std::size_t i = 0; i < known.size(); ++i) text += (i == 0 ? " " : ", ") + std::string(known[i]);
  return text + did_you_mean(name, known);
}

}  // namespace fp16lab
