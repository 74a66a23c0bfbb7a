// The preconditions of convolutions and pooling.
#include <fmt/format.h>

#include "engine/backend/checks.hpp"
#include "engine/backend/requirements.hpp"

namespace fp16lab::engine::checks {

using namespace requirements;
using functions::Conv2dPlan;
using functions::ImageExtents;
using functions::Pool2dPlan;
using functions::WindowAxis;

namespace {

std::string_view name_of(Layout layout) { return layout == Layout::nchw ? "NCHW" : "NHWC"; }

Shape shape_of(const ImageExtents& extents, Layout layout) {
  return layout == Layout::nchw ? Shape{extents.images, extents.channels, extents.height, extents.width}
                                : Shape{extents.images, extents.height, extents.width, extents.channels};
}

ImageExtents extents_of(std::string_view verb, const Argument& x, Layout layout) {
  const Shape& shape = x.tensor.shape();
  if (shape.rank() != 4)
    fail(verb, fmt::format("{}; a 4-d activation in {} is needed", text(x), name_of(layout)));
  return layout == Layout::nchw ? ImageExtents{shape[0], shape[1], shape[2], shape[3]}
                                : ImageExtents{shape[0], shape[3], shape[1], shape[2]};
}

void require_images(std::string_view verb, const Argument& x, const ImageExtents& extents, Layout layout,
                    std::string_view why) {
  const Shape needed = shape_of(extents, layout);
  if (!(x.tensor.shape() == needed))
    fail(verb, fmt::format("{}; in {} it must be {}, {}", text(x), name_of(layout), needed.to_string(), why));
}

constexpr std::array<std::string_view, 2> axis_names{"vertical", "horizontal"};

/// The axes of a window; throws where no window fits.
std::array<WindowAxis, 2> window_axes(std::string_view verb, const Argument& x, const ImageExtents& input,
                                      std::array<std::int64_t, 2> taps, std::array<std::int64_t, 2> stride,
                                      std::array<std::int64_t, 2> padding,
                                      std::array<std::int64_t, 2> dilation) {
  std::array<WindowAxis, 2> axes;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const auto require_at_least = [&](std::string_view what, std::int64_t value, std::int64_t least) {
      if (value < least)
        fail(verb, fmt::format("the {} {} is {}; it must be at least {}", axis_names[i], what, value, least));
      if (value > largest_size)
        fail(verb,
             fmt::format("the {} {} is {}; it must be at most {}", axis_names[i], what, value, largest_size));
    };
    require_at_least("kernel extent", taps[i], 1);
    require_at_least("stride", stride[i], 1);
    require_at_least("padding", padding[i], 0);
    require_at_least("dilation", dilation[i], 1);
    const std::int64_t extent = i == 0 ? input.height : input.width;
    axes[i] = {.input = extent,
               .output = functions::window_count(extent, taps[i], stride[i], padding[i], dilation[i]),
               .taps = taps[i],
               .stride = stride[i],
               .padding = padding[i],
               .dilation = dilation[i]};
    if (axes[i].output == 0)
      fail(verb, fmt::format(
                     "a kernel of {} with dilation {} does not fit into the {} extent {} with padding {}: {}",
                     taps[i], dilation[i], axis_names[i], extent, padding[i], text(x)));
  }
  return axes;
}

/// The plan of a convolution from its input side and its weight; `x` names the tensor with these extents.
Conv2dPlan plan_of(std::string_view verb, const Argument& x, const ImageExtents& input,
                   const Argument& weight, const Conv2dGeometry& geometry) {
  const Shape& filter = weight.tensor.shape();
  const std::int64_t groups = geometry.groups;
  if (groups < 1) fail(verb, fmt::format("the number of groups is {}; it must be at least 1", groups));
  if (filter.rank() != 4)
    fail(verb, fmt::format("{}; (K, {}, R, S) is needed", text(weight), groups == 1 ? "C" : "C / groups"));
  const auto misfit = [&](const std::string& why) {
    fail(verb, fmt::format("{} in {}, {}: {}", text(x), name_of(geometry.layout), text(weight), why));
  };
  if (groups == 1 && filter[1] != input.channels)
    misfit(fmt::format("{} and {} channels differ", input.channels, filter[1]));
  if (input.channels % groups != 0 || filter[0] % groups != 0)
    misfit(fmt::format("{} groups do not divide {} input and {} output channels", groups, input.channels,
                       filter[0]));
  if (filter[1] != input.channels / groups)
    misfit(fmt::format("{} channels in {} groups need filters of {}, not of {}", input.channels, groups,
                       input.channels / groups, filter[1]));
  const auto axes = window_axes(verb, x, input, {filter[2], filter[3]}, geometry.stride, geometry.padding,
                                geometry.dilation);
  return {.images = input.images,
          .inputs = input.channels,
          .outputs = filter[0],
          .vertical = axes[0],
          .horizontal = axes[1],
          .groups = groups};
}

ImageExtents output_extents(const Conv2dPlan& plan) {
  return {plan.images, plan.outputs, plan.vertical.output, plan.horizontal.output};
}

/// What all three products require of their dtypes and memory.
void require_product(std::string_view verb, const Argument& a, const Argument& b,
                     const Conv2dGeometry& geometry, const Tensor* bias, const Argument& out) {
  require_operands(verb, {{a.name, &a.tensor, Takes::f},
                          {b.name, &b.tensor, Takes::same},
                          {out.name, &out.tensor, Takes::f, Access::written},
                          {"bias", bias, Takes::f32_or_same}});
  require_tf32_operand(verb, a, geometry.tf32);
  require_result_dtype(verb, a, out);
}

void require_bias(std::string_view verb, const Tensor* bias, std::int64_t channels) {
  if (bias != nullptr) require_count(verb, {"bias", *bias}, channels, "one per output channel");
}

Pool2dPlan plan_of(std::string_view verb, const Argument& x, const Pool2dGeometry& geometry) {
  const ImageExtents input = extents_of(verb, x, geometry.layout);
  const auto axes = window_axes(verb, x, input, geometry.kernel, geometry.stride, geometry.padding, {1, 1});
  for (std::size_t i = 0; i < axes.size(); ++i)
    if (geometry.padding[i] > geometry.kernel[i] / 2)
      fail(verb, fmt::format("the {} padding is {}; it must be at most half the kernel's {}", axis_names[i],
                             geometry.padding[i], geometry.kernel[i]));
  return {.images = input.images, .channels = input.channels, .vertical = axes[0], .horizontal = axes[1]};
}

ImageExtents output_extents(const Pool2dPlan& plan) {
  return {plan.images, plan.channels, plan.vertical.output, plan.horizontal.output};
}

/// pool_pick and pool_place: `large` has the planes that the index names places of, `small` the index's
/// shape.
PoolIndexPlan pool_index(std::string_view verb, const Operand& large_operand, const Operand& small_operand,
                         const Tensor& index, Layout layout) {
  require_operands(verb, {large_operand, small_operand, {"index", &index, Takes::i32}});
  const Argument large = large_operand.argument(), small = small_operand.argument();
  const ImageExtents planes = extents_of(verb, large, layout);
  const ImageExtents windows = extents_of(verb, small, layout);
  require_same_shape(verb, small, {"index", index});
  if (planes.images != windows.images || planes.channels != windows.channels)
    fail(verb, fmt::format("{}, {} in {}: their images or channels differ", text(large), text(small),
                           name_of(layout)));
  return {.images = planes.images,
          .channels = planes.channels,
          .places = planes.plane(),
          .windows = windows.plane()};
}

}  // namespace

