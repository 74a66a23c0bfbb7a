#include "experiments/emulated_vs_device/device_time.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace fp16lab::experiments {

Timing time_of(engine::Backend& backend, const TimingPlan& plan, const std::function<void()>& work) {
  constexpr int most_calls = 2000;
  for (int i = 0; i < plan.warm_up; ++i) work();
  Timing timing;
  if (plan.least_milliseconds > 0) {
    const double once = std::max(backend.milliseconds(work), 1e-3);
    timing.calls =
        static_cast<int>(std::clamp(std::ceil(plan.least_milliseconds / once), 1.0, double{most_calls}));
  }
  std::vector<double> times;
  times.reserve(static_cast<std::size_t>(plan.repetitions));
  for (int i = 0; i < plan.repetitions; ++i)
    times.push_back(backend.milliseconds([&] {
      for (int call = 0; call < timing.calls; ++call) work();
    }) / timing.calls);
  std::ranges::sort(times);
  timing.fastest = times.front();
  timing.slowest = times.back();
  timing.median = times.size() % 2 == 1 ? times[times.size() / 2]
                                        : (times[times.size() / 2 - 1] + times[times.size() / 2]) / 2;
  return timing;
}

}  // namespace fp16lab::experiments
