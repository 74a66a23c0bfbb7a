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

using Words = std::vector<std::uint32_t>;

int operands_of(HalfOperation operation) {
  switch (operation) {
    case HalfOperation::fma:
      return 3;
    case HalfOperation::add:
    case HalfOperation::mul:
      return 2;
    default:
      return 1;
  }
}

/// As PTX spells it: "add.rn.ftz.f16x2".
std::string ptx_of(const HalfInstruction& in) {
  std::string name;
  switch (in.operation) {
    case HalfOperation::add:
      name = "add.rn";
      break;
    case HalfOperation::mul:
      name = "mul.rn";
      break;
    case HalfOperation::fma:
      name = "fma.rn";
      break;
    case HalfOperation::cvt_f32_f16:
      return "cvt.f32.f16";
    case HalfOperation::cvt_f16_f32:
      name = in.rounding == Rounding::toward_zero ? "cvt.rz"
             : in.rounding == Rounding::downward  ? "cvt.rm"
             : in.rounding == Rounding::upward    ? "cvt.rp"
                                                  : "cvt.rn";
      break;
  }
  if (in.modifiers.ftz) name += ".ftz";
  if (in.modifiers.sat) name += ".sat";
  return name + (in.operation == HalfOperation::cvt_f16_f32 ? ".f16.f32" : in.packed ? ".f16x2" : ".f16");
}

Float16 half(std::uint32_t word) { return Float16::from_bits(static_cast<std::uint16_t>(word)); }

/// What numerics/arithmetic/gpu_half.hpp says.
std::uint32_t emulated(const HalfInstruction& in, std::uint32_t x, std::uint32_t y, std::uint32_t z) {
  switch (in.operation) {
    case HalfOperation::add:
      return ptx::add(half(x), half(y), in.modifiers).bits();
    case HalfOperation::mul:
      return ptx::mul(half(x), half(y), in.modifiers).bits();
    case HalfOperation::fma:
      return ptx::fma(half(x), half(y), half(z), in.modifiers).bits();
    case HalfOperation::cvt_f16_f32:
      return ptx::cvt_f16_f32(float_from_bits(x), in.rounding, in.modifiers).bits();
    case HalfOperation::cvt_f32_f16:
      return bits_of(ptx::cvt_f32_f16(half(x)));
  }
  return 0;
}

/// Operands of many calls; those that the operation does not read may be left out.
struct Calls {
  std::array<Words, 3> operands;
  void add(std::uint32_t x, std::uint32_t y = 0, std::uint32_t z = 0) {
    operands[0].push_back(x);
    operands[1].push_back(y);
    operands[2].push_back(z);
  }
  std::uint32_t operand(std::size_t which, std::size_t i) const {
    return operands[which].empty() ? 0 : operands[which][i];
  }
  std::size_t size() const { return operands[0].size(); }
};

/// One word for each call; a packed instruction gets every operand in both halves and must answer alike in
/// both.
Words run(Device& device, const HalfInstruction& in, const Calls& calls) {
  std::array<Words, 3> doubled;
  std::array<std::span<const std::uint32_t>, 3> operands;
  for (std::size_t i = 0; i < static_cast<std::size_t>(operands_of(in.operation)); ++i) {
    operands[i] = calls.operands[i];
    if (!in.packed) continue;
    for (const std::uint32_t word : calls.operands[i]) doubled[i].push_back(word | word << 16);
    operands[i] = doubled[i];
  }
  Words result = device.run(in, operands[0], operands[1], operands[2]);
  if (result.size() != calls.size())
    throw std::logic_error(
        fmt::format("{}: {} results for {} calls", ptx_of(in), result.size(), calls.size()));
  if (in.packed)
    for (std::uint32_t& word : result)
      if (word >> 16 == (word & 0xffff)) word &= 0xffff;  // else it stays wider than any prediction
  return result;
}

std::string operands_text(const HalfInstruction& in, const Calls& calls, std::size_t i) {
  std::string text;
  for (int operand = 0; operand < operands_of(in.operation); ++operand)
    text += fmt::format("{}{:0{}x}", operand == 0 ? "" : " ",
                        calls.operands[static_cast<std::size_t>(operand)][i],
                        in.operation == HalfOperation::cvt_f16_f32 ? 8 : 4);
  return text;
}

