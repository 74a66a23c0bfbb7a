// The tail of an error message about a mistyped name.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace fp16lab::experiments {

/// "; did you mean 'scaler.policy'?", or "" if nothing known is near (numerics/nearest_name.hpp).
std::string did_you_mean(std::string_view name, std::span<const std::string> known);

}  // namespace fp16lab::experiments
