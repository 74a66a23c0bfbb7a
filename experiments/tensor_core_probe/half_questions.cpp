// P8: the instructions beside the tensor core. PTX leaves their NaN patterns open; the rest is IEEE 754 with
// the modifiers of numerics/arithmetic/gpu_half.hpp.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <stdexcept>

#include "experiments/tensor_core_probe/question.hpp"
#include "numerics/arithmetic/gpu_half.hpp"
#include "numerics/formats/bits.hpp"
#include "numerics/platform/worker_pool.hpp"
#include "numerics/random/philox.hpp"

namespace fp16lab::probe {
namespace {

/// As PTX spells it: "add.rn.ftz.f16x2".
std::string ptx_of(const HalfInstruction& in) {
  if (in.operation == HalfOperation::cvt_f32_f16) return "cvt.f32.f16";
  const bool narrows = in.operation == HalfOperation::cvt_f16_f32;
  return fmt::format("{}.{}{}{}{}", narrows ? "cvt" : name_of(in.operation), name_of(in.rounding),
                     in.ftz ? ".ftz" : "", in.sat ? ".sat" : "",
                     narrows     ? ".f16.f32"
                     : in.packed ? ".f16x2"
                                 : ".f16");
}

Float16 half(std::uint32_t word) { return Float16::from_bits(static_cast<std::uint16_t>(word)); }

/// One word for each call; a packed instruction gets every operand in both halves and must answer alike in
/// both.
Words run_half(Device& device, const HalfInstruction& in, const HalfCalls& calls) {
  const HalfCalls given = in.packed ? calls.doubled() : calls;
  Words result = device.run(in, given.x, given.y, given.z);
  if (result.size() != calls.x.size())
    throw std::logic_error(
        fmt::format("{}: {} results for {} calls", ptx_of(in), result.size(), calls.x.size()));
  if (in.packed)
    for (std::uint32_t& word : result)
      if (word >> 16 == (word & 0xffff)) word &= 0xffff;  // else it stays wider than any prediction
  return result;
}

/// "7e00 3c00"
std::string operands_text(const HalfInstruction& in, const Words& operands) {
  std::string text;
  for (const std::uint32_t word : operands)
    text += fmt::format("{}{:0{}x}", text.empty() ? "" : " ", word,
                        in.operation == HalfOperation::cvt_f16_f32 ? 8 : 4);
  return text;
}
/// "7fff"; halves of a packed result that differ are both shown.
std::string result_text(const HalfInstruction& in, std::uint32_t word) {
  return fmt::format("{:0{}x}", word, in.operation == HalfOperation::cvt_f32_f16 ? 8 : 4);
}

/// The first NaN among the operands, quiet, in the format of the result; the default NaN where there is none.
std::uint32_t first_nan(const HalfInstruction& in, const Words& operands) {
  for (const std::uint32_t word : operands) {
    if (in.operation == HalfOperation::cvt_f16_f32)
      return (word >> 16 & 0x8000) | 0x7e00 | (word >> 13 & 0x1ff);
    if (!half(word).is_nan()) continue;
    if (in.operation == HalfOperation::cvt_f32_f16)
      return (word & 0x8000) << 16 | 0x7fc00000 | (word & 0x1ff) << 13;
    return word | 0x200;
  }
  return 0x7e00;
}

std::uint32_t emulated_call(const HalfInstruction& in, Words operands) {
  operands.resize(3);
  return emulated(in, operands[0], operands[1], operands[2]);
}

/// Which NaN comes out: what gpu_half.hpp says, or another one.
Finding ask_nan(Device& device, const Settings& settings, const HalfInstruction& in) {
  const HalfCalls calls = nan_calls(in.operation);
  const bool widens = in.operation == HalfOperation::cvt_f32_f16;
  Finding finding{
      {.claim = fmt::format("{}: every NaN result is {}", ptx_of(in), widens ? "7fffffff" : "7fff"),
       .criterion = fmt::format("that word from all of {} calls", calls.x.size()),
       .topic = "P8"}};
  Claim& claim = finding.claim;
  measure(settings, claim, [&] {
    const Words observed = run_half(device, in, calls);
    std::array<Words, 3> predicted;
    std::size_t as_said = 0;
    for (std::size_t i = 0; i < observed.size(); ++i) {
      const Words operands = calls.of(in.operation, i);
      predicted[0].push_back(emulated_call(in, operands));
      predicted[1].push_back(widens ? 0x7fc00000U : 0x7e00U);
      predicted[2].push_back(first_nan(in, operands));
      as_said += predicted[0][i] == observed[i] ? 1U : 0U;
      const std::string name = ptx_of(in), given = operands_text(in, operands),
                        result = result_text(in, observed[i]);
      claim.notes.push_back(fmt::format("{} {} -> {}", name, given, result));
      finding.half_observations.push_back(fmt::format("{}\t{}\t{}", name, given, result));
    }
    const std::string change = "numerics/arithmetic/gpu_half.hpp must say so";
    const std::array rules{Hypothesis{"canonical: all fraction bits one", change, {}},
                           Hypothesis{"default: quiet bit alone", change, {}},
                           Hypothesis{"first NaN operand, made quiet", change, {}}};
    std::vector<bool> agrees;
    for (const Words& words : predicted) agrees.push_back(words == observed);
    claim.measured = fmt::format("that word from {} of {} calls", as_said, observed.size());
    conclude(claim, rules, agrees);
  });
  return finding;
}

/// Results of one instruction that are not as emulated.
struct Sweep {
  HalfInstruction instruction;
  std::uint64_t differing = 0, total = 0;
  std::vector<std::string> first = {};