std::string result_text(const HalfInstruction& in, std::uint32_t word) {
  return fmt::format("{:0{}x}", word, in.operation == HalfOperation::cvt_f32_f16 ? 8 : 4);
}

/// Quiet, signalling and negative NaNs in every place, and the invalid operations.
Calls nan_calls(HalfOperation operation) {
  Calls calls;
  constexpr std::array<std::uint32_t, 8> nans{0x7e00, 0x7e01, 0x7c01, 0x7dff, 0x7fff, 0xfe00, 0xfc01, 0xffff};
  constexpr std::uint32_t one = 0x3c00, infinity = 0x7c00, sign = 0x8000;
  switch (operation) {
    case HalfOperation::cvt_f32_f16:
      for (const std::uint32_t nan : nans) calls.add(nan);
      break;
    case HalfOperation::cvt_f16_f32:
      for (const std::uint32_t nan : {0x7fc00000U, 0x7fc02000U, 0x7f800001U, 0x7f802000U, 0x7fffffffU,
                                      0xffc00000U, 0xff800001U, 0xffffffffU})
        calls.add(nan);
      break;
    case HalfOperation::add:
    case HalfOperation::mul:
      for (const std::uint32_t nan : nans) {
        calls.add(nan, one);
        calls.add(one, nan);
        calls.add(nan, 0xfe55);
      }
      if (operation == HalfOperation::add)
        calls.add(infinity, infinity | sign);
      else
        calls.add(infinity, sign);
      break;
    case HalfOperation::fma:
      for (const std::uint32_t nan : nans) {
        calls.add(nan, one, one);
        calls.add(one, nan, one);
        calls.add(one, one, nan);
      }
      calls.add(infinity, 0, one);
      calls.add(infinity, one, infinity | sign);
      break;
  }
  return calls;
}

/// Which NaN comes out. The first hypothesis is what gpu_half.hpp says.
struct NanRule {
  std::string name;
  std::function<std::uint32_t(const HalfInstruction&, std::span<const std::uint32_t> operands)> predict;
};

std::vector<NanRule> nan_rules() {
  const auto first_nan = [](const HalfInstruction& in,
                            std::span<const std::uint32_t> operands) -> std::uint32_t {
    // The first NaN among the operands, quiet, in the format of the result; the default NaN where there is
    // none.
    const bool from_single = in.operation == HalfOperation::cvt_f16_f32;
    for (const std::uint32_t word : operands) {
      if (from_single) return (word >> 16 & 0x8000) | 0x7e00 | (word >> 13 & 0x1ff);
      if (!half(word).is_nan()) continue;
      if (in.operation == HalfOperation::cvt_f32_f16)
        return (word & 0x8000) << 16 | 0x7fc00000 | (word & 0x1ff) << 13;
      return word | 0x200;
    }
    return 0x7e00;
  };
  return {{"canonical: all fraction bits one",
           [](const HalfInstruction& in, std::span<const std::uint32_t> operands) {
             return emulated(in, operands[0], operands.size() > 1 ? operands[1] : 0,
                             operands.size() > 2 ? operands[2] : 0);
           }},
          {"default: quiet bit alone",
           [](const HalfInstruction& in, std::span<const std::uint32_t>) -> std::uint32_t {
             return in.operation == HalfOperation::cvt_f32_f16 ? 0x7fc00000 : 0x7e00;
           }},
          {"first NaN operand, made quiet", first_nan}};
}