Conv2dPlan conv2d(const Tensor& x, const Tensor& weight, const Conv2dGeometry& geometry, const Tensor* bias,
                  const Tensor& out) {
  constexpr std::string_view verb = "conv2d";
  const Argument input{"x", x}, filter{"weight", weight}, output{"out", out};
  require_product(verb, input, filter, geometry, bias, output);
  const Conv2dPlan plan = plan_of(verb, input, extents_of(verb, input, geometry.layout), filter, geometry);
  require_images(verb, output, output_extents(plan), geometry.layout, "as x, weight and geometry say");
  require_bias(verb, bias, plan.outputs);
  return plan;
}

Conv2dPlan conv2d_input_gradient(const Tensor& gradient, const Tensor& weight, const Conv2dGeometry& geometry,
                                 const Tensor* bias, const Tensor& out) {
  constexpr std::string_view verb = "conv2d_input_gradient";
  const Argument dy{"gradient", gradient}, filter{"weight", weight}, dx{"out", out};
  require_product(verb, dy, filter, geometry, bias, dx);
  const Conv2dPlan plan = plan_of(verb, dx, extents_of(verb, dx, geometry.layout), filter, geometry);
  require_images(verb, dy, output_extents(plan), geometry.layout, "as out, weight and geometry say");
  require_bias(verb, bias, plan.inputs);
  return plan;
}

