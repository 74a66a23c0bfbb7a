// Random fills: Philox words of the logical element index, in strips that stay in the first-level cache.
#include <array>

#include "engine/backend/checks.hpp"
#include "engine/backend/elementwise_functions.hpp"
#include "engine/backend/emulated/backend_impl.hpp"
#include "engine/backend/emulated/element_types.hpp"
#include "numerics/platform/vector_clones.hpp"
#include "numerics/random/philox_words.hpp"

namespace fp16lab::engine {

namespace {

constexpr std::int64_t strip = 1024;

/// Calls convert(words, first, count) for elements [first, first + count) of [begin, end), `per_element`
/// words each.
template <int per_element, class Convert>
void for_each_strip(const PhiloxStream& stream, std::int64_t begin, std::int64_t end,
                    const Convert& convert) {
  std::array<std::uint32_t, strip * per_element> words;
  for (std::int64_t first = begin; first < end; first += strip) {
    const std::int64_t count = std::min(strip, end - first);
    philox_words(stream, static_cast<std::uint64_t>(first) * per_element,
                 std::span(words).first(static_cast<std::size_t>(count) * per_element));
    convert(words.data(), first, count);
  }
}

FP16LAB_VECTOR_CLONES
void uniform_strip(float low, float high, const std::uint32_t* words, float* out, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) out[i] = functions::uniform_between(low, high, uniform01(words[i]));
}

FP16LAB_VECTOR_CLONES
void normal_strip(float mean, float deviation, const std::uint32_t* words, float* out, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i)
    out[i] = functions::normal_from(mean, deviation, words[2 * i], words[2 * i + 1]);
}

FP16LAB_VECTOR_CLONES
void bernoulli_strip(float keep, const std::uint32_t* words, float* out, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) out[i] = uniform01(words[i]) < keep ? 1.0f : 0.0f;
}
template <class F>
inline void bernoulli_codes(float keep, const std::uint32_t* words, SmallFloat<F>* out, std::int64_t n) {
  constexpr auto one = SmallFloat<F>::from_bits(F::bias << F::fraction_bits);
  for (std::int64_t i = 0; i < n; ++i)
    out[i] = uniform01(words[i]) < keep ? one : SmallFloat<F>::from_bits(0);
}
FP16LAB_VECTOR_CLONES
void bernoulli_strip(float keep, const std::uint32_t* words, Float16* out, std::int64_t n) {
  bernoulli_codes(keep, words, out, n);
}
FP16LAB_VECTOR_CLONES
void bernoulli_strip(float keep, const std::uint32_t* words, BFloat16* out, std::int64_t n) {
  bernoulli_codes(keep, words, out, n);
}

}  // namespace

void EmulatedBackend::fill_uniform(Tensor& out, const PhiloxStream& stream, float low, float high) {
  const FloatingPointScope scope;
  checks::fill_uniform(out, low, high);
  float* const values = out.host<float>().data();
  workers_.for_each_element_chunk(out.element_count(), [&](std::int64_t begin, std::int64_t end) {
    for_each_strip<1>(stream, begin, end,
                      [=](const std::uint32_t* words, std::int64_t first, std::int64_t n) {
                        uniform_strip(low, high, words, values + first, n);
                      });
  });
}

void EmulatedBackend::fill_normal(Tensor& out, const PhiloxStream& stream, float mean, float deviation) {
  const FloatingPointScope scope;
  checks::fill_normal(out, mean, deviation);
  float* const values = out.host<float>().data();
  workers_.for_each_element_chunk(out.element_count(), [&](std::int64_t begin, std::int64_t end) {
    for_each_strip<2>(stream, begin, end,
                      [=](const std::uint32_t* words, std::int64_t first, std::int64_t n) {
                        normal_strip(mean, deviation, words, values + first, n);
                      });
  });
}

void EmulatedBackend::fill_bernoulli(Tensor& out, const PhiloxStream& stream, float keep,
                                     const Tensor& step) {
  const FloatingPointScope scope;
  checks::fill_bernoulli(out, keep, step);
  PhiloxStream current = stream;
  current.iteration = static_cast<std::uint32_t>(read_step_state(step).iteration);
  const auto fill_with = [&](auto* values) {
    workers_.for_each_element_chunk(out.element_count(), [&](std::int64_t begin, std::int64_t end) {
      for_each_strip<1>(current, begin, end,
                        [=](const std::uint32_t* words, std::int64_t first, std::int64_t n) {
                          bernoulli_strip(keep, words, values + first, n);
                        });
    });
  };
  with_element_type(out.dtype(), [&](auto tag) { fill_with(out.host<decltype(tag)>().data()); });
}

}  // namespace fp16lab::engine
