// What the convolutions of this folder decide on the host.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include "engine/backend/cuda/product/convolution_map.hpp"
#include "engine/backend/cuda/product/product_plan.hpp"
#include "engine/backend/window_functions.hpp"

namespace fp16lab::engine::functions {

/// The same convolution with planes of a single row where it has one tap, stride 1 and no padding, so that
/// runs of neighbours do not end with rows; else `plan`.
inline Conv2dPlan flattened(const Conv2dPlan& plan) {
  const auto trivial = [](const WindowAxis& axis) {
    return axis.taps == 1 && axis.stride == 1 && axis.padding == 0;
  };
  const std::int64_t plane = plan.vertical.input * plan.horizontal.input;
  if (!trivial(plan.vertical) || !trivial(plan.horizontal) || plane > PatchMap::largest_coordinate)
    return plan;
  Conv2dPlan flat = plan;
  flat.vertical = {.input = 1, .output = 1};
  flat.horizontal = {.input = plane, .output = plane};
  return flat;
}

/// `plan`, flattened. std::invalid_argument where kernels that count in 32 bits cannot do it.
inline Conv2dPlan convolution_plan(const char* verb, const Conv2dPlan& plan) {
  const auto refuse = [verb](const std::string& what, std::int64_t value, std::int64_t limit) {
    if (value >= limit)
      throw std::invalid_argument(std::string(verb) + ": " + std::to_string(value) + " " + what +
                                  "; on a GPU there must be fewer than " + std::to_string(limit));
  };
  if (!PatchMap::holds(plan))
    throw std::invalid_argument(
        std::string(verb) +
        ": an extent with its padding and the reach of its taps, a stride or a dilation is above " +
        std::to_string(PatchMap::largest_coordinate) + ", too much for a GPU");
  const std::int64_t taps = plan.vertical.taps * plan.horizontal.taps;
  refuse("windows", plan.images * plan.vertical.output * plan.horizontal.output, tile::extent_limit);
  refuse("places", plan.images * plan.vertical.input * plan.horizontal.input, tile::extent_limit);
  refuse("weights of a filter", plan.group_inputs() * taps, tile::extent_limit);
  refuse("weights of an input channel", plan.group_outputs() * taps, tile::extent_limit);
  return flattened(plan);
}

}  // namespace fp16lab::engine::functions
