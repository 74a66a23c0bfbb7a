// What is the emulated back end's own: its floating-point environment, its pool, its thread counts.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "engine/backend/emulated/emulated_backend.hpp"
#include "tests/engine/backend/conformance.hpp"
#include "tests/engine/backend/on_backend.hpp"
#include "tests/support/floating_point_mode.hpp"

namespace fp16lab::engine::test {
namespace {

TEST(EmulatedBackend, SaysWhatItIs) {
  const auto backend = make_emulated_backend(tensor_core_model("ampere"), 2);
  EXPECT_EQ(backend->name(), "emulated");
  EXPECT_EQ(backend->tensor_core(), "ampere");
  EXPECT_THROW(make_emulated_backend(tensor_core_model("ampere"), 0), std::invalid_argument);
}

/// CANN, aclrtFloatOverflowMode: an Inf becomes the largest magnitude, a NaN 0.
TEST(SaturatingBackend, Fp16ResultsAreFinite) {
  for (const int threads : {1, 2}) {
    const auto backend = make_emulated_backend(tensor_core_model("hopper"), threads, FloatOverflow::saturate);
    constexpr float largest = 65504, infinite = std::numeric_limits<float>::infinity();
    const auto values = [&](const Tensor& x) {
      Tensor wide = backend->empty(x.shape(), DType::f32);
      backend->cast(x, wide);
      return downloaded<float>(*backend, wide);
    };
    const std::vector<float> numbers{70000, -70000, 65519, infinite, -infinite, std::nanf(""), 256, -0.0f};
    const Tensor x = uploaded(*backend, {8}, numbers);
    Tensor half = backend->empty({8}, DType::f16), wide = backend->empty({8}, DType::f32);
    backend->cast(x, half);
    EXPECT_EQ(values(half),
              (std::vector<float>{largest, -largest, largest, largest, -largest, 0, 256, -0.0f}));
    backend->scale(half, 512.0f, half);
    EXPECT_EQ(values(half),
              (std::vector<float>{largest, -largest, largest, largest, -largest, 0, largest, -0.0f}));
    backend->binary(BinaryOp::subtract, half, half, half);
    EXPECT_EQ(values(half), std::vector<float>(8, 0.0f)) << "no NaN of what was Inf";
    backend->scale(x, 2.0f, wide);
    EXPECT_EQ(values(wide)[3], infinite) << "FP32 is as it was";

    Tensor a = backend->empty({16, 16}, DType::f16), product = backend->empty({16, 16}, DType::f16);
    backend->fill(a, 256.0);
    backend->gemm({.a = a, .b = a, .out = product});
    EXPECT_EQ(values(product), std::vector<float>(256, largest));
  }
}

/// MindSpore clears the float status before a step and takes it for the step's overflow, whatever the
/// gradients are (mindspore/nn/wrap/loss_scale.py: start_overflow_check, get_overflow_status).
TEST(SaturatingBackend, AnOverflowOfAnyOperationIsTheSteps) {
  const auto found = [](FloatOverflow overflow, float value, bool begins_again) {
    const auto backend = make_emulated_backend(tensor_core_model("hopper"), 1, overflow);
    Tensor step = backend->make_step_state(StepState{});
    Tensor x = backend->empty({1}, DType::f32), half = backend->empty({1}, DType::f16);
    backend->fill(x, static_cast<double>(value));
    backend->cast(x, half);
    const ScalarProgram begin{
        .name = "train.begin_iteration", .function = [](StepState&, const std::byte*) {}, .parameters = {}};
    if (begins_again) backend->run(begin, step);
    std::array<Tensor, 1> gradient{backend->empty({1}, DType::f32)};
    backend->fill(gradient[0], 1.0);
    for (const int optimizer : {0, 3}) backend->unscale(gradient, optimizer, step);
    const StepState state = backend->read_step_state(step);
    EXPECT_EQ(state.found_inf[0], state.found_inf[3]);
    return state.found_inf[0];
  };
  EXPECT_EQ(found(FloatOverflow::saturate, 70000, false), 1.0f);
  EXPECT_EQ(found(FloatOverflow::saturate, 65504, false), 0.0f);
  EXPECT_EQ(found(FloatOverflow::saturate, 70000, true), 0.0f) << "of an iteration before";
  EXPECT_EQ(found(FloatOverflow::infinity, 70000, false), 0.0f);
}

#if defined(__x86_64__)
TEST(EmulatedBackend, NoFloatingPointModeOfTheCallerChangesABitOrIsChanged) {
  const std::vector<float> tiny = [] {
    std::vector<float> values(4096);
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = (i % 2 == 0 ? 1.0f : -1.0f) * (1.0f + static_cast<float>(i)) * 0x1.3p-140f;
    return values;
  }();
  for (const int threads : {1, 2}) {
    const auto backend = make_emulated_backend(tensor_core_model("hopper"), threads);
    const auto digests = [&] {
      std::vector<std::uint64_t> all;
      const Tensor x = uploaded(*backend, {64, 64}, tiny);
      Tensor out = backend->empty({64, 64}, DType::f32), low = backend->empty({64, 64}, DType::bf16);
      const auto note = [&](const Tensor& result) { all.push_back(backend->digest(result, 1)); };
      backend->scale(x, 0.3f, out);
      note(out);
      backend->divide(x, 3.0f, out);
      note(out);
      backend->binary(BinaryOp::add, x, x, out);
      note(out);
      backend->cast(x, low);
      note(low);
      backend->gemm({.a = low, .b = low, .out = out});
      note(out);
      backend->fill(out, 0x1.0000018p-130);  // rounded to FP32
      note(out);
      Tensor sums = backend->empty({64}, DType::f32);
      backend->reduce(ReduceOp::sum, x, 0, sums);
      note(sums);
      StepState state;
      state.set_scale(0x1.8p-130);
      Tensor step = backend->make_step_state(state), scale = backend->empty(Shape{}, DType::f32);
      backend->fill_scale(step, scale);
      note(scale);
      const std::vector<Tensor> gradients{x};
      backend->global_norm(gradients, step);
      note(step);
      return all;
    };
    const auto expected = digests();
    for (const unsigned mode : testing_support::floating_point_modes) {
      std::vector<std::uint64_t> actual;
      bool untouched = false;
      {
        const testing_support::FloatingPointMode caller(mode);
        actual = digests();
        untouched = caller.untouched();
      }
      EXPECT_EQ(actual, expected) << std::hex << mode;
      EXPECT_TRUE(untouched) << std::hex << mode;
    }
  }
}
#endif

TEST(EmulatedBackend, APackedOperandIsNotReadAgain) {
  struct Format {
    DType dtype;
    std::optional<DType> fp8 = {};
    bool tf32 = false;
  };
  const auto backend = make_emulated_backend(tensor_core_model("hopper"), 2);
  for (const Format& format : {Format{DType::f16}, Format{DType::bf16}, Format{DType::f32},
                               Format{DType::f32, {}, true}, Format{DType::f16, DType::e4m3}}) {
    const auto random = [&](const Shape& shape, std::uint64_t seed) {
      const Tensor wide =
          uploaded(*backend, shape, random_floats(shape.element_count(), Kind::ordinary, seed));
      Tensor x = backend->empty(shape, format.dtype);
      backend->cast(wide, x);
      return x;
    };
    const Tensor a = random({5, 600}, 1);
    Tensor b = random({70, 600}, 2);
    Tensor expected = backend->empty({5, 70}, DType::f32), out = backend->empty({5, 70}, DType::f32);
    const auto call_into = [&](Tensor& to) {
      return GemmCall{.a = a,
                      .b = b,
                      .out = to,
                      .transpose_b = true,
                      .a_format = {format.fp8},
                      .b_format = {format.fp8},
                      .tf32 = format.tf32};
    };
    backend->gemm(call_into(expected));
    GemmCall call = call_into(out);
    const Tensor packed = backend->pack_b(call);
    ASSERT_TRUE(packed.defined());
    call.packed_b = &packed;
    backend->fill(b, 1.0);
    backend->gemm(call);
    expect_same_bits(downloaded<float>(*backend, out), downloaded<float>(*backend, expected), "packed");

    const Tensor shorter = backend->empty({packed.element_count() - 64}, DType::u8);
    call.packed_b = &shorter;
    EXPECT_THROW(backend->gemm(call), std::invalid_argument);
  }
}

}  // namespace
}  // namespace fp16lab::engine::test
