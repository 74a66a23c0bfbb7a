// AlgorithmCache: what pinning found, for this process and, on request, for the next ones.
//
// The file is JSON lines: a header with the format's version, then one line for each problem and environment,
// every field of the key by name, the outcome, and a checksum. Lines of other environments (another library,
// device or way of checking) are kept and not used. It is written anew, atomically, with every outcome; a
// file that is something else is never overwritten.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/backend/cuda/library/algorithm_check.hpp"

namespace fp16lab::engine {

/// What besides the problem decides an algorithm's bits. The names are for equality, not for parsing.
struct AlgorithmEnvironment {
  std::string library;  ///< ProductLibrary::version
  std::string device;   ///< "NVIDIA H200"
  int capability_major = 0, capability_minor = 0;
  int multiprocessors = 0;
  int driver = 0;                   ///< its version, as CUDA counts: it may compile kernels itself
  std::string tensor_core;          ///< the row that our own kernel was compared with
  std::size_t workspace_bytes = 0;  ///< offered to the library

  bool operator==(const AlgorithmEnvironment&) const = default;
};

class AlgorithmCache {
 public:
  /// `file` empty: none. A file that is not there is empty; std::runtime_error naming file and line for one
  /// that is not a file of pins.
  explicit AlgorithmCache(AlgorithmEnvironment environment, std::filesystem::path file = {});

  /// nullptr: not decided yet. Valid as long as the store is.
  const AlgorithmOutcome* find(const ProductProblem& problem) const;
  /// In the file too unless it has failed, next to what other processes have added since.
  const AlgorithmOutcome& remember(const ProductProblem& problem, AlgorithmOutcome outcome);
  /// Forgets the pinned algorithms of the file that `accepts` refuses.
  void keep_accepted(const std::function<bool(const ProductProblem&, const ProductAlgorithm&)>& accepts);

  const AlgorithmEnvironment& environment() const { return environment_; }
  std::size_t size() const { return outcomes_.size(); }

 private:
  struct Hash {
    std::size_t operator()(const ProductProblem& problem) const;
  };
  void write(const ProductProblem& problem, const AlgorithmOutcome& outcome) const;

  AlgorithmEnvironment environment_;
  std::filesystem::path file_;
  std::unordered_map<ProductProblem, AlgorithmOutcome, Hash> outcomes_;
};

}  // namespace fp16lab::engine
