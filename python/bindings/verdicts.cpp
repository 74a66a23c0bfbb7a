// What happened in a run (analysis/account.hpp); paired statistics over seeds (analysis/paired_verdict.hpp),
// and the twin that is their null.
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <vector>

#include "analysis/account.hpp"
#include "analysis/paired_verdict.hpp"
#include "bindings.hpp"
#include "engine/nn/perturbation.hpp"
#include "numerics/files/run/run_folder.hpp"
#include "numerics/random/philox.hpp"

namespace fp16lab::python {

namespace nb = nanobind;

namespace {

nb::object interval_of(const std::optional<analysis::Interval>& interval) {
  return interval ? nb::object(nb::make_tuple(interval->lower, interval->upper)) : nb::none();
}

/// The findings, and the next command.
nb::tuple account_of(const std::string& folder) {
  const analysis::Account account = analysis::account_of(read_run_folder(folder));
  return nb::make_tuple(analysis::findings_text(account), account.next);
}

/// One dictionary for each (differences, diverged, dropped) of the family.
nb::list judge(const std::vector<std::vector<double>>& differences, const std::vector<int>& diverged,
               const std::vector<int>& dropped, double margin, std::string_view unit) {
  std::vector<analysis::PairedSample> family;
  for (std::size_t i = 0; i < differences.size(); ++i)
    family.push_back({.differences = differences[i],
                      .diverged = diverged.at(i),
                      .dropped = dropped.at(i),
                      .margin = margin,
                      .is_of_losses = unit == "%",
                      .higher_is_better = unit != "%"});
  nb::list result;
  for (const analysis::Judgement& judgement : analysis::judge(family)) {
    nb::dict row;
    row["word"] = analysis::name_of(judgement.word);
    row["text"] = analysis::words_of(judgement, unit);
    row["pairs"] = judgement.pairs;
    row["mean"] = judgement.mean;
    row["interval"] = interval_of(judgement.interval);
    row["interval_text"] = analysis::interval_text(judgement.interval);
    result.append(row);
  }
  return result;
}

/// Moves FP32 values by `ulps` in place, as train.perturb_ulps moves those of a parameter of this name.
void perturb(const nb::ndarray<float, nb::c_contig, nb::device::cpu>& values, std::string_view name,
             std::uint32_t ulps, std::uint64_t seed) {
  const PhiloxStream stream{.seed = seed, .stream = stream_id("perturb." + std::string(name))};
  for (std::size_t i = 0; i < values.size(); ++i)
    values.data()[i] = engine::nn::moved_by_ulps(values.data()[i], ulps, (stream.word(i) >> 31) != 0);
}

}  // namespace

void bind_verdicts(nb::module_& module) {
  module.def("account_of", &account_of, nb::arg("folder"),
             nb::sig("def account_of(folder: str) -> tuple[str, str]"));
  module.def(
      "judge", &judge, nb::arg("differences"), nb::arg("diverged"), nb::arg("dropped"), nb::arg("margin"),
      nb::arg("unit"),
      nb::sig("def judge(differences: collections.abc.Sequence[collections.abc.Sequence[float]], diverged: "
              "collections.abc.Sequence[int], dropped: collections.abc.Sequence[int], margin: float, unit: "
              "str) -> list[dict[str, typing.Any]]"));
  module.def("loss_difference", &analysis::loss_difference, nb::arg("variant"), nb::arg("reference"));
  module.def("accuracy_difference", &analysis::accuracy_difference, nb::arg("variant"), nb::arg("reference"));
  module.def("perturb", &perturb, nb::arg("values").noconvert(), nb::arg("name"), nb::arg("ulps"),
             nb::arg("seed"));
}

}  // namespace fp16lab::python
