#include "experiments/allreduce/gradient_mean.hpp"

#include <fmt/format.h>

#include <cmath>
#include <stdexcept>

#include "numerics/convert/convert.hpp"

namespace fp16lab::experiments::allreduce {
namespace {

float inverse_of(double scale) { return static_cast<float>(1.0 / scale); }

/// One rank's gradient as it is handed to the wire, still FP32.
std::vector<float> prepared(const Variant& variant, std::span<const float> gradient, double scale,
                            float divisor) {
  const float inverse = inverse_of(scale);
  std::vector<float> values(gradient.begin(), gradient.end());
  if (variant.unscale == Unscale::before)
    for (float& value : values) value *= inverse;
  if (divisor != 1)
    for (float& value : values) value /= divisor;
  return values;
}

Traffic sum_over_ranks(const Variant& variant, std::vector<std::vector<float>>& ranks) {
  using engine::parallel::all_reduce;
  if (variant.mean.wire == DType::f32) return all_reduce<float>(variant.mean.order, ranks);
  std::vector<std::vector<Float16>> halves;
  for (const std::vector<float>& values : ranks)
    narrow<Binary16>(values, std::span<Float16>(halves.emplace_back(values.size())));
  Traffic traffic = all_reduce<Float16>(variant.mean.order, halves);
  widen<Binary16>(std::span<const Float16>(halves.front()), ranks.front());
  return traffic;
}

}  // namespace

std::vector<Variant> all_variants() {
  std::vector<Variant> all;
  for (const DType wire : {DType::f32, DType::f16})
    for (const SumOrder order : {SumOrder::nccl_ring, SumOrder::nccl_tree})
      for (const Unscale unscale : {Unscale::before, Unscale::after})
        for (const Predivide predivide : {Predivide::all, Predivide::one, Predivide::root})
          all.push_back({{wire, predivide, order}, unscale});
  return all;
}

std::string_view title_of(SumOrder order) { return order == SumOrder::nccl_ring ? "ring" : "tree"; }
std::string_view title_of(Predivide predivide) {
  return predivide == Predivide::all ? "pre" : predivide == Predivide::one ? "post" : "split";
}
std::string describe(const Variant& variant) {
  return fmt::format("{} {}, unscale {}, {}divide", name_of(variant.mean.wire), title_of(variant.mean.order),
                     variant.unscale == Unscale::before ? "before" : "after",
                     variant.mean.predivide == Predivide::root ? "split " : title_of(variant.mean.predivide));
}

Mean reduce_mean(const Variant& variant, Ranks gradients, double scale) {
  if (variant.mean.wire != DType::f16 && variant.mean.wire != DType::f32)
    throw std::invalid_argument("reduce_mean: gradients travel as f16 or f32");
  const engine::parallel::Divisors divisors =
      engine::parallel::divisors_of(variant.mean.predivide, static_cast<std::int64_t>(gradients.size()));
  std::vector<std::vector<float>> ranks;
  for (const std::vector<float>& gradient : gradients)
    ranks.push_back(prepared(variant, gradient, scale, divisors.before));

  Mean mean;
  mean.traffic = sum_over_ranks(variant, ranks);
  mean.values = std::move(ranks.front());
  for (std::size_t i = 0; i < mean.values.size(); ++i) {
    if (std::isfinite(mean.values[i])) continue;
    bool born = true;
    for (const std::vector<float>& gradient : gradients) born = born && std::isfinite(gradient[i]);
    mean.born += born ? 1 : 0;
  }
  if (divisors.after != 1)
    for (float& value : mean.values) value /= divisors.after;
  if (variant.unscale == Unscale::after)
    for (float& value : mean.values) value *= inverse_of(scale);
  return mean;
}

ExactMean exact_mean(Ranks gradients, double scale) {
  const std::size_t elements = gradients.front().size();
  const double divisor = static_cast<double>(gradients.size()) * scale;
  ExactMean exact;
  exact.values.resize(elements);
  exact.finite.resize(elements);
  double squares = 0, absolute_squares = 0;
  for (std::size_t i = 0; i < elements; ++i) {
    double sum = 0, absolute = 0;
    for (const std::vector<float>& gradient : gradients) {
      sum += static_cast<double>(gradient[i]);
      absolute += std::fabs(static_cast<double>(gradient[i]));
    }
    exact.values[i] = sum / divisor;
    exact.finite[i] = std::isfinite(absolute);
    if (!exact.finite[i]) continue;
    squares += exact.values[i] * exact.values[i];
    absolute_squares += absolute / divisor * (absolute / divisor);
  }
  exact.norm = std::sqrt(squares);
  exact.absolute_norm = std::sqrt(absolute_squares);
  return exact;
}

MeanError compare(const Mean& mean, const ExactMean& exact) {
  MeanError error;
  double squares = 0;
  for (std::size_t i = 0; i < mean.values.size(); ++i) {
    const auto value = static_cast<double>(mean.values[i]);
    if (!exact.finite[i] || !std::isfinite(value)) continue;
    error.lost += value == 0 && exact.values[i] != 0 ? 1 : 0;
    squares += (value - exact.values[i]) * (value - exact.values[i]);
  }
  error.absolute = std::sqrt(squares);
  return error;
}

double error_bound(const Variant& variant, const ExactMean& exact, int ranks, double scale) {
  const bool half = variant.mean.wire == DType::f16;
  const double u = half ? 0x1p-11 : 0x1p-24, eta = half ? 0x1p-25 : 0;
  const double growth = std::pow(1 + u, ranks);
  const auto after = static_cast<double>(engine::parallel::divisors_of(variant.mean.predivide, ranks).after);
  const double factor = (variant.unscale == Unscale::before ? 1 : scale) * after;
  const double underflow =
      ranks * eta * growth / factor * std::sqrt(static_cast<double>(exact.values.size()));
  return (growth * std::pow(1 + 0x1p-24, 6) - 1) * exact.absolute_norm + underflow;
}

}  // namespace fp16lab::experiments::allreduce
