// cuBLASLt behind ProductLibrary.
#pragma once

#include <memory>

#include "engine/backend/cuda/library/product_library.hpp"

namespace fp16lab::engine {

/// For the current device. DeviceFailure if the library does not start.
std::unique_ptr<ProductLibrary> make_cublaslt();

}  // namespace fp16lab::engine
