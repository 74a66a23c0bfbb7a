// CSV of described records (record.hpp): header, rows, and their reader. Not installed.
//
// A reader throws std::runtime_error "column NAME: ..."; the caller adds file and line.
#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

#include "numerics/files/run/record.hpp"
#include "numerics/text/text.hpp"

namespace fp16lab {

namespace record_csv {

template <class Value>
std::string text_of(const Value& value, const FieldTraits& traits) {
  if constexpr (record_detail::is_optional<Value>) {
    return value ? text_of(*value, traits) : std::string();
  } else if constexpr (std::is_same_v<Value, std::string>) {
    const bool plain = value.find_first_of(",\"\n\r") == std::string::npos;
    return traits.quoted || !plain ? csv_text(value) : value;
  } else if constexpr (std::is_floating_point_v<Value>) {
    return csv_number(value);
  } else if constexpr (std::is_same_v<Value, bool>) {
    return value ? "1" : "0";
  } else {
    return traits.hex ? fmt::format("{:016x}", value) : std::to_string(value);
  }
}

template <class Value>
Value parsed(std::string_view text, const FieldTraits& traits, std::string_view column) {
  const auto fail = [&](std::string_view why) {
    throw std::runtime_error(fmt::format("column {}: '{}' {}", column, shown(text), why));
  };
  Value value{};
  if constexpr (record_detail::is_optional<Value>) {
    if (!text.empty()) value = parsed<typename Value::value_type>(text, traits, column);
  } else if constexpr (std::is_same_v<Value, std::string>) {
    value = printable(text);
    if (value.empty()) throw std::runtime_error(fmt::format("column {} is empty", column));
    if (value.find('"') != std::string::npos) fail("holds a quote");
  } else if constexpr (std::is_same_v<Value, bool>) {
    if (text != "0" && text != "1") fail("is neither 0 nor 1");
    value = text == "1";
  } else {
    const char* const end = text.data() + text.size();
    std::from_chars_result result{};
    if constexpr (std::is_floating_point_v<Value>)
      result = std::from_chars(text.data(), end, value);
    else
      result = std::from_chars(text.data(), end, value, traits.hex ? 16 : 10);
    if (result.ec != std::errc{} || result.ptr != end || (traits.hex && text.size() != 16))
      fail(traits.hex                        ? "is not 16 hex digits"
           : std::is_floating_point_v<Value> ? "is not a number"
                                             : "is not a whole number");
  }
  return value;
}

}  // namespace record_csv

/// How many columns the oldest files have.
template <DescribedRecord Row>
constexpr std::size_t oldest_columns() {
  std::size_t count = 0;
  for_each_field<Row>([&](const auto& field) { count += may_lack<Row>(field.traits) ? 0 : 1; });
  return count;
}

/// The names of the first `columns`, without a line end.
template <DescribedRecord Row>
std::string csv_header(std::size_t columns = field_count<Row>) {
  std::string header;
  for_each_field<Row>([&](const auto& field) {
    if (columns > 0) header.append(header.empty() ? "" : ",").append(field.name);
    columns -= columns > 0 ? 1 : 0;
  });
  return header;
}

/// The first `columns`, without a line end. Texts are quoted where they have to be.
template <DescribedRecord Row>
std::string to_csv(const Row& row, std::size_t columns = field_count<Row>) {
  std::string line;
  std::size_t column = 0;
  for_each_field<Row>([&](const auto& field) {
    if (column++ >= columns) return;
    if (column > 1) line += ',';
    line += record_csv::text_of(std::invoke(field.member, row), field.traits);
  });
  return line;
}

/// Header and rows, without the last columns that may be left out where every row has their default.
template <DescribedRecord Row>
std::string csv_table(std::span<const Row> rows) {
  std::size_t columns = 0, column = 0;
  for_each_field<Row>([&](const auto& field) {
    ++column;
    const auto tells = [&](const Row& row) { return row.*field.member != Row{}.*field.member; };
    if (!field.traits.left_out || std::ranges::any_of(rows, tells)) columns = column;
  });
  std::string csv = csv_header<Row>(columns) + '\n';
  for (const Row& row : rows) csv += to_csv(row, columns) + '\n';
  return csv;
}

/// Reads a file with the first `columns`; what it lacks has its default.
template <DescribedRecord Row>
Row parse_csv(std::string_view line, std::size_t columns = field_count<Row>) {
  const auto present = static_cast<std::size_t>(std::ranges::count(line, ',')) + 1;
  if (present != columns)
    throw std::runtime_error(fmt::format("expected {} columns, got {}", columns, present));
  Row row;
  for_each_field<Row>([&](const auto& field) {
    if (columns == 0) return;
    --columns;
    const std::string_view text = line.substr(0, line.find(','));
    line.remove_prefix(std::min(text.size() + 1, line.size()));
    auto& value = row.*field.member;
    value = record_csv::parsed<std::remove_cvref_t<decltype(value)>>(text, field.traits, field.name);
  });
  return row;
}

}  // namespace fp16lab
