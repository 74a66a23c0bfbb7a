// Backend::gemm by a library of products: the library makes accumulators, or 16-bit outputs where nothing is
// added to them and nobody counts them, and the epilogue is ours. Also the device's side of pinning.
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/backend/cuda/library/algorithm_check.hpp"
#include "engine/backend/cuda/library/check_operands.hpp"
#include "engine/backend/cuda/library/route.hpp"
#include "engine/backend/cuda/product/gemm_epilogue.hpp"
#include "engine/backend/cuda/runtime/element_types.hpp"
#include "engine/backend/cuda/runtime/fast_division.hpp"
#include "engine/backend/cuda/runtime/launch.hpp"
#include "engine/backend/cuda/verbs/backend_impl.hpp"

namespace fp16lab::engine::gpu {

namespace {

constexpr std::uint32_t threads_of_block = 256;

// ---- the epilogue ----

/// Outputs from accumulators in memory, row-major and dense; 8 neighbours of a row by one thread. `eights` is
/// how many of them a row has. Accumulators and outputs may be the same memory.
template <class Half>
__global__ void finish_products(const float* accumulators, Epilogue<RowMajorPlacement> epilogue,
                                functions::Divisor eights, functions::Divisor rows, std::int64_t total) {
  __shared__ BlockCounts counts;
  BlockProbe probe(counts, epilogue.probe);
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < total; i += stride) {
    std::int64_t batch = i;
    const auto n = static_cast<int>(eights.take(batch)) * 8;
    const auto m = static_cast<int>(rows.take(batch));
    const float* const from = accumulators + epilogue.placement.offset(batch, m, n);
    float t[8];
    if (epilogue.n_extent % 8 == 0) {
      const auto eight = *reinterpret_cast<const EightElements<float>*>(from);
      for (int j = 0; j < 8; ++j) t[j] = eight.elements[j];
    } else {
      for (int j = 0; j < 8; ++j) t[j] = n + j < epilogue.n_extent ? from[j] : 0.0f;
    }
    finish_eight<Half>(epilogue, probe, batch, m, n, t);
  }
  probe.flush();
}

// ---- pinning ----

/// An operand of a data set in the memory order of the problem. lines: of one item.
__global__ void fill_check_matrix(CheckMatrix x, std::uint16_t* out, functions::Divisor lines,
                                  functions::Divisor k, bool along_k, std::int64_t total) {
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < total; i += stride) {
    std::int64_t line = i, place = 0;
    if (along_k) {
      place = k.take(line);
    } else {
      const std::int64_t in_item = lines.take(line);  // `line`: item * k + place
      place = k.take(line);
      line = line * lines.value() + in_item;
    }
    out[i] = check_element(x, line, place);
  }
}

struct NotedDifference {
  unsigned long long count;
  unsigned long long first;
};

template <class Word>
__global__ void note_differences(const Word* own, const Word* candidate, std::int64_t count,
                                 NotedDifference* noted) {
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
  unsigned long long differing = 0, first = ~0ull;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride)
    if (own[i] != candidate[i]) {
      if (differing == 0) first = static_cast<unsigned long long>(i);
      ++differing;
    }
  if (differing > 0) {
    atomicAdd(&noted->count, differing);
    atomicMin(&noted->first, first);
  }
}

template <class Word>
__global__ void gather_outputs(const Word* from, const std::int64_t* places, std::int64_t count,
                               std::uint32_t* out) {
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride)
    out[i] = from[places[i]];
}

template <class Visitor>
void with_word(DType dtype, const Visitor& visitor) {
  if (size_of(dtype) == 2) {
    visitor(std::uint16_t{});
  } else {
    visitor(std::uint32_t{});
  }
}

LaunchShape shape_for(std::int64_t count) {
  return {.x = blocks_for(count, threads_of_block), .threads = threads_of_block};
}

}  // namespace

