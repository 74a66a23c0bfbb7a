// The judge of the conformance suite: a back end of plain loops, written from the comments of
// engine/backend/backend.hpp and the design's rules, not from an implementation. All verbs are its own but
// those that move bytes between host and tensor, products of FP8, and the scalar programs of a step.
#pragma once

#include <memory>

#include "engine/backend/backend.hpp"
#include "numerics/tensor_core/tensor_core_model.hpp"

namespace fp16lab::engine::test {

std::unique_ptr<Backend> make_twin_backend(const TensorCoreModel& model);

}  // namespace fp16lab::engine::test
