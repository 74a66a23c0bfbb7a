// How much of the material a page carries: as much as fits.
#pragma once

#include <array>
#include <cstddef>

namespace fp16lab::reports {

struct PageDetail {
  std::size_t snapshots = 40;      ///< observed steps a run in the explorer
  std::size_t curve_points = 150;  ///< of each training-loss curve
  std::size_t trace_points = 400;  ///< stretches of steps in each path of a loss scale
  std::size_t explorer_runs = 99;  ///< a workload
  bool still_figures = true;       ///< pictures inside the page
};

/// A page is below 1 MB: mails carry it, and every browser opens it at once.
inline constexpr std::size_t largest_page = 1'000'000;

/// From full to bare; the first one whose page fits is taken.
inline constexpr std::array<PageDetail, 9> page_details{{
    {40, 150, 400, 99, true},
    {28, 150, 400, 99, true},
    {20, 120, 300, 99, true},
    {14, 100, 200, 99, true},
    {10, 80, 150, 99, true},
    {7, 60, 100, 24, true},
    {5, 50, 80, 12, false},
    {3, 40, 60, 6, false},
    {2, 24, 40, 2, false},
}};

}  // namespace fp16lab::reports
