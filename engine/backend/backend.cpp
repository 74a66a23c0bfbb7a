#include "engine/backend/backend.hpp"

#include <stdexcept>
#include <string>

namespace fp16lab::engine {

std::unique_ptr<Recording> Backend::record(const std::function<void()>& /*work*/) {
  throw std::logic_error("record: the " + std::string(name()) + " back end does not record verbs");
}

}  // namespace fp16lab::engine
