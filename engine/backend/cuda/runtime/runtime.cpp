// Runtime on a GPU: CUDA's runtime API.
#include "engine/backend/cuda/runtime/runtime.hpp"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "engine/backend/cuda/runtime/device_errors.hpp"

namespace fp16lab::engine::gpu {

namespace {

constexpr std::size_t staging_bytes = std::size_t{8} << 20;

void require(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  cudaGetLastError();  // the runtime keeps the error until it is read
  throw DeviceFailure(fmt::format("{}: {}", what, cudaGetErrorString(error)));
}

/// Page-locked memory on its way to the device; free again once `done` has happened.
struct Staging {
  std::byte* memory = nullptr;
  cudaEvent_t done = nullptr;
};

class CapturedGraph final : public Graph {
 public:
  explicit CapturedGraph(cudaGraphExec_t graph) : graph_(graph) {}
  CapturedGraph(const CapturedGraph&) = delete;
  CapturedGraph& operator=(const CapturedGraph&) = delete;
  ~CapturedGraph() override { cudaGraphExecDestroy(graph_); }
  cudaGraphExec_t graph() const { return graph_; }

 private:
  cudaGraphExec_t graph_;
};

/// The device, or DeviceUnavailable.
CudaDevice found_device(int ordinal) {
  const CudaStatus status = cuda_status();
  if (status.devices.empty())
    throw DeviceUnavailable(
        fmt::format("backend.device = \"cuda\": {}; use \"emulated\" or \"auto\"", status.reason));
  const auto found = std::find_if(status.devices.begin(), status.devices.end(),
                                  [ordinal](const CudaDevice& device) { return device.ordinal == ordinal; });
  if (found == status.devices.end())
    throw DeviceUnavailable(
        fmt::format("backend.device = \"cuda\": there is no device {}; this machine has {}", ordinal,
                    status.devices.size()));
  return *found;
}

}  // namespace

struct Runtime::State {
  CudaDevice device;
  cudaStream_t stream = nullptr;
  std::array<Staging, 4> staging;
  std::size_t next_staging = 0;
  std::array<cudaEvent_t, 2> marks{};
  bool recording = false;

  /// For the thread's next CUDA calls.
  void make_current() const { require(cudaSetDevice(device.ordinal), "cudaSetDevice"); }
  void require_waiting(const char* what) const {
    if (recording)
      throw std::logic_error(fmt::format("{}: waits for the device, which a recorded step cannot", what));
  }
  ~State() {
    cudaSetDevice(device.ordinal);
    if (stream != nullptr) cudaStreamSynchronize(stream);
    for (const Staging& stage : staging) {
      if (stage.memory != nullptr) cudaFreeHost(stage.memory);
      if (stage.done != nullptr) cudaEventDestroy(stage.done);
    }
    for (cudaEvent_t mark : marks)
      if (mark != nullptr) cudaEventDestroy(mark);
    if (stream != nullptr) cudaStreamDestroy(stream);
  }
};

Runtime::Runtime(int ordinal) : state_(std::make_unique<State>()) {
  State& state = *state_;
  state.device = found_device(ordinal);
  state.make_current();
  require(cudaStreamCreateWithFlags(&state.stream, cudaStreamNonBlocking), "cudaStreamCreate");
  for (Staging& stage : state.staging) {
    require(cudaMallocHost(reinterpret_cast<void**>(&stage.memory), staging_bytes), "page-locked memory");
    require(cudaEventCreateWithFlags(&stage.done, cudaEventDisableTiming), "cudaEventCreate");
  }
  for (cudaEvent_t& mark : state.marks) require(cudaEventCreate(&mark), "cudaEventCreate");
  require_code_for_device(state.device);
}
Runtime::~Runtime() = default;

const CudaDevice& Runtime::device() const { return state_->device; }

std::size_t Runtime::free_bytes() const {
  state_->make_current();
  std::size_t free = 0, total = 0;
  require(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return free;
}

std::byte* Runtime::allocate(int ordinal, std::size_t bytes) noexcept {
  void* address = nullptr;
  if (cudaSetDevice(ordinal) == cudaSuccess && cudaMalloc(&address, bytes) == cudaSuccess)
    return static_cast<std::byte*>(address);
  cudaGetLastError();
  return nullptr;
}

void Runtime::deallocate(int ordinal, std::byte* address) noexcept {
  cudaSetDevice(ordinal);
  cudaFree(address);
}

void Runtime::copy_to_device(std::byte* device, const std::byte* host, std::size_t bytes) {
  State& state = *state_;
  state.require_waiting("a copy from the host");
  state.make_current();
  for (std::size_t begin = 0; begin < bytes; begin += staging_bytes) {
    Staging& stage = state.staging[state.next_staging];
    state.next_staging = (state.next_staging + 1) % state.staging.size();
    require(cudaEventSynchronize(stage.done), "a copy from the host");
    const std::size_t part = std::min(staging_bytes, bytes - begin);
    std::memcpy(stage.memory, host + begin, part);
    require(cudaMemcpyAsync(device + begin, stage.memory, part, cudaMemcpyHostToDevice, state.stream),
            "a copy from the host");
    require(cudaEventRecord(stage.done, state.stream), "cudaEventRecord");
  }
}

void Runtime::copy_to_host(std::byte* host, const std::byte* device, std::size_t bytes) {
  state_->require_waiting("a copy to the host");
  state_->make_current();
  require(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, state_->stream), "a copy to the host");
  synchronize();
}

void Runtime::copy_on_device(std::byte* to, const std::byte* from, std::size_t bytes) {
  state_->make_current();
  require(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, state_->stream), "a copy on the device");
}

