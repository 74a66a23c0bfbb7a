// A file that knows nothing of fp16lab and is compiled with -Ofast: templates of the standard library on
// floats, which the linker must not take for ours.
#include <algorithm>
#include <complex>
#include <numeric>
#include <random>
#include <vector>

double unrelated(int n) {
  std::mt19937 random(static_cast<unsigned>(n));
  std::normal_distribution<float> normal;
  std::vector<float> x(1000), y(1000);
  std::generate(x.begin(), x.end(), [&] { return normal(random); });
  std::partial_sum(x.begin(), x.end(), y.begin());
  const std::complex<float> c(y.back(), x.front());
  return std::inner_product(x.begin(), x.end(), y.begin(), 0.0) + std::accumulate(y.begin(), y.end(), 0.0f) +
         static_cast<double>((c / std::complex<float>(1.5f, 0.5f)).real()) + std::midpoint(1.0f, y[3]);
}
