// Loads, stores, atomics, asynchronous copies, pairs of registers, and integers between registers of several
// widths (PTX ISA 9.7.9, 9.7.13).
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <stdexcept>

#include "tests/machines/ptx/rows.hpp"

namespace fp16lab::engine::ptx {

/// Operands: a register for each element; one that is wider than the type gets it extended.
template <class Memory, class Register>
void load(Warp& warp, const Instruction& instruction) {
  const std::size_t count = instruction.vector;
  const auto element = [](const std::byte* from, std::size_t i) {
    Memory value;
    std::memcpy(&value, from + i * sizeof(Memory), sizeof(Memory));
    return static_cast<Register>(value);
  };
  if (instruction.space == Space::parameter &&
      instruction.addresses[0].base == no_operand) {  // one value for all lanes
    const std::byte* const from = warp.access(instruction, 0, sizeof(Memory) * count, 0);
    for (std::size_t i = 0; i < count; ++i) {
      Register results[lanes];
      std::fill(std::begin(results), std::end(results), element(from, i));
      warp.assign(instruction.operands[i], results);
    }
    return;
  }
  for_each_lane(warp.active, [&](int lane) {
    const std::byte* const from = warp.access(instruction, lane, sizeof(Memory) * count, 0);
    for (std::size_t i = 0; i < count; ++i)
      warp.values<Register>(instruction.operands[i])[lane] = element(from, i);
  });
}

template <class Memory, class Register>
void store(Warp& warp, const Instruction& instruction) {
  const std::size_t count = instruction.vector;
  for_each_lane(warp.active, [&](int lane) {
    std::byte* const to = warp.access(instruction, lane, sizeof(Memory) * count, Access::wrote);
    for (std::size_t i = 0; i < count; ++i) {
      const auto value = static_cast<Memory>(warp.values<Register>(instruction.operands[i])[lane]);
      std::memcpy(to + i * sizeof(Memory), &value, sizeof(Memory));
    }
  });
}

/// Reads and writes in one. Operands: the old value (of atom), b, and c (of cas). The lambda gives the new
/// one.
template <class Lambda, class T>
void update(Warp& warp, const Instruction& instruction) {
  const bool is_atom = instruction.row->operands.starts_with('T');
  const std::uint32_t* const sources = instruction.operands.data() + (is_atom ? 1 : 0);
  for_each_lane(warp.active, [&](int lane) {
    std::byte* const place = warp.access(instruction, lane, sizeof(T), Access::wrote);
    const auto source = [&](int i) { return warp.values<T>(sources[i])[lane]; };
    T old, made;
    std::memcpy(&old, place, sizeof(T));
    if constexpr (std::is_invocable_v<Lambda, T, T, T>)
      made = static_cast<T>(Lambda{}(old, source(0), source(1)));
    else
      made = static_cast<T>(Lambda{}(old, source(0)));
    std::memcpy(place, &made, sizeof(T));
    if (is_atom) warp.values<T>(instruction.operands[0])[lane] = old;
  });
}
template <class Lambda>
constexpr Row atomic(std::string_view spelling, std::string_view operands, std::string_view clause, Lambda) {
  return {spelling, operands, clause, nullptr, [](Instruction& instruction) {
            return UpdatedTypes::visit(computed_as(instruction.to, false),
                                       [](auto x) -> Handler { return &update<Lambda, decltype(x)>; });
          }};
}

/// Operands: the whole, and its halves, the low one first.
template <class Half>
void pack(Warp& warp, const Instruction& instruction) {
  using Whole = decltype(widened(Half{}));
  const auto* const low = warp.values<Half>(instruction.operands[1]);
  const auto* const high = warp.values<Half>(instruction.operands[2]);
  Whole results[lanes];
  for (int lane = 0; lane < lanes; ++lane)
    results[lane] = Whole{low[lane]} | Whole{high[lane]} << (8 * sizeof(Half));
  warp.assign(instruction.operands[0], results);
}
template <class Half>
void unpack(Warp& warp, const Instruction& instruction) {
  const auto* const whole = warp.values<decltype(widened(Half{}))>(instruction.operands[2]);
  Half low[lanes], high[lanes];
  for (int lane = 0; lane < lanes; ++lane) {
    low[lane] = static_cast<Half>(whole[lane]);
    high[lane] = static_cast<Half>(whole[lane] >> (8 * sizeof(Half)));
  }
  warp.assign(instruction.operands[0], low);
  warp.assign(instruction.operands[1], high);
}

/// The low bits of the source as its type says, extended or cut to the result's; in a register that is wider
/// than that type the result is extended by its own sign.
template <class To, class From>
void convert_integer(Warp& warp, const Instruction& instruction) {
  const auto extended = [](std::uint64_t x, Type type) {
    const int rest = 64 - type.bits;
    return type.kind == 's' ? static_cast<std::uint64_t>(static_cast<std::int64_t>(x << rest) >> rest)
                            : x << rest >> rest;
  };
  const From* const from = warp.values<From>(instruction.operands[1]);
  To results[lanes];
  for (int lane = 0; lane < lanes; ++lane)
    results[lane] = static_cast<To>(extended(extended(from[lane], instruction.from), instruction.to));
  warp.assign(instruction.operands[0], results);
}

inline Handler bind_load(Instruction& instruction) {
  const char kind = instruction.to.kind == 's' ? 's' : 'u';
  return MemoryTypes::visit({kind, instruction.to.bits}, [&](auto memory) {
    return RegisterTypes::visit({'u', instruction.to_register},
                                [](auto wide) -> Handler { return &load<decltype(memory), decltype(wide)>; });
  });
}

inline Handler bind_store(Instruction& instruction) {
  return MemoryTypes::visit({'u', instruction.from.bits}, [&](auto memory) {
    return RegisterTypes::visit({'u', instruction.from_register}, [](auto wide) -> Handler {
      return &store<decltype(memory), decltype(wide)>;
    });
  });
}

inline Handler bind_integer_conversion(Instruction& instruction) {
  return RegisterTypes::visit({'u', instruction.to_register}, [&](auto to) {
    return RegisterTypes::visit({'u', instruction.from_register}, [](auto from) -> Handler {
      return &convert_integer<decltype(to), decltype(from)>;
    });
  });
}

// ---- asynchronous copies ----
//
// They arrive as late as a wait allows, with what global memory holds by then; until then no thread may touch
// their destination.

/// Addresses: in shared memory, in global memory. `constant`: bytes; operand: how many of them are copied,
/// all if absent.
inline void copy(Warp& warp, const Instruction& instruction) {
  const auto bytes = static_cast<std::size_t>(instruction.constant);
  for_each_lane(warp.active, [&](int lane) {
    const std::uint64_t to = warp.address(instruction.addresses[0], lane),
                        from = warp.address(instruction.addresses[1], lane);
    const std::uint32_t source = instruction.operands[0];
    const std::size_t valid = source == no_operand ? bytes : warp.values<std::uint32_t>(source)[lane];
    if (valid > bytes)
      warp.fail(FaultKind::bounds, lane,
                fmt::format("a copy of {} bytes with {} of them from memory", bytes, valid));
    if (from % bytes != 0)
      warp.fail(FaultKind::alignment, lane,
                fmt::format("a copy of {} bytes from {:#x}, which is not aligned", bytes, from));
    warp.access(Space::shared, lane, to, bytes, Access::wrote);
    warp.block->watch.note_copy(to - space_begin, bytes, warp.name(lane, Access::wrote), false);
    auto& [pending, groups] = warp.block->copies[warp.thread(lane)];
    pending.push_back({to, from, valid, bytes - valid, warp.place, groups});
  });
}

inline void arrive(Warp& warp, int lane, const DelayedCopy& copy) {
  std::byte* const to = warp.shared_place(lane, copy.to, copy.bytes + copy.zeros);
  // Bytes that are copied need not be a power of two.
  for (std::size_t done = 0; done < copy.bytes;) {
    const std::size_t piece = std::bit_floor(copy.bytes - done);
    std::memcpy(to + done, warp.access(Space::global, lane, copy.from + done, piece, 0), piece);
    done += piece;
  }
  std::memset(to + copy.bytes, 0, copy.zeros);
  warp.block->watch.note_copy(copy.to - space_begin, copy.bytes + copy.zeros, warp.name(lane, Access::wrote),
                              true);
}

template <int least_bytes>
Handler bind_copy(Instruction& instruction) {
  const std::int64_t bytes = instruction.constant;
  if (bytes < least_bytes || (bytes != 4 && bytes != 8 && bytes != 16))
    throw std::invalid_argument(fmt::format("a copy of {} bytes", bytes));
  const auto& [to, from] = instruction.addresses;
  if ((to.base != no_operand && to.is_wide) || from.base == no_operand)
    throw std::invalid_argument(
        "a copy whose address is in no register of 32 bits (shared memory) and 64 bits (global memory)");
  return &copy;
}

inline void commit_copies(Warp& warp, const Instruction&) {
  for_each_lane(warp.active, [&](int lane) { ++warp.block->copies[warp.thread(lane)].groups; });
}
/// All groups of a thread but the newest `constant` ones arrive.
inline void wait_for_groups(Warp& warp, const Instruction& instruction) {
  const std::uint32_t waiting_place = warp.place;
  for_each_lane(warp.active, [&](int lane) {
    auto& [pending, groups] = warp.block->copies[warp.thread(lane)];
    auto copy = pending.begin();
    for (; copy != pending.end(); ++copy) {
      if (copy->group + static_cast<std::size_t>(instruction.constant) >= groups) break;
      warp.place = copy->instruction;  // for messages
      arrive(warp, lane, *copy);
    }
    pending.erase(pending.begin(), copy);
    warp.place = waiting_place;
  });
}
inline void wait_for_all_copies(Warp& warp, const Instruction& instruction) {
  commit_copies(warp, instruction);
  wait_for_groups(warp, instruction);
}

}  // namespace fp16lab::engine::ptx
