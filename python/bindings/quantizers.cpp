// Block quantizers (numerics/convert/quantizer.hpp).
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "bindings.hpp"
#include "engine/amp/levels/recipe.hpp"
#include "numerics/convert/quantization_error.hpp"
#include "numerics/formats/dtype.hpp"
#include "numerics/gemm/quantized_gemm.hpp"
#include "numerics/platform/floating_point_scope.hpp"
#include "numerics/platform/worker_pool.hpp"

namespace fp16lab::python {

namespace nb = nanobind;

namespace {

template <class T>
using Matrix = nb::ndarray<T, nb::shape<-1, -1>, nb::c_contig, nb::device::cpu>;
/// Element, scale, block and rule of a quantizer that is a copy of a row.
using Numbers = std::tuple<std::string_view, std::string_view, std::string_view, std::int64_t, std::int64_t,
                           std::string_view>;

Quantizer quantizer_of(const Numbers& numbers) {
  const auto& [name, element, scale, rows, columns, rule] = numbers;
  Quantizer quantizer{name, format_of(element), format_of(scale), {rows, columns}, ScaleRule::floor, ""};
  const std::optional<ScaleRule> known = enumerator_called<ScaleRule>(rule);
  if (!known)
    throw std::invalid_argument("there is no rule '" + std::string(rule) +
                                "'; known are: " + known_names<ScaleRule>());
  quantizer.rule = *known;
  return quantizer;
}

template <class T>
std::span<T> span_of(const nb::ndarray<T, nb::shape<-1, -1>, nb::c_contig, nb::device::cpu>& matrix) {
  return {matrix.data(), matrix.size()};
}
template <class Array>
MatrixSize size_of_matrix(const Array& matrix) {
  return {static_cast<std::int64_t>(matrix.shape(0)), static_cast<std::int64_t>(matrix.shape(1))};
}

// Numbers of Python are cast in IEEE's environment: in the caller's, a subnormal may become zero. Volatile, so that no
// compiler casts earlier or later.
float narrowed(double number) {
  const volatile double given = number;
  const FloatingPointScope scope;
  const volatile auto result = static_cast<float>(given);
  return result;
}
std::optional<float> narrowed(std::optional<double> number) {
  return number ? std::optional(narrowed(*number)) : std::nullopt;
}
double widened(float number) {
  const volatile float given = number;
  const FloatingPointScope scope;
  const volatile auto result = static_cast<double>(given);
  return result;
}

std::tuple<std::int64_t, std::int64_t> scales_shape(const Numbers& numbers, std::int64_t rows,
                                                    std::int64_t columns) {
  const Quantizer quantizer = quantizer_of(numbers);
  quantizer.check();
  const MatrixSize size = quantizer.scales_of({rows, columns});
  return {size.rows, size.columns};
}

double quantize_matrix(const Numbers& numbers, const Matrix<const float>& values,
                       const Matrix<std::uint8_t>& codes, const Matrix<float>& scales,
                       const Matrix<std::uint32_t>& made_zero, const Matrix<std::uint32_t>& saturated,
                       const Matrix<float>& headroom, std::optional<double> tensor_amax, bool tensor_scale,
                       std::optional<double> scale, std::optional<std::uint64_t> seed, int threads) {
  const Quantizer quantizer = quantizer_of(numbers);
  PhiloxStream stream;
  QuantizeOptions options{.tensor_amax = narrowed(tensor_amax),
                          .tensor_scale = tensor_scale,
                          .scale = narrowed(scale),
                          .threads = threads};
  if (seed) {
    stream.seed = *seed;
    options.random = &stream;
  }
  const nb::gil_scoped_release unlocked;
  std::vector<BlockLoss> losses(scales.size());
  const float of_tensor = quantize(quantizer, size_of_matrix(values), span_of(values), span_of(codes),
                                   span_of(scales), options, losses);
  for (std::size_t i = 0; i < losses.size(); ++i) {
    made_zero.data()[i] = losses[i].made_zero;
    saturated.data()[i] = losses[i].saturated;
    headroom.data()[i] = losses[i].headroom;
  }
  return widened(of_tensor);
}

void dequantize_matrix(const Numbers& numbers, const Matrix<const std::uint8_t>& codes,
                       const Matrix<const float>& scales, double tensor_scale, const Matrix<float>& values,
                       int threads) {
  const Quantizer quantizer = quantizer_of(numbers);
  const nb::gil_scoped_release unlocked;
  dequantize(quantizer, size_of_matrix(codes), span_of(codes), span_of(scales), narrowed(tensor_scale),
             span_of(values), threads);
}

std::tuple<double, double> error_of(const Numbers& numbers, const Matrix<const float>& values,
                                    const Matrix<const std::uint8_t>& codes,
                                    const Matrix<const float>& scales, double tensor_scale, int threads) {
  const Quantizer quantizer = quantizer_of(numbers);
  const nb::gil_scoped_release unlocked;
  const MatrixSize size = size_of_matrix(values);
  const QuantizationError error = quantization_error(quantizer, size, size, span_of(values), span_of(codes),
                                                     span_of(scales), narrowed(tensor_scale), threads);
  return {error.difference, error.whole};
}

QuantizedMatrix matrix_of(const Numbers& numbers, const Matrix<const std::uint8_t>& codes,
                          const Matrix<const float>& scales, double tensor_scale) {
  return {quantizer_of(numbers), size_of_matrix(codes), span_of(codes), span_of(scales),
          narrowed(tensor_scale)};
}

/// a (m, k) b (n, k)^T.
void multiply(const Numbers& a, const Matrix<const std::uint8_t>& a_codes,
              const Matrix<const float>& a_scales, double a_tensor_scale, const Numbers& b,
              const Matrix<const std::uint8_t>& b_codes, const Matrix<const float>& b_scales,
              double b_tensor_scale, std::string_view model, const Matrix<float>& result, int threads) {
  const QuantizedMatrix left = matrix_of(a, a_codes, a_scales, a_tensor_scale),
                        right = matrix_of(b, b_codes, b_scales, b_tensor_scale);
  const TensorCoreModel& row = row_of_quantized(left.quantizer, right.quantizer, model);
  const nb::gil_scoped_release unlocked;
  quantized_gemm(row, left, right, span_of(result), threads);
}

/// A row: (element, scale, rows and columns of a block, rule, possible rules, source).
nb::dict rows() {
  nb::dict all;
  for (const Quantizer& quantizer : quantizers()) {
    std::vector<std::string_view> rules;
    for (const ScaleRule rule : rules_of(quantizer.scale)) rules.push_back(name_of(rule));
    all[nb::str(quantizer.name.data(), quantizer.name.size())] =
        nb::make_tuple(name_of(quantizer.element), name_of(quantizer.scale), quantizer.block.rows,
                       quantizer.block.columns, name_of(quantizer.rule), rules, quantizer.source);
  }
  return all;
}

/// A recipe: (name and rule of the quantizers of x, weights and gradients, source, stochastic, hadamard,
/// delayed).
nb::dict recipe_rows() {
  nb::dict all;
  const auto named = [](const Quantizer& quantizer) {
    return nb::make_tuple(quantizer.name, name_of(quantizer.rule));
  };
  for (const engine::amp::Recipe& recipe : engine::amp::recipes())
    all[nb::str(recipe.name.data(), recipe.name.size())] =
        nb::make_tuple(named(recipe.x), named(recipe.weight), named(recipe.gradient), recipe.source,
                       recipe.stochastic, recipe.hadamard, recipe.delayed);
  return all;
}

}  // namespace

void bind_quantizers(nb::module_& module) {
  module.def("quantizers", &rows,
             nb::sig("def quantizers() -> dict[str, tuple[str, str, int, int, str, list[str], str]]"));
  module.def(
      "recipes", &recipe_rows,
      nb::sig("def recipes() -> dict[str, tuple[tuple[str, str], tuple[str, str], tuple[str, str], str, "
              "bool, bool, bool]]"));
  module.def("scales_shape", &scales_shape);
  module.def("quantize", &quantize_matrix, nb::arg("quantizer"), nb::arg("values").noconvert(),
             nb::arg("codes").noconvert(), nb::arg("scales").noconvert(), nb::arg("made_zero").noconvert(),
             nb::arg("saturated").noconvert(), nb::arg("headroom").noconvert(), nb::arg("tensor_amax").none(),
             nb::arg("tensor_scale"), nb::arg("scale").none(), nb::arg("seed").none(), nb::arg("threads"));
  module.def("dequantize", &dequantize_matrix, nb::arg("quantizer"), nb::arg("codes").noconvert(),
             nb::arg("scales").noconvert(), nb::arg("tensor_scale"), nb::arg("values").noconvert(),
             nb::arg("threads"));
  module.def("quantization_error", &error_of, nb::arg("quantizer"), nb::arg("values").noconvert(),
             nb::arg("codes").noconvert(), nb::arg("scales").noconvert(), nb::arg("tensor_scale"),
             nb::arg("threads"));
  module.def("quantized_matmul", &multiply, nb::arg("a"), nb::arg("a_codes").noconvert(),
             nb::arg("a_scales").noconvert(), nb::arg("a_tensor_scale"), nb::arg("b"),
             nb::arg("b_codes").noconvert(), nb::arg("b_scales").noconvert(), nb::arg("b_tensor_scale"),
             nb::arg("model"), nb::arg("result").noconvert(), nb::arg("threads"));
  module.def(
      "random_hadamard",
      [](const Matrix<float>& values, int length, std::optional<std::uint32_t> signs, int threads) {
        const nb::gil_scoped_release unlocked;
        random_hadamard({}, length, 0);  // checks it
        const std::size_t row = values.shape(1);
        const std::size_t rows_at_a_time =
            std::max<std::size_t>(1, (1 << 14) / std::max<std::size_t>(1, row));
        share_tasks((values.shape(0) + rows_at_a_time - 1) / rows_at_a_time, threads, [&](std::size_t task) {
          const std::size_t first = task * rows_at_a_time;
          random_hadamard(
              span_of(values).subspan(first * row, std::min(rows_at_a_time, values.shape(0) - first) * row),
              length, signs.value_or(te_hadamard_signs));
        });
      },
      nb::arg("values").noconvert(), nb::arg("length"), nb::arg("signs").none(), nb::arg("threads"));

  nb::class_<AmaxHistory>(
      module, "AmaxHistory",
      "Delayed scaling: the scale of the next tensor from the greatest magnitudes of those before.\n\n"
      "element: the format it is for. length: so many tensors count. most_recent: only the last one does.\n"
      "margin: the scale is 2**margin larger. While the history holds zeros alone, or an infinity, the "
      "scale\n"
      "stays; a NaN counts as 0. Errors: ValueError. Source: numerics/convert/quantizer.hpp (Transformer\n"
      "Engine's DelayedScaling).\n\n"
      ">>> import fp16lab\n"
      ">>> history = fp16lab.AmaxHistory(\"e4m3\", length=16)\n"
      ">>> history.see(896.0)\n"
      ">>> history.scale\n"
      "2.0\n")
      .def(
          "__init__",
          [](AmaxHistory* self, std::string_view element, int length, bool most_recent, int margin) {
            using Choice = AmaxHistory::Choice;
            new (self) AmaxHistory(format_of(element), length,
                                   most_recent ? Choice::most_recent : Choice::max, margin);
          },
          nb::arg("element") = "e4m3", nb::arg("length") = 1024, nb::arg("most_recent") = false,
          nb::arg("margin") = 0)
      .def_prop_ro(
          "scale",
          [](const AmaxHistory& self) {
            const FloatingPointScope scope;
            return widened(self.scale());
          },
          "What quantizes the next tensor: scale= of quantize.")
      .def(
          "see", [](AmaxHistory& self, double amax) { self.see(narrowed(amax)); }, nb::arg("amax"),
          "After a tensor: its greatest magnitude enters the history.");
}

}  // namespace fp16lab::python
