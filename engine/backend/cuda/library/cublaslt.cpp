// cuBLASLt behind ProductLibrary: the calls that need a device. How a product is described to it, and why its
// operands change places, is in cublaslt_description.hpp.
#include "engine/backend/cuda/library/cublaslt.hpp"

#include <cublasLt.h>
#include <fmt/format.h>

#include <cstring>
#include <optional>
#include <utility>

#include "engine/backend/cuda/library/cublaslt_description.hpp"

namespace fp16lab::engine {

namespace {

using cublaslt::Description;
using cublaslt::Preference;
using cublaslt::require;

static_assert(sizeof(cublasLtMatmulAlgo_t) == sizeof(ProductAlgorithm::words),
              "the header of cublasLt says that the struct may be stored and restored as it is");

/// nullopt where the algorithm does not have the attribute.
template <class Value>
std::optional<Value> configured(const cublasLtMatmulAlgo_t& algorithm,
                                cublasLtMatmulAlgoConfigAttributes_t attribute) {
  Value value{};
  std::size_t written = 0;
  if (cublasLtMatmulAlgoConfigGetAttribute(&algorithm, attribute, &value, sizeof(value), &written) !=
          CUBLAS_STATUS_SUCCESS ||
      written != sizeof(value))
    return std::nullopt;
  return value;
}

/// The mask of the preference filters by reduction scheme, so both are asked again: an algorithm that does
/// not tell is not known to add in one sequence. Number of splits: the header documents 1 as what is not
/// split, a heuristic may leave 0; the comparison of bits stands behind both.
bool one_sequence(const cublasLtMatmulAlgo_t& algorithm) {
  const std::optional<std::int32_t> splits =
      configured<std::int32_t>(algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM);
  return (splits == 0 || splits == 1) &&
         configured<std::uint32_t>(algorithm, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME) ==
             std::uint32_t{CUBLASLT_REDUCTION_SCHEME_NONE};
}

std::string describe(const cublasLtMatmulAlgo_t& algorithm) {
  const auto number = [&algorithm]<class Value>(cublasLtMatmulAlgoConfigAttributes_t attribute, Value) {
    const std::optional<Value> value = configured<Value>(algorithm, attribute);
    return value ? std::to_string(*value) : std::string("?");
  };
  return fmt::format(
      "algorithm {} (tile {}, stages {}, cluster {}, inner shape {}, split k {}, reduction {}, swizzle {}, "
      "option {})",
      number(CUBLASLT_ALGO_CONFIG_ID, std::int32_t{}), number(CUBLASLT_ALGO_CONFIG_TILE_ID, std::uint32_t{}),
      number(CUBLASLT_ALGO_CONFIG_STAGES_ID, std::uint32_t{}),
      number(CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, std::uint16_t{}),
      number(CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, std::uint16_t{}),
      number(CUBLASLT_ALGO_CONFIG_SPLITK_NUM, std::int32_t{}),
      number(CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, std::uint32_t{}),
      number(CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, std::uint32_t{}),
      number(CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, std::uint32_t{}));
}

cublasLtMatmulAlgo_t restored(const ProductAlgorithm& algorithm) {
  cublasLtMatmulAlgo_t result;
  std::memcpy(result.data, algorithm.words.data(), sizeof(result.data));
  return result;
}

class CublasLt final : public ProductLibrary {
 public:
  CublasLt() { require(cublasLtCreate(&handle_), "cublasLtCreate (backend.gemm = \"mma\" does without)"); }
  ~CublasLt() override { cublasLtDestroy(handle_); }
  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;

  std::string version() const override { return fmt::format("cublasLt {}", cublasLtGetVersion()); }

  std::vector<ProductAlgorithm> algorithms(const ProductProblem& problem, ProductOrder order,
                                           std::size_t workspace_bytes, int limit) override {
    const Description description(problem);
    Preference preference(problem, order, workspace_bytes);
    std::vector<cublasLtMatmulHeuristicResult_t> found(static_cast<std::size_t>(limit));
    int count = 0;
    // beta = 0: C is not read, and D stands in for it.
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        handle_, description.operation.get(), description.first.get(), description.second.get(),
        description.result.get(), description.result.get(), preference.get(), limit, found.data(), &count);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED) return {};
    require(status, "asking for algorithms");
    found.resize(static_cast<std::size_t>(count));
    std::vector<ProductAlgorithm> result;
    left_out_.clear();
    for (const cublasLtMatmulHeuristicResult_t& one : found) {
      if (one.state != CUBLAS_STATUS_SUCCESS || one.workspaceSize > workspace_bytes) continue;
      if (order == ProductOrder::one_sequence && !one_sequence(one.algo)) {
        if (left_out_.empty()) left_out_ = describe(one.algo);
        continue;
      }
      ProductAlgorithm& algorithm = result.emplace_back();
      std::memcpy(algorithm.words.data(), one.algo.data, sizeof(one.algo.data));
      algorithm.workspace_bytes = one.workspaceSize;
      algorithm.description = describe(one.algo);
    }
    return result;
  }

  std::string left_out() const override { return left_out_; }

  bool accepts(const ProductProblem& problem, const ProductAlgorithm& algorithm, ProductOrder order,
               std::size_t workspace_bytes) override {
    const Description description(problem);
    const cublasLtMatmulAlgo_t algo = restored(algorithm);
    cublasLtMatmulHeuristicResult_t checked{};
    return cublasLtMatmulAlgoCheck(handle_, description.operation.get(), description.first.get(),
                                   description.second.get(), description.result.get(),
                                   description.result.get(), &algo, &checked) == CUBLAS_STATUS_SUCCESS &&
           checked.workspaceSize <= algorithm.workspace_bytes &&
           algorithm.workspace_bytes <= workspace_bytes && (order == ProductOrder::any || one_sequence(algo));
  }

  void run(const ProductProblem& problem, const ProductAlgorithm& algorithm, const std::byte* a,
           const std::byte* b, std::byte* d, std::byte* workspace, void* stream) override {
    const Description description(problem);
    const cublasLtMatmulAlgo_t algo = restored(algorithm);
    const float one = 1.0f, zero = 0.0f;  // read before the call returns (CUBLASLT_POINTER_MODE_HOST)
    require(cublasLtMatmul(handle_, description.operation.get(), &one, b, description.first.get(), a,
                           description.second.get(), &zero, d, description.result.get(), d,
                           description.result.get(), &algo, workspace, algorithm.workspace_bytes,
                           static_cast<cudaStream_t>(stream)),
            "cublasLtMatmul");
  }

 private:
  cublasLtHandle_t handle_ = nullptr;
  std::string left_out_;
};

}  // namespace

std::unique_ptr<ProductLibrary> make_cublaslt() { return std::make_unique<CublasLt>(); }

}  // namespace fp16lab::engine
