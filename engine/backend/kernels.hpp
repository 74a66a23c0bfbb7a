// The tables of kernels that are one loop over elements.
//
// A row is an enumerator and a functor (engine/backend/elementwise_functions.hpp, gradient_passes.hpp,
// update_rules.hpp): one source for host and device, which says what becomes of an element. Each table has
// one signature, which engine/backend/checks.hpp checks once, in front of every back end; one rounding rule,
// the verb's; and one driver on each back end, which runs any row. Enumerations, names, dispatch and the
// cases of the tests come from the table.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>

namespace fp16lab::engine {

/// Backend::unary: out = f(x).
#define FP16LAB_UNARY_KERNELS(ROW)                  \
  ROW(negate, Negate)                               \
  ROW(relu, Relu)                                   \
  ROW(exp, Exp)                                     \
  ROW(log, Log)                                     \
  ROW(log1p, Log1p)                                 \
  ROW(square_root, SquareRoot)                      \
  ROW(reciprocal_square_root, ReciprocalSquareRoot) \
  ROW(absolute, Absolute)                           \
  ROW(sign, Sign)                                   \
  ROW(sigmoid, Sigmoid)                             \
  ROW(tanh, Tanh)                                   \
  ROW(erf, Erf)                                     \
  ROW(gelu, Gelu)                                   \
  ROW(gelu_tanh, GeluTanh)

/// Backend::binary: out = f(a, b).
#define FP16LAB_BINARY_KERNELS(ROW)    \
  ROW(add, Add)                        \
  ROW(subtract, Subtract)              \
  ROW(multiply, Multiply)              \
  ROW(divide, Divide)                  \
  ROW(select_positive, SelectPositive) \
  ROW(maximum, Maximum)                \
  ROW(minimum, Minimum)

/// The random fills: out = f(words of the element, two parameters).
#define FP16LAB_DISTRIBUTIONS(ROW) \
  ROW(uniform, Uniform)            \
  ROW(normal, Normal)              \
  ROW(bernoulli, Bernoulli)

/// Passes over all gradients, in place: g = f(g, scalars of the step).
#define FP16LAB_GRADIENT_PASSES(ROW) \
  ROW(unscale, Unscale)              \
  ROW(clip_by_norm, ClipByNorm)      \
  ROW(clip_by_value, ClipByValue)

#define FP16LAB_KERNEL_ENUMERATOR(name, functor) name,
#define FP16LAB_KERNEL_NAME(name, functor) #name,
/// The enumeration of a table, and its names: kernel_names(Op{}).
#define FP16LAB_KERNEL_TABLE(Op, TABLE)                                        \
  enum class Op : std::uint8_t { TABLE(FP16LAB_KERNEL_ENUMERATOR) };           \
  inline constexpr const char* names_of_##Op[] = {TABLE(FP16LAB_KERNEL_NAME)}; \
  constexpr const auto& kernel_names(Op) { return names_of_##Op; }

FP16LAB_KERNEL_TABLE(UnaryOp, FP16LAB_UNARY_KERNELS)
FP16LAB_KERNEL_TABLE(BinaryOp, FP16LAB_BINARY_KERNELS)
FP16LAB_KERNEL_TABLE(Distribution, FP16LAB_DISTRIBUTIONS)
FP16LAB_KERNEL_TABLE(GradientPass, FP16LAB_GRADIENT_PASSES)

#undef FP16LAB_KERNEL_TABLE
#undef FP16LAB_KERNEL_NAME
#undef FP16LAB_KERNEL_ENUMERATOR

/// The name of a row, which ends with a zero.
template <class Op>
constexpr const char* kernel_name(Op op) {
  return kernel_names(op)[static_cast<std::size_t>(op)];
}

/// All rows of a table, in its order.
template <class Op>
constexpr auto all_kernels() {
  std::array<Op, std::size(kernel_names(Op{}))> all{};
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<Op>(i);
  return all;
}

}  // namespace fp16lab::engine
