// Data sets for machines that have none: a machine with a GPU is often bare.
#pragma once

#include <filesystem>

namespace fp16lab::experiments::acceptance {

/// IDX files as of Fashion-MNIST: 28 x 28 images, a bright band for each class, and noise. The same bytes
/// everywhere.
void write_synthetic_images(const std::filesystem::path& folder, int training, int test);
/// A text of so many characters in made-up words.
void write_synthetic_text(const std::filesystem::path& file, int characters);

}  // namespace fp16lab::experiments::acceptance
