#include "experiments/app/commands/softfloat_functions.hpp"

#include <type_traits>

#include "numerics/arithmetic/arithmetic.hpp"
#include "numerics/arithmetic/comparison.hpp"
#include "numerics/arithmetic/integer_conversion.hpp"
#include "numerics/convert/convert.hpp"
#include "numerics/formats/dtype.hpp"

namespace fp16lab::experiments {
namespace {

/// The dtype of a format.
template <class F>
constexpr DType dtype_of = DTypeOf<SmallFloat<F>>::value;
template <>
constexpr DType dtype_of<Binary32> = DType::f32;
template <>
constexpr DType dtype_of<Binary64> = DType::f64;

template <class F>
constexpr SoftfloatType type = {name_of(dtype_of<F>), F::width};
template <>
constexpr SoftfloatType type<std::uint32_t> = {"ui32", 32};
template <>
constexpr SoftfloatType type<std::uint64_t> = {"ui64", 64};
template <>
constexpr SoftfloatType type<std::int32_t> = {"i32", 32};
template <>
constexpr SoftfloatType type<std::int64_t> = {"i64", 64};
template <>
constexpr SoftfloatType type<bool> = {"bool", 1};

using Operands = const std::uint64_t*;

using Flags = ExceptionFlags;

template <class F>
SmallFloat<F> number(std::uint64_t bits) {
  return SmallFloat<F>::from_bits(static_cast<typename F::Bits>(bits));
}

template <class F>
using Unary = SmallFloat<F> (*)(SmallFloat<F>, const ArithmeticOptions&, Flags*);
template <class F>
using Binary = SmallFloat<F> (*)(SmallFloat<F>, SmallFloat<F>, const ArithmeticOptions&, Flags*);
template <class F>
using Predicate = bool (*)(SmallFloat<F>, SmallFloat<F>, const ArithmeticOptions&, Flags*);

template <class F, Unary<F> operation>
std::uint64_t unary(Operands x, const SoftfloatOptions& options, Flags& flags) {
  return operation(number<F>(x[0]), options.arithmetic, &flags).bits();
}

template <class F, Binary<F> operation>
std::uint64_t binary(Operands x, const SoftfloatOptions& options, Flags& flags) {
  return operation(number<F>(x[0]), number<F>(x[1]), options.arithmetic, &flags).bits();
}

template <class F, Predicate<F> relation>
std::uint64_t predicate(Operands x, const SoftfloatOptions& options, Flags& flags) {
  return relation(number<F>(x[0]), number<F>(x[1]), options.arithmetic, &flags) ? 1 : 0;
}

template <class F>
std::uint64_t fused(Operands x, const SoftfloatOptions& options, Flags& flags) {
  return fma(number<F>(x[0]), number<F>(x[1]), number<F>(x[2]), options.arithmetic, &flags).bits();
}

template <class F>
std::uint64_t to_integral(Operands x, const SoftfloatOptions& options, Flags& flags) {
  const auto round = options.exact ? round_to_integral_exact<F> : round_to_integral<F>;
  return round(number<F>(x[0]), options.arithmetic, &flags).bits();
}

template <class To, class From>
std::uint64_t between_formats(Operands x, const SoftfloatOptions& options, Flags& flags) {
  return convert<To>(number<From>(x[0]), options.arithmetic, &flags).bits();
}

template <class Int, class F>
std::uint64_t to_int(Operands x, const SoftfloatOptions& options, Flags& flags) {
  const auto round = options.exact ? to_integer_exact<Int, F> : to_integer<Int, F>;
  return static_cast<std::make_unsigned_t<Int>>(round(number<F>(x[0]), options.arithmetic, &flags));
}

template <class F, class Int>
std::uint64_t from_int(Operands x, const SoftfloatOptions& options, Flags& flags) {
  return from_integer<F>(static_cast<Int>(x[0]), options.arithmetic, &flags).bits();
}

class Table {
 public:
  template <class... Formats>
  void add_formats() {
    (add_operations<Formats>(), ...);
    (add_conversions<Formats, Formats...>(), ...);
  }

  std::vector<SoftfloatFunction> functions;

 private:
  template <class F>
  void add_operations() {
    constexpr SoftfloatType f = type<F>;
    constexpr SoftfloatType truth = type<bool>;
    const std::string prefix = std::string(f.name) + "_";
    functions.insert(functions.end(),
                     {{prefix + "add", {f, f}, f, binary<F, add<F>>},
                      {prefix + "sub", {f, f}, f, binary<F, sub<F>>},
                      {prefix + "mul", {f, f}, f, binary<F, mul<F>>},
                      {prefix + "mulAdd", {f, f, f}, f, fused<F>},
                      {prefix + "div", {f, f}, f, binary<F, div<F>>},
                      {prefix + "rem", {f, f}, f, binary<F, remainder<F>>},
                      {prefix + "sqrt", {f}, f, unary<F, sqrt<F>>},
                      {prefix + "roundToInt", {f}, f, to_integral<F>},
                      {prefix + "eq", {f, f}, truth, predicate<F, equal<F>>},
                      {prefix + "le", {f, f}, truth, predicate<F, less_equal<F>>},
                      {prefix + "lt", {f, f}, truth, predicate<F, less<F>>},
                      {prefix + "eq_signaling", {f, f}, truth, predicate<F, equal_signaling<F>>},
                      {prefix + "le_quiet", {f, f}, truth, predicate<F, less_equal_quiet<F>>},
                      {prefix + "lt_quiet", {f, f}, truth, predicate<F, less_quiet<F>>}});
  }

  template <class F, class... Formats>
  void add_conversions() {
    (add_conversion<F, Formats>(between_formats<Formats, F>), ...);
    add_integer<F, std::uint32_t>();
    add_integer<F, std::uint64_t>();
    add_integer<F, std::int32_t>();
    add_integer<F, std::int64_t>();
  }

  template <class F, class Int>
  void add_integer() {
    add_conversion<F, Int>(to_int<Int, F>);
    add_conversion<Int, F>(from_int<F, Int>);
  }

  template <class From, class To>
  void add_conversion(std::uint64_t (*evaluate)(Operands, const SoftfloatOptions&, Flags&)) {
    if constexpr (!std::is_same_v<From, To>)
      functions.push_back({std::string(type<From>.name) + "_to_" + std::string(type<To>.name),
                           {type<From>},
                           type<To>,
                           evaluate});
  }
};

}  // namespace

const std::vector<SoftfloatFunction>& softfloat_functions() {
  static const std::vector<SoftfloatFunction> functions = [] {
    Table table;
    [&]<class... Others>(TypeList<Binary16, Others...>) {
      table.add_formats<Binary16, Binary32, Binary64, Others...>();
    }(LowFormats{});
    return table.functions;
  }();
  return functions;
}

}  // namespace fp16lab::experiments
