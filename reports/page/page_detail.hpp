// How much of the material a page carries: as much as fits.
#pragma once

#include <array>
#include <cstddef>

namespace fp16lab::reports {

struct PageDetail {
  std::size_t snapshots = 40;       ///< observed steps of the run that represents its configuration
  std::size_t seed_snapshots = 8;   ///< observed steps of the other seeds' runs
  std::size_t curve_points = 150;   ///< points of each training-loss curve
  std::size_t trace_points = 400;   ///< stretches of steps in each path of a loss scale
  std::size_t configurations = 99;  ///< per workload in the explorer
  std::size_t seeds = 99;           ///< per configuration
  bool still_figures = true;        ///< pictures inside the page
};

/// Every browser opens such a page at once.
inline constexpr std::size_t largest_page = 5'000'000;

/// From full to bare; the first one whose page fits is taken.
inline constexpr std::array<PageDetail, 8> page_details{{
    {40, 8, 150, 400, 99, 99, true},
    {28, 4, 150, 400, 99, 24, true},
    {20, 3, 120, 300, 99, 8, true},
    {14, 2, 100, 200, 99, 3, true},
    {8, 2, 80, 150, 99, 1, true},
    {6, 2, 60, 100, 24, 1, true},
    {4, 2, 50, 80, 8, 1, false},
    {2, 2, 24, 40, 2, 1, false},
}};

}  // namespace fp16lab::reports
