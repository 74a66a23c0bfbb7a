// Integers, bits and predicates (PTX ISA 9.7.1, 9.7.6, 9.7.8).
#include <bit>
#include <limits>

#include "engine/backend/cuda/ptx/lanewise.hpp"
#include "engine/backend/cuda/ptx/table.hpp"

namespace fp16lab::engine::ptx {

namespace {

__extension__ using Int128 = __int128;
__extension__ using Unsigned128 = unsigned __int128;

/// Wide enough that no product of 16-bit numbers overflows an int.
template <class T>
using Modular = std::common_type_t<std::make_unsigned_t<T>, unsigned>;
template <class T>
constexpr Modular<T> modular(T x) {
  return static_cast<Modular<T>>(x);
}
template <class T>
struct TwiceOf;
template <>
struct TwiceOf<std::int16_t> {
  using Wide = std::int32_t;
};
template <>
struct TwiceOf<std::uint16_t> {
  using Wide = std::uint32_t;
};
template <>
struct TwiceOf<std::int32_t> {
  using Wide = std::int64_t;
};
template <>
struct TwiceOf<std::uint32_t> {
  using Wide = std::uint64_t;
};
template <>
struct TwiceOf<std::int64_t> {
  using Wide = Int128;
};
template <>
struct TwiceOf<std::uint64_t> {
  using Wide = Unsigned128;
};
template <class T>
using Wide = typename TwiceOf<T>::Wide;

struct Add {
  template <class T>
  static T of(T a, T b) {
    return static_cast<T>(modular(a) + modular(b));
  }
};
struct Sub {
  template <class T>
  static T of(T a, T b) {
    return static_cast<T>(modular(a) - modular(b));
  }
};
struct MulLo {
  template <class T>
  static T of(T a, T b) {
    return static_cast<T>(modular(a) * modular(b));
  }
};
struct MulHi {
  template <class T>
  static T of(T a, T b) {
    return static_cast<T>((Wide<T>(a) * Wide<T>(b)) >> (8 * sizeof(T)));
  }
};
struct MulWide {
  template <class T>
  static Wide<T> of(T a, T b) {
    return Wide<T>(a) * Wide<T>(b);
  }
};
struct MadLo {
  template <class T>
  static T of(T a, T b, T c) {
    return static_cast<T>(modular(a) * modular(b) + modular(c));
  }
};
struct MadWide {
  template <class T>
  static Wide<T> of(T a, T b, Wide<T> c) {
    return Add::of<Wide<T>>(Wide<T>(a) * Wide<T>(b), c);
  }
};
// Division by zero gives an unspecified value (9.7.1.7): all ones. The least number by -1 overflows to itself.
struct Div {
  template <class T>
  static T of(T a, T b) {
    if (b == 0) return static_cast<T>(-1);
    if constexpr (std::is_signed_v<T>)
      if (b == T(-1)) return Sub::of(T(0), a);
    return static_cast<T>(a / b);
  }
};
struct Rem {
  template <class T>
  static T of(T a, T b) {
    if (b == 0) return static_cast<T>(-1);
    if constexpr (std::is_signed_v<T>)
      if (b == T(-1)) return 0;
    return static_cast<T>(a % b);
  }
};
struct Min {
  template <class T>
  static T of(T a, T b) {
    return a < b ? a : b;
  }
};
struct Max {
  template <class T>
  static T of(T a, T b) {
    return a < b ? b : a;
  }
};
struct Neg {
  template <class T>
  static T of(T a) {
    return Sub::of(T(0), a);
  }
};
struct Abs {
  template <class T>
  static T of(T a) {
    return a < 0 ? Neg::of(a) : a;
  }
};
struct And {
  template <class T>
  static T of(T a, T b) {
    return static_cast<T>(a & b);
  }
};
struct Or {
  template <class T>
  static T of(T a, T b) {
    return static_cast<T>(a | b);
  }
};
struct Xor {
  template <class T>
  static T of(T a, T b) {
    return static_cast<T>(a ^ b);
  }
};
struct Not {
  template <class T>
  static T of(T a) {
    return static_cast<T>(~a);
  }
};
struct Move {
  template <class T>
  static T of(T a) {
    return a;
  }
};
// Amounts beyond the width are clamped to it (9.7.8.8, 9.7.8.9); an arithmetic shift then leaves the sign.
struct Shl {
  template <class T>
  static T of(T a, std::uint32_t by) {
    return by >= 8 * sizeof(T) ? T(0) : static_cast<T>(modular(a) << by);
  }
};
struct Shr {
  template <class T>
  static T of(T a, std::uint32_t by) {
    constexpr std::uint32_t width = 8 * sizeof(T);
    if constexpr (std::is_signed_v<T>) return static_cast<T>(a >> (by < width ? by : width - 1));
    return by >= width ? T(0) : static_cast<T>(a >> by);
  }
};
struct Clz {
  template <class T>
  static std::uint32_t of(T a) {
    return static_cast<std::uint32_t>(std::countl_zero(a));
  }
};
struct Popc {
  template <class T>
  static std::uint32_t of(T a) {
    return static_cast<std::uint32_t>(std::popcount(a));
  }
};
struct Brev {
  template <class T>
  static T of(T a) {
    T result = 0;
    for (unsigned i = 0; i < 8 * sizeof(T); ++i)
      result = static_cast<T>(result | ((a >> i & 1) << (8 * sizeof(T) - 1 - i)));
    return result;
  }
};
/// 9.7.8.3: field `a` of so many bits goes into b at a position; position and length count modulo 256.
struct Bfi {
  template <class T>
  static T of(T a, T b, std::uint32_t position, std::uint32_t length) {
    position &= 0xff;
    length &= 0xff;
    T result = b;
    for (std::uint32_t i = 0; i < length && position + i < 8 * sizeof(T); ++i) {
      const T bit = static_cast<T>(T(1) << (position + i));
      result = static_cast<T>((result & ~bit) | ((a >> i & 1) != 0 ? bit : T(0)));
    }
    return result;
  }
};
/// 9.7.8.5, .clamp: ones from bit a on, b of them.
struct Bmsk {
  static std::uint32_t of(std::uint32_t position, std::uint32_t count) {
    if (position >= 32) return 0;
    const std::uint32_t width = count < 32 - position ? count : 32 - position;
    return static_cast<std::uint32_t>(((std::uint64_t{1} << width) - 1) << position);
  }
};
/// 9.7.9.7: each of four selectors of 4 bits takes a byte of {b, a}; its high bit takes the byte's sign.
struct Prmt {
  static std::uint32_t of(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
    const std::uint64_t both = std::uint64_t{b} << 32 | a;
    std::uint32_t result = 0;
    for (unsigned i = 0; i < 4; ++i) {
      const std::uint32_t selector = c >> (4 * i) & 0xf;
      auto byte = static_cast<std::uint32_t>(both >> (8 * (selector & 7)) & 0xff);
      if ((selector & 8) != 0) byte = (byte & 0x80) != 0 ? 0xff : 0;
      result |= byte << (8 * i);
    }
    return result;
  }
};

template <class T>
void select(Warp& warp, const Instruction& instruction) {
  const T* const a = warp.values<T>(instruction.operands[1]);
  const T* const b = warp.values<T>(instruction.operands[2]);
  const std::uint32_t choice = warp.predicate(instruction.operands[3]);
  T results[lanes];
  for (int lane = 0; lane < lanes; ++lane) results[lane] = (choice >> lane & 1) != 0 ? a[lane] : b[lane];
  warp.assign(instruction.operands[0], results);
}

/// Predicates are whole masks.
template <class Operation>
void on_predicates(Warp& warp, const Instruction& instruction) {
  const std::uint32_t a = warp.predicate(instruction.operands[1]);
  if constexpr (requires { Operation::of(a); })
    warp.assign_predicate(instruction.operands[0], Operation::of(a));
  else
    warp.assign_predicate(instruction.operands[0], Operation::of(a, warp.predicate(instruction.operands[2])));
}

template <class Operation>
Handler binary(Type type) {
  return with_integer(type, [](auto x) -> Handler {
    using T = RegisterOf<decltype(x)>;
    return &lanewise<Operation, T, T, T>;
  });
}
template <class Operation>
Handler unary(Type type) {
  return with_integer(type, [](auto x) -> Handler {
    using T = RegisterOf<decltype(x)>;
    return &lanewise<Operation, T, T>;
  });
}
template <class Operation>
Handler shift(Type type) {
  return with_integer(type, [](auto x) -> Handler {
    using T = RegisterOf<decltype(x)>;
    return &lanewise<Operation, T, T, std::uint32_t>;
  });
}
template <class Operation, int sources>
Handler wide(Type type) {
  return with_integer(type, [](auto x) -> Handler {
    using T = RegisterOf<decltype(x)>;
    if constexpr (sizeof(T) == 8)
      return nullptr;
    else if constexpr (sources == 2)
      return &lanewise<Operation, Wide<T>, T, T>;
    else
      return &lanewise<Operation, Wide<T>, T, T, Wide<T>>;
  });
}
template <class Operation>
Handler bit_count(Type type) {
  return type.bits == 64 ? &lanewise<Operation, std::uint32_t, std::uint64_t>
                         : &lanewise<Operation, std::uint32_t, std::uint32_t>;
}

struct Named {
  std::string_view name;
  Handler (*bind)(Type type);
};
constexpr Named by_name[] = {
    {"add", &binary<Add>},
    {"sub", &binary<Sub>},
    {"mul.lo", &binary<MulLo>},
    {"mul.hi", &binary<MulHi>},
    {"mul.wide", &wide<MulWide, 2>},
    {"mad.wide", &wide<MadWide, 3>},
    {"div", &binary<Div>},
    {"rem", &binary<Rem>},
    {"min", &binary<Min>},
    {"max", &binary<Max>},
    {"neg", &unary<Neg>},
    {"abs", &unary<Abs>},
    {"and", &binary<And>},
    {"or", &binary<Or>},
    {"xor", &binary<Xor>},
    {"not", &unary<Not>},
    {"mov", &unary<Move>},
    {"shl", &shift<Shl>},
    {"shr", &shift<Shr>},
    {"clz", &bit_count<Clz>},
    {"popc", &bit_count<Popc>},
};

}  // namespace

void bind_integer(Form& form, std::string_view name) {
  const Type type = form.type;
  if (type.kind == 'p') {
    if (name == "and") form.handler = &on_predicates<And>;
    if (name == "or") form.handler = &on_predicates<Or>;
    if (name == "xor") form.handler = &on_predicates<Xor>;
    if (name == "not") form.handler = &on_predicates<Not>;
    if (name == "mov") form.handler = &on_predicates<Move>;
    return;
  }
  for (const Named& row : by_name)
    if (row.name == name) form.handler = row.bind(type);
  if (name == "mad.lo")
    form.handler = with_integer(type, [](auto x) -> Handler {
      using T = RegisterOf<decltype(x)>;
      return &lanewise<MadLo, T, T, T, T>;
    });
  if (name == "selp")
    form.handler = type.bits == 16   ? &select<std::uint16_t>
                   : type.bits == 32 ? &select<std::uint32_t>
                                     : &select<std::uint64_t>;
  if (name == "brev")
    form.handler = type.bits == 64 ? &lanewise<Brev, std::uint64_t, std::uint64_t>
                                   : &lanewise<Brev, std::uint32_t, std::uint32_t>;
  if (name == "bfi")
    form.handler =
        type.bits == 64
            ? &lanewise<Bfi, std::uint64_t, std::uint64_t, std::uint64_t, std::uint32_t, std::uint32_t>
            : &lanewise<Bfi, std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t>;
  if (name == "bmsk") form.handler = &lanewise<Bmsk, std::uint32_t, std::uint32_t, std::uint32_t>;
  if (name == "prmt")
    form.handler = &lanewise<Prmt, std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t>;
}

}  // namespace fp16lab::engine::ptx
