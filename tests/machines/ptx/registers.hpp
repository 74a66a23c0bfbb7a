// The register file of a kernel while it is decoded: its names, and the places of their values.
#pragma once

#include <charconv>
#include <cstring>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "tests/machines/ptx/module.hpp"
#include "tests/machines/ptx/table.hpp"

namespace fp16lab::engine::ptx {

struct Register {
  Type type;
  std::uint32_t offset = 0;
};

class RegisterFile {
 public:
  explicit RegisterFile(Code& code) : code_(code) {}
  /// Names hold up to the end of the scope that they are declared in.
  void open_scope() { scopes_.push_back(declared_.size()); }
  void close_scope() {
    declared_.resize(scopes_.back());
    scopes_.pop_back();
  }
  bool has_scope() const { return !scopes_.empty(); }
  /// %r<42>, the registers %r0 to %r41; without a count one of this name.
  void declare(std::string_view name, Type type, std::optional<std::uint32_t> count) {
    declared_.push_back({name, type, count, make(type, count.value_or(1))});
  }
  std::optional<Register> find(std::string_view name) const {
    const std::size_t digits = name.find_last_not_of("0123456789") + 1;
    for (auto declared = declared_.rbegin(); declared != declared_.rend(); ++declared) {
      std::uint32_t index = 0;
      if (name != declared->name || declared->count) {
        if (!declared->count || digits == name.size() || name.substr(0, digits) != declared->name) continue;
        std::from_chars(name.data() + digits, name.data() + name.size(), index);
        if (index >= *declared->count) return {};
      }
      return Register{declared->type, declared->first + index * bytes_of(declared->type)};
    }
    return {};
  }
  /// Registers without a name.
  std::uint32_t make(Type type, std::uint32_t count = 1) {
    const std::size_t first = code_.registers.size();
    code_.registers.resize(rounded_up(first + std::size_t{count} * bytes_of(type), 64),
                           std::byte{register_poison});
    return static_cast<std::uint32_t>(first);
  }
  /// One that holds this value in all lanes.
  std::uint32_t constant(Type type, std::uint64_t value) {
    const auto [known, is_new] = constants_.try_emplace({value, type.bits});
    if (is_new) {
      known->second = make(type);
      code_.constants.emplace_back(known->second, bytes_of(type));
      const auto step = static_cast<std::uint32_t>(std::max(type.bytes(), type.kind == 'p' ? 4 : 1));
      for (std::uint32_t at = 0; at < bytes_of(type); at += step)
        std::memcpy(code_.registers.data() + known->second + at, &value, step);
    }
    return known->second;
  }
  /// %tid.x and the like.
  std::optional<Register> special(std::string_view name) {
    constexpr Type word{'u', 32};
    for (const auto& [known, offset] : code_.specials)
      if (known->name == name) return Register{word, offset};
    for (const SpecialRegister& known : special_registers())
      if (known.name == name) return Register{word, code_.specials.emplace_back(&known, make(word)).second};
    return {};
  }

 private:
  struct Declared {
    std::string_view name;
    Type type;
    std::optional<std::uint32_t> count;
    std::uint32_t first;
  };
  /// Bytes of 32 lanes.
  static std::uint32_t bytes_of(Type type) {
    return type.kind == 'p' ? 4 : static_cast<std::uint32_t>(type.bytes()) * lanes;
  }

  Code& code_;
  std::vector<Declared> declared_;
  std::vector<std::size_t> scopes_;
  std::map<std::pair<std::uint64_t, int>, std::uint32_t> constants_;  ///< by value and bits
};

}  // namespace fp16lab::engine::ptx
