// Inside the CUDA back end: the class whose verbs the .cu files of this folder implement, one kind each.
//
// All verbs run on one stream, so memory that a verb gives back may be used by the next one: scratch tensors
// may die before the kernels that use them have run. Verbs plan on the host and launch; only the verbs that
// hand numbers to the host wait. No fmt in .cu files: nvcc cannot compile its headers; backend.cpp makes the
// texts, or they are std::strings.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "engine/backend/backend.hpp"
#include "engine/backend/checks.hpp"
#include "engine/backend/cuda/cuda_backend.hpp"
#include "engine/backend/cuda/runtime/index_fault.hpp"
#include "engine/backend/cuda/runtime/runtime.hpp"
#include "engine/tensor/storage.hpp"
#include "numerics/tensor_core/tensor_core_model.hpp"

namespace fp16lab::engine::gpu {

class ProductLibrary;  // library/product_library.hpp

/// The layout of pending CastProbe counts: the bins, then zero, infinite, nan, and the extremes as FP32 bits,
/// for the smallest the distance to infinity: so a maximum merges both, and all slots begin with 0. Before,
/// then after.
struct DeviceHistogram {
  static constexpr int zero = ExponentHistogram::bin_count;
  static constexpr int infinite = zero + 1;
  static constexpr int nan = zero + 2;
  static constexpr int counts = zero + 3;  ///< slots below are sums, the others maxima
  static constexpr int greatest = counts;
  static constexpr int smallest = counts + 1;
  static constexpr int slots = counts + 2;
};
struct ProbeCounts {
  std::uint64_t before[DeviceHistogram::slots];
  std::uint64_t after[DeviceHistogram::slots];
};

class CudaBackend final : public Backend {
 public:
  explicit CudaBackend(const CudaOptions& options);
  ~CudaBackend() override;

  std::string_view name() const override { return "cuda"; }
  std::string_view tensor_core() const override { return model_.name; }
  PoolStatistics memory_statistics() const override { return pool_.statistics(); }

  // backend.cpp
  Tensor empty(const Shape& shape, DType dtype) override;
  bool records() const override { return true; }
  std::unique_ptr<Recording> record(const std::function<void()>& work) override;
  double milliseconds(const std::function<void()>& work) override;

  Runtime& runtime() { return runtime_; }

 protected:
#define FP16LAB_VERB(verb, ...) void do_##verb(__VA_ARGS__) override;
  FP16LAB_BACKEND_VERBS(FP16LAB_VERB)
#undef FP16LAB_VERB
  std::uint64_t do_digest(std::span<const DigestItem> items) override;

 private:
  // ---- services that files share ----
  /// Scratch memory of so many elements of T, in a tensor of bytes that gives it back.
  template <class T>
  T* scratch(std::int64_t count, Tensor& holder) {
    holder = empty({count * static_cast<std::int64_t>(sizeof(T))}, DType::u8);
    return reinterpret_cast<T*>(holder.data());
  }
  /// The pending counts of `probe`, made (and zeroed) where there are none; `probe` may be null, the result
  /// then too. Adds `elements` to probe->counted.
  ProbeCounts* counts_of(CastProbe* probe, std::int64_t elements);  // histogram.cu
  /// Rounds f32 `wide` into `out` (f; f32: a copy unless it is the same memory), counting both sides into
  /// `probe`.
  void store(const Tensor& wide, Tensor& out, CastProbe* probe);  // cast.cu
  /// x itself if it is f32, else its elements widened into a new tensor.
  Tensor widened(const Tensor& x);
  /// x, or, if its product is one of TF32, its elements rounded to that, in a new tensor.
  Tensor operand(const Tensor& x, bool tf32);  // cast.cu
  /// std::invalid_argument naming the device's capability if its tensor cores multiply no such operands: BF16
  /// and, with `tf32`, FP32 rounded to TF32 before 8.0.
  void require_products(std::string_view verb, DType operands, bool tf32) const;  // backend.cpp
  /// The two routes of gemm(), which has checked the call: our own kernels, and cuBLAS.
  void own_gemm(const GemmCall& call, const checks::GemmPlan& plan);      // gemm.cu
  void library_gemm(const GemmCall& call, const checks::GemmPlan& plan);  // library/gemm.cu
  /// The three products of do_conv2d, with operands as the tensor core takes them: convolution.cu, and
  /// convolution_weight.cu.
  void convolve(const Conv2dCall& call, const functions::Conv2dPlan& plan, const Tensor& x,
                const Tensor& weight);
  void convolve_input_gradient(const Conv2dCall& call, const functions::Conv2dPlan& plan, Tensor dy,
                               const Tensor& weight);
  void convolve_weight_gradient(const Conv2dCall& call, const functions::Conv2dPlan& plan, const Tensor& x,
                                const Tensor& dy);
  /// Downloads are refused while recording, uploads too: std::logic_error naming the verb.
  void require_not_recording(std::string_view verb) const;  // backend.cpp
  /// histogram.cu: adds the exponents of x (f) to `counts`, and to `also` unless it is null.
  void count(const Tensor& x, std::uint64_t* counts, std::uint64_t* also);
  /// After every wait: throws the std::out_of_range that a kernel has noted.
  void raise_noted_fault();  // indexing.cu
  /// For a call of `verb` whose index tensor must have its elements in [0, limit): what its kernels need to
  /// check them.
  IndexCheck index_check(IndexVerb verb, const Tensor& index, std::int64_t limit);  // indexing.cu

  Runtime runtime_;
  StoragePool pool_;
  TensorCoreModel model_;
  std::unique_ptr<ProductLibrary> library_;  ///< nullptr: no library
  std::shared_ptr<std::uint64_t> library_products_;
  Tensor fault_;                    ///< an IndexFault
  std::uint32_t index_checks_ = 0;  ///< calls of index_check
  bool fault_possible_ = false;     ///< an index_check since the fault was last looked at
  bool fault_recorded_ = false;     ///< an index_check in a recording: whenever it is replayed
};

}  // namespace fp16lab::engine::gpu
