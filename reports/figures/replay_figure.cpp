#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "reports/figures/figure_json.hpp"
#include "reports/figures/question_figures.hpp"
#include "reports/page/page_json.hpp"

namespace fp16lab::reports {

std::string draw_replay(const ReplayFile& replay, const std::filesystem::path& folder) {
  OrderedJson panel = replay_json(replay, PageDetail{});
  if (panel["policies"].empty()) return {};
  panel["kind"] = "traces";
  return draw_figure(
      {{"stem", "replay"},
       {"title", fmt::format("What every policy’s loss scale would have been, {}", replay.run)},
       {"caption",
        "A line is the scale, two are its bounds. Shaded are scales that lose at most 1 % of the L1 norm and "
        "cannot overflow. × is a skipped step, ○ one that may be skipped."},
       {"width", 1040},
       {"panels", OrderedJson::array({std::move(panel)})}},
      folder);
}

}  // namespace fp16lab::reports
