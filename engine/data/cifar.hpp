// The binary version of CIFAR-10 (A. Krizhevsky, "Learning multiple layers of features from tiny images",
// 2009; https://www.cs.toronto.edu/~kriz/cifar.html): records of 3073 bytes, a label 0 to 9 and the red,
// green and blue planes of 32 x 32 pixels, row-major.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>

#include "engine/data/dataset.hpp"

namespace fp16lab::engine::data {

/// The images of all `files`, one after the other, (3, 32, 32) bytes each. std::runtime_error "PATH: ..." for
/// a file that is no whole number of records (at least one) and, with its byte, for a label above 9. Keeps
/// the first `subset` images (0: all); std::invalid_argument for more than there are.
Dataset read_cifar10(std::span<const std::filesystem::path> files, std::int64_t subset = 0);

}  // namespace fp16lab::engine::data
