// Described records (numerics/files/run/record.hpp) as Python's values: columns of rows, and rows of
// dictionaries with their types.
#pragma once

#include <cxxabi.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <cstdlib>
#include <limits>
#include <memory>
#include <string>
#include <typeinfo>
#include <utility>
#include <vector>

#include "bindings.hpp"
#include "numerics/files/run/record.hpp"

namespace fp16lab::python {

/// A column of numbers, which Python then owns.
template <class T>
nanobind::object array_of(std::vector<T> values) {
  auto* held = new std::vector<T>(std::move(values));
  const nanobind::capsule owner(held,
                                [](void* column) noexcept { delete static_cast<std::vector<T>*>(column); });
  return nanobind::cast(
      nanobind::ndarray<nanobind::numpy, T, nanobind::ndim<1>>(held->data(), {held->size()}, owner));
}

template <class T>
nanobind::object to_python(const T& value) {
  if constexpr (record_detail::is_optional<T>) {
    return value ? to_python(*value) : nanobind::none();
  } else if constexpr (std::is_same_v<T, DType> || NamedEnum<T>) {
    return nanobind::cast(std::string(name_of(value)));
  } else if constexpr (DescribedRecord<T>) {
    nanobind::dict members;
    for_each_field<T>([&](const auto& field) {
      members[std::string(field.name).c_str()] = to_python(std::invoke(field.member, value));
    });
    return members;
  } else if constexpr (record_detail::is_vector<T>) {
    nanobind::list items;
    for (const auto& item : value) items.append(to_python(item));
    return items;
  } else {
    return nanobind::cast(value);
  }
}

/// What Python's type of to_python(T) is called: "float | None".
template <class T>
std::string python_type() {
  if constexpr (record_detail::is_optional<T>) {
    return python_type<typename T::value_type>() + " | None";
  } else if constexpr (record_detail::is_vector<T>) {
    return "list[" + python_type<typename T::value_type>() + "]";
  } else if constexpr (std::is_same_v<T, std::string> || std::is_same_v<T, DType>) {
    return "str";
  } else if constexpr (std::is_same_v<T, ExponentHistogram>) {
    return "Histogram";
  } else if constexpr (NamedEnum<T>) {
    std::string names;
    for (const std::string_view name : names_of(T{}))
      names.append(names.empty() ? "\"" : ", \"").append(name).append("\"");
    return "Literal[" + names + "]";
  } else if constexpr (DescribedRecord<T>) {
    const std::unique_ptr<char, decltype(&std::free)> name(
        abi::__cxa_demangle(typeid(T).name(), nullptr, nullptr, nullptr), &std::free);
    return std::string(name.get()).substr(std::string_view(name.get()).rfind(':') + 1);
  } else {
    static_assert(std::is_arithmetic_v<T>);
    return std::is_same_v<T, bool> ? "bool" : std::is_integral_v<T> ? "int" : "float";
  }
}

/// A TypedDict of to_python(Row), which names those of the records inside it.
template <DescribedRecord Row>
std::string typed_dict() {
  const std::string name = python_type<Row>();
  std::string text = name + " = TypedDict(\n    \"" + name + "\",\n    {\n";
  for_each_field<Row>([&](const auto& field) {
    using Value = std::remove_cvref_t<decltype(std::invoke(field.member, std::declval<const Row&>()))>;
    text.append("        \"").append(field.name).append("\": ").append(python_type<Value>());
    text.append(",  # ").append(field.help).append("\n");
  });
  return text + "    },\n)\n";
}

/// Whole numbers as uint64 (flags as uint8), other numbers and those that a row may lack as float64, there
/// NaN; lists of all else.
template <DescribedRecord Row>
nanobind::dict columns_of(const std::vector<Row>& rows) {
  nanobind::dict columns;
  for_each_field<Row>([&](const auto& field) {
    using Value = std::remove_cvref_t<decltype(std::invoke(field.member, rows.front()))>;
    const auto numbers = [&]<class T>(T, auto of) {
      std::vector<T> values;
      values.reserve(rows.size());
      for (const Row& row : rows) values.push_back(of(std::invoke(field.member, row)));
      return array_of(std::move(values));
    };
    nanobind::object column;
    if constexpr (std::is_same_v<Value, bool>) {
      column = numbers(std::uint8_t{}, [](bool value) { return static_cast<std::uint8_t>(value); });
    } else if constexpr (std::is_arithmetic_v<Value>) {
      column = numbers(Value{}, [](Value value) { return value; });
    } else if constexpr (std::is_same_v<Value, std::optional<double>> ||
                         std::is_same_v<Value, std::optional<std::uint64_t>>) {
      column = numbers(double{}, [](const Value& value) {
        return value ? static_cast<double>(*value) : std::numeric_limits<double>::quiet_NaN();
      });
    } else {
      nanobind::list values;
      for (const Row& row : rows) values.append(to_python(std::invoke(field.member, row)));
      column = values;
    }
    columns[std::string(field.name).c_str()] = column;
  });
  return columns;
}

template <DescribedRecord Row>
Row row_of(const nanobind::dict& members);

/// TypeError where it has another type, ValueError where it is not among the names that it may be.
template <class T>
T from_python(nanobind::handle value) {
  if constexpr (record_detail::is_optional<T>) {
    return value.is_none() ? T{} : T{from_python<typename T::value_type>(value)};
  } else if constexpr (std::is_same_v<T, DType>) {
    return format_of(nanobind::cast<std::string>(value));
  } else if constexpr (NamedEnum<T>) {
    const std::string name = nanobind::cast<std::string>(value);
    const std::optional<T> known = enumerator_called<T>(name);
    if (!known) throw std::invalid_argument("'" + name + "' is not known; known are " + known_names<T>());
    return *known;
  } else if constexpr (DescribedRecord<T>) {
    return row_of<T>(nanobind::cast<nanobind::dict>(value));
  } else if constexpr (requires(T list) { list.emplace_back(); } && !std::is_same_v<T, std::string>) {
    T list;
    for (const nanobind::handle item : value) list.push_back(from_python<typename T::value_type>(item));
    return list;
  } else {
    return nanobind::cast<T>(value);
  }
}

/// Makes a Row from a dictionary with its members' names. Missing members keep their defaults. ValueError for
/// unknown ones.
template <DescribedRecord Row>
Row row_of(const nanobind::dict& members) {
  Row row;
  for (const auto [key, value] : members) {
    const std::string name = nanobind::cast<std::string>(key);
    bool known = false;
    for_each_field<Row>([&, &value = value](const auto& field) {
      if constexpr (!std::remove_cvref_t<decltype(field)>::computed) {
        if (field.name != name) return;
        known = true;
        auto& member = row.*field.member;
        using Value = std::remove_cvref_t<decltype(member)>;
        try {
          member = from_python<Value>(value);
        } catch (const nanobind::cast_error&) {
          throw nanobind::type_error((name + " is not a " + type_text<Value>(field.traits)).c_str());
        }
      }
    });
    if (!known)
      throw std::invalid_argument(std::string(Row::record_file) + " has no '" + name + "'; known are " +
                                  field_names<Row>());
  }
  return row;
}

}  // namespace fp16lab::python
