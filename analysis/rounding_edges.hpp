// The result at every edge of FP16, as `fp16lab inspect --edges` and exp_rounding_edges print it.
#pragma once

#include <vector>

#include "analysis/claim.hpp"

namespace fp16lab::analysis {

/// One claim each: its words, as criterion the expected code, typed by hand from the source in the topic, and
/// what the library computes. It holds where the two are the same text.
std::vector<Claim> rounding_edges();

}  // namespace fp16lab::analysis
