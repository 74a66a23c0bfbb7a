#include "experiments/app/commands/mma_capture.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <stdexcept>
#include <vector>

#include "experiments/app/build_info.hpp"
#include "experiments/tensor_core_probe/judge.hpp"
#include "numerics/files/disk/read_file.hpp"
#include "numerics/random/philox.hpp"
#include "numerics/tensor_core/processor_dot.hpp"
#include "numerics/text/message.hpp"

namespace fp16lab::experiments {
namespace {

std::string line_of(const probe::Instruction& in, const probe::Difference& difference) {
  using probe::hex;
  return fmt::format("{}\t{}\t{}\t{}\t{}\t{}\t{}\n", hex(difference.a, in.operands),
                     hex(difference.b, in.operands), hex(difference.c, in.accumulator),
                     hex(difference.device, in.accumulator), hex(difference.expected, in.accumulator),
                     in.name, difference.place);
}

/// Exponent fields of operands and of c: any; near 1; products and sums about 2^-126.
struct Exponents {
  std::uint32_t first, count, first_of_c, count_of_c;
};
constexpr Exponents exponents[] = {{0, 256, 0, 256}, {122, 10, 120, 12}, {60, 7, 0, 8}, {63, 2, 0, 3}};
constexpr std::uint32_t lines_of_each = 2000;

}  // namespace

ExitCode capture_processor() {
  if (!has_processor_dot())
    throw CommandError(ExitCode::unavailable,
                       "mma: --capture cpu: this processor has no AVX512_BF16 (Zen 4, Zen 5, Cooper Lake, "
                       "Sapphire Rapids and later have it)");
  fmt::print("{}{}; fp16lab mma --verify FILE compares\n", processor_capture_heading, cpu_name());
  const PhiloxStream random{.seed = 1, .stream = stream_id("mma.capture.cpu")};
  std::uint64_t drawn = 0;
  for (const Exponents& of : exponents)
    for (std::uint32_t line = 0; line < lines_of_each; ++line) {
      const auto below = [&](std::uint32_t n) { return random.word(drawn++) % n; };
      const auto operand = [&] { return below(2) << 15 | (of.first + below(of.count)) << 7 | below(128); };
      std::vector<std::uint32_t> a(1 + below(6)), b(a.size());
      for (std::size_t k = 0; k < a.size(); ++k) {
        a[k] = operand();
        b[k] = operand();
      }
      const std::uint32_t c = below(2) << 31 | (of.first_of_c + below(of.count_of_c)) << 23 | below(1U << 23);
      fmt::print("{}\t{}\t{:08x}\t{:08x}\n", probe::hex(a, probe::bf16), probe::hex(b, probe::bf16), c,
                 processor_dot(a, b, c));
    }
  return ExitCode::ok;
}

std::optional<std::string> captured_lines(const std::filesystem::path& path) {
  std::string text;
  try {
    text = read_file(path, longest::table, NamedHow::by_user);
  } catch (const std::runtime_error& error) {
    throw CommandError(ExitCode::usage, fmt::format("mma: {}", error.what()));
  }
  const std::string_view first = std::string_view(text).substr(0, text.find('\n'));
  if (!first.starts_with('#') && first.find('\t') == std::string_view::npos) return std::nullopt;
  return text;
}

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
    for (const probe::Difference& difference : verdict.differences)
      fmt::print("{}", line_of(*verdict.instruction, difference));
    differing += verdict.differences.size();
  }
  if (common.quiet && differing == 0) return ExitCode::ok;
  say("fp16lab: mma: {} (compute capability {}.{}, kernels for {}, {})", capture.device.name,
      capture.device.capability.major, capture.device.capability.minor, capture.device.kernels,
      capture.device.compiler);
  for (const probe::CaptureVerdict& verdict : verdicts) {
    const char* const which = verdict.instruction->name;
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
