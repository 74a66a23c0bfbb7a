// Times on the device's own clock: medians of several repetitions, after warm-up.
#pragma once

#include <functional>

#include "engine/backend/backend.hpp"

namespace fp16lab::experiments {

struct TimingPlan {
  int warm_up = 2;      ///< calls before anything is timed: pools and tables are made in them
  int repetitions = 7;  ///< of which the median counts
  double least_milliseconds = 0;  ///< of a repetition: it calls `work` as often as that takes
};

struct Timing {
  double median = 0;  ///< milliseconds of one call
  double fastest = 0, slowest = 0;
  int calls = 1;  ///< in one repetition
};

Timing time_of(engine::Backend& backend, const TimingPlan& plan, const std::function<void()>& work);

}  // namespace fp16lab::experiments
