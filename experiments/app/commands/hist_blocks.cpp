#include "experiments/app/commands/hist_blocks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <variant>

#include "experiments/app/exit_code.hpp"
#include "numerics/convert/convert.hpp"
#include "numerics/convert/quantization_error.hpp"
#include "numerics/text/text.hpp"

namespace fp16lab::experiments {
namespace {

using Json = nlohmann::ordered_json;

/// An array as a matrix of FP32 numbers: its last dimension across, all others down.
struct Matrix {
  MatrixSize size;
  std::vector<float> values;
};

/// In C order, whatever the file's is.
Matrix matrix_of(const CountedArray& array) {
  std::vector<float> values;
  values.reserve(array.info.element_count());
  ArrayFile(array.file).visit(array.info, [&](const ArrayChunk& chunk) {
    std::visit(
        [&]<class T>(std::span<const T> elements) {
          if constexpr (std::is_floating_point_v<T>)
            for (const T x : elements) values.push_back(static_cast<float>(x));
          else
            for (const T x : elements) values.push_back(widen(x));
        },
        chunk);
  });
  const std::vector<std::uint64_t>& shape = array.info.shape;
  const auto across = static_cast<std::int64_t>(shape.empty() ? 1 : shape.back());
  Matrix matrix{{static_cast<std::int64_t>(values.size()) / across, across}, {}};
  if (!array.info.fortran_order || shape.size() < 2) {
    matrix.values = std::move(values);
    return matrix;
  }
  matrix.values.resize(values.size());
  std::vector<std::uint64_t> place(shape.size());  // the first index runs fastest in the file
  for (const float value : values) {
    std::uint64_t at = 0;
    for (std::size_t i = 0; i < shape.size(); ++i) at = at * shape[i] + place[i];
    matrix.values[at] = value;
    for (std::size_t i = 0; i < shape.size() && ++place[i] == shape[i]; ++i) place[i] = 0;
  }
  return matrix;
}

/// With zeros up to multiples of a block.
Matrix filled(const Matrix& matrix, BlockShape block) {
  const auto up = [](std::int64_t n, std::int64_t of) { return of == 0 ? n : (n + of - 1) / of * of; };
  Matrix result{{up(matrix.size.rows, block.rows), up(matrix.size.columns, block.columns)}, {}};
  result.values.resize(static_cast<std::size_t>(result.size.rows * result.size.columns));
  for (std::int64_t row = 0; row < matrix.size.rows; ++row)
    std::copy_n(matrix.values.begin() + row * matrix.size.columns, matrix.size.columns,
                result.values.begin() + row * result.size.columns);
  return result;
}

/// What a quantizer keeps of one array.
struct Kept {
  std::string label;
  QuantizerLoss loss;
  std::uint64_t blocks = 0, not_finite = 0;
  double error = NAN;  ///< L2 norm of the difference over that of the values; of finite blocks

