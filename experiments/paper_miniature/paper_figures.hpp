// Figures of "Mixed Precision Training" (Micikevicius et al., ICLR 2018, arXiv 1710.03740) as numbers, for
// comparison.
//
// Read off the printed bars, so each is good to about a tenth of itself.
#pragma once

#include <array>
#include <span>

namespace fp16lab::experiments {

/// Percent of all values whose magnitude is in [2^from, 2^to).
struct PaperBar {
  int from = 0;
  int to = 0;
  double percent = 0;
};

/// Figure 3: activation gradients of Multibox SSD trained in FP32. 67 % of all values are exactly zero beside
/// these.
std::span<const PaperBar> ssd_activation_gradients();
inline constexpr double ssd_zero_percent = 67;

/// Figure 2b: weight gradients of a speech model, times the learning rate (what the text calls updates);
/// about 5 % of all lie below 2^-24.
inline constexpr double speech_updates_below_subnormal_percent = 5;

/// Table 2: mean average precision of Multibox SSD in FP32, and in mixed precision without scaling (it
/// diverges) and with a loss scale of 8.
inline constexpr double ssd_map_fp32 = 76.9, ssd_map_scaled = 77.1;

/// Percent of the non-zero values of figure 3 that are below `threshold` = 2^e after multiplication by
/// 2^log2_scale, bars taken as even in the exponent.
double ssd_lost_percent(int log2_scale, int threshold_exponent);

}  // namespace fp16lab::experiments
