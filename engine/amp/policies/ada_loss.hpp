// Adaptive loss scaling: a factor for every product of the backward pass, from the statistics of its
// operands.
//
// Zhao, Vogel, Ahmed, Luk: "Adaptive Loss Scaling for Mixed Precision Training" (arXiv 1910.12385) and
// "Reducing Underflow in Mixed Precision Training by Gradient Scaling" (IJCAI 2020). Values of the product
// are taken as normal with mean 0 and deviation sigma; a share n_uf of N(0, sigma^2) is below sigma * sqrt(2)
// * erfinv(n_uf), which is to be u_min: the factor is u_min / (sigma * sqrt(2) * erfinv(n_uf)), at least 1,
// at most what keeps the largest magnitude below u_max, at most scale_upper_bound, with all factors so far at
// most accum_upper_bound, and then the power of two below. Defaults are those of the authors' code
// (kumasento/ada-loss: ada_loss.py, chainer_impl/ada_loss.py), which takes the incoming gradient's deviation
// for the product's and never looks at the weight; use_weights does, by the paper's formula. Ours differs in
// one thing: the gradient's sigma is its root mean square in both, as the paper's formula has it (sigma^2 +
// mu^2) and as a mean of 0 implies. The authors subtract the mean where the weight does not count, so that a
// gradient of equal elements, however small, has sigma = 0 and is not scaled.
//
// u_min and u_max belong to FP16. If gradients are stored in another format they move with its ends (in BF16
// by 2^-109 and 2^112).
#pragma once

#include <array>
#include <cmath>
#include <cstdint>

#include "engine/amp/policies/constant.hpp"
#include "numerics/formats/format_range.hpp"

namespace fp16lab::engine::amp {

struct AdaLossScaling : LayersLossScale {
  static constexpr std::array parameters = {
      LayersLossScale::parameters.front(),
      real_parameter("n_uf_threshold", 1e-3, "share of values that may underflow", 0, 0.5, minimum_excluded),
      real_parameter("u_min", 6e-8, "smallest magnitude to be kept, in FP16", 0, 1, minimum_excluded),
      real_parameter("u_max", 6e4, "largest magnitude of a scaled gradient, in FP16", 1, 0x1p127),
      real_parameter("scale_upper_bound", 16, "largest factor of one layer", 1, 0x1p64),
      real_parameter("accum_upper_bound", 1024, "largest product of the factors on the way to a layer", 1,
                     0x1p64),
      count_parameter("update_per_n_iteration", 1, "steps between two looks at the statistics"),
      switch_parameter("use_weights", false, "sigma of the product from gradient and weight, by the paper")};

  struct LayerParams {
    double quantile = 0;  ///< sqrt(2) * erfinv(n_uf_threshold)
    double u_min = 0, u_max = 0;
    double scale_upper_bound = 0, accum_upper_bound = 0;
  };
  /// The same for gradients of another format.
  static LayerParams in_format(LayerParams params, const FormatRange& range) {
    params.u_min = std::ldexp(params.u_min, range.tie_to_zero - fp16_range.tie_to_zero);
    params.u_max = std::ldexp(params.u_max, range.largest_exponent() - fp16_range.largest_exponent());
    return params;
  }
  /// Statistics of a tensor's elements.
  struct Moments {
    double mean_square = 0;  ///< sigma^2 + mu^2
    double largest = 0;      ///< largest magnitude
  };

  /// The factor before the two upper bounds, from the product's sigma, a bound on the magnitudes of its
  /// terms, and how many of them add up.
  static double factor(const LayerParams& params, double sigma, double largest, double fan_in = 1) {
    if (!(sigma > 0) || !std::isfinite(sigma) || !std::isfinite(largest))
      return 1;  // all zeros, or an overflow
    double scale = params.u_min / (params.quantile * sigma);
    if (scale < 1) scale = 1;
    const double highest = params.u_max / fan_in / largest;
    return scale < highest ? scale : highest;
  }
  static double factor(const LayerParams& params, const Moments& gradient) {
    return factor(params, std::sqrt(gradient.mean_square), gradient.largest);
  }
  /// sigma^2 = (sg^2 + mg^2)(sw^2 + mw^2) fan_in / 2: half of the terms come after a ReLU that passed
  /// nothing.
  static double factor(const LayerParams& params, const Moments& gradient, const Moments& weight,
                       double fan_in) {
    const double sigma = std::sqrt(gradient.mean_square * weight.mean_square * 0.5 * fan_in);
    return factor(params, sigma, gradient.largest * weight.largest, fan_in);
  }
  /// The exponent that a gradient with 2^exponent is to have: both bounds, and the power of two below.
  static int exponent_after(const LayerParams& params, double factor, int exponent) {
    double scale = params.accum_upper_bound / std::ldexp(1.0, exponent);
    if (factor < scale) scale = factor;
    if (params.scale_upper_bound < scale) scale = params.scale_upper_bound;
    int power = 0;
    std::frexp(scale, &power);  // scale = f 2^power, f in [1/2, 1)
    return exponent + power - 1;
  }
  /// sqrt(2) * erfinv(share), by the series of erf and bisection: only + - * / decide, so it is the same
  /// number on every machine.
  static double quantile_of(double share) {
    const auto erf = [](double x) {
      // 2 / sqrt(pi) * sum of (-1)^k x^(2k+1) / (k! (2k+1)); x <= 1/2 here
      constexpr double two_over_root_pi = 1.1283791670955126;
      double power = x, sum = x;
      for (int k = 1; k < 30; ++k) {
        power *= -x * x / k;
        sum += power / (2 * k + 1);
      }
      return two_over_root_pi * sum;
    };
    constexpr double root_two = 1.4142135623730951;
    double below = 0, above = 0.5;  // erf(1/2) = 0.5205 > 1/2
    for (int step = 0; step < 128; ++step) {
      const double middle = 0.5 * (below + above);
      (erf(middle) < share ? below : above) = middle;
    }
    return root_two * above;
  }
  static LayerParams layer_params(const PolicyValues& values) {
    return {.quantile = quantile_of(values.real("n_uf_threshold")),
            .u_min = values.real("u_min"),
            .u_max = values.real("u_max"),
            .scale_upper_bound = values.real("scale_upper_bound"),
            .accum_upper_bound = values.real("accum_upper_bound")};
  }
};

}  // namespace fp16lab::engine::amp
