#include "engine/nn/models/gan.hpp"

#include <stdexcept>
#include <utility>

namespace fp16lab::engine::nn {

Gan::Gan(std::unique_ptr<Module> generator, std::unique_ptr<Module> discriminator, std::int64_t noise_width)
    : noise_width_(noise_width) {
  if (generator == nullptr || discriminator == nullptr)
    throw std::invalid_argument("Gan: a generator and a discriminator are needed");
  generator_ = &add_child(std::move(generator));
  discriminator_ = &add_child(std::move(discriminator));
}

}  // namespace fp16lab::engine::nn
