#include "numerics/histogram/value_histogram.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <mutex>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include "numerics/convert/convert.hpp"
#include "numerics/formats/bits.hpp"
#include "numerics/histogram/zone_edges.hpp"
#include "numerics/platform/floating_point_scope.hpp"
#include "numerics/platform/for_each_chunk.hpp"
#include "numerics/platform/worker_pool.hpp"

namespace fp16lab {
namespace {

using Wide = unsigned __int128;

/// Values whose squares are summed in 128 bits before they meet longer sums: 2^22 squares of 2^106 would fit.
/// Also a piece of work for a thread.
constexpr std::size_t block_size = RoundingErrors::most_values;

constexpr std::uint64_t smallest_fp32 = bits_of(0x1p-149);
constexpr std::uint64_t largest_fp32 = bits_of(0x1.fffffep127);

/// The last FP64 numbers of the zones but the last one.
std::array<std::uint64_t, Zone::count - 1> edges_of(const ScaledFormat& format) {
  zone_detail::check_scale("ValueHistogram", format.scale);
  return ZoneEdges<Binary64>(format.range, format.scale).last();
}

/// The exponent field that the values of a bin share, but for a power of two at its top, which belongs to it
/// too.
constexpr std::uint64_t field_of(std::uint64_t magnitude) {
  return (magnitude - 1) >> Binary64::fraction_bits;
}

/// log2 of the unit in which such significands are counted, and the significand of one of the values.
constexpr int exponent_of_unit(std::uint64_t field) {
  return std::max(static_cast<int>(field), 1) - Binary64::bias - Binary64::fraction_bits;
}
constexpr std::uint64_t significand_of(std::uint64_t magnitude, std::uint64_t field) {
  return magnitude - ((field - (field > 0 ? 1 : 0)) << Binary64::fraction_bits);
}

}  // namespace

ExactMass& ExactMass::operator+=(const ExactMass& other) {
  count += other.count;
  l1 += other.l1;
  l2_squared += other.l2_squared;
  return *this;
}

ValueBins::ValueBins(std::span<const ScaledFormat> formats) {
  const std::uint64_t binades = first_of_binade_.size();
  for (std::uint64_t field = 1; field < binades; ++field) tops_.push_back(field << Binary64::fraction_bits);
  tops_.insert(tops_.end(), {Binary64::max_finite, smallest_fp32 - 1, largest_fp32});
  for (const ScaledFormat& format : formats)
    for (const std::uint64_t edge : edges_of(format))
      if (edge != 0) tops_.push_back(edge);
  std::sort(tops_.begin(), tops_.end());
  tops_.erase(std::unique(tops_.begin(), tops_.end()), tops_.end());
  for (std::uint64_t field = 0; field < binades; ++field)
    first_of_binade_[field] = static_cast<std::uint32_t>(
        std::upper_bound(tops_.begin(), tops_.end(), field << Binary64::fraction_bits) - tops_.begin());
}

bool ValueBins::is_edge(std::uint64_t magnitude) const {
  return magnitude == 0 || std::binary_search(tops_.begin(), tops_.end(), magnitude);
}

ValueHistogram::ValueHistogram(std::shared_ptr<const ValueBins> bins) : edges_(std::move(bins)) {}

template <class T>
void ValueHistogram::add_block(std::span<const T> values) {
  struct Sums {
    std::uint64_t count = 0;
    Wide l1 = 0, l2 = 0;
  };
  std::vector<Sums> table(edges_->count());
  for (const T value : values) {
    const std::uint64_t magnitude = bits_of(static_cast<double>(value)) & Binary64::magnitude_mask;
    if (magnitude == 0) {
      ++zero_;
    } else if (magnitude >= Binary64::infinity) {
      ++(magnitude == Binary64::infinity ? infinite_ : nan_);
    } else {
      if (smallest_ == 0 || magnitude < smallest_) smallest_ = magnitude;
      greatest_ = std::max(greatest_, magnitude);
      const std::uint64_t significand = significand_of(magnitude, field_of(magnitude));
      Sums& sums = table[edges_->bin_of(magnitude)];
      ++sums.count;
      sums.l1 += significand;
      sums.l2 += static_cast<Wide>(significand) * significand;
    }
  }
  std::vector<Bin> found;
  for (std::size_t index = 0; index < table.size(); ++index) {
    const Sums& sums = table[index];
    if (sums.count == 0) continue;
    Bin bin{.index = static_cast<std::uint32_t>(index), .count = sums.count, .l1 = sums.l1, .l2_squared = {}};
    bin.l2_squared.add(sums.l2, 0);
    found.push_back(bin);
  }
  add_bins(found);
  rounding_errors_.add(values);
}

template <class T>
void ValueHistogram::add(std::span<const T> values, int threads) {
  check_arrays("ValueHistogram::add", threads, {{"values", values.size()}});
  if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double>) {
    const std::size_t blocks = (values.size() + block_size - 1) / block_size;
    // One task for each thread that may come; a thread that comes takes block after block.
    std::atomic<std::size_t> next = 0;
    std::mutex merging;
    share_tasks(std::min(blocks, static_cast<std::size_t>(threads)), threads, [&](std::size_t) {
      const FloatingPointScope scope;
      ValueHistogram mine(edges_);
      for (std::size_t block = next.fetch_add(1); block < blocks; block = next.fetch_add(1))
        mine.add_block(
            values.subspan(block * block_size, std::min(block_size, values.size() - block * block_size)));
      const std::scoped_lock lock(merging);
      *this += mine;  // integers: the order of threads cannot show
    });
  } else {
    std::vector<float> wide(values.size());
    widen(values, std::span<float>(wide), threads);
    add(std::span<const float>(wide), threads);
  }
}

