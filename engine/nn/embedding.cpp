#include "engine/nn/embedding.hpp"

#include <stdexcept>
#include <utility>

namespace fp16lab::engine::nn {

Embedding::Embedding(Backend& backend, std::string path, const EmbeddingOptions& options)
    : path_(add_scope(std::move(path))) {
  if (options.symbols < 1 || options.features < 1) {
    throw std::invalid_argument("Embedding " + path_ + ": " + std::to_string(options.symbols) +
                                " symbols of " + std::to_string(options.features) +
                                " features; both must be >= 1");
  }
  const std::string name = path_ + ".weight";
  weight_ = &add_parameter(name, normal_parameter(backend, {options.symbols, options.features}, options.seed,
                                                  name, options.deviation));
}

Variable Embedding::forward(Tape& tape, const Variable& x) {
  const ScopeGuard scope(tape, path_);
  return ops::embedding(tape.parameter(*weight_), x.tensor());
}

}  // namespace fp16lab::engine::nn
