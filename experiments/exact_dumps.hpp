// Exact sums of the user's own gradient dumps (hist --exact-mass).
#pragma once

#include <vector>

#include "analysis/range_output.hpp"
#include "experiments/array_dumps.hpp"

namespace fp16lab::experiments {

/// Reads the arrays of `dumps` once more, value by value. Zones are those of the values times `factor` (finite, > 0); sums
/// are in units of the values. Errors of files as numerics/files/array_stream.hpp throws them.
std::vector<analysis::NamedExactMass> exact_masses(const CountedDumps& dumps, double factor, int threads);

}  // namespace fp16lab::experiments
