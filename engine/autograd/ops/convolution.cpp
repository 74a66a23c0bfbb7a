// Convolution and pooling. A convolution is bilinear: with y = conv(x, w) and the pairing <.,.>,
//   <conv(x, w), g> = <x, input_gradient(g, w)> = <w, weight_gradient(x, g)>,
// so the three operations are each other's derivatives, to any order. The transposed convolution is the
// second one, read forward. Pooling is linear once its windows (of
// the average) or its choices (of the maximum) are fixed: two pairs of adjoints.
#include <array>
#include <cstdint>
#include <string>

#include "engine/autograd/by_shard.hpp"
#include "engine/autograd/dispatch.hpp"
#include "engine/autograd/ops.hpp"
#include "engine/autograd/ops/product.hpp"
#include "engine/backend/window_functions.hpp"

namespace fp16lab::engine::ops {

namespace {

/// Axes of a 4-d activation.
struct Axes {
  int channels, height, width;
};
constexpr Axes axes_of(Layout layout) { return layout == Layout::nchw ? Axes{1, 2, 3} : Axes{3, 1, 2}; }
constexpr std::string_view name_of_layout(Layout layout) {
  return layout == Layout::nchw ? "(N, C, H, W)" : "(N, H, W, C)";
}

Shape activation_shape(Layout layout, std::int64_t batch, std::int64_t channels, std::int64_t height,
                       std::int64_t width) {
  return layout == Layout::nchw ? Shape{batch, channels, height, width}
                                : Shape{batch, height, width, channels};
}

std::string text(const std::array<std::int64_t, 2>& pair) {
  return "(" + std::to_string(pair[0]) + ", " + std::to_string(pair[1]) + ")";
}

void require_at_least(Op op, std::string_view what, const std::array<std::int64_t, 2>& pair,
                      std::int64_t least) {
  if (pair[0] < least || pair[1] < least)
    reject(op, std::string(what) + " " + text(pair) + "; at least " + std::to_string(least) + " is needed");
  if (pair[0] > largest_size || pair[1] > largest_size)
    reject(op, std::string(what) + " " + text(pair) + "; at most " + std::to_string(largest_size) +
                   " is possible");
}

void check_geometry(Op op, const Conv2dGeometry& geometry) {
  require_at_least(op, "stride", geometry.stride, 1);
  require_at_least(op, "padding", geometry.padding, 0);
  require_at_least(op, "dilation", geometry.dilation, 1);
  if (geometry.groups < 1) reject(op, std::to_string(geometry.groups) + " groups; at least 1 is needed");
}

/// The shape of y = conv(x, w); rejects shapes that do not fit, in words of `op`.
Shape output_shape(Op op, const Shape& x, const Shape& weight, const Conv2dGeometry& geometry) {
  check_geometry(op, geometry);
  const Axes at = axes_of(geometry.layout);
  const std::int64_t groups = geometry.groups;
  if (x.rank() != 4 || weight.rank() != 4 || x[at.channels] % groups != 0 ||
      x[at.channels] / groups != weight[1] || weight[0] % groups != 0) {
    const std::string many = groups == 1 ? "" : ", " + std::to_string(groups) + " groups";
    reject(op, "x " + std::string(name_of_layout(geometry.layout)) + " and weight (K, C" +
                   (groups == 1 ? "" : " / groups") + ", R, S) do not fit: " + x.to_string() + " and " +
                   weight.to_string() + many);
  }
  const std::array<std::int64_t, 2> kernel{weight[2], weight[3]};
  require_at_least(op, "kernel", kernel, 1);
  const std::int64_t p = functions::window_count(x[at.height], kernel[0], geometry.stride[0],
                                                 geometry.padding[0], geometry.dilation[0]);
  const std::int64_t q = functions::window_count(x[at.width], kernel[1], geometry.stride[1],
                                                 geometry.padding[1], geometry.dilation[1]);
  if (p < 1 || q < 1) {
    reject(op, "no window fits: x " + x.to_string() + ", weight " + weight.to_string() + ", padding " +
                   text(geometry.padding) + ", dilation " + text(geometry.dilation));
  }
  return activation_shape(geometry.layout, x[0], weight[0], p, q);
}

void check_gradient(Op op, const Variable& gradient, const Shape& expected) {
  if (!(gradient.shape() == expected))
    reject(op, "gradient " + describe(gradient) + "; the convolution gives " + expected.to_string());
}

/// A bias's gradient: x summed over all but its channels, by shard.
Variable sum_of_channels(const Variable& x, Layout layout) {
  const int first = stack_height(x.tape()) == 1 ? 0 : 1;
  const Axes at = axes_of(layout);
  std::array<int, 3> axes{};
  std::size_t count = 0;
  for (int axis = 0; axis < 4; ++axis)
    if (axis != at.channels) axes[count++] = first + axis;
  return sum(by_shard(x), axes);
}

/// A weight's gradient, by shard.
Variable weight_gradient(const Variable& x, const Variable& g, const Shape& shape,
                         const Conv2dGeometry& geometry) {
  return stack_of([&](const Variable& of_x,
                      const Variable& of_g) { return conv2d_weight_gradient(of_x, of_g, shape, geometry); },
                  x, g);
}

/// The shape of the transposed convolution of x; rejects shapes that do not fit.
Shape transposed_shape(const Shape& x, const Shape& weight, const Conv2dGeometry& geometry,
                       const std::array<std::int64_t, 2>& output_padding) {
  constexpr Op op = Op::conv_transpose2d;
  check_geometry(op, geometry);
  require_at_least(op, "output padding", output_padding, 0);
  if (output_padding[0] >= geometry.stride[0] || output_padding[1] >= geometry.stride[1])
    reject(op, "output padding " + text(output_padding) + "; it must be below the stride " +
                   text(geometry.stride));
  const Axes at = axes_of(geometry.layout);
  if (x.rank() != 4 || weight.rank() != 4 || x[at.channels] != weight[0] ||
      weight[0] % geometry.groups != 0 || weight[2] < 1 || weight[3] < 1) {
    reject(op, "x " + std::string(name_of_layout(geometry.layout)) +
                   " and weight (C_in, C_out / groups, R, S) do not fit: " + x.to_string() + " and " +
                   weight.to_string() + ", " + std::to_string(geometry.groups) + " groups");
  }
  std::array<std::int64_t, 2> extents;
  for (const std::size_t axis : {std::size_t{0}, std::size_t{1}}) {
    const std::int64_t from = x[axis == 0 ? at.height : at.width];
    const std::int64_t taps = weight[axis == 0 ? 2 : 3];
    extents[axis] = ((Extent(from) - 1) * geometry.stride[axis] - Extent(2) * geometry.padding[axis] +
                     (Extent(taps) - 1) * geometry.dilation[axis] + output_padding[axis] + 1)
                        .value();
    if (from < 1 || extents[axis] < 1)
      reject(op, "nothing is left: x " + x.to_string() + ", weight " + weight.to_string() + ", padding " +
                     text(geometry.padding));
  }
  return activation_shape(geometry.layout, x[0], (Extent(weight[1]) * geometry.groups).value(), extents[0],
                          extents[1]);
}

void check_bias(Op op, const Variable& bias, const Variable& weight, std::int64_t channels) {
  if (bias.defined() && !(bias.shape() == Shape{channels}))
    reject(op, "bias " + describe(bias) + " for weight " + describe(weight));
}

/// `observed`: this is a layer's forward, not a step of some backward pass.
Variable convolve(const Variable& x, const Variable& w, const Variable& bias, const Conv2dGeometry& geometry,
                  bool observed) {
  const Shape shape = output_shape(Op::conv2d, x.shape(), w.shape(), geometry);
  check_bias(Op::conv2d, bias, w, w.shape()[0]);
  Tape& tape = x.tape();
  const auto verb = [&backend = tape.backend(), a = x.tensor(), weight = w.tensor(),
                     bias_value = bias.defined() ? bias.tensor() : Tensor(),
                     geometry](Tensor& result, CastProbe* probe) {
    backend.conv2d(a, weight, geometry, bias_value.defined() ? &bias_value : nullptr, result, probe);
  };
  const Tensor out = rounded_result(tape, shape, x.dtype(), verb);
  offer_unrounded(tape, out, verb);
  const Slot slot_x = {x,
                       [w, shape = x.shape(), geometry](const Variable& g, const Variable&) {
                         return conv2d_input_gradient(g, w, shape, geometry);
                       },
                       observed ? SlotLabel::input : SlotLabel::none};
  const Slot slot_w = {w,
                       [x, shape = w.shape(), geometry](const Variable& g, const Variable&) {
                         return weight_gradient(x, g, shape, geometry);
                       },
                       observed ? SlotLabel::weight : SlotLabel::none};
  if (!bias.defined()) return recorded(Op::conv2d, out, {slot_x, slot_w});
  const Slot slot_b = {
      bias,
      [layout = geometry.layout](const Variable& g, const Variable&) { return sum_of_channels(g, layout); },
      observed ? SlotLabel::bias : SlotLabel::none};
  return recorded(Op::conv2d, out, {slot_x, slot_w, slot_b});
}

/// The input gradient of a convolution whose x has `shape`, as `op`: by that name, or as the forward of a
/// transposed convolution, which is observed as a layer and may have a bias.
Variable spread(Op op, const Variable& g, const Variable& w, const Variable& bias, const Shape& shape,
                const Conv2dGeometry& geometry) {
  Tape& tape = g.tape();
  const auto verb = [&backend = tape.backend(), y = g.tensor(), weight = w.tensor(),
                     bias_value = bias.defined() ? bias.tensor() : Tensor(),
                     geometry](Tensor& result, CastProbe* probe) {
    backend.conv2d_input_gradient(y, weight, geometry, bias_value.defined() ? &bias_value : nullptr, result,
                                  probe);
  };
  const Tensor out = rounded_result(tape, shape, g.dtype(), verb);
  offer_unrounded(tape, out, verb);
  const bool observed = op == Op::conv_transpose2d;
  const Slot slot_g = {
      g, [w, geometry](const Variable& h, const Variable&) { return convolve(h, w, {}, geometry, false); },
      observed ? SlotLabel::input : SlotLabel::none};
  const Slot slot_w = {w,
                       [g, own = w.shape(), geometry](const Variable& h, const Variable&) {
                         return weight_gradient(h, g, own, geometry);
                       },
                       observed ? SlotLabel::weight : SlotLabel::none};
  if (!bias.defined()) return recorded(op, out, {slot_g, slot_w});
  const Slot slot_b = {
      bias,
      [layout = geometry.layout](const Variable& h, const Variable&) { return sum_of_channels(h, layout); },
      SlotLabel::bias};
  return recorded(op, out, {slot_g, slot_w, slot_b});
}

/// The implicit GEMM: pixels of all images by output channels, over a group's input channels and taps.
ProductShape product_of(const Variable& x, const Variable& w, const Conv2dGeometry& geometry) {
  const Shape y = output_shape(Op::conv2d, x.shape(), w.shape(), geometry), taps = w.shape();
  return {.m = y.element_count() / taps[0],
          .n = taps[0],
          .k = taps[1] * taps[2] * taps[3],
          .input_channels = taps[1] * geometry.groups,
          .output_channels = taps[0],
          .nchw = geometry.layout == Layout::nchw};
}
/// Likewise of a transposed convolution with result `y`.
ProductShape transposed_product(const Shape& y, const Variable& w, const Conv2dGeometry& geometry) {
  const Shape taps = w.shape();
  const std::int64_t outputs = taps[1] * geometry.groups;
  return {.m = outputs == 0 ? 0 : y.element_count() / outputs,
          .n = outputs,
          .k = taps[0] / geometry.groups * taps[2] * taps[3],
          .input_channels = taps[0],
          .output_channels = outputs,
          .nchw = geometry.layout == Layout::nchw};
}

/// Announces the product to the cast policy and returns `geometry`: in TF32 if the policy says so.
Conv2dGeometry announced(Op op, const Variable& x, const ProductShape& shape, Conv2dGeometry geometry) {
  const Tape& tape = x.tape();
  CastPolicy* const policy = tape.cast_policy();
  if (policy == nullptr) return geometry;
  const OpSite site{op, tape.scope()};
  policy->on_product(site, shape, x.dtype());
  geometry.tf32 = x.dtype() == DType::f32 && policy->product_formats(site, false).tf32;
  return geometry;
}

/// A layer's forward, with dispatched inputs.
Variable convolved(const Variable& x, const Variable& w, const Variable& bias,
                   const Conv2dGeometry& geometry) {
  return convolve(x, w, bias, announced(Op::conv2d, x, product_of(x, w, geometry), geometry), true);
}

Variable transposed(const Variable& x, const Variable& w, const Variable& bias,
                    const Conv2dGeometry& geometry, const std::array<std::int64_t, 2>& output_padding) {
  constexpr Op op = Op::conv_transpose2d;
  const Shape shape = transposed_shape(x.shape(), w.shape(), geometry, output_padding);
  check_bias(op, bias, w, w.shape()[1] * geometry.groups);
  return spread(op, x, w, bias, shape, announced(op, x, transposed_product(shape, w, geometry), geometry));
}

/// Is there a bias, and is its addition an op of its own? Paddle calls conv2d and then add
/// (python/paddle/nn/functional/conv.py, _conv_nd and conv2d_transpose), MindSpore Conv2D and then BiasAdd
/// (mindspore/nn/layer/conv.py, Conv2d.construct).
bool adds_bias_apart(Op op, const Variable& x, const Variable& bias) {
  const CastPolicy* const policy = tape_of(op, x).cast_policy();
  return bias.defined() && policy != nullptr && !policy->fuses_bias();
}

Variable with_bias(const Variable& y, const Variable& bias, Layout layout) {
  const Shape as = layout == Layout::nchw ? Shape{bias.shape()[0], 1, 1} : bias.shape();
  return add_bias(y, bias, as,
                  [layout](const Variable& g, const Variable&) { return sum_of_channels(g, layout); });
}

}  // namespace

Variable conv2d(const Variable& x, const Variable& weight, const Variable& bias,
                const Conv2dGeometry& geometry) {
  const bool apart = adds_bias_apart(Op::conv2d, x, bias);
  if (!bias.defined() || apart) {
    const auto inputs = dispatched<2>(Op::conv2d, {x, weight});
    const Variable y = convolved(inputs[0], inputs[1], {}, geometry);
    if (!apart) return y;
    check_bias(Op::conv2d, bias, weight, y.shape()[axes_of(geometry.layout).channels]);
    return with_bias(y, bias, geometry.layout);
  }
  const auto inputs = dispatched<3>(Op::conv2d, {x, weight, bias});
  return convolved(inputs[0], inputs[1], inputs[2], geometry);
}

Variable conv_transpose2d(const Variable& x, const Variable& weight, const Variable& bias,
                          const Conv2dGeometry& geometry, const std::array<std::int64_t, 2>& output_padding) {
  const bool apart = adds_bias_apart(Op::conv_transpose2d, x, bias);
  if (!bias.defined() || apart) {
    const auto inputs = dispatched<2>(Op::conv_transpose2d, {x, weight});
    const Variable y = transposed(inputs[0], inputs[1], {}, geometry, output_padding);
    if (!apart) return y;
    check_bias(Op::conv_transpose2d, bias, weight, y.shape()[axes_of(geometry.layout).channels]);
    return with_bias(y, bias, geometry.layout);
  }
  const auto inputs = dispatched<3>(Op::conv_transpose2d, {x, weight, bias});
  return transposed(inputs[0], inputs[1], inputs[2], geometry, output_padding);
}

Variable conv2d_input_gradient(const Variable& gradient, const Variable& weight, const Shape& input_shape,
                               const Conv2dGeometry& geometry) {
  const auto inputs = dispatched<2>(Op::conv2d_input_gradient, {gradient, weight});
  const Variable g = inputs[0], w = inputs[1];
  check_gradient(Op::conv2d_input_gradient, g,
                 output_shape(Op::conv2d_input_gradient, input_shape, w.shape(), geometry));
  return spread(Op::conv2d_input_gradient, g, w, {}, input_shape, geometry);
}

Variable conv2d_weight_gradient(const Variable& input, const Variable& gradient, const Shape& weight_shape,
                                const Conv2dGeometry& geometry) {
  const auto inputs = dispatched<2>(Op::conv2d_weight_gradient, {input, gradient});
  const Variable x = inputs[0], g = inputs[1];
  check_gradient(Op::conv2d_weight_gradient, g,
                 output_shape(Op::conv2d_weight_gradient, x.shape(), weight_shape, geometry));
  Tape& tape = x.tape();
  const auto verb = [&backend = tape.backend(), a = x.tensor(), y = g.tensor(), geometry](Tensor& result,
                                                                                          CastProbe* probe) {
    backend.conv2d_weight_gradient(a, y, geometry, result, probe);
  };
  const Tensor out = rounded_result(tape, weight_shape, x.dtype(), verb);
  offer_unrounded(tape, out, verb);
  return recorded(
      Op::conv2d_weight_gradient, out,
      {{x, [g, shape = x.shape(), geometry](
               const Variable& h, const Variable&) { return conv2d_input_gradient(g, h, shape, geometry); }},
       {g,
        [x, geometry](const Variable& h, const Variable&) { return convolve(x, h, {}, geometry, false); }}});
}

namespace {

Shape pooled_shape(Op op, const Variable& x, const Pool2dGeometry& geometry) {
  require_at_least(op, "kernel", geometry.kernel, 1);
  require_at_least(op, "stride", geometry.stride, 1);
  require_at_least(op, "padding", geometry.padding, 0);
  for (const std::size_t axis : {std::size_t{0}, std::size_t{1}}) {
    if (geometry.padding[axis] > geometry.kernel[axis] / 2) {
      reject(op, "padding " + text(geometry.padding) + " is more than half the kernel " +
                     text(geometry.kernel) + ": a window could lie outside x");
    }
  }
  const Shape shape = x.shape();
  if (shape.rank() != 4)
    reject(op, describe(x) + "; " + std::string(name_of_layout(geometry.layout)) + " is needed");
  const Axes at = axes_of(geometry.layout);
  const std::int64_t p = functions::window_count(shape[at.height], geometry.kernel[0], geometry.stride[0],
                                                 geometry.padding[0], 1);
  const std::int64_t q = functions::window_count(shape[at.width], geometry.kernel[1], geometry.stride[1],
                                                 geometry.padding[1], 1);
  if (p < 1 || q < 1) {
    reject(op, "no window fits: x " + describe(x) + ", kernel " + text(geometry.kernel) + ", padding " +
                   text(geometry.padding));
  }
  return activation_shape(geometry.layout, shape[0], shape[at.channels], p, q);
}

Variable pool_place(const Variable& x, const Tensor& index, const Shape& plane_shape, Layout layout);

/// x at `index`, plane by plane; shape of index.
Variable pool_pick(const Variable& x, const Tensor& index, Layout layout) {
  Backend& backend = x.tape().backend();
  Tensor out = backend.empty(index.shape(), x.dtype());
  backend.pool_pick(x.tensor(), index, layout, out);
  return x.tape().record(Op::pool_pick, out,
                         {{x, [index, shape = x.shape(), layout](const Variable& g, const Variable&) {
                             return pool_place(g, index, shape, layout);
                           }}});
}

/// Its adjoint: zeros of `plane_shape`, but for the sums of the x whose index names a place.
Variable pool_place(const Variable& x, const Tensor& index, const Shape& plane_shape, Layout layout) {
  Backend& backend = x.tape().backend();
  Tensor out = backend.empty(plane_shape, x.dtype());
  backend.pool_place(x.tensor(), index, layout, out);
  return x.tape().record(
      Op::pool_place, out,
      {{x, [index, layout](const Variable& g, const Variable&) { return pool_pick(g, index, layout); }}});
}

Variable average_pool2d_transposed(const Variable& x, const Shape& plane_shape,
                                   const Pool2dGeometry& geometry);

Variable average(const Variable& x, const Pool2dGeometry& geometry) {
  Backend& backend = x.tape().backend();
  Tensor out = backend.empty(pooled_shape(Op::average_pool2d, x, geometry), x.dtype());
  backend.average_pool2d(x.tensor(), geometry, out);
  return recorded(Op::average_pool2d, out,
                  {{x, [shape = x.shape(), geometry](const Variable& g, const Variable&) {
                      return cast(average_pool2d_transposed(countable(g), shape, geometry), g.dtype());
                    }}});
}

Variable average_pool2d_transposed(const Variable& x, const Shape& plane_shape,
                                   const Pool2dGeometry& geometry) {
  Backend& backend = x.tape().backend();
  Tensor out = backend.empty(plane_shape, x.dtype());
  backend.average_pool2d_transposed(x.tensor(), geometry, out);
  return x.tape().record(
      Op::average_pool2d_transposed, out,
      {{x, [geometry](const Variable& g, const Variable&) { return average(g, geometry); }}});
}

}  // namespace

Variable max_pool2d(const Variable& input, const Pool2dGeometry& geometry) {
  const auto inputs = dispatched<1>(Op::max_pool2d, {input});
  const Variable x = inputs[0];
  const Shape shape = pooled_shape(Op::max_pool2d, x, geometry);
  Backend& backend = x.tape().backend();
  Tensor out = backend.empty(shape, x.dtype());
  Tensor index = backend.empty(shape, DType::i32);
  backend.max_pool2d(x.tensor(), geometry, out, index);
  // Gradients of overlapping windows add up; others only move, and nothing is rounded.
  const bool adds = geometry.kernel[0] > geometry.stride[0] || geometry.kernel[1] > geometry.stride[1];
  return recorded(
      Op::max_pool2d, out,
      {{x, [index, plane = x.shape(), layout = geometry.layout, adds](const Variable& g, const Variable&) {
          return cast(pool_place(adds ? countable(g) : g, index, plane, layout), g.dtype());
        }}});
}

Variable average_pool2d(const Variable& input, const Pool2dGeometry& geometry) {
  const auto inputs = dispatched<1>(Op::average_pool2d, {input});
  return average(inputs[0], geometry);
}

}  // namespace fp16lab::engine::ops
