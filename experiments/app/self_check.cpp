#include "experiments/app/self_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "engine/train/trainer.hpp"
#include "experiments/app/run/prepared_run.hpp"
#include "numerics/convert/convert.hpp"
#include "numerics/files/disk/sha256.hpp"
#include "numerics/formats/bits.hpp"
#include "numerics/gemm/strided_gemm.hpp"
#include "numerics/random/philox.hpp"

namespace fp16lab::experiments {
namespace {

constexpr std::size_t words = 1 << 17;
constexpr PhiloxStream random_words{.seed = 1, .stream = stream_id("self_check")};

class Digest {
 public:
  template <class T>
  void add(const std::vector<T>& values) {
    sha256_.update(std::as_bytes(std::span(values)));
  }
  std::string text() { return sha256_.hex_digest().substr(0, 16); }

 private:
  Sha256 sha256_;
};

/// All exponents and signs of FP32, and of FP64, with NaN, infinities and subnormal values among them.
std::vector<float> float_patterns() {
  std::vector<float> patterns(words);
  for (std::uint32_t i = 0; i < words; ++i) patterns[i] = float_from_bits(i * 0x9E3779B1u);
  return patterns;
}
std::vector<double> double_patterns() {
  std::vector<double> patterns(words);
  // Around the range of the narrow formats: 2^-160 to 2^160, in steps that are odd.
  for (std::uint64_t i = 0; i < words; ++i) {
    const std::uint64_t mixed = i * 0x9E3779B97F4A7C15u;
    const std::uint64_t exponent = 1023 - 160 + (mixed >> 40) % 321;
    patterns[i] = double_from_bits((mixed & 0x800FFFFFFFFFFFFFu) | exponent << 52);
  }
  return patterns;
}

template <class F>
std::string conversions(int threads) {
  Digest digest;
  const std::vector<float> floats = float_patterns();
  const std::vector<double> doubles = double_patterns();
  std::vector<SmallFloat<F>> codes(words);
  std::vector<float> back(words);
  for (const Rounding rounding : all_roundings) {
    narrow<F>(floats, codes, rounding, threads);
    digest.add(codes);
    narrow<F>(doubles, codes, rounding, threads);
    digest.add(codes);
  }
  narrow_stochastic<F>(floats, codes, random_words, 3, {}, threads);
  digest.add(codes);
  for (std::size_t i = 0; i < words; ++i)
    codes[i] =
        SmallFloat<F>::from_bits(static_cast<typename F::Bits>(i & ((std::uint64_t{1} << F::width) - 1)));
  widen<F>(codes, back, threads);
  digest.add(back);
  return digest.text();
}

template <class T>
std::vector<std::byte> bytes_of(const std::vector<T>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

/// Values from 2^-8 to 2^8 in magnitude, as elements of an operand.
std::vector<std::byte> operand(DType format, std::uint32_t which, std::size_t count, int threads) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t word = PhiloxStream{.seed = 1, .stream = which}.word(i);
    values[i] = float_from_bits((word & 0x807FFFFFu) | (119 + (word >> 24) % 16) << 23);
  }
  // TF32 operands are the words of registers, whose low bits are ignored.
  if (format == DType::tf32 || format == DType::f32) return bytes_of(values);
  return visit_dtype<is_stored>(format, [&](auto row) {
    using Element = typename decltype(row)::Element;
    std::vector<Element> codes(count);
    narrow<typename Element::Format>(values, codes, {}, threads);
    return bytes_of(codes);
  });
}

/// `kind`: the block scales of a row that has them.
std::string product(const TensorCoreModel& model, DType format, int threads, ScaleKind kind = {}) {
  const std::int64_t m = 24, n = 40, k = kind.block > 0 ? 192 : 200;
  StridedScales scales;
  std::vector<std::byte> a_scales, b_scales;
  if (kind.block > 0) {
    const std::int64_t blocks = k / kind.block;
    a_scales = operand(kind.format, 4, static_cast<std::size_t>(m * blocks), threads);
    b_scales = operand(kind.format, 5, static_cast<std::size_t>(blocks * n), threads);
    scales = {kind.block, {kind.format, a_scales.data(), blocks, 1}, {kind.format, b_scales.data(), n, 1}};
  }
  const auto elements = [](std::int64_t rows, std::int64_t columns) {
    return static_cast<std::size_t>(rows * columns);
  };
  const std::vector<std::byte> a = operand(format, 1, elements(m, k), threads),
                               b = operand(format, 2, elements(k, n), threads);
  std::vector<std::byte> d = operand(model.accumulator(), 3, elements(m, n), threads);
  emulated_gemm(model, {m, n, k}, StridedMatrix{format, a.data(), k, 1},
                StridedMatrix{format, b.data(), n, 1}, d.data(), d.data(), n, threads, scales);
  Digest digest;
  digest.add(d);
  return digest.text();
}

std::string training(std::string_view settings, int threads) {
  const RunConfig config = parse_config(fmt::format(R"(
[[model.layer]]
type = "conv2d"
out_channels = 8
kernel_size = 3
[[model.layer]]
type = "batch_norm2d"
[[model.layer]]
type = "gelu"
[[model.layer]]
type = "flatten"
[[model.layer]]
type = "linear"
out_features = 24
[[model.layer]]
type = "layer_norm"
[[model.layer]]
type = "tanh"
[[model.layer]]
type = "linear"
out_features = 4
[model]
name = "self_check"
loss = "mse"
[data]
name = "uniform"
batches = 3
inputs = [1, 8, 8]
outputs = 4
[train]
steps = 3
batch_size = 16
[optimizer]
name = "adam"
lr = 0.01
[observe]
histograms_every = 0
{})",
                                                    settings),
                                        "self-check");
  const std::unique_ptr<PreparedRun> run = prepare_run(resolve_run(config), threads);
  engine::Tap nobody;
  engine::Trainer trainer(*run->backend, run->workload, run->plan, nobody);
  return fmt::format("{:016x}", trainer.run().state_hash);
}

}  // namespace

std::vector<CheckedDigest> computed_digests(int threads) {
  std::vector<CheckedDigest> all;
  for (const DType format : dtypes<is_low_precision>)
    visit_dtype<is_low_precision>(format, [&](auto row) {
      using F = typename decltype(row)::Element::Format;
      all.push_back({fmt::format("conversions {}", name_of(format)), conversions<F>(threads)});
    });
  for (const TensorCoreModel& model : tensor_core_models())
    for (const DType format : dtypes<is_low_precision>)
      if (model.operands.contains(format))
        all.push_back(
            {fmt::format("products {} {} {}", model.name, name_of(format), name_of(model.accumulator())),
             product(model, format, threads)});
  for (const TensorCoreModel& model : all_tensor_core_models())
    for (const DType format : dtypes<is_operand>)
      for (const ScaleKind& kind : model.scales)
        if (model.operands.contains(format) && kind.block > 0)
          all.push_back({fmt::format("products {} {} {} {}/{}", model.name, name_of(format),
                                     name_of(model.accumulator()), name_of(kind.format), kind.block),
                         product(model, format, threads, kind)});
  all.push_back({"training f32", training("", threads)});
  for (const std::string_view dtype : {"f16", "bf16"})
    all.push_back(
        {fmt::format("training {}", dtype),
         training(fmt::format("[amp]\nlevel = \"O1\"\ndtype = \"{}\"\n[scaler]\npolicy = \"torch\"\n", dtype),
                  threads)});
  return all;
}

}  // namespace fp16lab::experiments
