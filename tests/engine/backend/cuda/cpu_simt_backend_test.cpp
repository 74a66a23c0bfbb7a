// The CUDA back end on the host machine, where no other back end has the same: recording and replay, memory
// that ends.
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

#include "engine/backend/cuda/cpu_simt/host_machine.hpp"
#include "engine/backend/cuda/runtime/device_errors.hpp"
#include "engine/backend/cuda/runtime/no_device.hpp"
#include "numerics/formats/bits.hpp"
#include "numerics/random/philox.hpp"
#include "tests/support/message_of.hpp"

namespace fp16lab::engine::test {
namespace {

using testing_support::message_of;

class HostBackend : public testing::Test {
 protected:
  void TearDown() override { cpu_simt::set_schedule(cpu_simt::Schedule::ascending); }

  Tensor tensor(const std::vector<float>& values) {
    Tensor x = backend_->empty(Shape{static_cast<std::int64_t>(values.size())}, DType::f32);
    backend_->upload(std::as_bytes(std::span(values)), x);
    return x;
  }
  std::vector<float> values_of(const Tensor& x) {
    std::vector<float> values(static_cast<std::size_t>(x.element_count()));
    backend_->download(x, std::as_writable_bytes(std::span(values)));
    return values;
  }
  /// A StepState in device memory, of so many iterations.
  void upload_iteration(std::uint64_t iteration, Tensor& step) {
    StepState state{};
    state.iteration = iteration;
    backend_->upload(std::as_bytes(std::span(&state, 1)), step);
  }

  std::unique_ptr<Backend> backend_ = cpu_simt::make_cuda_backend_on_cpu({}, cpu_simt::Schedule::scrambled);
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

TEST_F(HostBackend, ReplayGivesTheBitsOfCallingAgain) {
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

TEST_F(HostBackend, ReplayDrawsANewMaskInEachIteration) {
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

TEST_F(HostBackend, VerbsThatMeetTheHostAreRefusedInARecording) {
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

TEST_F(HostBackend, AFailedRecordingIsGivenUp) {
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

TEST_F(HostBackend, OutOfMemorySaysWhatWasAskedAndWhatIsFree) {
  const Tensor held = tensor(uniform(1));
  const auto ask = [&] { backend_->empty(Shape{std::int64_t{1} << 38, 1024}, DType::f16); };
  EXPECT_THROW(ask(), DeviceFailure);
  const std::string message = message_of(ask);
  for (const char* part : {"out of device memory: f16 (274877906944, 1024) needs 562949953421312 bytes",
                           "are free", "the host machine", "tensors hold "})
    EXPECT_NE(message.find(part), std::string::npos) << message;
  EXPECT_EQ(values_of(held), uniform(1)) << "what is there stays";
}

TEST_F(HostBackend, FreshMemoryIsGarbage) {
  const std::vector<float> fresh = values_of(backend_->empty(Shape{size}, DType::f32));
  EXPECT_EQ(fresh, std::vector<float>(size, float_from_bits(0xa5a5a5a5u)))
      << "not zeros that a verb might rely on";
}

TEST_F(HostBackend, DevicesOfOneProcessKeepToTheirOwnMemory) {
  const auto second = cpu_simt::make_cuda_backend_on_cpu({.device = 1});
  // In turn, whichever was opened last.
  for (Backend* const one : {backend_.get(), second.get(), backend_.get()}) {
    Tensor x = one->empty(Shape{3}, DType::f32), y = one->empty(Shape{3}, DType::f32);
    one->fill(x, 2.0);
    one->copy(x, y);
    std::vector<float> values(3);
    one->download(y, std::as_writable_bytes(std::span(values)));
    EXPECT_EQ(values, std::vector<float>(3, 2.0f));
  }
  Tensor foreign = second->empty(Shape{3}, DType::f32);
  const std::vector<float> three(3, 1.0f);
  EXPECT_EQ(message_of([&] { backend_->upload(std::as_bytes(std::span(three)), foreign); }),
            "the host machine: device 0 was given memory of device 1");
}

TEST_F(HostBackend, TheRowOfTheTensorCoresIsTheOneAskedFor) {
  EXPECT_EQ(backend_->tensor_core(), "hopper");
  EXPECT_EQ(cpu_simt::make_cuda_backend_on_cpu({.tensor_core = "ampere"})->tensor_core(), "ampere");
  EXPECT_EQ(backend_->name(), "cuda");
}

TEST(NoDevice, IsToldWithWhatToDo) {
  EXPECT_EQ(no_device_text(0, 13000, "CUDA driver version is insufficient for CUDA runtime version"),
            "CUDA finds no NVIDIA driver on this machine");
  EXPECT_EQ(no_device_text(12020, 13000, "CUDA driver version is insufficient for CUDA runtime version"),
            "the NVIDIA driver runs CUDA 12.2 at most, and this program was built with CUDA 13.0; update the "
            "driver, or "
            "build with an older toolkit");
  EXPECT_EQ(no_device_text(13000, 13000, ""), "CUDA finds no GPU behind the NVIDIA driver");
  EXPECT_EQ(no_device_text(13000, 12080, "all devices are busy"), "all devices are busy");
}

TEST(UnusableDevice, IsToldTheMinimumOrHowToBuildForIt) {
  const CudaDevice volta{.name = "Tesla V100", .capability_major = 7, .capability_minor = 0};
  for (const bool has_code : {false, true})  // the kernels do not compile for it
    EXPECT_EQ(unusable_device_text(volta, has_code, "sm 80, 90"),
              "Tesla V100 has compute capability 7.0; the CUDA back end needs 7.5 (sm_75) or newer: use "
              "backend.device = \"emulated\"");
  const CudaDevice turing{.name = "Tesla T4", .capability_major = 7, .capability_minor = 5};
  EXPECT_EQ(unusable_device_text(turing, true, "sm 75, 80"), "");
  EXPECT_EQ(unusable_device_text(turing, false, "sm 80, 90"),
            "Tesla T4 has compute capability 7.5, but this program was built for sm 80, 90; configure with "
            "-DCMAKE_CUDA_ARCHITECTURES=75, or use backend.device = \"emulated\"");
  EXPECT_FALSE(multiplies_bf16_and_tf32(turing));
  const CudaDevice ada{.name = "L4", .capability_major = 8, .capability_minor = 9};
  EXPECT_TRUE(multiplies_bf16_and_tf32(ada));
  EXPECT_EQ(unusable_device_text(ada, true, "sm 80, 90"), "");
  EXPECT_EQ(lacking_text(volta, DType::bf16), unusable_device_text(volta, false, ""))
      << "one reason is enough";
  EXPECT_EQ(lacking_text(turing, DType::bf16),
            "Tesla T4 has compute capability 7.5, whose tensor cores multiply FP16 alone; BF16 products on a "
            "device "
            "need 8.0 (sm_80) or newer");
  for (const DType operands : {DType::f16, DType::f32}) EXPECT_EQ(lacking_text(turing, operands), "");
  for (const DType operands : {DType::f16, DType::bf16, DType::tf32})
    EXPECT_EQ(lacking_text(ada, operands), "");
  EXPECT_EQ(unusable_device_text(ada, false, "sm 90"),
            "L4 has compute capability 8.9, but this program was built for sm 90; configure with "
            "-DCMAKE_CUDA_ARCHITECTURES=89, or use backend.device = \"emulated\"");
}

}  // namespace
}  // namespace fp16lab::engine::test
