// Exponent histograms (numerics/histogram) and the scale that they suggest (analysis/suggested_scale.hpp).
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <cstring>

#include "analysis/range_report.hpp"
#include "analysis/suggested_scale.hpp"
#include "bindings.hpp"
#include "numerics/formats/dtype.hpp"
#include "numerics/histogram/exponent_histogram.hpp"
#include "numerics/histogram/zones.hpp"

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

void count(ExponentHistogram& histogram, const Codes& codes, std::string_view format, int threads) {
  if (format == "f32") {
    count_as<float>(histogram, codes, threads);
  } else if (format == "f16") {
    count_as<Float16>(histogram, codes, threads);
  } else if (format == "bf16") {
    count_as<BFloat16>(histogram, codes, threads);
  } else {
    throw std::invalid_argument("a histogram counts f32, f16 or bf16, not " + std::string(format));
  }
}

using Bins = nb::ndarray<nb::numpy, std::uint64_t, nb::ndim<1>>;
Bins bins(const ExponentHistogram& histogram) {
  auto* copy = new std::array(histogram.bins);
  const nb::capsule owner(copy, [](void* held) noexcept { delete static_cast<decltype(copy)>(held); });
  return Bins(copy->data(), {copy->size()}, owner);
}

nb::bytes state_of(const ExponentHistogram& histogram) { return nb::bytes(&histogram, sizeof(histogram)); }
void set_state(ExponentHistogram& histogram, const nb::bytes& state) {
  if (state.size() != sizeof(histogram)) throw std::invalid_argument("this is no histogram's state");
  new (&histogram) ExponentHistogram;
  std::memcpy(&histogram, state.c_str(), sizeof(histogram));
}

nb::dict zones(const ExponentHistogram& histogram, double scale, std::string_view format) {
  const RangeCounts counts = count_ranges(histogram, range_of(format_of(format)), scale);
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

}  // namespace

void bind_histograms(nb::module_& module) {
  static_assert(std::is_trivially_copyable_v<ExponentHistogram>);
  nb::class_<ExponentHistogram>(module, "Histogram")
      .def(nb::init<>())
      .def("_count", &count, nb::arg("codes"), nb::arg("format"), nb::arg("threads"))
      .def_prop_ro("bins", &bins, nb::rv_policy::move)
      .def_ro("zero", &ExponentHistogram::zero)
      .def_ro("infinite", &ExponentHistogram::infinite)
      .def_ro("nan", &ExponentHistogram::nan)
      .def_prop_ro("smallest", [](const ExponentHistogram& h) { return float_from_bits(h.smallest); })
      .def_prop_ro("greatest", [](const ExponentHistogram& h) { return float_from_bits(h.greatest); })
      .def_prop_ro("total", &ExponentHistogram::total)
      .def("zones", &zones, nb::arg("scale") = 1.0, nb::arg("format") = "f16")
      .def("__iadd__", &ExponentHistogram::operator+=, nb::arg("other"), nb::rv_policy::reference)
      .def("__eq__", [](const ExponentHistogram& a, const ExponentHistogram& b) { return a == b; }, nb::arg("other"))
      .def("__getstate__", &state_of)
      .def("__setstate__", &set_state);
}

}  // namespace fp16lab::python