  void compare(Device& device, int threads, const HalfCalls& calls) {
    const HalfInstruction& in = instruction;
    const Words observed = run_half(device, in, calls);
    const auto expected = [&](std::size_t i) { return emulated_call(in, calls.of(in.operation, i)); };
    constexpr std::size_t chunk = 4096, differences_kept = 4;
    std::atomic<std::uint64_t> found = 0;
    share_tasks((observed.size() + chunk - 1) / chunk, threads, [&](std::size_t task) {
      std::uint64_t here = 0;
      for (std::size_t i = task * chunk; i < std::min(observed.size(), (task + 1) * chunk); ++i)
        here += observed[i] != expected(i) ? 1U : 0U;
      found += here;
    });
    for (std::size_t i = 0; i < observed.size() && found > 0 && first.size() < differences_kept; ++i)
      if (observed[i] != expected(i))
        first.push_back(fmt::format("  {} {} -> {}, emulated {}", ptx_of(in),
                                    operands_text(in, calls.of(in.operation, i)),
                                    result_text(in, observed[i]), result_text(in, expected(i))));
    differing += found;
    total += observed.size();
  }
};

/// A claim that every bit is as emulated; `run` makes the sweeps that judge it.
Finding ask_sweeps(const Settings& settings, const std::string& what,
                   const std::function<void(std::vector<Sweep>&)>& run) {
  Finding finding{
      {.claim = what + ": every bit as emulated", .criterion = "0 results differ", .topic = "P8"}};
  Claim& claim = finding.claim;
  measure(settings, claim, [&] {
    std::vector<Sweep> sweeps;
    run(sweeps);
    std::uint64_t differing = 0, total = 0;
    for (const Sweep& sweep : sweeps) {
      claim.notes.push_back(fmt::format("{}: {} of {} results differ", ptx_of(sweep.instruction),
                                        sweep.differing, sweep.total));
      claim.notes.insert(claim.notes.end(), sweep.first.begin(), sweep.first.end());
      differing += sweep.differing;
      total += sweep.total;
    }
    claim.verdict = analysis::verdict_of(differing == 0);
    claim.measured = fmt::format("{} of {} results differ", differing, total);
    if (differing > 0)
      claim.measured += "; numerics/arithmetic/gpu_half.hpp must say what the first differences show";
  });
  return finding;
}

/// All edges of FP16 with their neighbours and both signs, with each other; then random codes.
HalfCalls arithmetic_calls(HalfOperation operation, const Settings& settings) {
  Words edges{0x7e00U, 0x0801U, 0x3555U, 0x4bffU, 0x4c00U, 0x07ffU};
  for (const std::uint32_t edge : {0x0000U, 0x0400U, 0x3800U, 0x3c00U, 0x7c00U, 0x1000U, 0x0200U})
    for (const std::uint32_t step : {0xffffU, 0U, 1U})
      for (const std::uint32_t sign : {0x0000U, 0x8000U}) edges.push_back(((edge + step) & 0x7fff) | sign);
  HalfCalls calls;
  for (const std::uint32_t x : edges)
    for (const std::uint32_t y : edges)
      for (const std::uint32_t z : operation == HalfOperation::fma ? edges : Words{0}) calls.add(x, y, z);
  const PhiloxStream random{.seed = settings.seed, .stream = stream_id("half")};
  for (std::uint64_t i = 0; i < settings.random_outputs / 10; ++i) {
    const PhiloxCounter words = random.block(i);
    // Every other pair is of similar exponents, where sums cancel and round.
    const std::uint32_t y = i % 2 == 0 ? words[1] & 0xffff : (words[0] ^ (words[1] & 0x8fff)) & 0xffff;
    calls.add(words[0] & 0xffff, y, words[2] & 0xffff);
  }
  return calls;
}

Finding ask_arithmetic(Device& device, const Settings& settings, HalfOperation operation) {
  return ask_sweeps(settings, ptx_of({operation}) + " with .ftz, .sat, .f16x2",
                    [&](std::vector<Sweep>& sweeps) {
                      const HalfCalls calls = arithmetic_calls(operation, settings);
                      for (const bool packed : {false, true})
                        for (const bool ftz : {false, true})
                          for (const bool sat : {false, true})
                            sweeps.emplace_back(Sweep{{operation, ftz, sat, packed}})
                                .compare(device, settings.threads, calls);
                    });
}

Finding ask_conversions(Device& device, const Settings& settings) {
  return ask_sweeps(settings, "cvt between FP32 and FP16", [&](std::vector<Sweep>& sweeps) {
    // Words 0, stride, 2 * stride ... below `end`.
    const auto compare = [&](const HalfInstruction& in, std::uint64_t end, std::uint64_t stride) {
      Sweep& sweep = sweeps.emplace_back(Sweep{in});
      const std::uint64_t batch = stride << 22;
      for (std::uint64_t first = 0; first < end; first += batch) {
        HalfCalls calls;
        for (std::uint64_t word = first; word < std::min(end, first + batch); word += stride)
          calls.x.push_back(static_cast<std::uint32_t>(word));
        sweep.compare(device, settings.threads, calls);
      }
    };
    constexpr std::uint64_t all_halves = 1U << 16, all_singles = std::uint64_t{1} << 32;
    compare({HalfOperation::cvt_f32_f16}, all_halves, 1);
    compare({HalfOperation::cvt_f16_f32}, all_singles, settings.conversion_stride);
    for (const HalfRounding rounding : every<HalfRounding>)
      for (const bool ftz : {false, true})
        for (const bool sat : {false, true})
          compare({HalfOperation::cvt_f16_f32, ftz, sat, false, rounding}, all_singles,
                  257 * settings.conversion_stride);
  });
}

}  // namespace

std::uint32_t emulated(const HalfInstruction& in, std::uint32_t x, std::uint32_t y, std::uint32_t z) {
  const ptx::Modifiers modifiers{in.ftz, in.sat};
  constexpr std::array roundings{Rounding::nearest_even, Rounding::toward_zero, Rounding::downward,
                                 Rounding::upward};
  switch (in.operation) {
    case HalfOperation::add:
      return ptx::add(half(x), half(y), modifiers).bits();
    case HalfOperation::mul:
      return ptx::mul(half(x), half(y), modifiers).bits();
    case HalfOperation::fma:
      return ptx::fma(half(x), half(y), half(z), modifiers).bits();
    case HalfOperation::cvt_f16_f32:
      return ptx::cvt_f16_f32(float_from_bits(x), roundings[static_cast<std::size_t>(in.rounding)], modifiers)
          .bits();
    case HalfOperation::cvt_f32_f16:
      return bits_of(ptx::cvt_f32_f16(half(x)));
  }
  return 0;
}

std::vector<Finding> ask_half(Device& device, const Settings& settings) {
  std::vector<Finding> findings;
  for (const HalfOperation operation : every<HalfOperation>)
    for (const bool packed : {false, true})
      if (!packed || arity_of(operation) > 1)
        findings.push_back(ask_nan(device, settings, {operation, false, false, packed}));
  for (const HalfOperation operation : {HalfOperation::add, HalfOperation::mul, HalfOperation::fma})
    findings.push_back(ask_arithmetic(device, settings, operation));
  findings.push_back(ask_conversions(device, settings));
  return findings;
}

}  // namespace fp16lab::probe
