// hist --blocks: what formats with a scale for each block keep of dumps.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "experiments/app/commands/array_dumps.hpp"
#include "numerics/convert/quantizer.hpp"

namespace fp16lab::experiments {

/// "nvfp4,mxfp8:rceil": quantizers, each with a rule of its scales where one is named. CommandError(usage)
/// for an unknown name or rule, which says which are known.
std::vector<Quantizer> parse_quantizers(std::string_view option, const std::vector<std::string>& names);

/// Prints, for each quantizer, a table of the arrays, those with the greatest error first, or one JSON
/// document. Rows of an array are its last dimension; blocks at their ends are filled with zeros.
void show_blocks(const CountedDumps& dumps, std::span<const Quantizer> quantizers, bool all, bool json,
                 int threads);

}  // namespace fp16lab::experiments
