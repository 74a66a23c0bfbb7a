// The loop around a vector kernel: whole vectors in place, the ends through padded copies.
#if defined(FP16LAB_ARRAY_LOOP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FP16LAB_ARRAY_LOOP_INL_H_
#undef FP16LAB_ARRAY_LOOP_INL_H_
#else
#define FP16LAB_ARRAY_LOOP_INL_H_
#endif

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace fp16lab::conversion_detail {
namespace HWY_NAMESPACE {

/// Room for the elements of one step, whatever their type: no kernel takes more than a vector of 32-bit
/// lanes.
template <class T>
using Step = std::array<T, HWY_MAX_BYTES / sizeof(float)>;

template <class T>
HWY_INLINE Step<T> padded(const T* from, std::size_t count) {
  Step<T> result{};
  std::memcpy(result.data(), from, count * sizeof(T));
  return result;
}

/// kernel(to + i, from + i, more + i ...) in steps of `lanes` elements that cover [0, n). It loads all
/// operands before it stores, so `to` may be one of them. Loads of `from` are aligned in all but short
/// arrays: those that cross a cache line cost a fifth of the speed.
template <class Kernel, class To, class From, class... More>
HWY_INLINE void transform(const Kernel& kernel, std::size_t n, std::size_t lanes, To* to, const From* from,
                          const More*... more) {
  const auto some = [&](std::size_t i, std::size_t count) {
    if (count == 0) return;
    Step<To> result{};
    kernel(result.data(), padded(from + i, count).data(), padded(more + i, count).data()...);
    std::memcpy(to + i, result.data(), count * sizeof(To));
  };
  std::size_t i = 0;
  if (n >= 64 * lanes) {
    const std::size_t beyond = reinterpret_cast<std::uintptr_t>(from) / sizeof(From) % lanes;
    i = beyond == 0 ? 0 : lanes - beyond;
    some(0, i);
  }
  for (; i + lanes <= n; i += lanes) kernel(to + i, from + i, (more + i)...);
  some(i, n - i);
}

}  // namespace HWY_NAMESPACE
}  // namespace fp16lab::conversion_detail
HWY_AFTER_NAMESPACE();

#endif  // include guard
