// Culprits as the engine reports them, as rows of a run folder, with advice.
#pragma once

#include <cstdint>

#include "engine/train/observer.hpp"
#include "numerics/files/run_schema.hpp"

namespace fp16lab::experiments {

CulpritRow culprit_row(std::uint64_t step, const engine::OverflowCulprit& culprit);

}  // namespace fp16lab::experiments
