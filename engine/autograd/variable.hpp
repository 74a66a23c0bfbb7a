// Variable: a handle to one value on a tape.
#pragma once

#include <cstdint>

#include "engine/tensor/tensor.hpp"

namespace fp16lab::engine {

class Tape;

/// (tape, generation, id): a value type of 24 bytes that owns nothing. A handle whose tape was reset, or
/// whose temporary was dropped, is stale, and its use throws AutogradError naming the operation.
class Variable {
 public:
  Variable() = default;  ///< undefined

  bool defined() const { return tape_ != nullptr; }
  Tape& tape() const;  ///< throws if undefined
  std::uint64_t generation() const { return generation_; }
  std::uint32_t id() const { return id_; }

  // Values, not references: recording another operation moves the tape's nodes.
  Shape shape() const;
  DType dtype() const;
  bool requires_gradient() const;
  /// The value (shares memory with the tape). Throws if stale, or if a backward pass has released it.
  Tensor tensor() const;

 private:
  friend class Tape;
  Variable(Tape* tape, std::uint64_t generation, std::uint32_t id)
      : tape_(tape), generation_(generation), id_(id) {}

  Tape* tape_ = nullptr;
  std::uint64_t generation_ = 0;
  std::uint32_t id_ = 0;
};

}  // namespace fp16lab::engine