#define FP16LAB_ADD(name, id, file_name, ...) \
  template void ValueHistogram::add(std::span<const __VA_ARGS__>, int);
FP16LAB_FLOAT_FORMATS(FP16LAB_ADD)
#undef FP16LAB_ADD

void ValueHistogram::add_bins(std::span<const Bin> bins) {
  std::vector<Bin> merged;
  merged.reserve(bins_.size() + bins.size());
  auto mine = bins_.begin();
  for (const Bin& bin : bins) {
    while (mine != bins_.end() && mine->index < bin.index) merged.push_back(*mine++);
    merged.push_back(bin);
    if (mine == bins_.end() || mine->index != bin.index) continue;
    merged.back().count += mine->count;
    merged.back().l1 += mine->l1;
    merged.back().l2_squared += mine->l2_squared;
    ++mine;
  }
  merged.insert(merged.end(), mine, bins_.end());
  bins_ = std::move(merged);
}

ValueHistogram& ValueHistogram::operator+=(const ValueHistogram& other) {
  if (edges_ != other.edges_)
    throw std::invalid_argument("ValueHistogram: counts in other bins cannot be added");
  zero_ += other.zero_;
  infinite_ += other.infinite_;
  nan_ += other.nan_;
  if (smallest_ == 0 || (other.smallest_ != 0 && other.smallest_ < smallest_)) smallest_ = other.smallest_;
  greatest_ = std::max(greatest_, other.greatest_);
  rounding_errors_ += other.rounding_errors_;
  add_bins(other.bins_);
  return *this;
}

bool ValueHistogram::operator==(const ValueHistogram& other) const {
  return edges_ == other.edges_ && zero_ == other.zero_ && infinite_ == other.infinite_ &&
         nan_ == other.nan_ && smallest_ == other.smallest_ && greatest_ == other.greatest_ &&
         rounding_errors_ == other.rounding_errors_ && bins_ == other.bins_;
}

std::uint64_t ValueHistogram::finite_nonzero() const {
  std::uint64_t count = 0;
  for (const Bin& bin : bins_) count += bin.count;
  return count;
}

int ValueHistogram::smallest_exponent() const {
  return static_cast<int>(field_of(edges_->top(bins_.front().index))) - Binary64::bias;
}
int ValueHistogram::greatest_exponent() const {
  return static_cast<int>(field_of(edges_->top(bins_.back().index))) - Binary64::bias;
}

std::uint64_t ValueHistogram::below_fp32() const {
  std::uint64_t count = 0;
  for (const Bin& bin : bins_)
    if (edges_->top(bin.index) < smallest_fp32) count += bin.count;
  return count;
}

std::uint64_t ValueHistogram::above_fp32() const {
  std::uint64_t count = 0;
  for (const Bin& bin : bins_)
    if (edges_->below(bin.index) >= largest_fp32) count += bin.count;
  return count;
}

void ValueHistogram::add_to(ExactMass& mass, const Bin& bin) const {
  const int exponent = exponent_of_unit(field_of(edges_->top(bin.index)));
  const auto& words = bin.l2_squared.words();
  mass.count += bin.count;
  mass.l1.add(bin.l1, exponent);
  mass.l2_squared.add(static_cast<Wide>(words[1]) << 64 | words[0], 2 * exponent);
  if (words[2] != 0) mass.l2_squared.add(words[2], 2 * exponent + 128);
}

