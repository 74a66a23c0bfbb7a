#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "engine/autograd/ops.hpp"
#include "engine/backend/window_functions.hpp"
#include "engine/nn/network/layer_builders.hpp"

namespace fp16lab::engine::nn::layers {
namespace {

using Values = std::span<const Variable>;
using Pair = std::array<std::int64_t, 2>;

/// x as the signal has it, for the rows that there are.
Variable shaped(const Variable& x, const Signal& from, const Signal& to) {
  const std::int64_t examples = x.shape()[0] / from.rows;
  std::vector<std::int64_t> extents{examples * to.rows};
  extents.insert(extents.end(), to.extents.begin(), to.extents.end());
  return ops::reshape(x, Shape(extents));
}

std::size_t axis_of(const LayerPlace& place, std::int64_t axis, std::size_t rank) {
  const auto signed_rank = static_cast<std::int64_t>(rank);
  require(axis >= -signed_rank && axis < signed_rank,
          fmt::format("axis {}: expected {} to {}", axis, -signed_rank, signed_rank - 1));
  (void)place;
  return static_cast<std::size_t>(axis < 0 ? axis + signed_rank : axis);
}

BuiltLayer pooled(const LayerPlace& place, const Pool2dGeometry& geometry,
                  Variable (*function)(const Variable&, const Pool2dGeometry&)) {
  const Image input(place.inputs[0], geometry.layout);
  const auto extent = [&](std::int64_t size, std::size_t axis) {
    require(geometry.padding[axis] <= geometry.kernel[axis] / 2,
            fmt::format("padding {}: expected at most half of the kernel, {}", geometry.padding[axis],
                        geometry.kernel[axis]));
    return window_extent(size, geometry.kernel[axis], geometry.stride[axis], geometry.padding[axis]);
  };
  return {.output =
              Image(input.channels, extent(input.height, 0), extent(input.width, 1)).signal(geometry.layout),
          .module = nullptr,
          .forward = [geometry, function](Tape&, Values x) { return function(x[0], geometry); }};
}

Pool2dGeometry pool_of(const LayerPlace& place) {
  const LayerArguments& arguments = place.arguments;
  Pool2dGeometry geometry{.kernel = arguments.pair("kernel_size"),
                          .padding = arguments.pair("padding"),
                          .layout = place.network.layout};
  geometry.stride = arguments.has("stride") ? arguments.pair("stride") : geometry.kernel;
  return geometry;
}

}  // namespace

void require(bool holds, const std::string& what) {
  if (!holds) throw std::invalid_argument(what);
}

void require_numbers(const Signal& input) {
  require(input.vocabulary == 0, "takes numbers, not symbols; begin with an embedding");
}

Image::Image(const Signal& signal, Layout layout) {
  require_numbers(signal);
  require(signal.extents.size() == 3 && signal.rows == 1, "takes images, (N, channels, height, width)");
  const bool first = layout == Layout::nchw;
  channels = signal.extents[first ? 0 : 2];
  height = signal.extents[first ? 1 : 0];
  width = signal.extents[first ? 2 : 1];
}

Signal Image::signal(Layout layout) const {
  if (layout == Layout::nchw) return {.extents = {channels, height, width}};
  return {.extents = {height, width, channels}};
}

std::int64_t window_extent(std::int64_t extent, std::int64_t kernel, std::int64_t stride,
                           std::int64_t padding, std::int64_t dilation) {
  // Arguments are at most largest_size: nothing overflows.
  const std::int64_t count = functions::window_count(extent, kernel, stride, padding, dilation);
  require(count > 0, fmt::format("a window of {} does not fit into {} with a padding of {}",
                                 dilation * (kernel - 1) + 1, extent, padding));
  return count;
}

BuiltLayer elementwise(const LayerPlace& place, Variable (*function)(const Variable&)) {
  require_numbers(place.inputs[0]);
  return {.output = place.inputs[0], .module = nullptr, .forward = [function](Tape&, Values x) {
            return function(x[0]);
          }};
}

// pooling ---------------------------------------------------------------------------------------------------

BuiltLayer build_max_pool(const LayerPlace& place) { return pooled(place, pool_of(place), ops::max_pool2d); }
BuiltLayer build_average_pool(const LayerPlace& place) {
  return pooled(place, pool_of(place), ops::average_pool2d);
}

BuiltLayer build_adaptive_pool(const LayerPlace& place) {
  const Image input(place.inputs[0], place.network.layout);
  const Pair output = place.arguments.pair("output_size");
  require(input.height % output[0] == 0 && input.width % output[1] == 0,
          fmt::format("output_size = [{}, {}]: expected divisors of {} and {}", output[0], output[1],
                      input.height, input.width));
  const Pair window{input.height / output[0], input.width / output[1]};
  return pooled(place, {.kernel = window, .stride = window, .layout = place.network.layout},
                ops::average_pool2d);
}

// shapes and joins ------------------------------------------------------------------------------------------

BuiltLayer build_flatten(const LayerPlace& place) {
  const Signal& input = place.inputs[0];
  const std::size_t rank = input.extents.size() + 1;
  const std::size_t first = axis_of(place, place.arguments.integer("start_dim"), rank);
  const std::size_t last = axis_of(place, place.arguments.integer("end_dim"), rank);
  require(first <= last, "start_dim comes after end_dim");
  Signal output{.rows = input.rows, .vocabulary = input.vocabulary};
  Extent merged = 1;
  for (std::size_t axis = std::max<std::size_t>(first, 1); axis <= last; ++axis)
    merged = merged * input.extents[axis - 1];
  if (first == 0) output.rows = (merged * output.rows).value();
  for (std::size_t axis = 1; axis < rank; ++axis) {
    if (axis < first || axis > last) output.extents.push_back(input.extents[axis - 1]);
    if (axis == first) output.extents.push_back(merged.value());
  }
  return {
      .output = output, .module = nullptr, .computes = false, .forward = [input, output](Tape&, Values x) {
        return shaped(x[0], input, output);
      }};
}

BuiltLayer build_unflatten(const LayerPlace& place) {
  const Signal& input = place.inputs[0];
  const std::vector<std::int64_t> sizes = place.arguments.list("unflattened_size");
  const std::int64_t elements = product_of(sizes);
  require(elements == input.elements(),
          fmt::format("unflattened_size has {} elements; expected {}", elements, input.elements()));
  const Signal output{.extents = sizes, .rows = input.rows, .vocabulary = input.vocabulary};
  return {
      .output = output, .module = nullptr, .computes = false, .forward = [input, output](Tape&, Values x) {
        return shaped(x[0], input, output);
      }};
}

BuiltLayer build_softmax(const LayerPlace& place) {
  const Signal& input = place.inputs[0];
  require_numbers(input);
  const auto axis =
      static_cast<int>(axis_of(place, place.arguments.integer("dim"), input.extents.size() + 1));
  require(axis != 0, "dim = 0 is the batch");
  return {.output = input, .module = nullptr, .forward = [axis](Tape&, Values x) {
            return ops::softmax(x[0], axis);
          }};
}

BuiltLayer build_identity(const LayerPlace& place) {
  // Under a name, the gradient of its input is observed.
  const bool watched = place.named;
  return {
      .output = place.inputs[0], .module = nullptr, .computes = false, .forward = [watched](Tape&, Values x) {
        return watched ? ops::watch(x[0], SlotLabel::input) : x[0];
      }};
}

/// All shapes equal, or the later ones the trailing part of the first.
BuiltLayer joined(const LayerPlace& place, Variable (*function)(const Variable&, const Variable&)) {
  const Signal& first = place.inputs[0];
  require_numbers(first);
  for (const Signal& other : place.inputs.subspan(1)) {
    const bool trailing = other.extents.size() <= first.extents.size() &&
                          std::equal(other.extents.rbegin(), other.extents.rend(), first.extents.rbegin());
    require(trailing && other.rows == first.rows && other.vocabulary == 0, "expected equal shapes");
  }
  return {.output = first, .module = nullptr, .forward = [function](Tape&, Values x) {
            Variable all = x[0];
            for (const Variable& one : x.subspan(1)) all = function(all, one);
            return all;
          }};
}

BuiltLayer build_concat(const LayerPlace& place) {
  Signal output = place.inputs[0];
  const std::size_t axis = axis_of(place, place.arguments.integer("dim"), output.extents.size() + 1);
  require(axis != 0, "dim = 0 is the batch");
  for (const Signal& other : place.inputs.subspan(1)) {
    Signal expected = other;
    require(other.extents.size() == output.extents.size(), "expected shapes that differ along dim only");
    expected.extents[axis - 1] = output.extents[axis - 1];
    require(expected == output, "expected shapes that differ along dim only");
    output.extents[axis - 1] = (Extent(output.extents[axis - 1]) + other.extents[axis - 1]).value();
  }
  return {.output = output, .module = nullptr, .forward = [axis](Tape&, Values x) {
            return ops::concat(x, static_cast<int>(axis));
          }};
}

}  // namespace fp16lab::engine::nn::layers
