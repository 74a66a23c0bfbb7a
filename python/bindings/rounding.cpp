// Rounding arrays (numerics/convert), and arrays of other libraries as codes (DLPack).
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <variant>

#include "analysis/inspection.hpp"
#include "bindings.hpp"
#include "numerics/convert/convert.hpp"
#include "numerics/formats/runtime_format.hpp"
#include "numerics/platform/for_each_chunk.hpp"

namespace fp16lab::python {

namespace nb = nanobind;

namespace {

using Source = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;
using Destination = nb::ndarray<nb::c_contig, nb::device::cpu>;

/// Elements that are converted at a time: intermediate results stay in the first-level cache.
constexpr std::size_t block = 2048;

struct Rule {
  ArithmeticOptions options;
  PhiloxStream stream{};

  bool stochastic() const { return options.rounding == Rounding::stochastic; }
  /// The options of one element, with its own 16 random bits: half number `index` of the stream
  /// (convert.hpp).
  ArithmeticOptions at(std::uint64_t index) const {
    ArithmeticOptions own = options;
    if (stochastic()) own.random_bits = (stream.word(index / 2) >> 16 * (index % 2)) << 16;
    return own;
  }
};

template <class Element>
using FormatOfElement = typename FormatOf<Element>::type;

template <class Element>
typename FormatOfElement<Element>::Bits word_of(Element x) {
  if constexpr (std::is_floating_point_v<Element>)
    return bits_of(x);
  else
    return x.bits();
}
template <class Element>
Element of_word(typename FormatOfElement<Element>::Bits word) {
  if constexpr (std::is_same_v<Element, float>)
    return float_from_bits(word);
  else if constexpr (std::is_same_v<Element, double>)
    return double_from_bits(word);
  else
    return Element::from_bits(word);
}

/// A block of elements as FP32 numbers; in place where they are.
template <class From>
std::span<const float> as_floats(std::span<const From> from, std::array<float, block>& wide) {
  if constexpr (std::is_same_v<From, float>)
    return from;
  else {
    const std::span floats = std::span(wide).first(from.size());
    widen(from, floats);
    return floats;
  }
}

/// to[i] = from[i] rounded; `first` is the index of from[0] in its array.
template <class From, class To>
void round_block(std::span<const From> from, std::span<SmallFloat<To>> to, const Rule& rule,
                 std::uint64_t first) {
  if constexpr (std::is_same_v<From, double>) {
    if (!rule.stochastic()) return narrow(from, to, rule.options);
    for (std::size_t i = 0; i < from.size(); ++i)
      to[i] = convert<To>(SmallFloat<Binary64>::from_bits(bits_of(from[i])), rule.at(first + i));
  } else {
    std::array<float, block> wide;
    const std::span floats = as_floats(from, wide);
    if (rule.stochastic()) return narrow_stochastic(floats, to, rule.stream, first, rule.options);
    narrow(floats, to, rule.options);
  }
}

/// Codes as elements of a wider format, which holds each of them.
template <class From, class To>
void widen_block(std::span<const SmallFloat<To>> codes, std::span<From> to) {
  if constexpr (std::is_same_v<From, float>) {
    widen(codes, to);
  } else {
    std::array<float, block> wide;
    const std::span floats = std::span(wide).first(codes.size());
    widen(codes, floats);
    if constexpr (std::is_same_v<From, double>) {
      for (std::size_t i = 0; i < codes.size(); ++i)
        to[i] =
            std::isnan(floats[i]) ? of_word<double>(Binary64::canonical_nan) : static_cast<double>(floats[i]);
    } else {
      narrow(std::span<const float>(floats), to);
    }
  }
}

template <class From, class To>
void round_named(std::span<const From> from, void* out, bool bits, const Rule& rule, int threads) {
  using Code = SmallFloat<To>;
  if constexpr (std::is_floating_point_v<From>) {
    const std::span codes(static_cast<Code*>(out), from.size());
    if (bits && !rule.stochastic()) return narrow(from, codes, rule.options, threads);
    if constexpr (std::is_same_v<From, float>)
      if (bits) return narrow_stochastic(from, codes, rule.stream, 0, rule.options, threads);
  }
  for_each_chunk(from.size(), threads, [&](std::size_t begin, std::size_t count) {
    std::array<Code, block> scratch;
    for (std::size_t i = begin; i < begin + count; i += block) {
      const std::size_t some = std::min(block, begin + count - i);
      const std::span codes =
          bits ? std::span(static_cast<Code*>(out) + i, some) : std::span(scratch).first(some);
      round_block(from.subspan(i, some), codes, rule, i);
      if (!bits) widen_block(std::span<const Code>(codes), std::span(static_cast<From*>(out) + i, some));
    }
  });
}

/// By the definition, element by element: formats of the caller's own.
template <class From>
void round_own(std::span<const From> from, void* out, std::size_t code_size, bool bits,
               const RuntimeFormat& format, const Rule& rule, int threads) {
  using F = FormatOfElement<From>;
  for_each_chunk(from.size(), threads, [&](std::size_t begin, std::size_t count) {
    for (std::size_t i = begin; i < begin + count; ++i) {
      const Exact exact = decode(SmallFloat<F>::from_bits(word_of(from[i])));
      const std::uint64_t code = format.round(exact, rule.at(i));
      if (bits)
        std::memcpy(static_cast<std::byte*>(out) + i * code_size, &code, code_size);  // little-endian
      else
        static_cast<From*>(out)[i] = of_word<From>(round_pack<F>(format.decode(code), {}).bits());
    }
  });
}

/// The name of a format, or exponent bits and precision.
using Target = std::variant<std::string_view, std::tuple<int, int>>;

std::size_t code_size_of(int width) { return width <= 8 ? 1 : width <= 16 ? 2 : width <= 32 ? 4 : 8; }

void require_size(const Source& from, std::size_t element, const Destination& to, std::size_t result) {
  if (from.itemsize() != element || to.itemsize() != result || from.size() != to.size())
    throw std::invalid_argument("source and destination do not agree with their formats");
}

void round(const Source& from, std::string_view from_format, const Target& to, std::string_view mode,
           std::optional<std::uint64_t> seed, bool saturate, const Destination& out, bool bits, int threads) {
  Rule rule;
  rule.options.rounding = analysis::parse_rounding(std::string(mode));
  rule.options.saturate = saturate;
  if (seed) rule.stream.seed = *seed;
  visit_dtype<is_floating>(format_of(from_format), [&](auto source) {
    using From = typename decltype(source)::Element;
    const std::span elements(static_cast<const From*>(from.data()), from.size());
    if (const auto* name = std::get_if<std::string_view>(&to)) {
      visit_dtype<is_low_precision>(format_of(*name), [&](auto target) {
        using Code = typename decltype(target)::Element;
        require_size(from, sizeof(From), out, bits ? sizeof(Code) : sizeof(From));
        const nb::gil_scoped_release unlocked;
        round_named<From, typename Code::Format>(elements, out.data(), bits, rule, threads);
      });
    } else {
      const auto [exponent_bits, precision] = std::get<std::tuple<int, int>>(to);
      const RuntimeFormat format(exponent_bits, precision);
      const std::size_t code_size = code_size_of(format.width);
      require_size(from, sizeof(From), out, bits ? code_size : sizeof(From));
      const nb::gil_scoped_release unlocked;
      round_own(elements, out.data(), code_size, bits, format, rule, threads);
    }
  });
}

void widen_codes(const Source& from, std::string_view from_format, const Destination& out, int threads) {
  visit_dtype<is_low_precision>(format_of(from_format), [&](auto source) {
    using From = typename decltype(source)::Element;
    require_size(from, sizeof(From), out, sizeof(float));
    const std::span codes(static_cast<const From*>(from.data()), from.size());
    const nb::gil_scoped_release unlocked;
    widen(codes, std::span(static_cast<float*>(out.data()), out.size()), threads);
  });
}

/// Name, and exponent bits, precision, bits in all, and the exponents of the smallest number above zero and
/// of the greatest one.
nb::dict formats() {
  nb::dict all;
  for (const DType dtype : dtypes<is_floating>)
    visit_dtype<is_floating>(dtype, [&](auto row) {
      using F = typename decltype(row)::Format;
      all[nb::str(row.name.data(), row.name.size())] =
          nb::make_tuple(F::exponent_bits, F::precision, F::width, F::exponent_of_min_subnormal, F::emax);
    });
  return all;
}

using Tensor = nb::ndarray<nb::ro, nb::device::cpu>;
using Words = nb::ndarray<nb::numpy, nb::ro>;

/// The elements of a tensor that came by DLPack, as unsigned integers in the same memory, and their format;
/// no format: none that we have.
nb::tuple words_of_tensor(const Tensor& tensor) {
  using Code = nb::dlpack::dtype_code;
  const nb::dlpack::dtype type = tensor.dtype();
  const auto is = [&](Code code, int bits) {
    return type.code == static_cast<std::uint8_t>(code) && type.bits == bits && type.lanes == 1;
  };
  const char* format = is(Code::Float, 16)            ? "f16"
                       : is(Code::Float, 32)          ? "f32"
                       : is(Code::Float, 64)          ? "f64"
                       : is(Code::Bfloat, 16)         ? "bf16"
                       : is(Code::Float8_E4M3FN, 8)   ? "e4m3"
                       : is(Code::Float8_E5M2, 8)     ? "e5m2"
                       : is(Code::Float8_E4M3FNUZ, 8) ? "e4m3fnuz"
                       : is(Code::Float8_E5M2FNUZ, 8) ? "e5m2fnuz"
                       : is(Code::Float8_E8M0FNU, 8)  ? "e8m0"
                                                      : nullptr;
  if (format == nullptr) return nb::make_tuple(nb::none(), nb::none());
  std::array<std::size_t, 64> shape{};
  std::array<std::int64_t, 64> strides{};
  if (tensor.ndim() > shape.size()) throw std::invalid_argument("an array of more than 64 dimensions");
  for (std::size_t i = 0; i < tensor.ndim(); ++i) {
    shape[i] = tensor.shape(i);
    strides[i] = tensor.stride(i);
  }
  auto* held = new Tensor(tensor);
  const nb::capsule owner(held, [](void* tensor_held) noexcept { delete static_cast<Tensor*>(tensor_held); });
  const nb::dlpack::dtype words{static_cast<std::uint8_t>(Code::UInt), type.bits, 1};
  return nb::make_tuple(Words(tensor.data(), tensor.ndim(), shape.data(), owner, strides.data(), words),
                        format);
}

}  // namespace

void bind_rounding(nb::module_& module) {
  module.def("round", &round, nb::arg("codes").noconvert(), nb::arg("from_format"), nb::arg("to_format"),
             nb::arg("mode"), nb::arg("seed").none(), nb::arg("saturate"), nb::arg("out").noconvert(),
             nb::arg("bits"), nb::arg("threads"));
  module.def("rounding_names", &analysis::rounding_names);
  module.def("widen", &widen_codes, nb::arg("codes").noconvert(), nb::arg("from_format"),
             nb::arg("out").noconvert(), nb::arg("threads"));
  module.def("formats", &formats, nb::sig("def formats() -> dict[str, tuple[int, int, int, int, int]]"));
  module.def("words_of_tensor", &words_of_tensor, nb::arg("tensor"),
             nb::sig("def words_of_tensor(tensor: object) -> tuple[typing.Any, str | None]"));
}

}  // namespace fp16lab::python
