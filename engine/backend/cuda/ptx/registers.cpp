#include "engine/backend/cuda/ptx/registers.hpp"

#include <charconv>
#include <cstring>

#include "engine/backend/cuda/ptx/module.hpp"
#include "engine/backend/cuda/ptx/table.hpp"

namespace fp16lab::engine::ptx {

namespace {

constexpr std::byte poison{register_poison};

/// Of 32 lanes.
std::uint32_t bytes_of(Type type) {
  return type.kind == 'p' ? 4 : static_cast<std::uint32_t>(type.bytes()) * lanes;
}

}  // namespace

std::uint32_t RegisterFile::allocate(Type type, std::uint32_t count) {
  const std::size_t first = code_.registers.size();
  code_.registers.resize(rounded_up(first + std::size_t{count} * bytes_of(type), 64), poison);
  return static_cast<std::uint32_t>(first);
}

void RegisterFile::close_scope() {
  declared_.resize(scopes_.back());
  scopes_.pop_back();
}

void RegisterFile::declare(std::string_view name, Type type, std::optional<std::uint32_t> count) {
  declared_.push_back({name, type, count, allocate(type, count.value_or(1))});
}

std::optional<Register> RegisterFile::find(std::string_view name) const {
  const std::size_t digits = name.find_last_not_of("0123456789") + 1;
  for (auto declared = declared_.rbegin(); declared != declared_.rend(); ++declared) {
    std::uint32_t index = 0;
    if (declared->count) {
      if (digits == name.size() || name.substr(0, digits) != declared->name) continue;
      std::from_chars(name.data() + digits, name.data() + name.size(), index);
      if (index >= *declared->count) return {};
    } else if (name != declared->name) {
      continue;
    }
    return Register{declared->type, declared->first + index * bytes_of(declared->type)};
  }
  return {};
}

Register RegisterFile::constant(Type type, std::uint64_t value) {
  const auto [known, is_new] = constants_.try_emplace({value, type.bits}, 0);
  if (is_new) {
    known->second = allocate(type, 1);
    code_.constants.emplace_back(known->second, bytes_of(type));
    const std::size_t bytes = bytes_of(type),
                      step = type.kind == 'p' ? 4 : static_cast<std::size_t>(type.bytes());
    for (std::size_t at = 0; at < bytes; at += step)
      std::memcpy(code_.registers.data() + known->second + at, &value, step);
  }
  return {type, known->second};
}

std::optional<Register> RegisterFile::special(std::string_view name) {
  constexpr Type word{'u', 32};
  for (const auto& [known, offset] : code_.specials)
    if (known->name == name) return Register{word, offset};
  for (const SpecialRegister& known : special_registers()) {
    if (known.name != name) continue;
    code_.specials.emplace_back(&known, allocate(word, 1));
    return Register{word, code_.specials.back().second};
  }
  return {};
}

}  // namespace fp16lab::engine::ptx
