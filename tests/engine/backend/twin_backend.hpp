// The judge of the conformance suite: a back end of plain loops, written from the comments of
// engine/backend/backend.hpp and the design's rules, not from an implementation. Casts, permutations,
// elementwise verbs, products, pooling, reductions, indexing and the passes over gradients and weights are
// its own; the other verbs, which the suite judges by tests of their own, are the emulated back end's.
#pragma once

#include <memory>

#include "engine/backend/backend.hpp"
#include "numerics/tensor_core/tensor_core_model.hpp"

namespace fp16lab::engine::test {

std::unique_ptr<Backend> make_twin_backend(const TensorCoreModel& model);

}  // namespace fp16lab::engine::test
