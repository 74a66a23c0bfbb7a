// Text forms of the run folder's records. Internal to numerics/files: everyone else uses run_folder.hpp.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "numerics/files/run/run_schema.hpp"

namespace fp16lab {

std::string csv_header(std::span<const std::string_view> columns);
std::string to_csv(const StepRow& row);
std::string to_csv(const EvaluationRow& row);
std::string to_json(const Manifest& manifest);
std::string to_json_line(const HistogramRow& row);
std::string to_json_line(const OverflowRow& row);
std::string to_json_line(const CulpritRow& row);

// The parsers throw std::runtime_error with the reason only; the caller adds file and line. `columns` are
// those of the file, all of the schema's or an older schema's first ones.
StepRow parse_step_row(std::string_view line, std::span<const std::string_view> columns);
EvaluationRow parse_evaluation_row(std::string_view line, std::span<const std::string_view> columns);
Manifest parse_manifest(std::string_view text);
HistogramRow parse_histogram_row(std::string_view line);
OverflowRow parse_overflow_row(std::string_view line);
CulpritRow parse_culprit_row(std::string_view line);

}  // namespace fp16lab
