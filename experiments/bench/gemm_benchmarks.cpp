// Emulated and fma-chain GEMM against sgemm on the same values and layouts; odd shapes against square ones;
// two threads against one.
#include <fmt/format.h>

#include <array>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "experiments/bench/bench_numerics.hpp"
#include "experiments/bench/ratio.hpp"
#include "experiments/bench/yardsticks.hpp"
#include "numerics/convert/convert.hpp"
#include "numerics/gemm/gemm.hpp"
#include "numerics/gemm/library_plan.hpp"
#include "numerics/gemm/quantized_gemm.hpp"

namespace fp16lab::bench {
namespace {

struct Layout {
  GemmShape shape;
  bool a_transposed = false, b_transposed = false;

  std::int64_t lda() const { return a_transposed ? shape.m : shape.k; }
  std::int64_t ldb() const { return b_transposed ? shape.k : shape.n; }
  double work() const {
    return static_cast<double>(shape.m) * static_cast<double>(shape.n) * static_cast<double>(shape.k) * 1e-9;
  }
  std::string name() const {
    return fmt::format("{}x{}x{}{}{}", shape.m, shape.n, shape.k, a_transposed ? 'T' : 'N',
                       b_transposed ? 'T' : 'N');
  }
};

constexpr Layout square{{512, 512, 512}};
constexpr Layout large_square{{1024, 1024, 1024}};
// One step of a 784-512-256 classifier with 128 images: forward, weight gradient, input gradient.
constexpr Layout classifier[] = {
    {{128, 512, 784}, false, true}, {{512, 784, 128}, true, false}, {{128, 512, 256}}};
constexpr GemmShape odd_shape{1000, 257, 333};

/// N(0, 1) in FP32 and in the operand and accumulator types of a case.
template <class T, class Accumulator>
struct Operands {
  explicit Operands(const Layout& layout)
      : a32(count(layout.shape.m, layout.shape.k)),
        b32(count(layout.shape.k, layout.shape.n)),
        a(a32.size()),
        b(b32.size()),
        d32(count(layout.shape.m, layout.shape.n)),
        d(d32.size()) {
    std::mt19937 engine(1);
    std::normal_distribution<float> normal;
    for (auto* operand : {&a32, &b32})
      for (float& x : *operand) x = normal(engine);
    convert_all(a32, a);
    convert_all(b32, b);
  }
  std::vector<float> a32, b32;
  std::vector<T> a, b;
  std::vector<float> d32;
  std::vector<Accumulator> d;

