// What the PTX machine's CUDA runtime reports of its devices, which launches it refuses, and how it fails: as
// CUDA documents it for compute capabilities 7.5, 8.0 and 9.0.
#include "tests/engine/backend/cuda/ptx/cudart_support.hpp"

namespace fp16lab::engine::ptx::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr int kib = 1024;

using CudartLaunch = Cudart;

TEST_F(CudartLaunch, ShapesOutsideOfTheLimitsAreInvalid) {
  EXPECT_EQ(launch("note", nullptr, 0, {0, 1, 1}), cudaErrorInvalidConfiguration);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidConfiguration);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "asked for, it is forgotten";
  EXPECT_EQ(launch("note", nullptr, 0, {1, 65536, 1}), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch("note", nullptr, 0, {1, 1, 1}, {1025, 1, 1}), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch("note", nullptr, 0, {1, 1, 1}, {1, 1, 65}), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch("note", nullptr, 0, {1, 1, 1}, {0, 1, 1}), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch("note", nullptr, 0, {0x7fffffff, 65535, 65535}, {32, 32, 1}), cudaSuccess);
  stubs_.at("note").facts.max_threads = 128;
  EXPECT_EQ(launch("note", nullptr, 0, {1, 1, 1}, {160, 1, 1}), cudaErrorInvalidValue) << ".maxntid";
  EXPECT_EQ(wait(), cudaSuccess);
  EXPECT_THAT(noted_, ElementsAre(0));
}

TEST_F(CudartLaunch, MoreThan48KibOfSharedMemoryMustBeAskedFor) {
  Stub& kernel = add("shared", [](std::byte*, int) {});
  kernel.facts.static_shared_bytes = 2176;
  const auto with = [this](int dynamic) {
    return launch("shared", nullptr, 0, {1, 1, 1}, {32, 1, 1}, static_cast<std::size_t>(dynamic));
  };
  const auto opt_in = [this](int bytes) {
    return cudaFuncSetAttribute(host_function("shared"), cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  };
  EXPECT_EQ(with(48 * kib - 2176), cudaSuccess);
  EXPECT_EQ(with(48 * kib), cudaErrorInvalidValue) << "static and dynamic together";
  EXPECT_EQ(opt_in(48 * kib), cudaSuccess);
  EXPECT_EQ(with(48 * kib), cudaSuccess);
  EXPECT_EQ(with(48 * kib + 1), cudaErrorInvalidValue) << "more than was asked for";
  EXPECT_EQ(opt_in(227 * kib), cudaErrorInvalidValue);
  EXPECT_EQ(opt_in(227 * kib - 2176), cudaSuccess);
  cudaFuncAttributes attributes;
  ASSERT_EQ(cudaFuncGetAttributes(&attributes, host_function("shared")), cudaSuccess);
  EXPECT_EQ(attributes.sharedSizeBytes, 2176u);
  EXPECT_EQ(attributes.maxDynamicSharedSizeBytes, 227 * kib - 2176);
  EXPECT_EQ(attributes.maxThreadsPerBlock, 1024);
  EXPECT_EQ(attributes.ptxVersion, 80);
}

TEST_F(CudartLaunch, AnotherArchitectureHasOtherLimits) {
  for (const auto& [architecture, limit] : {std::pair{75, 64 * kib}, {80, 163 * kib}, {90, 227 * kib}}) {
    start(architecture, 70);
    EXPECT_EQ(cudaFuncSetAttribute(host_function("note"), cudaFuncAttributeMaxDynamicSharedMemorySize, limit),
              cudaSuccess);
    EXPECT_EQ(
        cudaFuncSetAttribute(host_function("note"), cudaFuncAttributeMaxDynamicSharedMemorySize, limit + 1),
        cudaErrorInvalidValue);
    cudaDeviceProp properties;
    ASSERT_EQ(cudaGetDeviceProperties(&properties, 1), cudaSuccess);
    EXPECT_EQ(properties.major * 10 + properties.minor, architecture);
    EXPECT_THAT(properties.name, HasSubstr("no GPU"));
    EXPECT_EQ(properties.multiProcessorCount, 4);
  }
}

/// A block of compute capability 8.0 and newer takes 1 KiB more than it asked for.
TEST_F(CudartLaunch, OccupancyCountsWhatIsReserved) {
  const auto blocks = [this](int threads, std::size_t shared) {
    int count = -1;
    EXPECT_EQ(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&count, host_function("note"), threads,
                                                                     shared, 0),
              cudaSuccess);
    return count;
  };
  EXPECT_EQ(blocks(256, 0), 8);
  EXPECT_EQ(blocks(32, 0), 32);
  EXPECT_EQ(blocks(32, 44 * kib), 5);  // of 228 KiB, 45 each
  EXPECT_EQ(blocks(32, 100 * kib), 0) << "without being asked for";
}

