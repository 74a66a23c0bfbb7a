#include "engine/nn/models/gan.hpp"

#include <stdexcept>
#include <string>
#include <utility>

namespace fp16lab::engine::nn {

namespace {

/// Checked before the members are made.
const GanOptions& checked(const GanOptions& options) {
  for (const auto& [name, widths] :
       {std::pair{"generator", &options.generator}, {"discriminator", &options.discriminator}}) {
    if (widths->size() < 2) {
      throw std::invalid_argument(std::string("Gan: the ") + name + " has " + std::to_string(widths->size()) +
                                  " widths; at least inputs and outputs are needed");
    }
  }
  if (options.generator.back() != options.discriminator.front()) {
    throw std::invalid_argument("Gan: the generator makes " + std::to_string(options.generator.back()) +
                                " pixels, but the discriminator takes " +
                                std::to_string(options.discriminator.front()));
  }
  if (options.discriminator.back() != 1) {
    throw std::invalid_argument("Gan: the discriminator has " + std::to_string(options.discriminator.back()) +
                                " outputs; it needs 1, the logit of \"real\"");
  }
  return options;
}

MlpOptions mlp_of(const GanOptions& options, const std::vector<std::int64_t>& widths, std::string_view path,
                  Activation output) {
  return {.widths = widths,
          .activation = options.activation,
          .output = output,
          .path = std::string(path),
          .initialization = options.initialization,
          .seed = options.seed};
}

}  // namespace

Gan::Gan(Backend& backend, const GanOptions& options)
    : Gan(std::make_unique<Mlp>(
              backend, mlp_of(checked(options), options.generator, "generator", Activation::sigmoid)),
          std::make_unique<Mlp>(backend,
                                mlp_of(options, options.discriminator, "discriminator", Activation::none)),
          options.generator.front()) {}

Gan::Gan(std::unique_ptr<Module> generator, std::unique_ptr<Module> discriminator, std::int64_t noise_width)
    : noise_width_(noise_width) {
  if (generator == nullptr || discriminator == nullptr)
    throw std::invalid_argument("Gan: a generator and a discriminator are needed");
  generator_ = &add_child(std::move(generator));
  discriminator_ = &add_child(std::move(discriminator));
}

}  // namespace fp16lab::engine::nn