 private:
  static std::size_t count(std::int64_t rows, std::int64_t columns) {
    return static_cast<std::size_t>(rows * columns);
  }
  static void convert_all(const std::vector<float>& from, std::vector<T>& to) {
    for (std::size_t i = 0; i < from.size(); ++i) {
      if constexpr (std::is_same_v<T, float>)
        to[i] = from[i];
      else
        to[i] = narrow<typename T::Format>(from[i]);
    }
  }
};

/// A call of emulated_gemm with data of its own.
template <class T, class Accumulator>
std::function<void()> emulated_call(const TensorCoreModel& model, const Layout& layout, int threads) {
  const auto x = std::make_shared<Operands<T, Accumulator>>(layout);
  return [=] {
    emulated_gemm(model, layout.shape, MatrixView<T>{x->a.data(), layout.lda(), layout.a_transposed},
                  MatrixView<T>{x->b.data(), layout.ldb(), layout.b_transposed}, nullptr, x->d.data(),
                  layout.shape.n, threads);
  };
}

std::function<void()> sgemm_call(const Layout& layout) {
  const auto x = std::make_shared<Operands<float, float>>(layout);
  return [=] {
    sgemm(layout.shape, {x->a.data(), layout.lda(), layout.a_transposed},
          {x->b.data(), layout.ldb(), layout.b_transposed}, x->d32.data(), layout.shape.n);
  };
}

RatioCase case_of(const std::string& kernel, const Layout& layout, int threads) {
  RatioCase result;
  result.name = fmt::format("{}/{}", kernel, layout.name());
  result.unit = "GMAC/s";
  result.work = layout.work();
  result.threads = threads;
  return result;
}

std::string registered_name(const std::string& kernel, const Layout& layout, int threads) {
  return fmt::format("{}/{}/threads:{}", kernel, layout.name(), threads);
}

/// emulated_gemm with operands T and accumulators of type Accumulator against sgemm.
template <class T, class Accumulator = float>
void register_emulated(const std::string& kernel, const TensorCoreModel& model, const Layout& layout,
                       int threads) {
  register_ratio(registered_name(kernel, layout, threads), [=] {
    set_sgemm_threads(threads);
    RatioCase result = case_of(kernel, layout, threads);
    result.yardstick = "sgemm";
    result.run_yardstick = sgemm_call(layout);
    result.run = emulated_call<T, Accumulator>(model, layout, threads);
    return result;
  });
}

void register_fma_chain(const Layout& layout, int threads) {
  const std::string kernel = "fma_chain_gemm";
  register_ratio(registered_name(kernel, layout, threads), [=] {
    set_sgemm_threads(threads);
    const auto x = std::make_shared<Operands<float, float>>(layout);
    RatioCase result = case_of(kernel, layout, threads);
    result.yardstick = "sgemm";
    result.run_yardstick = sgemm_call(layout);
    result.run = [=] {
      fma_chain_gemm(layout.shape, {x->a.data(), layout.lda(), layout.a_transposed},
                     {x->b.data(), layout.ldb(), layout.b_transposed}, x->d.data(), layout.shape.n, threads);
    };
    return result;
  });
}

/// An odd shape against the square one: the ratio of rates.
void register_odd_shape(const Layout& layout, int threads) {
  const std::string kernel = "emulated_gemm/hopper";
  register_ratio(registered_name(kernel + "/odd", layout, threads), [=] {
    const TensorCoreModel& model = tensor_core_model("hopper");
    RatioCase result = case_of(kernel, layout, threads);
    result.yardstick = "square";
    result.yardstick_work = square.work();
    result.run_yardstick = emulated_call<Float16, float>(model, square, threads);
    result.run = emulated_call<Float16, float>(model, layout, threads);
    return result;
  });
}

void register_scaling(const Layout& layout, int threads) {
  const std::string kernel = "emulated_gemm/hopper";
  register_ratio(registered_name(kernel + "/scaling", layout, threads), [=] {
    const TensorCoreModel& model = tensor_core_model("hopper");
    RatioCase result = case_of(kernel, layout, threads);
    result.yardstick = "1 thread";
    result.run_yardstick = emulated_call<Float16, float>(model, layout, 1);
    result.run = emulated_call<Float16, float>(model, layout, threads);
    return result;
  });
}

/// A plan costs what its chains cost: K in chains of 128 against one chain, the ratio of rates.
void register_plan(int threads) {
  const std::string kernel = "planned_gemm/hopper-wgmma/e4m3/chains_of_128";
  register_ratio(registered_name(kernel, large_square, threads), [=] {
    const TensorCoreModel& model = tensor_core_model("hopper-wgmma", DType::e4m3);
    const auto x = std::make_shared<Operands<Float8E4M3, float>>(large_square);
    RatioCase result = case_of(kernel, large_square, threads);
    result.yardstick = "one chain";
    result.run_yardstick = emulated_call<Float8E4M3, float>(model, large_square, threads);
    result.run = [=] {
      const GemmShape shape = large_square.shape;
      planned_gemm({.row = &model, .ranges = {{.restart = 128}}}, shape,
                   {DType::e4m3, x->a.data(), shape.k, 1}, {DType::e4m3, x->b.data(), shape.n, 1},
                   x->d.data(), shape.n, threads);
    };
    return result;
  });
}

/// quantized_gemm of two quantized matrices against sgemm of what they were made of.
void register_quantized(const char* name, int threads) {
  const std::string kernel = fmt::format("quantized_gemm/{}", name);
  register_ratio(registered_name(kernel, square, threads), [=] {
    set_sgemm_threads(threads);
    struct Coded {
      std::vector<std::uint8_t> codes;
      std::vector<float> scales;
      float tensor_scale = 1;
    };
    const Quantizer& with = quantizer(name);
    const auto x = std::make_shared<Operands<float, float>>(square);
    const auto coded = std::make_shared<std::array<Coded, 2>>();
    const MatrixSize size{square.shape.m, square.shape.k}, blocks = with.scales_of(size);
    for (std::size_t i = 0; i < 2; ++i) {
      Coded& to = (*coded)[i];
      to.codes.resize(x->a.size());
      to.scales.resize(static_cast<std::size_t>(blocks.rows * blocks.columns));
      to.tensor_scale = quantize(with, size, i == 0 ? x->a : x->b, to.codes, to.scales);
    }
    RatioCase result = case_of(kernel, square, threads);
    result.yardstick = "sgemm";
    result.run_yardstick = sgemm_call({square.shape, false, true});
    result.run = [=, &with, &row = row_of_quantized(with, with)] {
      const auto matrix = [&](const Coded& from) {
        return QuantizedMatrix{with, size, from.codes, from.scales, from.tensor_scale};
      };
      quantized_gemm(row, matrix((*coded)[0]), matrix((*coded)[1]), x->d, threads);
    };
    return result;
  });
}

/// One row for each kind of kernel that the table needs, on the square shape.
void register_formats(int threads) {
  using enum DType;
  constexpr auto half = DType::f16;
  for (const char* name : {"hopper", "ampere", "volta"})
    register_emulated<Float16, Float16>(fmt::format("emulated_gemm/{}/f16_acc_f16", name),
                                        tensor_core_model(name, f16, half), square, threads);
  for (const char* name : {"hopper", "ampere"}) {
    register_emulated<BFloat16>(fmt::format("emulated_gemm/{}/bf16", name), tensor_core_model(name, bf16),
                                square, threads);
    register_emulated<float>(fmt::format("emulated_gemm/{}/tf32", name), tensor_core_model(name, tf32),
                             square, threads);
  }
  for (const char* name : {"ada", "hopper-wgmma", "blackwell-tcgen05", "hopper"}) {
    register_emulated<Float8E4M3>(fmt::format("emulated_gemm/{}/e4m3", name), tensor_core_model(name, e4m3),
                                  square, threads);
    register_emulated<Float8E5M2, Float16>(fmt::format("emulated_gemm/{}/e5m2_acc_f16", name),
                                           tensor_core_model(name, e5m2, half), square, threads);
  }
  register_emulated<BFloat16>("emulated_gemm/avx512_bf16", tensor_core_model("avx512_bf16", bf16), square,
                              threads);
  for (const char* name : {"nvfp4", "mxfp4", "mxfp8", "fp8-1x128"}) register_quantized(name, threads);
  register_plan(threads);
  TensorCoreModel wider = tensor_core_model("hopper");
  wider.set(&Stage::fraction_bits, 26);  // one more than the fast kernel has
  register_emulated<Float16>("emulated_gemm/general_kernel", wider, square, threads);
}

}  // namespace

void register_gemm_benchmarks(int threads) {
  std::vector<Layout> layouts = {square, large_square};
  layouts.insert(layouts.end(), std::begin(classifier), std::end(classifier));
  for (const Layout& layout : layouts) {
    for (const char* name : {"hopper", "ampere", "volta"})
      register_emulated<Float16>(fmt::format("emulated_gemm/{}", name), tensor_core_model(name), layout,
                                 threads);
    register_fma_chain(layout, threads);
  }
  register_formats(threads);
  for (const bool a_transposed : {false, true})
    for (const bool b_transposed : {false, true})
      register_odd_shape({odd_shape, a_transposed, b_transposed}, threads);
  if (threads > 1)
    for (const Layout& layout : {square, large_square}) register_scaling(layout, threads);
}

}  // namespace fp16lab::bench
