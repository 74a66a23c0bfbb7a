// PTX text: what a module declares, and its kernels' bodies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tests/machines/ptx/instruction.hpp"
#include "tests/machines/ptx/machine.hpp"

namespace fp16lab::engine::ptx {

/// Words (with their dots, $, % and _), numbers and punctuation, without comments. A copy goes on by itself.
class Lexer {
 public:
  Lexer(std::string_view text, std::uint32_t line) : rest_(text), line_(line) { next(); }
  std::string_view token() const { return token_; }  ///< empty at the end
  std::uint32_t line() const { return line_; }       ///< the token's
  std::string_view take() {
    const std::string_view taken = token_;
    next();
    return taken;
  }
  bool accept(std::string_view expected) {
    if (token_ != expected) return false;
    next();
    return true;
  }
  void next();

 private:
  std::string_view rest_, token_;
  std::uint32_t line_;
};

bool is_word(std::string_view token);
inline std::size_t rounded_up(std::size_t bytes, std::size_t alignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

/// Also a parameter.
struct Variable {
  std::string_view name;
  Space space = Space::global;
  std::size_t bytes = 0, alignment = 1;
  bool is_extern = false;
  std::uint64_t address = 0;       ///< in its space
  std::vector<std::byte> initial;  ///< the first bytes
};
using Variables = std::map<std::string_view, Variable>;

/// An operand as the text has it.
struct Operand {
  enum class Kind : std::uint8_t { name, number, address, vector } kind = Kind::name;
  std::string_view text;          ///< name or number; an address's base, empty where it has none
  std::string_view second;        ///< after |
  bool is_negative = false;       ///< a number's sign
  bool is_negated = false;        ///< !p
  std::int64_t displacement = 0;  ///< an address's
  std::vector<Operand> elements;  ///< a vector's
};

/// Its functions throw std::invalid_argument "FILE:LINE: ..." for what they do not know.
struct Module {
  std::string file, text;
  int architecture = 0;
  Variables variables;

  [[noreturn]] void fail(std::uint32_t line, const std::string& what) const {
    throw std::invalid_argument(file + ":" + std::to_string(line) + ": " + what);
  }
  void expect(Lexer& lexer, std::string_view token) const;
  /// 17, 0x11 or 17U.
  std::uint64_t integer(std::string_view token, std::uint32_t line) const;
  std::uint64_t integer(Lexer& lexer) const {
    const std::uint32_t line = lexer.line();
    return integer(lexer.take(), line);
  }
  /// All after ".global" and the like, up to the ; or , or ) that ends it: .align N .b8 name[N] = {...}.
  Variable declaration(Lexer& lexer) const;
  Operand operand(Lexer& lexer) const;
  std::string_view text_of_line(std::uint32_t line) const;
};

struct Kernel {
  const Module* module = nullptr;
  KernelFacts facts;
  Variables parameters;
  std::size_t parameter_bytes = 0;
  Lexer body;                        ///< its token is the {
  mutable std::optional<Code> code;  ///< set by the first call of code_of
};

/// Translates a kernel's body. std::invalid_argument "FILE:LINE: ..." for what the table does not have.
Code decode(const Kernel& kernel);
/// The same, once.
inline const Code& code_of(const Kernel& kernel) {
  if (!kernel.code) kernel.code = decode(kernel);
  return *kernel.code;
}

}  // namespace fp16lab::engine::ptx
