#include "experiments/app/commands/mma_capture.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <stdexcept>
#include <vector>

#include "experiments/tensor_core_probe/capture_file.hpp"
#include "numerics/text/message.hpp"

namespace fp16lab::experiments {
namespace {

std::string words_text(const std::vector<std::uint32_t>& words, DType format) {
  std::string text;
  for (const std::uint32_t word : words)
    text += fmt::format("{}{:0{}x}", text.empty() ? "" : " ", word, 2 * size_of(format));
  return text;
}

std::string line_of(const probe::CapturedDifference& difference) {
  const probe::Instruction& in = *difference.instruction;
  const auto result = [&](std::uint32_t word) { return words_text({word}, in.accumulator); };
  return fmt::format("{}\t{}\t{}\t{}\t{}\t{}\t{}\n", words_text(difference.a, in.operands),
                     words_text(difference.b, in.operands), result(difference.c), result(difference.d),
                     result(difference.expected), in.name, difference.place);
}

}  // namespace

ExitCode verify_capture(const std::filesystem::path& path, const std::string& model,
                        const CommonOptions& common) {
  probe::Capture capture;
  std::vector<probe::CaptureVerdict> verdicts;
  try {
    capture = probe::read_capture(path);
    const probe::Capability capability = capture.device.capability;
    if (model.empty() && probe::generation_of(capability).empty())
      throw std::runtime_error(
          fmt::format("no model describes compute capability {}.{}; choose one with --model",
                      capability.major, capability.minor));
    verdicts = probe::judge(capture, model, common.threads);
  } catch (const std::runtime_error& error) {
    throw CommandError(ExitCode::usage, fmt::format("mma: {}", error.what()));
  }

  std::size_t differing = 0;
  for (const probe::CaptureVerdict& verdict : verdicts) {
    for (const probe::CapturedDifference& difference : verdict.differences)
      fmt::print("{}", line_of(difference));
    differing += verdict.differences.size();
  }
  if (common.quiet && differing == 0) return ExitCode::ok;
  say("fp16lab: mma: {} (compute capability {}.{}, kernels for {}, {})", capture.device.name,
      capture.device.capability.major, capture.device.capability.minor, capture.kernels, capture.compiler);
  for (const probe::CaptureVerdict& verdict : verdicts) {
    const std::string which(verdict.instruction->name);
    if (verdict.model.empty())
      say("fp16lab: mma: {}: not compared, no row describes it", which);
    else
      say("fp16lab: mma: {}: {} of {} outputs differ from {} ({} of questions, {} random)", which,
          verdict.differences.size(), verdict.questions + verdict.random_outputs, verdict.model,
          verdict.questions, verdict.random_outputs);
  }
  return differing == 0 ? ExitCode::ok : ExitCode::mismatch;
}

}  // namespace fp16lab::experiments
