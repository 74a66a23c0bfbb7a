#include "numerics/gemm/planned_convolution.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <span>
#include <stdexcept>

#include "numerics/convert/convert.hpp"
#include "numerics/formats/bits.hpp"
#include "numerics/platform/floating_point_scope.hpp"
#include "numerics/platform/worker_pool.hpp"

namespace fp16lab {
namespace {

using Word = std::uint16_t;
using Indices = std::vector<std::int64_t>;

constexpr std::int64_t nowhere = -1;
/// Elements of the gathered operand that are in memory at once.
constexpr std::int64_t gathered_at_once = std::int64_t{1} << 23;

/// For each position along an axis and each tap the position that it meets on the other side, or nowhere.
Indices meetings(std::int64_t inputs, std::int64_t outputs, std::int64_t taps, const ConvolutionCall& call,
                 std::size_t axis, bool from_output) {
  const std::int64_t own = from_output ? outputs : inputs;
  Indices met(static_cast<std::size_t>(own * taps), nowhere);
  for (std::int64_t output = 0; output < outputs; ++output)
    for (std::int64_t tap = 0; tap < taps; ++tap) {
      const std::int64_t input = output * call.stride[axis] - call.padding[axis] + tap * call.dilation[axis];
      if (input < 0 || input >= inputs) continue;
      met[static_cast<std::size_t>((from_output ? output : input) * taps + tap)] =
          from_output ? input : output;
    }
  return met;
}

/// A tensor (n, channels, rows, columns) in memory, and how positions of the other side meet it.
class Window {
 public:
  /// of_x: x as outputs meet it; else y as inputs meet it.
  Window(const ConvolutionCall& call, const Word* data, bool of_x)
      : data_(data), taps_{call.r, call.s}, positions_{of_x ? call.p() : call.h, of_x ? call.q() : call.w} {
    const std::int64_t channels = of_x ? call.c : call.k;
    const std::int64_t rows = of_x ? call.h : call.p(), columns = of_x ? call.w : call.q();
    image_ = channels * rows * columns;
    channel_ = call.channels_last ? 1 : rows * columns;
    column_ = call.channels_last ? channels : 1;
    row_ = column_ * columns;
    vertical_ = meetings(call.h, call.p(), call.r, call, 0, of_x);
    horizontal_ = meetings(call.w, call.q(), call.s, call, 1, of_x);
  }

  /// The elements that `positions` (n, row, column) meet under `taps` (channel from first_channel, r, s), one
  /// row for each position. An index below 0, and a tap that meets nothing, is a zero.
  std::vector<Word> gathered(std::span<const std::int64_t> positions, std::span<const std::int64_t> taps,
                             std::int64_t first_channel, int threads) const {
    struct Tap {
      std::int64_t channel, r, s;
    };
    std::vector<Tap> split;
    for (const std::int64_t tap : taps)
      split.push_back(tap < 0 ? Tap{nowhere, 0, 0}
                              : Tap{(first_channel + tap / (taps_[0] * taps_[1])) * channel_,
                                    tap / taps_[1] % taps_[0], tap % taps_[1]});
    std::vector<Word> all(positions.size() * taps.size(), 0);
    constexpr std::size_t at_once = 256;
    share_tasks((positions.size() + at_once - 1) / at_once, threads, [&](std::size_t task) {
      for (std::size_t i = task * at_once; i < std::min(positions.size(), (task + 1) * at_once); ++i) {
        if (positions[i] < 0) continue;
        const std::int64_t column = positions[i] % positions_[1];
        const std::int64_t row = positions[i] / positions_[1] % positions_[0];
        const Word* const image = data_ + positions[i] / (positions_[0] * positions_[1]) * image_;
        for (std::size_t t = 0; t < split.size(); ++t) {
          const std::int64_t y = vertical_[static_cast<std::size_t>(row * taps_[0] + split[t].r)];
          const std::int64_t x = horizontal_[static_cast<std::size_t>(column * taps_[1] + split[t].s)];
          if (split[t].channel != nowhere && y != nowhere && x != nowhere)
            all[i * taps.size() + t] = image[split[t].channel + y * row_ + x * column_];
        }
      }
    });
    return all;
  }

