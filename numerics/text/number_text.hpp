// Numbers as the files of this project write them, non-finite ones too: in JSON (run folders, replays, comparisons,
// summaries) and in the cells of CSV. Finite numbers are the shortest decimals that read back to the same bits. The page
// of a report has a dialect of its own, reports::number_or_null.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace fp16lab {

/// JSON has no infinities and NaN: they become the strings "Infinity", "-Infinity" and "NaN".
nlohmann::ordered_json json_number(double value);

/// Infinities and NaN become "inf", "-inf" and "nan"; the sign of a NaN is not kept.
std::string csv_number(double value);

}  // namespace fp16lab
