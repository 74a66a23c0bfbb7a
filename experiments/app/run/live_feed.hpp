// LiveFeed: a run's records as the panel of train --live.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "engine/train/observer.hpp"
#include "experiments/app/run/live_mode.hpp"
#include "experiments/app/run/live_panel.hpp"

namespace fp16lab::experiments {

class LiveFeed {
 public:
  LiveFeed(std::string title, std::uint64_t first_step, std::uint64_t total_steps, PanelStyle style);

  void on_gradient(const HistogramRow& row);
  /// Draws where it is time, and for the last step.
  void on_step(const StepRow& row);
  void message(const std::string& line) { panel_.message(line); }
  /// What is drawn now.
  const LiveView& view() const { return view_; }

 private:
  /// The greatest width of a sparkline.
  static constexpr std::size_t recent_steps = 512;

  LivePanel panel_;
  LiveView view_;
  std::uint64_t first_step_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace fp16lab::experiments
