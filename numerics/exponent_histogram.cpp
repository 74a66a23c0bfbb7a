#include "numerics/exponent_histogram.hpp"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <numeric>

#include "numerics/bits.hpp"
#include "numerics/convert.hpp"
#include "numerics/for_each_chunk.hpp"

namespace fp16lab {
namespace {

/// Counters of one thread. Consecutive values usually fall into the same bin, and an increment that waits for
/// the previous one to leave the store buffer costs several cycles; eight tables taken in turn hide that.
class CountingTables {
 public:
  /// `values` at most `flush_interval` elements, so that 32-bit counters cannot wrap.
  void count(std::span<const float> values) {
    const std::size_t whole = values.size() - values.size() % table_count;
    std::uint32_t infinite = 0;
    for (std::size_t i = 0; i < whole; i += table_count)
      for (std::size_t table = 0; table < table_count; ++table) ++tables_[table][index_of(values[i + table])];
    for (std::size_t i = whole; i < values.size(); ++i) ++tables_[0][index_of(values[i])];
    for (const float value : values)  // its own loop: this one is vectorised, and the values are in cache
      infinite +=
          static_cast<std::uint32_t>((bits_of(value) & Binary32::magnitude_mask) == Binary32::infinity);
    infinite_ += infinite;
  }

  /// Adds everything counted so far to `histogram` and starts again from nothing.
  void flush(ExponentHistogram& histogram) {
    std::array<std::uint64_t, index_count> sums{};
    for (auto& table : tables_) {
      std::transform(table.begin(), table.end(), sums.begin(), sums.begin(),
                     [](std::uint32_t count, std::uint64_t sum) { return sum + count; });
      table.fill(0);
    }
    for (std::size_t bin = 0; bin < histogram.bins.size(); ++bin) histogram.bins[bin] += sums[bin];
    histogram.bins.back() -= infinite_;
    histogram.infinite += infinite_;
    histogram.zero += sums[index_of_zero];
    histogram.nan += std::accumulate(sums.begin() + ExponentHistogram::bin_count,
                                     sums.begin() + index_of_zero, std::uint64_t{0});
    infinite_ = 0;
  }

 private:
  static constexpr std::size_t table_count = 8;
  static constexpr std::size_t index_count = 512;

  /// The bin of a finite magnitude, as ExponentHistogram::bin_of. Zero wraps around to 511, NaN gives 255,
  /// and infinity falls into the last bin together with (2^127, max_finite]; `infinite_` separates it again.
  static std::size_t index_of(float value) {
    return ((bits_of(value) & Binary32::magnitude_mask) - 1u) >> Binary32::fraction_bits;
  }
  static constexpr std::size_t index_of_zero = index_count - 1;
  static_assert(ExponentHistogram::bin_of(Binary32::max_finite) == ExponentHistogram::bin_count - 1);
  static_assert(ExponentHistogram::bin_of(Binary32::infinity) == ExponentHistogram::bin_count - 1);
  static_assert(ExponentHistogram::bin_of(Binary32::canonical_nan) == ExponentHistogram::bin_count);

  std::array<std::array<std::uint32_t, index_count>, table_count> tables_{};
  std::uint64_t infinite_ = 0;
};

constexpr std::size_t block_size = std::size_t{1} << 12;  // 16 KiB of FP32: stays in L1 between the two loops
constexpr std::size_t flush_interval = std::size_t{1} << 20;  // the unit of work of a thread

/// Blocks are presented to the tables as FP32.
void count_block(std::span<const float> values, CountingTables& tables) { tables.count(values); }
void count_block(std::span<const Float16> values, CountingTables& tables) {
  std::array<float, block_size> wide;
  const std::span<float> used = std::span(wide).first(values.size());
  widen(values, used);
  tables.count(used);
}

/// Small tensors (biases): clearing and adding up the tables would cost more than they save.
void count_small(std::span<const float> values, ExponentHistogram& histogram) {
  for (const float value : values) histogram.count(bits_of(value));
}
void count_small(std::span<const Float16> values, ExponentHistogram& histogram) {
  std::array<float, block_size> wide;
  const std::span<float> used = std::span(wide).first(values.size());
  widen(values, used);
  count_small(used, histogram);
}

/// Counts block by block; `then(first, count)` follows each block while it is in cache.
template <class T, class Then>
void count_all(std::span<const T> values, ExponentHistogram& histogram, int threads, const Then& then) {
  if (values.size() < block_size) {
    count_small(values, histogram);
    return then(std::size_t{0}, values.size());
  }
  const std::size_t chunks = (values.size() + flush_interval - 1) / flush_interval;
#pragma omp parallel num_threads(threads) if (threads > 1 && chunks > 1)
  {
    const auto tables = std::make_unique<CountingTables>();
    ExponentHistogram mine;
#pragma omp for schedule(static)
    for (std::size_t chunk = 0; chunk < chunks; ++chunk) {
      const std::size_t end = std::min(values.size(), (chunk + 1) * flush_interval);
      for (std::size_t first = chunk * flush_interval; first < end; first += block_size) {
        const std::size_t count = std::min(block_size, end - first);
        count_block(values.subspan(first, count), *tables);
        then(first, count);
      }
      tables->flush(mine);
    }
#pragma omp critical(fp16lab_count_exponents)
    histogram += mine;  // integers: the order of threads cannot show
  }
}

template <class T>
void count_only(std::span<const T> values, ExponentHistogram& histogram, int threads) {
  check_arrays("count_exponents", threads, {{"values", values.size()}});
  count_all(values, histogram, threads, [](std::size_t, std::size_t) {});
}

}  // namespace

std::uint64_t ExponentHistogram::finite_nonzero() const {
  return std::accumulate(bins.begin(), bins.end(), std::uint64_t{0});
}

ExponentHistogram& ExponentHistogram::operator+=(const ExponentHistogram& other) {
  std::transform(bins.begin(), bins.end(), other.bins.begin(), bins.begin(), std::plus<>());
  zero += other.zero;
  infinite += other.infinite;
  nan += other.nan;
  return *this;
}

void count_exponents(std::span<const float> values, ExponentHistogram& histogram, int threads) {
  count_only(values, histogram, threads);
}

void count_exponents(std::span<const Float16> values, ExponentHistogram& histogram, int threads) {
  count_only(values, histogram, threads);
}

template <class To>
void narrow_and_count(std::span<const float> from, std::span<SmallFloat<To>> to, ExponentHistogram& histogram,
                      const ArithmeticOptions& options, int threads) {
  check_arrays("narrow_and_count", threads, {{"source", from.size()}, {"destination", to.size()}});
  count_all(from, histogram, threads, [&](std::size_t first, std::size_t count) {
    narrow(from.subspan(first, count), to.subspan(first, count), options);
  });
}

// NOLINTBEGIN(bugprone-macro-parentheses): the arguments are types
#define FP16LAB_NARROW_AND_COUNT(To)                                                                        \
  template void narrow_and_count<To>(std::span<const float>, std::span<SmallFloat<To>>, ExponentHistogram&, \
                                     const ArithmeticOptions&, int);

FP16LAB_NARROW_AND_COUNT(Binary16)
FP16LAB_NARROW_AND_COUNT(BrainFloat16)
FP16LAB_NARROW_AND_COUNT(Fp8E4M3)
FP16LAB_NARROW_AND_COUNT(Fp8E5M2)

#undef FP16LAB_NARROW_AND_COUNT
// NOLINTEND(bugprone-macro-parentheses)

}  // namespace fp16lab
