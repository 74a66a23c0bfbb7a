// Exponent histograms (numerics/histogram) and the scale that they suggest (analysis/suggested_scale.hpp).
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>
#include <vector>

#include "analysis/range_report.hpp"
#include "analysis/suggested_scale.hpp"
#include "bindings.hpp"
#include "engine/backend/cuda/cuda_backend.hpp"
#include "engine/backend/cuda/stream_histogram.hpp"
#include "engine/backend/host_histogram.hpp"
#include "numerics/convert/convert.hpp"
#include "numerics/formats/dtype.hpp"
#include "numerics/histogram/exponent_histogram.hpp"
#include "numerics/histogram/value_histogram.hpp"
#include "numerics/histogram/zones.hpp"
#include "numerics/platform/for_each_chunk.hpp"

namespace fp16lab::python {

namespace nb = nanobind;

namespace {

/// Codes of one format, contiguous: the caller (fp16lab/arrays.py) makes views of unsigned integers.
using Codes = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;

template <class T>
void count_as(ExponentHistogram& histogram, const Codes& codes, int threads) {
  if (codes.itemsize() != sizeof(T)) throw std::invalid_argument("codes have another size than their format");
  const std::span values(static_cast<const T*>(codes.data()), codes.size());
  const nb::gil_scoped_release unlocked;
  count_exponents(values, histogram, threads);
}

/// FP64, whose range is wider than the bins: what is beyond them counts in the first or last, as `hist` does.
template <>
void count_as<double>(ExponentHistogram& histogram, const Codes& codes, int threads) {
  if (codes.itemsize() != sizeof(double))
    throw std::invalid_argument("codes have another size than their format");
  const std::span values(static_cast<const double*>(codes.data()), codes.size());
  const nb::gil_scoped_release unlocked;
  const FloatingPointScope scope;
  ValueHistogram counts(std::make_shared<const ValueBins>(std::span<const ScaledFormat>()));
  counts.add(values, threads);
  histogram += counts.exponents();
}

/// FP8, whose numbers are FP32 numbers.
template <class Code>
void count_widened(ExponentHistogram& histogram, const Codes& codes, int threads) {
  if (codes.itemsize() != sizeof(Code))
    throw std::invalid_argument("codes have another size than their format");
  const std::span values(static_cast<const Code*>(codes.data()), codes.size());
  const nb::gil_scoped_release unlocked;
  std::vector<float> wide(std::min(values.size(), array_chunk));
  for (std::size_t i = 0; i < values.size(); i += array_chunk) {
    const std::span floats = std::span(wide).first(std::min(array_chunk, values.size() - i));
    widen(values.subspan(i, floats.size()), floats, threads);
    count_exponents(floats, histogram, threads);
  }
}

void count(ExponentHistogram& histogram, const Codes& codes, std::string_view format, int threads) {
  visit_dtype<is_floating>(format_of(format), [&](auto row) {
    using Element = typename decltype(row)::Element;
    constexpr DType dtype = DTypeOf<Element>::value;
    if constexpr (is_tensor_float(dtype) || dtype == DType::f64)
      count_as<Element>(histogram, codes, threads);
    else
      count_widened<Element>(histogram, codes, threads);
  });
}

/// The GPU that counts; made once, and never destroyed: the driver may be gone before this library is.
engine::Backend& counting_device() {
  static engine::Backend& device = *engine::make_cuda_backend({.gemm = engine::GemmRoute::mma}).release();
  return device;
}

void count_on_device(ExponentHistogram& histogram, const Codes& codes, std::string_view format) {
  static std::mutex one_at_a_time;
  visit_dtype<is_floating>(format_of(format), [&](auto row) {
    using Element = typename decltype(row)::Element;
    if constexpr (is_tensor_float(DTypeOf<Element>::value)) {
      if (codes.itemsize() != sizeof(Element))
        throw std::invalid_argument("codes have another size than their format");
      const std::span values(static_cast<const Element*>(codes.data()), codes.size());
      const nb::gil_scoped_release unlocked;
      const std::lock_guard lock(one_at_a_time);
      engine::count_exponents_on(counting_device(), values, histogram);
    } else {
      throw std::invalid_argument(
          "device=\"cuda\" counts float32, float16 and bfloat16; expected one of these, or device=\"cpu\"");
    }
  });
}

/// PyTorch's memory and stream: addresses of the current device's.
void count_on_stream(std::uintptr_t values, std::size_t count, std::string_view format, std::uintptr_t row,
                     std::uintptr_t stream) {
  const nb::gil_scoped_release unlocked;
  engine::count_exponents_on_stream(reinterpret_cast<const void*>(values), count, format_of(format),
                                    reinterpret_cast<std::uint64_t*>(row), reinterpret_cast<void*>(stream));
}

/// A number for each bin.
using Bins = nb::ndarray<nb::numpy, std::uint64_t, nb::ndim<1>>;
Bins array_of(const decltype(ExponentHistogram::bins)& values) {
  auto* copy = new std::array(values);
  const nb::capsule owner(copy, [](void* held) noexcept { delete static_cast<decltype(copy)>(held); });
  return Bins(copy->data(), {copy->size()}, owner);
}
Bins bins(const ExponentHistogram& histogram) { return array_of(histogram.bins); }

nb::bytes state_of(const ExponentHistogram& histogram) { return nb::bytes(&histogram, sizeof(histogram)); }
void set_state(ExponentHistogram& histogram, const nb::bytes& state) {
  if (state.size() != sizeof(histogram)) throw std::invalid_argument("this is no histogram's state");
  new (&histogram) ExponentHistogram;
  std::memcpy(&histogram, state.c_str(), sizeof(histogram));
}

/// Arguments that people give: one line where they are of another type.
double number(const nb::object& value, const char* name) {
  double result = 0;
  if (nb::try_cast(value, result)) return result;
  throw nb::type_error(
      (name + (" is " + std::string(nb::repr(value).c_str())) + "; a number is needed").c_str());
}
std::string format_name(const nb::object& value) {
  std::string result;
  if (nb::try_cast(value, result)) return result;
  throw nb::type_error(("format is " + std::string(nb::repr(value).c_str()) + "; a name is needed").c_str());
}

analysis::SuggestedScale suggest_scale(const ExponentHistogram& histogram, const nb::object& format,
                                       const nb::object& recorded_scale) {
  const FloatingPointScope scope;
  analysis::ScaledHistograms gradients;
  gradients.add(histogram, number(recorded_scale, "recorded_scale"));
  return analysis::suggest_scale(gradients, format_of(format_name(format)));
}

/// By its bits: a thread may read subnormal FP32 numbers as zeros.
double extreme(std::uint32_t bits) {
  return double_from_bits(convert<Binary64>(SmallFloat<Binary32>::from_bits(bits)).bits());
}

nb::dict zones(const ExponentHistogram& histogram, const nb::object& scale, const nb::object& format) {
  const FloatingPointScope scope;
  const RangeCounts counts =
      count_ranges(histogram, range_of(format_of(format_name(format))), number(scale, "scale"));
  nb::dict result;
  const auto add = [&](const char* name, const CountInterval& zone) {
    result[name] = nb::make_tuple(zone.lower, zone.upper);
  };
  add("lost", counts.lost);
  add("subnormal", counts.subnormal);
  add("normal", counts.normal);
  add("overflow", counts.overflow);
  result["zero"] = counts.zero;
  result["infinite"] = counts.infinite;
  result["nan"] = counts.nan;
  result["total"] = counts.total;
  return result;
}

/// The zone of the smallest value of each bin: 0 for lost, to 3 for overflow. `zones` has not refused the
/// scale.
Bins zones_of_bins(const ExponentHistogram& histogram, double scale, std::string_view format) {
  const ZoneEdges<Binary32> edges(range_of(format_of(format)), scale);
  decltype(ExponentHistogram::bins) zones{};
  for (std::size_t bin = 0; bin < zones.size(); ++bin)
    zones[bin] = zones_of_bin(histogram, static_cast<int>(bin), edges).first;
  return array_of(zones);
}

}  // namespace

void bind_histograms(nb::module_& module) {
  static_assert(std::is_trivially_copyable_v<ExponentHistogram>);
  module.def("count_on_stream", &count_on_stream, nb::arg("values"), nb::arg("count"), nb::arg("format"),
             nb::arg("row"), nb::arg("stream"),
             "Adds the counts of a device's values to a row there. Source: "
             "engine/backend/cuda/stream_histogram.hpp.");
  using analysis::SuggestedScale;
  nb::class_<SuggestedScale>(module, "SuggestedScale", R"(Which power-of-two loss scale values ask for.

Values fit a format at a scale if nothing overflows, and rounding costs at most 1.1 times what the format's precision
does by itself. Exponents k of scales 2**k are None where no scale from 2**-126 to 2**127 will do.
Source: analysis/suggested_scale.hpp.)")
      .def_ro("suggested", &SuggestedScale::suggested, "The scale to fix, with room to both sides.")
      .def_ro("least", &SuggestedScale::least, "The smallest at which rounding is harmless.")
      .def_ro("greatest", &SuggestedScale::greatest, "The largest at which nothing overflows.")
      .def_prop_ro("fits", &SuggestedScale::fits, "Do the values fit at any scale, from least to greatest?")
      .def_ro("needs_none", &SuggestedScale::needs_none, "They fit without a scale, with room to both sides.")
      .def_ro("reasoning", &SuggestedScale::reasoning, "The answers and why, in sentences.")
      .def_prop_ro(
          "scale",
          [](const SuggestedScale& s) {
            return s.suggested ? std::optional(std::ldexp(1.0, *s.suggested)) : std::nullopt;
          },
          "2**suggested as a float, or None.")
      .def("__repr__", [](const SuggestedScale& s) { return s.reasoning; });
  nb::class_<ExponentHistogram>(module, "Histogram", R"(Counts of magnitudes by binary exponent.

bins[i] counts the magnitudes in (2**(i-150), 2**(i-149)], i from 0 to 277; zero, infinite and nan have
counts of their own. Histograms add up with +=, compare with == and can be pickled.
Source: numerics/histogram.

    >>> import fp16lab, numpy
    >>> h = fp16lab.histogram(numpy.array([1e-9, 0.5, 0.0, 3.0], numpy.float32))
    >>> h.total, h.zero, int(h.bins.sum())
    (4, 1, 3)
    >>> h.zones()["lost"]
    (1, 1)
)")
      .def(nb::init<>())
      .def("_count_on_device", &count_on_device, nb::arg("codes").noconvert(), nb::arg("format"))
      .def("_count", &count, nb::arg("codes").noconvert(), nb::arg("format"), nb::arg("threads"))
      .def_prop_ro("bins", &bins, nb::rv_policy::move, "A copy of the 278 counts, uint64.")
      .def_ro("zero", &ExponentHistogram::zero)
      .def_ro("infinite", &ExponentHistogram::infinite)
      .def_ro("nan", &ExponentHistogram::nan)
      .def_prop_ro(
          "smallest", [](const ExponentHistogram& h) { return extreme(h.smallest); },
          "The smallest finite magnitude above zero; 0: there is none, or (FP64) it is not known.")
      .def_prop_ro(
          "greatest", [](const ExponentHistogram& h) { return extreme(h.greatest); },
          "The greatest finite magnitude, as smallest.")
      .def_prop_ro("total", &ExponentHistogram::total)
      .def("zones", &zones, nb::arg("scale").none() = 1.0, nb::arg("format").none() = "f16",
           nb::sig("def zones(self, scale: float = 1.0, format: str = 'f16') -> dict[str, typing.Any]"),
           R"(Where the values, times scale, land in a format under rounding to nearest even.

A dict: lost (become zero), subnormal, normal and overflow are (lower, upper) counts, equal ends where the
bins decide; zero, infinite and nan are what was counted so; total is all. Errors: ValueError unless scale is
finite and above zero, and for an unknown format. Source: numerics/histogram/zones.hpp.)")
      .def("_zones_of_bins", &zones_of_bins, nb::arg("scale"), nb::arg("format"))
      .def("suggest_scale", &suggest_scale, nb::arg("format").none() = "f16",
           nb::arg("recorded_scale").none() = 1.0,
           nb::sig(
               "def suggest_scale(self, format: str = 'f16', recorded_scale: float = 1.0) -> SuggestedScale"),
           R"(The loss scale that these values ask for in a format, as `fp16lab hist` suggests it.

recorded_scale: the scale that the values carry already. Bounded from counts: what is said to fit does fit.
Source: analysis/suggested_scale.hpp.)")
      .def(
          "plot",
          [](const nb::object& self, const nb::object& scale, const nb::object& format,
             const nb::object& axes) {
            return nb::module_::import_("fp16lab.plots").attr("plot_histogram")(self, scale, format, axes);
          },
          nb::arg("scale").none() = 1.0, nb::arg("format").none() = "f16", nb::arg("axes") = nb::none(),
          "Draws the counts and the zones of a format with matplotlib; gives the axes. See fp16lab.plots.")
      .def("__iadd__", &ExponentHistogram::operator+=, nb::arg("other"), nb::rv_policy::reference,
           nb::is_operator())
      .def(
          "__eq__", [](const ExponentHistogram& a, const ExponentHistogram& b) { return a == b; },
          nb::arg("other"), nb::is_operator(), nb::sig("def __eq__(self, other: object, /) -> bool"))
      .def("__getstate__", &state_of)
      .def("__setstate__", &set_state);
}

}  // namespace fp16lab::python