  double headroom() const {
    return loss.blocks > 0 ? loss.headroom_sum / static_cast<double>(loss.blocks) : NAN;
  }
};

Kept kept_by(const Quantizer& quantizer, const CountedArray& array, const Matrix& given, int threads) {
  const Matrix matrix = filled(given, quantizer.block);
  const MatrixSize scales_size = quantizer.scales_of(matrix.size);
  const auto blocks = static_cast<std::size_t>(scales_size.rows * scales_size.columns);
  std::vector<std::uint8_t> codes(matrix.values.size());
  std::vector<float> scales(blocks);
  std::vector<BlockLoss> losses(blocks);
  QuantizeOptions options;
  options.threads = threads;
  const float tensor_scale = quantize(quantizer, matrix.size, matrix.values, codes, scales, options, losses);
  Kept kept{.label = array.label, .loss = {.values = given.values.size()}, .blocks = blocks};
  for (const BlockLoss& loss : losses) kept.loss.add(loss);
  const QuantizationError error = quantization_error(quantizer, matrix.size, given.size, matrix.values, codes,
                                                     scales, tensor_scale, threads);
  kept.not_finite = error.not_finite;
  if (error.whole > 0) kept.error = std::sqrt(error.difference / error.whole);
  return kept;
}

double share(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

std::string title(const Quantizer& quantizer) {
  const auto extent = [](std::int64_t n) { return n == 0 ? std::string("all") : fmt::format("{}", n); };
  return fmt::format("{}: {} codes, a scale in {} for each block of {} x {}, rule {}", quantizer.name,
                     title_of(quantizer.element), title_of(quantizer.scale), extent(quantizer.block.rows),
                     extent(quantizer.block.columns), name_of(quantizer.rule));
}

Json json_of(const Kept& kept) {
  const auto number = [](double x) { return std::isfinite(x) ? Json(x) : Json(nullptr); };
  return {{"tensor", kept.label},
          {"values", kept.loss.values},
          {"made_zero", kept.loss.made_zero},
          {"saturated", kept.loss.saturated},
          {"blocks", kept.blocks},
          {"saturating_blocks", kept.loss.saturated_blocks},
          {"not_finite", kept.not_finite},
          {"mean_headroom", number(kept.headroom())},
          {"relative_error", number(kept.error)}};
}

void print(const Quantizer& quantizer, std::span<const Kept> arrays, bool all) {
  constexpr std::size_t shown_at_most = 10;
  const std::size_t shown = all ? arrays.size() : std::min(arrays.size(), shown_at_most);
  std::size_t width = 6;
  for (const Kept& kept : arrays.first(shown)) width = std::max(width, kept.label.size());
  fmt::print("{}\n{:<{}}  {:>10}  {:>9}  {:>11}  {:>14}  {:>8}  {:>7}\n", title(quantizer), "tensor", width,
             "values", "made 0 %", "saturated %", "of its blocks %", "headroom", "error %");
  const auto number = [](double x, std::string_view form) {
    return std::isnan(x) ? std::string("-") : fmt::format(fmt::runtime(form), x);
  };
  std::uint64_t not_finite = 0;
  for (const Kept& kept : arrays.first(shown))
    fmt::print("{:<{}}  {:>10}  {:>9.3g}  {:>11.3g}  {:>15.3g}  {:>8}  {:>7}\n", kept.label, width,
               kept.loss.values, 100 * share(kept.loss.made_zero, kept.loss.values),
               100 * share(kept.loss.saturated, kept.loss.values),
               100 * share(kept.loss.saturated_blocks, kept.blocks), number(kept.headroom(), "{:.2f}"),
               number(100 * kept.error, "{:.3g}"));
  for (const Kept& kept : arrays) not_finite += kept.not_finite;
  if (shown < arrays.size())
    fmt::print("and {}, with smaller errors (--all lists them)\n",
               counted(arrays.size() - shown, "more tensor"));
  if (not_finite > 0)
    fmt::print("{} of blocks with Inf or NaN {} left out of the errors\n", counted(not_finite, "value"),
               not_finite == 1 ? "is" : "are");
}

}  // namespace

std::vector<Quantizer> parse_quantizers(std::string_view option, const std::vector<std::string>& names) {
  std::vector<Quantizer> result;
  for (const std::string& list : names)
    for (const std::string& text : split_at_commas(list)) {
      const std::size_t colon = text.find(':');
      try {
        Quantizer one = quantizer(text.substr(0, colon));
        if (colon != std::string::npos) {
          const std::string rule = text.substr(colon + 1);
          const std::optional<ScaleRule> known = enumerator_called<ScaleRule>(rule);
          if (!known)
            throw std::invalid_argument(
                fmt::format("unknown rule '{}'; known are {}", rule, known_names<ScaleRule>()));
          one.rule = *known;
        }
        one.check();
        result.push_back(one);
      } catch (const std::invalid_argument& error) {
        throw CommandError(ExitCode::usage, fmt::format("{} {}: {}", option, text, error.what()));
      }
    }
  return result;
}

void show_blocks(const CountedDumps& dumps, std::span<const Quantizer> quantizers, bool all, bool json,
                 int threads) {
  std::vector<std::vector<Kept>> kept(quantizers.size());
  for (const CountedArray& array : dumps.arrays) {
    const Matrix matrix = matrix_of(array);
    for (std::size_t i = 0; i < quantizers.size(); ++i)
      kept[i].push_back(kept_by(quantizers[i], array, matrix, threads));
  }
  Json document = Json::array();
  for (std::size_t i = 0; i < quantizers.size(); ++i) {
    if (json) {
      Json tensors = Json::array();
      for (const Kept& one : kept[i]) tensors.push_back(json_of(one));
      document.push_back({{"quantizer", quantizers[i].name},
                          {"rule", name_of(quantizers[i].rule)},
                          {"tensors", std::move(tensors)}});
      continue;
    }
    std::ranges::stable_sort(kept[i], [](const Kept& a, const Kept& b) {
      return (std::isnan(a.error) ? INFINITY : a.error) > (std::isnan(b.error) ? INFINITY : b.error);
    });
    if (i > 0) fmt::print("\n");
    print(quantizers[i], kept[i], all);
  }
  if (json) fmt::print("{}\n", document.dump(2));
}

}  // namespace fp16lab::experiments
