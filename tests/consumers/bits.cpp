// Digests of what a program that links fp16lab computes: they do not depend on flags, compiler or kind of
// library. Half of it is arithmetic in headers, which those flags compile.
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "fp16lab/analysis/suggested_scale.hpp"
#include "fp16lab/engine/backend/emulated/emulated_backend.hpp"
#include "fp16lab/engine/data/synthetic.hpp"
#include "fp16lab/engine/nn/models/mlp.hpp"
#include "fp16lab/engine/train/trainer.hpp"
#include "fp16lab/numerics/arithmetic/tree_reduce.hpp"
#include "fp16lab/numerics/convert/convert.hpp"
#include "fp16lab/numerics/elementary/elementary.hpp"
#include "fp16lab/numerics/gemm/gemm.hpp"
#include "fp16lab/numerics/histogram/zones.hpp"

using namespace fp16lab;

namespace {

class Digest {
 public:
  template <class T>
  void add(const T& value) {
    std::array<unsigned char, sizeof(T)> bytes;
    std::memcpy(bytes.data(), &value, sizeof(T));
    for (const unsigned char byte : bytes) state_ = (state_ ^ byte) * 0x100000001b3u;
  }
  void print(const char* what) const {
    std::printf("%s %016llx\n", what, static_cast<unsigned long long>(state_));
  }

 private:
  std::uint64_t state_ = 0xcbf29ce484222325u;
};

/// Numbers of every size, subnormal ones too.
std::vector<float> numbers(std::size_t count) {
  std::vector<float> made(count);
  std::uint32_t word = 1;
  for (float& x : made) {
    word = word * 1664525u + 1013904223u;
    x = float_from_bits(word & 0xff7fffffu);
  }
  return made;
}

/// Near 1, where sums and functions round.
std::vector<float> ordinary(std::size_t count) {
  std::vector<float> made(count);
  std::uint32_t word = 7;
  for (float& x : made) {
    word = word * 1664525u + 1013904223u;
    x = float_from_bits(0x3e800000u + (word >> 8) % 0x01800000u) * ((word & 1u) != 0 ? 1.0f : -1.0f);
  }
  return made;
}

void conversions() {
  Digest digest;
  const std::vector<float> from = numbers(100'000);
  std::vector<Float16> halves(from.size());
  std::vector<Float8E4M3> bytes(from.size());
  narrow<Binary16>(from, halves);
  narrow<Fp8E4M3>(from, bytes, Rounding::toward_zero);
  for (const Float16 x : halves) digest.add(x.bits());
  for (const Float8E4M3 x : bytes) digest.add(x.bits());
  for (const float x : from) digest.add(narrow<BrainFloat16>(x, Rounding::upward).bits());
  digest.print("conversions");
}

void elementary() {
  Digest digest;
  for (const float x : ordinary(20'000)) {
    digest.add(exp_f32(x));
    digest.add(log_f32(std::fabs(x)));
    digest.add(log1p_f32(std::fabs(x)));
    digest.add(sigmoid_f32(x));
    digest.add(tanh_f32(x));
    digest.add(erf_f32(x));
    digest.add(gelu_f32(x));
    digest.add(gelu_tanh_f32(x));
    digest.add(rsqrt_f32(std::fabs(x)));
    digest.add(sin_f32(x));
    digest.add(cos_f32(x));
  }
  digest.print("elementary functions");
}

void products() {
  Digest digest;
  const GemmShape shape{.m = 9, .n = 11, .k = 77};
  const std::vector<float> a = ordinary(9 * 77), b = ordinary(77 * 11);
  std::vector<Float16> a16(a.size()), b16(b.size());
  narrow<Binary16>(a, a16);
  narrow<Binary16>(b, b16);
  std::vector<float> d(9 * 11);
  for (const TensorCoreModel& model : tensor_core_models()) {
    if (!model.operands.contains(DType::f16) || model.accumulator() != DType::f32) continue;
    emulated_gemm(model, shape, MatrixView<Float16>{a16.data(), 77}, MatrixView<Float16>{b16.data(), 11},
                  nullptr, d.data(), 11, 2);
    for (const float x : d) digest.add(x);
  }
  fma_chain_gemm(shape, {a.data(), 77}, {b.data(), 11}, d.data(), 11);
  for (const float x : d) digest.add(x);
  digest.add(tree_reduce<float>(
      static_cast<std::int64_t>(a.size()), [&](std::int64_t i) { return a[static_cast<std::size_t>(i)]; },
      TreeSum{}));
  digest.print("products and sums");
}

void histograms() {
  Digest digest;
  ExponentHistogram counts;
  count_exponents(numbers(100'000), counts);
  analysis::RangeReport report;
  report.add("x", counts, 1.0);
  for (int k = -10; k <= 24; ++k) {
    const ZoneMass mass = zone_mass(counts, fp16_range, std::ldexp(1.3, k));
    for (const ZoneSum& zone : {mass.l1.lost, mass.l1.normal, mass.l2_squared.overflow}) {
      digest.add(zone.inside.lower);
      digest.add(zone.inside.upper);
      digest.add(zone.share().upper);
    }
    const RangeMass lost = range_mass(counts, fp16_range, std::ldexp(1.3, k));
    digest.add(lost.lost_l1.upper);
    digest.add(lost.kept_l2_squared.lower);
  }
  for (const char letter : analysis::suggest_scale(report, DType::f16).reasoning) digest.add(letter);
  digest.print("histograms");
}

void training() {
  using namespace fp16lab::engine;
  Digest digest;
  const auto backend = make_emulated_backend(tensor_core_model("hopper"), 2);
  for (const char* const policy : {"torch", "lost-mass", "openseq2seq-logmax"}) {
    data::SyntheticBatches batches({.batch_size = 16, .inputs = {12}, .outputs = 3, .seed = 5});
    Workload workload{
        .model = std::make_unique<nn::Mlp>(
            *backend, nn::MlpOptions{.widths = {12, 16, 3}, .activation = nn::Activation::gelu, .seed = 2}),
        .training = &batches,
        .loss = LossKind::mse};
    Tap nobody;
    Trainer trainer(*backend, workload, {.steps = 12, .clip_norm = 0.5}, {.level = Level::O1},
                    {.policy = policy},
                    {.name = optim::Algorithm::adamw, .learning_rate = 0.01, .weight_decay = 0.01}, nobody);
    digest.add(trainer.run().state_hash);
  }
  digest.print("training");
}

}  // namespace

int main() {
  conversions();
  elementary();
  products();
  histograms();
  training();
}
