// Why the CUDA runtime lists no device, in words that say what to do.
#pragma once

#include <string>
#include <string_view>

namespace fp16lab::engine {

/// Versions as CUDA counts them (13000 for 13.0; driver 0: there is none); `cuda_words`: the runtime's own, "" if it only
/// found nothing.
std::string no_device_text(int driver_version, int runtime_version, std::string_view cuda_words);

}  // namespace fp16lab::engine
