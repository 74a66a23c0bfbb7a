// Dropout: zeroes elements at random while the network trains.
#pragma once

#include <string>

#include "engine/nn/module.hpp"

namespace fp16lab::engine::nn {

/// y = x * mask / (1 - p), mask 1 with probability 1 - p (Srivastava et al. 2014); the identity outside
/// training and for p = 0. The mask is a pure function of (seed, path, iteration, micro-batch, element), so a
/// module is called once per forward pass: two calls on one path would share their mask.
class Dropout final : public Module {
 public:
  /// std::invalid_argument unless 0 <= p < 1.
  Dropout(std::string path, float p);
  Variable forward(Tape& tape, const Variable& x) override;

 private:
  std::string path_;
  float p_;
};

}  // namespace fp16lab::engine::nn
