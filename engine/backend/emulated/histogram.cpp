// Exponent counts and digests.
#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstring>
#include <mutex>
#include <span>
#include <type_traits>

#include "engine/backend/checks.hpp"
#include "engine/backend/digest_functions.hpp"
#include "engine/backend/emulated/backend_impl.hpp"
#include "engine/backend/emulated/element_types.hpp"
#include "numerics/convert/convert.hpp"
#include "numerics/platform/vector_clones.hpp"

namespace fp16lab::engine {

namespace {

static_assert(std::endian::native == std::endian::little, "digests are defined on little-endian words");

/// Sum of the summands of words [begin, end) of `bytes`.
FP16LAB_VECTOR_CLONES
std::uint64_t digest_range(const std::byte* bytes, std::uint64_t begin, std::uint64_t end,
                           std::uint64_t key) {
  std::uint64_t sum = 0;
  for (std::uint64_t position = begin; position < end; ++position) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes + position * sizeof(word), sizeof(word));
    sum += functions::digest_word(word, position, key);
  }
  return sum;
}

std::uint64_t digest_of(const Workers& workers, const Tensor& x, std::uint64_t key) {
  const std::byte* const bytes = x.data();
  const std::size_t whole_words = x.byte_count() / sizeof(std::uint64_t);
  const std::size_t tail_bytes = x.byte_count() % sizeof(std::uint64_t);
  std::atomic<std::uint64_t> sum = 0;
  workers.for_each_element_chunk(
      static_cast<std::int64_t>(whole_words), [&](std::int64_t begin, std::int64_t end) {
        sum += digest_range(bytes, static_cast<std::uint64_t>(begin), static_cast<std::uint64_t>(end), key);
      });
  std::uint64_t result = sum;
  if (tail_bytes > 0) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes + whole_words * sizeof(word), tail_bytes);
    result += functions::digest_word(word, whole_words, key);
  }
  return result;
}

/// Elements that are widened, divided and counted while they are in the first-level cache.
constexpr std::size_t update_block = std::size_t{1} << 11;

/// Zeros and NaN of u = w' - w in some elements, and zeros that the gradient shares.
struct UpdateZeros {
  std::uint32_t still = 0, nan = 0, quiet = 0;
};

FP16LAB_VECTOR_CLONES
UpdateZeros relative_updates(const float* before, const float* weight, const float* gradient, float* relative,
                             std::size_t count) {
  std::uint32_t still = 0, nan = 0, quiet = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const float change = weight[i] - before[i];
    relative[i] = change / before[i];
    still += change == 0.0f ? 1u : 0u;
    nan += change != change ? 1u : 0u;
    quiet += (change == 0.0f) & (gradient[i] == 0.0f) ? 1u : 0u;
  }
  return {still, nan, quiet};
}

/// `count` elements from `first` on in FP32: in x itself, or in `block`.
const float* in_f32(const Tensor& x, std::size_t first, std::size_t count, float* block) {
  return with_element_type(x.dtype(), [&](auto tag) -> const float* {
    using T = decltype(tag);
    const std::span<const T> part = x.host<T>().subspan(first, count);
    if constexpr (std::is_same_v<T, float>) {
      return part.data();
    } else {
      widen(part, std::span(block, count));
      return block;
    }
  });
}

}  // namespace

void EmulatedBackend::do_count_update(const Tensor& before, const Tensor& weight, const Tensor& gradient,
                                      UpdateProbes& probes) {
  std::mutex merging;
  workers_.for_each_element_chunk(before.element_count(), [&](std::int64_t begin, std::int64_t end) {
    std::array<float, update_block> wide_weight{}, wide_gradient{}, relative{};
    ExponentHistogram counts;
    std::uint64_t still = 0, nan = 0, quiet = 0;
    const auto last = static_cast<std::size_t>(end);
    for (auto first = static_cast<std::size_t>(begin); first < last; first += update_block) {
      const std::size_t count = std::min(update_block, last - first);
      const UpdateZeros zeros = relative_updates(
          before.host<float>().data() + first, in_f32(weight, first, count, wide_weight.data()),
          in_f32(gradient, first, count, wide_gradient.data()), relative.data(), count);
      still += zeros.still;
      nan += zeros.nan;
      quiet += zeros.quiet;
      count_exponents(std::span<const float>(relative).first(count), counts);
    }
    const std::lock_guard lock(merging);
    probes.relative.before += counts;
    probes.change.before.zero += still;
    probes.change.before.nan += nan;
    probes.quiet.before.zero += quiet;
  });
  for (CastProbe* const probe : {&probes.relative, &probes.change, &probes.quiet}) {
    probe->after = probe->before;
    probe->counted = probe->before.total();
  }
}

void EmulatedBackend::count(const Tensor& x, ExponentHistogram& histogram) {
  with_element_type(x.dtype(), [&](auto tag) {
    using T = decltype(tag);
    count_exponents(std::span<const T>(x.host<T>()), histogram, workers_.threads());
  });
}

void EmulatedBackend::do_histogram(const Tensor& x, ExponentHistogram& out) { count(x, out); }

void EmulatedBackend::do_count(const Tensor& x, std::optional<DType> format, CastProbe& probe) {
  if (format) return count_rounded_to_fp8(x, *format, probe);
  ExponentHistogram counts;
  count(x, counts);
  probe.before += counts;
  probe.after += counts;
  probe.counted += counts.total();
}

std::uint64_t EmulatedBackend::do_digest(std::span<const DigestItem> items) {
  std::uint64_t sum = 0;
  for (const DigestItem& item : items) sum += digest_of(workers_, item.tensor, item.key);
  return sum;
}

}  // namespace fp16lab::engine
