#include "tests/machines/ptx/module.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>

#include "tests/machines/ptx/table.hpp"

namespace fp16lab::engine::ptx {

namespace {

bool is_word_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '$' ||
         c == '%' || c == '.';
}

}  // namespace

bool is_word(std::string_view token) { return !token.empty() && is_word_character(token[0]); }

void Lexer::next() {
  const auto length_of = [this](auto&& is_part) {
    return static_cast<std::size_t>(std::find_if_not(rest_.begin(), rest_.end(), is_part) - rest_.begin());
  };
  while (true) {
    std::size_t end = length_of([](char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; });
    if (rest_.starts_with("//")) end = std::min(rest_.find('\n'), rest_.size());
    if (rest_.starts_with("/*")) end = std::min(rest_.find("*/", 2), rest_.size() - 2) + 2;
    if (end == 0) break;
    line_ += static_cast<std::uint32_t>(std::count(rest_.begin(), rest_.begin() + end, '\n'));
    rest_.remove_prefix(end);
  }
  std::size_t length = std::min<std::size_t>(rest_.size(), 1);
  if (is_word(rest_)) length = length_of(is_word_character);
  if (rest_.starts_with('"')) length = std::min(rest_.find('"', 1), rest_.size() - 1) + 1;
  token_ = rest_.substr(0, length);
  rest_.remove_prefix(length);
}

void Module::expect(Lexer& lexer, std::string_view token) const {
  if (!lexer.accept(token))
    fail(lexer.line(), fmt::format("'{}' where '{}' has to stand", lexer.token(), token));
}

std::uint64_t Module::integer(std::string_view token, std::uint32_t line) const {
  std::uint64_t value = 0;
  const bool is_hexadecimal = token.starts_with("0x") || token.starts_with("0X");
  std::string_view digits = is_hexadecimal ? token.substr(2) : token;
  if (digits.ends_with('U')) digits.remove_suffix(1);
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, is_hexadecimal ? 16 : 10);
  if (error != std::errc() || end != digits.data() + digits.size())
    fail(line, fmt::format("'{}' where an integer has to stand", token));
  return value;
}

std::string_view Module::text_of_line(std::uint32_t line) const {
  std::string_view rest = text;
  for (; line > 1; --line) rest.remove_prefix(std::min(rest.find('\n'), rest.size() - 1) + 1);
  rest = rest.substr(0, rest.find('\n'));
  while (!rest.empty() && (rest.front() == ' ' || rest.front() == '\t')) rest.remove_prefix(1);
  return rest;
}

Variable Module::declaration(Lexer& lexer) const {
  Variable made;
  std::size_t element = 0, vector = 1, alignment = 0;
  while (lexer.token().starts_with('.')) {
    const std::uint32_t line = lexer.line();
    const std::string_view word = lexer.take();
    const Type type = type_of(word.substr(1));
    if (word == ".align")
      alignment = integer(lexer);
    else if (word == ".v2" || word == ".v4")
      vector = word == ".v2" ? 2 : 4;
    else if (type.kind != '?' && type.kind != 'p')
      element = static_cast<std::size_t>(type.bytes()) * vector;
    else
      fail(line, fmt::format("the declaration has '{}', which this machine does not know", word));
  }
  if (element == 0 || !is_word(lexer.token())) fail(lexer.line(), "a declaration without type or name");
  made.name = lexer.take();
  made.alignment = alignment != 0 ? alignment : element;
  made.bytes = element;
  while (lexer.accept("[")) {
    made.bytes *= lexer.token() == "]" ? 0 : integer(lexer);
    expect(lexer, "]");
  }
  if (lexer.accept("=")) {
    const bool is_list = lexer.accept("{");
    do {
      const bool is_negative = lexer.accept("-");
      const std::uint64_t value = integer(lexer) * (is_negative ? ~std::uint64_t{0} : 1);
      const std::size_t at = made.initial.size();
      made.initial.resize(at + element);
      if (made.initial.size() > made.bytes) fail(lexer.line(), "more initial values than elements");
      std::memcpy(made.initial.data() + at, &value, std::min(element, sizeof(value)));
    } while (is_list && lexer.accept(","));
    if (is_list) expect(lexer, "}");
  }
  return made;
}

Operand Module::operand(Lexer& lexer) const {
  const auto is_number = [&] { return lexer.token().substr(0, 1).find_first_of("0123456789") == 0; };
  Operand made;
  if (lexer.accept("{")) {
    made.kind = Operand::Kind::vector;
    do made.elements.push_back(operand(lexer));
    while (lexer.accept(","));
    expect(lexer, "}");
  } else if (lexer.accept("[")) {
    made.kind = Operand::Kind::address;
    if (!is_number()) made.text = lexer.take();
    if (made.text.empty() || lexer.accept("+")) {
      const bool is_negative = lexer.accept("-");
      made.displacement = static_cast<std::int64_t>(integer(lexer));
      if (is_negative) made.displacement = -made.displacement;
    }
    expect(lexer, "]");
  } else {
    made.is_negated = lexer.accept("!");
    made.is_negative = lexer.accept("-");
    if (is_number()) made.kind = Operand::Kind::number;
    if (!is_word(lexer.token()))
      fail(lexer.line(), fmt::format("'{}' where an operand has to stand", lexer.token()));
    made.text = lexer.take();
    if (lexer.accept("|")) made.second = lexer.take();
  }
  return made;
}

