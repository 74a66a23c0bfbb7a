#include "experiments/questions/allreduce/gradient_mean.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "engine/parallel/chunk_range.hpp"
#include "engine/parallel/shards.hpp"
#include "numerics/arithmetic/array_arithmetic.hpp"
#include "numerics/convert/convert.hpp"
#include "numerics/formats/bits.hpp"

namespace fp16lab::experiments::allreduce {

using engine::parallel::WireOptions;

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

void add_to(std::vector<float>& sum, std::span<const float> values) {
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = canonicalize(sum[i] + values[i]);
}
template <class F>
void add_to(std::vector<SmallFloat<F>>& sum, std::span<const SmallFloat<F>> values) {
  add<F>(sum, values, sum);
}

/// The sum of all, in ranks[0]. The tree of shards adds neighbours, then neighbours of those.
template <class T>
Traffic sum_in_order(const WireOptions& mean, std::vector<std::vector<T>>& ranks) {
  if (mean.order != SumOrder::tree) return engine::parallel::all_reduce<T>(mean.order, ranks);
  const std::size_t count = ranks.size();
  engine::parallel::check_shard_count(static_cast<std::int64_t>(count));
  for (std::size_t step = 1; step < count; step *= 2)
    for (std::size_t i = 0; i < count; i += 2 * step) add_to(ranks[i], std::span<const T>(ranks[i + step]));
  Traffic traffic;
  for (std::size_t rank = 0; rank < count; ++rank)
    traffic.sent_bytes.push_back(formula_bytes(mean, ranks.front().size(), static_cast<std::int64_t>(count),
                                               static_cast<int>(count), static_cast<int>(rank)));
  return traffic;
}

template <class F>
Traffic sum_of_narrow(const WireOptions& mean, std::vector<std::vector<float>>& ranks) {
  std::vector<std::vector<SmallFloat<F>>> narrowed;
  for (const std::vector<float>& values : ranks)
    narrow<F>(values, std::span<SmallFloat<F>>(narrowed.emplace_back(values.size())));
  Traffic traffic = sum_in_order(mean, narrowed);
  widen<F>(std::span<const SmallFloat<F>>(narrowed.front()), ranks.front());
  return traffic;
}

Traffic sum_over_ranks(const WireOptions& mean, std::vector<std::vector<float>>& ranks) {
  if (mean.wire == DType::f32) return sum_in_order(mean, ranks);
  return mean.wire == DType::f16 ? sum_of_narrow<Binary16>(mean, ranks)
                                 : sum_of_narrow<BrainFloat16>(mean, ranks);
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

Mean reduce_mean(const Variant& variant, Gradients gradients, double scale) {
  if (std::ranges::count(engine::parallel::wire_formats, variant.mean.wire) == 0)
    throw std::invalid_argument("reduce_mean: gradients travel as f16, bf16 or f32");
  const engine::parallel::Divisors divisors =
      engine::parallel::divisors_of(variant.mean.predivide, static_cast<std::int64_t>(gradients.size()));
  std::vector<std::vector<float>> ranks;
  for (const std::vector<float>& gradient : gradients)
    ranks.push_back(prepared(variant, gradient, scale, divisors.before));

  Traffic traffic = sum_over_ranks(variant.mean, ranks);
  if (divisors.after != 1)
    for (float& value : ranks.front()) value /= divisors.after;
  Mean mean =
      unscaled_mean(std::move(ranks.front()), gradients, variant.unscale == Unscale::after ? scale : 1);
  mean.traffic = std::move(traffic);
  return mean;
}

Mean unscaled_mean(std::vector<float> scaled_mean, Gradients gradients, double scale) {
  Mean mean;
  mean.values = std::move(scaled_mean);
  for (std::size_t i = 0; i < mean.values.size(); ++i) {
    if (std::isfinite(mean.values[i])) continue;
    bool born = true;
    for (const std::vector<float>& gradient : gradients) born = born && std::isfinite(gradient[i]);
    mean.born += born ? 1 : 0;
  }
  for (float& value : mean.values) value *= inverse_of(scale);
  return mean;
}

std::uint64_t formula_bytes(const WireOptions& mean, std::size_t elements, std::int64_t shards, int ranks,
                            int rank) {
  using engine::parallel::chunk_range;
  if (ranks == 1) return 0;
  const engine::parallel::Shards run = engine::parallel::placed_shards(shards, ranks, rank);
  const std::size_t parts = mean.order == SumOrder::tree
                                ? engine::parallel::aligned_subtrees(run.first, run.local).size()
                                : static_cast<std::size_t>(run.local);
  const std::size_t own = chunk_range(elements, rank, ranks).size();
  const std::size_t sent = parts * (elements - own) + static_cast<std::size_t>(ranks - 1) * own;
  return sent * (mean.wire == DType::f32 ? 4 : 2);
}

ExactMean exact_mean(Gradients gradients, double scale) {
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

std::vector<float> rounded(const std::vector<double>& values) {
  std::vector<float> floats;
  floats.reserve(values.size());
  for (const double value : values) floats.push_back(static_cast<float>(value));
  return floats;
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
  const DType wire = variant.mean.wire;
  const double u = wire == DType::f16 ? 0x1p-11 : wire == DType::bf16 ? 0x1p-8 : 0x1p-24;
  const double eta = wire == DType::f16 ? 0x1p-25 : 0;  // of BF16 it is neglected, as of FP32: 2^-134
  const double growth = std::pow(1 + u, ranks);
  const auto after = static_cast<double>(engine::parallel::divisors_of(variant.mean.predivide, ranks).after);
  const double factor = (variant.unscale == Unscale::before ? 1 : scale) * after;
  const double underflow =
      ranks * eta * growth / factor * std::sqrt(static_cast<double>(exact.values.size()));
  return (growth * std::pow(1 + 0x1p-24, 6) - 1) * exact.absolute_norm + underflow;
}

void MeanErrors::add(const Variant& variant, const Mean& mean, const ExactMean& exact, int ranks,
                     double scale) {
  const MeanError error = compare(mean, exact);
  const double bound = error_bound(variant, exact, ranks, scale);
  error_squares += error.absolute * error.absolute;
  norm_squares += exact.norm * exact.norm;
  bound_squares += bound * bound;
  lost += error.lost;
  born += mean.born;
}

double MeanErrors::relative(double squares) const { return std::sqrt(squares / norm_squares); }

}  // namespace fp16lab::experiments::allreduce
