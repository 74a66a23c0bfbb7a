// Emulated and fma-chain GEMM against sgemm on the same values and layouts.
#include <fmt/format.h>

#include <memory>
#include <random>
#include <vector>

#include "experiments/bench/bench_numerics.hpp"
#include "experiments/bench/ratio.hpp"
#include "experiments/bench/yardsticks.hpp"
#include "numerics/convert.hpp"
#include "numerics/gemm.hpp"

namespace fp16lab::bench {
namespace {

struct Layout {
  GemmShape shape;
  bool a_transposed, b_transposed;
  const char* what;
};

// Square ones, and those of one step of a 784-512-256 classifier with 128 images: forward, weight gradient,
// input gradient.
constexpr Layout layouts[] = {
    {{512, 512, 512}, false, false, "NN"}, {{1024, 1024, 1024}, false, false, "NN"},
    {{128, 512, 784}, false, true, "NT"},  {{512, 784, 128}, true, false, "TN"},
    {{128, 512, 256}, false, false, "NN"},
};

/// Operands N(0, 1), representable in FP16, in both types.
struct Operands {
  explicit Operands(const Layout& layout)
      : a16(static_cast<std::size_t>(layout.shape.m * layout.shape.k)),
        b16(static_cast<std::size_t>(layout.shape.k * layout.shape.n)),
        a32(a16.size()),
        b32(b16.size()),
        d(static_cast<std::size_t>(layout.shape.m * layout.shape.n)),
        yardstick_d(d.size()),
        lda(layout.a_transposed ? layout.shape.m : layout.shape.k),
        ldb(layout.b_transposed ? layout.shape.k : layout.shape.n) {
    std::mt19937 engine(1);
    std::normal_distribution<float> normal;
    for (auto* operand : {&a16, &b16})
      for (Float16& x : *operand) x = narrow<Binary16>(normal(engine));
    widen(a16, a32);
    widen(b16, b32);
  }
  std::vector<Float16> a16, b16;
  std::vector<float> a32, b32, d, yardstick_d;
  std::int64_t lda, ldb;
};

RatioCase make_case(const Layout& layout, const TensorCoreModel* model, int threads) {
  set_sgemm_threads(threads);
  const auto x = std::make_shared<Operands>(layout);
  const GemmShape s = layout.shape;
  RatioCase result;
  result.name = fmt::format(
      "{}/{}x{}x{}{}", model == nullptr ? "fma_chain_gemm" : fmt::format("emulated_gemm/{}", model->name),
      s.m, s.n, s.k, layout.what);
  result.yardstick = "sgemm";
  result.unit = "GMAC/s";
  result.work = static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k) * 1e-9;
  result.threads = threads;
  result.run_yardstick = [=] {
    sgemm(s, {x->a32.data(), x->lda, layout.a_transposed}, {x->b32.data(), x->ldb, layout.b_transposed},
          x->yardstick_d.data(), s.n);
  };
  if (model == nullptr)
    result.run = [=] {
      fma_chain_gemm(s, {x->a32.data(), x->lda, layout.a_transposed},
                     {x->b32.data(), x->ldb, layout.b_transposed}, x->d.data(), s.n, threads);
    };
  else
    result.run = [=] {
      emulated_gemm(*model, s, {x->a16.data(), x->lda, layout.a_transposed},
                    {x->b16.data(), x->ldb, layout.b_transposed}, nullptr, x->d.data(), s.n, threads);
    };
  return result;
}

}  // namespace

void register_gemm_benchmarks(int threads) {
  for (const Layout& layout : layouts) {
    const GemmShape s = layout.shape;
    const auto name = [&](const std::string& kernel) {
      return fmt::format("{}/{}x{}x{}{}/threads:{}", kernel, s.m, s.n, s.k, layout.what, threads);
    };
    for (const char* model : {"hopper", "ampere", "volta"})
      register_ratio(name(fmt::format("emulated_gemm/{}", model)),
                     [=] { return make_case(layout, &tensor_core_model(model), threads); });
    register_ratio(name("fma_chain_gemm"), [=] { return make_case(layout, nullptr, threads); });
  }
}

}  // namespace fp16lab::bench
