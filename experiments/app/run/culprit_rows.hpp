// Culprits as the engine reports them, as rows of a run folder, with advice.
#pragma once

#include <vector>

#include "engine/train/observer.hpp"
#include "numerics/files/run/run_schema.hpp"

namespace fp16lab::experiments {

/// One for each culprit of the record.
std::vector<CulpritRow> culprit_rows(const engine::OverflowRecord& record);

}  // namespace fp16lab::experiments
