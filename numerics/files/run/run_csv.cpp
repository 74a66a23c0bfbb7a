// CSV side of the run folder. Fields never hold commas or quotes: numbers, hex digits and names of splits.
#include <fmt/core.h>

#include <charconv>
#include <ctime>
#include <stdexcept>

#include "numerics/files/run/run_text.hpp"
#include "numerics/text/text.hpp"

namespace fp16lab {
namespace {

std::vector<std::string_view> split_fields(std::string_view line, std::span<const std::string_view> columns) {
  std::vector<std::string_view> fields;
  for (;;) {
    const std::size_t comma = line.find(',');
    fields.push_back(line.substr(0, comma));
    if (comma == std::string_view::npos) break;
    line.remove_prefix(comma + 1);
  }
  if (fields.size() != columns.size())
    throw std::runtime_error(fmt::format("expected {} columns, got {}", columns.size(), fields.size()));
  return fields;
}

template <class T, class... Base>
T parse_whole(std::string_view text, std::string_view column, std::string_view expected, Base... base) {
  T value{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value, base...);
  if (error != std::errc{} || stop != end)
    throw std::runtime_error(fmt::format("column {}: '{}' is not {}", column, text, expected));
  return value;
}

double parse_double(std::string_view text, std::string_view column) {
  return parse_whole<double>(text, column, "a number");
}

std::uint64_t parse_count(std::string_view text, std::string_view column) {
  return parse_whole<std::uint64_t>(text, column, "a whole number", 10);
}

bool parse_flag(std::string_view text, std::string_view column) {
  if (text == "0") return false;
  if (text == "1") return true;
  throw std::runtime_error(fmt::format("column {}: '{}' is neither 0 nor 1", column, text));
}

std::optional<double> parse_optional(std::string_view text, std::string_view column) {
  if (text.empty()) return std::nullopt;
  return parse_double(text, column);
}

std::uint64_t parse_hash(std::string_view text, std::string_view column) {
  if (text.size() != 16)
    throw std::runtime_error(fmt::format("column {}: '{}' is not 16 hex digits", column, text));
  return parse_whole<std::uint64_t>(text, column, "16 hex digits", 16);
}

std::string optional_number(const std::optional<double>& value) {
  return value ? csv_number(*value) : std::string();
}

}  // namespace

std::string csv_header(std::span<const std::string_view> columns) {
  std::string header;
  for (const std::string_view column : columns) {
    if (!header.empty()) header += ',';
    header += column;
  }
  return header;
}

std::string to_csv(const StepRow& row) {
  return fmt::format("{},{},{},{},{},{},{},{},{:016x},{},{}", row.step, csv_number(row.loss),
                     csv_number(row.loss_scale), row.found_inf ? 1 : 0, row.skipped ? 1 : 0,
                     csv_number(row.grad_norm), csv_number(row.lr), optional_number(row.underflow_rate),
                     row.state_hash, csv_number(row.seconds), optional_number(row.epoch));
}

std::string to_csv(const EvaluationRow& row) {
  if (row.split.empty() || row.split.find_first_of(",\"\n\r") != std::string::npos)
    throw std::invalid_argument(fmt::format("'{}' cannot be the name of a split in a CSV row", row.split));
  return fmt::format("{},{},{},{},{}", row.step, row.split, csv_number(row.loss),
                     optional_number(row.accuracy), optional_number(row.bits_per_character));
}

StepRow parse_step_row(std::string_view line, std::span<const std::string_view> columns) {
  const std::vector<std::string_view> f = split_fields(line, columns);
  StepRow row;
  row.step = parse_count(f[0], step_columns[0]);
  row.loss = parse_double(f[1], step_columns[1]);
  row.loss_scale = parse_double(f[2], step_columns[2]);
  row.found_inf = parse_flag(f[3], step_columns[3]);
  row.skipped = parse_flag(f[4], step_columns[4]);
  row.grad_norm = parse_double(f[5], step_columns[5]);
  row.lr = parse_double(f[6], step_columns[6]);
  row.underflow_rate = parse_optional(f[7], step_columns[7]);
  row.state_hash = parse_hash(f[8], step_columns[8]);
  row.seconds = parse_double(f[9], step_columns[9]);
  if (f.size() > oldest_step_columns) row.epoch = parse_optional(f[10], step_columns[10]);
  return row;
}

EvaluationRow parse_evaluation_row(std::string_view line, std::span<const std::string_view> columns) {
  const std::vector<std::string_view> f = split_fields(line, columns);
  EvaluationRow row;
  row.step = parse_count(f[0], evaluation_columns[0]);
  row.split = printable(f[1]);
  if (row.split.empty()) throw std::runtime_error("column split is empty");
  if (row.split.find('"') != std::string::npos)
    throw std::runtime_error(fmt::format("column split: '{}' holds a quote", row.split));
  row.loss = parse_double(f[2], evaluation_columns[2]);
  row.accuracy = parse_optional(f[3], evaluation_columns[3]);
  if (f.size() > evaluation_columns_of_version_1)
    row.bits_per_character = parse_optional(f[4], evaluation_columns[4]);
  return row;
}

std::string_view name_of(ExitState state) {
  switch (state) {
    case ExitState::running:
      return "running";
    case ExitState::finished:
      return "finished";
    case ExitState::stopped:
      return "stopped";
    case ExitState::diverged:
      return "diverged";
    case ExitState::failed:
      return "failed";
  }
  return "?";
}

std::optional<ExitState> exit_state_of(std::string_view name) {
  for (const ExitState state :
       {ExitState::running, ExitState::finished, ExitState::stopped, ExitState::diverged, ExitState::failed})
    if (name_of(state) == name) return state;
  return std::nullopt;
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", parts.tm_year + 1900, parts.tm_mon + 1,
                     parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec);
}

}  // namespace fp16lab
