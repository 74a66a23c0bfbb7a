// Array conversions, array arithmetic and exponent counting against loops that do the least possible: the
// F16C loop, memory copy and read, the naive FP16 loop. A yardstick runs on as many threads as its case.
#include <fmt/format.h>

#include <array>
#include <cstring>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "experiments/bench/bench_numerics.hpp"
#include "experiments/bench/ratio.hpp"
#include "experiments/bench/yardsticks.hpp"
#include "numerics/arithmetic/array_arithmetic.hpp"
#include "numerics/convert/convert.hpp"
#include "numerics/convert/quantizer.hpp"
#include "numerics/formats/bits.hpp"
#include "numerics/histogram/exponent_count_thrust.hpp"
#include "numerics/histogram/exponent_histogram.hpp"
#include "numerics/histogram/value_histogram.hpp"
#include "numerics/platform/for_each_chunk.hpp"

namespace fp16lab::bench {
namespace {

/// Normally distributed numbers and their codes; results go to arrays of their own.
struct Arrays {
  explicit Arrays(std::size_t count)
      : wide(count),
        wide_out(count),
        spread(count),
        words(count),
        f16(3, std::vector<Float16>(count)),
        f16_out(count),
        bf16(2, std::vector<BFloat16>(count)),
        bf16_out(count),
        tf32(count),
        e4m3(count),
        e5m2(count),
        doubles(count) {
    std::mt19937 engine(1);
    std::normal_distribution<float> normal;
    for (std::size_t operand = 0; operand < f16.size(); ++operand) {
      for (float& x : wide) x = normal(engine);
      narrow<Binary16>(wide, f16[operand]);
      if (operand < bf16.size()) narrow<BrainFloat16>(wide, bf16[operand]);
    }
    narrow<Fp8E4M3>(wide, e4m3);
    narrow<Fp8E5M2>(wide, e5m2);
    for (std::size_t i = 0; i < count; ++i) {
      words[i] = static_cast<std::uint32_t>(engine());
      doubles[i] = static_cast<double>(wide[i]) * (1 + 0x1p-40);
      spread[i] = float_from_bits((words[i] & 0x80ffffffu) + 0x20000000u + (words[i] >> 24 << 22));
    }
  }

