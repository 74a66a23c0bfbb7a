// The inner loops of array conversions, one set per instruction set. Used by numerics/convert/convert.cpp
// only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>

#include "numerics/formats/dtype.hpp"
#include "numerics/formats/rounding.hpp"

namespace fp16lab::conversion_detail {

template <class F>
using Hardware = std::conditional_t<std::is_same_v<F, Binary64>, double, float>;

/// Random bits for each element of an FP32 array that is rounded stochastically: words, or halves that go to the upper
/// half of a word. An element of an FP64 array uses options.random_bits.
struct RandomBits {
  const std::uint32_t* words = nullptr;
  const std::uint16_t* halves = nullptr;
};

/// to[i] = convert<To>(from[i], options), for stochastic rounding with the random bits of element i.
template <class To, class From>
struct NarrowKernel {
  void (*run)(const Hardware<From>* from, typename To::Bits* to, std::size_t n,
              const ArithmeticOptions& options, RandomBits random);
};

template <class From>
struct WidenKernel {
  void (*run)(const typename From::Bits* from, float* to, std::size_t n);
};

template <class... Low>
std::tuple<NarrowKernel<Low, Binary32>..., NarrowKernel<Low, Binary64>..., NarrowKernel<Binary32, Binary64>,
           WidenKernel<Low>...>
    kernels_of(TypeList<Low...>);
using Kernels = decltype(kernels_of(LowFormats{}));

/// Those of the best instruction set that this CPU has.
const Kernels& kernels();

}  // namespace fp16lab::conversion_detail