/// The comparison's memory: operands and two outputs of the problem, from the pool and back to it.
class CheckBenchOnDevice final : public CheckBench {
 public:
  CheckBenchOnDevice(CudaBackend& backend, LibraryRoute& route, const ProductProblem& problem)
      : backend_(&backend),
        route_(&route),
        problem_(problem),
        a_(backend.empty(problem.transpose_a ? Shape{problem.batch, problem.k, problem.m}
                                             : Shape{problem.batch, problem.m, problem.k},
                         problem.operands)),
        b_(backend.empty(problem.transpose_b ? Shape{problem.batch, problem.n, problem.k}
                                             : Shape{problem.batch, problem.k, problem.n},
                         problem.operands)),
        own_(backend.empty({problem.batch, problem.m, problem.n}, problem.out)),
        candidate_(backend.empty({problem.batch, problem.m, problem.n}, problem.out)),
        noted_(backend.empty({static_cast<std::int64_t>(sizeof(NotedDifference))}, DType::u8)),
        workspace_(backend.empty({static_cast<std::int64_t>(LibraryRoute::workspace_bytes)}, DType::u8)) {}

  void load(const CheckLoad& load) override {
    fill(load.a, a_, problem_.m, !problem_.transpose_a);
    fill(load.b, b_, problem_.n, problem_.transpose_b);
  }

  void run_own() override {
    const GemmCall call{.a = a_,
                        .b = b_,
                        .out = own_,
                        .transpose_a = problem_.transpose_a,
                        .transpose_b = problem_.transpose_b};
    backend_->own_gemm(
        call, {.batch = problem_.batch, .shape = {.m = problem_.m, .n = problem_.n, .k = problem_.k}});
  }

  void run_candidate(const ProductAlgorithm& algorithm) override {
    // All bits set: NaNs that no product stores, so that an output left out differs from every right one.
    backend_->runtime().set_bytes(candidate_.data(), 0xff, candidate_.byte_count());
    if (algorithm.workspace_bytes > 0)
      backend_->runtime().set_bytes(workspace_.data(), 0xff, algorithm.workspace_bytes);
    route_->run(problem_, algorithm, a_.data(), b_.data(), candidate_.data(), workspace_.data());
  }

  CheckDifference compare() override {
    Runtime& runtime = backend_->runtime();
    runtime.set_bytes(noted_.data(), 0, sizeof(NotedDifference));
    runtime.set_bytes(noted_.data() + offsetof(NotedDifference, first), 0xff, sizeof(NotedDifference::first));
    auto* const noted = reinterpret_cast<NotedDifference*>(noted_.data());
    const std::int64_t count = own_.element_count();
    with_word(problem_.out, [&](auto word) {
      using Word = decltype(word);
      launch(runtime, "note_differences", &note_differences<Word>, shape_for(count),
             elements<const Word>(own_), elements<const Word>(candidate_), count, noted);
    });
    NotedDifference found{};
    runtime.copy_to_host(reinterpret_cast<std::byte*>(&found), noted_.data(), sizeof(found));
    CheckDifference difference{.count = found.count};
    if (difference.count > 0) {
      difference.first = static_cast<std::int64_t>(found.first);
      difference.own = bits_at(own_, difference.first);
      difference.candidate = bits_at(candidate_, difference.first);
    }
    return difference;
  }

  std::vector<std::uint32_t> own_outputs(std::span<const std::int64_t> places) override {
    const auto count = static_cast<std::int64_t>(places.size());
    Tensor at = backend_->empty({static_cast<std::int64_t>(places.size_bytes())}, DType::u8);
    Tensor gathered = backend_->empty({count}, DType::i32);
    Runtime& runtime = backend_->runtime();
    runtime.copy_to_device(at.data(), reinterpret_cast<const std::byte*>(places.data()), places.size_bytes());
    with_word(problem_.out, [&](auto word) {
      using Word = decltype(word);
      launch(runtime, "gather_outputs", &gather_outputs<Word>, shape_for(count), elements<const Word>(own_),
             elements<const std::int64_t>(at), count, elements<std::uint32_t>(gathered));
    });
    std::vector<std::uint32_t> bits(places.size());
    runtime.copy_to_host(reinterpret_cast<std::byte*>(bits.data()), gathered.data(), gathered.byte_count());
    return bits;
  }

