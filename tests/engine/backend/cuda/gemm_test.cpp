// Products of the CUDA back end on the host machine that have several tiles and several slices of k, all
// sizes of tile, against numerics' GEMMs (which are tested against the definition of the tensor core, element
// by element). The conformance suite has the small ones.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/backend/cuda/cpu_simt/host_machine.hpp"
#include "engine/backend/cuda/product/product_plan.hpp"
#include "numerics/gemm/gemm.hpp"
#include "tests/engine/backend/conformance.hpp"
#include "tests/engine/backend/on_backend.hpp"

namespace fp16lab::engine::test {
namespace {

constexpr int host_multiprocessors = 4;  // what cpu_simt/runtime.cpp says of its device

struct Product {
  std::int64_t m, n, k;
  bool transpose_a = false, transpose_b = false;

  template <class T>
  std::vector<float> accumulators(const std::string& model, const std::vector<T>& a,
                                  const std::vector<T>& b) const {
    std::vector<float> result(static_cast<std::size_t>(m * n), 0.0f);
    const MatrixView<T> view_a{a.data(), transpose_a ? m : k, transpose_a},
        view_b{b.data(), transpose_b ? k : n, transpose_b};
    if constexpr (std::is_same_v<T, float>)
      fma_chain_gemm({m, n, k}, view_a, view_b, result.data(), n);
    else
      emulated_gemm(tensor_core_model(model, operand_format_of<T>), {m, n, k}, view_a, view_b, nullptr,
                    result.data(), n);
    return result;
  }
  std::string text() const {
    return fmt::format("{} x {} x {}, {}{}", m, n, k, transpose_a ? 'T' : 'N', transpose_b ? 'T' : 'N');
  }
};

/// The FP32 result of the back end under test.
template <class T>
std::vector<float> product_of(Backend& backend, const Product& p, const std::vector<T>& a,
                              const std::vector<T>& b) {
  Tensor out = backend.empty(Shape{p.m, p.n}, DType::f32);
  backend.gemm({.a = uploaded(backend, p.transpose_a ? Shape{p.k, p.m} : Shape{p.m, p.k}, a),
                .b = uploaded(backend, p.transpose_b ? Shape{p.n, p.k} : Shape{p.k, p.n}, b),
                .out = out,
                .transpose_a = p.transpose_a,
                .transpose_b = p.transpose_b});
  return downloaded<float>(backend, out);
}

template <class T>
void expect_numerics_bits(Backend& backend, const Product& p, Kind kind) {
  const std::vector<T> a = random_of<T>(p.m * p.k, kind, 51), b = random_of<T>(p.k * p.n, kind, 52);
  expect_same_bits(product_of(backend, p, a, b), p.accumulators(std::string(backend.tensor_core()), a, b),
                   p.text());
}

/// body(a back end) for the orders of threads and both block sizes of tensor cores.
template <class Body>
void for_each_machine(const Body& body) {
  body(*cpu_simt::make_cuda_backend_on_cpu({.tensor_core = "hopper"}, cpu_simt::Schedule::warp_by_warp));
  body(*cpu_simt::make_cuda_backend_on_cpu({.tensor_core = "ampere"}, cpu_simt::Schedule::descending));
}

template <class Body>
void for_each_transpose(const Body& body) {
  for (const bool transpose_a : {false, true})
    for (const bool transpose_b : {false, true}) body(transpose_a, transpose_b);
}

TEST(CudaGemm, SeveralTilesAndSlicesOfEachSizeForAllTransposes) {
  struct Sized {
    Product product;
    tile::Size mma, fma;
  };
  // Multiples of 8 go by 16-byte copies; the other extents of medium and large products are moved to aligned
  // rows first, those of small ones read one by one. k of 136 and 139 end in a slice that lies where the
  // epilogue keeps its rows.
  for (const Sized& sized : {Sized{{130, 100, 160}, tile::Size::small, tile::Size::small},
                             Sized{{136, 104, 136}, tile::Size::small, tile::Size::small},
                             Sized{{250, 255, 139}, tile::Size::medium, tile::Size::medium},
                             Sized{{256, 248, 72}, tile::Size::medium, tile::Size::medium},
                             Sized{{200, 264, 136}, tile::Size::large, tile::Size::small}}) {
    const tile::Outputs outputs{sized.product.m, sized.product.n, 1};
    ASSERT_EQ(tile::plan_mma(outputs, host_multiprocessors).size, sized.mma) << sized.product.text();
    ASSERT_EQ(tile::plan_fma(outputs, host_multiprocessors).size, sized.fma) << sized.product.text();
    for_each_machine([&](Backend& backend) {
      for_each_transpose([&](bool transpose_a, bool transpose_b) {
        Product p = sized.product;
        p.transpose_a = transpose_a;
        p.transpose_b = transpose_b;
        expect_numerics_bits<Float16>(backend, p, Kind::cancelling);
        expect_numerics_bits<BFloat16>(backend, p, Kind::wide);
        if (sized.mma != tile::Size::large) expect_numerics_bits<float>(backend, p, Kind::cancelling);
      });
    });
  }
}

TEST(CudaGemm, EveryLengthOfKAroundSlicesAndStages) {
  // A slice has 32 (FP32: 16) of k, an instruction 16, a block of ampere's 8, and four slices are in memory
  // at a time.
  for_each_machine([](Backend& backend) {
    for (std::int64_t k = 1; k <= 40; ++k) {
      expect_numerics_bits<Float16>(backend, {3, 5, k, false, k % 2 == 0}, Kind::wide);
      expect_numerics_bits<float>(backend, {3, 5, k, k % 2 == 0, false}, Kind::special);
    }
    for (const std::int64_t k : {63, 64, 65, 95, 96, 97, 127, 128, 129, 136, 160, 161, 200}) {
      expect_numerics_bits<BFloat16>(backend, {8, 16, k, k % 2 == 1, false}, Kind::ordinary);
      expect_numerics_bits<float>(backend, {8, 16, k, false, k % 2 == 1}, Kind::ordinary);
    }
  });
}

TEST(CudaGemm, PaddingOfKKeepsANegativeZero) {
  // -2^-75 * 2^-76 is less than half of the smallest FP32 number: BF16 accumulators truncate it to +0, fma
  // chains round it to -0. Blocks of zeros after the end of k would make +0 of that.
  for_each_machine([](Backend& backend) {
    for (std::int64_t k = 1; k <= 40; ++k) {
      const Product p{1, 1, k, false, false};
      std::vector<float> a(static_cast<std::size_t>(k), 0.0f), b(static_cast<std::size_t>(k), 1.0f);
      a.back() = -0x1p-75f;
      b.back() = 0x1p-76f;
      const auto run = [&](auto tag) {
        using T = decltype(tag);
        std::vector<T> low_a, low_b;
        for (const float x : a) low_a.push_back(stored_as(x, T{}));
        for (const float x : b) low_b.push_back(stored_as(x, T{}));
        const std::vector<float> result = product_of(backend, p, low_a, low_b);
        expect_same_bits(result, p.accumulators(std::string(backend.tensor_core()), low_a, low_b), p.text());
        return bits_of(result[0]);
      };
      EXPECT_EQ(run(BFloat16{}), 0u) << k;
      EXPECT_EQ(run(0.0f), 0x80000000u) << k;
    }
  });
}

TEST(CudaGemm, SpecialValuesGiveCanonicalNaN) {
  for_each_machine([](Backend& backend) {
    const Product p{40, 72, 33, false, true};
    expect_numerics_bits<Float16>(backend, p, Kind::special);
    expect_numerics_bits<BFloat16>(backend, p, Kind::special);
    expect_numerics_bits<float>(backend, p, Kind::special);
  });
}

TEST(CudaGemm, ATuringGpuHasSmallTilesOfFp16) {
  const auto backend =
      cpu_simt::make_cuda_backend_on_cpu({.tensor_core = "turing"}, cpu_simt::Schedule::scrambled);
  // The same extents take the medium and the large tile elsewhere, which 64 KiB do not hold.
  for (const Product& extents : {Product{130, 100, 160}, Product{250, 255, 139}, Product{200, 264, 136}})
    for_each_transpose([&](bool transpose_a, bool transpose_b) {
      Product p = extents;
      p.transpose_a = transpose_a;
      p.transpose_b = transpose_b;
      expect_numerics_bits<Float16>(*backend, p, Kind::cancelling);
      expect_numerics_bits<float>(*backend, p, Kind::cancelling);
    });
  for (std::int64_t k = 1; k <= 40; ++k) {
    expect_numerics_bits<Float16>(*backend, {3, 5, k, false, k % 2 == 0}, Kind::wide);
    expect_numerics_bits<Float16>(*backend, {3, 5, k, k % 2 == 0, true}, Kind::special);
  }
}

TEST(CudaGemm, ATuringGpuRefusesBf16AndTf32) {
  const auto backend = cpu_simt::make_cuda_backend_on_cpu({.tensor_core = "turing"});
  const auto refusal = [&](DType dtype, bool tf32) -> std::string {
    const Tensor a = backend->empty(Shape{2, 2}, dtype), b = backend->empty(Shape{2, 2}, dtype);
    Tensor out = backend->empty(Shape{2, 2}, DType::f32);
    try {
      backend->gemm({.a = a, .b = b, .out = out, .tf32 = tf32});
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "accepted";
  };
  const std::string start =
      "gemm: the host machine (no GPU: kernels executed on the CPU) has compute capability 7.5, ";
  EXPECT_EQ(refusal(DType::bf16, false), start +
                                             "whose tensor cores multiply FP16 alone; BF16 products on a "
                                             "device need 8.0 (sm_80) or newer, or backend.device = "
                                             "\"emulated\"");
  EXPECT_EQ(refusal(DType::f32, true), start +
                                           "whose tensor cores multiply FP16 alone; TF32 products on a "
                                           "device need 8.0 (sm_80) or newer, or backend.device = "
                                           "\"emulated\"");
}

TEST(CudaGemm, SaysThatFp8OperandsAreEmulatedOnly) {
  const auto backend = cpu_simt::make_cuda_backend_on_cpu();
  const Tensor a = backend->empty(Shape{2, 2}, DType::f16), b = backend->empty(Shape{2, 2}, DType::f16);
  Tensor out = backend->empty(Shape{2, 2}, DType::f32);
  try {
    backend->gemm({.a = a, .b = b, .out = out, .a_format = DType::e4m3, .b_format = DType::e5m2});
    FAIL();
  } catch (const std::invalid_argument& error) {
    EXPECT_STREQ(error.what(),
                 "gemm: FP8 operands are emulated only; use backend.device = \"emulated\" for FP8 training");
  }
}

TEST(CudaGemm, ReplaysWithMovedOperands) {
  // 250 x 255 is of medium size and its rows begin anywhere, so it is moved to scratch memory, within the
  // recording too.
  const auto backend = cpu_simt::make_cuda_backend_on_cpu();
  const Product p{250, 255, 33, false, false};
  const std::vector<Float16> a = random_halves(p.m * p.k, Kind::ordinary, 61),
                             b = random_halves(p.k * p.n, Kind::ordinary, 62);
  Tensor ta = uploaded(*backend, Shape{p.m, p.k}, a), tb = uploaded(*backend, Shape{p.k, p.n}, b);
  Tensor out = backend->empty(Shape{p.m, p.n}, DType::f32);
  const auto recording = backend->record([&] { backend->gemm({.a = ta, .b = tb, .out = out}); });
  for (const std::uint64_t seed : {63u, 64u}) {
    const std::vector<Float16> next = random_halves(p.m * p.k, Kind::ordinary, seed);
    backend->upload(std::as_bytes(std::span(next)), ta);
    recording->replay();
    expect_same_bits(downloaded<float>(*backend, out), p.accumulators("hopper", next, b), p.text());
  }
}

}  // namespace
}  // namespace fp16lab::engine::test
