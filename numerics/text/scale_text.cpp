#include "numerics/text/scale_text.hpp"

#include <fmt/format.h>

#include <cmath>

namespace fp16lab {

std::string scale_text(double scale) {
  int exponent = 0;
  if (std::isfinite(scale) && std::frexp(scale, &exponent) == 0.5) return fmt::format("2^{}", exponent - 1);
  return fmt::format("{}", scale);
}

}  // namespace fp16lab