namespace {

Variable read_variable(const Module& module, Lexer& lexer, std::string_view space, DeviceMemory& memory) {
  const bool is_extern = space == ".extern";
  const std::uint32_t line = lexer.line();
  if (is_extern && (space = lexer.take()) != ".shared")
    module.fail(line, fmt::format(".extern {}: only shared memory may come from outside", space));
  Variable made = module.declaration(lexer);
  module.expect(lexer, ";");
  made.is_extern = is_extern;
  made.space = space == ".shared" ? Space::shared : space == ".const" ? Space::constant : Space::global;
  if (made.space != Space::shared) {
    // Memory that no initialiser speaks of is zero (PTX ISA, "Initializers").
    std::byte* const place = memory.allocate(made.bytes, made.name);
    if (place == nullptr) module.fail(line, fmt::format("no memory for {}", made.name));
    made.initial.resize(made.bytes);
    std::memcpy(place, made.initial.data(), made.bytes);
    made.address = reinterpret_cast<std::uintptr_t>(place);
  }
  return made;
}

/// name(parameters) directives { body }
std::unique_ptr<Kernel> read_kernel(const Module& module, Lexer& lexer) {
  KernelFacts facts;
  facts.name = lexer.take();
  Variables parameters;
  std::size_t parameter_bytes = 0;
  if (lexer.accept("(")) {
    while (!lexer.accept(")")) {
      module.expect(lexer, ".param");
      Variable made = module.declaration(lexer);
      const std::size_t offset = rounded_up(parameter_bytes, made.alignment);
      made.space = Space::parameter;
      made.address = space_begin + offset;
      facts.parameter_offsets.push_back(offset);
      facts.parameter_bytes.push_back(made.bytes);
      parameter_bytes = offset + made.bytes;
      parameters.emplace(made.name, made);
      lexer.accept(",");
    }
  }
  while (lexer.token() != "{") {
    const std::uint32_t line = lexer.line();
    const std::string_view word = lexer.take();
    std::uint64_t values[3] = {1, 1, 1}, count = 0;
    do {
      if (count == 3) module.fail(line, "more than three extents");
      values[count++] = module.integer(lexer);
    } while (lexer.accept(","));
    if (word == ".maxntid" || word == ".reqntid")
      facts.max_threads = static_cast<std::uint32_t>(values[0] * values[1] * values[2]);
    else if (word != ".minnctapersm" && word != ".maxnreg")
      module.fail(line, fmt::format("'{}', which this machine does not know of a kernel", word));
  }
  const Lexer body = lexer;
  int depth = 0;
  bool reads_grid = false, reads_second_axis = false;
  do {
    reads_grid = reads_grid || lexer.token() == "%nctaid.x";
    reads_second_axis = reads_second_axis || lexer.token() == "%ctaid.y";
    depth += lexer.token() == "{" ? 1 : lexer.token() == "}" ? -1 : 0;
    lexer.next();
  } while (depth > 0 && !lexer.token().empty());
  facts.walks_by_grid = reads_grid && !reads_second_axis;
  return std::make_unique<Kernel>(
      Kernel{&module, std::move(facts), std::move(parameters), parameter_bytes, body, {}});
}

}  // namespace

Program::Program(DeviceMemory& memory) : memory_(memory) {}
Program::~Program() = default;

void Program::add(std::string_view file, std::string text) {
  auto module = std::make_unique<Module>();
  module->file = file;
  module->text = std::move(text);
  Lexer lexer(module->text, 1);
  while (!lexer.token().empty()) {
    const std::uint32_t line = lexer.line();
    const std::string_view word = lexer.take();
    if (word == ".version") {
      lexer.next();
    } else if (word == ".target") {
      const std::string_view target = lexer.take();
      if (!target.starts_with("sm_"))
        module->fail(line, fmt::format("target '{}', which is none of a GPU", target));
      std::from_chars(target.data() + 3, target.data() + target.size(), module->architecture);
      if (architecture_ != 0 && architecture_ != module->architecture)
        module->fail(line, fmt::format("it is for sm_{}, and the texts before it are for sm_{}",
                                       module->architecture, architecture_));
      architecture_ = module->architecture;
      if (lexer.accept(",")) module->fail(line, "a target with options");
    } else if (word == ".address_size") {
      if (lexer.take() != "64") module->fail(line, "addresses of other than 64 bits");
    } else if (word == ".visible" || word == ".weak") {
      continue;
    } else if (word == ".global" || word == ".const" || word == ".shared" || word == ".extern") {
      const Variable made = read_variable(*module, lexer, word, memory_);
      module->variables.emplace(made.name, made);
    } else if (word == ".entry") {
      auto kernel = read_kernel(*module, lexer);
      kernels_.try_emplace(kernel->facts.name, std::move(kernel));
    } else {
      module->fail(line, fmt::format("'{}', which this machine does not know outside of kernels", word));
    }
  }
  modules_.push_back(std::move(module));
}

const Kernel* Program::find(std::string_view name) const {
  const auto found = kernels_.find(name);
  return found == kernels_.end() ? nullptr : found->second.get();
}

KernelFacts Program::facts(const Kernel& kernel) const {
  KernelFacts facts = kernel.facts;
  const Code& code = code_of(kernel);
  facts.static_shared_bytes = code.static_shared_bytes;
  facts.local_bytes = code.local_bytes;
  return facts;
}

std::vector<std::string> Program::names() const {
  std::vector<std::string> names;
  for (const auto& [name, kernel] : kernels_) names.push_back(name);
  return names;
}

}  // namespace fp16lab::engine::ptx
