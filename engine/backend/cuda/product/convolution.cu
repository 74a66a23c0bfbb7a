// Convolutions: forward and input gradient, two products of patches with filters (the third:
// convolution_weight.cu).
//
// Neighbouring outputs in memory are neighbouring columns of the product, so that stores are contiguous:
// positions in NCHW, where filters are operand A and patches B, and channels in NHWC, where patches are A and
// filters B. Only the input gradient in NHWC is none of the two: its chain takes all taps of a channel of dY
// before the next channel, so dY is turned into planes and read along positions.
#include "engine/backend/checks.hpp"
#include "engine/backend/cuda/product/convolution_plan.hpp"
#include "engine/backend/cuda/product/convolution_product.hpp"
#include "engine/backend/cuda/product/convolution_tiles.hpp"
#include "engine/backend/cuda/product/gemm_epilogue.hpp"
#include "engine/backend/cuda/runtime/element_types.hpp"
#include "engine/backend/cuda/verbs/backend_impl.hpp"

namespace fp16lab::engine::gpu {

using functions::Conv2dPlan;
using functions::convolution_plan;
using functions::DepthOrder;
using functions::Divisor;
using functions::PatchMap;
using functions::PatchSource;
using functions::WindowAxis;

namespace {

// ---- filters ----

/// Filters as the rows of an operand, group by group: element (row, k) of a group with k = outer * inner + i
/// is the weight row * row_step + outer * outer_step + i * inner_step from the group's first one on.
struct FilterOrder {
  std::int64_t groups, rows, outer, inner;
  std::int64_t row_step, outer_step, inner_step;

  std::int64_t depth() const { return outer * inner; }
  /// Are rows used where they are in memory?
  bool in_place() const {
    return (rows == 1 || row_step == depth()) && (outer == 1 || outer_step == inner) &&
           (inner == 1 || inner_step == 1);
  }
};

template <class Word>
__global__ void arrange(const Word* weight, FilterOrder order, std::int64_t leading_dimension,
                        Divisor by_rows, Divisor by_depth, Divisor by_inner, Word* out) {
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x,
                     group_weights = order.rows * by_depth.value(), count = order.groups * group_weights;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride) {
    std::int64_t row = i;
    const std::int64_t k = by_depth.take(row);
    std::int64_t outer = k;
    const std::int64_t inner = by_inner.take(outer);
    Word* const to = out + row * leading_dimension + k;
    std::int64_t group = row;
    row = by_rows.take(group);
    *to = weight[group * group_weights + row * order.row_step + outer * order.outer_step +
                 inner * order.inner_step];
  }
}

/// An operand's rows of filters, each at a multiple of 16 bytes, and what keeps them in memory.
struct Filters {
  Tensor memory;
  std::int64_t rows, depth, leading_dimension;  ///< rows of a group

  template <class T>
  MatrixSource<T, tile::Runs::along_k, RowStart::aligned> source() const {
    return {.data = elements<const T>(memory),
            .leading_dimension = leading_dimension,
            .batch_stride = rows * leading_dimension,
            .outer_extent = static_cast<std::int32_t>(rows),
            .k_extent = static_cast<std::int32_t>(depth),
            .aligned = true};
  }
};

template <class T>
Filters arranged(Backend& backend, Runtime& runtime, const Tensor& weight, const FilterOrder& order) {
  const std::int64_t depth = order.depth();
  constexpr std::int64_t run = Run<T>::size;
  if (depth == 0 || (order.in_place() && depth % run == 0 && at_16_bytes(weight)))
    return {weight, order.rows, depth, depth};
  const std::int64_t leading_dimension = (depth + run - 1) / run * run;
  const std::int64_t rows = order.groups * order.rows;
  const Tensor out = backend.empty({rows, leading_dimension}, weight.dtype());
  const LaunchShape shape{.x = blocks_for(rows * depth, 256), .threads = 256};
  launch(runtime, "conv2d, filters", &arrange<T>, shape, elements<const T>(weight), order, leading_dimension,
         Divisor(order.rows), Divisor(depth), Divisor(order.inner), elements<T>(out));
  return {out, order.rows, depth, leading_dimension};
}

// ---- products ----

/// For each group: out(row, position) = sum over k of filters(row, k) * patch(position, k), + bias(row).
struct PatchProduct {
  const char* name;
  const Tensor& source;
  PatchMap map;
  FilterOrder order;
  const Tensor& weight;
  const Tensor* bias;  ///< one per row of every group, or null
  Tensor& out;
  ProbeCounts* probe;

