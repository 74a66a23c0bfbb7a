// Pinning: which algorithm of a library may stand in for our own kernel at one problem.
//
// A library says little about the order in which it adds, so nothing is believed: at the first use of a shape
// each algorithm that the library offers without splitting k is compared with our own kernel on the device,
// all bits of all outputs, on data made to tell orders and roundings apart
// (engine/backend/cuda/library/check_operands.hpp), and our own kernel with the emulator on thousands of
// outputs. The first algorithm without a differing bit is *pinned*: stored and replayed for exactly this key.
// Pinned, not proved: other data could still differ.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/backend/cuda/library/check_operands.hpp"
#include "engine/backend/cuda/library/product_library.hpp"
#include "numerics/tensor_core/tensor_core_model.hpp"

namespace fp16lab::engine {

/// One pair of operands of the comparison.
struct CheckLoad {
  CheckMatrix a, b;
  std::string name;  ///< "cancelling sums"
};
/// All of them for a problem with FP16 or BF16 operands: the three adversarial ones, then masks in as many
/// rounds (at most eight) as every block of k needs to be visited.
std::vector<CheckLoad> check_loads(const ProductProblem& problem);

/// Outputs that are compared with the emulator, all from rows x columns x items: at least 4096 or all there
/// are.
struct CheckSamples {
  std::vector<std::int64_t> items, rows, columns;
};
CheckSamples check_samples(const ProductProblem& problem);

struct CheckDifference {
  std::uint64_t count = 0;  ///< outputs whose bits differ
  std::int64_t first = 0;   ///< the first of them in memory order
  std::uint32_t own = 0, candidate = 0;
};

/// What the comparison asks of a device, for one problem.
class CheckBench {
 public:
  virtual ~CheckBench() = default;
  virtual void load(const CheckLoad& load) = 0;
  /// Our own kernel on the loaded operands.
  virtual void run_own() = 0;
  /// An algorithm on the loaded operands, into memory that holds something else before, workspace included.
  virtual void run_candidate(const ProductAlgorithm& algorithm) = 0;
  /// Waits.
  virtual CheckDifference compare() = 0;
  /// Bits of our own kernel's outputs at these places in memory order; waits.
  virtual std::vector<std::uint32_t> own_outputs(std::span<const std::int64_t> places) = 0;
};

struct AlgorithmOutcome {
  bool pinned = false;
  ProductAlgorithm algorithm = {};  ///< where pinned
  std::string reason = {};          ///< where not
  /// Something failed instead of computing, which another run need not repeat: true for this process only.
  bool failed = false;

  bool operator==(const AlgorithmOutcome&) const = default;
};

/// `row`: the model that products of these operands follow. A candidate that throws std::runtime_error is
/// refused in its words, and the refusal of all marked as failed.
AlgorithmOutcome pin(const ProductProblem& problem, const TensorCoreModel& row,
                     std::span<const ProductAlgorithm> candidates, CheckBench& bench);

}  // namespace fp16lab::engine
