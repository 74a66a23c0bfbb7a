#include "experiments/suggest.hpp"

#include <vector>

#include "numerics/nearest_name.hpp"

namespace fp16lab::experiments {

std::string did_you_mean(std::string_view name, std::span<const std::string> known) {
  const std::vector<std::string_view> views(known.begin(), known.end());
  const std::string_view nearest = nearest_name(name, views);
  return nearest.empty() ? "" : "; did you mean '" + std::string(nearest) + "'?";
}

}  // namespace fp16lab::experiments
