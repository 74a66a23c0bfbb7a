// Work of the PTX machine's CUDA runtime waits until something waits for it: what a program does too early shows.
#include "tests/engine/backend/cuda/ptx/cudart_support.hpp"

namespace fp16lab::engine::ptx::test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using CudartQueue = Cudart;

TEST_F(CudartQueue, WorkIsDoneInOrderWhenTheHostWaits) {
  for (int i = 0; i < 3; ++i) ASSERT_EQ(note(i), cudaSuccess);
  EXPECT_THAT(noted_, IsEmpty());
  EXPECT_EQ(wait(), cudaSuccess);
  EXPECT_THAT(noted_, ElementsAre(0, 1, 2));
}

TEST_F(CudartQueue, OnlyTheStreamThatIsWaitedForGoesOn) {
  cudaStream_t other = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(note(1), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(other), cudaSuccess);
  EXPECT_THAT(noted_, IsEmpty());
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_THAT(noted_, ElementsAre(1));
}

TEST_F(CudartQueue, ParametersAreThoseOfTheLaunch) {
  std::byte* address = memory(4);
  int number = 5;
  void* parameters[] = {&address, &number};
  ASSERT_EQ(cudaLaunchKernel(host_function("set"), {1, 1, 1}, {32, 1, 1}, parameters, 0, stream_),
            cudaSuccess);
  number = 6;
  EXPECT_EQ(value_at(address), 5);
}

/// The planted fault: page-locked memory is written again before the copy from it has been done.
TEST_F(CudartQueue, AStagingBufferThatIsWrittenTooEarlyShows) {
  std::byte* const first = memory(4);
  std::byte* const second = memory(4);
  int* const staging = page_locked(1);
  cudaEvent_t done = nullptr;
  ASSERT_EQ(cudaEventCreateWithFlags(&done, cudaEventDisableTiming), cudaSuccess);

  ASSERT_EQ(to_device(first, staging), cudaSuccess);
  *staging = 2;  // too early
  ASSERT_EQ(to_device(second, staging), cudaSuccess);
  EXPECT_EQ(value_at(first), 2);

  *staging = 3;
  ASSERT_EQ(to_device(first, staging), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(done, stream_), cudaSuccess);
  ASSERT_EQ(cudaEventSynchronize(done), cudaSuccess);
  *staging = 4;
  EXPECT_EQ(value_at(first), 3);
}

TEST_F(CudartQueue, AnEventWaitsForWhatPrecedesItAndNoMore) {
  cudaEvent_t event = nullptr;
  ASSERT_EQ(cudaEventCreate(&event), cudaSuccess);
  EXPECT_EQ(cudaEventSynchronize(event), cudaSuccess) << "never recorded";
  note(1);
  ASSERT_EQ(cudaEventRecord(event, stream_), cudaSuccess);
  note(2);
  EXPECT_EQ(cudaEventSynchronize(event), cudaSuccess);
  EXPECT_THAT(noted_, ElementsAre(1));
}

TEST_F(CudartQueue, TimeIsKnownOnceBothMomentsWere) {
  cudaEvent_t from = nullptr, to = nullptr, timeless = nullptr;
  cudaEventCreate(&from);
  cudaEventCreate(&to);
  cudaEventCreateWithFlags(&timeless, cudaEventDisableTiming);
  float milliseconds = -1;
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, from, to), cudaErrorInvalidResourceHandle)
      << "never recorded";
  for (cudaEvent_t event : {from, to, timeless}) cudaEventRecord(event, stream_);
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, from, to), cudaErrorNotReady);
  EXPECT_EQ(wait(), cudaSuccess);
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, from, to), cudaSuccess);
  EXPECT_GE(milliseconds, 0);
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, from, timeless), cudaErrorInvalidResourceHandle);
}

TEST_F(CudartQueue, WhatComesToTheHostComesWhenItIsWaitedFor) {
  std::byte* const device = memory(4);
  launch("set", device, 7);
  int host = 0;
  ASSERT_EQ(to_host(&host, device), cudaSuccess);
  EXPECT_EQ(host, 0);
  EXPECT_EQ(wait(), cudaSuccess);
  EXPECT_EQ(host, 7);
}

TEST_F(CudartQueue, FreeingWaitsForTheDeviceAndDestroyingAStreamDoesItsWork) {
  std::byte* const device = memory(4);
  launch("set", device, 7);
  note(1);
  EXPECT_EQ(cudaFree(device), cudaSuccess);
  EXPECT_THAT(noted_, ElementsAre(1));
  note(2);
  EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess);
  EXPECT_THAT(noted_, ElementsAre(1, 2));
  EXPECT_EQ(note(3), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaFree(device), cudaErrorInvalidValue) << "freed twice";
}

