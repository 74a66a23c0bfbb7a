// The BF16 dot-product instruction of the processor that this runs on, to compare a row of the table with.
#pragma once

#include <cstdint>
#include <span>

namespace fp16lab {

/// Has it AVX512_BF16 (Zen 4, Zen 5, Cooper Lake, Sapphire Rapids and later)?
bool has_processor_dot();

/// c + a . b by vdpbf16ps: pairs of BF16 words in ascending order, each instruction's result the accumulator of
/// the next; an odd last word is paired with +0. `c` and the result are FP32 words; a NaN is 0x7fffffff. `a`
/// and `b` are equally long. std::logic_error where the processor has no such instruction.
std::uint32_t processor_dot(std::span<const std::uint32_t> a, std::span<const std::uint32_t> b,
                            std::uint32_t c);

}  // namespace fp16lab