Finding ask_nan(Device& device, const Settings& settings, const HalfInstruction& in) {
  const Calls calls = nan_calls(in.operation);
  Finding finding{{.claim = fmt::format("{}: every NaN result is {}", ptx_of(in),
                                        in.operation == HalfOperation::cvt_f32_f16 ? "7fffffff" : "7fff"),
                   .criterion = fmt::format("that word from all of {} calls", calls.size()),
                   .topic = "P8"}};
  if (settings.only_criteria) return finding;
  Claim& claim = finding.claim;
  Words observed;
  try {
    observed = run(device, in, calls);
  } catch (const NotRecorded& missing) {
    claim.measured = missing.what();
    return finding;
  }
  const auto arity = static_cast<std::size_t>(operands_of(in.operation));
  const std::vector<NanRule> rules = nan_rules();
  std::vector<bool> agrees(rules.size(), true);
  for (std::size_t i = 0; i < calls.size(); ++i) {
    Words operands;
    for (std::size_t operand = 0; operand < arity; ++operand) operands.push_back(calls.operands[operand][i]);
    for (std::size_t rule = 0; rule < rules.size(); ++rule)
      agrees[rule] = agrees[rule] && rules[rule].predict(in, operands) == observed[i];
    claim.notes.push_back(
        fmt::format("{} {} -> {}", ptx_of(in), operands_text(in, calls, i), result_text(in, observed[i])));
    finding.half_observations.push_back(
        {ptx_of(in), operands_text(in, calls, i), result_text(in, observed[i])});
  }
  claim.verdict = analysis::verdict_of(agrees[0]);
  const auto holds = std::ranges::find(agrees, true);
  claim.measured =
      agrees[0] ? fmt::format("that word from {} of {} calls", calls.size(), calls.size())
      : holds == agrees.end()
          ? "no known rule agrees; numerics/arithmetic/gpu_half.hpp needs the observed one"
          : fmt::format("observed agrees with '{}'; numerics/arithmetic/gpu_half.hpp must say so",
                        rules[static_cast<std::size_t>(holds - agrees.begin())].name);
  return finding;
}

/// Counts differences from the emulation and keeps the first few as evidence.
class Sweep {
 public:
  static constexpr std::size_t differences_kept = 4;
  Sweep(Device& device, const HalfInstruction& in, int threads)
      : device_(device), in_(in), threads_(threads) {}

  void compare(const Calls& calls) {
    const Words observed = run(device_, in_, calls);
    const auto expected = [&](std::size_t i) {
      return emulated(in_, calls.operand(0, i), calls.operand(1, i), calls.operand(2, i));
    };
    constexpr std::size_t chunk = 4096;
    std::atomic<std::uint64_t> all_differing = 0;
    share_tasks((observed.size() + chunk - 1) / chunk, threads_, [&](std::size_t task) {
      std::uint64_t found = 0;
      for (std::size_t i = task * chunk; i < std::min(observed.size(), (task + 1) * chunk); ++i)
        found += observed[i] != expected(i) ? 1 : 0;
      all_differing += found;
    });
    const std::uint64_t differing = all_differing;
    for (std::size_t i = 0; i < observed.size() && differing > 0 && first_.size() < differences_kept; ++i)
      if (observed[i] != expected(i))
        first_.push_back(fmt::format("  {} {} -> {}, emulated {}", ptx_of(in_), operands_text(in_, calls, i),
                                     result_text(in_, observed[i]), result_text(in_, expected(i))));
    differing_ += differing;
    total_ += observed.size();
  }

  std::uint64_t differing() const { return differing_; }
  std::uint64_t total() const { return total_; }
  void report(Claim& claim) const {
    claim.notes.push_back(fmt::format("{}: {} of {} results differ", ptx_of(in_), differing_, total_));
    claim.notes.insert(claim.notes.end(), first_.begin(), first_.end());
  }

 private:
  Device& device_;
  HalfInstruction in_;
  int threads_;
  std::uint64_t differing_ = 0;
  std::uint64_t total_ = 0;
  std::vector<std::string> first_;
};

/// A claim that every bit is as emulated, and the sweeps that judge it.
class EmulatedClaim {
 public:
  explicit EmulatedClaim(std::string words)
      : claim_{.claim = std::move(words) + ": every bit as emulated",
               .criterion = "0 results differ",
               .topic = "P8"} {}

  void add(const Sweep& sweep) {
    sweep.report(claim_);
    differing_ += sweep.differing();
    total_ += sweep.total();
    claim_.verdict = analysis::verdict_of(differing_ == 0);
    claim_.measured = fmt::format("{} of {} results differ", differing_, total_);
    if (differing_ > 0)
      claim_.measured += "; numerics/arithmetic/gpu_half.hpp must say what the first differences show";
  }
  Finding finding() const { return {claim_}; }
  Finding not_recorded() {
    claim_.measured = "captures have no sweep of plain instructions; run the probe on the device";
    return finding();
  }

 private:
  Claim claim_;
  std::uint64_t differing_ = 0, total_ = 0;
};

