#include "experiments/paper_miniature/paper_figures.hpp"

#include <algorithm>

namespace fp16lab::experiments {

std::span<const PaperBar> ssd_activation_gradients() {
  static constexpr std::array<PaperBar, 17> bars = {{{-60, -45, .009},
                                                     {-45, -40, .10},
                                                     {-40, -38, .15},
                                                     {-38, -36, .33},
                                                     {-36, -34, .8},
                                                     {-34, -32, 1.95},
                                                     {-32, -30, 4.0},
                                                     {-30, -28, 6.4},
                                                     {-28, -26, 7.3},
                                                     {-26, -24, 6.0},
                                                     {-24, -22, 3.4},
                                                     {-22, -20, 1.5},
                                                     {-20, -18, .67},
                                                     {-18, -16, .35},
                                                     {-16, -14, .15},
                                                     {-14, -12, .05},
                                                     {-12, -10, .009}}};
  return bars;
}

double ssd_lost_percent(int log2_scale, int threshold_exponent) {
  double lost = 0, all = 0;
  const double edge = threshold_exponent - log2_scale;
  for (const PaperBar& bar : ssd_activation_gradients()) {
    const double below = std::clamp((edge - bar.from) / (bar.to - bar.from), 0.0, 1.0);
    lost += below * bar.percent;
    all += bar.percent;
  }
  return 100 * lost / all;
}

}  // namespace fp16lab::experiments
