// The register file of a kernel while it is decoded: which names it has, and where their values lie.
#pragma once

#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "engine/backend/cuda/ptx/instruction.hpp"

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
  void close_scope();
  /// %r<42>, the registers %r0 to %r41; without a count one of this name.
  void declare(std::string_view name, Type type, std::optional<std::uint32_t> count);
  std::optional<Register> find(std::string_view name) const;
  /// A register without a name.
  Register make(Type type) { return {type, allocate(type, 1)}; }
  /// One that holds this value in all lanes.
  Register constant(Type type, std::uint64_t value);
  /// %tid.x and the like.
  std::optional<Register> special(std::string_view name);

 private:
  struct Declared {
    std::string_view name;
    Type type;
    std::optional<std::uint32_t> count;
    std::uint32_t first = 0;
  };
  std::uint32_t allocate(Type type, std::uint32_t count);

  Code& code_;
  std::vector<Declared> declared_;
  std::vector<std::size_t> scopes_;
  std::map<std::pair<std::uint64_t, int>, std::uint32_t> constants_;  ///< by value and bits
};

}  // namespace fp16lab::engine::ptx