TEST_F(CudartLaunch, KernelsWithoutATextForTheDeviceAreRefused) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(launch("nonesuch", nullptr, 0), cudaErrorInvalidDeviceFunction);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("no text of FP16LAB_PTX has the kernel nonesuch\n"));
  const char unregistered = 0;
  EXPECT_EQ(cudaLaunchKernel(&unregistered, {1, 1, 1}, {1, 1, 1}, nullptr, 0, stream_),
            cudaErrorInvalidDeviceFunction);
  start(75, 80);
  EXPECT_EQ(note(1), cudaErrorNoKernelImageForDevice);
  EXPECT_STREQ(cudaGetErrorString(cudaErrorNoKernelImageForDevice),
               "no kernel image is available for execution on the device");
}

/// Kernels of one source that are there only in part, or none of any source: the texts are not this
/// program's.
TEST_F(CudartLaunch, TextsOfAnotherBuildAreNoDevice) {
  int count = -1;
  host_function("note");
  host_function("absent", 1);
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaSuccess)
      << "a whole source may be absent: it has texts of its own";
  host_function("renamed");
  host_function("changed");
  testing::internal::CaptureStderr();
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaErrorInvalidKernelImage);
  EXPECT_EQ(count, 0);
  EXPECT_THAT(
      testing::internal::GetCapturedStderr(),
      HasSubstr(
          "the texts of FP16LAB_PTX are of another build than the program: they lack 2 of the 3 kernels "
          "of one of its sources, first changed; build the target of the texts again"));
  __cudaUnregisterFatBinary(&units_[0]);
  testing::internal::CaptureStderr();
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaErrorInvalidKernelImage) << "no source has a text";
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("they lack 1 of the 1 kernels"));
  __cudaUnregisterFatBinary(&units_[1]);
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaSuccess);
}

// ---- devices ----

using CudartDevice = Cudart;

TEST_F(CudartDevice, ThereAreAsManyAsWereMade) {
  int count = 0, device = -1;
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaSuccess);
  EXPECT_EQ(count, 2);
  EXPECT_EQ(cudaSetDevice(1), cudaSuccess);
  EXPECT_EQ(cudaSetDevice(2), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaSetDevice(-1), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaGetDevice(&device), cudaSuccess);
  EXPECT_EQ(device, 1);
  EXPECT_EQ(note(1), cudaErrorInvalidResourceHandle) << "the stream is device 0's";
  Simulation::instance().reset({.devices = 0});
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaErrorNoDevice);
  EXPECT_EQ(count, 0);
}

TEST_F(CudartDevice, MemoryIsCounted) {
  std::size_t free = 0, total = 0;
  std::byte* const taken = memory(256 * kib);
  ASSERT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
  EXPECT_EQ(total, std::size_t{1024 * kib});
  EXPECT_EQ(free, std::size_t{768 * kib});
  void* address = taken;
  EXPECT_EQ(cudaMalloc(&address, 769 * kib), cudaErrorMemoryAllocation);
  EXPECT_EQ(address, nullptr);
  EXPECT_EQ(cudaFree(taken), cudaSuccess);
  EXPECT_EQ(cudaMalloc(&address, 1024 * kib), cudaSuccess);
}

// ---- failures ----

class CudartFailure : public Cudart {
 protected:
  std::string say(cudaError_t expected) {
    testing::internal::CaptureStderr();
    EXPECT_EQ(wait(), expected);
    return testing::internal::GetCapturedStderr();
  }
};

TEST_F(CudartFailure, OfAKernelShowsAtTheNextWaitAndStays) {
  add("wrong", [](std::byte*, int) {
    throw Fault(FaultKind::bounds, "wrong: 4 bytes are outside of all allocations");
  });
  EXPECT_EQ(launch("wrong", nullptr, 0), cudaSuccess);
  EXPECT_EQ(note(1), cudaSuccess) << "no call has seen the error yet";
  EXPECT_THAT(say(cudaErrorIllegalAddress),
              AllOf(HasSubstr("device 0: wrong: 4 bytes are outside"), testing::EndsWith("\n")));
  EXPECT_THAT(noted_, IsEmpty()) << "no later work is done";
  void* address = nullptr;
  EXPECT_EQ(cudaMalloc(&address, 4), cudaErrorIllegalAddress);
  EXPECT_EQ(note(2), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaGetLastError(), cudaErrorIllegalAddress);
  EXPECT_EQ(wait(), cudaErrorIllegalAddress) << "forgetting it does not mend it";
  EXPECT_STREQ(cudaGetErrorString(cudaErrorIllegalAddress), "an illegal memory access was encountered");
  EXPECT_STREQ(cudaGetErrorName(cudaErrorIllegalAddress), "cudaErrorIllegalAddress");
  EXPECT_EQ(cudaSetDevice(1), cudaSuccess) << "another device is well";
  EXPECT_EQ(cudaMalloc(&address, 4), cudaSuccess);
}

TEST_F(CudartFailure, OtherFaultsHaveOtherNames) {
  add("misaligned", [](std::byte*, int) {
    throw Fault(FaultKind::alignment, "k: an access of 4 bytes at 0x2 is not aligned");
  });
  launch("misaligned", nullptr, 0);
  say(cudaErrorMisalignedAddress);
  start(90, 80);
  add("race", [](std::byte*, int) { throw Fault(FaultKind::race, "k: a race"); });
  launch("race", nullptr, 0);
  say(cudaErrorLaunchFailure);
}

}  // namespace
}  // namespace fp16lab::engine::ptx::test
