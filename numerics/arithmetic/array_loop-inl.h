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

/// kernel(to, from, more...) for `count` elements, fewer than a step.
template <class Kernel, class To, class From, class... More>
HWY_NOINLINE void transform_few(const Kernel& kernel, std::size_t count, To* to, const From* from,
                                const More*... more) {
  if (count == 0) return;
  Step<To> result{};
  kernel(result.data(), padded(from, count).data(), padded(more, count).data()...);
  std::memcpy(to, result.data(), count * sizeof(To));
}

/// kernel(to + i, from + i, more + i ...) in steps of `lanes` elements that cover [0, n). It loads all
/// operands before it stores, so `to` may be one of them. Loads of `from` are aligned in all but short
/// arrays: those that cross a cache line cost a fifth of the speed. The kernel holds its constants by value; the
/// loop has its own copy, whose address nobody has, so that they stay in registers.
template <class Kernel, class To, class From, class... More>
HWY_INLINE void transform(const Kernel& kernel, std::size_t n, std::size_t lanes, To* to, const From* from,
                          const More*... more) {
  const Kernel own = kernel;
  std::size_t i = 0;
  if (n >= 64 * lanes) {
    const std::size_t beyond = reinterpret_cast<std::uintptr_t>(from) / sizeof(From) % lanes;
    i = beyond == 0 ? 0 : lanes - beyond;
    transform_few(kernel, i, to, from, more...);
  }
  for (; i + lanes <= n; i += lanes) own(to + i, from + i, (more + i)...);
  transform_few(kernel, n - i, to + i, from + i, (more + i)...);
}

}  // namespace HWY_NAMESPACE
}  // namespace fp16lab::conversion_detail
HWY_AFTER_NAMESPACE();

#endif  // include guard
