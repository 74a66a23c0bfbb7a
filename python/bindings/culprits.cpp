// What made the first Inf or NaN of a step, in the words of the C++ engine (analysis/first_culprit.hpp).
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "analysis/first_culprit.hpp"
#include "bindings.hpp"

namespace fp16lab::python {

namespace nb = nanobind;

namespace {

template <class T>
void take(const nb::dict& facts, const char* name, T& member) {
  if (facts.contains(name)) member = nb::cast<T>(facts[name]);
}

void take(const nb::dict& facts, const char* name, DType& member) {
  if (facts.contains(name)) member = format_of(nb::cast<std::string>(facts[name]));
}

/// One of `known` by the name that files have for it.
template <class Enum>
Enum called(const std::string& name, std::initializer_list<Enum> known) {
  for (const Enum value : known)
    if (name_of(value) == name) return value;
  throw std::invalid_argument("culprits have no '" + name + "'");
}

CulpritOperandRow operand_of(const nb::dict& facts) {
  CulpritOperandRow operand;
  take(facts, "name", operand.name);
  take(facts, "dtype", operand.dtype);
  take(facts, "shape", operand.shape);
  take(facts, "smallest", operand.smallest);
  take(facts, "greatest", operand.greatest);
  take(facts, "histogram", operand.histogram);
  return operand;
}

/// What analysis::advise() makes of the facts: (verdict, binades, advice).
nb::tuple advice(const nb::dict& facts) {
  CulpritRow row = culprit_of(facts);
  analysis::advise(row);
  return nb::make_tuple(std::string(name_of(row.verdict)), row.binades, row.advice);
}

}  // namespace

CulpritRow culprit_of(const nb::dict& facts) {
  CulpritRow row;
  std::string pass = "forward", cause = "operation", verdict = "unknown";
  take(facts, "pass", pass);
  take(facts, "cause", cause);
  take(facts, "verdict", verdict);
  row.pass = called(pass, {CulpritPass::forward, CulpritPass::backward});
  row.cause = called(cause, {CulpritCause::operation, CulpritCause::infinity, CulpritCause::parameter,
                             CulpritCause::data, CulpritCause::constant, CulpritCause::loss_scale});
  row.verdict = called(verdict, {CulpritVerdict::fp32_cast, CulpritVerdict::lower_scale,
                                 CulpritVerdict::model, CulpritVerdict::data, CulpritVerdict::unknown});
  take(facts, "step", row.step);
  take(facts, "op", row.op);
  take(facts, "part", row.part);
  take(facts, "layer", row.layer);
  take(facts, "tensor", row.tensor);
  take(facts, "dtype", row.dtype);
  take(facts, "shape", row.shape);
  take(facts, "loss_scale", row.loss_scale);
  take(facts, "element", row.element);
  take(facts, "value", row.value);
  take(facts, "nonfinite", row.nonfinite);
  take(facts, "wide_value", row.wide_value);
  take(facts, "wide_greatest", row.wide_greatest);
  take(facts, "wide", row.wide);
  take(facts, "reached", row.reached);
  take(facts, "binades", row.binades);
  take(facts, "finite_scale", row.finite_scale);
  take(facts, "advice", row.advice);
  if (facts.contains("operands"))
    for (const nb::handle operand : facts["operands"])
      row.operands.push_back(operand_of(nb::cast<nb::dict>(operand)));
  return row;
}

void bind_culprits(nb::module_& module) {
  module.def("advice", &advice, nb::arg("facts"));
  module.def(
      "description", [](const nb::dict& facts) { return analysis::description(culprit_of(facts)); },
      nb::arg("facts"));
}

}  // namespace fp16lab::python
