#include "engine/backend/cuda/library/route.hpp"

#include <fmt/format.h>

#include <utility>

#include "engine/backend/checks.hpp"
#include "engine/backend/cuda/runtime/device_errors.hpp"
#include "engine/backend/cuda/runtime/devices.hpp"
#include "numerics/text/message.hpp"

namespace fp16lab::engine::gpu {

namespace {

/// At most so many of the algorithms that the library offers are compared, fastest first by its own estimate.
constexpr int candidates_at_most = 16;

/// GemmRoute::automatic: a product of fewer multiplications takes both routes a few microseconds, mostly the
/// launch, and comparing would cost a run more than it could ever give back.
constexpr std::int64_t products_that_pay = std::int64_t{1} << 20;

void print_line(std::string_view line) { say("fp16lab: {}", line); }

AlgorithmEnvironment environment_of(const CudaDevice& device, const TensorCoreModel& row,
                                    const ProductLibrary& library) {
  return {.library = library.version(),
          .device = device.name,
          .capability_major = device.capability_major,
          .capability_minor = device.capability_minor,
          .multiprocessors = device.multiprocessors,
          .driver = cuda_status().driver_version,
          .tensor_core = std::string(row.name),
          .workspace_bytes = LibraryRoute::workspace_bytes};
}

}  // namespace

LibraryRoute::LibraryRoute(Runtime& runtime, const CudaOptions& options, const TensorCoreModel& row,
                           std::unique_ptr<ProductLibrary> library)
    : runtime_(&runtime),
      order_(options.gemm == GemmRoute::cublas_any_order ? ProductOrder::any : ProductOrder::one_sequence),
      tf32_(options.tf32 && order_ == ProductOrder::any),
      least_products_(options.gemm == GemmRoute::automatic ? products_that_pay : 1),
      row_(row),
      library_(std::move(library)),
      report_(options.report ? options.report : print_line),
      // What any order computes is not pinned: nothing of it goes to the file, nothing of the file is used.
      store_(environment_of(runtime.device(), row, *library_),
             order_ == ProductOrder::any ? std::string() : options.algorithm_cache_file) {
  store_.keep_accepted([this](const ProductProblem& problem, const ProductAlgorithm& algorithm) {
    runtime_->make_current();
    return library_->accepts(problem, algorithm, order_, workspace_bytes);
  });
}

bool LibraryRoute::asks(const ProductProblem& problem) const {
  if (problem.operands == DType::f32 && order_ == ProductOrder::one_sequence) return false;
  const std::int64_t outputs = problem.m * problem.n * problem.batch;
  if (outputs == 0 || problem.k == 0 || outputs * problem.k < least_products_) return false;
  // Tensors begin at multiples of 64 bytes; others cannot be had for the comparison.
  return problem.alignment_a == 16 && problem.alignment_b == 16 && problem.alignment_d == 16;
}

AlgorithmOutcome LibraryRoute::outcome_of(const ProductProblem& problem,
                                          const std::function<std::unique_ptr<CheckBench>()>& make_bench) {
  runtime_->make_current();  // the library's heuristics are those of the current device
  const std::vector<ProductAlgorithm> algorithms = library_->algorithms(
      problem, order_, workspace_bytes, order_ == ProductOrder::any ? 1 : candidates_at_most);
  if (order_ == ProductOrder::any) {
    if (algorithms.empty()) return {.reason = "the library offers no algorithm"};
    return {.pinned = true, .algorithm = algorithms.front()};
  }
  if (algorithms.empty() && !library_->left_out().empty())
    return {.reason =
                fmt::format("the library offers no algorithm that adds in one sequence; the first that was "
                            "left out is {}",
                            library_->left_out())};
  std::unique_ptr<CheckBench> bench;
  try {
    bench = make_bench();
  } catch (const DeviceFailure& error) {
    return {.reason = fmt::format("there is no memory for the comparison ({})", error.what()),
            .failed = true};
  }
  return pin(problem, checks::product_row("gemm", row_, problem.operands), algorithms, *bench);
}

const AlgorithmOutcome& LibraryRoute::decide(const ProductProblem& problem,
                                             const std::function<std::unique_ptr<CheckBench>()>& make_bench) {
  AlgorithmOutcome outcome = outcome_of(problem, make_bench);
  return told(problem, store_.remember(problem, std::move(outcome)));
}

const AlgorithmOutcome* LibraryRoute::find(const ProductProblem& problem) {
  const AlgorithmOutcome* const outcome = store_.find(problem);
  return outcome == nullptr ? nullptr : &told(problem, *outcome);
}

const AlgorithmOutcome& LibraryRoute::told(const ProductProblem& problem, const AlgorithmOutcome& outcome) {
  if (!outcome.pinned && told_.insert(&outcome).second)
    report_(fmt::format("gemm {} runs on our own kernel: {}", describe(problem), outcome.reason));
  return outcome;
}

void LibraryRoute::run(const ProductProblem& problem, const ProductAlgorithm& algorithm, const std::byte* a,
                       const std::byte* b, std::byte* d, std::byte* workspace) {
  library_->run(problem, algorithm, a, b, d, workspace, runtime_->stream());
}

std::uint32_t LibraryRoute::alignment_of(const void* address) {
  const auto low = static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(address) % 16);
  return low == 0 ? 16 : low & (~low + 1);
}

}  // namespace fp16lab::engine::gpu
