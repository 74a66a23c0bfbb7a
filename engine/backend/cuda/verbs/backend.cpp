// The back end as a whole: which device, which row of tensor cores, and recording.
#include <fmt/format.h>

#include <stdexcept>
#include <utility>

#include "engine/backend/cuda/library/product_library.hpp"
#include "engine/backend/cuda/runtime/no_device.hpp"
#include "engine/backend/cuda/verbs/backend_impl.hpp"
#include "engine/backend/recording.hpp"
#include "numerics/tensor_core/tensor_core_model.hpp"

namespace fp16lab::engine {

namespace gpu {

namespace {

class DeviceMemory final : public MemoryResource {
 public:
  explicit DeviceMemory(int ordinal) : ordinal_(ordinal) {}
  std::byte* allocate(std::size_t bytes) noexcept override { return Runtime::allocate(ordinal_, bytes); }
  void deallocate(std::byte* address, std::size_t /*bytes*/) noexcept override {
    Runtime::deallocate(ordinal_, address);
  }
  bool host_accessible() const override { return false; }

 private:
  int ordinal_;
};

std::string_view own_row(const CudaDevice& device) {
  return tensor_core_of(device.capability_major, device.capability_minor);
}

/// The row that the options ask for, if it is the device's.
const TensorCoreModel& chosen_row(const CudaDevice& device, const CudaOptions& options) {
  const std::string_view own = own_row(device);
  if (own.empty())
    throw DeviceUnavailable(
        fmt::format("{} (compute capability {}.{}) has no tensor core known to fp16lab; use backend.device = "
                    "\"emulated\"",
                    device.name, device.capability_major, device.capability_minor));
  if (options.tensor_core != "auto" && options.tensor_core != own)
    throw DeviceUnavailable(fmt::format(
        "backend.tensor_core = \"{}\", but the tensor cores of {} are \"{}\": set \"auto\" or \"{}\", or "
        "backend.device = \"emulated\"",
        options.tensor_core, device.name, own, own));
  return tensor_core_model(own);
}

class RecordedGraph final : public Recording {
 public:
  RecordedGraph(Runtime& runtime, std::unique_ptr<Graph> graph, std::shared_ptr<std::uint64_t> count,
                std::uint64_t library_products)
      : runtime_(&runtime),
        graph_(std::move(graph)),
        count_(std::move(count)),
        library_products_(library_products) {}
  void replay() override {
    runtime_->replay(*graph_);
    *count_ += library_products_;
  }

 private:
  Runtime* runtime_;
  std::unique_ptr<Graph> graph_;
  std::shared_ptr<std::uint64_t> count_;
  std::uint64_t library_products_;  ///< in one replay
};

}  // namespace

void require_code_for_device(const CudaDevice& device) {
  const std::string why =
      unusable_device_text(device, has_code_for_current_device(), FP16LAB_CUDA_ARCHITECTURES);
  if (!why.empty()) throw DeviceUnavailable(why);
}

CudaBackend::CudaBackend(const CudaOptions& options)
    : runtime_(options.device),
      pool_(std::make_unique<DeviceMemory>(options.device)),
      model_(chosen_row(runtime_.device(), options)),
      library_(options.gemm == GemmRoute::cublas ? std::make_unique<ProductLibrary>(runtime_, options.tf32)
                                                 : nullptr),
      library_products_(options.library_products ? options.library_products
                                                 : std::make_shared<std::uint64_t>(0)),
      fault_(empty({static_cast<std::int64_t>(sizeof(IndexFault))}, DType::u8)) {
  runtime_.set_bytes(fault_.data(), 0, sizeof(IndexFault));
}
CudaBackend::~CudaBackend() = default;

void CudaBackend::require_products(std::string_view verb, DType operands, bool tf32) const {
  const std::string missing = missing_products_text(runtime_.device(), tf32 ? DType::tf32 : operands);
  if (!missing.empty())
    throw std::invalid_argument(fmt::format("{}: {}, or backend.device = \"emulated\"", verb, missing));
}

Tensor CudaBackend::empty(const Shape& shape, DType dtype) {
  const std::size_t bytes = static_cast<std::size_t>(shape.element_count()) * size_of(dtype);
  try {
    return {pool_.allocate(bytes), shape, dtype};
  } catch (const std::runtime_error&) {
    const PoolStatistics pool = pool_.statistics();
    throw DeviceFailure(fmt::format(
        "out of device memory: {} {} needs {} bytes; {} of {} bytes of {} are free, tensors hold {}",
        name_of(dtype), shape.to_string(), bytes, runtime_.free_bytes(), runtime_.device().memory_bytes,
        runtime_.device().name, pool.bytes_in_use));
  }
}

void CudaBackend::require_not_recording(std::string_view verb) const {
  if (runtime_.recording()) refuse_in_recording(verb);
}

std::unique_ptr<Recording> CudaBackend::record(const std::function<void()>& work) {
  require_not_recording("record");
  const RecordingMemory memory(pool_);
  const std::uint64_t before = *library_products_;
  runtime_.begin_recording();
  try {
    work();
  } catch (...) {
    *library_products_ = before;
    runtime_.abandon_recording();
    throw;
  }
  // Recorded, not done.
  const std::uint64_t products = std::exchange(*library_products_, before) - before;
  return std::make_unique<RecordedGraph>(runtime_, runtime_.finish_recording(), library_products_, products);
}

double CudaBackend::milliseconds(const std::function<void()>& work) {
  require_not_recording("milliseconds");
  runtime_.mark(0);
  work();
  runtime_.mark(1);
  return runtime_.milliseconds_between_marks();
}

}  // namespace gpu

std::unique_ptr<Backend> make_cuda_backend(const CudaOptions& options) {
  return std::make_unique<gpu::CudaBackend>(options);
}
std::unique_ptr<MemoryResource> make_cuda_memory(int device) {
  return std::make_unique<gpu::DeviceMemory>(device);
}

}  // namespace fp16lab::engine
