// Values of shards as they travel: divided, rounded to the wire's format, and back. Internal to
// engine/parallel.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <stdexcept>
#include <type_traits>

#include "engine/parallel/tree_fold.hpp"
#include "numerics/convert/convert.hpp"
#include "numerics/formats/dtype.hpp"

namespace fp16lab::engine::parallel {

/// visit(T{}) with the element type that travels.
template <class Visit>
void visit_wire(DType wire, const Visit& visit) {
  switch (wire) {
    case DType::f32:
      return visit(float{});
    case DType::f16:
      return visit(Float16{});
    case DType::bf16:
      return visit(BFloat16{});
    default:
      throw std::invalid_argument(
          fmt::format("shards travel as f32, f16 or bf16; {} is none of them", name_of(wire)));
  }
}

/// Rows lie far apart, so that the processor does not foresee where the next block begins.
template <class T>
void prefetch([[maybe_unused]] const T* values, [[maybe_unused]] std::size_t count) {
#if defined(__GNUC__)
  constexpr std::size_t line = 64 / sizeof(T);
  for (std::size_t i = 0; i < count; i += line) __builtin_prefetch(values + i);
#endif
}

/// One block of a shard's values as they travel: divided, then rounded. The span that is returned is `room`,
/// or `values` where nothing is to be done.
template <class T>
std::span<const T> as_sent(std::span<const float> values, float divisor, std::span<T> room) {
  if constexpr (std::is_same_v<T, float>) {
    if (divisor == 1) return values;
    divide_row(values, divisor, room);
  } else {
    float divided[TreeFold<T>::block];
    if (divisor != 1) {
      divide_row(values, divisor, std::span(divided).first(values.size()));
      values = std::span(divided).first(values.size());
    }
    narrow(values, room);
  }
  return room;
}
template <class T, class F>
std::span<const T> as_sent(std::span<const SmallFloat<F>> values, float divisor, std::span<T> room) {
  if constexpr (std::is_same_v<T, float>) {
    widen(values, room);
    if (divisor != 1) divide_row(room, divisor, room);
    return room;
  } else {
    float wide[TreeFold<T>::block];
    widen(values, std::span(wide).first(values.size()));
    return as_sent(std::span<const float>(wide).first(values.size()), divisor, room);
  }
}

/// The way back, of any number of values; `sum` may be `out` itself.
template <class T>
void as_received(std::span<const T> sum, float divisor, std::span<float> out) {
  std::span<const float> values;
  if constexpr (std::is_same_v<T, float>) {
    values = sum;
  } else {
    widen(sum, out);
    values = out;
  }
  if (divisor != 1)
    divide_row(values, divisor, out);
  else if (values.data() != out.data())
    std::ranges::copy(values, out.begin());
}

}  // namespace fp16lab::engine::parallel
