#include "experiments/device_acceptance/sanitizer_output.hpp"

#include <charconv>
#include <string>

namespace fp16lab::experiments::acceptance {
namespace {

constexpr std::string_view mark = "=========";

/// The number behind `label`.
std::optional<std::uint64_t> number_behind(std::string_view line, std::string_view label) {
  const std::size_t at = line.find(label);
  if (at == std::string_view::npos) return std::nullopt;
  std::uint64_t number = 0;
  const char* const begin = line.data() + at + label.size();
  const auto [end, error] = std::from_chars(begin, line.data() + line.size(), number);
  return error == std::errc() && end != begin ? std::optional(number) : std::nullopt;
}

/// "gemm_kernel<float>(const float *)" of "    at void gemm_kernel<float>(const float *)+0x30 in gemm.cu:12";
/// older tools: "... at 0x70 in gemm.cu:12:gemm_kernel(float *)", of which all behind "in" is kept.
std::string kernel_of(std::string_view line) {
  const std::size_t at = line.find("at ");
  if (at == std::string_view::npos) return {};
  std::string_view rest = line.substr(at + 3);
  if (rest.starts_with("0x")) {
    const std::size_t in = rest.find(" in ");
    return in == std::string_view::npos ? std::string() : std::string(rest.substr(in + 4));
  }
  const std::size_t offset = rest.find("+0x");
  if (offset == std::string_view::npos) return {};
  rest = rest.substr(0, offset);
  if (rest.starts_with("void ")) rest.remove_prefix(5);
  return std::string(rest);
}

/// Lines that are no finding: the head, the summary, and what the tool says of itself.
bool is_about_itself(std::string_view line) {
  for (const std::string_view word : {"COMPUTE-SANITIZER", "SUMMARY", "Target application", "Internal"})
    if (line.find(word) != std::string_view::npos) return true;
  return false;
}

}  // namespace

SanitizerFindings read_sanitizer_output(std::string_view text) {
  SanitizerFindings findings;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (!line.starts_with(mark)) continue;
    line.remove_prefix(mark.size());
    while (line.starts_with(' ')) line.remove_prefix(1);
    while (line.ends_with('\r') || line.ends_with(' ')) line.remove_suffix(1);
    // "ERROR SUMMARY: 3 errors"; "RACECHECK SUMMARY: 2 hazards displayed (1 error, 1 warning)".
    for (const std::string_view label : {"ERROR SUMMARY: ", "RACECHECK SUMMARY: "})
      if (const auto number = number_behind(line, label)) findings.errors = *number;
    if (line.empty() || is_about_itself(line)) continue;
    if (findings.first.empty()) findings.first = line;
    if (findings.kernel.empty()) findings.kernel = kernel_of(line);
  }
  return findings;
}

}  // namespace fp16lab::experiments::acceptance