TEST_F(CudartQueue, PageLockedMemoryThatIsNoMoreIsAFault) {
  std::byte* const device = memory(4);
  int* const staging = page_locked(1);
  ASSERT_EQ(to_device(device, staging), cudaSuccess);
  ASSERT_EQ(cudaFreeHost(staging), cudaSuccess);
  testing::internal::CaptureStderr();
  EXPECT_EQ(wait(), cudaErrorIllegalAddress);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("page-locked memory is no more"));
}

TEST_F(CudartQueue, CopiesKnowWhereTheirMemoryIs) {
  std::byte* const device = memory(8);
  int host[2] = {};
  testing::internal::CaptureStderr();
  EXPECT_EQ(cudaMemcpyAsync(device, host, 12, cudaMemcpyHostToDevice, stream_), cudaErrorInvalidValue)
      << "longer";
  EXPECT_EQ(cudaMemcpyAsync(host, host, 4, cudaMemcpyHostToDevice, stream_), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpyAsync(device, device + 4, 4, cudaMemcpyDeviceToHost, stream_), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemsetAsync(device, 0, 9, stream_), cudaErrorInvalidValue);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("a copy's destination is not device memory of 12 bytes\n"),
                    HasSubstr("a copy's destination is device memory, not the host's, of 4 bytes\n"),
                    HasSubstr("cudaMemset's memory is not device memory of 9 bytes\n")));
  EXPECT_EQ(cudaMemcpyAsync(device, device + 2, 4, cudaMemcpyDeviceToDevice, stream_), cudaErrorInvalidValue)
      << "they overlap";
}

// ---- graphs ----

class CudartGraph : public Cudart {
 protected:
  cudaGraphExec_t captured(const std::function<void()>& work) {
    EXPECT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeRelaxed), cudaSuccess);
    work();
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
    cudaGraphExec_t executable = nullptr;
    EXPECT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
    return executable;
  }
};

TEST_F(CudartGraph, WhatIsCapturedIsDoneWhenItIsReplayed) {
  const cudaGraphExec_t graph = captured([this] {
    note(1);
    note(2);
    memory(16);  // allowed: the capture is relaxed
  });
  EXPECT_EQ(wait(), cudaSuccess);
  EXPECT_THAT(noted_, IsEmpty());
  for (int i = 0; i < 2; ++i) EXPECT_EQ(cudaGraphLaunch(graph, stream_), cudaSuccess);
  EXPECT_THAT(noted_, IsEmpty()) << "a replay waits like any work";
  EXPECT_EQ(wait(), cudaSuccess);
  EXPECT_THAT(noted_, ElementsAre(1, 2, 1, 2));
  EXPECT_EQ(cudaGraphExecDestroy(graph), cudaSuccess);
  EXPECT_EQ(cudaGraphLaunch(graph, stream_), cudaErrorInvalidResourceHandle);
}

TEST_F(CudartGraph, ACaptureThatWaitsIsLost) {
  ASSERT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeRelaxed), cudaSuccess);
  EXPECT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeRelaxed), cudaErrorIllegalState);
  note(1);
  EXPECT_EQ(wait(), cudaErrorStreamCaptureUnsupported);
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(graph, nullptr);
  EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaErrorIllegalState);
  EXPECT_EQ(wait(), cudaSuccess);
  EXPECT_THAT(noted_, IsEmpty());
}

TEST_F(CudartGraph, AnEventOfACaptureIsNotWaitedFor) {
  cudaEvent_t event = nullptr;
  cudaEventCreate(&event);
  captured([&] { EXPECT_EQ(cudaEventRecord(event, stream_), cudaSuccess); });
  EXPECT_EQ(cudaEventSynchronize(event), cudaErrorCapturedEvent);
  EXPECT_EQ(cudaEventRecord(event, stream_), cudaSuccess);
  EXPECT_EQ(cudaEventSynchronize(event), cudaSuccess);
}

TEST_F(CudartGraph, MemoryThatIsNoMoreAtAReplayIsAFault) {
  std::byte* const device = memory(4);
  const cudaGraphExec_t graph = captured([&] { cudaMemsetAsync(device, 0, 4, stream_); });
  EXPECT_EQ(cudaGraphLaunch(graph, stream_), cudaSuccess);
  EXPECT_EQ(wait(), cudaSuccess);
  cudaFree(device);
  EXPECT_EQ(cudaGraphLaunch(graph, stream_), cudaSuccess);
  testing::internal::CaptureStderr();
  EXPECT_EQ(wait(), cudaErrorIllegalAddress);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("device 0: cudaMemset's memory of 4 bytes: its device memory is no more"));
}

}  // namespace
}  // namespace fp16lab::engine::ptx::test
