#include "experiments/app/run/live_feed.hpp"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>
#include <utility>

#include "analysis/range_report.hpp"
#include "experiments/app/progress.hpp"

namespace fp16lab::experiments {

bool wants_panel(LiveMode mode) {
  return mode == LiveMode::always || (mode == LiveMode::automatic && isatty(STDERR_FILENO) == 1);
}

LiveFeed::LiveFeed(std::string title, std::uint64_t first_step, std::uint64_t total_steps, PanelStyle style)
    : panel_(style), first_step_(first_step), start_(std::chrono::steady_clock::now()) {
  view_.title = std::move(title);
  view_.total_steps = total_steps;
}

void LiveFeed::on_gradient(const HistogramRow& row) {
  if (view_.observed_step != row.step) {
    view_.observed_step = row.step;
    view_.layers.clear();
  }
  // "fc1.weight" and "fc1.input" are the layer fc1. Backward passes show the last layer first; the panel does
  // not.
  const std::string_view layer = std::string_view(row.tensor).substr(0, row.tensor.rfind('.'));
  auto known = std::find_if(view_.layers.begin(), view_.layers.end(),
                            [layer](const LiveLayer& entry) { return entry.name == layer; });
  if (known == view_.layers.end())
    known = view_.layers.insert(view_.layers.begin(), {.name = std::string(layer)});
  const ExponentHistogram &before = row.before, &after = row.after;
  if (const std::optional<CastCounts> casts = cast_counts(row.dtype, before, after)) {
    known->casts += *casts;
    known->zones += count_ranges(before, range_of(row.dtype), 1.0);
  } else {
    known->in_fp16 += count_ranges(before, fp16_range, 1.0);
  }
}

void LiveFeed::on_step(const StepRow& row) {
  view_.step = row.step;
  view_.loss = row.loss;
  view_.loss_scale = row.loss_scale;
  if (row.skipped) ++view_.skipped;
  if (view_.log2_scales.size() == recent_steps) view_.log2_scales.erase(view_.log2_scales.begin());
  view_.log2_scales.push_back(std::log2(row.loss_scale));
  if (!panel_.due() && row.step != view_.total_steps) return;
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start_;
  view_.steps_per_second = static_cast<double>(row.step - first_step_ + 1) / elapsed.count();
  view_.left = duration_text(static_cast<double>(view_.total_steps - row.step) / view_.steps_per_second);
  panel_.draw(view_);
}

}  // namespace fp16lab::experiments
