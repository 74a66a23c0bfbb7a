// Where gradients sit in FP16, and which loss scale they ask for.
#include <cmath>
#include <cstdio>
#include <iostream>
#include <random>
#include <vector>

#include "fp16lab/analysis/range_report.hpp"
#include "fp16lab/analysis/suggested_scale.hpp"
#include "fp16lab/numerics/histogram/exponent_histogram.hpp"

int main() {
  using namespace fp16lab;
  std::mt19937 random(1);
  analysis::RangeReport report;
  // Two layers' gradients, log-normal as real ones are; those of the first are 2^10 times smaller.
  for (const auto& [layer, exponent] : {std::pair("fc1.weight", -26), {"fc2.weight", -16}}) {
    std::vector<float> gradients(10'000);
    for (float& g : gradients)
      g = std::ldexp(static_cast<float>(random()) / 0x1p31f - 1, exponent + static_cast<int>(random() % 12));
    ExponentHistogram counts;
    count_exponents(gradients, counts);
    report.add(layer, counts, 1.0);  // they carry no loss scale
  }

  const FormatRange fp16 = range_of(DType::f16);
  for (const double scale : {0x1p0, 0x1p8, 0x1p16}) {
    const auto rates = analysis::rates_of(report.merged().at_scale(fp16, scale));
    std::printf("scale 2^%-2.0f  rounds to zero %5.1f %%  subnormal %5.1f %%  overflow %.1f %%\n",
                std::log2(scale), 100 * rates.lost.middle(), 100 * rates.subnormal.middle(),
                100 * rates.overflow.middle());
  }
  std::cout << analysis::suggest_scale(report, DType::f16).reasoning << '\n';
}
