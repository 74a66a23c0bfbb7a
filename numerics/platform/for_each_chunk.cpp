#include "numerics/platform/for_each_chunk.hpp"

#include <fmt/format.h>

#include <stdexcept>

namespace fp16lab {

void check_arrays(const char* function, int threads, std::initializer_list<NamedSize> arrays) {
  const NamedSize& first = *arrays.begin();
  for (const NamedSize& array : arrays)
    if (array.size != first.size)
      throw std::invalid_argument(fmt::format("{}: {} has {} elements and {} has {}; they must agree",
                                              function, first.name, first.size, array.name, array.size));
  if (threads < 1)
    throw std::invalid_argument(fmt::format("{}: threads is {}; at least 1 is needed", function, threads));
}

}  // namespace fp16lab
