// Rates as percentages for people.
#pragma once

#include <string>

#include "analysis/range_report.hpp"

namespace fp16lab::reports {

/// "83 %", "4.2 %", "0.35 %", "< 0.01 %", "> 99.9 %". "0 %" and "100 %" are exact: none, and all.
std::string rate_text(double rate);

/// The same of an interval: "93–97 %"; one number where both ends read the same.
std::string rate_text(const analysis::RateInterval& rate);

}  // namespace fp16lab::reports
