#include "numerics/exact_mass.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <vector>

#include "numerics/convert.hpp"
#include "numerics/floating_point_scope.hpp"
#include "numerics/for_each_chunk.hpp"
#include "numerics/fp16_zones.hpp"

namespace fp16lab {
namespace {

using Wide = unsigned __int128;

/// Values whose significands are summed as machine integers, binade by binade, before they meet the long
/// accumulators: 2^16 squares of 24 bits fit 64 bits, and of 53 bits 128.
constexpr std::size_t block_size = std::size_t{1} << 16;

zone_detail::Zone zone_of(double magnitude, const Exact& scale) {
  const Exact x = decode(SmallFloat<Binary64>::from_bits(bits_of(magnitude)));
  return zone_detail::zone_of(zone_detail::Positive::from(
      static_cast<Wide>(x.significand) * scale.significand, x.exponent + scale.exponent));
}

/// The largest finite number in `zone` or below it, found by its bits, whose order is that of magnitudes; 0: none.
double largest_within(zone_detail::Zone zone, const Exact& scale) {
  std::uint64_t within = 0, beyond = Binary64::infinity;
  while (beyond - within > 1) {
    const std::uint64_t middle = within + (beyond - within) / 2;
    (zone_of(double_from_bits(middle), scale) <= zone ? within : beyond) = middle;
  }
  return double_from_bits(within);
}

/// What a binary format needs here.
template <class T>
struct Fields;
template <>
struct Fields<float> {
  using Format = Binary32;
  using Sum = std::uint64_t;
};
template <>
struct Fields<double> {
  using Format = Binary64;
  using Sum = Wide;
};

}  // namespace

ExactMass& ExactMass::operator+=(const ExactMass& other) {
  count += other.count;
  l1 += other.l1;
  l2_squared += other.l2_squared;
  return *this;
}

ExactZoneMass::ExactZoneMass(double scale) : scale_(scale), edges_{} {
  const Exact exact_scale = zone_detail::decode_scale("ExactZoneMass", scale);
  for (std::size_t zone = 0; zone + 1 < zone_count; ++zone)
    edges_[zone] = largest_within(static_cast<zone_detail::Zone>(zone), exact_scale);
}

template <class T>
void ExactZoneMass::add_block(std::span<const T> values) {
  using F = typename Fields<T>::Format;
  using Sum = typename Fields<T>::Sum;
  struct Binade {
    std::uint64_t count = 0;
    Sum l1 = 0, l2 = 0;
  };
  constexpr std::size_t fields = std::size_t{1} << F::exponent_bits;
  std::vector<std::array<Binade, zone_count>> binades(fields);
  for (const T value : values) {
    const auto magnitude = bits_of(value) & F::magnitude_mask;
    if (magnitude == 0)
      ++zero_;
    else if (magnitude == F::infinity)
      ++infinite_;
    else if (magnitude > F::infinity)
      ++nan_;
    else {
      const double x = std::fabs(static_cast<double>(value));
      const std::size_t zone = x <= edges_[0] ? 0 : x <= edges_[1] ? 1 : x <= edges_[2] ? 2 : 3;
      const auto field = magnitude >> F::fraction_bits;
      const auto fraction = magnitude & F::fraction_mask;
      const Sum significand = field == 0 ? fraction : fraction | (Sum{1} << F::fraction_bits);
      Binade& binade = binades[static_cast<std::size_t>(field)][zone];
      ++binade.count;
      binade.l1 += significand;
      binade.l2 += significand * significand;
    }
  }
  for (std::size_t field = 0; field < fields; ++field) {
    const int exponent = std::max(static_cast<int>(field), 1) - F::bias - F::fraction_bits;
    for (std::size_t zone = 0; zone < zone_count; ++zone) {
      const Binade& binade = binades[field][zone];
      if (binade.count == 0) continue;
      zones_[zone].count += binade.count;
      zones_[zone].l1.add(binade.l1, exponent);
      zones_[zone].l2_squared.add(binade.l2, 2 * exponent);
    }
  }
}

template <class T>
void ExactZoneMass::add_values(std::span<const T> values, int threads) {
  check_arrays("ExactZoneMass::add", threads, {{"values", values.size()}});
  const std::size_t blocks = (values.size() + block_size - 1) / block_size;
  ExactZoneMass empty(*this);
  empty.zero_ = empty.infinite_ = empty.nan_ = 0;
  std::fill(std::begin(empty.zones_), std::end(empty.zones_), ExactMass{});
#pragma omp parallel num_threads(threads) if (threads > 1 && blocks > 1)
  {
    const FloatingPointScope scope;
    ExactZoneMass mine(empty);
#pragma omp for schedule(static) nowait
    for (std::size_t block = 0; block < blocks; ++block)
      mine.add_block(
          values.subspan(block * block_size, std::min(block_size, values.size() - block * block_size)));
#pragma omp critical(fp16lab_exact_mass)
    *this += mine;  // integers: the order of threads cannot show
  }
}

void ExactZoneMass::add(std::span<const float> values, int threads) { add_values(values, threads); }
void ExactZoneMass::add(std::span<const double> values, int threads) { add_values(values, threads); }

void ExactZoneMass::add(std::span<const Float16> values, int threads) {
  std::vector<float> wide(values.size());
  widen(values, wide);
  add_values(std::span<const float>(wide), threads);
}

void ExactZoneMass::add(std::span<const BFloat16> values, int threads) {
  std::vector<float> wide(values.size());
  widen(values, wide);
  add_values(std::span<const float>(wide), threads);
}

ExactZoneMass& ExactZoneMass::operator+=(const ExactZoneMass& other) {
  if (bits_of(scale_) != bits_of(other.scale_))
    throw std::invalid_argument("ExactZoneMass: sums at two scales, " + std::to_string(scale_) + " and " +
                                std::to_string(other.scale_) + ", have other zones and cannot be added");
  zero_ += other.zero_;
  infinite_ += other.infinite_;
  nan_ += other.nan_;
  for (std::size_t zone = 0; zone < zone_count; ++zone) zones_[zone] += other.zones_[zone];
  return *this;
}

ExactMass ExactZoneMass::total() const {
  ExactMass total = zones_[0];
  for (std::size_t zone = 1; zone < zone_count; ++zone) total += zones_[zone];
  return total;
}

}  // namespace fp16lab
