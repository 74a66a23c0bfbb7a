// Floating point (PTX ISA 9.7.3), comparisons (9.7.6) and conversions (9.7.9, "cvt").
//
// NaN. FP32: "Single-precision instructions return an unspecified NaN": here the canonical one, 7fffffff. FP64 supports
// payloads, and leaves open which of two NaNs wins and which one is made: here the host's rule, the first operand's,
// quiet, and fff8000000000000. min and max give the other operand for a NaN, the canonical NaN for two, and take -0 for
// less than +0. No instruction here flushes subnormals.
#include <bit>
#include <cmath>
#include <limits>

#include "engine/backend/cuda/ptx/handlers.hpp"
#include "engine/backend/cuda/ptx/lanewise.hpp"
#include "engine/backend/cuda/ptx/table.hpp"

namespace fp16lab::engine::ptx {

std::string_view name_of(FloatOperation operation) {
  constexpr std::string_view names[] = {"add", "sub", "mul", "fma", "div",     "sqrt",
                                        "rcp", "min", "max", "neg", "convert", "compare"};
  return names[static_cast<std::size_t>(operation)];
}

namespace {

constexpr FloatOperation add = FloatOperation::add, sub = FloatOperation::sub, mul = FloatOperation::mul,
                         fma = FloatOperation::fma, div = FloatOperation::div, sqrt = FloatOperation::sqrt,
                         rcp = FloatOperation::rcp, min = FloatOperation::min, max = FloatOperation::max,
                         neg = FloatOperation::neg;

float canonical(float x) { return x == x ? x : std::bit_cast<float>(0x7fffffffu); }
double canonical(double x) { return x; }
template <class T>
T canonical_nan() {
  if constexpr (sizeof(T) == 4)
    return std::bit_cast<float>(0x7fffffffu);
  else
    return std::bit_cast<double>(0x7fffffffffffffffu);
}

template <FloatOperation operation>
struct Numbers {
  template <class T>
  static T of(T a) {
    if constexpr (operation == sqrt) return canonical(std::sqrt(a));
    if constexpr (operation == rcp) return canonical(T(1) / a);
    return canonical(-a);
  }
  template <class T>
  static T of(T a, T b) {
    if constexpr (operation == add) return canonical(a + b);
    if constexpr (operation == sub) return canonical(a - b);
    if constexpr (operation == mul) return canonical(a * b);
    if constexpr (operation == div) return canonical(a / b);
    if (a != a) return b != b ? canonical_nan<T>() : b;
    if (b != b) return a;
    const bool first_is_less = a < b || (a == b && std::signbit(a));
    return first_is_less == (operation == min) ? a : b;
  }
  template <class T>
  static T of(T a, T b, T c) {
    return canonical(std::fma(a, b, c));
  }
};

template <FloatOperation operation, class T, int sources>
void on_terms(Warp& warp, const Instruction& instruction) {
  using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
  constexpr Type type{'f', 8 * sizeof(T)};
  Bits results[lanes] = {};
  for_each_lane(warp.active, [&](int lane) {
    std::uint64_t operands[3] = {};
    for (std::size_t i = 0; i < sources; ++i)
      operands[i] = warp.values<Bits>(instruction.operands[i + 1])[lane];
    try {
      results[lane] = static_cast<Bits>(warp.block->options->arithmetic->operate(
          operation, type, type, operands[0], operands[1], operands[2]));
    } catch (const std::invalid_argument& error) {
      warp.fail(lane, error.what());
    }
  });
  warp.assign(instruction.operands[0], results);
}

template <FloatOperation operation, int sources>
void bind(Form& form) {
  const auto with = [&]<class T>(T) {
    form.on_terms = &on_terms<operation, T, sources>;
    if constexpr (sources == 1) form.handler = &lanewise<Numbers<operation>, T, T>;
    if constexpr (sources == 2) form.handler = &lanewise<Numbers<operation>, T, T, T>;
    if constexpr (sources == 3) form.handler = &lanewise<Numbers<operation>, T, T, T, T>;
  };
  form.type.bits == 32 ? with(float{}) : with(double{});
}

// ---- comparisons ----

struct Equal {
  template <class T>
  static bool of(T a, T b) {
    return a == b;
  }
};
struct NotEqual {
  template <class T>
  static bool of(T a, T b) {
    return (a < b) | (a > b);
  }
};  // false for a NaN
struct Less {
  template <class T>
  static bool of(T a, T b) {
    return a < b;
  }
};
struct LessOrEqual {
  template <class T>
  static bool of(T a, T b) {
    return a <= b;
  }
};
struct Greater {
  template <class T>
  static bool of(T a, T b) {
    return a > b;
  }
};
struct GreaterOrEqual {
  template <class T>
  static bool of(T a, T b) {
    return a >= b;
  }
};
struct IsNumber {
  template <class T>
  static bool of(T a, T b) {
    return (a == a) & (b == b);
  }
};
/// The unordered variant: true for a NaN, too.
template <class Ordered>
struct OrUnordered {
  template <class T>
  static bool of(T a, T b) {
    return Ordered::of(a, b) | (a != a) | (b != b);
  }
};
struct IsNan {
  template <class T>
  static bool of(T a, T b) {
    return (a != a) | (b != b);
  }
};

template <class T>
void compare_terms(Warp& warp, const Instruction& instruction) {
  using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
  std::uint32_t bits = 0;
  for_each_lane(warp.active, [&](int lane) {
    try {
      const std::uint64_t result =
          warp.block->options->arithmetic->operate(FloatOperation::compare, {'p', 1}, {'f', 8 * sizeof(T)},
                                                   warp.values<Bits>(instruction.operands[1])[lane],
                                                   warp.values<Bits>(instruction.operands[2])[lane], 0);
      bits |= static_cast<std::uint32_t>(result & 1) << lane;
    } catch (const std::invalid_argument& error) {
      warp.fail(lane, error.what());
    }
  });
  warp.assign_predicate(instruction.operands[0], bits);
}

template <class T>
Handler comparison(std::string_view name) {
  if (name == "eq") return &compare<Equal, T>;
  if (name == "ne") return &compare<NotEqual, T>;
  if (name == "lt" || name == "lo") return &compare<Less, T>;
  if (name == "le" || name == "ls") return &compare<LessOrEqual, T>;
  if (name == "gt" || name == "hi") return &compare<Greater, T>;
  if (name == "ge" || name == "hs") return &compare<GreaterOrEqual, T>;
  if constexpr (std::is_floating_point_v<T>) {
    if (name == "equ") return &compare<OrUnordered<Equal>, T>;
    if (name == "neu") return &compare<OrUnordered<NotEqual>, T>;
    if (name == "ltu") return &compare<OrUnordered<Less>, T>;
    if (name == "leu") return &compare<OrUnordered<LessOrEqual>, T>;
    if (name == "gtu") return &compare<OrUnordered<Greater>, T>;
    if (name == "geu") return &compare<OrUnordered<GreaterOrEqual>, T>;
    if (name == "num") return &compare<IsNumber, T>;
    if (name == "nan") return &compare<IsNan, T>;
  }
  return nullptr;
}

// ---- conversions ----

/// FP32 rounded to nearest even to a format of 16 bits, by its definition: the significand as an integer loses bits
/// below the format's last place. Overflow gives infinity, a NaN 7fff.
template <int exponent_bits>
std::uint16_t rounded(float x) {
  constexpr int fraction_bits = 15 - exponent_bits, bias = (1 << (exponent_bits - 1)) - 1;
  constexpr std::uint32_t infinity = ((1u << exponent_bits) - 1) << fraction_bits;
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return 0x7fff;
  if (magnitude == 0x7f800000) return static_cast<std::uint16_t>(sign | infinity);
  const int biased = static_cast<int>(magnitude >> 23);
  const std::uint32_t significand = (magnitude & 0x7fffff) | (biased != 0 ? 0x800000 : 0);
  const int exponent = (biased != 0 ? biased : 1) - 127;
  // The number is significand * 2^(exponent - 23). What the format's unit at this exponent drops of it:
  const int least = 1 - bias, dropped = 23 - fraction_bits + (exponent < least ? least - exponent : 0);
  if (dropped > 25) return static_cast<std::uint16_t>(sign);
  const std::uint32_t unit = 1u << dropped, rest = significand & (unit - 1), half = unit / 2;
  std::uint32_t kept = significand >> dropped;
  if (rest > half || (rest == half && (kept & 1) != 0)) ++kept;
  // A carry goes on into the exponent; a subnormal's is 0.
  const int field = exponent < least ? 0 : exponent + bias;
  const std::uint32_t result =
      field == 0 ? kept : (static_cast<std::uint32_t>(field - 1) << fraction_bits) + kept;
  return static_cast<std::uint16_t>(sign | (result < infinity ? result : infinity));
}

/// Exact.
template <int exponent_bits>
float widened(std::uint16_t x) {
  constexpr int fraction_bits = 15 - exponent_bits, bias = (1 << (exponent_bits - 1)) - 1;
  const int field = x >> fraction_bits & ((1 << exponent_bits) - 1),
            fraction = x & ((1 << fraction_bits) - 1);
  float result = 0;
  if (field == (1 << exponent_bits) - 1)
    result = fraction != 0 ? canonical_nan<float>() : std::numeric_limits<float>::infinity();
  else if (field == 0)
    result = std::ldexp(static_cast<float>(fraction), 1 - bias - fraction_bits);
  else
    result = std::ldexp(static_cast<float>(fraction | 1 << fraction_bits), field - bias - fraction_bits);
  return (x & 0x8000) != 0 && result == result ? -result : result;
}

struct ToHalf {
  static std::uint16_t of(float x) { return rounded<5>(x); }
};
struct ToBfloat {
  static std::uint16_t of(float x) { return rounded<8>(x); }
};
struct FromHalf {
  static float of(std::uint16_t x) { return widened<5>(x); }
};
struct FromBfloat {
  static float of(std::uint16_t x) { return widened<8>(x); }
};
template <class To>
struct ToFloat {
  template <class T>
  static To of(T x) {
    return canonical(static_cast<To>(x));
  }
};
/// Clamped to what the type holds; a NaN gives 0.
template <class To, bool to_nearest>
struct ToInteger {
  template <class T>
  static To of(T x) {
    if (x != x) return 0;
    const T whole = to_nearest ? std::nearbyint(x) : std::trunc(x);
    if (whole >= std::ldexp(T(1), std::numeric_limits<To>::digits)) return std::numeric_limits<To>::max();
    if (whole <= static_cast<T>(std::numeric_limits<To>::min())) return std::numeric_limits<To>::min();
    return static_cast<To>(whole);
  }
};

struct Extend {
  template <class T>
  static T of(T x) {
    return x;
  }
};

/// Integer to integer: the low bits of the source as its type says, extended or cut. Registers may be wider than the
/// types; then the result is extended to its register by its own sign.
void convert_integer(Warp& warp, const Instruction& instruction) {
  const auto code = static_cast<std::uint64_t>(instruction.constant);
  const unsigned to_bits = code & 0xff, from_bits = code >> 8 & 0xff, to_register = code >> 16 & 0xff,
                 from_register = code >> 24 & 0xff;
  const bool to_signed = (code >> 32 & 1) != 0, from_signed = (code >> 33 & 1) != 0;
  const auto extended = [](std::uint64_t x, unsigned bits, bool is_signed) {
    const unsigned rest = 64 - bits;
    return is_signed ? static_cast<std::uint64_t>(static_cast<std::int64_t>(x << rest) >> rest)
                     : x << rest >> rest;
  };
  std::uint64_t wide[lanes];
  const auto load = [&](auto zero) {
    const auto* const from = warp.values<decltype(zero)>(instruction.operands[1]);
    for (int lane = 0; lane < lanes; ++lane)
      wide[lane] = extended(extended(from[lane], from_bits, from_signed), to_bits, to_signed);
  };
  from_register == 16   ? load(std::uint16_t{})
  : from_register == 32 ? load(std::uint32_t{})
                        : load(std::uint64_t{});
  const auto store = [&](auto zero) {
    decltype(zero) results[lanes];
    for (int lane = 0; lane < lanes; ++lane) results[lane] = static_cast<decltype(zero)>(wide[lane]);
    warp.assign(instruction.operands[0], results);
  };
  to_register == 16   ? store(std::uint16_t{})
  : to_register == 32 ? store(std::uint32_t{})
                      : store(std::uint64_t{});
}

Type unpacked(std::int64_t code, int shift) {
  return {static_cast<char>(code >> shift & 0xff), static_cast<int>(code >> (shift + 8) & 0xff)};
}

/// `constant` has the types.
void convert_terms(Warp& warp, const Instruction& instruction) {
  const Type to = unpacked(instruction.constant, 0), from = unpacked(instruction.constant, 16);
  const auto read = [&](int lane) -> std::uint64_t {
    if (from.bits == 16) return warp.values<std::uint16_t>(instruction.operands[1])[lane];
    if (from.bits == 32) return warp.values<std::uint32_t>(instruction.operands[1])[lane];
    return warp.values<std::uint64_t>(instruction.operands[1])[lane];
  };
  std::uint64_t results[lanes] = {};
  for_each_lane(warp.active, [&](int lane) {
    try {
      results[lane] =
          warp.block->options->arithmetic->operate(FloatOperation::convert, to, from, read(lane), 0, 0);
    } catch (const std::invalid_argument& error) {
      warp.fail(lane, error.what());
    }
  });
  const auto store = [&](auto zero) {
    decltype(zero) narrow[lanes];
    for (int lane = 0; lane < lanes; ++lane) narrow[lane] = static_cast<decltype(zero)>(results[lane]);
    warp.assign(instruction.operands[0], narrow);
  };
  to.bits == 16 ? store(std::uint16_t{}) : to.bits == 32 ? store(std::uint32_t{}) : store(std::uint64_t{});
}

template <class To>
Handler to_float(Type from) {
  if (from.kind == 'f') {
    if (from.bits == 64) return &lanewise<ToFloat<To>, To, double>;
    return &lanewise<ToFloat<To>, To, float>;
  }
  return with_integer(from, [](auto x) -> Handler {
    using T = RegisterOf<decltype(x)>;
    return &lanewise<ToFloat<To>, To, T>;
  });
}
template <bool to_nearest>
Handler to_integer(Type to, Type from) {
  return with_integer(to, [&](auto x) -> Handler {
    using T = RegisterOf<decltype(x)>;
    if (from.bits == 32) return &lanewise<ToInteger<T, to_nearest>, T, float>;
    return &lanewise<ToInteger<T, to_nearest>, T, double>;
  });
}

}  // namespace

Handler integer_conversion_handler() { return &convert_integer; }

void bind_float(Form& form, std::string_view name) {
  if (name == "add") bind<add, 2>(form);
  if (name == "sub") bind<sub, 2>(form);
  if (name == "mul") bind<mul, 2>(form);
  if (name == "div") bind<div, 2>(form);
  if (name == "min") bind<min, 2>(form);
  if (name == "max") bind<max, 2>(form);
  if (name == "fma") bind<fma, 3>(form);
  if (name == "sqrt") bind<sqrt, 1>(form);
  if (name == "rcp") bind<rcp, 1>(form);
  if (name == "neg") bind<neg, 1>(form);
}

void bind_compare(Form& form) {
  const std::string_view name = form.parts[0];
  if (form.type.kind == 'f') {
    form.handler = form.type.bits == 32 ? comparison<float>(name) : comparison<double>(name);
    form.on_terms = form.type.bits == 32 ? &compare_terms<float> : &compare_terms<double>;
    return;
  }
  form.handler =
      with_integer(form.type, [&](auto x) -> Handler { return comparison<RegisterOf<decltype(x)>>(name); });
}

void bind_convert(Form& form) {
  const std::string_view rounding = form.parts[0];
  const Type to = type_of(form.parts[1]), from = type_of(form.parts[2]);
  const auto is_integer = [](Type type) { return type.kind == 'u' || type.kind == 's'; };
  if (is_integer(to) && is_integer(from)) {
    // The usual case: registers as wide as their types. The decoder knows which.
    form.handler = with_integer(from, [&](auto x) -> Handler {
      using From = RegisterOf<decltype(x)>;
      if (to.bits == 64) return &lanewise<Extend, std::uint64_t, From>;
      if (to.bits == 32) return &lanewise<Extend, std::uint32_t, From>;
      return &lanewise<Extend, std::uint16_t, From>;
    });
    return;
  }
  form.on_terms = &convert_terms;
  if (to.bits == 16)
    form.handler =
        to.kind == 'h' ? &lanewise<ToBfloat, std::uint16_t, float> : &lanewise<ToHalf, std::uint16_t, float>;
  else if (from.bits == 16 && !is_integer(from))
    form.handler = from.kind == 'h' ? &lanewise<FromBfloat, float, std::uint16_t>
                                    : &lanewise<FromHalf, float, std::uint16_t>;
  else if (is_integer(to))
    form.handler = rounding == "rni" ? to_integer<true>(to, from) : to_integer<false>(to, from);
  else
    form.handler = to.bits == 32 ? to_float<float>(from) : to_float<double>(from);
}

}  // namespace fp16lab::engine::ptx
