// Reading run folders (numerics/files/run/run_folder.hpp): rows as columns.
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <limits>
#include <memory>
#include <vector>

#include "bindings.hpp"
#include "numerics/files/disk/read_file.hpp"
#include "numerics/files/run/run_folder.hpp"
#include "numerics/platform/floating_point_scope.hpp"

namespace fp16lab::python {

namespace nb = nanobind;

namespace {

/// A column of numbers, which Python then owns.
template <class T>
nb::object array_of(std::vector<T> values) {
  auto* held = new std::vector<T>(std::move(values));
  const nb::capsule owner(held, [](void* column) noexcept { delete static_cast<std::vector<T>*>(column); });
  return nb::cast(nb::ndarray<nb::numpy, T, nb::ndim<1>>(held->data(), {held->size()}, owner));
}

template <class T, class Rows, class Value>
nb::object column(const Rows& rows, const Value& value) {
  std::vector<T> values;
  values.reserve(rows.size());
  for (const auto& row : rows) values.push_back(static_cast<T>(value(row)));
  return array_of(std::move(values));
}
template <class Rows, class Value>
nb::list texts(const Rows& rows, const Value& value) {
  nb::list values;
  for (const auto& row : rows) values.append(value(row));
  return values;
}

double or_nan(const std::optional<double>& value) {
  return value.value_or(std::numeric_limits<double>::quiet_NaN());
}

nb::dict steps_of(const std::vector<StepRow>& rows) {
  nb::dict columns;
  columns["step"] = column<std::uint64_t>(rows, [](const StepRow& row) { return row.step; });
  columns["loss"] = column<double>(rows, [](const StepRow& row) { return row.loss; });
  columns["loss_scale"] = column<double>(rows, [](const StepRow& row) { return row.loss_scale; });
  columns["found_inf"] = column<std::uint8_t>(rows, [](const StepRow& row) { return row.found_inf; });
  columns["skipped"] = column<std::uint8_t>(rows, [](const StepRow& row) { return row.skipped; });
  columns["grad_norm"] = column<double>(rows, [](const StepRow& row) { return row.grad_norm; });
  columns["lr"] = column<double>(rows, [](const StepRow& row) { return row.lr; });
  columns["underflow_rate"] =
      column<double>(rows, [](const StepRow& row) { return or_nan(row.underflow_rate); });
  columns["state_hash"] = column<std::uint64_t>(rows, [](const StepRow& row) { return row.state_hash; });
  columns["seconds"] = column<double>(rows, [](const StepRow& row) { return row.seconds; });
  columns["epoch"] = column<double>(rows, [](const StepRow& row) { return or_nan(row.epoch); });
  return columns;
}

nb::dict evaluations_of(const std::vector<EvaluationRow>& rows) {
  nb::dict columns;
  columns["step"] = column<std::uint64_t>(rows, [](const EvaluationRow& row) { return row.step; });
  columns["split"] = texts(rows, [](const EvaluationRow& row) { return row.split; });
  columns["loss"] = column<double>(rows, [](const EvaluationRow& row) { return row.loss; });
  columns["accuracy"] = column<double>(rows, [](const EvaluationRow& row) { return or_nan(row.accuracy); });
  columns["bits_per_character"] =
      column<double>(rows, [](const EvaluationRow& row) { return or_nan(row.bits_per_character); });
  return columns;
}

nb::dict read_run(const std::string& folder) {
  const FloatingPointScope scope;
  const RunFolder run = read_run_folder(folder);
  nb::dict result;
  result["steps"] = steps_of(run.steps);
  result["evaluations"] = evaluations_of(run.evaluations);
  result["notes"] = run.notes;
  result["damage"] = run.damage;
  result["finished"] = run.finished();
  result["whole"] = run.whole;
  return result;
}

ObservedSet observed_set(const std::vector<std::string>& names) {
  ObservedSet set;
  for (const std::string& name : names) {
    const auto known = observed_of(name);
    if (!known) throw std::invalid_argument("nothing that can be observed is called '" + name + "'");
    set.insert(*known);
  }
  return set;
}

nb::dict histograms_of(const std::string& folder, const std::vector<std::string>& tensors) {
  const FloatingPointScope scope;
  const std::vector<HistogramRow> rows = read_histograms(folder, observed_set(tensors));
  nb::dict columns;
  columns["step"] = column<std::uint64_t>(rows, [](const HistogramRow& row) { return row.step; });
  columns["tensor"] = texts(rows, [](const HistogramRow& row) { return row.tensor; });
  columns["observed"] = texts(rows, [](const HistogramRow& row) { return name_of(row.observed); });
  columns["kind"] = texts(rows, [](const HistogramRow& row) { return row.kind; });
  columns["dtype"] = texts(rows, [](const HistogramRow& row) { return name_of(row.dtype); });
  columns["intermediate"] =
      column<std::uint8_t>(rows, [](const HistogramRow& row) { return row.intermediate; });
  columns["loss_scale"] = column<double>(rows, [](const HistogramRow& row) { return row.loss_scale; });
  columns["unmoved"] = column<double>(rows, [](const HistogramRow& row) {
    return row.unmoved ? static_cast<double>(*row.unmoved) : std::numeric_limits<double>::quiet_NaN();
  });
  columns["before"] = texts(rows, [](const HistogramRow& row) { return row.before; });
  columns["after"] = texts(rows, [](const HistogramRow& row) { return row.after; });
  return columns;
}

nb::dict overflows_of(const std::string& folder) {
  const FloatingPointScope scope;
  const std::vector<OverflowRow> rows = read_overflows(folder);
  nb::dict columns;
  columns["step"] = column<std::uint64_t>(rows, [](const OverflowRow& row) { return row.step; });
  columns["kind"] = texts(rows, [](const OverflowRow& row) { return name_of(row.kind); });
  columns["loss_scale"] = column<double>(rows, [](const OverflowRow& row) { return row.loss_scale; });
  columns["optimizers"] = texts(rows, [](const OverflowRow& row) { return row.optimizers; });
  columns["parameters"] = texts(rows, [](const OverflowRow& row) { return row.parameters; });
  columns["rescued"] = texts(
      rows, [](const OverflowRow& row) { return row.rescue ? nb::cast(row.rescue->rescued) : nb::none(); });
  return columns;
}

}  // namespace

void bind_run_readers(nb::module_& module) {
  module.def("read_run", &read_run, nb::arg("folder"),
             nb::sig("def read_run(folder: str) -> dict[str, typing.Any]"));
  module.def("read_histograms", &histograms_of, nb::arg("folder"), nb::arg("tensors"),
             nb::sig("def read_histograms(folder: str, tensors: collections.abc.Sequence[str]) -> dict[str, "
                     "typing.Any]"));
  module.def(
      "read_document",
      [](const std::string& path) {
        const std::string text = read_file(path);
        return nb::bytes(text.data(), text.size());
      },
      nb::arg("path"), nb::sig("def read_document(path: str) -> bytes"));
  module.def("read_overflows", &overflows_of, nb::arg("folder"),
             nb::sig("def read_overflows(folder: str) -> dict[str, typing.Any]"));
}

}  // namespace fp16lab::python
