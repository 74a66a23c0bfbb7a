// CUDA Runtime API: "Stream Management", "Event Management", "Graph Management". What none of our programs
// asks for is refused in words: streams that wait for the default stream, captures that are not relaxed.
#include <cuda_runtime_api.h>

#include <algorithm>

#include "tests/machines/ptx/cudart/simulation.hpp"

using namespace fp16lab::engine::ptx::cudart;

namespace {

[[noreturn]] void refuse(const char* what) {
  say(std::string(what) + " is not modelled");
  throw Refusal{cudaErrorNotSupported};
}

/// For calls that wait: a stream that captures cannot, and its capture is lost.
void require_not_capturing(Stream& stream) {
  if (!stream.capturing()) return;
  stream.invalidate_capture();
  throw Refusal{cudaErrorStreamCaptureUnsupported};
}

}  // namespace

extern "C" {

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return on_device("cudaStreamCreateWithFlags", [=](Simulation& simulation, Device& device) {
    if (flags != cudaStreamNonBlocking) refuse("a stream that waits for the default stream");
    auto made = std::make_shared<Stream>(device);
    device.streams.push_back(made);
    *stream = simulation.streams.add<cudaStream_t>(std::move(made));
  });
}

/// What was asked of the stream is still done; here at once.
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return answer("cudaStreamDestroy", [stream](Simulation& simulation) {
    const std::shared_ptr<Stream> gone = simulation.streams.take(stream);
    gone->run_all();
    std::erase(gone->device().streams, gone);
    return gone->device().failure();
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return on_device("cudaStreamSynchronize", [stream](Simulation& simulation, Device&) {
    const std::shared_ptr<Stream> queue = simulation.stream(stream);
    require_not_capturing(*queue);
    queue->run_all();
  });
}

cudaError_t cudaDeviceSynchronize() {
  return on_device("cudaDeviceSynchronize", [](Simulation&, Device& device) {
    for (const std::shared_ptr<Stream>& stream : device.streams) require_not_capturing(*stream);
    device.synchronize();
  });
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return on_device("cudaStreamBeginCapture", [=](Simulation& simulation, Device& device) {
    const std::shared_ptr<Stream> queue = simulation.stream(stream);
    require(queue.get() != &device.default_stream(), cudaErrorStreamCaptureUnsupported);
    require(!queue->capturing(), cudaErrorIllegalState);
    if (mode != cudaStreamCaptureModeRelaxed) refuse("a capture that is not relaxed");
    queue->begin_capture();
  });
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  return on_device("cudaStreamEndCapture", [=](Simulation& simulation, Device&) {
    *graph = nullptr;
    const std::shared_ptr<Stream> queue = simulation.stream(stream);
    require(queue->capturing(), cudaErrorIllegalState);
    const bool invalidated = queue->capture_invalidated();
    auto captured = std::make_shared<CapturedWork>(CapturedWork{&queue->device(), queue->end_capture()});
    require(!invalidated, cudaErrorStreamCaptureInvalidated);
    *graph = simulation.graphs.add<cudaGraph_t>(std::move(captured));
  });
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long flags) {
  return on_device("cudaGraphInstantiate", [=](Simulation& simulation, Device&) {
    if (flags != 0) refuse("cudaGraphInstantiate with flags");
    auto made = std::make_shared<ExecutableWork>();
    static_cast<CapturedWork&>(*made) = *simulation.graphs.find(graph);
    *executable = simulation.executables.add<cudaGraphExec_t>(std::move(made));
  });
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  return on_device("cudaGraphLaunch", [=](Simulation& simulation, Device&) {
    const std::shared_ptr<Stream> queue = simulation.stream(stream);
    const std::shared_ptr<ExecutableWork> work = simulation.executables.find(executable);
    if (queue->capturing()) refuse("a graph launched in a capture");
    require(&queue->device() == work->device, cudaErrorInvalidValue);
    queue->add([work] {
      for (const Operation& operation : work->operations) operation();
    });
  });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return answer("cudaGraphDestroy", [graph](Simulation& simulation) {
    simulation.graphs.take(graph);
    return cudaSuccess;
  });
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  return answer("cudaGraphExecDestroy", [executable](Simulation& simulation) {
    simulation.executables.take(executable);
    return cudaSuccess;
  });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return on_device("cudaEventCreateWithFlags", [=](Simulation& simulation, Device& device) {
    if ((flags & ~unsigned{cudaEventBlockingSync | cudaEventDisableTiming}) != 0)
      refuse("an event with such flags");
    *event = simulation.events.add<cudaEvent_t>(
        std::make_shared<Event>(device, (flags & cudaEventDisableTiming) == 0));
  });
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, cudaEventDefault); }

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return on_device("cudaEventRecord", [=](Simulation& simulation, Device&) {
    simulation.events.find(event)->record(simulation.stream(stream));
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return on_device("cudaEventSynchronize", [event](const Simulation& simulation, Device&) {
    simulation.events.find(event)->synchronize();
  });
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  return on_device("cudaEventElapsedTime", [=](const Simulation& simulation, Device&) {
    *milliseconds = Event::milliseconds(*simulation.events.find(from), *simulation.events.find(to));
  });
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return answer("cudaEventDestroy", [event](Simulation& simulation) {
    simulation.events.take(event);
    return cudaSuccess;
  });
}

}  // extern "C"
