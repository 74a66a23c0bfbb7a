// Writing run folders (numerics/files/run/run_folder.hpp), and files and folders as a whole (numerics/files/disk).
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "bindings.hpp"
#include "numerics/files/disk/atomic_file.hpp"
#include "numerics/files/disk/new_folder.hpp"
#include "numerics/files/run/run_folder.hpp"
#include "numerics/formats/dtype.hpp"

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
            manifest.config = std::move(config);
            manifest.git_hash = std::move(build);
            manifest.threads = threads;
            new (writer) RunWriter(folder, std::move(manifest));
          },
          nb::arg("folder"), nb::arg("name"), nb::arg("argv"), nb::arg("config"), nb::arg("build"),
          nb::arg("threads"))
      .def(
          "step",
          [](RunWriter& writer, std::uint64_t step, double loss, double loss_scale, bool found_inf,
             bool skipped, double grad_norm, double lr, std::optional<double> underflow_rate,
             std::uint64_t state_hash, double seconds, std::optional<double> epoch) {
            writer.append(StepRow{step, loss, loss_scale, found_inf, skipped, grad_norm, lr, underflow_rate,
                                  state_hash, seconds, epoch});
          },
          nb::kw_only(), nb::arg("step"), nb::arg("loss"), nb::arg("loss_scale"), nb::arg("found_inf"),
          nb::arg("skipped"), nb::arg("grad_norm"), nb::arg("lr"), nb::arg("underflow_rate").none(),
          nb::arg("state_hash"), nb::arg("seconds"), nb::arg("epoch").none())
      .def(
          "histogram",
          [](RunWriter& writer, std::uint64_t step, std::string tensor, std::string_view observed,
             std::string kind, std::string_view dtype, double loss_scale, const ExponentHistogram& before,
             const ExponentHistogram& after, std::optional<std::uint64_t> unmoved) {
            HistogramRow row;
            row.step = step;
            row.tensor = std::move(tensor);
            const auto known = observed_of(observed);
            if (!known)
              throw std::invalid_argument("nothing that can be observed is called " + std::string(observed));
            row.observed = *known;
            row.kind = std::move(kind);
            row.dtype = format_of(dtype);
            row.loss_scale = loss_scale;
            row.unmoved = unmoved;
            row.before = before;
            row.after = after;
            writer.append(row);
          },
          nb::kw_only(), nb::arg("step"), nb::arg("tensor"), nb::arg("observed"), nb::arg("kind"),
          nb::arg("dtype"), nb::arg("loss_scale"), nb::arg("before"), nb::arg("after"),
          nb::arg("unmoved").none())
      .def(
          "overflow",
          [](RunWriter& writer, std::uint64_t step, double loss_scale, std::vector<std::string> optimizers,
             std::vector<std::string> parameters) {
            OverflowRow row;
            row.step = step;
            row.loss_scale = loss_scale;
            row.optimizers = std::move(optimizers);
            row.parameters = std::move(parameters);
            writer.append(row);
          },
          nb::kw_only(), nb::arg("step"), nb::arg("loss_scale"), nb::arg("optimizers"), nb::arg("parameters"))
      .def(
          "evaluation",
          [](RunWriter& writer, std::uint64_t step, std::string split, double loss,
             std::optional<double> accuracy) {
            writer.append(
                EvaluationRow{.step = step, .split = std::move(split), .loss = loss, .accuracy = accuracy});
          },
          nb::kw_only(), nb::arg("step"), nb::arg("split"), nb::arg("loss"), nb::arg("accuracy").none())
      .def("culprit", [](RunWriter& writer, const nb::dict& facts) { writer.append(culprit_of(facts)); })
      .def("sync", &RunWriter::sync)
      .def(
          "finish",
          [](RunWriter& writer, std::string_view state, std::string message) {
            const auto known = exit_state_of(state);
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
