// The extension module fp16lab._core: each file binds one subject. Python code around it (fp16lab/*.py)
// reads arguments and names what is wrong; what computes is the C++ library.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

#include "numerics/formats/dtype.hpp"

namespace fp16lab::python {

/// By its name in files and keys; std::invalid_argument otherwise (Python: ValueError).
inline DType format_of(std::string_view name) {
  const std::optional<DType> format = dtype_called<is_floating>(name);
  if (!format) throw std::invalid_argument("there is no format '" + std::string(name) + "'");
  return *format;
}

void bind_rounding(nanobind::module_& module);
void bind_products(nanobind::module_& module);
void bind_histograms(nanobind::module_& module);
void bind_tensor_products(nanobind::module_& module);
void bind_comparisons(nanobind::module_& module);
void bind_culprits(nanobind::module_& module);
void bind_merged_runs(nanobind::module_& module);
void bind_policies(nanobind::module_& module);
void bind_quantizers(nanobind::module_& module);
void bind_run_folders(nanobind::module_& module);
void bind_means(nanobind::module_& module);
void bind_summations(nanobind::module_& module);
void bind_run_readers(nanobind::module_& module);
void bind_verdicts(nanobind::module_& module);

}  // namespace fp16lab::python
