// What compute-sanitizer said.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace fp16lab::experiments::acceptance {

struct SanitizerFindings {
  /// Of the tool's summary; nothing: it wrote none, so it did not see the program to its end.
  std::optional<std::uint64_t> errors;
  std::string first;   ///< its first finding, a line; empty: none
  std::string kernel;  ///< the kernel in which that was; empty: the tool does not say
};

/// Reads the output of memcheck, synccheck or racecheck, whatever else is between its lines. Source: Compute
/// Sanitizer's documentation, "Memcheck", "Racecheck", "Synccheck" (lines begin with "=========").
SanitizerFindings read_sanitizer_output(std::string_view text);

}  // namespace fp16lab::experiments::acceptance
