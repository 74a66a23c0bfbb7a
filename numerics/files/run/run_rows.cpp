#include "numerics/files/run/run_rows.hpp"

#include <algorithm>

namespace fp16lab {

RecipeRow& RecipeRow::operator+=(const RecipeRow& other) {
  if (other.mean_headroom && other.least_headroom) {
    const auto own = static_cast<double>(blocks), added = static_cast<double>(other.blocks);
    mean_headroom = (own * mean_headroom.value_or(0) + added * *other.mean_headroom) / (own + added);
    least_headroom = std::min(least_headroom.value_or(*other.least_headroom), *other.least_headroom);
  }
  values += other.values;
  made_zero += other.made_zero;
  saturated += other.saturated;
  blocks += other.blocks;
  saturated_blocks += other.saturated_blocks;
  return *this;
}

}  // namespace fp16lab
