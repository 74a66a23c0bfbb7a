// The order of a sum (analysis/summation_tree.hpp), revealed by calls of a function of Python.
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>

#include "analysis/summation_tree.hpp"
#include "bindings.hpp"

namespace fp16lab::python {

namespace nb = nanobind;
using analysis::SummationTree;

namespace {

/// `sum` reads the terms in `terms` and gives a float.
nb::tuple reveal(const nb::callable& sum,
                 const nb::ndarray<double, nb::ndim<1>, nb::c_contig, nb::device::cpu>& terms, double big,
                 double unit, std::size_t most_units) {
  const auto call = [&](std::span<const double> values) {
    std::ranges::copy(values, terms.data());
    return nb::cast<double>(sum());
  };
  try {
    const auto [tree, calls] =
        analysis::reveal(terms.size(), call, {.big = big, .unit = unit, .most_units = most_units});
    return nb::make_tuple(tree.joins(), calls);
  } catch (const analysis::NoSummationTree& error) {
    throw std::invalid_argument(error.what());
  }
}

}  // namespace

void bind_summations(nb::module_& module) {
  nb::class_<SummationTree>(module, "SummationTree")
      .def(nb::init<std::size_t, const std::vector<SummationTree::Join>&>(), nb::arg("terms"),
           nb::arg("joins"))
      .def_prop_ro("terms", &SummationTree::terms)
      .def_prop_ro("joins", &SummationTree::joins)
      .def_prop_ro("depth", &SummationTree::depth)
      .def_prop_ro("widest_join", &SummationTree::widest_join)
      .def_prop_ro("in_words", &SummationTree::in_words)
      .def_prop_ro("text", &SummationTree::text)
      .def("__str__", &SummationTree::short_text)
      .def("_save", [](const SummationTree& tree, const std::string& path) { analysis::save(tree, path); })
      .def("_equals", [](const SummationTree& a, const SummationTree& b) { return a == b; });
  module.def(
      "reveal", &reveal, nb::arg("sum"), nb::arg("terms").noconvert(), nb::arg("big"), nb::arg("unit"),
      nb::arg("most_units"),
      nb::sig("def reveal(sum: collections.abc.Callable[[], float], terms: numpy.typing.NDArray[typing.Any], "
              "big: float, unit: float, most_units: int) -> tuple[list[list[int]], int]"));
}

}  // namespace fp16lab::python
