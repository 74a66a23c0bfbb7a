// Loads, stores, atomics and asynchronous copies (PTX ISA 9.7.9, 9.7.13, "cp.async" 9.7.9.25).
#include <algorithm>
#include <cstring>

#include "engine/backend/cuda/ptx/handlers.hpp"
#include "engine/backend/cuda/ptx/lanewise.hpp"
#include "engine/backend/cuda/ptx/table.hpp"

namespace fp16lab::engine::ptx {

namespace {

void addresses(Warp& warp, const Instruction& instruction, std::uint32_t operand,
               std::uint64_t (&to)[lanes]) {
  const auto displacement = static_cast<std::uint64_t>(instruction.constant);
  if (operand == no_operand) {
    std::fill(std::begin(to), std::end(to), displacement);
  } else if (instruction.wide_address) {
    const auto* const base = warp.values<std::uint64_t>(operand);
    for (int lane = 0; lane < lanes; ++lane) to[lane] = base[lane] + displacement;
  } else {
    // A 32-bit register holds an address of shared memory; sums stay in 32 bits.
    const auto* const base = warp.values<std::uint32_t>(operand);
    for (int lane = 0; lane < lanes; ++lane) to[lane] = static_cast<std::uint32_t>(base[lane] + displacement);
  }
}

template <Space space>
std::byte* reach(Warp& warp, int lane, std::uint64_t address, std::size_t bytes, Warp::Touch touch) {
  if constexpr (space == Space::global) return warp.access_global(lane, address, bytes, touch);
  if constexpr (space == Space::shared) return warp.access_shared(lane, address, bytes, touch);
  return warp.access(space, lane, address, bytes, touch);
}

/// operands: the address, then a register for each element; a register wider than the type gets it extended.
template <Space space, class Memory, class Register>
void load(Warp& warp, const Instruction& instruction) {
  const std::uint32_t* const to = instruction.operands.data() + 1;
  const std::size_t count = instruction.vector;
  if (space == Space::parameter && instruction.operands[0] == no_operand) {
    const std::byte* const from =
        warp.access(space, 0, static_cast<std::uint64_t>(instruction.constant), sizeof(Memory) * count, {});
    for (std::size_t i = 0; i < count; ++i) {
      Memory value;
      std::memcpy(&value, from + i * sizeof(Memory), sizeof(Memory));
      Register results[lanes];
      std::fill(std::begin(results), std::end(results), static_cast<Register>(value));
      warp.assign(to[i], results);
    }
    return;
  }
  std::uint64_t at[lanes];
  addresses(warp, instruction, instruction.operands[0], at);
  const Warp::Touch touch{.writes = false, .strong = instruction.strong};
  for_each_lane(warp.active, [&](int lane) {
    const std::byte* const from = reach<space>(warp, lane, at[lane], sizeof(Memory) * count, touch);
    for (std::size_t i = 0; i < count; ++i) {
      Memory value;
      std::memcpy(&value, from + i * sizeof(Memory), sizeof(Memory));
      warp.values<Register>(to[i])[lane] = static_cast<Register>(value);
    }
  });
}

template <Space space, class Memory, class Register>
void store(Warp& warp, const Instruction& instruction) {
  const std::uint32_t* const from = instruction.operands.data() + 1;
  const std::size_t count = instruction.vector;
  std::uint64_t at[lanes];
  addresses(warp, instruction, instruction.operands[0], at);
  const Warp::Touch touch{.writes = true, .strong = instruction.strong};
  for_each_lane(warp.active, [&](int lane) {
    std::byte* const to = reach<space>(warp, lane, at[lane], sizeof(Memory) * count, touch);
    for (std::size_t i = 0; i < count; ++i) {
      const auto value = static_cast<Memory>(warp.values<Register>(from[i])[lane]);
      std::memcpy(to + i * sizeof(Memory), &value, sizeof(Memory));
    }
  });
}

enum class Atomic : std::uint8_t { add, min, max, exchange, compare_exchange, bit_and, bit_or };

/// operands: result, address, b, c.
template <Atomic atomic, class T>
void update(Warp& warp, const Instruction& instruction) {
  std::uint64_t at[lanes];
  addresses(warp, instruction, instruction.operands[1], at);
  const auto space = static_cast<Space>(instruction.vector);
  for_each_lane(warp.active, [&](int lane) {
    std::byte* const place = warp.access(space, lane, at[lane], sizeof(T), {.writes = true, .strong = true});
    T old, made;
    std::memcpy(&old, place, sizeof(T));
    const T b = warp.values<T>(instruction.operands[2])[lane];
    if constexpr (atomic == Atomic::add)
      made =
          static_cast<T>(static_cast<std::make_unsigned_t<T>>(old) + static_cast<std::make_unsigned_t<T>>(b));
    if constexpr (atomic == Atomic::min) made = std::min(old, b);
    if constexpr (atomic == Atomic::max) made = std::max(old, b);
    if constexpr (atomic == Atomic::exchange) made = b;
    if constexpr (atomic == Atomic::compare_exchange)
      made = old == b ? warp.values<T>(instruction.operands[3])[lane] : old;
    if constexpr (atomic == Atomic::bit_and) made = old & b;
    if constexpr (atomic == Atomic::bit_or) made = old | b;
    std::memcpy(place, &made, sizeof(T));
    warp.values<T>(instruction.operands[0])[lane] = old;
  });
}

template <Atomic atomic>
Handler update_of(Type type) {
  return with_integer(type, [](auto x) -> Handler {
    if constexpr (sizeof(x) < 4)
      return nullptr;
    else
      return &update<atomic, decltype(x)>;
  });
}

/// cp.async: operands: address in shared memory, global address, valid bytes; `constant`: bytes. Addresses have their
/// displacements in operands 3 and 4.
void copy_async(Warp& warp, const Instruction& instruction) {
  const auto bytes = static_cast<std::size_t>(instruction.constant);
  for_each_lane(warp.active, [&](int lane) {
    const std::uint32_t valid = warp.values<std::uint32_t>(instruction.operands[2])[lane];
    const std::uint64_t from = warp.values<std::uint64_t>(instruction.operands[1])[lane] +
                               static_cast<std::uint64_t>(static_cast<std::int32_t>(instruction.operands[4]));
    const std::uint32_t to =
        instruction.operands[0] == no_operand
            ? instruction.operands[3]
            : warp.values<std::uint32_t>(instruction.operands[0])[lane] + instruction.operands[3];
    warp.delay_copy(lane, to, from, bytes, valid);
  });
}
void commit_group(Warp& warp, const Instruction&) {
  for_each_lane(warp.active, [&](int lane) { warp.commit_copies(lane); });
}
void wait_group(Warp& warp, const Instruction& instruction) {
  for_each_lane(warp.active, [&](int lane) {
    warp.finish_copies(lane, static_cast<std::size_t>(instruction.constant), false);
  });
}
void wait_all(Warp& warp, const Instruction&) {
  for_each_lane(warp.active, [&](int lane) { warp.finish_copies(lane, 0, true); });
}

/// Nothing but its address: outside of all allocations it does no harm.
void prefetch(Warp&, const Instruction&) {}

/// cvta: `constant` is 1 for an address of the space that is generic now, -1 for a generic one that belongs to the space.
template <bool to_space, std::uint64_t window>
void convert_address(Warp& warp, const Instruction& instruction) {
  const auto* const from = warp.values<std::uint64_t>(instruction.operands[1]);
  std::uint64_t results[lanes];
  for (int lane = 0; lane < lanes; ++lane) {
    results[lane] = from[lane];
    if constexpr (window != 0) results[lane] = to_space ? from[lane] - window : from[lane] + window;
  }
  warp.assign(instruction.operands[0], results);
}

/// mov between a register and two of half its width, the low bits first.
template <class Half, class Whole>
void pack(Warp& warp, const Instruction& instruction) {
  const auto* const low = warp.values<Half>(instruction.operands[1]);
  const auto* const high = warp.values<Half>(instruction.operands[2]);
  Whole results[lanes];
  for (int lane = 0; lane < lanes; ++lane)
    results[lane] = static_cast<Whole>(low[lane] | static_cast<Whole>(high[lane]) << (8 * sizeof(Half)));
  warp.assign(instruction.operands[0], results);
}
template <class Half, class Whole>
void unpack(Warp& warp, const Instruction& instruction) {
  const auto* const whole = warp.values<Whole>(instruction.operands[2]);
  Half low[lanes], high[lanes];
  for (int lane = 0; lane < lanes; ++lane) {
    low[lane] = static_cast<Half>(whole[lane]);
    high[lane] = static_cast<Half>(whole[lane] >> (8 * sizeof(Half)));
  }
  warp.assign(instruction.operands[0], low);
  warp.assign(instruction.operands[1], high);
}

template <class Memory, bool stores, Space space>
Handler with_register(int bits) {
  if constexpr (stores) {
    if constexpr (sizeof(Memory) <= 2)
      if (bits == 16) return &store<space, Memory, std::uint16_t>;
    if constexpr (sizeof(Memory) <= 4)
      if (bits == 32) return &store<space, Memory, std::uint32_t>;
    if (bits == 64) return &store<space, Memory, std::uint64_t>;
  } else {
    if constexpr (sizeof(Memory) <= 2)
      if (bits == 16) return &load<space, Memory, std::uint16_t>;
    if constexpr (sizeof(Memory) <= 4)
      if (bits == 32) return &load<space, Memory, std::uint32_t>;
    if (bits == 64) return &load<space, Memory, std::uint64_t>;
  }
  return nullptr;
}

template <bool stores, Space space>
Handler in_space(Type type, int bits) {
  // A floating-point or bit type is not extended by a sign.
  return with_integer(type, [&](auto x) { return with_register<decltype(x), stores, space>(bits); });
}

}  // namespace

Handler memory_handler(bool stores, Space space, Type type, int register_bits) {
  const auto with = [&]<Space which>() {
    return stores ? in_space<true, which>(type, register_bits) : in_space<false, which>(type, register_bits);
  };
  switch (space) {
    case Space::parameter:
      return with.template operator()<Space::parameter>();
    case Space::constant:
      return with.template operator()<Space::constant>();
    case Space::global:
      return with.template operator()<Space::global>();
    case Space::shared:
      return with.template operator()<Space::shared>();
    case Space::local:
      return with.template operator()<Space::local>();
    case Space::generic:
      break;
  }
  return with.template operator()<Space::generic>();
}

Handler copy_handler() { return &copy_async; }

void bind_memory(Form& form, std::string_view name) {
  if (name == "ld" || name == "st") {
    // parts: volatile or cache operators, space, vector, type. The handler depends on the registers, too.
    for (const std::string_view part : form.parts) {
      if (part == "volatile") form.strong = true;
      if (part == "param") form.space = Space::parameter;
      if (part == "global") form.space = Space::global;
      if (part == "const") form.space = Space::constant;
      if (part == "shared") form.space = Space::shared;
      if (part == "local") form.space = Space::local;
      if (part == "v2") form.vector = 2;
      if (part == "v4") form.vector = 4;
    }
    form.access_bytes = form.type.bytes() * form.vector;
    form.handler = memory_handler(name == "st", form.space, form.type, 64);
    return;
  }
  if (name == "atom") {
    form.space = form.parts[0] == "global"   ? Space::global
                 : form.parts[0] == "shared" ? Space::shared
                                             : Space::generic;
    form.access_bytes = form.type.bytes();
    const std::string_view operation = form.parts[1];
    if (operation == "add") form.handler = update_of<Atomic::add>(form.type);
    if (operation == "min") form.handler = update_of<Atomic::min>(form.type);
    if (operation == "max") form.handler = update_of<Atomic::max>(form.type);
    if (operation == "exch") form.handler = update_of<Atomic::exchange>(form.type);
    if (operation == "cas") form.handler = update_of<Atomic::compare_exchange>(form.type);
    if (operation == "and") form.handler = update_of<Atomic::bit_and>(form.type);
    if (operation == "or") form.handler = update_of<Atomic::bit_or>(form.type);
    return;
  }
  if (name == "cvta") {
    const bool to = form.parts[0] == "to";
    const std::string_view space = form.parts[1];
    if (space == "shared")
      form.handler = to ? &convert_address<true, shared_window> : &convert_address<false, shared_window>;
    else if (space == "local")
      form.handler = to ? &convert_address<true, local_window> : &convert_address<false, local_window>;
    else
      form.handler = &convert_address<true, 0>;
    return;
  }
  const bool is_wide = form.type.bits == 64;
  if (name == "pack")
    form.handler = is_wide ? &pack<std::uint32_t, std::uint64_t> : &pack<std::uint16_t, std::uint32_t>;
  if (name == "unpack")
    form.handler = is_wide ? &unpack<std::uint32_t, std::uint64_t> : &unpack<std::uint16_t, std::uint32_t>;
  if (name == "cp") form.handler = &copy_async;
  if (name == "cp.commit") form.handler = &commit_group;
  if (name == "cp.wait") form.handler = &wait_group;
  if (name == "cp.wait_all") form.handler = &wait_all;
  if (name == "prefetch") form.handler = &prefetch;
}

}  // namespace fp16lab::engine::ptx
