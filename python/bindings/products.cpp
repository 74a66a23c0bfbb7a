// Products of tensor cores (numerics/gemm), the table of their models, and one dot product taken apart.
#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "bindings.hpp"
#include "numerics/gemm/planned_convolution.hpp"
#include "numerics/platform/floating_point_scope.hpp"
#include "numerics/platform/worker_pool.hpp"
#include "numerics/tensor_core/explained_dot.hpp"

namespace fp16lab::python {

namespace nb = nanobind;

namespace {

/// Codes with any strides, the last two dimensions being those of a matrix.
using Matrices = nb::ndarray<nb::ro, nb::device::cpu>;
using Result = nb::ndarray<nb::c_contig, nb::device::cpu>;
using Extents = std::array<std::int64_t, 4>;

/// Matrix number `index` of a batch.
StridedMatrix matrix_at(const Matrices& matrices, DType format, std::size_t index) {
  const std::size_t last = matrices.ndim() - 1;
  std::int64_t offset = 0;
  for (std::size_t i = last - 1; i-- > 0;) {
    offset += static_cast<std::int64_t>(index % matrices.shape(i)) * matrices.stride(i);
    index /= matrices.shape(i);
  }
  const auto* const codes = static_cast<const std::byte*>(matrices.data());
  return {format, codes + offset * static_cast<std::int64_t>(matrices.itemsize()), matrices.stride(last - 1),
          matrices.stride(last)};
}

Join join_of(std::string_view name) {
  if (const auto join = enumerator_called<Join>(name)) return *join;
  throw std::invalid_argument("join is '" + std::string(name) + "'; one of " + known_names<Join>() +
                              " is needed");
}

ProductKind kind_of(std::string_view name) {
  if (const auto kind = enumerator_called<ProductKind>(name)) return *kind;
  throw std::invalid_argument("kind is '" + std::string(name) + "'; one of " + known_names<ProductKind>() +
                              " is needed");
}

DType partials_of(std::string_view name) {
  for (const DType format : {DType::f32, DType::f16, DType::bf16})
    if (name == name_of(format)) return format;
  throw std::invalid_argument("partials is '" + std::string(name) + "'; one of f32, f16, bf16 is needed");
}

/// Does memory hold the transpose of the matrix, row-major?
bool is_transposed(const StridedMatrix& x) { return x.row_stride == 1 && x.column_stride > 1; }

/// The format of block scales; f32 for none.
DType scale_format(std::string_view name) {
  return name == name_of(DType::e8m0)    ? DType::e8m0
         : name == name_of(DType::ue4m3) ? DType::ue4m3
                                         : DType::f32;
}

/// One for each matrix of the batch: D = C (+) A B, C being what D holds, or +0. `scale_block`: the elements
/// of K that have one scale; 0 for none, whose arrays are then not read.
void matmul(const Matrices& a, std::string_view a_name, const Matrices& b, std::string_view b_name,
            std::string_view model_name, std::string_view accumulator, bool add_to_result,
            const Result& result, std::string_view plan_name, int parts, std::string_view join,
            std::string_view partials, bool fast_accumulation, int library_threads, std::string_view kind,
            int threads, const Matrices& a_scales, const Matrices& b_scales, std::string_view scale_name,
            int scale_block) {
  const FloatingPointScope scope;
  const DType a_format = operand_format(a_name), b_format = operand_format(b_name);
  const LibraryPlan& plan = library_plan(plan_name);
  const TensorCoreModel& model =
      planned_row(plan, model_name, a_format, b_format, accumulator_format(accumulator));
  const std::size_t dimensions = result.ndim();
  if (threads < 1)
    throw std::invalid_argument("threads is " + std::to_string(threads) + "; at least 1 is needed");
  bool fits = dimensions >= 2 && a.ndim() == dimensions && b.ndim() == dimensions &&
              a.shape(dimensions - 2) == result.shape(dimensions - 2) &&
              b.shape(dimensions - 1) == result.shape(dimensions - 1) &&
              a.shape(dimensions - 1) == b.shape(dimensions - 2);
  std::size_t batch = 1;
  for (std::size_t i = 0; fits && i + 2 < dimensions; ++i) {
    fits = a.shape(i) == result.shape(i) && b.shape(i) == result.shape(i);
    batch *= result.shape(i);
  }
  if (!fits) throw std::invalid_argument("the shapes of a, b and the result do not fit each other");
  const std::size_t size = size_of(model.accumulator());
  if (a.itemsize() != size_of(a_format) || b.itemsize() != size_of(b_format) || result.itemsize() != size)
    throw std::invalid_argument("codes have another size than their format");
  const GemmShape shape{.m = static_cast<std::int64_t>(a.shape(dimensions - 2)),
                        .n = static_cast<std::int64_t>(b.shape(dimensions - 1)),
                        .k = static_cast<std::int64_t>(a.shape(dimensions - 1))};
  if (batch == 0) return;
  const ProductCall call{.shape = shape,
                         .batch = static_cast<std::int64_t>(batch),
                         .kind = kind_of(kind),
                         .a_transposed = is_transposed(matrix_at(a, a_format, 0)),
                         .b_transposed = is_transposed(matrix_at(b, b_format, 0)),
                         .a = a_format,
                         .b = b_format,
                         .threads = library_threads,
                         .fast_accumulation = fast_accumulation,
                         .parts = parts,
                         .join = join_of(join),
                         .partials = partials_of(partials)};
  const PlannedProduct product = plan.product(model, call);
  const bool planned = &plan != &library_plans().front();
  if (planned && add_to_result)
    throw std::invalid_argument("plan '" + std::string(plan.name) +
                                "': where c enters is not known; add it to the result yourself");
  // A batch of many is shared out by its products; results do not know.
  const DType of_scales = scale_format(scale_name);
  const auto blocks = static_cast<std::size_t>(scale_block > 0 ? shape.k / scale_block : 0);
  if (scale_block > 0 &&
      (planned || of_scales == DType::f32 || a_scales.ndim() != dimensions || b_scales.ndim() != dimensions ||
       a_scales.itemsize() != 1 || b_scales.itemsize() != 1 ||
       a_scales.shape(dimensions - 2) != a.shape(dimensions - 2) ||
       a_scales.shape(dimensions - 1) != blocks || b_scales.shape(dimensions - 2) != blocks ||
       b_scales.shape(dimensions - 1) != b.shape(dimensions - 1)))
    throw std::invalid_argument("the shapes of scale_a and scale_b do not fit a and b");
  const bool share_batch = batch >= 2 * static_cast<std::size_t>(threads);
  const nb::gil_scoped_release unlocked;
  const auto one = [&](std::size_t index) {
    std::byte* const to =
        static_cast<std::byte*>(result.data()) + index * static_cast<std::size_t>(shape.m * shape.n) * size;
    const int own = share_batch ? 1 : threads;
    const StridedMatrix left = matrix_at(a, a_format, index), right = matrix_at(b, b_format, index);
    if (planned)
      planned_gemm(product, shape, left, right, reinterpret_cast<float*>(to), shape.n, own);
    else
      emulated_gemm(model, shape, left, right, add_to_result ? to : nullptr, to, shape.n, own,
                    scale_block > 0 ? StridedScales{scale_block, matrix_at(a_scales, of_scales, index),
                                                    matrix_at(b_scales, of_scales, index)}
                                    : StridedScales{});
  };
  if (share_batch)
    share_tasks(batch, threads, one);
  else
    for (std::size_t index = 0; index < batch; ++index) one(index);
}

/// The sums of a convolution, or of one of its gradients, in FP32 (planned_convolution.hpp has the
/// layout), in the order of a plan. Addresses: dense memory that Python has checked, bias 0 for none;
/// extents: those of x (n, c, h, w), the weight (k, c / groups, r, s) and y (n, k, p, q) in any layout.
void convolve(std::string_view wanted, std::uintptr_t x, std::uintptr_t weight, std::uintptr_t y,
              std::uintptr_t bias, const Extents& x_shape, const Extents& weight_shape,
              std::array<std::int64_t, 2> stride, std::array<std::int64_t, 2> padding,
              std::array<std::int64_t, 2> dilation, std::int64_t groups, bool channels_last,
              std::string_view format, std::string_view model_name, std::string_view plan_name,
              int library_threads, std::uintptr_t result, int threads) {
  const FloatingPointScope scope;
  const LibraryPlan& plan = library_plan(plan_name);
  const auto convolved = enumerator_called<Convolved>(wanted);
  if (!convolved || plan.convolution == nullptr)
    throw std::invalid_argument("plan '" + std::string(plan.name) + "' has no rule for convolutions");
  const ConvolutionCall call{.result = *convolved,
                             .n = x_shape[0],
                             .c = x_shape[1],
                             .h = x_shape[2],
                             .w = x_shape[3],
                             .k = weight_shape[0],
                             .r = weight_shape[2],
                             .s = weight_shape[3],
                             .stride = stride,
                             .padding = padding,
                             .dilation = dilation,
                             .groups = groups,
                             .channels_last = channels_last,
                             .format = operand_format(format),
                             .threads = library_threads};
  const PlannedConvolution planned =
      plan.convolution(tensor_core_model(model_name, call.format, DType::f32), call);
  const nb::gil_scoped_release unlocked;
  const auto words = [](std::uintptr_t address) { return reinterpret_cast<const std::uint16_t*>(address); };
  planned_convolution(planned, call, {words(x), words(weight), words(y), words(bias)},
                      reinterpret_cast<float*>(result), threads);
}

/// Maps each generation, oldest first, to its rows as (operands, accumulator, source).
nb::dict models() {
  nb::dict result;
  std::vector<std::string_view> names(tensor_core_names().begin(), tensor_core_names().end());
  names.insert(names.end(), block_scaled_names().begin(), block_scaled_names().end());
  for (const std::string_view name : names) {
    nb::list rows;
    for (const TensorCoreModel& model : all_tensor_core_models()) {
      if (model.name != name) continue;
      nb::list operands;
      for (const DType format : dtypes<is_floating>)
        if (model.operands.contains(format)) operands.append(name_of(format));
      nb::dict row;
      row["hardware"] = model.hardware;
      row["operands"] = nb::tuple(operands);
      row["accumulator"] = name_of(model.accumulator());
      row["block_size"] = model.block().products;
      row["fraction_bits"] = model.block().fraction_bits;
      row["output"] = name_of(model.stages.back().output);
      row["stages"] = stages_text(model);
      nb::list scales;
      for (const ScaleKind& kind : model.scales)
        if (kind.block > 0) scales.append(nb::make_tuple(name_of(kind.format), kind.block));
      row["scales"] = nb::tuple(scales);
      row["evidence"] = name_of(model.evidence);
      row["source"] = model.source;
      rows.append(row);
    }
    result[nb::str(name.data(), name.size())] = nb::tuple(rows);
  }
  return result;
}

/// Plans by name.
nb::dict plans() {
  nb::dict result;
  for (const LibraryPlan& plan : library_plans()) {
    nb::dict row;
    row["library"] = plan.library;
    row["rows"] = plan.rows;
    row["rule"] = plan.rule;
    row["unknown"] = plan.unknown;
    row["evidence"] = name_of(plan.evidence);
    row["source"] = plan.source;
    result[nb::str(plan.name.data(), plan.name.size())] = row;
  }
  return result;
}

/// Numerator and denominator in digits; Python has whole numbers of any size.
nb::tuple digits_of(const Rational& value) {
  return nb::make_tuple(numerator(value).str(), denominator(value).str());
}

/// (kind, negative, numerator, denominator).
nb::tuple number_of(const ExplainedNumber& number) {
  const char* kind = number.kind == Exact::Kind::nan        ? "nan"
                     : number.kind == Exact::Kind::infinite ? "infinite"
                                                            : "finite";
  return nb::make_tuple(kind, number.negative, numerator(number.value).str(),
                        denominator(number.value).str());
}

nb::dict step_of(const ExplainedStep& step) {
  nb::list terms;
  for (const ExplainedTerm& term : step.terms) {
    using Source = ExplainedTerm::Source;
    nb::dict row;
    row["source"] = name_of(term.source);
    const bool of_products = term.source == Source::product || term.source == Source::group;
    row["k"] = of_products ? nb::cast(term.k) : nb::none();
    row["number"] = number_of(term.number);
    row["exponent"] = term.exponent;
    row["kept"] = digits_of(term.kept);
    row["dropped"] = digits_of(term.dropped);
    terms.append(row);
  }
  nb::dict result;
  result["fused"] = step.kind == Sum::aligned;
  result["terms"] = terms;
  result["max_exponent"] = step.max_exponent;
  result["unit_exponent"] = step.unit_exponent;
  result["sum"] = number_of(step.sum);
  result["word"] = step.word;
  result["result"] = number_of(step.result);
  return result;
}

nb::dict explain(const std::vector<std::uint32_t>& a, std::string_view a_format,
                 const std::vector<std::uint32_t>& b, std::string_view b_format, std::uint32_t c,
                 std::string_view model_name, std::string_view accumulator,
                 const std::vector<std::uint32_t>& a_scales, const std::vector<std::uint32_t>& b_scales,
                 std::string_view scale_name, int scale_block) {
  const FloatingPointScope scope;
  const TensorCoreModel& model = tensor_core_model(model_name, operand_format(a_format),
                                                   operand_format(b_format), accumulator_format(accumulator));
  const ExplainedDot dot = explained_dot(model, operand_format(a_format), a, operand_format(b_format), b, c,
                                         {{scale_format(scale_name), scale_block}, a_scales, b_scales});
  nb::list steps;
  for (const ExplainedStep& step : dot.steps) steps.append(step_of(step));
  nb::dict result;
  result["steps"] = steps;
  result["word"] = dot.word;
  result["result"] = number_of(dot.result);
  result["exact"] = number_of(dot.exact);
  result["nearest_word"] = dot.nearest_word;
  result["nearest"] = number_of(dot.nearest);
  result["ulp_exponent"] = dot.ulp_exponent;
  result["operand_error"] = digits_of(dot.operand_error);
  result["error"] = dot.error ? nb::object(digits_of(*dot.error)) : nb::none();
  return result;
}

}  // namespace

void bind_products(nb::module_& module) {
  module.def("matmul", &matmul, nb::arg("a").noconvert(), nb::arg("a_format"), nb::arg("b").noconvert(),
             nb::arg("b_format"), nb::arg("model"), nb::arg("accumulator"), nb::arg("add_to_result"),
             nb::arg("result").noconvert(), nb::arg("plan"), nb::arg("parts"), nb::arg("join"),
             nb::arg("partials"), nb::arg("fast_accumulation"), nb::arg("library_threads"), nb::arg("kind"),
             nb::arg("threads"), nb::arg("a_scales").noconvert(), nb::arg("b_scales").noconvert(),
             nb::arg("scale_format"), nb::arg("scale_block"));
  module.def("convolve", &convolve);
  module.def("plans", &plans, nb::sig("def plans() -> dict[str, dict[str, str]]"));
  module.def("models", &models, nb::sig("def models() -> dict[str, tuple[dict[str, typing.Any], ...]]"));
  module.def(
      "explain", &explain, nb::arg("a"), nb::arg("a_format"), nb::arg("b"), nb::arg("b_format"), nb::arg("c"),
      nb::arg("model"), nb::arg("accumulator"), nb::arg("a_scales"), nb::arg("b_scales"),
      nb::arg("scale_format"), nb::arg("scale_block"),
      nb::sig(
          "def explain(a: collections.abc.Sequence[int], a_format: str, b: collections.abc.Sequence[int], "
          "b_format: str, c: int, model: str, accumulator: str, a_scales: collections.abc.Sequence[int], "
          "b_scales: collections.abc.Sequence[int], scale_format: str, scale_block: int) -> dict[str, "
          "typing.Any]"));
}

}  // namespace fp16lab::python
