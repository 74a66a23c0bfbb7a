#include "numerics/histogram/exponent_histogram.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <functional>
#include <mutex>
#include <numeric>
#include <type_traits>

#include "numerics/arithmetic/round_pack.hpp"
#include "numerics/convert/convert.hpp"
#include "numerics/formats/bits.hpp"
#include "numerics/formats/dtype.hpp"
#include "numerics/histogram/exponent_count_kernels.hpp"
#include "numerics/platform/floating_point_scope.hpp"
#include "numerics/platform/for_each_chunk.hpp"
#include "numerics/platform/worker_pool.hpp"

namespace fp16lab {
namespace {

using exponent_detail::block_size;
using exponent_detail::byte_of_zero;

/// Counters of one thread. A block becomes one byte a value: its exponent. If a block spans few of them, as
/// gradients do, counting means comparing the bytes with each in turn, a cache line at once. Otherwise tables
/// count: consecutive values usually fall into the same bin, and an increment that waits for the previous one
/// to leave the store buffer costs several cycles, which eight tables taken in turn hide. The values that
/// share byte 0, FP32's subnormals and 2^-126, are distinguished one by one: they are rare.
class BlockCounter {
 public:
  /// At most block_size values.
  void count(std::span<const float> values) {
    const exponent_detail::BlockRange range = exponent_detail::exponent_bytes(values, bytes_.data());
    if (!range.finite) {
      for (const float value : values) histogram_.count(bits_of(value));
      return;
    }
    if (range.greatest == 0) {
      histogram_.zero += values.size();
      return;
    }
    histogram_.include(range.smallest, range.greatest);
    const std::span<const std::uint8_t> bytes = std::span(bytes_).first(values.size());
    const std::uint32_t lowest = exponent_detail::byte_of(range.smallest);
    const std::uint32_t highest = exponent_detail::byte_of(range.greatest);
    if (highest - lowest < compared_bytes) {
      count_compared(bytes, lowest, highest);
    } else {
      count_in_tables(bytes);
    }
    if (lowest > 0) return;
    for (std::size_t i = 0; i < values.size(); ++i)
      if (bytes[i] == 0) {
        const std::uint32_t magnitude = bits_of(values[i]) & Binary32::magnitude_mask;
        ++histogram_.bins[static_cast<std::size_t>(ExponentHistogram::bin_of(magnitude))];
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
  static constexpr std::uint32_t compared_bytes = 48;  ///< about where tables become faster

  /// The bin of a byte above 0.
  std::uint64_t& bin_of_byte(std::size_t byte) {
    return histogram_.bins[byte + ExponentHistogram::subnormal_bins];
  }

  void count_compared(std::span<const std::uint8_t> bytes, std::uint32_t lowest, std::uint32_t highest) {
    std::array<std::uint32_t, 256> counts{};
    exponent_detail::count_equal_bytes(bytes, static_cast<std::uint8_t>(lowest),
                                       static_cast<std::uint8_t>(highest), counts);
    std::uint64_t nonzero = counts[0];
    for (std::size_t byte = std::max(lowest, 1u); byte <= highest; ++byte) {
      bin_of_byte(byte) += counts[byte];
      nonzero += counts[byte];
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
      for (std::size_t byte = 1; byte < byte_of_zero; ++byte) bin_of_byte(byte) += table[byte];
      histogram_.zero += table[byte_of_zero];
    }
  }

  std::array<std::uint8_t, block_size> bytes_;
  ExponentHistogram histogram_;
};
static_assert(ExponentHistogram::bin_count - ExponentHistogram::subnormal_bins == byte_of_zero,
              "zero has a byte of its own");

constexpr std::size_t chunk_size = std::size_t{1} << 16;  // the unit of work of a thread

/// Small tensors (biases): less work than a block.
template <class T>
void count_small(std::span<const T> values, ExponentHistogram& histogram) {
  const bool known = histogram.extremes_known();
  for (const T value : values) {
    if constexpr (std::is_same_v<T, float>)
      histogram.count(bits_of(value));
    else
      histogram.count(bits_of(widen(value)));
  }
  if (!known) histogram.forget_extremes();
}
constexpr std::size_t small_size = 64;

/// Calls visit(first, count, state) for every block of [0, size), each thread with a State of its own, then
/// merge(state), one at a time.
template <class State, class Visit, class Merge>
void for_each_block(std::size_t size, int threads, const Visit& visit, const Merge& merge) {
  const FloatingPointScope scope;
  const std::size_t chunks = (size + chunk_size - 1) / chunk_size;
  const auto visit_chunk = [&](std::size_t chunk, State& state) {
    const std::size_t end = std::min(size, (chunk + 1) * chunk_size);
    for (std::size_t first = chunk * chunk_size; first < end; first += block_size)
      visit(first, std::min(block_size, end - first), state);
  };
  if (threads == 1 || chunks <= 1) {
    State state;
    for (std::size_t chunk = 0; chunk < chunks; ++chunk) visit_chunk(chunk, state);
    return merge(state);
  }
  // One task for each thread that may come; a thread that comes takes chunk after chunk.
  std::atomic<std::size_t> next = 0;
  std::mutex merging;
  share_tasks(std::min(chunks, static_cast<std::size_t>(threads)), threads, [&](std::size_t) {
    std::size_t chunk = next.fetch_add(1);
    if (chunk >= chunks) return;
    State state;
    for (; chunk < chunks; chunk = next.fetch_add(1)) visit_chunk(chunk, state);
    const std::scoped_lock lock(merging);
    merge(state);  // integers: the order of threads cannot show
  });
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
  const bool known = extremes_known() && other.extremes_known();
  include(other.smallest, other.greatest);
  if (!known) forget_extremes();
  std::transform(bins.begin(), bins.end(), other.bins.begin(), bins.begin(), std::plus<>());
  zero += other.zero;
  infinite += other.infinite;
  nan += other.nan;
  return *this;
}

ExponentHistogram times_power_of_two(const ExponentHistogram& histogram, int shift) {
  if (shift == 0) return histogram;
  ExponentHistogram moved;
  moved.zero = histogram.zero;
  moved.infinite = histogram.infinite;
  moved.nan = histogram.nan;
  bool complete = histogram.extremes_known();
  for (int e = ExponentHistogram::min_exponent; e <= ExponentHistogram::max_exponent; ++e) {
    const std::uint64_t count = histogram.at(e);
    if (count == 0) continue;
    const int to = e + shift;
    if (to >= ExponentHistogram::min_exponent && to <= ExponentHistogram::max_exponent) {
      moved.bins[static_cast<std::size_t>(to - ExponentHistogram::min_exponent)] = count;
      continue;
    }
    complete = false;
    (to > ExponentHistogram::max_exponent ? moved.infinite : moved.zero) += count;
  }
  if (!complete || histogram.greatest == 0) return moved;
  const auto times = [&](std::uint32_t magnitude) {
    Exact x = decode(SmallFloat<Binary32>::from_bits(magnitude));
    x.exponent += shift;
    return std::min<std::uint32_t>(round_pack<Binary32>(x, Rounding::upward).bits(), Binary32::max_finite);
  };
  moved.include(times(histogram.smallest), times(histogram.greatest));
  return moved;
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

#define FP16LAB_NARROW_AND_COUNT(name, id, file_name, ...)                                           \
  template void narrow_and_count(std::span<const float>, std::span<__VA_ARGS__>, ExponentHistogram&, \
                                 const ArithmeticOptions&, int);
FP16LAB_LOW_FORMATS(FP16LAB_NARROW_AND_COUNT)
#undef FP16LAB_NARROW_AND_COUNT

}  // namespace fp16lab