Conv2dPlan conv2d_weight_gradient(const Tensor& x, const Tensor& gradient, const Conv2dGeometry& geometry,
                                  const Tensor& out) {
  constexpr std::string_view verb = "conv2d_weight_gradient";
  const Argument input{"x", x}, dy{"gradient", gradient}, filter{"out", out};
  require_product(verb, input, dy, geometry, nullptr, filter);
  const Conv2dPlan plan = plan_of(verb, input, extents_of(verb, input, geometry.layout), filter, geometry);
  require_images(verb, dy, output_extents(plan), geometry.layout, "as x, out and geometry say");
  return plan;
}

Pool2dPlan max_pool2d(const Tensor& x, const Pool2dGeometry& geometry, const Tensor& out,
                      const Tensor& index) {
  constexpr std::string_view verb = "max_pool2d";
  const Argument input{"x", x}, output{"out", out}, places{"index", index};
  require_operands(verb, {{"x", &x, Takes::f},
                          {"out", &out, Takes::same, Access::written},
                          {"index", &index, Takes::i32, Access::written}});
  const Pool2dPlan plan = plan_of(verb, input, geometry);
  for (const Argument& result : {output, places})
    require_images(verb, result, output_extents(plan), geometry.layout, "as x and geometry say");
  constexpr std::int64_t most_places = std::int64_t{1} << 31;
  if (plan.vertical.input * plan.horizontal.input > most_places)
    fail(verb, fmt::format("{} in {}: a plane has more than 2^31 places, too many for an i32 index",
                           text(input), name_of(geometry.layout)));
  return plan;
}

PoolIndexPlan pool_pick(const Tensor& x, const Tensor& index, Layout layout, const Tensor& out) {
  return pool_index("pool_pick", {"x", &x, Takes::f}, {"out", &out, Takes::same, Access::written}, index,
                    layout);
}

PoolIndexPlan pool_place(const Tensor& x, const Tensor& index, Layout layout, const Tensor& out) {
  return pool_index("pool_place", {"out", &out, Takes::f, Access::written}, {"x", &x, Takes::same}, index,
                    layout);
}

Pool2dPlan average_pool2d(std::string_view verb, const Tensor& large, const Pool2dGeometry& geometry,
                          const Tensor& small, bool transposed) {
  const Argument planes{transposed ? "out" : "x", large}, windows{transposed ? "x" : "out", small};
  require_operands(verb, {{planes.name, &large, Takes::f, transposed ? Access::written : Access::read},
                          {windows.name, &small, Takes::same, transposed ? Access::read : Access::written}});
  const Pool2dPlan plan = plan_of(verb, planes, geometry);
  require_images(verb, windows, output_extents(plan), geometry.layout,
                 transposed ? "as out and geometry say" : "as x and geometry say");
  return plan;
}

}  // namespace fp16lab::engine::checks
