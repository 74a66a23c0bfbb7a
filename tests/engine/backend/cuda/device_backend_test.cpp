// The device back end where no other one has the same: recording and replay, memory that ends.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "engine/backend/cuda/runtime/device_errors.hpp"
#include "numerics/random/philox.hpp"
#include "tests/engine/backend/conformance.hpp"
#include "tests/engine/backend/cuda/on_device.hpp"
#include "tests/engine/backend/on_backend.hpp"
#include "tests/support/message_of.hpp"

namespace fp16lab::engine::test {
namespace {

using testing_support::message_of;

class DeviceBackend : public OnDevice {
 protected:
  void SetUp() override {
    OnDevice::SetUp();
    if (!IsSkipped()) backend_ = device_backend();
  }

  Tensor tensor(const std::vector<float>& values) {
    return uploaded(*backend_, {std::ssize(values)}, values);
  }
  std::vector<float> values_of(const Tensor& x) { return downloaded<float>(*backend_, x); }
  /// A StepState in device memory, of so many iterations.
  void upload_iteration(std::uint64_t iteration, Tensor& step) {
    StepState state{};
    state.iteration = iteration;
    backend_->upload(std::as_bytes(std::span(&state, 1)), step);
  }

  std::unique_ptr<Backend> backend_;
};

constexpr std::int64_t size = 1000;

std::vector<float> uniform(std::uint64_t seed) {
  const PhiloxStream words{.seed = seed};
  std::vector<float> values;
  for (std::uint64_t i = 0; i < size; ++i) values.push_back(uniform01(words.word(i)) - 0.25f);
  return values;
}

/// x = x / 3 + tanh(x) where a mask of this iteration says so, by way of scratch memory that is given back.
void step_forward(Backend& backend, Tensor& x, const Tensor& step) {
  Tensor mask = backend.empty(x.shape(), DType::f32), grown = backend.empty(x.shape(), DType::f32);
  backend.fill_bernoulli(mask, {.seed = 3, .stream = 4}, 0.75f, step);
  backend.unary(UnaryOp::tanh, x, grown);
  backend.binary(BinaryOp::multiply, grown, mask, grown);
  backend.divide(x, 3.0f, x);
  backend.binary(BinaryOp::add, x, grown, x);
}

TEST_F(DeviceBackend, ReplayGivesTheBitsOfCallingAgain) {
  Tensor step = backend_->empty(Shape{static_cast<std::int64_t>(sizeof(StepState))}, DType::u8);
  Tensor called = tensor(uniform(1)), replayed = tensor(uniform(1));
  const std::vector<float> begin = values_of(replayed);
  ASSERT_TRUE(backend_->records());
  upload_iteration(0, step);
  const std::unique_ptr<Recording> recording =
      backend_->record([&] { step_forward(*backend_, replayed, step); });
  EXPECT_EQ(values_of(replayed), begin) << "recorded, not done";
  for (std::uint64_t iteration = 0; iteration < 4; ++iteration) {
    upload_iteration(iteration, step);
    step_forward(*backend_, called, step);
    // Scratch memory that the recording gave back: it may hold anything between two replays.
    Tensor garbage = backend_->empty(Shape{size}, DType::f32);
    backend_->fill(garbage, 1e30);
    recording->replay();
    EXPECT_EQ(values_of(replayed), values_of(called)) << "iteration " << iteration;
    EXPECT_NE(values_of(replayed), begin);
  }
}

TEST_F(DeviceBackend, ReplayDrawsANewMaskInEachIteration) {
  Tensor step = backend_->empty(Shape{static_cast<std::int64_t>(sizeof(StepState))}, DType::u8);
  Tensor mask = tensor(uniform(1));
  const auto recording = backend_->record([&] { backend_->fill_bernoulli(mask, {.seed = 1}, 0.5f, step); });
  const auto mask_of = [&](std::uint64_t iteration) {
    upload_iteration(iteration, step);
    recording->replay();
    return values_of(mask);
  };
  const std::vector<float> first = mask_of(1);
  EXPECT_NE(mask_of(2), first);
  EXPECT_EQ(mask_of(1), first);
  EXPECT_EQ(mask_of((std::uint64_t{1} << 32) + 1), first) << "the low 32 bits count";
}

TEST_F(DeviceBackend, VerbsThatMeetTheHostAreRefusedInARecording) {
  Tensor x = tensor(uniform(1)), step = backend_->make_step_state({});
  std::vector<std::byte> bytes(x.byte_count());
  ExponentHistogram histogram;
  CastProbe probe;
  backend_->histogram(x, probe);
  CastProbe* const probes[] = {&probe};
  const DigestItem items[] = {{x, 1}};
  const std::vector<std::pair<std::string, std::function<void()>>> calls{
      {"upload", [&] { backend_->upload(bytes, x); }},
      {"download", [&] { backend_->download(x, bytes); }},
      {"read_step_state", [&] { backend_->read_step_state(step); }},
      {"write_step_state", [&] { backend_->write_step_state({}, step); }},
      {"histogram", [&] { backend_->histogram(x, histogram); }},
      {"settle", [&] { backend_->settle(probes); }},
      {"digest", [&] { backend_->digest(x, 1); }},
      {"digest", [&] { backend_->digest(items); }},
      {"record", [&] { backend_->record([] {}); }}};
  const std::vector<float> before = values_of(x);
  for (const auto& [verb, call] : calls) {
    SCOPED_TRACE(verb);
    const auto recorded = [&, &body = call] { backend_->record(body); };
    EXPECT_THROW(recorded(), std::logic_error);
    EXPECT_EQ(message_of(recorded).find(verb + ": "), 0u) << message_of(recorded);
    EXPECT_EQ(values_of(x), before) << "the recording is over, and nothing of it was done";
  }
}

TEST_F(DeviceBackend, AFailedRecordingIsGivenUp) {
  Tensor x = tensor(uniform(1));
  const std::vector<float> before = values_of(x);
  const auto failing = [&] {
    backend_->scale(x, 2.0f, x);
    throw std::runtime_error("the work failed");
  };
  EXPECT_EQ(message_of([&] { backend_->record(failing); }), "the work failed");
  EXPECT_EQ(values_of(x), before);
  backend_->scale(x, 1.0f, x);
  EXPECT_EQ(values_of(x), before);
}

TEST_F(DeviceBackend, OutOfMemorySaysWhatWasAskedAndWhatIsFree) {
  const Tensor held = tensor(uniform(1));
  const auto ask = [&] { backend_->empty(Shape{std::int64_t{1} << 38, 1024}, DType::f16); };
  EXPECT_THROW(ask(), DeviceFailure);
  const std::string message = message_of(ask);
  for (const char* part : {"out of device memory: f16 (274877906944, 1024) needs 562949953421312 bytes",
                           "are free", "tensors hold "})
    EXPECT_NE(message.find(part), std::string::npos) << message;
  EXPECT_EQ(values_of(held), uniform(1)) << "what is there stays";
}

TEST_F(DeviceBackend, TheRowOfTheTensorCoresIsTheOneAskedFor) {
  EXPECT_EQ(make_cuda_backend({.tensor_core = device_row(), .gemm = GemmRoute::mma})->tensor_core(),
            device_row());
  const std::string other = device_row() == "ampere" ? "hopper" : "ampere";
  EXPECT_THROW(make_cuda_backend({.tensor_core = other, .gemm = GemmRoute::mma}), DeviceUnavailable);
  EXPECT_EQ(backend_->name(), "cuda");
}

/// -2^-75 * 2^-76 is less than half of the smallest FP32 number: BF16 accumulators truncate it to +0, fma
/// chains round it to -0. Blocks of zeros after the end of k would make +0 of that.
TEST_F(DeviceBackend, PaddingOfKKeepsANegativeZero) {
  for (std::int64_t k = 1; k <= 40; ++k) {
    const auto run = [&](auto tag) {
      using T = decltype(tag);
      std::vector<float> a(static_cast<std::size_t>(k), 0.0f), b(static_cast<std::size_t>(k), 1.0f);
      a.back() = -0x1p-75f;
      b.back() = 0x1p-76f;
      std::vector<T> low_a, low_b;
      for (const float x : a) low_a.push_back(stored_as(x, T{}));
      for (const float x : b) low_b.push_back(stored_as(x, T{}));
      Tensor out = backend_->empty(Shape{1, 1}, DType::f32);
      backend_->gemm(
          {.a = uploaded(*backend_, {1, k}, low_a), .b = uploaded(*backend_, {k, 1}, low_b), .out = out});
      return bits_of(downloaded<float>(*backend_, out)[0]);
    };
    if (device_multiplies_bf16_and_tf32()) {
      EXPECT_EQ(run(BFloat16{}), 0u) << k;
    }
    EXPECT_EQ(run(0.0f), 0x80000000u) << k;
  }
}

/// 250 x 255 is of medium size and its rows begin anywhere, so it is moved to scratch memory, within the
/// recording too.
TEST_F(DeviceBackend, ProductsOfMovedOperandsAreReplayed) {
  const std::unique_ptr<Backend> emulated = emulated_twin();
  const Shape of_a{250, 33}, of_b{33, 255};
  const auto product = [&](Backend& backend, Tensor& a, Tensor& b, Tensor& out) {
    backend.gemm({.a = a, .b = b, .out = out});
  };
  const std::vector<Float16> second = random_halves(33 * 255, Kind::ordinary, 62);
  Tensor a = backend_->empty(of_a, DType::f16), b = uploaded(*backend_, of_b, second),
         out = backend_->empty({250, 255}, DType::f32);
  const auto recording = backend_->record([&] { product(*backend_, a, b, out); });
  for (const std::uint64_t seed : {63u, 64u}) {
    const std::vector<Float16> first = random_halves(250 * 33, Kind::ordinary, seed);
    backend_->upload(std::as_bytes(std::span(first)), a);
    recording->replay();
    Tensor there = uploaded(*emulated, of_a, first), with = uploaded(*emulated, of_b, second),
           expected = emulated->empty({250, 255}, DType::f32);
    product(*emulated, there, with, expected);
    EXPECT_TRUE(downloaded<float>(*backend_, out) == downloaded<float>(*emulated, expected)) << seed;
  }
}

TEST_F(DeviceBackend, SaysThatFp8OperandsAreEmulatedOnly) {
  const Tensor a = backend_->empty(Shape{2, 2}, DType::f16), b = backend_->empty(Shape{2, 2}, DType::f16);
  Tensor out = backend_->empty(Shape{2, 2}, DType::f32);
  EXPECT_EQ(message_of([&] {
              backend_->gemm({.a = a, .b = b, .out = out, .a_format = DType::e4m3, .b_format = DType::e5m2});
            }),
            "gemm: FP8 operands are emulated only; use backend.device = \"emulated\" for FP8 training");
}

}  // namespace
}  // namespace fp16lab::engine::test
