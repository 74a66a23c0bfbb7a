#include "engine/backend/emulated/workers.hpp"

#include <fmt/format.h>

#include <cfenv>
#include <stdexcept>
#include <string>

#if defined(__x86_64__) || defined(__i386__)
#include <xmmintrin.h>
#endif

namespace fp16lab::engine {

namespace {
enum Fault : std::uint32_t { flushes_results = 1, flushes_operands = 2, directed_rounding = 4 };
}  // namespace

std::uint32_t floating_point_faults() noexcept {
  std::uint32_t faults = 0;
#if defined(__x86_64__) || defined(__i386__)
  // Intel SDM, volume 1, 10.2.3: MXCSR bit 15 FTZ, bit 6 DAZ, bits 13-14 rounding control (0: nearest even).
  const unsigned mxcsr = _mm_getcsr();
  if ((mxcsr & 0x8000u) != 0) faults |= flushes_results;
  if ((mxcsr & 0x0040u) != 0) faults |= flushes_operands;
  if ((mxcsr & 0x6000u) != 0) faults |= directed_rounding;
#else
  const volatile float smallest_normal = 0x1p-126f;
  const volatile float subnormal = smallest_normal * 0.5f;
  if (subnormal == 0.0f) faults |= flushes_results;
  if (std::fegetround() != FE_TONEAREST) faults |= directed_rounding;
#endif
  return faults;
}

void throw_floating_point_faults(std::uint32_t faults) {
  std::string what;
  const auto add = [&what](const char* part) { what += (what.empty() ? "" : ", ") + std::string(part); };
  if ((faults & flushes_results) != 0) add("flushes subnormal results to zero (FTZ)");
  if ((faults & flushes_operands) != 0) add("reads subnormal operands as zero (DAZ)");
  if ((faults & directed_rounding) != 0) add("does not round to nearest even");
  throw std::runtime_error(fmt::format(
      "emulated back end: a thread {}; results would differ. Something in this process changed the "
      "floating-point environment (a library built with -ffast-math does)",
      what));
}

Workers::Workers(int threads) : threads_(threads) {
  if (threads < 1)
    throw std::invalid_argument(fmt::format("emulated back end: threads is {}; at least 1", threads));
  for_each_chunk(threads, 1, [](std::int64_t, std::int64_t) {});  // wakes and checks every worker
}

}  // namespace fp16lab::engine
