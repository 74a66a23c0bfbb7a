// Array conversions and exponent counting against loops that only move the data.
#include <fmt/format.h>

#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "experiments/bench/bench_numerics.hpp"
#include "experiments/bench/ratio.hpp"
#include "experiments/bench/yardsticks.hpp"
#include "numerics/convert.hpp"
#include "numerics/exponent_histogram.hpp"

namespace fp16lab::bench {
namespace {

struct Arrays {
  explicit Arrays(std::size_t count) : wide(count), wide_copy(count), codes(count), narrow16(count) {
    std::mt19937 engine(1);
    std::normal_distribution<float> normal;
    for (float& x : wide) x = normal(engine);
    narrow(wide, narrow16);
    std::memcpy(codes.data(), narrow16.data(), count * sizeof(std::uint16_t));
  }
  std::vector<float> wide, wide_copy;
  std::vector<std::uint16_t> codes;
  std::vector<Float16> narrow16;
};

RatioCase base(const std::string& name, const std::string& yardstick, std::size_t count, int threads) {
  RatioCase result;
  result.name = fmt::format("{}/{}", name, count);
  result.yardstick = yardstick;
  result.unit = "Gelem/s";
  result.work = static_cast<double>(count) * 1e-9;
  result.threads = threads;
  return result;
}

}  // namespace

void register_stream_benchmarks(int threads) {
  // 2^15 elements stay in the second-level cache, 2^24 come from memory. The yardsticks use one thread.
  for (const std::size_t count : {std::size_t{1} << 15, std::size_t{1} << 24}) {
    const auto add = [&](const std::string& name, const std::string& yardstick, auto run,
                         auto run_yardstick) {
      register_ratio(fmt::format("{}/{}/vs_{}/threads:{}", name, count, yardstick, threads), [=] {
        const auto x = std::make_shared<Arrays>(count);
        RatioCase result = base(name, yardstick, count, threads);
        result.run = [=] { run(*x, threads); };
        result.run_yardstick = [=] { run_yardstick(*x); };
        return result;
      });
    };
    const auto run_narrow = [](Arrays& x, int t) { narrow(x.wide, x.narrow16, Rounding::nearest_even, t); };
    const auto run_widen = [](Arrays& x, int t) { widen(x.narrow16, x.wide_copy, t); };
    const auto copy = [](Arrays& x) {
      std::memcpy(x.wide_copy.data(), x.wide.data(), x.wide.size() * sizeof(float));
      benchmark::ClobberMemory();
    };
    add("narrow_f16", "F16C", run_narrow, [](Arrays& x) { f16c_narrow(x.wide, x.codes); });
    add("narrow_f16", "memcpy", run_narrow, copy);
    add("widen_f16", "F16C", run_widen, [](Arrays& x) { f16c_widen(x.codes, x.wide_copy); });
    add(
        "count_exponents", "read",
        [](Arrays& x, int t) {
          ExponentHistogram histogram;
          count_exponents(std::span<const float>(x.wide), histogram, t);
          benchmark::DoNotOptimize(histogram);
        },
        [](Arrays& x) { benchmark::DoNotOptimize(read_all(x.wide)); });
  }
}

}  // namespace fp16lab::bench
