// The arithmetic of numerics/ under the names of the oracle's operations.
#pragma once

#include "numerics/arithmetic/arithmetic.hpp"
#include "tests/support/arithmetic_oracle.hpp"

namespace fp16lab::testing_support {

template <class F>
oracle::Outcome outcome_of(oracle::Operation operation, std::uint64_t a, std::uint64_t b, std::uint64_t c,
                           const ArithmeticOptions& options) {
  using oracle::Operation;
  const auto number = [](std::uint64_t bits) {
    return SmallFloat<F>::from_bits(static_cast<typename F::Bits>(bits));
  };
  const SmallFloat<F> x = number(a), y = number(b), z = number(c);
  oracle::Outcome outcome;
  switch (operation) {
    case Operation::add:
      outcome.bits = add(x, y, options, &outcome.flags).bits();
      break;
    case Operation::sub:
      outcome.bits = sub(x, y, options, &outcome.flags).bits();
      break;
    case Operation::mul:
      outcome.bits = mul(x, y, options, &outcome.flags).bits();
      break;
    case Operation::div:
      outcome.bits = div(x, y, options, &outcome.flags).bits();
      break;
    case Operation::remainder:
      outcome.bits = remainder(x, y, options, &outcome.flags).bits();
      break;
    case Operation::sqrt:
      outcome.bits = sqrt(x, options, &outcome.flags).bits();
      break;
    case Operation::fma:
      outcome.bits = fma(x, y, z, options, &outcome.flags).bits();
      break;
  }
  return outcome;
}

inline const char* name_of(oracle::Operation operation) {
  switch (operation) {
    case oracle::Operation::add:
      return "add";
    case oracle::Operation::sub:
      return "sub";
    case oracle::Operation::mul:
      return "mul";
    case oracle::Operation::div:
      return "div";
    case oracle::Operation::remainder:
      return "remainder";
    case oracle::Operation::sqrt:
      return "sqrt";
    case oracle::Operation::fma:
      return "fma";
  }
  return "?";
}

inline std::string text_of(const oracle::Outcome& outcome) {
  char bits[24];
  std::snprintf(bits, sizeof bits, "%llx", static_cast<unsigned long long>(outcome.bits));
  std::string text = bits;
  if (outcome.flags.invalid) text += " invalid";
  if (outcome.flags.divide_by_zero) text += " divide_by_zero";
  if (outcome.flags.overflow) text += " overflow";
  if (outcome.flags.underflow) text += " underflow";
  if (outcome.flags.inexact) text += " inexact";
  return text;
}

}  // namespace fp16lab::testing_support
