#include "numerics/exponent_histogram.hpp"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <numeric>

#include "numerics/bits.hpp"
#include "numerics/convert.hpp"
#include "numerics/exponent_count_kernels.hpp"
#include "numerics/floating_point_scope.hpp"
#include "numerics/for_each_chunk.hpp"

namespace fp16lab {
namespace {

using exponent_detail::block_size;
using exponent_detail::byte_of_zero;

/// Counters of one thread. A block becomes one byte a value: its bin. Where a block spans few bins, as gradients
/// do, counting means comparing the bytes with every bin in turn, a cache line at once. Otherwise tables count:
/// consecutive values usually fall into the same bin, and an increment that waits for the previous one to leave
/// the store buffer costs several cycles, which eight tables taken in turn hide.
class BlockCounter {
 public:
  /// At most block_size values.
  void count(std::span<const float> values) {
    const exponent_detail::BlockRange range = exponent_detail::exponent_bytes(values, bytes_.data());
    if (!range.finite) {
      for (const float value : values) histogram_.count(bits_of(value));
      return;
    }
    const std::span<const std::uint8_t> bytes = std::span(bytes_).first(values.size());
    if (range.highest - range.lowest < compared_bins) {
      count_compared(bytes, range);
    } else {
      count_in_tables(bytes);
    }
  }
  template <class F>
  void count(std::span<const SmallFloat<F>> values) {
    std::array<float, block_size> wide;
    const std::span<float> used = std::span(wide).first(values.size());
    widen(values, used);
    count(used);
  }

  const ExponentHistogram& histogram() const { return histogram_; }

 private:
  static constexpr std::size_t table_count = 8;
  static constexpr int compared_bins = 48;  ///< about where tables become faster

  void count_compared(std::span<const std::uint8_t> bytes, const exponent_detail::BlockRange& range) {
    std::array<std::uint32_t, 256> counts{};
    exponent_detail::count_equal_bytes(bytes, range.lowest, range.highest, counts);
    std::uint64_t nonzero = 0;
    for (std::size_t bin = range.lowest; bin <= range.highest; ++bin) {
      histogram_.bins[bin] += counts[bin];
      nonzero += counts[bin];
    }
    histogram_.zero += bytes.size() - nonzero;
  }

  void count_in_tables(std::span<const std::uint8_t> bytes) {
    std::array<std::array<std::uint16_t, 256>, table_count> tables{};
    static_assert(block_size <= 0xffff, "a table's counters cannot wrap within a block");
    const std::size_t whole = bytes.size() - bytes.size() % table_count;
    for (std::size_t i = 0; i < whole; i += table_count)
      for (std::size_t table = 0; table < table_count; ++table) ++tables[table][bytes[i + table]];
    for (std::size_t i = whole; i < bytes.size(); ++i) ++tables[0][bytes[i]];
    for (const auto& table : tables) {
      for (std::size_t bin = 0; bin < histogram_.bins.size(); ++bin) histogram_.bins[bin] += table[bin];
      histogram_.zero += table[byte_of_zero];
    }
  }

  std::array<std::uint8_t, block_size> bytes_;
  ExponentHistogram histogram_;
};
static_assert(ExponentHistogram::bin_count == byte_of_zero, "zero has a byte of its own");

constexpr std::size_t chunk_size = std::size_t{1} << 16;  // the unit of work of a thread

/// Small tensors (biases): less work than a block.
void count_small(std::span<const float> values, ExponentHistogram& histogram) {
  for (const float value : values) histogram.count(bits_of(value));
}
template <class F>
void count_small(std::span<const SmallFloat<F>> values, ExponentHistogram& histogram) {
  for (const SmallFloat<F> value : values) histogram.count(bits_of(widen(value)));
}
constexpr std::size_t small_size = 64;

/// Calls visit(first, count, state) for every block of [0, size), each thread with a State of its own, then
/// merge(state), one thread at a time.
template <class State, class Visit, class Merge>
void for_each_block(std::size_t size, int threads, const Visit& visit, const Merge& merge) {
  const std::size_t chunks = (size + chunk_size - 1) / chunk_size;
#pragma omp parallel num_threads(threads) if (threads > 1 && chunks > 1)
  {
    const FloatingPointScope scope;
    State state;
#pragma omp for schedule(static)
    for (std::size_t chunk = 0; chunk < chunks; ++chunk) {
      const std::size_t end = std::min(size, (chunk + 1) * chunk_size);
      for (std::size_t first = chunk * chunk_size; first < end; first += block_size)
        visit(first, std::min(block_size, end - first), state);
    }
#pragma omp critical(fp16lab_count_exponents)
    merge(state);  // integers: the order of threads cannot show
  }
}

template <class T>
void count_all(std::span<const T> values, ExponentHistogram& histogram, int threads) {
  if (values.size() < small_size) return count_small(values, histogram);
  for_each_block<BlockCounter>(
      values.size(), threads,
      [&](std::size_t first, std::size_t count, BlockCounter& counter) {
        counter.count(values.subspan(first, count));
      },
      [&](const BlockCounter& counter) { histogram += counter.histogram(); });
}

template <class T>
void count_only(std::span<const T> values, ExponentHistogram& histogram, int threads) {
  check_arrays("count_exponents", threads, {{"values", values.size()}});
  count_all(values, histogram, threads);
}

template <class To>
void narrow_and_count_both(std::span<const float> from, std::span<SmallFloat<To>> to,
                           ExponentHistogram& before, ExponentHistogram& after, int threads) {
  check_arrays("narrow_and_count", threads, {{"source", from.size()}, {"destination", to.size()}});
  struct Counters {
    BlockCounter before, after;
  };
  for_each_block<Counters>(
      from.size(), threads,
      [&](std::size_t first, std::size_t count, Counters& counters) {
        const std::span<SmallFloat<To>> narrowed = to.subspan(first, count);
        counters.before.count(from.subspan(first, count));
        narrow(from.subspan(first, count), narrowed);
        counters.after.count(std::span<const SmallFloat<To>>(narrowed));
      },
      [&](const Counters& counters) {
        before += counters.before.histogram();
        after += counters.after.histogram();
      });
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

void count_exponents(std::span<const BFloat16> values, ExponentHistogram& histogram, int threads) {
  count_only(values, histogram, threads);
}

template <class To>
void narrow_and_count(std::span<const float> from, std::span<SmallFloat<To>> to, ExponentHistogram& histogram,
                      const ArithmeticOptions& options, int threads) {
  check_arrays("narrow_and_count", threads, {{"source", from.size()}, {"destination", to.size()}});
  for_each_block<BlockCounter>(
      from.size(), threads,
      [&](std::size_t first, std::size_t count, BlockCounter& counter) {
        counter.count(from.subspan(first, count));
        narrow(from.subspan(first, count), to.subspan(first, count), options);
      },
      [&](const BlockCounter& counter) { histogram += counter.histogram(); });
}

void narrow_and_count(std::span<const float> from, std::span<Float16> to, ExponentHistogram& before,
                      ExponentHistogram& after, int threads) {
  narrow_and_count_both(from, to, before, after, threads);
}

void narrow_and_count(std::span<const float> from, std::span<BFloat16> to, ExponentHistogram& before,
                      ExponentHistogram& after, int threads) {
  narrow_and_count_both(from, to, before, after, threads);
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
