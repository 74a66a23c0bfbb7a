// A kernel's text becomes instructions: names get their places, spellings their handlers.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "tests/machines/ptx/module.hpp"
#include "tests/machines/ptx/race_watch.hpp"
#include "tests/machines/ptx/registers.hpp"
#include "tests/machines/ptx/table.hpp"

namespace fp16lab::engine::ptx {

namespace {

constexpr Type predicate{'p', 1};

class Decoder {
 public:
  explicit Decoder(const Kernel& kernel)
      : kernel_(kernel), module_(*kernel.module), lexer_(kernel.body), variables_(kernel.parameters) {}
  Code run();

 private:
  [[noreturn]] void fail(const std::string& what) const { module_.fail(line_, what); }

  void directive();
  void statement();

  Variable variable_of(std::string_view name);
  static void reserve(Variable& variable, std::size_t& bytes) {
    bytes = rounded_up(bytes, variable.alignment);
    variable.address = space_begin + bytes;
    bytes += variable.bytes;
  }

  std::uint32_t place_of(std::string_view name, Type type) const {
    if (const auto found = registers_.find(name)) return place_of(name, type, *found);
    fail(fmt::format("no register '{}'", name));
  }
  std::uint32_t place_of(std::string_view name, Type type, Register found) const {
    if (found.type.bits == type.bits) return found.offset;
    fail(fmt::format("register '{}' has {} bits where {} are needed", name, found.type.bits, type.bits));
  }
  std::uint32_t destination(const Operand& operand, Type type) {
    if (operand.kind != Operand::Kind::name) fail("a destination that is no register");
    return operand.text == "_" ? registers_.make(type) : place_of(operand.text, type);
  }
  std::uint32_t source(const Operand& operand, Type type);
  std::uint64_t integer(const Operand& operand) const {
    if (operand.kind != Operand::Kind::number) fail("an operand that is no integer");
    return module_.integer(operand.text, line_);
  }
  std::uint64_t number(const Operand& operand, Type type) const;
  Address address(const Operand& operand, Space space);
  void place_registers(Slot slot, const Operand& operand, Instruction& instruction, std::size_t& at);
  void place_operands(std::span<const Slot> slots, std::span<const Operand> operands,
                      Instruction& instruction);

  const Spelling::Form& fitting_form(const Spelling& spelling, std::span<const Operand> operands) const;
  void note_access(const Instruction& instruction);

