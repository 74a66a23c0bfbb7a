#include "engine/backend/emulated/workers.hpp"

#include <fmt/format.h>

#include <stdexcept>

namespace fp16lab::engine {

Workers::Workers(int threads) : threads_(threads) {
  if (threads < 1)
    throw std::invalid_argument(fmt::format("emulated back end: threads is {}; at least 1", threads));
}

}  // namespace fp16lab::engine