  template <class Placement>
  Epilogue<Placement> epilogue(const Placement& placement, std::int64_t m, std::int64_t n,
                               BiasAxis axis) const {
    return {.placement = placement,
            .m_extent = static_cast<std::int32_t>(m),
            .n_extent = static_cast<std::int32_t>(n),
            .out = epilogue_tensor(&out),
            .bias = epilogue_tensor(bias),
            .bias_axis = bias == nullptr ? BiasAxis::none : axis,
            .bias_step = static_cast<std::int32_t>(order.rows),
            .addend = {},
            .probe = probe};
  }
};

/// From planes; outputs of `layout`, in planes of `plane` places.
template <class Multiplied>
void launch_planes(Backend& backend, Runtime& runtime, const PatchProduct& product, Layout layout,
                   std::int64_t plane) {
  using T = InMemory<Multiplied>;
  const std::int64_t groups = product.order.groups, rows = product.order.rows,
                     positions = product.map.positions();
  const bool nchw = layout == Layout::nchw;
  const ActivationPlacement placement{.channel_step = nchw ? plane : 1,
                                      .place_step = nchw ? 1 : groups * rows,
                                      .image_step = groups * rows * plane,
                                      .group_step = rows * (nchw ? plane : 1),
                                      .by_plane = Divisor(plane),
                                      .aligned = nchw && plane % 8 == 0 && at_16_bytes(product.out)};
  const Filters filters = arranged<T>(backend, runtime, product.weight, product.order);
  launch_gathered<Multiplied>(runtime, product.name, {.m = rows, .n = positions, .batch = groups},
                              filters.depth, filters.source<T>(),
                              PositionRuns<T>(elements<const T>(product.source), product.map),
                              product.epilogue(placement, rows, positions, BiasAxis::per_row));
}

/// From and to channels innermost, of which each group has `channels`.
template <class Multiplied>
void launch_channels(Backend& backend, Runtime& runtime, const PatchProduct& product, std::int64_t channels) {
  using T = InMemory<Multiplied>;
  const std::int64_t groups = product.order.groups, rows = product.order.rows,
                     positions = product.map.positions();
  const RowMajorPlacement placement{.row_stride = groups * rows,
                                    .batch_stride = rows,
                                    .n_extent = static_cast<std::int32_t>(rows),
                                    .aligned = rows % 8 == 0 && at_16_bytes(product.out)};
  const ChannelRuns<T, PatchRole::depth_is_k> patches{
      .data = elements<const T>(product.source),
      .map = product.map,
      .aligned = channels % Run<T>::size == 0 && at_16_bytes(product.source)};
  const Filters filters = arranged<T>(backend, runtime, product.weight, product.order);
  launch_gathered<Multiplied>(runtime, product.name, {.m = positions, .n = rows, .batch = groups},
                              filters.depth, patches, filters.source<T>(),
                              product.epilogue(placement, positions, rows, BiasAxis::per_column));
}

}  // namespace

void CudaBackend::do_conv2d(const Conv2dCall& call, const Conv2dPlan& checked) {
  const Conv2dPlan plan = convolution_plan(call.verb().data(), checked);
  const bool tf32 = call.geometry.tf32;
  require_products(call.verb(), call.a.dtype(), tf32);
  if (call.out.element_count() == 0) return;
  const Tensor a = operand(call.a, tf32), b = operand(call.b, tf32);
  if (call.product == Conv2dProduct::output) return convolve(call, plan, a, b);
  if (call.product == Conv2dProduct::input_gradient) return convolve_input_gradient(call, plan, a, b);
  convolve_weight_gradient(call, plan, a, b);
}

void CudaBackend::convolve(const Conv2dCall& call, const Conv2dPlan& plan, const Tensor& x,
                           const Tensor& weight) {
  const Conv2dGeometry& geometry = call.geometry;
  const bool nchw = geometry.layout == Layout::nchw;
  const std::int64_t taps = plan.vertical.taps * plan.horizontal.taps, depth = plan.group_inputs() * taps;
  const PatchProduct product{.name = "conv2d",
                             .source = x,
                             .map = {plan, PatchSource::inputs, geometry.layout,
                                     nchw ? DepthOrder::channel_row_column : DepthOrder::row_column_channel},
                             .order = {.groups = plan.groups,
                                       .rows = plan.group_outputs(),
                                       .outer = nchw ? 1 : taps,
                                       .inner = nchw ? depth : plan.group_inputs(),
                                       .row_step = depth,
                                       .outer_step = 1,
                                       .inner_step = nchw ? 1 : taps},
                             .weight = weight,
                             .bias = call.bias,
                             .out = call.out,
                             .probe = counts_of(call.probe, call.out.element_count())};
  with_operands(x.dtype(), geometry.tf32, [&](auto tag) {
    using T = decltype(tag);
    if (nchw)
      launch_planes<T>(*this, runtime_, product, geometry.layout,
                       plan.vertical.output * plan.horizontal.output);
    else
      launch_channels<T>(*this, runtime_, product, plan.group_inputs());
  });
}

void CudaBackend::convolve_input_gradient(const Conv2dCall& call, const Conv2dPlan& plan, Tensor dy,
                                          const Tensor& weight) {
  const Conv2dGeometry& geometry = call.geometry;
  const WindowAxis &v = plan.vertical, &h = plan.horizontal;
  const std::int64_t taps = v.taps * h.taps;
  // With a single tap the channels of dY are the chain.
  const bool from_channels = geometry.layout == Layout::nhwc && taps == 1;
  if (geometry.layout == Layout::nhwc && !from_channels && plan.outputs > 1 && v.output * h.output > 1) {
    const Tensor rounded = dy;
    dy = empty({plan.images, plan.outputs, v.output, h.output}, dy.dtype());
    permute(rounded, std::array{0, 3, 1, 2}, dy);
  }
  const PatchProduct product{
      .name = "conv2d_input_gradient",
      .source = dy,
      .map = {plan, PatchSource::outputs, from_channels ? Layout::nhwc : Layout::nchw,
              from_channels ? DepthOrder::row_column_channel : DepthOrder::channel_row_column},
      .order = {.groups = plan.groups,
                .rows = plan.group_inputs(),
                .outer = plan.group_outputs(),
                .inner = taps,
                .row_step = taps,
                .outer_step = plan.group_inputs() * taps,
                .inner_step = 1},
      .weight = weight,
      .bias = call.bias,
      .out = call.out,
      .probe = counts_of(call.probe, call.out.element_count())};
  with_operands(dy.dtype(), geometry.tf32, [&](auto tag) {
    using T = decltype(tag);
    if (from_channels)
      launch_channels<T>(*this, runtime_, product, plan.group_outputs());
    else
      launch_planes<T>(*this, runtime_, product, geometry.layout, v.input * h.input);
  });
}

}  // namespace fp16lab::engine::gpu
