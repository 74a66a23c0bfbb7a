// Writing run folders (numerics/files/run/run_folder.hpp), and files and folders as a whole
// (numerics/files/disk).
#include "numerics/files/disk/atomic_file.hpp"
#include "numerics/files/disk/new_folder.hpp"
#include "numerics/files/run/run_folder.hpp"
#include "records.hpp"
#include "reports/data/run_config.hpp"

namespace fp16lab::python {

namespace nb = nanobind;

void bind_run_folders(nb::module_& module) {
  nb::class_<RunWriter>(module, "RunWriter")
      .def(
          "__init__",
          [](RunWriter* writer, const std::string& folder, const std::string& name,
             std::vector<std::string> argv, std::string config, std::string build, int threads) {
            Manifest manifest;
            manifest.name = name;
            manifest.argv = std::move(argv);
            manifest.identity = reports::identity_by_sections(reports::flatten_toml(config, "config"));
            manifest.config = std::move(config);
            manifest.git_hash = std::move(build);
            manifest.threads = threads;
            new (writer) RunWriter(folder, std::move(manifest));
          },
          nb::arg("folder"), nb::arg("name"), nb::arg("argv"), nb::arg("config"), nb::arg("build"),
          nb::arg("threads"))
      // What a row lacks has its default; ValueError for a name that it has not (run_rows.hpp).
      .def(
          "step", [](RunWriter& writer, const nb::kwargs& row) { writer.append(row_of<StepRow>(row)); },
          nb::sig("def step(self, **row: typing.Any) -> None"))
      .def(
          "histogram",
          [](RunWriter& writer, const nb::kwargs& row) { writer.append(row_of<HistogramRow>(row)); },
          nb::sig("def histogram(self, **row: typing.Any) -> None"))
      .def(
          "overflow",
          [](RunWriter& writer, const nb::kwargs& row) { writer.append(row_of<OverflowRow>(row)); },
          nb::sig("def overflow(self, **row: typing.Any) -> None"))
      .def(
          "evaluation",
          [](RunWriter& writer, const nb::kwargs& row) { writer.append(row_of<EvaluationRow>(row)); },
          nb::sig("def evaluation(self, **row: typing.Any) -> None"))
      .def("culprit",
           [](RunWriter& writer, const nb::dict& facts) { writer.append(row_of<CulpritRow>(facts)); })
      .def(
          "operand", [](RunWriter& writer, const nb::kwargs& row) { writer.append(row_of<RecipeRow>(row)); },
          nb::sig("def operand(self, **row: typing.Any) -> None"))
      .def("sync", &RunWriter::sync)
      .def(
          "finish",
          [](RunWriter& writer, std::string_view state, std::string message) {
            const auto known = enumerator_called<ExitState>(state);
            if (!known) throw std::invalid_argument("there is no exit state " + std::string(state));
            writer.finish(*known, std::move(message));
          },
          nb::arg("state"), nb::arg("message") = "");
  nb::class_<NewFolder>(module, "NewFolder")
      .def(nb::init<const std::string&>(), nb::arg("path"))
      .def_prop_ro("made", [](const NewFolder& folder) { return folder.made().string(); })
      .def("commit", &NewFolder::commit, nb::arg("replace"))
      .def(
          "__enter__", [](NewFolder& folder) -> NewFolder& { return folder; }, nb::rv_policy::reference)
      .def(
          "__exit__", [](NewFolder& folder, const nb::args&) { folder.discard(); },
          nb::sig("def __exit__(self, *args: object) -> None"));
  module.def(
      "write_file_atomically",
      [](const std::string& path, const nb::bytes& content) {
        write_file_atomically(path, {content.c_str(), content.size()});
      },
      nb::arg("path"), nb::arg("content"));
}

}  // namespace fp16lab::python
