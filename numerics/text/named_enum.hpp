// Enumerations whose values have names.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

namespace fp16lab {

/// An enumeration whose values are 0, 1, ... and have names, in files or for people: names_of(value) is all
/// of them, in an array. A namespace with its own name_of says `using fp16lab::name_of` beside it.
template <class Enum>
concept NamedEnum = std::is_enum_v<Enum> && requires(Enum value) {
  names_of(value).size();
};

template <NamedEnum Enum>
constexpr std::string_view name_of(Enum value) {
  return names_of(value)[static_cast<std::size_t>(value)];
}
/// All of them, in the order of the enumeration.
template <NamedEnum Enum>
inline constexpr auto every = [] {
  std::array<Enum, names_of(Enum{}).size()> all{};
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<Enum>(i);
  return all;
}();
template <NamedEnum Enum>
constexpr std::optional<Enum> enumerator_called(std::string_view name) {
  const auto& names = names_of(Enum{});
  for (std::size_t i = 0; i < names.size(); ++i)
    if (names[i] == name) return static_cast<Enum>(i);
  return std::nullopt;
}
/// "gradient, loss, both"
template <NamedEnum Enum>
std::string known_names() {
  std::string names;
  for (const std::string_view name : names_of(Enum{})) names.append(names.empty() ? "" : ", ").append(name);
  return names;
}

}  // namespace fp16lab
