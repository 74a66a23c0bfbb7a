#include "numerics/gemm/onednn_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <stdexcept>

namespace fp16lab {

constexpr TensorCoreModel aten_loops{
    "aten",
    "loops of ATen",
    OperandFormats{DType::f16, DType::bf16},
    {{.sum = Sum::fma, .products = 1, .output = BlockOutput::fp32_nearest_even}},
    Evidence::hardware_test,
    "orders revealed on a Zen 5 processor (fp16lab reveal)"};

namespace {

[[noreturn]] void refuse(const std::string& what) {
  throw std::invalid_argument(fmt::format("plan 'onednn': {}", what));
}

void require_row(const TensorCoreModel& row) {
  if (row.name != "avx512_bf16") refuse(fmt::format("it takes the row avx512_bf16, not {}", row.name));
}

std::string text_of(const GemmShape& shape) { return fmt::format("{} x {} x {}", shape.m, shape.n, shape.k); }

PlannedProduct ascending() { return {.row = &aten_loops}; }
/// Four sums of every fourth product; the rest goes on in the first.
PlannedProduct four_chains() {
  return {.row = &aten_loops,
          .ranges = {{.parts = 4, .tile = 1, .interleaved = true, .rest_in_first = true}}};
}
/// A dot product of vectors of eight lanes: eight vectors at a time, then two, then single elements.
PlannedProduct eight_lanes(std::int64_t k) {
  const std::int64_t by_64 = k / 64 * 64, by_16 = k / 16 * 16;
  PlannedProduct product{.row = &aten_loops, .ranges = {}, .terms_follow = true};
  const auto lanes = [&](int count, std::int64_t end) {
    product.ranges.push_back(
        {.parts = count, .tile = 1, .interleaved = true, .join = Join::halves, .end = end});
  };
  if (by_64 > 0) lanes(64, by_64);
  if (by_16 > by_64) lanes(8, by_16);
  return product;
}

/// ATen's own loops, which it takes below its gate, and always for FP16.
PlannedProduct of_loops(const ProductCall& call) {
  const auto [m, n, k] = call.shape;
  if (call.kind == ProductKind::dot) return eight_lanes(k);
  // A matrix of one row has no layout.
  if (call.kind == ProductKind::mv) return call.a_transposed && m > 1 ? ascending() : eight_lanes(k);
  if (call.kind == ProductKind::bmm && m * n * k < 400) return ascending();
  if (m == 1 && n == 1) return four_chains();
  if ((m == 1 || n == 1) && call.a_transposed && call.b_transposed)
    refuse(fmt::format("a product of {} in ATen's loops with both operands transposed was not looked at",
                       text_of(call.shape)));
  if (n == 1) return call.a_transposed ? ascending() : four_chains();
  if (m == 1) return call.b_transposed ? eight_lanes(k) : four_chains();
  if (call.a_transposed == call.b_transposed) return four_chains();
  return call.a_transposed ? ascending() : eight_lanes(k);
}

}  // namespace

PlannedProduct onednn_product(const TensorCoreModel& row, const ProductCall& call) {
  if (call.a == DType::f16 && row.name == aten_loops.name) return of_loops(call);
  require_row(row);
  const auto [m, n, k] = call.shape;
  if (m * n * k * call.batch <= 4096) return of_loops(call);  // ATen's gate
  if (m == 1 || n == 1) {
    const bool a_transposed = call.a_transposed && m > 1, b_transposed = call.b_transposed && n > 1;
    if ((m == 1 && n > 1 && !b_transposed) || (n == 1 && a_transposed)) return ascending();
    return {.row = &row,  // 16 lanes of pairs
            .ranges = {{.parts = 16, .tile = 2, .interleaved = true, .join = Join::halves_to_four}}};
  }
  const ProductOrder chains{.restart = k <= 1024 || call.a_transposed ? 512 : 1024};
  if (call.threads == 1 || call.batch > 1 || !call.a_transposed) return {.row = &row, .ranges = {chains}};
  if (call.threads > 2)
    refuse(fmt::format("whether K of {} is split in {} threads is not known, only in one and two",
                       text_of(call.shape), call.threads));
  if (k > 65536 && n <= 64)
    refuse(fmt::format("whether K of {} is split in two threads was not looked at", text_of(call.shape)));
  if (n <= 64 && k >= 2048 && std::has_single_bit(static_cast<std::uint64_t>(k)))
    return {.row = &row, .ranges = {{.restart = 512, .parts = 2, .tile = k / 2}}};
  return {.row = &row, .ranges = {chains}};
}

namespace {

bool is_depthwise(const ConvolutionCall& call) {
  return call.groups > 1 && call.groups == call.c && call.groups == call.k;
}

/// 3 x 3 kernels with padding 1 whose weights' gradients two threads were seen to compute by halves of the
/// rows of y.
bool halved_by_two_threads(const ConvolutionCall& call) {
  struct Seen {
    std::int64_t c, k, p, n;  // input and output channels, rows and columns of y, the smallest batch
  };
  constexpr std::array seen{Seen{1, 16, 14, 1},  Seen{1, 16, 28, 1},  Seen{8, 16, 14, 1},
                            Seen{8, 16, 28, 1},  Seen{16, 16, 14, 1}, Seen{16, 16, 28, 1},
                            Seen{16, 32, 7, 2},  Seen{16, 32, 14, 1}, Seen{16, 32, 28, 1},
                            Seen{32, 32, 14, 2}, Seen{32, 64, 7, 3},  Seen{32, 64, 14, 1}};
  return call.r == 3 && call.padding[0] == 1 && call.stride[0] == 1 &&
         std::ranges::any_of(seen, [&](const Seen& one) {
           return one.c == call.c && one.k == call.k && one.p == call.p() && one.p == call.q() &&
                  one.n <= call.n;
         });
}

/// std::invalid_argument for what random convolutions did not confirm.
void require_known(const ConvolutionCall& call) {
  const auto unless = [&](bool known, std::string_view what) {
    if (!known) refuse(fmt::format("it knows {} of a convolution only with {}", name_of(call.result), what));
  };
  const auto [r, stride, pad] = std::array<std::int64_t, 3>{call.r, call.stride[0], call.padding[0]};
  unless(call.format == DType::bf16, "BF16");
  unless(r == call.s && r <= 5 && stride == call.stride[1] && pad == call.padding[1],
         "square kernels up to 5 x 5, and strides and padding that are alike in both directions");
  unless(stride <= 2 && 2 * pad <= r - 1 && call.dilation == std::array<std::int64_t, 2>{1, 1},
         "a stride of 1 or 2, at most the padding that keeps the size, and no dilation");
  unless(call.groups == 1 || is_depthwise(call), "one group, or one for each channel");
  unless(call.c > 1 || !call.channels_last, "more than one input channel in channels_last");
  unless(call.threads <= 2, "one or two threads");
  if (call.result == Convolved::output) return;
  if (call.result == Convolved::input_gradient) {
    unless(r == 1 || stride == 1 || call.w % 2 == 1, "an odd width where the stride is 2");
    unless(r == 1 || stride == 2 || !call.channels_last || is_depthwise(call) || 2 * pad == r - 1,
           "padding that keeps the size, in channels_last");
    return;
  }
  unless(call.h >= r && call.w >= r, "images that are not smaller than the kernel");
  unless(call.groups == 1 && call.k > 1, "one group and more than one output channel");
  unless(call.q() <= 28, "at most 28 columns");
  unless(r > 1 || (stride == 1 && call.q() % 2 == 0),
         "an even width and a stride of 1, where the kernel is 1 x 1");
  const std::int64_t area = call.p() * call.q();
  unless(call.c >= 16 || call.k % 16 == 0 || area <= 1296 || area >= 1536,
         "up to 1296 places, or from 1536 on");
  unless(call.threads == 1 || halved_by_two_threads(call), "one thread, or 3 x 3 kernels of listed sizes");
}

std::int64_t even(std::int64_t count) { return (count + 1) / 2 * 2; }

/// Terms in the order of pairs: an odd last one of a run is alone in its instruction.
class Terms {
 public:
  explicit Terms(const TensorCoreModel& row) { planned_.product.row = &row; }

