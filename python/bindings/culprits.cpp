// What made the first Inf or NaN of a step, in the words of the C++ engine (analysis/first_culprit.hpp).
#include "analysis/first_culprit.hpp"
#include "records.hpp"

namespace fp16lab::python {

namespace nb = nanobind;

namespace {

/// What analysis::advise() makes of the facts: (verdict, binades, advice).
nb::tuple advice(const nb::dict& facts) {
  CulpritRow row = row_of<CulpritRow>(facts);
  analysis::advise(row);
  return nb::make_tuple(std::string(name_of(row.verdict)), row.binades, row.advice);
}

}  // namespace

void bind_culprits(nb::module_& module) {
  module.def("advice", &advice, nb::arg("facts"));
  module.def(
      "description", [](const nb::dict& facts) { return analysis::description(row_of<CulpritRow>(facts)); },
      nb::arg("facts"));
}

}  // namespace fp16lab::python
