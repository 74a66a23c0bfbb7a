// The mean of ranks' gradients in the order of NCCL (engine/parallel/nccl_order.hpp), for lab.comm_hook.
#include <nanobind/ndarray.h>
#include <nanobind/stl/string_view.h>

#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "bindings.hpp"
#include "engine/parallel/nccl_order.hpp"
#include "numerics/convert/convert.hpp"
#include "numerics/platform/floating_point_scope.hpp"

namespace fp16lab::python {

namespace nb = nanobind;

namespace {

using engine::parallel::SumOrder;
using Rows = nb::ndarray<float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using Row = nb::ndarray<float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <class Choice, std::size_t count>
Choice chosen(std::string_view name, const std::array<Choice, count>& all, const char* what) {
  for (const Choice choice : all)
    if (name_of(choice) == name) return choice;
  throw std::invalid_argument(std::string("there is no ") + what + " '" + std::string(name) + "'");
}

/// Takes values that have been divided already: to the wire, the sum over ranks, back.
template <class T>
void sum(SumOrder order, const std::vector<std::span<float>>& rows) {
  std::vector<std::vector<T>> wire;
  for (const std::span<float> row : rows)
    narrow<typename T::Format>(row, std::span<T>(wire.emplace_back(row.size())));
  const std::vector<std::span<T>> parts(wire.begin(), wire.end());
  engine::parallel::all_reduce<T>(order, parts, 0, rows.front().size());
  widen<typename T::Format>(std::span<const T>(wire.front()), rows.front());
}

/// rows (ranks, n), which are lost -> mean (n).
void mean_over_ranks(const Rows& values, std::string_view wire_name, std::string_view order_name,
                     std::string_view predivide_name, const Row& mean) {
  const FloatingPointScope scope;
  const nb::gil_scoped_release unlocked;
  const SumOrder order = chosen(order_name, every<engine::parallel::SumOrder>, "order");
  const auto predivide = chosen(predivide_name, every<engine::parallel::Predivide>, "predivide");
  const DType wire = chosen(wire_name, engine::parallel::wire_formats, "wire");
  if (values.shape(0) == 0 || mean.shape(0) != values.shape(1))
    throw std::invalid_argument("the mean is one row of values of at least one rank");
  const auto divisors = engine::parallel::divisors_of(predivide, static_cast<std::int64_t>(values.shape(0)));
  std::vector<std::span<float>> rows;
  for (std::size_t i = 0; i < values.shape(0); ++i) {
    rows.emplace_back(values.data() + i * values.shape(1), values.shape(1));
    if (divisors.before != 1)
      for (float& value : rows.back()) value /= divisors.before;
  }
  if (wire == DType::f16)
    sum<Float16>(order, rows);
  else if (wire == DType::bf16)
    sum<BFloat16>(order, rows);
  else
    engine::parallel::all_reduce<float>(order, rows, 0, values.shape(1));
  for (std::size_t i = 0; i < values.shape(1); ++i)
    mean.data()[i] = divisors.after == 1 ? rows.front()[i] : rows.front()[i] / divisors.after;
}

}  // namespace

void bind_means(nb::module_& module) {
  module.def("mean_over_ranks", &mean_over_ranks, nb::arg("values").noconvert(), nb::arg("wire"),
             nb::arg("order"), nb::arg("predivide"), nb::arg("mean").noconvert());
}

}  // namespace fp16lab::python
