// The elementary functions against the C library's float functions, which may err by an ulp or more and
// differ from version to version; ours stay within 2^-19 ulp of correct rounding and give the same bits
// everywhere.
#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <random>
#include <vector>

#include "experiments/bench/bench_numerics.hpp"
#include "experiments/bench/ratio.hpp"
#include "numerics/elementary/elementary.hpp"

namespace fp16lab::bench {
namespace {

constexpr std::size_t count = std::size_t{1} << 14;  // both arrays stay in the second-level cache

struct Arrays {
  explicit Arrays(bool positive) : from(count), to(count) {
    std::mt19937 engine(1);
    std::normal_distribution<float> normal(0, 4);
    for (float& x : from) x = positive ? std::fabs(normal(engine)) : normal(engine);
  }
  std::vector<float> from, to;
};

template <class Function>
void map(Arrays& arrays, Function function) {
  const float* from = arrays.from.data();
  float* to = arrays.to.data();
  for (std::size_t i = 0; i < count; ++i) to[i] = function(from[i]);
  benchmark::ClobberMemory();
}

template <class Ours, class Library>
void add(const char* name, bool positive, Ours ours, Library library) {
  register_ratio(fmt::format("{}/vs_libm", name), [=] {
    const auto arrays = std::make_shared<Arrays>(positive);
    return RatioCase{.name = name,
                     .yardstick = "libm",
                     .unit = "Gelem/s",
                     .work = static_cast<double>(count) * 1e-9,
                     .threads = 1,
                     .run = [=] { map(*arrays, ours); },
                     .run_yardstick = [=] { map(*arrays, library); }};
  });
}

}  // namespace

void register_elementary_benchmarks() {
  const auto any = [](const char* name, auto ours, auto library) { add(name, false, ours, library); };
  const auto positive = [](const char* name, auto ours, auto library) { add(name, true, ours, library); };
  any(
      "exp_f32", [](float x) { return exp_f32(x); }, [](float x) { return std::exp(x); });
  positive(
      "log_f32", [](float x) { return log_f32(x); }, [](float x) { return std::log(x); });
  any(
      "tanh_f32", [](float x) { return tanh_f32(x); }, [](float x) { return std::tanh(x); });
  any(
      "sigmoid_f32", [](float x) { return sigmoid_f32(x); },
      [](float x) { return 1.0f / (1.0f + std::exp(-x)); });
  positive(
      "rsqrt_f32", [](float x) { return rsqrt_f32(x); }, [](float x) { return 1.0f / std::sqrt(x); });
  any(
      "erf_f32", [](float x) { return erf_f32(x); }, [](float x) { return std::erf(x); });
  any(
      "gelu_f32", [](float x) { return gelu_f32(x); },
      [](float x) { return 0.5f * x * (1.0f + std::erf(x * 0.70710678f)); });
  any(
      "gelu_tanh_f32", [](float x) { return gelu_tanh_f32(x); },
      [](float x) { return 0.5f * x * (1.0f + std::tanh(0.79788456f * (x + 0.044715f * x * x * x))); });
  any(
      "sin_f32", [](float x) { return sin_f32(x); }, [](float x) { return std::sin(x); });
  any(
      "cos_f32", [](float x) { return cos_f32(x); }, [](float x) { return std::cos(x); });
  any(
      "sin_f32/huge", [](float x) { return sin_f32(x * 0x1p60f); },
      [](float x) { return std::sin(x * 0x1p60f); });
}

}  // namespace fp16lab::bench
