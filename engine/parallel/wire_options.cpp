#include "engine/parallel/wire_options.hpp"

#include <cmath>
#include <stdexcept>

namespace fp16lab::engine::parallel {

Divisors divisors_of(Predivide predivide, std::int64_t count) {
  const auto all = static_cast<float>(count);
  switch (predivide) {
    case Predivide::one:
      return {1, all};
    case Predivide::root: {
      const float root = std::sqrt(all);
      return {root, all / root};
    }
    case Predivide::all:
      return {all, 1};
  }
  throw std::logic_error("unknown predivide");
}

}  // namespace fp16lab::engine::parallel
