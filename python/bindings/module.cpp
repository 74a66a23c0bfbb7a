#include "bindings.hpp"
#include "numerics/platform/standard_streams.hpp"
#include "numerics/platform/worker_pool.hpp"

NB_MODULE(_core, module) {
  fp16lab::
      open_standard_descriptors();  // no file that is written gets descriptor 2 of a Python without stderr
  module.doc() = "The C++ library of fp16lab; use the package fp16lab.";
  module.def(
      "share_on_openmp_threads",
      [](std::uintptr_t parallel) {
        fp16lab::share_on_openmp_threads(reinterpret_cast<fp16lab::OpenmpParallel>(parallel));
      },
      nanobind::arg("parallel"));
  fp16lab::python::bind_rounding(module);
  fp16lab::python::bind_products(module);
  fp16lab::python::bind_histograms(module);
  fp16lab::python::bind_tensor_products(module);
  nanobind::set_leak_warnings(false);  // what a traceback still holds when Python ends is no leak
  fp16lab::python::bind_culprits(module);
  fp16lab::python::bind_merged_runs(module);
  fp16lab::python::bind_policies(module);
  fp16lab::python::bind_quantizers(module);
  fp16lab::python::bind_run_folders(module);
  fp16lab::python::bind_means(module);
  fp16lab::python::bind_summations(module);
  fp16lab::python::bind_run_readers(module);
  fp16lab::python::bind_verdicts(module);
  fp16lab::python::bind_comparisons(module);
}
