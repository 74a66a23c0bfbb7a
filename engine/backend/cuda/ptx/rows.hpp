// How a row of the table becomes functions: a row of lanes has a lambda that computes one lane, and the
// letters of its operands say which C++ types the lambda gets. Only the types that the row's spelling lists
// are compiled.
//
// Lanes that are not active compute, too, and their results are dropped: every lambda is defined on all bits.
#pragma once

#include <tuple>
#include <type_traits>

#include "engine/backend/cuda/ptx/operations.hpp"
#include "engine/backend/cuda/ptx/table.hpp"
#include "engine/backend/cuda/ptx/warp.hpp"

namespace fp16lab::engine::ptx {

/// A literal as the argument of a template.
template <std::size_t size>
struct Text {
  char characters[size] = {};
  constexpr Text(const char (&text)[size]) { std::copy_n(text, size, characters); }  // NOLINT: implicit
  constexpr std::string_view view() const { return {characters, size - 1}; }
};

// ---- types ----

template <class T>
constexpr Type type_for{std::is_floating_point_v<T> ? 'f'
                        : std::is_signed_v<T>       ? 's'
                                                    : 'u',
                        std::is_same_v<T, bool> ? 1 : static_cast<int>(8 * sizeof(T))};

/// As what a value is computed: signed, as FP32 or FP64, or (and always where bits are asked for) unsigned.
constexpr Type computed_as(Type type, bool as_bits) {
  const bool is_number = type.kind == 's' || (type.kind == 'f' && type.bits > 16);
  return is_number && !as_bits ? type : Type{'u', type.bits};
}
constexpr bool operator==(Type a, Type b) { return a.kind == b.kind && a.bits == b.bits; }

/// visit(T{}) for the T of the list that `type` is computed as; it gives a handler.
template <class... T>
struct OneOf {
  template <class Visitor>
  static Handler visit(Type type, bool as_bits, Visitor&& visitor) {
    Handler found = nullptr;
    ((computed_as(type, as_bits) == type_for<T> ? (found = visitor(T{}), true) : false) || ...);
    return found;
  }
};
using LaneTypes = OneOf<bool, std::uint16_t, std::int16_t, std::uint32_t, std::int32_t, std::uint64_t,
                        std::int64_t, float, double>;
using UpdatedTypes = OneOf<std::uint32_t, std::int32_t, std::uint64_t, std::int64_t>;

/// The first or the last part of a spelling that lists types: those of the result, those of the sources.
constexpr std::string_view types_of(std::string_view spelling, bool last) {
  std::string_view found;
  while (!spelling.empty()) {
    const Part part = take_part(spelling);
    std::string_view words = part.words;
    if (type_of(take_word(words, ',')).kind != '?' && (last || found.empty())) found = part.words;
  }
  return found;
}
template <class T>
constexpr bool lists(std::string_view types, bool as_bits) {
  while (!types.empty())
    if (computed_as(type_of(take_word(types, ',')), as_bits) == type_for<T>) return true;
  return false;
}

// ---- lanes ----

/// What the lambda sees of a source: bits without a sign, none narrower than unsigned, so that they wrap.
template <class T, class Seen>
struct Values {
  const T* at;
  Seen operator[](int lane) const { return static_cast<Seen>(at[lane]); }
};
struct Choices {
  std::uint32_t mask;
  bool operator[](int lane) const { return (mask >> lane & 1) != 0; }
};
template <char letter, class T>
using ValueOf = typename std::conditional_t<
    letter == 'r' || letter == 'R', Same<std::uint32_t>,
    std::conditional_t<letter == 'w' || letter == 'W', TwiceOf<T>, Same<T>>>::type;

template <char letter, class T, bool as_bits>
auto source(Warp& warp, std::uint32_t operand) {
  using Value = ValueOf<letter, T>;
  if constexpr (letter == 'p')
    return Choices{warp.predicate(operand)};
  else if constexpr (as_bits)
    return Values<Value, Modular<Value>>{warp.values<Value>(operand)};
  else
    return Values<Value, Value>{warp.values<Value>(operand)};
}

template <Text operands, class Lambda, class To, class From, bool as_bits>
void lanewise(Warp& warp, const Instruction& instruction) {
  constexpr std::string_view letters = operands.view();
  constexpr bool on_masks = letters.find_first_not_of("Pp") == std::string_view::npos;
  const auto compute = [&]<std::size_t... i>(std::index_sequence<i...>) {
    const std::uint32_t result = instruction.operands[0];
    if constexpr (on_masks) {
      warp.assign_predicate(result, Lambda{}(warp.predicate(instruction.operands[i + 1])...));
    } else if constexpr (letters[0] == 'P') {
      const auto sources =
          std::make_tuple(source<letters[i + 1], From, as_bits>(warp, instruction.operands[i + 1])...);
      std::uint32_t bits = 0;
      for (int lane = 0; lane < lanes; ++lane)
        bits |= static_cast<std::uint32_t>(bool(Lambda{}(std::get<i>(sources)[lane]...))) << lane;
      warp.assign_predicate(result, bits);
    } else {
      const auto sources =
          std::make_tuple(source<letters[i + 1], From, as_bits>(warp, instruction.operands[i + 1])...);
      using Result = ValueOf<letters[0], To>;
      Result results[lanes];
      for (int lane = 0; lane < lanes; ++lane)
        results[lane] = as_result<Result>(Lambda{}(std::get<i>(sources)[lane]...));
      warp.assign(result, results);
    }
  };
  compute(std::make_index_sequence<letters.size() - 1>{});
}

template <Text spelling, Text operands, class Lambda, bool as_bits>
Handler bind_lanes(Instruction& instruction) {
  static constexpr std::string_view results = types_of(spelling.view(), false),
                                    sources = types_of(spelling.view(), true);
  return LaneTypes::visit(instruction.to, as_bits, [&](auto to) -> Handler {
    using To = decltype(to);
    if constexpr (!lists<To>(results, as_bits)) {
      return nullptr;
    } else if constexpr (results.data() == sources.data()) {
      return &lanewise<operands, Lambda, To, To, as_bits>;
    } else {
      return LaneTypes::visit(instruction.from, as_bits, [](auto from) -> Handler {
        using From = decltype(from);
        if constexpr (lists<From>(sources, as_bits))
          return &lanewise<operands, Lambda, To, From, as_bits>;
        else
          return nullptr;
      });
    }
  });
}

/// A row of lanes whose lambda gets numbers: signed or unsigned integers, FP32 or FP64, 16-bit formats as
/// their bits.
template <Text spelling, Text operands, class Lambda>
constexpr Row numbers(std::string_view clause, Lambda, FloatOperation on_terms = FloatOperation::none) {
  return {spelling.view(), operands.view(), clause, &bind_lanes<spelling, operands, Lambda, false>, on_terms};
}
/// A row of lanes whose lambda gets bits, as unsigned integers modulo a power of 2.
template <Text spelling, Text operands, class Lambda>
constexpr Row bits(std::string_view clause, Lambda) {
  return {spelling.view(), operands.view(), clause, &bind_lanes<spelling, operands, Lambda, true>};
}

// ---- memory that is read and written in one ----

/// Operands: the old value (atom alone), b, and c (cas alone). The lambda gives the new one.
template <class Lambda, class T>
void update(Warp& warp, const Instruction& instruction) {
  const auto& [result, b, c] =
      std::tie(instruction.operands[0], instruction.operands[1], instruction.operands[2]);
  for_each_lane(warp.active, [&](int lane) {
    std::byte* const place =
        warp.access(instruction.space, lane, warp.address(instruction.addresses[0], lane), sizeof(T),
                    {.writes = true, .is_strong = true});
    T old, made;
    std::memcpy(&old, place, sizeof(T));
    if constexpr (std::is_invocable_v<Lambda, T, T, T>)
      made = static_cast<T>(Lambda{}(old, warp.values<T>(b)[lane], warp.values<T>(c)[lane]));
    else
      made = static_cast<T>(Lambda{}(old, warp.values<T>(b)[lane]));
    std::memcpy(place, &made, sizeof(T));
    if (result != no_operand) warp.values<T>(result)[lane] = old;
  });
}

template <Text spelling, Text operands, class Lambda>
constexpr Row atomic(std::string_view clause, Lambda) {
  return {spelling.view(), operands.view(), clause, [](Instruction& instruction) {
            instruction.is_strong = true;
            return UpdatedTypes::visit(instruction.to, false,
                                       [](auto x) -> Handler { return &update<Lambda, decltype(x)>; });
          }};
}

// ---- everything else ----

/// The handler of a row that has one for all of its spellings.
template <Handler handler>
Handler always(Instruction&) {
  return handler;
}

template <class Lambda>
void set_special(const Block& block, std::uint32_t first_thread, std::uint32_t* values) {
  for (std::uint32_t lane = 0; lane < lanes; ++lane) values[lane] = Lambda{}(block, first_thread + lane);
}
template <class Lambda>
constexpr SpecialRegister special(std::string_view name, Lambda) {
  return {name, &set_special<Lambda>};
}

}  // namespace fp16lab::engine::ptx
