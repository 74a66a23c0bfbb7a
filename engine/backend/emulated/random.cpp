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

constexpr std::int64_t strip = strip_elements;

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
void draw_strip(const DrawCall& call, const std::uint32_t* words, float* out, std::int64_t n) {
  functions::visit(call.distribution, call.first, call.second, [=](auto distribution) {
    FP16LAB_INDEPENDENT_ITERATIONS
    for (std::int64_t i = 0; i < n; ++i) out[i] = distribution(words + i * distribution.words);
  });
}

}  // namespace

void EmulatedBackend::do_draw(const DrawCall& call) {
  const FloatingPointScope scope;
  PhiloxStream stream = call.stream;
  if (call.step != nullptr)
    stream.iteration = static_cast<std::uint32_t>(read_step_state(*call.step).iteration);
  with_element_type(call.out.dtype(), [&](auto tag) {
    using T = decltype(tag);
    T* const values = call.out.host<T>().data();
    functions::visit(call.distribution, call.first, call.second, [&](auto distribution) {
      workers_.for_each_element_chunk(call.out.element_count(), [&](std::int64_t begin, std::int64_t end) {
        for_each_strip<distribution.words>(
            stream, begin, end, [&](const std::uint32_t* words, std::int64_t first, std::int64_t n) {
              if constexpr (std::is_same_v<T, float>) {
                draw_strip(call, words, values + first, n);
              } else {
                Strip wide;
                draw_strip(call, words, wide.data(), n);
                narrow_strip(wide.data(), n, values + first);
              }
            });
      });
    });
  });
}

}  // namespace fp16lab::engine
