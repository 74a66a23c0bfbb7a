// The device back end that we ship, on terms in place of numbers: its host code plans and launches as it
// always does, on the CUDA runtime of the PTX machine, which this program is.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/backend/backend.hpp"
#include "tests/engine/backend/cuda/ptx/symbolic.hpp"
#include "tests/machines/ptx/texts.hpp"

namespace fp16lab::engine::ptx::test {

/// A device of one multiprocessor, so that a few tiles are many for it and the planner cuts small products
/// into large tiles. One at a time; FP16LAB_CUDA_PLUGIN names the library.
class SymbolicDevice {
 public:
  /// A device of compute capability architecture / 10 with the kernels of these texts. DeviceUnavailable with
  /// the back end's words.
  SymbolicDevice(int architecture, const Texts& texts);
  ~SymbolicDevice();
  SymbolicDevice(const SymbolicDevice&) = delete;
  SymbolicDevice& operator=(const SymbolicDevice&) = delete;

  int architecture() const { return architecture_; }
  Backend& backend() { return *backend_; }
  /// Forgets terms and launches. Nothing may be under way.
  void begin();
  const Symbolic& terms() const;
  /// The kernels of products (their mangled names) that have been launched since begin().
  const std::vector<std::string>& products_launched() const;
  /// What a kernel did wrong, in the machine's words; empty as long as none has. The device has failed then.
  const std::string& fault() const;

  struct State;

 private:
  int architecture_;
  std::shared_ptr<State> state_;
  std::unique_ptr<Backend> backend_;
};

/// Does this kernel make outputs of products: their tiles, or the epilogue after a library's products?
bool makes_products(std::string_view mangled_name);
/// "MmaTile<f16, 64, 64, 32, 32, 4>, MatrixSource<f16, along_k, aligned>, ...", from a mangled name.
std::string short_name(const std::string& mangled_name);

}  // namespace fp16lab::engine::ptx::test
