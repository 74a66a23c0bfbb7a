// Why no device can be used, in words that say what to do.
#pragma once

#include <string>
#include <string_view>

#include "engine/backend/cuda/runtime/devices.hpp"
#include "numerics/formats/dtype.hpp"

namespace fp16lab::engine {

/// Why the CUDA runtime lists none. Versions as CUDA counts them (13000 for 13.0; driver 0: there is none);
/// `cuda_words`: the runtime's own, "" if it only found nothing.
std::string no_device_text(int driver_version, int runtime_version, std::string_view cuda_words);

/// Why this one cannot be used; "": it can. `has_code`: does the program have kernels for it, which was built
/// for `architectures` ("sm 80, 90")?
std::string unusable_device_text(const CudaDevice& device, bool has_code, std::string_view architectures);

/// Why it has no products of these operands (f16, bf16, tf32), though it can be used; "": it has.
std::string missing_products_text(const CudaDevice& device, DType operands);
/// What it lacks for products of these operands: either requirement, "" for nothing.
std::string lacking_text(const CudaDevice& device, DType operands);

}  // namespace fp16lab::engine