  /// first, first + step, ...: `count` terms in pairs, then empty places up to `places`.
  void run(std::int64_t first, std::int64_t step, std::int64_t count, std::int64_t places = 0) {
    for (std::int64_t i = 0; i < std::max(even(count), places); ++i)
      planned_.terms.push_back(i < count ? first + i * step : no_term);
  }
  std::int64_t size() const { return static_cast<std::int64_t>(planned_.terms.size()); }
  /// Chains of so many places, added in order, in the ranges that end at these places.
  PlannedConvolution chains(std::int64_t restart, std::int64_t cut = 0) {
    planned_.product.ranges = {{.restart = restart}};
    if (cut > 0) planned_.product.ranges = {{.restart = restart, .end = cut}, {.restart = restart}};
    return std::move(planned_);
  }

 private:
  PlannedConvolution planned_;
};

/// One fma after the other.
PlannedConvolution term_by_term(std::int64_t count) {
  Terms terms(aten_loops);
  terms.run(0, 1, count);
  return terms.chains(0);
}

/// The order of an output or an input's gradient: tap by tap in blocks of the `channels` of the summed side.
PlannedConvolution of_taps(const TensorCoreModel& row, const ConvolutionCall& call, std::int64_t channels) {
  const std::int64_t taps = call.r * call.s;
  const bool gradient = call.result == Convolved::input_gradient;
  Terms terms(row);
  if (taps == 1) {
    terms.run(0, 1, channels);
    return terms.chains(call.channels_last ? 0 : 512);
  }
  const auto tap = [&](std::int64_t r, std::int64_t s) { terms.run(r * call.s + s, taps, channels); };
  if (gradient && call.stride[0] > 1) {
    for (std::int64_t r = 0; r < call.r; ++r)
      for (std::int64_t s = 0; s < call.s; ++s) tap(r, s);
    return terms.chains(0);
  }
  if (gradient && call.channels_last) {
    for (std::int64_t r = call.r; r-- > 0;)
      for (std::int64_t s = call.s; s-- > 0;) tap(r, s);
    return terms.chains(0);
  }
  const std::int64_t block = call.channels_last ? channels : 16;
  for (std::int64_t first = 0; first < channels; first += block)
    for (std::int64_t t = 0; t < taps; ++t)
      terms.run(first * taps + t, taps, std::min(block, channels - first));
  return terms.chains(0);
}

/// The order of gradients of weight and bias, by places (n, p, q) of y.
PlannedConvolution of_places(const TensorCoreModel& row, const ConvolutionCall& call) {
  const bool bias = call.result == Convolved::bias_gradient;
  const std::int64_t rows = call.n * call.p(), q = call.q(), area = call.p() * q;
  Terms terms(row);
  if (call.r * call.s == 1) {
    for (std::int64_t n = 0; n < call.n; ++n) terms.run(n * area, 1, area);
    return terms.chains(even(area));
  }
  const bool by_image = call.c < 16 && call.k % 16 != 0 && (!call.channels_last || call.c == 1);
  if (by_image) {
    if (bias) {
      Terms singles(aten_loops);
      for (std::int64_t at = 0; at < rows; ++at) singles.run(at * q, 1, q);
      return singles.chains(even(q));
    }
    const std::int64_t part = area <= 384 ? area : area < 1536 ? (area + 1) / 2 : 768;
    for (std::int64_t n = 0; n < call.n; ++n)
      for (std::int64_t first = 0; first < area; first += part)
        terms.run(n * area + first, 1, std::min(part, area - first), even(part));
    return terms.chains(even(part));
  }
  std::int64_t cut = 0;
  for (std::int64_t at = 0; at < rows; ++at) {
    if (call.threads == 2 && at == (rows + 1) / 2) cut = terms.size();
    terms.run(at * q, 1, q);
  }
  return terms.chains(bias ? 0 : even(q), cut);
}

}  // namespace

PlannedConvolution onednn_convolution(const TensorCoreModel& row, const ConvolutionCall& call) {
  require_row(row);
  require_known(call);
  const bool output = call.result == Convolved::output;
  if (!output && call.result != Convolved::input_gradient) return of_places(row, call);
  if (is_depthwise(call)) {
    PlannedConvolution chain = term_by_term(call.r * call.s);
    chain.from_bias = true;
    return chain;
  }
  return of_taps(row, call, output ? call.c : call.k);
}

}  // namespace fp16lab
