// What is the emulated back end's own: its floating-point environment, its pool, its thread counts.
#include <gtest/gtest.h>

#include <cfenv>

#include "engine/backend/emulated/emulated_backend.hpp"
#include "tests/engine/backend_conformance.hpp"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace fp16lab::engine::test {
namespace {

TEST(EmulatedBackend, SaysWhatItIs) {
  const auto backend = make_emulated_backend(tensor_core_model("ampere"), 2);
  EXPECT_EQ(backend->name(), "emulated");
  EXPECT_EQ(backend->tensor_core(), "ampere");
  EXPECT_THROW(make_emulated_backend(tensor_core_model("ampere"), 0), std::invalid_argument);
}

#if defined(__x86_64__)
/// Sets MXCSR for a scope.
class MxcsrGuard {
 public:
  explicit MxcsrGuard(unsigned bits) : old_(_mm_getcsr()) { _mm_setcsr(old_ | bits); }
  MxcsrGuard(const MxcsrGuard&) = delete;
  MxcsrGuard& operator=(const MxcsrGuard&) = delete;
  ~MxcsrGuard() { _mm_setcsr(old_); }

 private:
  unsigned old_;
};

TEST(EmulatedBackend, RefusesFlushedSubnormalsAndDirectedRounding) {
  const auto backend = make_emulated_backend(tensor_core_model("hopper"), 1);
  Tensor x = backend->empty(Shape{8}, DType::f32);
  backend->fill(x, 1.0);
  for (const unsigned bits : {0x8000u, 0x0040u, 0x2000u, 0x4000u, 0x6000u}) {
    const MxcsrGuard guard(bits);
    EXPECT_THROW(make_emulated_backend(tensor_core_model("hopper"), 1), std::runtime_error)
        << std::hex << bits;
    EXPECT_THROW(backend->scale(x, 2.0f, x), std::runtime_error) << std::hex << bits;
  }
  EXPECT_NO_THROW(backend->scale(x, 2.0f, x));
}
#endif

TEST(EmulatedBackend, ThreadsGiveTheSameBits) {
  const auto one = make_emulated_backend(tensor_core_model("hopper"), 1);
  const auto two = make_emulated_backend(tensor_core_model("hopper"), 2);
  std::vector<std::uint64_t> digests;
  for (Backend* backend : {one.get(), two.get()}) {
    const auto upload = [backend](const Shape& shape, const auto& values, DType dtype) {
      Tensor tensor = backend->empty(shape, dtype);
      backend->upload(std::as_bytes(std::span(values)), tensor);
      return tensor;
    };
    const Tensor a = upload(Shape{200, 784}, random_halves(200 * 784, Kind::ordinary, 71), DType::f16);
    const Tensor b = upload(Shape{512, 784}, random_halves(512 * 784, Kind::ordinary, 72), DType::f16);
    Tensor out = backend->empty(Shape{200, 512}, DType::f32);
    backend->gemm({.a = a, .b = b, .out = out, .transpose_b = true});
    Tensor sums = backend->empty(Shape{512}, DType::f32);
    backend->reduce(ReduceOp::sum, out, 0, sums);
    digests.push_back(backend->digest(out, 1) + backend->digest(sums, 2));
  }
  EXPECT_EQ(digests[0], digests[1]);
}

TEST(EmulatedBackend, IndexingAndMovingTakeScratchFromThePoolOnly) {
  const auto backend = make_emulated_backend(tensor_core_model("hopper"), 2);
  Tensor table = backend->empty(Shape{300, 70}, DType::f16),
         rows = backend->empty(Shape{5000, 70}, DType::f16);
  Tensor index = backend->empty(Shape{5000}, DType::i32), step = backend->make_step_state({});
  Tensor turned = backend->empty(Shape{70, 300}, DType::f16),
         part = backend->empty(Shape{300, 7}, DType::f16);
  backend->fill(table, 1.0);
  std::vector<std::int32_t> values(5000);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::int32_t>(i * 7 % 300);
  backend->upload(std::as_bytes(std::span(values)), index);
  const std::array axes{1, 0};
  const auto run = [&] {
    backend->gather_rows(table, index, rows);
    backend->scatter_rows(rows, index, table);
    backend->permute(table, axes, turned);
    backend->slice(table, 1, 3, part);
    backend->insert(part, 1, 60, table);
    backend->fill_bernoulli(rows, {.seed = 1}, 0.5f, step);
  };
  run();
  const PoolStatistics warm = backend->memory_statistics();
  for (int i = 0; i < 3; ++i) run();
  const PoolStatistics later = backend->memory_statistics();
  EXPECT_GT(later.allocations, warm.allocations) << "the scratch is pooled";
  EXPECT_EQ(later.system_allocations, warm.system_allocations);
  EXPECT_EQ(later.bytes_in_use, warm.bytes_in_use);
}

}  // namespace
}  // namespace fp16lab::engine::test
