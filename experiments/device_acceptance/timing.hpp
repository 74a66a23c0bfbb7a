// Times on the device's own clock: medians of several repetitions, after warm-up.
#pragma once

#include <cstdint>
#include <functional>

#include "engine/backend/backend.hpp"
#include "experiments/device_acceptance/section.hpp"

namespace fp16lab::experiments::acceptance {

struct TimingPlan {
  int warm_up = 2;  ///< calls before anything is timed: pools, tables and pinned algorithms are made in them
  int repetitions = 7;            ///< of which the median counts
  double least_milliseconds = 0;  ///< of a repetition: it calls `work` as often as that takes
};

struct Timing {
  double median = 0;  ///< milliseconds of one call
  double fastest = 0, slowest = 0;
  int calls = 1;  ///< in one repetition
};

/// The extent of the largest product that is timed: 8192, and 16 in a rehearsal.
std::int64_t profiled_extent(const Settings& settings);
/// Of that FP16 product by our own kernel, in 10^12 operations a second.
double own_product_speed(const Settings& settings, const TimingPlan& plan);

Timing time_of(engine::Backend& backend, const TimingPlan& plan, const std::function<void()>& work);

}  // namespace fp16lab::experiments::acceptance