  const Kernel& kernel_;
  const Module& module_;
  Lexer lexer_;
  std::uint32_t line_ = 0;
  Code code_;
  RegisterFile registers_{code_};
  std::size_t dynamic_alignment_ = 1;
  std::optional<std::uint64_t> dynamic_address_;
  std::map<std::string_view, Spelling> spellings_;
  Variables variables_;  ///< and parameters
  std::map<std::string_view, std::int64_t> labels_;
  std::vector<std::pair<std::size_t, std::string_view>> jumps_;
};

// ---- text ----

Code Decoder::run() {
  do {
    line_ = lexer_.line();
    if (lexer_.token().empty()) fail("a { without its }");
    if (lexer_.accept("{"))
      registers_.open_scope();
    else if (lexer_.accept("}"))
      registers_.close_scope();
    else if (lexer_.token().starts_with('.'))
      directive();
    else if (!lexer_.accept(";"))
      statement();
  } while (registers_.has_scope());
  lexer_ = Lexer("ret;", line_);  // falling out of a kernel's end is a return
  statement();
  for (const auto& [instruction, label] : jumps_) {
    const auto found = labels_.find(label);
    if (found == labels_.end())
      module_.fail(code_.instructions[instruction].line, fmt::format("no label '{}'", label));
    code_.instructions[instruction].constant = found->second;
  }
  code_.dynamic_shared_offset = rounded_up(code_.static_shared_bytes, dynamic_alignment_);
  if (dynamic_address_ && *dynamic_address_ != space_begin + code_.dynamic_shared_offset)
    module_.fail(kernel_.body.line(), "shared memory is declared after a use of .extern .shared memory");
  if (code_.instructions.size() >= Access::most_instructions)
    module_.fail(kernel_.body.line(), "too many instructions");
  return std::move(code_);
}

void Decoder::directive() {
  const std::string_view word = lexer_.take();
  if (word == ".reg") {
    const Type type = type_of(lexer_.take().substr(1));
    if (type.kind == '?' || type.bits == 8) fail("registers of a type that this machine does not have");
    do {
      const std::string_view name = lexer_.take();
      std::optional<std::uint32_t> count;
      if (lexer_.accept("<")) {
        count = static_cast<std::uint32_t>(module_.integer(lexer_));
        module_.expect(lexer_, ">");
      }
      registers_.declare(name, type, count);
    } while (lexer_.accept(","));
  } else if (word == ".shared" || word == ".local") {
    const bool is_shared = word == ".shared";
    Variable made = module_.declaration(lexer_);
    made.space = is_shared ? Space::shared : Space::local;
    reserve(made, is_shared ? code_.static_shared_bytes : code_.local_bytes);
    variables_[made.name] = made;
  } else if (word == ".pragma") {
    lexer_.next();
  } else {
    fail(fmt::format("'{}', which this machine does not know in a kernel", word));
  }
  module_.expect(lexer_, ";");
}

// ---- operands ----

/// A variable of the kernel or the module, or a parameter.
Variable Decoder::variable_of(std::string_view name) {
  if (const auto known = variables_.find(name); known != variables_.end()) return known->second;
  const auto found = module_.variables.find(name);
  if (found == module_.variables.end()) fail(fmt::format("'{}', which is no register and no variable", name));
  Variable variable = found->second;
  if (variable.is_extern) {
    // It follows all static shared memory, whose size is known at the end only: nvcc declares it at the top
    // of a kernel.
    dynamic_alignment_ = std::max(dynamic_alignment_, variable.alignment);
    variable.address = space_begin + rounded_up(code_.static_shared_bytes, dynamic_alignment_);
    if (dynamic_address_.value_or(variable.address) != variable.address)
      fail("two .extern .shared variables of different alignments");
    dynamic_address_ = variable.address;
  } else if (variable.space == Space::shared) {
    reserve(variable, code_.static_shared_bytes);
    variables_[name] = variable;
  }
  return variable;
}

std::uint64_t Decoder::number(const Operand& operand, Type type) const {
  const std::string_view text = operand.text;
  const char form = text.size() < 2 || text[0] != '0' ? '0' : static_cast<char>(text[1] | 0x20);
  if (form == 'f' || form == 'd') {
    const int bits = form == 'f' ? 32 : 64;
    if (text.size() != 2 + static_cast<std::size_t>(bits) / 4)
      fail(fmt::format("'{}', which is no number", text));
    if (type.bits != bits || operand.is_negative)
      fail(fmt::format("'{}' where {} bits are needed", text, type.bits));
    return module_.integer("0x" + std::string(text.substr(2)), line_);
  }
  const std::uint64_t value = integer(operand);
  if (type.kind == 'p') return value != 0 ? all_lanes : 0;
  if (type.kind == 'f') fail(fmt::format("'{}' where a floating-point number has to stand", text));
  return (operand.is_negative ? 0 - value : value) & ~std::uint64_t{0} >> (64 - type.bits);
}

/// A register, special register, number or address as a source of so many bits.
std::uint32_t Decoder::source(const Operand& operand, Type type) {
  if (operand.kind == Operand::Kind::number) return registers_.constant(type, number(operand, type));
  if (operand.kind != Operand::Kind::name) fail("an operand of another kind than the instruction takes");
  auto found = registers_.find(operand.text);
  if (!found) found = registers_.special(operand.text);
  if (found) return place_of(operand.text, type, *found);
  const Variable variable = variable_of(operand.text);
  if (type.bits < 32 || (type.bits == 32 && variable.address > 0xffffffffu))
    fail(fmt::format("the address of '{}' does not fit", operand.text));
  return registers_.constant(type, variable.address);
}

Address Decoder::address(const Operand& operand, Space space) {
  if (operand.kind != Operand::Kind::address) fail("an operand that is no address");
  if (operand.text.empty()) return {no_operand, true, operand.displacement};
  if (const auto found = registers_.find(operand.text)) {
    const bool is_narrow_space = space == Space::shared || space == Space::local || space == Space::parameter;
    if (found->type.bits != 64 && !(found->type.bits == 32 && is_narrow_space))
      fail(fmt::format("an address in '{}', which has {} bits", operand.text, found->type.bits));
    return {found->offset, found->type.bits == 64, operand.displacement};
  }
  const Variable variable = variable_of(operand.text);
  if (variable.space != space && !(space == Space::generic && variable.space == Space::global))
    fail(fmt::format("'{}' lies in another space than the instruction's", operand.text));
  return {no_operand, true, static_cast<std::int64_t>(variable.address) + operand.displacement};
}

/// {a, b, ..} of as many elements as the slot has, or one without braces.
void Decoder::place_registers(Slot slot, const Operand& operand, Instruction& instruction, std::size_t& at) {
  const bool is_destination = slot.letter < 'a', is_vector = operand.kind == Operand::Kind::vector;
  const std::span<const Operand> all = is_vector ? std::span(operand.elements) : std::span(&operand, 1);
  const std::size_t needed = std::max<std::size_t>(slot.count, 1);
  if (all.size() != needed) fail(fmt::format("{} elements where {} are needed", all.size(), needed));
  Type type = is_destination ? instruction.to : instruction.from;
  const int letter = slot.letter | 0x20;
  if (letter == 'p' || letter == 'n') type = predicate;
  if (letter == 'r' || letter == 's') type = {'b', 32};
  if (letter == 'w') type.bits *= 2;
  if (letter == 'h') type = {'b', type.bits / 2};
  if (letter == 'u') {  // registers of an integer type may be wider than it (PTX ISA 9.4.1)
    type.bits = std::max(type.bits, 16);
    for (const Operand& element : all)
      if (const auto found = registers_.find(element.text);
          found && !type.is_float() && found->type.kind != 'p')
        type.bits = std::max(type.bits, found->type.bits);
    (is_destination ? instruction.to_register : instruction.from_register) = type.bits;
  }
  for (const Operand& element : all) {
    if (element.is_negated && letter != 'n') fail("a ! that the instruction does not take");
    instruction.operands[at++] = is_destination ? destination(element, type) : source(element, type);
  }
}

void Decoder::place_operands(std::span<const Slot> slots, std::span<const Operand> operands,
                             Instruction& instruction) {
  instruction.operands.fill(no_operand);
  std::size_t at = 0, address_at = 0, next = 0;
  for (const Slot slot : slots) {
    if (next == operands.size()) break;  // an optional one
    const Operand& operand = operands[next++];
    if (!operand.second.empty() && slot.letter != 'S')
      fail(fmt::format("'|{}' after an operand", operand.second));
    const char letter = slot.letter;
    if (letter == 'm' || letter == 's' || letter == 'g') {
      const Space space = letter == 's' ? Space::shared : letter == 'g' ? Space::global : instruction.space;
      instruction.addresses[address_at++] = address(operand, space);
    } else if (letter == '0') {
      if (integer(operand) != 0) fail("a barrier other than 0 of the whole block");
    } else if (letter == 'i') {
      instruction.constant = static_cast<std::int64_t>(integer(operand));
    } else if (letter == 'l') {
      jumps_.emplace_back(code_.instructions.size(), operand.text);
    } else {
      if (letter == 'n') instruction.negated = operand.is_negated;
      place_registers(slot, operand, instruction, at);
      if (!operand.second.empty()) instruction.operands[at] = place_of(operand.second, predicate);
      if (letter == 'S') ++at;
    }
  }
}

// ---- instructions ----

/// Picks, among the rows that spell the word, the one with as many operands, and braces where these have
/// them.
const Spelling::Form& Decoder::fitting_form(const Spelling& spelling,
                                            std::span<const Operand> operands) const {
  for (const Spelling::Form& form : spelling.forms) {
    bool fits = operands.size() <= form.operands.size();
    for (std::size_t i = 0; i < form.operands.size(); ++i)
      fits = fits && (i >= operands.size() ? form.operands[i].is_optional
                                           : form.operands[i].count != 0 || operands[i].elements.empty());
    if (fits) return form;
  }
  const std::size_t most = spelling.forms.back().operands.size();
  if (most != operands.size())
    fail(fmt::format("{} operands; the instruction takes {}", operands.size(), most));
  fail("braces where the instruction takes none");
}

/// The watch remembers memory in pieces as small as the smallest access.
void Decoder::note_access(const Instruction& instruction) {
  const Space space = instruction.space;
  const bool copies = instruction.row->operands.find('g') != std::string_view::npos;
  if (!copies && instruction.row->operands.find('m') == std::string_view::npos) return;
  // Every byte of a partial copy may be its last.
  const int bytes =
      copies ? static_cast<int>(instruction.constant) : instruction.from.bytes() * instruction.vector;
  if (bytes == 0) return;
  if (copies || space == Space::shared || space == Space::generic)
    code_.shared_granule = std::min(code_.shared_granule, bytes);
  if (copies || space == Space::global || space == Space::constant || space == Space::generic)
    code_.global_granule = std::min(code_.global_granule, bytes);
}

void Decoder::statement() {
  std::uint32_t guard = no_operand;
  bool guard_negated = false;
  if (lexer_.accept("@")) {
    guard_negated = lexer_.accept("!");
    guard = place_of(lexer_.take(), predicate);
  }
  const std::string_view word = lexer_.take();
  if (guard == no_operand && lexer_.accept(":")) {
    if (!labels_.emplace(word, static_cast<std::int64_t>(code_.instructions.size())).second)
      fail(fmt::format("label '{}' stands twice", word));
    return;
  }
  std::vector<Operand> operands;
  if (lexer_.token() != ";") {
    do operands.push_back(module_.operand(lexer_));
    while (lexer_.accept(","));
  }
  module_.expect(lexer_, ";");

  const auto [known, is_new] = spellings_.try_emplace(word);
  if (is_new) known->second = spelling_of(word);
  if (known->second.forms.empty())
    fail(fmt::format("'{}', an instruction that this machine does not have", word));
  const auto& [row, slots] = fitting_form(known->second, operands);
  Instruction instruction = known->second.instruction;
  instruction.row = row;
  instruction.line = line_;
  instruction.guard = guard;
  instruction.guard_negated = guard_negated;
  place_operands(slots, operands, instruction);
  note_access(instruction);
  try {
    instruction.handler = row->bind != nullptr ? row->bind(instruction) : row->handler;
  } catch (const std::invalid_argument& error) {
    fail(error.what());
  }
  instruction.computes = row->computes && (instruction.to.is_float() || instruction.from.is_float());
  code_.instructions.push_back(instruction);
}

}  // namespace

Code decode(const Kernel& kernel) { return Decoder(kernel).run(); }

}  // namespace fp16lab::engine::ptx