void Runtime::set_bytes(std::byte* device, unsigned char value, std::size_t bytes) {
  state_->make_current();
  require(cudaMemsetAsync(device, value, bytes, state_->stream), "setting bytes");
}

void Runtime::synchronize() {
  state_->require_waiting("synchronize");
  state_->make_current();
  require(cudaStreamSynchronize(state_->stream), "waiting for the device (a kernel before it failed)");
}

void Runtime::begin_recording() {
  state_->require_waiting("begin_recording");
  state_->make_current();
  // Relaxed: while a step is recorded for the first time, memory may still come from cudaMalloc.
  require(cudaStreamBeginCapture(state_->stream, cudaStreamCaptureModeRelaxed), "cudaStreamBeginCapture");
  state_->recording = true;
}

std::unique_ptr<Graph> Runtime::finish_recording() {
  state_->recording = false;
  state_->make_current();
  cudaGraph_t graph = nullptr;
  require(cudaStreamEndCapture(state_->stream, &graph), "cudaStreamEndCapture");
  cudaGraphExec_t executable = nullptr;
  const cudaError_t error = cudaGraphInstantiate(&executable, graph, 0);
  cudaGraphDestroy(graph);
  require(error, "cudaGraphInstantiate");
  return std::make_unique<CapturedGraph>(executable);
}

void Runtime::abandon_recording() noexcept {
  state_->recording = false;
  cudaSetDevice(state_->device.ordinal);
  cudaGraph_t graph = nullptr;
  if (cudaStreamEndCapture(state_->stream, &graph) == cudaSuccess && graph != nullptr)
    cudaGraphDestroy(graph);
  cudaGetLastError();
}

bool Runtime::recording() const { return state_->recording; }

void Runtime::replay(Graph& graph) {
  state_->require_waiting("replay");
  state_->make_current();
  require(cudaGraphLaunch(static_cast<CapturedGraph&>(graph).graph(), state_->stream), "cudaGraphLaunch");
}

void Runtime::mark(int moment) {
  state_->make_current();
  require(cudaEventRecord(state_->marks[static_cast<std::size_t>(moment)], state_->stream),
          "cudaEventRecord");
}

double Runtime::milliseconds_between_marks() {
  state_->make_current();
  float milliseconds = 0;
  require(cudaEventSynchronize(state_->marks[1]), "cudaEventSynchronize");
  require(cudaEventElapsedTime(&milliseconds, state_->marks[0], state_->marks[1]), "cudaEventElapsedTime");
  return static_cast<double>(milliseconds);
}

void Runtime::make_current() const { state_->make_current(); }
void* Runtime::stream() const {
  make_current();
  return state_->stream;
}

}  // namespace fp16lab::engine::gpu
