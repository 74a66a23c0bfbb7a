// How messages and tables show the values of TOML files.
#pragma once

#include <fmt/core.h>

#include <sstream>
#include <string>

#include <toml++/toml.h>

namespace fp16lab {

/// The shortest decimal that reads back to the same double, as TOML tells reals from integers: by a point or an exponent.
inline std::string real_text(double value) {
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

/// A value as TOML has it, its reals as real_text; a string with its quotes.
inline std::string toml_text(const toml::node& node) {
  if (const auto* real = node.as_floating_point()) return real_text(real->get());
  if (const toml::array* array = node.as_array()) {
    std::string list;
    for (const toml::node& item : *array) list += (list.empty() ? "" : ", ") + toml_text(item);
    return list.empty() ? "[]" : "[ " + list + " ]";
  }
  std::ostringstream text;
  node.visit([&text](const auto& value) { text << value; });
  return text.str();
}

}  // namespace fp16lab
