// A replay for people: the table on stdout.
#pragma once

#include <string>

#include "numerics/files/run/replay_file.hpp"

namespace fp16lab::experiments {

/// "3", "3..5"; of shares in percent, "0.12", "0.1..0.3".
std::string interval_text(const ReplayInterval& interval);
std::string percent_text(const ReplayInterval& share);
/// "2^16", "2^14..2^16", "2^15.678".
std::string scale_text(double log2_lower, double log2_upper);

/// One row a policy, in their order.
std::string replay_table(const ReplayFile& replay);

}  // namespace fp16lab::experiments