 private:
  const Word* data_;
  std::array<std::int64_t, 2> taps_, positions_;
  std::int64_t image_, channel_, row_, column_;
  Indices vertical_, horizontal_;
};

Indices counted(std::int64_t first, std::int64_t end) {
  Indices all(static_cast<std::size_t>(end - first));
  std::iota(all.begin(), all.end(), first);
  return all;
}

/// The gradient of y of channels [first, first + count), one row for each, columns by (n, p, q).
std::vector<Word> of_channels(const ConvolutionCall& call, const Word* y, std::int64_t first,
                              std::int64_t count, const Indices& terms) {
  const std::int64_t area = call.p() * call.q();
  std::vector<Word> rows;
  rows.reserve(static_cast<std::size_t>(count) * terms.size());
  for (std::int64_t channel = first; channel < first + count; ++channel)
    for (const std::int64_t term : terms)
      rows.push_back(term < 0             ? Word{0}
                     : call.channels_last ? y[term * call.k + channel]
                                          : y[(term / area * call.k + channel) * area + term % area]);
  return rows;
}

void check(const PlannedConvolution& plan, const ConvolutionCall& call, std::int64_t terms) {
  if (std::min({call.n, call.c, call.h, call.w, call.k, call.r, call.s, call.groups, call.stride[0],
                call.stride[1], call.dilation[0], call.dilation[1], call.p(), call.q()}) < 1 ||
      call.c % call.groups != 0 || call.k % call.groups != 0 || size_of(call.format) != sizeof(Word))
    throw std::invalid_argument(
        fmt::format("planned_convolution: no convolution of 16-bit numbers has {} x {} x {} x {} inputs, a "
                    "kernel of {} x {} and {} groups for {} channels",
                    call.n, call.c, call.h, call.w, call.r, call.s, call.groups, call.k));
  for (const std::int64_t term : plan.terms)
    if (term < no_term || term >= terms)
      throw std::invalid_argument(
          fmt::format("planned_convolution: term {} of a sum of {} terms", term, terms));
}

}  // namespace

void planned_convolution(const PlannedConvolution& plan, const ConvolutionCall& call,
                         const ConvolutionOperands& operands, float* result, int threads) {
  const bool output = call.result == Convolved::output, of_input = call.result == Convolved::input_gradient;
  const std::int64_t in = call.c / call.groups, out = call.k / call.groups, taps = call.r * call.s;
  const std::int64_t positions = call.n * (of_input ? call.h * call.w : call.p() * call.q());
  check(plan, call, output ? in * taps : of_input ? out * taps : positions);
  const auto count = static_cast<std::int64_t>(plan.terms.size());
  const std::int64_t at_once = std::max<std::int64_t>(1, gathered_at_once / std::max<std::int64_t>(count, 1));
  std::vector<float> biases;
  if (output && operands.bias != nullptr)
    for (std::int64_t k = 0; k < call.k; ++k)
      biases.push_back(call.format == DType::bf16 ? widen(BFloat16::from_bits(operands.bias[k]))
                                                  : widen(Float16::from_bits(operands.bias[k])));
  /// m x n sums; bias: for the n columns, or null.
  const auto multiply = [&](std::int64_t m, std::int64_t n, const StridedMatrix& a, const StridedMatrix& b,
                            float* to, std::int64_t ldd, const float* bias = nullptr) {
    const GemmShape shape{.m = m, .n = n, .k = count};
    if (bias != nullptr && plan.from_bias) {
      for (std::int64_t i = 0; i < m; ++i) std::copy_n(bias, n, to + i * ldd);
      return emulated_gemm(*plan.product.row, shape, a, b, to, to, ldd, threads);
    }
    planned_gemm(plan.product, shape, a, b, to, ldd, threads);
    if (bias == nullptr) return;
    const FloatingPointScope scope;
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t j = 0; j < n; ++j) to[i * ldd + j] = canonicalize(to[i * ldd + j] + bias[j]);
  };

  if (call.result == Convolved::bias_gradient) {
    const Word one = call.format == DType::bf16 ? 0x3f80 : 0x3c00;
    const std::vector<Word> rows = of_channels(call, operands.y, 0, call.k, plan.terms);
    multiply(call.k, 1, {call.format, rows.data(), count, 1}, {call.format, &one, 0, 0}, result, 1);
    return;
  }
  const bool of_x = !of_input;
  const Window window(call, of_x ? operands.x : operands.y, of_x);
  for (std::int64_t group = 0; group < call.groups; ++group) {
    if (call.result == Convolved::weight_gradient) {
      const std::vector<Word> rows = of_channels(call, operands.y, group * out, out, plan.terms);
      for (std::int64_t first = 0; first < in * taps; first += at_once) {
        const Indices columns = counted(first, std::min(in * taps, first + at_once));
        const auto width = static_cast<std::int64_t>(columns.size());
        const std::vector<Word> met = window.gathered(plan.terms, columns, group * in, threads);
        multiply(out, width, {call.format, rows.data(), count, 1}, {call.format, met.data(), width, 1},
                 result + group * out * in * taps + first, in * taps);
      }
      continue;
    }
    const std::int64_t results = output ? out : in, all_results = output ? call.k : call.c;
    std::vector<Word> filters;  // a row for each channel of the result
    for (std::int64_t channel = 0; channel < results; ++channel)
      for (const std::int64_t term : plan.terms) {
        const std::int64_t at = output ? (group * out + channel) * in * taps + term
                                       : ((group * out + term / taps) * in + channel) * taps + term % taps;
        filters.push_back(term < 0 ? Word{0} : operands.weight[at]);
      }
    for (std::int64_t first = 0; first < positions; first += at_once) {
      const Indices rows = counted(first, std::min(positions, first + at_once));
      const auto height = static_cast<std::int64_t>(rows.size());
      const std::vector<Word> met = window.gathered(rows, plan.terms, group * (output ? in : out), threads);
      multiply(height, results, {call.format, met.data(), count, 1}, {call.format, filters.data(), 1, count},
               result + first * all_results + group * results, all_results,
               biases.empty() ? nullptr : biases.data() + group * results);
    }
  }
}

}  // namespace fp16lab
