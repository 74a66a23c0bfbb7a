// Two sets of tensors compared (analysis/dump_comparison.hpp): arrays in memory, or files.
#include <nanobind/ndarray.h>
#include <nanobind/stl/function.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "analysis/dump_comparison.hpp"
#include "analysis/layer_search.hpp"
#include "bindings.hpp"
#include "numerics/platform/floating_point_scope.hpp"

namespace fp16lab::python {

namespace nb = nanobind;

namespace {

using Codes = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;

std::span<const std::byte> bytes_of(const Codes& codes) {
  return {static_cast<const std::byte*>(codes.data()), codes.nbytes()};
}

/// A tensor of both sides, by its plain_name: codes of one shape, their types and what their values carry.
void add_both(analysis::DumpComparison& comparison, const std::string& name, const std::string& a,
              const Codes& codes_a, std::string_view type_a, double scale_a, const std::string& b,
              const Codes& codes_b, std::string_view type_b, double scale_b) {
  const auto type_of = [](std::string_view type) {
    if (const std::optional<DType> known = dtype_called<is_file_type>(type)) return *known;
    throw std::invalid_argument("there is no type '" + std::string(type) + "'");
  };
  analysis::ComparedTensor tensor{.name = name,
                                  .a = a,
                                  .b = b,
                                  .side_a = {type_of(type_a), scale_a},
                                  .side_b = {type_of(type_b), scale_b}};
  for (std::size_t i = 0; i < codes_a.ndim(); ++i) tensor.shape.push_back(codes_a.shape(i));
  analysis::ValueComparer comparer(tensor.side_a, tensor.side_b);
  {
    const nb::gil_scoped_release unlocked;
    comparer.add(bytes_of(codes_a), bytes_of(codes_b));
  }
  tensor.difference = comparer.result();
  comparison.tensors.push_back(std::move(tensor));
}

/// One that was not compared: "" for a side that has it not.
void add_other(analysis::DumpComparison& comparison, const std::string& name, const std::string& a,
               const std::string& b, const std::string& trouble) {
  comparison.tensors.push_back({.name = name, .a = a, .b = b, .trouble = trouble});
}

analysis::DumpComparison compare_files(const std::string& a, const std::string& b,
                                       std::optional<double> scale_a, std::optional<double> scale_b,
                                       double threshold) {
  const nb::gil_scoped_release unlocked;
  return analysis::compare_dumps(a, b, {.scale_a = scale_a, .scale_b = scale_b, .threshold = threshold});
}

analysis::LayerList shortest_list(const std::vector<std::string>& layers, double margin,
                                  const std::function<double(const std::vector<std::string>&)>& error_with,
                                  const std::vector<double>& harm) {
  return analysis::shortest_list(layers, margin, error_with, harm);
}

}  // namespace

void bind_comparisons(nb::module_& module) {
  using analysis::DumpComparison;
  nb::class_<DumpComparison>(module, "DumpComparison")
      .def("__init__",
           [](DumpComparison* self, std::string a, std::string b, double threshold) {
             new (self) DumpComparison{.name_a = std::move(a),
                                       .name_b = std::move(b),
                                       .order = "in the order of a",
                                       .threshold = threshold};
           })
      .def("add_both", &add_both, nb::arg("name"), nb::arg("a"), nb::arg("codes_a").noconvert(),
           nb::arg("type_a"), nb::arg("scale_a"), nb::arg("b"), nb::arg("codes_b").noconvert(),
           nb::arg("type_b"), nb::arg("scale_b"))
      .def("add_other", &add_other, nb::arg("name"), nb::arg("a"), nb::arg("b"), nb::arg("trouble") = "")
      .def_prop_ro("equal", &DumpComparison::equal)
      .def_prop_ro("headline",
                   [](const DumpComparison& comparison) {
                     const FloatingPointScope scope;
                     return analysis::headline_of(comparison);
                   })
      .def(
          "text",
          [](const DumpComparison& comparison, std::optional<std::size_t> most) {
            std::ostringstream out;
            analysis::print_comparison(out, comparison,
                                       most.value_or(std::numeric_limits<std::size_t>::max()));
            return out.str();
          },
          nb::arg("most").none())
      .def("json", [](const DumpComparison& comparison) {
        const FloatingPointScope scope;
        std::ostringstream out;
        analysis::write_comparison_json(out, comparison);
        return out.str();
      });
  nb::class_<analysis::LayerList>(module, "LayerList")
      .def_ro("layers", &analysis::LayerList::layers)
      .def_ro("damage", &analysis::LayerList::damage)
      .def_ro("restored", &analysis::LayerList::restored);
  module.def("shortest_list", &shortest_list, nb::arg("layers"), nb::arg("margin"), nb::arg("error_with"),
             nb::arg("harm"));
  module.def("plain_name", &analysis::plain_name, nb::arg("name"));
  module.def("compare_files", &compare_files, nb::arg("a"), nb::arg("b"), nb::arg("scale_a").none(),
             nb::arg("scale_b").none(), nb::arg("threshold"));
}

}  // namespace fp16lab::python
