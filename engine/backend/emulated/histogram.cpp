// Exponent counts and digests.
#include <atomic>
#include <bit>
#include <cstring>

#include "engine/backend/checks.hpp"
#include "engine/backend/digest_functions.hpp"
#include "engine/backend/emulated/backend_impl.hpp"
#include "engine/backend/emulated/element_types.hpp"
#include "engine/backend/emulated/vector_clones.hpp"

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

}  // namespace

void EmulatedBackend::count(const Tensor& x, ExponentHistogram& histogram) {
  with_element_type(x.dtype(), [&](auto tag) {
    using T = decltype(tag);
    count_exponents(std::span<const T>(x.host<T>()), histogram, workers_.threads());
  });
}

void EmulatedBackend::histogram(const Tensor& x, ExponentHistogram& out) {
  checks::histogram(x);
  count(x, out);
}

void EmulatedBackend::histogram(const Tensor& x, CastProbe& probe) {
  checks::histogram(x);
  ExponentHistogram counts;
  count(x, counts);
  probe.before += counts;
  probe.after += counts;
  probe.counted += counts.total();
}

std::uint64_t EmulatedBackend::digest(std::span<const DigestItem> items) {
  std::uint64_t sum = 0;
  for (const DigestItem& item : items) sum += digest(item.tensor, item.key);
  return sum;
}

std::uint64_t EmulatedBackend::digest(const Tensor& x, std::uint64_t key) {
  checks::digest(x);
  const std::byte* const bytes = x.data();
  const std::size_t whole_words = x.byte_count() / sizeof(std::uint64_t);
  const std::size_t tail_bytes = x.byte_count() % sizeof(std::uint64_t);
  std::atomic<std::uint64_t> sum = 0;
  workers_.for_each_element_chunk(
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

}  // namespace fp16lab::engine
