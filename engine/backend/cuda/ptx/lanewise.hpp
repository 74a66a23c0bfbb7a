// Handlers that compute each lane for itself. Lanes that are not active compute, too, and their results are dropped:
// so every operation here is defined on all bits.
#pragma once

#include <type_traits>

#include "engine/backend/cuda/ptx/warp.hpp"

namespace fp16lab::engine::ptx {

/// results[lane] = Operation::of(sources[lane]...), operands in the order of the text.
template <class Operation, class Result, class... Sources>
void lanewise(Warp& warp, const Instruction& instruction) {
  const auto compute = [&]<std::size_t... i>(std::index_sequence<i...>) {
    Result results[lanes];
    const auto all = [&](const Sources* __restrict... sources) {
      for (int lane = 0; lane < lanes; ++lane)
        results[lane] = static_cast<Result>(Operation::of(sources[lane]...));
    };
    all(warp.values<Sources>(instruction.operands[i + 1])...);
    warp.assign(instruction.operands[0], results);
  };
  compute(std::index_sequence_for<Sources...>());
}

/// The same where the result is a predicate.
template <class Operation, class Source>
void compare(Warp& warp, const Instruction& instruction) {
  const Source* const a = warp.values<Source>(instruction.operands[1]);
  const Source* const b = warp.values<Source>(instruction.operands[2]);
  std::uint32_t bits = 0;
  for (int lane = 0; lane < lanes; ++lane)
    bits |= static_cast<std::uint32_t>(Operation::of(a[lane], b[lane])) << lane;
  warp.assign_predicate(instruction.operands[0], bits);
}

/// visitor(T{}) for the C++ type of an integer or bit type.
template <class Visitor>
Handler with_integer(Type type, Visitor&& visitor) {
  const bool is_signed = type.kind == 's';
  switch (type.bits) {
    case 8:
      return is_signed ? visitor(std::int8_t{}) : visitor(std::uint8_t{});
    case 16:
      return is_signed ? visitor(std::int16_t{}) : visitor(std::uint16_t{});
    case 32:
      return is_signed ? visitor(std::int32_t{}) : visitor(std::uint32_t{});
    default:
      return is_signed ? visitor(std::int64_t{}) : visitor(std::uint64_t{});
  }
}

/// As wide as the registers that hold it: there are none of 8 bits.
template <class T>
using RegisterOf =
    std::conditional_t<sizeof(T) == 1, std::conditional_t<std::is_signed_v<T>, std::int16_t, std::uint16_t>,
                       T>;

}  // namespace fp16lab::engine::ptx