 private:
  void fill(const CheckMatrix& matrix, const Tensor& out, std::int64_t lines, bool along_k) {
    launch(backend_->runtime(), "fill_check_matrix", &fill_check_matrix, shape_for(out.element_count()),
           matrix, elements<std::uint16_t>(out), functions::Divisor(lines), functions::Divisor(problem_.k),
           along_k, out.element_count());
  }
  std::uint32_t bits_at(const Tensor& x, std::int64_t place) {
    std::uint32_t bits = 0;
    const std::size_t bytes = size_of(x.dtype());
    backend_->runtime().copy_to_host(reinterpret_cast<std::byte*>(&bits),
                                     x.data() + static_cast<std::size_t>(place) * bytes, bytes);
    return bits;
  }

  CudaBackend* backend_;
  LibraryRoute* route_;
  ProductProblem problem_;
  Tensor a_, b_, own_, candidate_, noted_, workspace_;
};

bool CudaBackend::library_gemm(const GemmCall& call, const checks::GemmPlan& plan) {
  if (library_ == nullptr || call.a_format.has_value()) return false;
  const bool f32_out = call.out.dtype() == DType::f32;
  const bool finish = call.bias != nullptr || call.addend != nullptr || call.probe != nullptr;
  ProductProblem problem =
      contiguous_product(plan.shape.m, plan.shape.n, plan.shape.k, plan.batch, call.a.dtype(),
                         finish ? DType::f32 : call.out.dtype(), call.transpose_a, call.transpose_b);
  problem.alignment_a = LibraryRoute::alignment_of(call.a.data());
  problem.alignment_b = LibraryRoute::alignment_of(call.b.data());
  problem.alignment_d = finish && !f32_out ? 16 : LibraryRoute::alignment_of(call.out.data());
  problem.tf32 = library_->tf32() && problem.operands == DType::f32;
  if (!library_->asks(problem)) return false;

  const AlgorithmOutcome* outcome = library_->find(problem);
  if (outcome == nullptr) {
    if (library_->compares() && runtime_.recording()) return false;  // comparing waits for the device
    outcome = &library_->decide(
        problem, [&] { return std::make_unique<CheckBenchOnDevice>(*this, *library_, problem); });
  }
  if (!outcome->pinned) return false;

  // Both may die before the kernels run: all memory of the pool is used in the stream's order.
  Tensor wide, workspace;
  std::byte* accumulators = call.out.data();
  const std::int64_t count = call.out.element_count();
  if (finish && !f32_out) accumulators = reinterpret_cast<std::byte*>(scratch<float>(count, wide));
  std::byte* const work =
      outcome->algorithm.workspace_bytes == 0
          ? nullptr
          : scratch<std::byte>(static_cast<std::int64_t>(LibraryRoute::workspace_bytes), workspace);
  library_->run(problem, outcome->algorithm, call.a.data(), call.b.data(), accumulators, work);
  if (!finish) return true;

  ProbeCounts* const counts = counts_of(call.probe, count);
  const std::int64_t eights = (plan.shape.n + 7) / 8, total = plan.batch * plan.shape.m * eights;
  // A block that counts pays for its slots once: so many as are resident at a time, and no more.
  const std::int64_t resident = std::int64_t{8} * runtime_.device().multiprocessors;
  const LaunchShape shape{.x = counts == nullptr ? blocks_for(total, threads_of_block)
                                                 : blocks_for(total, threads_of_block, resident),
                          .threads = threads_of_block};
  with_element_type(call.a.dtype(), [&](auto tag) {
    launch(runtime_, "finish_products", &finish_products<decltype(tag)>, shape,
           reinterpret_cast<const float*>(accumulators), gemm_epilogue(call, plan, counts),
           functions::Divisor(eights), functions::Divisor(plan.shape.m), total);
  });
  return true;
}

}  // namespace fp16lab::engine::gpu
