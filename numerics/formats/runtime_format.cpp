#include "numerics/formats/runtime_format.hpp"

#include <stdexcept>
#include <string>

#include "numerics/arithmetic/comparison.hpp"

namespace fp16lab {
namespace {

void check(int exponent_bits, int precision, Encoding encoding) {
  if (exponent_bits < 2 || exponent_bits > 15)
    throw std::invalid_argument("format: " + std::to_string(exponent_bits) +
                                " exponent bits; 2 to 15 are possible");
  const int least = encoding == Encoding::scale ? 1 : 2;
  if (precision < least || exponent_bits + precision > 64)
    throw std::invalid_argument("format: a precision of " + std::to_string(precision) + " bits with " +
                                std::to_string(exponent_bits) + " exponent bits; " + std::to_string(least) +
                                " to " + std::to_string(64 - exponent_bits) + " are possible");
}

}  // namespace

RuntimeFormat::RuntimeFormat(int e, int p, Encoding codes)
    : FormatConstants((check(e, p, codes), e), p, codes) {}

std::uint64_t RuntimeFormat::next_up(std::uint64_t bits) const { return next_up_bits(*this, bits); }
std::uint64_t RuntimeFormat::next_down(std::uint64_t bits) const { return next_down_bits(*this, bits); }

}  // namespace fp16lab