/// Every edge of FP16, with its neighbours and both signs.
Words corners() {
  Words words;
  for (const std::uint32_t edge : {0x0000U, 0x0400U, 0x3800U, 0x3c00U, 0x7c00U, 0x1000U, 0x0200U})
    for (const int step : {-1, 0, 1})
      for (const std::uint32_t sign : {0x0000U, 0x8000U})
        words.push_back(((edge + static_cast<std::uint32_t>(step)) & 0x7fff) | sign);
  for (const std::uint32_t code : {0x7e00U, 0x0801U, 0x3555U, 0x4bffU, 0x4c00U, 0x07ffU})
    words.push_back(code);
  return words;
}

/// All corners with each other, then random codes.
Calls arithmetic_calls(HalfOperation operation, const Settings& settings) {
  Calls calls;
  const Words edges = corners();
  const Words thirds = operation == HalfOperation::fma ? edges : Words{0};
  for (const std::uint32_t x : edges)
    for (const std::uint32_t y : edges)
      for (const std::uint32_t z : thirds) calls.add(x, y, z);
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
  EmulatedClaim claim(ptx_of(HalfInstruction{operation, {}}) + " with .ftz, .sat, .f16x2");
  if (settings.only_criteria) return claim.finding();
  if (!device.computes()) return claim.not_recorded();
  const Calls calls = arithmetic_calls(operation, settings);
  for (const bool packed : {false, true})
    for (const bool ftz : {false, true})
      for (const bool sat : {false, true}) {
        Sweep sweep(device, {operation, {ftz, sat}, packed}, settings.threads);
        sweep.compare(calls);
        claim.add(sweep);
      }
  return claim.finding();
}

/// FP32 patterns 0, stride, 2 * stride ...
void sweep_singles(Sweep& sweep, std::uint64_t stride) {
  constexpr std::uint64_t patterns = std::uint64_t{1} << 32;
  constexpr std::uint64_t batch = std::uint64_t{1} << 22;
  for (std::uint64_t first = 0; first < patterns; first += batch * stride) {
    const std::uint64_t last = std::min(patterns, first + batch * stride);
    Calls calls;
    calls.operands[0].resize((last - first + stride - 1) / stride);
    for (std::size_t i = 0; i < calls.size(); ++i)
      calls.operands[0][i] = static_cast<std::uint32_t>(first + i * stride);
    sweep.compare(calls);
  }
}

Finding ask_conversions(Device& device, const Settings& settings) {
  EmulatedClaim claim("cvt between FP32 and FP16");
  if (settings.only_criteria) return claim.finding();
  if (!device.computes()) return claim.not_recorded();
  Sweep widening(device, {HalfOperation::cvt_f32_f16, {}}, settings.threads);
  Calls all_halves;
  for (std::uint32_t bits = 0; bits < 1U << 16; ++bits) all_halves.add(bits);
  widening.compare(all_halves);
  claim.add(widening);

  Sweep nearest(device, {HalfOperation::cvt_f16_f32, {}}, settings.threads);
  sweep_singles(nearest, settings.conversion_stride);
  claim.add(nearest);
  const std::uint64_t coarse = 257 * settings.conversion_stride;
  for (const Rounding rounding :
       {Rounding::nearest_even, Rounding::toward_zero, Rounding::downward, Rounding::upward})
    for (const bool ftz : {false, true})
      for (const bool sat : {false, true}) {
        Sweep sweep(device, {HalfOperation::cvt_f16_f32, {ftz, sat}, false, rounding}, settings.threads);
        sweep_singles(sweep, coarse);
        claim.add(sweep);
      }
  return claim.finding();
}

}  // namespace

std::vector<Finding> ask_half(Device& device, const Settings& settings) {
  std::vector<Finding> findings;
  constexpr std::array arithmetic{HalfOperation::add, HalfOperation::mul, HalfOperation::fma};
  for (const HalfOperation operation : arithmetic)
    for (const bool packed : {false, true})
      findings.push_back(ask_nan(device, settings, {operation, {}, packed}));
  findings.push_back(ask_nan(device, settings, {HalfOperation::cvt_f16_f32, {}}));
  findings.push_back(ask_nan(device, settings, {HalfOperation::cvt_f32_f16, {}}));
  for (const HalfOperation operation : arithmetic)
    findings.push_back(ask_arithmetic(device, settings, operation));
  findings.push_back(ask_conversions(device, settings));
  return findings;
}

}  // namespace fp16lab::probe