std::array<ExactMass, Zone::count> ValueHistogram::zones(const ScaledFormat& format) const {
  const auto edges = edges_of(format);
  if (!std::all_of(edges.begin(), edges.end(), [&](std::uint64_t edge) { return edges_->is_edge(edge); }))
    throw std::invalid_argument(
        fmt::format("ValueHistogram: its bins were not made for this format at scale {}", format.scale));
  std::array<ExactMass, Zone::count> zones;
  for (const Bin& bin : bins_) {
    const std::uint64_t top = edges_->top(bin.index);
    const auto zone =
        std::count_if(edges.begin(), edges.end(), [top](std::uint64_t edge) { return edge < top; });
    add_to(zones[static_cast<std::size_t>(zone)], bin);
  }
  return zones;
}

ExactMass ValueHistogram::total() const {
  ExactMass total;
  for (const Bin& bin : bins_) add_to(total, bin);
  return total;
}

ExponentHistogram ValueHistogram::exponents() const {
  ExponentHistogram histogram;
  for (const Bin& bin : bins_) {
    const int e = static_cast<int>(field_of(edges_->top(bin.index))) - Binary64::bias;
    const int place = std::clamp(e - ExponentHistogram::min_exponent, 0, ExponentHistogram::bin_count - 1);
    histogram.bins[static_cast<std::size_t>(place)] += bin.count;
  }
  histogram.zero = zero_;
  histogram.infinite = infinite_;
  histogram.nan = nan_;
  return histogram;
}

// ---- the answers of histograms ----------------------------------------------------------------------------

RangeCounts count_ranges(const ValueHistogram& values, const FormatRange& range, double scale) {
  const auto zones = values.zones({range, scale});
  RangeCounts counts;
  for (std::size_t zone = 0; zone < Zone::count; ++zone)
    counts[zone] = {zones[zone].count, zones[zone].count};
  counts.zero = values.zero();
  counts.infinite = values.infinite();
  counts.nan = values.nan();
  counts.total = values.finite_nonzero() + counts.zero + counts.infinite + counts.nan;
  return counts;
}

namespace {

MassInterval point(double sum) { return {sum, sum}; }

/// The long sums that `get` picks: inside of each zone, and of the other zones together.
template <class Get>
ZoneSums sums_of(const std::array<ExactMass, Zone::count>& zones, const Get& get) {
  ZoneSums sums;
  for (std::size_t zone = 0; zone < Zone::count; ++zone) {
    auto outside = get(ExactMass{});
    for (std::size_t other = 0; other < Zone::count; ++other)
      if (other != zone) outside += get(zones[other]);
    sums[zone] = {point(get(zones[zone]).nearest()), point(outside.nearest())};
  }
  auto total = get(ExactMass{});
  for (const ExactMass& zone : zones) total += get(zone);
  sums.total = point(total.nearest());
  return sums;
}

}  // namespace

ZoneMass zone_mass(const ValueHistogram& values, const FormatRange& range, double scale) {
  const auto zones = values.zones({range, scale});
  return {.l1 = sums_of(zones, [](const ExactMass& mass) { return mass.l1; }),
          .l2_squared = sums_of(zones, [](const ExactMass& mass) { return mass.l2_squared; })};
}

DirectionSums direction_sums(const ValueHistogram& values, const FormatRange& range, double scale) {
  const auto zones = values.zones({range, scale});
  const auto squares = [&](Zone::Index zone) { return zones[zone].l2_squared.nearest(); };
  const double half_spacing = std::ldexp(1.0, range.tie_to_zero) / scale;  // for subnormals
  const double unit_roundoff = std::ldexp(1.0, -range.precision);
  const double kept = squares(Zone::subnormal) + squares(Zone::normal) + squares(Zone::overflow);
  const double lost = squares(Zone::lost);
  DirectionSums sums;
  sums.lost = mass_detail::widened(lost, lost);
  sums.kept = mass_detail::widened(kept, kept);
  // At most: what is lost itself, half a spacing of each subnormal number, and a fraction of each normal one.
  const double rounded = static_cast<double>(zones[Zone::subnormal].count) * half_spacing * half_spacing;
  sums.error_squared =
      (lost + rounded + unit_roundoff * unit_roundoff * squares(Zone::normal)) * (1 + mass_detail::outward);
  sums.norm_squared = (lost + kept) * (1 - mass_detail::outward);
  sums.overflows = zones[Zone::overflow].count + values.infinite() + values.nan() > 0;
  sums.may_overflow = sums.overflows;
  return sums;
}

}  // namespace fp16lab