  std::vector<float> wide, wide_out;
  std::vector<float>
      spread;  ///< finite, over 128 binades: more than gradients, and than counting compares bins for
  std::vector<std::uint32_t> words;
  std::vector<std::vector<Float16>> f16;
  std::vector<Float16> f16_out;
  std::vector<std::vector<BFloat16>> bf16;
  std::vector<BFloat16> bf16_out;
  std::vector<SmallFloat<TensorFloat32>> tf32;
  std::vector<Float8E4M3> e4m3;
  std::vector<Float8E5M2> e5m2;
  std::vector<double> doubles;
};

std::uint16_t* codes(std::vector<Float16>& halves) { return reinterpret_cast<std::uint16_t*>(halves.data()); }

// ---- Yardsticks -------------------------------------------------------------------------------------------

void f16c_narrow_all(Arrays& x, int threads) {
  for_each_chunk(x.wide.size(), threads, [&](std::size_t first, std::size_t count) {
    f16c_narrow(std::span(x.wide).subspan(first, count), std::span(codes(x.f16_out) + first, count));
  });
}

void f16c_widen_all(Arrays& x, int threads) {
  for_each_chunk(x.wide.size(), threads, [&](std::size_t first, std::size_t count) {
    f16c_widen(std::span(codes(x.f16[0]) + first, count), std::span(x.wide_out).subspan(first, count));
  });
}

void copy_all(Arrays& x, int threads) {
  for_each_chunk(x.wide.size(), threads, [&](std::size_t first, std::size_t count) {
    std::memcpy(x.wide_out.data() + first, x.wide.data() + first, count * sizeof(float));
    benchmark::ClobberMemory();
  });
}

void read_whole(Arrays& x, int threads) {
  for_each_chunk(x.wide.size(), threads, [&](std::size_t first, std::size_t count) {
    benchmark::DoNotOptimize(read_all(std::span(x.wide).subspan(first, count)));
  });
}

template <HalfOperation operation>
void naive_arithmetic(Arrays& x, int threads) {
  for_each_chunk(x.wide.size(), threads, [&](std::size_t first, std::size_t count) {
    naive_half_arithmetic(operation, codes(x.f16[0]) + first, codes(x.f16[1]) + first,
                          codes(x.f16[2]) + first, codes(x.f16_out) + first, count);
  });
}

// ---- Cases ------------------------------------------------------------------------------------------------

using Run = void (*)(Arrays&, int);
struct Case {
  const char* name;
  const char* yardstick;
  Run run, run_yardstick;
};

template <Rounding rounding>
void narrow_half(Arrays& x, int threads) {
  narrow<Binary16>(x.wide, x.f16_out, rounding, threads);
}

constexpr PhiloxStream stream{1, 2, 3, 4};

/// As a matrix of 2^10 columns; FP8 and FP4 codes alike go to `e4m3`.
template <const char* name>
void quantize_all(Arrays& x, int threads) {
  const Quantizer& how = quantizer(name);
  const MatrixSize size{static_cast<std::int64_t>(x.wide.size() >> 10), 1 << 10};
  const MatrixSize blocks = how.scales_of(size);
  QuantizeOptions options;
  options.threads = threads;
  benchmark::DoNotOptimize(
      quantize(how, size, x.wide, {reinterpret_cast<std::uint8_t*>(x.e4m3.data()), x.e4m3.size()},
               std::span(x.wide_out).first(static_cast<std::size_t>(blocks.rows * blocks.columns)), options));
}
constexpr char mxfp8_name[] = "mxfp8", nvfp4_name[] = "nvfp4", fp8_tensor_name[] = "fp8-tensor";
void narrow_to_e4m3(Arrays& x, int threads) { narrow<Fp8E4M3>(x.wide, x.e4m3, {}, threads); }

const Case cases[] = {
    {"narrow_f16", "F16C", narrow_half<Rounding::nearest_even>, f16c_narrow_all},
    {"narrow_f16", "memcpy", narrow_half<Rounding::nearest_even>, copy_all},
    {"narrow_f16/toward_zero", "F16C", narrow_half<Rounding::toward_zero>, f16c_narrow_all},
    {"narrow_f16/upward", "F16C", narrow_half<Rounding::upward>, f16c_narrow_all},
    {"narrow_f16/downward", "F16C", narrow_half<Rounding::downward>, f16c_narrow_all},
    {"narrow_f16/nearest_away", "F16C", narrow_half<Rounding::nearest_away>, f16c_narrow_all},
    {"narrow_f16/stochastic_philox", "F16C",
     [](Arrays& x, int t) { narrow_stochastic<Binary16>(x.wide, x.f16_out, stream, 0, {}, t); },
     f16c_narrow_all},
    {"narrow_f16/stochastic_words", "F16C",
     [](Arrays& x, int t) { narrow_stochastic<Binary16>(x.wide, x.f16_out, x.words, {}, t); },
     f16c_narrow_all},
    {"narrow_bf16", "F16C", [](Arrays& x, int t) { narrow<BrainFloat16>(x.wide, x.bf16_out, {}, t); },
     f16c_narrow_all},
    {"narrow_bf16/stochastic_philox", "F16C",
     [](Arrays& x, int t) { narrow_stochastic<BrainFloat16>(x.wide, x.bf16_out, stream, 0, {}, t); },
     f16c_narrow_all},
    {"narrow_tf32", "memcpy", [](Arrays& x, int t) { narrow<TensorFloat32>(x.wide, x.tf32, {}, t); },
     copy_all},
    {"narrow_e4m3", "F16C", [](Arrays& x, int t) { narrow<Fp8E4M3>(x.wide, x.e4m3, {}, t); },
     f16c_narrow_all},
    {"narrow_e5m2", "F16C", [](Arrays& x, int t) { narrow<Fp8E5M2>(x.wide, x.e5m2, {}, t); },
     f16c_narrow_all},
    {"narrow_e5m2/toward_zero", "F16C",
     [](Arrays& x, int t) { narrow<Fp8E5M2>(x.wide, x.e5m2, Rounding::toward_zero, t); }, f16c_narrow_all},
    {"narrow_e5m2/stochastic_philox", "F16C",
     [](Arrays& x, int t) { narrow_stochastic<Fp8E5M2>(x.wide, x.e5m2, stream, 0, {}, t); }, f16c_narrow_all},
    {"quantize/mxfp8", "narrow_e4m3", quantize_all<mxfp8_name>, narrow_to_e4m3},
    {"quantize/nvfp4", "narrow_e4m3", quantize_all<nvfp4_name>, narrow_to_e4m3},
    {"quantize/fp8-tensor", "narrow_e4m3", quantize_all<fp8_tensor_name>, narrow_to_e4m3},
    {"narrow_f16_from_f64", "F16C", [](Arrays& x, int t) { narrow<Binary16>(x.doubles, x.f16_out, {}, t); },
     f16c_narrow_all},
    {"widen_f16", "F16C", [](Arrays& x, int t) { widen(x.f16[0], x.wide_out, t); }, f16c_widen_all},
    {"widen_bf16", "F16C", [](Arrays& x, int t) { widen(x.bf16[0], x.wide_out, t); }, f16c_widen_all},
    {"widen_e4m3", "F16C", [](Arrays& x, int t) { widen(x.e4m3, x.wide_out, t); }, f16c_widen_all},
    {"widen_e5m2", "F16C", [](Arrays& x, int t) { widen(x.e5m2, x.wide_out, t); }, f16c_widen_all},
    {"add_f16", "naive", [](Arrays& x, int t) { add<Binary16>(x.f16[0], x.f16[1], x.f16_out, t); },
     naive_arithmetic<HalfOperation::add>},
    {"mul_f16", "naive", [](Arrays& x, int t) { mul<Binary16>(x.f16[0], x.f16[1], x.f16_out, t); },
     naive_arithmetic<HalfOperation::mul>},
    {"fma_f16", "naive", [](Arrays& x, int t) { fma<Binary16>(x.f16[0], x.f16[1], x.f16[2], x.f16_out, t); },
     naive_arithmetic<HalfOperation::fma>},
    {"add_bf16", "naive", [](Arrays& x, int t) { add<BrainFloat16>(x.bf16[0], x.bf16[1], x.bf16_out, t); },
     naive_arithmetic<HalfOperation::add>},
    {"fma_bf16", "naive",
     [](Arrays& x, int t) { fma<BrainFloat16>(x.bf16[0], x.bf16[1], x.bf16[1], x.bf16_out, t); },
     naive_arithmetic<HalfOperation::fma>},
    {"count_exponents", "read",
     [](Arrays& x, int t) {
       ExponentHistogram histogram;
       count_exponents(std::span<const float>(x.wide), histogram, t);
       benchmark::DoNotOptimize(histogram);
     },
     read_whole},
    {"count_exponents/128_binades", "read",
     [](Arrays& x, int t) {
       ExponentHistogram histogram;
       count_exponents(std::span<const float>(x.spread), histogram, t);
       benchmark::DoNotOptimize(histogram);
     },
     read_whole},
    {"count_exponents/f16", "read",
     [](Arrays& x, int t) {
       ExponentHistogram histogram;
       count_exponents(std::span<const Float16>(x.f16[0]), histogram, t);
       benchmark::DoNotOptimize(histogram);
     },
     read_whole},
    {"count_exponents/thrust", "count",
     [](Arrays& x, int) {
       ExponentHistogram histogram;
       if (have_thrust_counting()) count_exponents_by_thrust(std::span<const float>(x.wide), histogram);
       benchmark::DoNotOptimize(histogram);
     },
     [](Arrays& x, int t) {
       ExponentHistogram histogram;
       count_exponents(std::span<const float>(x.wide), histogram, t);
       benchmark::DoNotOptimize(histogram);
     }},
    {"value_histogram", "read",
     [](Arrays& x, int t) {
       static const auto bins =
           std::make_shared<const ValueBins>(std::array{ScaledFormat{FormatRange::of<Binary16>(), 1024.0}});
       ValueHistogram values(bins);
       values.add(std::span<const float>(x.wide), t);
       benchmark::DoNotOptimize(values);
     },
     read_whole},
    {"narrow_and_count_f16", "separate",
     [](Arrays& x, int t) {
       ExponentHistogram histogram;
       narrow_and_count<Binary16>(x.wide, x.f16_out, histogram, {}, t);
       benchmark::DoNotOptimize(histogram);
     },
     [](Arrays& x, int t) {
       ExponentHistogram histogram;
       count_exponents(std::span<const float>(x.wide), histogram, t);
       narrow<Binary16>(x.wide, x.f16_out, {}, t);
       benchmark::DoNotOptimize(histogram);
     }},
};

}  // namespace

void register_stream_benchmarks(int threads) {
  // 2^15 elements stay in the second-level cache and are one piece of work; 2^24 come from memory.
  for (const std::size_t count : {std::size_t{1} << 15, std::size_t{1} << 24}) {
    if (count <= array_chunk && threads > 1) continue;
    // The cases of one size follow one another: they share the arrays, which go with the last case.
    const auto arrays = std::make_shared<std::unique_ptr<Arrays>>();
    for (const Case& c : cases)
      register_ratio(fmt::format("{}/{}/vs_{}/threads:{}", c.name, count, c.yardstick, threads), [=] {
        if (*arrays == nullptr) *arrays = std::make_unique<Arrays>(count);
        Arrays& x = **arrays;
        RatioCase result;
        result.name = fmt::format("{}/{}", c.name, count);
        result.yardstick = c.yardstick;
        result.unit = "Gelem/s";
        result.work = static_cast<double>(count) * 1e-9;
        result.threads = threads;
        result.run = [&x, run = c.run, threads] { run(x, threads); };
        result.run_yardstick = [&x, run = c.run_yardstick, threads] { run(x, threads); };
        return result;
      });
  }
}

}  // namespace fp16lab::bench
