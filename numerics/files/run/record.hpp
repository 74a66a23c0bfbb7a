// A record is described once, where its struct is declared: what follows from the description are the CSV and
// JSON that is written (record_csv.hpp, record_json.hpp), the readers with their messages, `fp16lab list
// records` and the manual's page, TensorBoard's curves, and the columns of Python.
//
//   struct StepRow {
//     FP16LAB_RECORD(StepRow, "steps.csv", 1, "one optimizer iteration, after its update or skip");
//     FP16LAB_FIELD(std::uint64_t, step, 0, "counts from 1, skipped ones included");
//     FP16LAB_FIELD(std::optional<double>, epoch, {}, "passes over the training data so far", .since = 3);
//     FP16LAB_RECORD_END(StepRow);
//   };
//
// A column more is one such line, in front of the end: columns are only ever added after the others, with
// .since.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "numerics/formats/dtype.hpp"
#include "numerics/histogram/exponent_histogram.hpp"
#include "numerics/text/named_enum.hpp"

namespace fp16lab {

/// What a description adds to a field's name, type and meaning. An absent value is an empty field in CSV,
/// null in JSON, NaN in a column of Python.
struct FieldTraits {
  /// The schema version of the first folders that may have it: a reader takes the default where an older
  /// record lacks it. 0: it is as old as the record.
  int since = 0;
  std::string_view unit{};
  bool left_out = false;  ///< of JSON, where it has the member's default, instead of null
  bool curve = false;     ///< TensorBoard shows it
  bool hex = false;       ///< 16 hex digits in CSV
  bool quoted = false;    ///< in CSV
  bool as_it_is =
      false;          ///< readers do not make it printable: it has lines of its own, or is a command's word
  bool json = false;  ///< the text is a JSON object; null where it is empty
};

/// A described member; for a computed one `member` is a function: it is written, and not read.
template <class Member>
struct Field {
  std::string_view name;
  Member member;
  std::string_view help;
  FieldTraits traits;
  static constexpr bool computed = std::is_member_function_pointer_v<Member>;
};
template <class Member>
Field(std::string_view, Member, std::string_view, FieldTraits) -> Field<Member>;

template <int line>
struct AtLine {};

// NOLINTBEGIN(bugprone-macro-parentheses): types and initializers stand in no parentheses.
#define FP16LAB_RECORD(Type, file, first_schema, help)  \
  using Described = Type;                               \
  static constexpr std::string_view record_file = file; \
  static constexpr std::string_view record_help = help; \
  static constexpr int record_since = first_schema;     \
  static constexpr int record_begin = __LINE__
#define FP16LAB_FIELD(Type, name, initial, help, ...)                      \
  Type name = initial;                                                     \
  static constexpr auto described_at(AtLine<__LINE__>) {                   \
    return Field{#name, &Described::name, help, FieldTraits{__VA_ARGS__}}; \
  }                                                                        \
  static_assert(true)
#define FP16LAB_COMPUTED_FIELD(Type, name, help)                \
  Type name() const;                                            \
  static constexpr auto described_at(AtLine<__LINE__>) {        \
    return Field{#name, &Described::name, help, FieldTraits{}}; \
  }                                                             \
  static_assert(true)
#define FP16LAB_RECORD_END(Type)              \
  static constexpr int record_end = __LINE__; \
  bool operator==(const Type&) const = default
// NOLINTEND(bugprone-macro-parentheses)

template <class Type>
concept DescribedRecord = requires {
  Type::record_end;
};

namespace record_detail {
template <class Record, int line>
constexpr auto field_at() {
  if constexpr (requires { Record::described_at(AtLine<line>{}); })
    return std::tuple{Record::described_at(AtLine<line>{})};
  else
    return std::tuple{};
}
template <class Record, int... line>
constexpr auto fields_of(std::integer_sequence<int, line...>) {
  return std::tuple_cat(field_at<Record, Record::record_begin + line>()...);
}
template <class Type>
inline constexpr bool is_optional = false;
template <class Type>
inline constexpr bool is_optional<std::optional<Type>> = true;
template <class Type>
inline constexpr bool is_vector = false;
template <class Type>
inline constexpr bool is_vector<std::vector<Type>> = true;
/// Pairs of a name and a value: an object in JSON.
template <class Type>
concept Named = requires(const Type& value) {
  value.begin()->first.size();
};
}  // namespace record_detail

/// A std::tuple of Field, in the order of the file.
template <DescribedRecord Record>
inline constexpr auto fields = record_detail::fields_of<Record>(
    std::make_integer_sequence<int, Record::record_end - Record::record_begin>{});

template <DescribedRecord Record>
inline constexpr std::size_t field_count = std::tuple_size_v<std::remove_const_t<decltype(fields<Record>)>>;

/// Calls `visit` with each Field of the record.
template <DescribedRecord Record, class Visit>
constexpr void for_each_field(const Visit& visit) {
  std::apply([&](const auto&... field) { (visit(field), ...); }, fields<Record>);
}

/// "step, loss, loss_scale"
template <DescribedRecord Record>
std::string field_names() {
  std::string names;
  for_each_field<Record>(
      [&](const auto& field) { names.append(names.empty() ? "" : ", ").append(field.name); });
  return names;
}

/// May a record that some build wrote lack it?
template <DescribedRecord Record>
constexpr bool may_lack(const FieldTraits& traits) {
  return traits.since > Record::record_since || traits.left_out;
}

/// A description for people and programs. `type`: "flag" (true or false; 0 or 1 in CSV), "count" (a whole
/// number), "hash" (16 hex digits in CSV), "number", "text", "dtype", "histogram", "object", or the names
/// that it may be; with "list of" before it where there are several.
struct FieldDescription {
  std::string name{}, type{}, unit{}, help{};
  int since = 1;
  bool optional = false;  ///< a record may have no value of it
  bool curve = false;
};
struct RecordDescription {
  std::string file{}, help{};
  std::string what{};  ///< for a whole file: how it comes into being
  std::vector<FieldDescription> fields{};
};

template <class Type>
std::string type_text(const FieldTraits& traits = {}) {
  using namespace record_detail;
  if constexpr (is_optional<Type>)
    return type_text<typename Type::value_type>(traits);
  else if constexpr (std::is_same_v<Type, bool>)
    return "flag";
  else if constexpr (std::is_integral_v<Type>)
    return traits.hex ? "hash" : "count";
  else if constexpr (std::is_floating_point_v<Type>)
    return "number";
  else if constexpr (std::is_same_v<Type, std::string>)
    return traits.json ? "object" : "text";
  else if constexpr (std::is_same_v<Type, DType>)
    return "dtype";
  else if constexpr (NamedEnum<Type>)
    return known_names<Type>();
  else if constexpr (std::is_same_v<Type, ExponentHistogram>)
    return "histogram";
  else if constexpr (is_vector<Type> && !Named<Type>)
    return "list of " + type_text<typename Type::value_type>(traits);
  else
    return "object";
}

template <DescribedRecord Record>
RecordDescription description_of() {
  RecordDescription description{std::string(Record::record_file), std::string(Record::record_help)};
  for_each_field<Record>([&](const auto& field) {
    using Value = std::remove_cvref_t<decltype(std::invoke(field.member, std::declval<const Record&>()))>;
    description.fields.push_back(
        {.name = std::string(field.name),
         .type = type_text<Value>(field.traits),
         .unit = std::string(field.traits.unit),
         .help = std::string(field.help),
         .since = std::max(field.traits.since, Record::record_since),
         .optional = record_detail::is_optional<Value> || may_lack<Record>(field.traits),
         .curve = field.traits.curve});
  });
  return description;
}

/// All files of a run folder (run_schema.hpp), each followed by the records inside it: "culprits.jsonl:
/// operands". Those that are no tables have no fields.
std::vector<RecordDescription> described_records();

}  // namespace fp16lab
