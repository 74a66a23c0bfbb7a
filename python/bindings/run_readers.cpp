// Reading run folders (numerics/files/run/run_folder.hpp): rows as columns.
#include "numerics/files/disk/read_file.hpp"
#include "numerics/files/run/run_folder.hpp"
#include "numerics/platform/floating_point_scope.hpp"
#include "records.hpp"

namespace fp16lab::python {

namespace nb = nanobind;

namespace {

nb::dict read_run(const std::string& folder) {
  const FloatingPointScope scope;
  const RunFolder run = read_run_folder(folder);
  nb::dict result;
  result["steps"] = columns_of(run.steps);
  result["evaluations"] = columns_of(run.evaluations);
  result["notes"] = run.notes;
  result["damage"] = run.damage;
  result["finished"] = run.finished();
  result["whole"] = run.whole;
  return result;
}

ObservedSet observed_set(const std::vector<std::string>& names) {
  ObservedSet set;
  for (const std::string& name : names) {
    const auto known = enumerator_called<Observed>(name);
    if (!known) throw std::invalid_argument("nothing that can be observed is called '" + name + "'");
    set.insert(*known);
  }
  return set;
}

nb::dict histograms_of(const std::string& folder, const std::vector<std::string>& tensors) {
  const FloatingPointScope scope;
  return columns_of(read_histograms(folder, observed_set(tensors)));
}

nb::dict overflows_of(const std::string& folder) {
  const FloatingPointScope scope;
  const std::vector<OverflowRow> rows = read_overflows(folder);
  nb::dict columns = columns_of(rows);
  nb::list rescued;
  for (const OverflowRow& row : rows) rescued.append(row.rescue ? nb::cast(row.rescue->rescued) : nb::none());
  columns["rescued"] = rescued;
  return columns;
}

/// The rows of one of `Run`'s tables, as dictionaries.
nb::object rows_of(const std::string& folder, const std::string& table) {
  const FloatingPointScope scope;
  if (table == "steps") return to_python(read_run_folder(folder).steps);
  if (table == "evaluations") return to_python(read_run_folder(folder).evaluations);
  if (table == "overflows") return to_python(read_overflows(folder));
  if (table == "culprits") return to_python(read_culprits(folder));
  if (table == "recipe") return to_python(read_recipe(folder));
  if (table == "histograms") {
    ObservedSet all;
    for (const Observed each : every<Observed>) all.insert(each);
    return to_python(read_histograms(folder, all));
  }
  throw std::invalid_argument("there is no table '" + table +
                              "'; known are steps, evaluations, histograms, overflows, culprits, recipe");
}

/// The text of the module fp16lab.rows.
std::string row_types() {
  return "\"\"\"The types of Run.rows(), by the descriptions in numerics/files/run/run_rows.hpp.\"\"\"\n\n"
         "from typing import Literal, TypedDict\n\nfrom ._core import Histogram\n\n" +
         typed_dict<StepRow>() + typed_dict<EvaluationRow>() + typed_dict<HistogramRow>() +
         typed_dict<RescueRow>() + typed_dict<OverflowRow>() + typed_dict<CulpritOperandRow>() +
         typed_dict<CulpritRow>() + typed_dict<RecipeRow>();
}

/// (name, type, unit, meaning) of each column or key of a file of a run folder.
nb::list fields_of(const std::string& file) {
  nb::list fields;
  for (const RecordDescription& record : described_records())
    if (record.file == file)
      for (const FieldDescription& field : record.fields)
        fields.append(nb::make_tuple(field.name, field.type, field.unit, field.help));
  return fields;
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
  module.def("record_fields", &fields_of, nb::arg("file"),
             nb::sig("def record_fields(file: str) -> list[tuple[str, str, str, str]]"));
  module.def("read_rows", &rows_of, nb::arg("folder"), nb::arg("table"),
             nb::sig("def read_rows(folder: str, table: str) -> list[typing.Any]"));
  module.def("row_types", &row_types);
  module.def("read_overflows", &overflows_of, nb::arg("folder"),
             nb::sig("def read_overflows(folder: str) -> dict[str, typing.Any]"));
}

}  // namespace fp16lab::python
