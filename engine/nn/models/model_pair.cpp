#include "engine/nn/models/model_pair.hpp"

#include <stdexcept>
#include <utility>

namespace fp16lab::engine::nn {

ModelPair::ModelPair(std::unique_ptr<Module> first, std::unique_ptr<Module> second) {
  if (first == nullptr || second == nullptr) {
    throw std::invalid_argument(std::string("ModelPair: the ") + (first == nullptr ? "first" : "second") +
                                " model is null; two are needed");
  }
  first_ = &add_child(std::move(first));
  second_ = &add_child(std::move(second));
}

Variable ModelPair::forward(Tape& tape, const Variable& x) {
  const Variable a = first_->forward(tape, x);
  return combine(combinations.front(), a, second_->forward(tape, x));
}

Variable ModelPair::combine(const Combination& combination, const Variable& a, const Variable& b) {
  const Variable left = ops::scale(a, combination.first);
  return ops::add(left, ops::scale(b, combination.second));
}

}  // namespace fp16lab::engine::nn
