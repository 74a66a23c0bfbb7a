// Which kernels of products there are, and which the proof has launched with which shapes.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/engine/backend/cuda/ptx/proof/symbolic_device.hpp"

namespace fp16lab::engine::ptx::test {

class Coverage {
 public:
  /// The kernels of products that these texts have.
  Coverage(int architecture, const Texts& texts);
  /// `kernels` (mangled names) have made a shape of depth k, and every output was the chain.
  void add(const std::vector<std::string>& kernels, const std::string& shape, std::int64_t k);
  /// One line for each kernel that could be launched and never was, or never with more k than its pipeline
  /// holds.
  std::vector<std::string> gaps() const;
  std::size_t kernels() const { return kernels_.size(); }
  std::size_t launched() const;
  /// Kernels that no launch of this architecture reaches.
  std::size_t out_of_reach() const;
  /// A line a kernel: how many shapes, and the largest k.
  std::string table() const;

 private:
  struct Entry {
    std::string name;              ///< short
    std::string out_of_reach;      ///< why it is never launched; empty if it may be
    std::int64_t in_pipeline = 0;  ///< of k
    std::set<std::string> shapes;
    std::int64_t deepest = -1;
  };
  std::map<std::string, Entry> kernels_;
};

}  // namespace fp16lab::engine::ptx::test
