// The weight gradient of a convolution: dW = dY^T * patches of x, where the positions (n, p, q) are the
// chain.
//
// Rows are output channels and columns (c, r, s), as dW is in memory; in NHWC columns are walked as (r, s,
// c), so that runs of channels are copied unchanged, and outputs go to their places one by one. The chain may
// not be cut, so that few blocks work where channels are few; small tiles help, more cannot be done without
// other bits.
#include "engine/backend/checks.hpp"
#include "engine/backend/cuda/product/convolution_plan.hpp"
#include "engine/backend/cuda/product/convolution_product.hpp"
#include "engine/backend/cuda/product/convolution_tiles.hpp"
#include "engine/backend/cuda/product/gemm_epilogue.hpp"
#include "engine/backend/cuda/runtime/element_types.hpp"
#include "engine/backend/cuda/verbs/backend_impl.hpp"

namespace fp16lab::engine::gpu {

using functions::Conv2dPlan;
using functions::DepthOrder;
using functions::PatchSource;

namespace {

/// The product for a group's dW: its rows and columns.
struct WeightProduct {
  const Conv2dPlan& plan;
  const Tensor& x;
  const Tensor& gradient;
  Tensor& out;
  ProbeCounts* probe;

  std::int64_t rows() const { return plan.group_outputs(); }
  std::int64_t taps() const { return plan.vertical.taps * plan.horizontal.taps; }
  std::int64_t columns() const { return plan.group_inputs() * taps(); }
  std::int64_t windows() const { return plan.vertical.output * plan.horizontal.output; }
  std::int64_t positions() const { return plan.images * windows(); }
  tile::Outputs outputs() const { return {.m = rows(), .n = columns(), .batch = plan.groups}; }

  template <class Placement>
  Epilogue<Placement> epilogue(const Placement& placement) const {
    return {.placement = placement,
            .m_extent = static_cast<std::int32_t>(rows()),
            .n_extent = static_cast<std::int32_t>(columns()),
            .out = epilogue_tensor(&out),
            .bias = {},
            .bias_axis = BiasAxis::none,
            .addend = {},
            .probe = probe};
  }
};

constexpr const char* verb = "conv2d_weight_gradient";

template <class Multiplied>
void launch_planes(Runtime& runtime, const WeightProduct& product) {
  using T = InMemory<Multiplied>;
  const std::int64_t plane = product.windows();
  const PlaneChains<T> gradient{.data = elements<const T>(product.gradient),
                                .plane = plane,
                                .image_step = product.plan.outputs * plane,
                                .by_plane = functions::Divisor(plane),
                                .channels = static_cast<std::int32_t>(product.rows()),
                                .positions = static_cast<std::int32_t>(product.positions())};
  const PositionChains<T> patches{
      .data = elements<const T>(product.x),
      .map = {product.plan, PatchSource::inputs, Layout::nchw, DepthOrder::channel_row_column}};
  const RowMajorPlacement placement{.row_stride = product.columns(),
                                    .batch_stride = product.rows() * product.columns(),
                                    .n_extent = static_cast<std::int32_t>(product.columns()),
                                    .aligned = product.columns() % 8 == 0 && at_16_bytes(product.out)};
  launch_gathered<Multiplied>(runtime, verb, product.outputs(), product.positions(), gradient, patches,
                              product.epilogue(placement));
}

template <class Multiplied>
void launch_channels(Runtime& runtime, const WeightProduct& product) {
  using T = InMemory<Multiplied>;
  const Conv2dPlan& plan = product.plan;
  const std::int64_t channels = plan.group_inputs();
  constexpr int size = Run<T>::size;
  const MatrixSource<T, tile::Runs::along_outer> gradient{
      .data = elements<T>(product.gradient),
      .leading_dimension = plan.outputs,
      .batch_stride = product.rows(),
      .outer_extent = static_cast<std::int32_t>(product.rows()),
      .k_extent = static_cast<std::int32_t>(product.positions()),
      .aligned = at_16_bytes(product.gradient) && product.rows() % size == 0};
  const ChannelRuns<T, PatchRole::position_is_k> patches{
      .data = elements<const T>(product.x),
      .map = {plan, PatchSource::inputs, Layout::nhwc, DepthOrder::row_column_channel},
      .aligned = at_16_bytes(product.x) && channels % size == 0};
  const WeightPlacement placement{
      .channels = channels,
      .taps = product.taps(),
      .group_step = product.rows() * product.columns(),
      .by_channel = functions::Divisor(channels),
      .aligned = product.taps() == 1 && at_16_bytes(product.out) && channels % 8 == 0};
  launch_gathered<Multiplied>(runtime, verb, product.outputs(), product.positions(), gradient, patches,
                              product.epilogue(placement));
}

}  // namespace

void CudaBackend::convolve_weight_gradient(const Conv2dCall& call, const Conv2dPlan& plan, const Tensor& x,
                                           const Tensor& dy) {
  const WeightProduct product{.plan = plan,
                              .x = x,
                              .gradient = dy,
                              .out = call.out,
                              .probe = counts_of(call.probe, call.out.element_count())};
  with_operands(x.dtype(), call.geometry.tf32, [&](auto tag) {
    using T = decltype(tag);
    if (call.geometry.layout == Layout::nchw)
      launch_planes<T>(runtime_, product);
    else
      launch_channels<T>(runtime_, product);
  });
}

}  // namespace fp16lab::engine::gpu
