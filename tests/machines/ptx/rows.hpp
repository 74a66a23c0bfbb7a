// How a row of the table becomes functions: a row of lanes has a lambda that computes one lane, and the
// letters of its operands say which C++ types the lambda gets. Only the types that the row's spelling lists
// are compiled.
//
// Lanes that are not active compute, too, and their results are dropped: every lambda is defined on all bits.
#pragma once

#include <tuple>
#include <type_traits>

#include "tests/machines/ptx/operations.hpp"
#include "tests/machines/ptx/table.hpp"
#include "tests/machines/ptx/warp.hpp"

namespace fp16lab::engine::ptx {

/// A literal as the argument of a template.
template <std::size_t size>
struct Text {
  char characters[size] = {};
  constexpr Text(const char (&text)[size]) { std::copy_n(text, size, characters); }  // NOLINT: implicit
  constexpr std::string_view view() const { return {characters, size - 1}; }
};

// ---- spellings ----

/// Takes the first of several words off a list.
constexpr std::string_view take_word(std::string_view& list, char separator) {
  // No find(): with -fsanitize=undefined GCC 12 does not take it for a constant.
  const auto end = static_cast<std::size_t>(std::find(list.begin(), list.end(), separator) - list.begin());
  const std::string_view word = list.substr(0, end);
  list.remove_prefix(std::min(end + 1, list.size()));
  return word;
}

/// A part of a row's spelling: the words that may be there, with commas between them.
struct Part {
  std::string_view words;
  bool is_optional = false;
};
constexpr Part take_part(std::string_view& spelling) {
  Part part{take_word(spelling, '.')};
  part.is_optional = part.words.ends_with('?');
  if (part.is_optional) part.words.remove_suffix(1);
  if (part.words.starts_with('{')) part.words = part.words.substr(1, part.words.size() - 2);
  return part;
}
/// Is there a word of the list for which this holds?
template <class Test>
constexpr bool any_word(std::string_view words, Test&& test) {
  while (!words.empty())
    if (test(take_word(words, ','))) return true;
  return false;
}

// ---- types ----

/// The type in which a value is computed: signed, FP32 or FP64, or (and always for bits) unsigned.
constexpr Type computed_as(Type type, bool as_bits) {
  const bool is_number = type.kind == 's' || (type.kind == 'f' && type.bits > 16);
  return is_number && !as_bits ? type : Type{'u', type.bits};
}
template <class T>
constexpr Type type_for{std::is_floating_point_v<T> ? 'f'
                        : std::is_signed_v<T>       ? 's'
                                                    : 'u',
                        std::is_same_v<T, bool> ? 1 : static_cast<int>(8 * sizeof(T))};

/// visit(T{}) for the T of the list that is of this type; it gives a handler.
template <class... T>
struct OneOf {
  template <class Visitor>
  static Handler visit(Type type, Visitor&& visitor) {
    Handler found = nullptr;
    ((type == type_for<T> ? (found = visitor(T{}), true) : false) || ...);
    return found;
  }
};
using LaneTypes = OneOf<bool, std::uint16_t, std::int16_t, std::uint32_t, std::int32_t, std::uint64_t,
                        std::int64_t, float, double>;
using UpdatedTypes = OneOf<std::uint32_t, std::int32_t, std::uint64_t, std::int64_t>;
using MemoryTypes = OneOf<std::uint8_t, std::int8_t, std::uint16_t, std::int16_t, std::uint32_t, std::int32_t,
                          std::uint64_t, std::int64_t>;
using RegisterTypes = OneOf<std::uint16_t, std::uint32_t, std::uint64_t>;

/// The first or the last part of a spelling that lists types: those of the result, those of the sources.
constexpr std::string_view types_of(std::string_view spelling, bool last) {
  std::string_view found;
  while (!spelling.empty()) {
    const Part part = take_part(spelling);
    const bool is_type = any_word(part.words, [](auto word) { return type_of(word).kind != '?'; });
    if (is_type && (last || found.empty())) found = part.words;
  }
  return found;
}
template <class T>
constexpr bool lists(std::string_view types, bool as_bits) {
  return any_word(types, [&](auto word) { return computed_as(type_of(word), as_bits) == type_for<T>; });
}

// ---- lanes ----

/// An operand of this letter holds so many of these.
template <char letter, class T>
constexpr auto value_of() {
  if constexpr (letter == 'r' || letter == 'R')
    return std::uint32_t{};
  else if constexpr (letter == 'w' || letter == 'W')
    return widened(T{});
  else
    return T{};
}
/// An operand's values, by lane.
template <char letter, class T>
auto source(Warp& warp, std::uint32_t operand) {
  if constexpr (letter == 'p')
    return [mask = warp.predicate(operand)](int lane) { return (mask >> lane & 1) != 0; };
  else
    return
        [values = warp.values<decltype(value_of<letter, T>())>(operand)](int lane) { return values[lane]; };
}

template <Text operands, class Lambda, class To, class From>
void lanewise(Warp& warp, const Instruction& instruction) {
  static constexpr std::string_view letters = operands.view();
  const auto& at = instruction.operands;
  const auto compute_all = [&]<std::size_t... i>(std::index_sequence<i...>) {
    if constexpr (letters.find_first_not_of("Pp") == std::string_view::npos) {
      warp.assign_predicate(at[0], Lambda{}(warp.predicate(at[i + 1])...));
    } else {
      const auto sources = std::make_tuple(source<letters[i + 1], From>(warp, at[i + 1])...);
      const auto compute = [&](int lane) { return Lambda{}(std::get<i>(sources)(lane)...); };
      if constexpr (letters[0] == 'P') {
        std::uint32_t choices = 0;
        for (int lane = 0; lane < lanes; ++lane)
          choices |= static_cast<std::uint32_t>(bool(compute(lane))) << lane;
        warp.assign_predicate(at[0], choices);
      } else {
        using Result = decltype(value_of<letters[0], To>());
        Result results[lanes];
        for (int lane = 0; lane < lanes; ++lane) results[lane] = as_result<Result>(compute(lane));
        warp.assign(at[0], results);
      }
    }
  };
  compute_all(std::make_index_sequence<letters.size() - 1>{});
}

template <Text spelling, Text operands, class Lambda, bool as_bits>
Handler bind(Instruction& instruction) {
  static constexpr std::string_view results = types_of(spelling.view(), false),
                                    sources = types_of(spelling.view(), true);
  return LaneTypes::visit(computed_as(instruction.to, as_bits), [&](auto to) -> Handler {
    using To = decltype(to);
    if constexpr (!lists<To>(results, as_bits))
      return nullptr;
    else if constexpr (results.data() == sources.data())
      return &lanewise<operands, Lambda, To, To>;
    else
      return LaneTypes::visit(computed_as(instruction.from, as_bits), [](auto from) -> Handler {
        if constexpr (lists<decltype(from)>(sources, as_bits))
          return &lanewise<operands, Lambda, To, decltype(from)>;
        else
          return nullptr;
      });
  });
}

/// A row of lanes whose lambda gets numbers: signed or unsigned integers, FP32 or FP64, 16-bit formats as
/// their bits.
template <Text spelling, Text operands, class Lambda>
constexpr Row numbers(std::string_view clause, Lambda) {
  return {spelling.view(), operands.view(), clause, nullptr, &bind<spelling, operands, Lambda, false>, true};
}
/// A row of lanes whose lambda gets bits, as unsigned integers.
template <Text spelling, Text operands, class Lambda>
constexpr Row bits(std::string_view clause, Lambda) {
  return {spelling.view(), operands.view(), clause, nullptr, &bind<spelling, operands, Lambda, true>};
}

}  // namespace fp16lab::engine::ptx
