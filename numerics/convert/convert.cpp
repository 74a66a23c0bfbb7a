#include "numerics/convert/convert.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <tuple>
#include <type_traits>

#include "numerics/convert/conversion_kernels.hpp"
#include "numerics/platform/for_each_chunk.hpp"
#include "numerics/random/philox_words.hpp"

namespace fp16lab {
namespace {

using conversion_detail::kernels;
using conversion_detail::NarrowKernel;
using conversion_detail::RandomBits;
using conversion_detail::WidenKernel;

/// SmallFloat holds exactly its bits.
template <class F>
typename F::Bits* words_of(std::span<SmallFloat<F>> codes) {
  return reinterpret_cast<typename F::Bits*>(codes.data());
}
template <class F>
const typename F::Bits* words_of(std::span<const SmallFloat<F>> codes) {
  return reinterpret_cast<const typename F::Bits*>(codes.data());
}

template <class To, class From, class Hardware>
void narrow_span(std::span<const Hardware> from, std::span<SmallFloat<To>> to,
                 const ArithmeticOptions& options, int threads) {
  check_arrays("narrow", threads, {{"source", from.size()}, {"destination", to.size()}});
  const auto run = std::get<NarrowKernel<To, From>>(kernels()).run;
  const auto narrow_some = [&](std::size_t first, std::size_t count, RandomBits random = {}) {
    run(from.data() + first, words_of(to) + first, count, options, random);
  };
  for_each_chunk(from.size(), threads, [&](std::size_t first, std::size_t count) {
    if (!std::is_same_v<From, Binary32> || options.rounding != Rounding::stochastic)
      return narrow_some(first, count);
    std::array<std::uint32_t, 512> same_words;
    same_words.fill(options.random_bits);
    for (std::size_t i = 0; i < count; i += same_words.size())
      narrow_some(first + i, std::min(same_words.size(), count - i), {.words = same_words.data()});
  });
}

}  // namespace

template <class To>
void narrow(std::span<const float> from, std::span<SmallFloat<To>> to, const ArithmeticOptions& options,
            int threads) {
  narrow_span<To, Binary32>(from, to, options, threads);
}

template <class To>
void narrow(std::span<const double> from, std::span<SmallFloat<To>> to, const ArithmeticOptions& options,
            int threads) {
  narrow_span<To, Binary64>(from, to, options, threads);
}

template <class To>
void narrow_stochastic(std::span<const float> from, std::span<SmallFloat<To>> to,
                       std::span<const std::uint32_t> random_words, ArithmeticOptions options, int threads) {
  check_arrays("narrow_stochastic", threads,
               {{"source", from.size()}, {"destination", to.size()}, {"random words", random_words.size()}});
  options.rounding = Rounding::stochastic;
  const auto run = std::get<NarrowKernel<To, Binary32>>(kernels()).run;
  for_each_chunk(from.size(), threads, [&](std::size_t first, std::size_t count) {
    run(from.data() + first, words_of(to) + first, count, options, {.words = random_words.data() + first});
  });
}

template <class To>
void narrow_stochastic(std::span<const float> from, std::span<SmallFloat<To>> to, const PhiloxStream& stream,
                       std::uint64_t first_index, ArithmeticOptions options, int threads) {
  static_assert(std::endian::native == std::endian::little, "the lower half of a word must come first");
  check_arrays("narrow_stochastic", threads, {{"source", from.size()}, {"destination", to.size()}});
  options.rounding = Rounding::stochastic;
  const auto run = std::get<NarrowKernel<To, Binary32>>(kernels()).run;
  for_each_chunk(from.size(), threads, [&](std::size_t first, std::size_t count) {
    std::array<std::uint32_t, 2048> words;  // 8 KiB: they never leave the first-level cache
    const auto* const halves = reinterpret_cast<const std::uint16_t*>(words.data());
    for (std::size_t i = first; i < first + count;) {
      const std::uint64_t half = first_index + i;
      const std::size_t some = std::min<std::size_t>(2 * words.size() - half % 2, first + count - i);
      philox_words(stream, half / 2, std::span(words).first((half % 2 + some + 1) / 2));
      run(from.data() + i, words_of(to) + i, some, options, {.halves = halves + half % 2});
      i += some;
    }
  });
}

template <class From>
void widen(std::span<const SmallFloat<From>> from, std::span<float> to, int threads) {
  check_arrays("widen", threads, {{"source", from.size()}, {"destination", to.size()}});
  const auto run = std::get<WidenKernel<From>>(kernels()).run;
  for_each_chunk(from.size(), threads, [&](std::size_t first, std::size_t count) {
    run(words_of(from) + first, to.data() + first, count);
  });
}

#define FP16LAB_NARROW(Source, ...) \
  template void narrow(std::span<const Source>, std::span<__VA_ARGS__>, const ArithmeticOptions&, int);
#define FP16LAB_CONVERSIONS(name, id, file_name, ...)                                                  \
  FP16LAB_NARROW(float, __VA_ARGS__)                                                                   \
  FP16LAB_NARROW(double, __VA_ARGS__)                                                                  \
  template void narrow_stochastic(std::span<const float>, std::span<__VA_ARGS__>,                      \
                                  std::span<const std::uint32_t>, ArithmeticOptions, int);             \
  template void narrow_stochastic(std::span<const float>, std::span<__VA_ARGS__>, const PhiloxStream&, \
                                  std::uint64_t, ArithmeticOptions, int);                              \
  template void widen(std::span<const __VA_ARGS__>, std::span<float>, int);

FP16LAB_LOW_FORMATS(FP16LAB_CONVERSIONS)
FP16LAB_NARROW(double, SmallFloat<Binary32>)

#undef FP16LAB_CONVERSIONS
#undef FP16LAB_NARROW

}  // namespace fp16lab
