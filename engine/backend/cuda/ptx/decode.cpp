// A kernel's text becomes instructions: registers get places in the register file, spellings their handlers.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <map>
#include <optional>

#include "engine/backend/cuda/ptx/handlers.hpp"
#include "engine/backend/cuda/ptx/memory.hpp"
#include "engine/backend/cuda/ptx/module.hpp"
#include "engine/backend/cuda/ptx/table.hpp"

namespace fp16lab::engine::ptx {

namespace {

struct Operand {
  enum class Kind : std::uint8_t { name, number, address, vector } kind = Kind::name;
  std::string_view text;    ///< name or number; of an address its base, empty where it has none
  std::string_view second;  ///< behind |
  bool negative = false;    ///< a number's sign
  bool negated = false;     ///< !p
  std::int64_t displacement = 0;
  std::vector<Operand> elements;
};

struct Register {
  Type type;
  std::uint32_t offset = 0;
};
/// %r<42>: 42 registers from `first` on.
struct RegisterRange {
  std::string_view prefix;
  Type type;
  std::uint32_t count = 0, first = 0;
};

constexpr std::pair<std::string_view, Special> special_names[] = {{"%tid.x", Special::tid_x},
                                                                  {"%tid.y", Special::tid_y},
                                                                  {"%tid.z", Special::tid_z},
                                                                  {"%ntid.x", Special::ntid_x},
                                                                  {"%ntid.y", Special::ntid_y},
                                                                  {"%ntid.z", Special::ntid_z},
                                                                  {"%ctaid.x", Special::ctaid_x},
                                                                  {"%ctaid.y", Special::ctaid_y},
                                                                  {"%ctaid.z", Special::ctaid_z},
                                                                  {"%nctaid.x", Special::nctaid_x},
                                                                  {"%nctaid.y", Special::nctaid_y},
                                                                  {"%nctaid.z", Special::nctaid_z},
                                                                  {"%laneid", Special::laneid},
                                                                  {"%lanemask_eq", Special::lanemask_eq},
                                                                  {"%lanemask_le", Special::lanemask_le},
                                                                  {"%lanemask_lt", Special::lanemask_lt},
                                                                  {"%lanemask_ge", Special::lanemask_ge},
                                                                  {"%lanemask_gt", Special::lanemask_gt}};

std::size_t rounded_up(std::size_t bytes, std::size_t alignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

class Decoder {
 public:
  explicit Decoder(const Kernel& kernel)
      : kernel_(kernel), module_(*kernel.module), lexer_(kernel.body, kernel.body_line) {}

  Code run() {
    statements();
    for (const auto& [instruction, label] : jumps_) {
      const auto found = labels_.find(label);
      if (found == labels_.end())
        module_.fail(code_.instructions[instruction].line, fmt::format("no label '{}'", label));
      code_.instructions[instruction].constant = found->second;
    }
    if (uses_dynamic_ &&
        dynamic_address_ != space_begin + rounded_up(code_.static_shared_bytes, dynamic_alignment_))
      module_.fail(kernel_.body_line, "shared memory is declared behind a use of .extern .shared memory");
    // Falling out of a kernel's end is a return.
    Instruction end;
    end.line = line_;
    translate("ret", {}, end);
    code_.instructions.push_back(end);
    if (code_.instructions.size() >= Access::most_instructions)
      module_.fail(kernel_.body_line, "too many instructions");
    place_in_file();
    code_.dynamic_shared_offset = rounded_up(code_.static_shared_bytes, dynamic_alignment_);
    return std::move(code_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { module_.fail(line_, what); }
  void expect(std::string_view token) {
    if (!lexer_.accept(token)) fail(fmt::format("'{}' where '{}' has to stand", lexer_.token(), token));
  }

  void statements() {
    int depth = 0;
    while (!lexer_.token().empty()) {
      line_ = lexer_.line();
      if (lexer_.accept("{")) {
        ++depth;
        scopes_.push_back({named_.size(), ranges_.size()});
      } else if (lexer_.accept("}")) {
        if (--depth < 0) fail("a } without its {");
        named_.resize(scopes_.back().first);
        ranges_.resize(scopes_.back().second);
        scopes_.pop_back();
      } else if (lexer_.token().starts_with('.')) {
        directive();
      } else if (lexer_.accept(";")) {
      } else {
        statement();
      }
    }
    if (depth != 0) fail("a { without its }");
  }

  void directive() {
    const std::string_view word = lexer_.take();
    if (word == ".reg") {
      const Type type = type_of(lexer_.take().substr(1));
      if (type.kind == '?' || type.bits == 8) fail("registers of a type that this machine does not have");
      do {
        const std::string_view name = lexer_.take();
        std::uint32_t count = 0;
        if (lexer_.accept("<")) {
          const std::string_view digits = lexer_.take();
          std::from_chars(digits.data(), digits.data() + digits.size(), count);
          expect(">");
          ranges_.push_back({name, type, count, allocate(type, count)});
        } else {
          named_.push_back({name, {type, allocate(type, 1)}});
        }
      } while (lexer_.accept(","));
    } else if (word == ".shared" || word == ".local") {
      Declaration made = module_.declaration(lexer_);
      std::size_t& bytes = word == ".shared" ? code_.static_shared_bytes : code_.local_bytes;
      bytes = rounded_up(bytes, made.variable.alignment);
      made.variable.space = word == ".shared" ? Space::shared : Space::local;
      made.variable.address = space_begin + bytes;
      bytes += made.variable.bytes;
      variables_[made.name] = made.variable;
    } else if (word == ".pragma") {
      lexer_.next();
    } else {
      fail(fmt::format("'{}', which this machine does not know in a kernel", word));
    }
    expect(";");
  }

  void statement() {
    Instruction instruction;
    if (lexer_.accept("@")) {
      instruction.guard_negated = lexer_.accept("!");
      const Register guard = register_of(lexer_.take());
      if (guard.type.kind != 'p') fail("a guard that is no predicate");
      instruction.guard = guard.offset;
    }
    const std::string_view word = lexer_.take();
    if (instruction.guard == no_operand && lexer_.accept(":")) {
      if (!labels_.emplace(word, static_cast<std::int64_t>(code_.instructions.size())).second)
        fail(fmt::format("label '{}' stands twice", word));
      return;
    }
    std::vector<Operand> operands;
    if (lexer_.token() != ";") {
      do operands.push_back(operand());
      while (lexer_.accept(","));
    }
    expect(";");
    instruction.line = line_;
    translate(word, operands, instruction);
    code_.instructions.push_back(instruction);
  }

  Operand operand() {
    Operand made;
    if (lexer_.accept("{")) {
      made.kind = Operand::Kind::vector;
      do made.elements.push_back(operand());
      while (lexer_.accept(","));
      expect("}");
      return made;
    }
    if (lexer_.accept("[")) {
      made.kind = Operand::Kind::address;
      if (const char first = lexer_.token().empty() ? '?' : lexer_.token()[0]; first >= '0' && first <= '9') {
        made.displacement = integer(lexer_.take());
      } else {
        made.text = lexer_.take();
        if (lexer_.accept("+")) {
          const bool negative = lexer_.accept("-");
          made.displacement = integer(lexer_.take());
          if (negative) made.displacement = -made.displacement;
        }
      }
      expect("]");
      return made;
    }
    made.negated = lexer_.accept("!");
    made.negative = lexer_.accept("-");
    made.text = lexer_.take();
    if (!is_word(made.text)) fail(fmt::format("'{}' where an operand has to stand", made.text));
    if (made.text[0] >= '0' && made.text[0] <= '9') made.kind = Operand::Kind::number;
    if (lexer_.accept("|")) made.second = lexer_.take();
    return made;
  }

  std::int64_t integer(std::string_view text) const {
    std::uint64_t value = 0;
    const int base = text.starts_with("0x") || text.starts_with("0X") ? 16 : 10;
    std::string_view digits = base == 16 ? text.substr(2) : text;
    if (digits.ends_with('U')) digits.remove_suffix(1);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
    if (error != std::errc() || end != digits.data() + digits.size())
      fail(fmt::format("'{}', which is no integer", text));
    return static_cast<std::int64_t>(value);
  }

  // ---- the register file ----

  /// Offsets of registers count from the first one until place_in_file moves them.
  std::uint32_t allocate(Type type, std::uint32_t count) {
    const std::uint32_t first = register_bytes_;
    register_bytes_ += count * (type.kind == 'p' ? 4u : static_cast<std::uint32_t>(type.bytes()) * lanes);
    register_bytes_ = (register_bytes_ + 63) / 64 * 64;
    return first;
  }
  std::uint32_t front(std::uint32_t bytes) {
    const std::uint32_t offset = front_bytes_;
    front_bytes_ += bytes;
    return offset | in_front;
  }
  /// Constants and special registers have this bit, until place_in_file takes it off.
  static constexpr std::uint32_t in_front = 0x80000000u;

  void place_in_file() {
    front_bytes_ = (front_bytes_ + 63) / 64 * 64;
    const auto place = [&](std::uint32_t& offset) {
      if (offset == no_operand) return;
      offset = (offset & in_front) != 0 ? offset & ~in_front : offset + front_bytes_;
    };
    for (Instruction& instruction : code_.instructions) {
      place(instruction.guard);
      const bool is_copy = instruction.handler == copy_handler();
      for (std::size_t i = 0; i < instruction.operands.size(); ++i)
        if (!is_copy || i < 3) place(instruction.operands[i]);
    }
    for (auto& [special, offset] : code_.specials) place(offset);
    for (Code::Constant& constant : code_.constants) place(constant.offset);
    code_.first_register = front_bytes_;
    code_.file_bytes = front_bytes_ + register_bytes_;
  }

  std::optional<Register> find_register(std::string_view name) const {
    for (auto one = named_.rbegin(); one != named_.rend(); ++one)
      if (one->first == name) return one->second;
    const std::size_t digits = name.find_last_not_of("0123456789") + 1;
    if (digits == 0 || digits == name.size()) return {};
    for (auto range = ranges_.rbegin(); range != ranges_.rend(); ++range) {
      if (name.substr(0, digits) != range->prefix) continue;
      std::uint32_t index = 0;
      std::from_chars(name.data() + digits, name.data() + name.size(), index);
      if (index >= range->count) return {};
      const std::uint32_t size =
          range->type.kind == 'p' ? 4u : static_cast<std::uint32_t>(range->type.bytes()) * lanes;
      return Register{range->type, range->first + index * size};
    }
    return {};
  }
  Register register_of(std::string_view name) const {
    if (const auto found = find_register(name)) return *found;
    fail(fmt::format("no register '{}'", name));
  }

  std::uint32_t constant(std::uint64_t value, int bytes) {
    const auto [place, is_new] = constants_.try_emplace({value, bytes}, 0);
    if (is_new) {
      place->second = front(bytes == 0 ? 64 : static_cast<std::uint32_t>(bytes) * lanes);
      code_.constants.push_back({value, place->second, bytes});
    }
    return place->second;
  }

  std::uint32_t special(std::string_view name) {
    for (const auto& [known, which] : special_names) {
      if (known != name) continue;
      for (const auto& [used, offset] : code_.specials)
        if (used == which) return offset;
      code_.specials.emplace_back(which, front(4 * lanes));
      return code_.specials.back().second;
    }
    return no_operand;
  }

  /// A variable of the kernel or the module, or a parameter.
  std::optional<Variable> find_variable(std::string_view name) {
    if (const auto found = variables_.find(name); found != variables_.end()) return found->second;
    for (std::size_t i = 0; i < kernel_.parameters.size(); ++i)
      if (kernel_.parameters[i] == name)
        return Variable{Space::parameter, kernel_.facts.parameter_bytes[i], 1, false,
                        space_begin + kernel_.facts.parameter_offsets[i]};
    const auto found = module_.variables.find(name);
    if (found == module_.variables.end()) return {};
    Variable variable = found->second;
    if (variable.is_extern) {
      // Behind all static shared memory, which is known at the end only: nvcc declares it at the top of a kernel.
      dynamic_alignment_ = std::max(dynamic_alignment_, variable.alignment);
      variable.address = space_begin + rounded_up(code_.static_shared_bytes, dynamic_alignment_);
      if (uses_dynamic_ && dynamic_address_ != variable.address)
        fail("two .extern .shared variables of different alignments");
      uses_dynamic_ = true;
      dynamic_address_ = variable.address;
    } else if (variable.space == Space::shared) {
      code_.static_shared_bytes = rounded_up(code_.static_shared_bytes, variable.alignment);
      variable.address = space_begin + code_.static_shared_bytes;
      code_.static_shared_bytes += variable.bytes;
      variables_[name] = variable;
    }
    return variable;
  }

  // ---- operands ----

  void check_width(const Register& found, std::string_view name, int bits, bool or_wider) const {
    const bool fits =
        found.type.bits == bits || (or_wider && found.type.bits > bits && found.type.kind != 'p');
    if (!fits)
      fail(fmt::format("register '{}' has {} bits where {} are needed", name, found.type.bits, bits));
  }

  std::uint32_t destination(const Operand& operand, int bits) {
    if (operand.kind != Operand::Kind::name || operand.negated) fail("a destination that is no register");
    if (operand.text == "_") return allocate({'b', std::max(bits, 16)}, 1);
    const Register found = register_of(operand.text);
    check_width(found, operand.text, bits, false);
    return found.offset;
  }

  std::uint64_t number(const Operand& operand, Type type) const {
    const std::string_view text = operand.text;
    if (text.starts_with("0f") || text.starts_with("0F") || text.starts_with("0d") ||
        text.starts_with("0D")) {
      const bool is_single = text[1] == 'f' || text[1] == 'F';
      std::uint64_t value = 0;
      const auto [end, error] = std::from_chars(text.data() + 2, text.data() + text.size(), value, 16);
      if (error != std::errc() || end != text.data() + text.size() || text.size() != (is_single ? 10u : 18u))
        fail(fmt::format("'{}', which is no number", text));
      if (type.bits != (is_single ? 32 : 64) || operand.negative)
        fail(fmt::format("'{}' where {} bits are needed", text, type.bits));
      return value;
    }
    const auto value = static_cast<std::uint64_t>(integer(text));
    if (type.kind == 'f') fail(fmt::format("'{}' where a floating-point number has to stand", text));
    return operand.negative ? 0 - value : value;
  }

  /// A register, special register, number or address as a source of so many bits.
  std::uint32_t source(const Operand& operand, Type type) {
    if (operand.negated) fail("a ! where no predicate stands");
    const std::uint64_t width = type.bits == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << type.bits) - 1;
    if (operand.kind == Operand::Kind::number) return constant(number(operand, type) & width, type.bytes());
    if (operand.kind != Operand::Kind::name) fail("an operand of another kind than the instruction takes");
    if (const auto found = find_register(operand.text)) {
      check_width(*found, operand.text, type.bits, false);
      return found->offset;
    }
    if (const std::uint32_t found = special(operand.text); found != no_operand) {
      if (type.bits != 32) fail(fmt::format("'{}' has 32 bits", operand.text));
      return found;
    }
    if (const auto variable = find_variable(operand.text)) {
      if (type.bits < 32 || (type.bits == 32 && variable->address > 0xffffffffu))
        fail(fmt::format("the address of '{}' does not fit", operand.text));
      return constant(variable->address, type.bytes());
    }
    fail(fmt::format("'{}', which is no register and no variable", operand.text));
  }

  std::uint32_t predicate_source(const Operand& operand, Instruction& instruction) {
    if (operand.kind == Operand::Kind::number) return constant(integer(operand.text) != 0 ? all_lanes : 0, 0);
    const Register found = register_of(operand.text);
    if (found.type.kind != 'p') fail(fmt::format("'{}' is no predicate", operand.text));
    instruction.negated = operand.negated;
    return found.offset;
  }

  /// Base register and displacement of an address.
  std::pair<std::uint32_t, std::int64_t> address(const Operand& operand, Space space,
                                                 Instruction& instruction) {
    if (operand.kind != Operand::Kind::address) fail("an operand that is no address");
    if (operand.text.empty()) return {no_operand, operand.displacement};
    if (const auto found = find_register(operand.text)) {
      const bool wide = found->type.bits == 64;
      if (!wide && (found->type.bits != 32 ||
                    (space != Space::shared && space != Space::local && space != Space::parameter)))
        fail(fmt::format("an address in '{}', which has {} bits", operand.text, found->type.bits));
      instruction.wide_address = wide;
      return {found->offset, operand.displacement};
    }
    const auto variable = find_variable(operand.text);
    if (!variable) fail(fmt::format("'{}', which is no register and no variable", operand.text));
    const bool fits =
        variable->space == space || (space == Space::generic && variable->space == Space::global);
    if (!fits) fail(fmt::format("'{}' lies in another space than the instruction's", operand.text));
    return {no_operand, static_cast<std::int64_t>(variable->address) + operand.displacement};
  }

  /// {a, b, ..} of `count` elements, or one without braces.
  std::vector<Operand> elements(const Operand& operand, int count) const {
    const std::vector<Operand> found =
        operand.kind == Operand::Kind::vector ? operand.elements : std::vector<Operand>{operand};
    if (found.size() != static_cast<std::size_t>(count))
      fail(fmt::format("{} elements where {} are needed", found.size(), count));
    return found;
  }

  // ---- instructions ----

  void translate(std::string_view word, const std::vector<Operand>& operands, Instruction& instruction);
  void map_operands(const Row& row, Form& form, const std::vector<Operand>& operands,
                    Instruction& instruction);
  void map_moved(const Row& row, const Form& form, const Operand& operand, Instruction& instruction,
                 std::size_t& slot);
  void map_conversion(const Form& form, const std::vector<Operand>& operands, Instruction& instruction);

  const Kernel& kernel_;
  const Module& module_;
  Lexer lexer_;
  std::uint32_t line_ = 0;
  Code code_;
  std::uint32_t register_bytes_ = 0, front_bytes_ = 0;
  std::size_t dynamic_alignment_ = 1;
  bool uses_dynamic_ = false;
  std::uint64_t dynamic_address_ = 0;
  std::vector<std::pair<std::string_view, Register>> named_;
  std::vector<RegisterRange> ranges_;
  std::vector<std::pair<std::size_t, std::size_t>> scopes_;
  std::map<std::string_view, Variable> variables_;
  std::map<std::string_view, std::int64_t> labels_;
  std::vector<std::pair<std::size_t, std::string_view>> jumps_;
  std::map<std::pair<std::uint64_t, int>, std::uint32_t> constants_;
};

void Decoder::translate(std::string_view word, const std::vector<Operand>& operands,
                        Instruction& instruction) {
  std::vector<std::string_view> parts;
  std::string_view rest = word;
  const std::string_view name = rest.substr(0, rest.find('.'));
  for (std::size_t dot = rest.find('.'); dot != std::string_view::npos; dot = rest.find('.')) {
    rest.remove_prefix(dot + 1);
    parts.push_back(rest.substr(0, rest.find('.')));
  }
  const bool packs = operands.size() == 2 && operands[1].kind == Operand::Kind::vector;
  const bool unpacks = operands.size() == 2 && operands[0].kind == Operand::Kind::vector;
  for (const Row& row : table()) {
    if (row.name != name) continue;
    if ((row.key == "pack" && !packs) || (row.key == "unpack" && !unpacks)) continue;
    Form form;
    if (!matches(row, parts, form)) continue;
    if (!parts.empty()) form.type = type_of(parts.back());
    row.bind(form, row.key);
    if (form.handler == nullptr) break;
    map_operands(row, form, operands, instruction);
    return;
  }
  fail(fmt::format("'{}', an instruction that this machine does not have", word));
}

void Decoder::map_conversion(const Form& form, const std::vector<Operand>& operands,
                             Instruction& instruction) {
  const Type to = type_of(form.parts[1]), from = type_of(form.parts[2]);
  const bool integers = std::string_view("us").find(to.kind) != std::string_view::npos &&
                        std::string_view("us").find(from.kind) != std::string_view::npos;
  if (operands[0].kind != Operand::Kind::name) fail("a destination that is no register");
  const Register destination_register = register_of(operands[0].text);
  const bool to_is_wide = destination_register.type.bits != std::max(to.bits, 16);
  check_width(destination_register, operands[0].text, to.bits, integers);
  instruction.operands[0] = destination_register.offset;
  int from_register = std::max(from.bits, 16);
  if (operands[1].kind == Operand::Kind::name && find_register(operands[1].text)) {
    const Register found = register_of(operands[1].text);
    check_width(found, operands[1].text, from.bits, integers);
    from_register = found.type.bits;
    instruction.operands[1] = found.offset;
  } else {
    instruction.operands[1] = source(operands[1], from);
  }
  if (integers) {
    instruction.constant = to.bits | from.bits << 8 | destination_register.type.bits << 16 |
                           std::int64_t{from_register} << 24 | std::int64_t{to.kind == 's'} << 32 |
                           std::int64_t{from.kind == 's'} << 33;
    if (to_is_wide || from_register != from.bits || to.bits < 16)
      instruction.handler = integer_conversion_handler();
  } else {
    instruction.constant = to.kind | to.bits << 8 | from.kind << 16 | std::int64_t{from.bits} << 24;
  }
}

void Decoder::map_moved(const Row& row, const Form& form, const Operand& operand, Instruction& instruction,
                        std::size_t& slot) {
  int register_bits = 0;
  for (const Operand& element : elements(operand, form.vector)) {
    if (element.kind == Operand::Kind::number) {
      if (row.key == "ld") fail("a destination that is no register");
      if (register_bits == 0) register_bits = std::max(form.type.bits, 16);
      instruction.operands[slot++] = source(element, {form.type.kind, register_bits});
      continue;
    }
    const Register found = element.text == "_" ? Register{{'b', std::max(form.type.bits, 16)},
                                                          destination(element, form.type.bits)}
                                               : register_of(element.text);
    check_width(found, element.text, form.type.bits, true);
    if (register_bits != 0 && register_bits != found.type.bits)
      fail("a vector of registers of several widths");
    register_bits = found.type.bits;
    instruction.operands[slot++] = found.offset;
  }
  instruction.handler = memory_handler(row.key == "st", form.space, form.type, register_bits);
}

void Decoder::map_operands(const Row& row, Form& form, const std::vector<Operand>& operands,
                           Instruction& instruction) {
  instruction.handler = form.handler;
  instruction.on_terms = form.on_terms;
  instruction.strong = form.strong;
  instruction.vector =
      static_cast<std::uint8_t>(row.key == "atom" ? static_cast<int>(form.space) : form.vector);
  instruction.operands.fill(no_operand);
  const std::size_t optional = static_cast<std::size_t>(row.operands.ends_with('y'));
  if (operands.size() != row.operands.size() && operands.size() + optional != row.operands.size())
    fail(fmt::format("{} operands; the instruction takes {}", operands.size(), row.operands.size()));
  if (form.access_bytes > 0 && form.space != Space::parameter) {
    const bool in_shared = form.space == Space::shared || form.space == Space::generic;
    const bool in_global =
        form.space == Space::global || form.space == Space::constant || form.space == Space::generic;
    if (in_shared) code_.shared_granule = std::min(code_.shared_granule, form.access_bytes);
    if (in_global) code_.global_granule = std::min(code_.global_granule, form.access_bytes);
  }
  if (row.operands == "cC") return map_conversion(form, operands, instruction);

  const Type type = form.type, word{'b', 32};
  const bool address_first = row.operands == "Vm" || row.operands == "mV" || row.operands == "Mm";
  std::size_t slot = address_first ? 1 : 0;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const Operand& operand = operands[i];
    switch (row.operands[i]) {
      case 'd':
        instruction.operands[slot++] = destination(operand, type.bits);
        break;
      case 'D':
        instruction.operands[slot++] = destination(operand, 2 * type.bits);
        break;
      case 'r':
        instruction.operands[slot++] = destination(operand, 32);
        break;
      case 'a':
        instruction.operands[slot++] = source(operand, type);
        break;
      case 'A':
        instruction.operands[slot++] = source(operand, {type.kind, 2 * type.bits});
        break;
      case 'x':
        instruction.operands[slot++] = source(operand, word);
        break;
      case 'y':
        instruction.operands[2] = source(operand, word);
        break;
      case 'p': {
        const Register found = register_of(operand.text);
        if (found.type.kind != 'p' || !operand.second.empty())
          fail(fmt::format("'{}' is not one predicate", operand.text));
        instruction.operands[slot++] = found.offset;
        break;
      }
      case 'q':
        if (operand.negated && row.key != "vote" && row.key != "bar.red")
          fail("a ! that the instruction does not take");
        instruction.operands[slot++] = predicate_source(operand, instruction);
        break;
      case 'S': {
        instruction.operands[slot++] = destination(operand, 32);
        if (!operand.second.empty()) {
          const Register found = register_of(operand.second);
          if (found.type.kind != 'p') fail(fmt::format("'{}' is no predicate", operand.second));
          instruction.operands[slot] = found.offset;
        }
        ++slot;
        break;
      }
      case 'h':
      case 'H':
        for (const Operand& element : elements(operand, 2))
          instruction.operands[slot++] = row.operands[i] == 'h' ? source(element, {'b', type.bits / 2})
                                                                : destination(element, type.bits / 2);
        break;
      case 'V':
        map_moved(row, form, operand, instruction, slot);
        break;
      case 'M':
        for (const Operand& element : elements(operand, form.vector))
          instruction.operands[slot++] = destination(element, 32);
        break;
      case '4':
      case '2':
      case '1':
        for (const Operand& element : elements(operand, row.operands[i] - '0'))
          instruction.operands[slot++] = i == 0 ? destination(element, 32) : source(element, word);
        break;
      case 'm': {
        const auto [base, displacement] = address(operand, form.space, instruction);
        instruction.operands[address_first ? 0 : slot++] = base;
        instruction.constant = displacement;
        break;
      }
      case 'k':
      case 'g': {
        const bool shared = row.operands[i] == 'k';
        const auto [base, displacement] =
            address(operand, shared ? Space::shared : Space::global, instruction);
        if (shared ? instruction.wide_address && base != no_operand : base == no_operand)
          fail(
              "a copy whose address is in no register of 32 bits (shared memory) and 64 bits (global "
              "memory)");
        instruction.operands[slot++] = base;
        instruction.operands[shared ? 3 : 4] = static_cast<std::uint32_t>(displacement);
        break;
      }
      case '0':
        if (operand.kind != Operand::Kind::number || integer(operand.text) != 0)
          fail("a barrier other than 0 of the whole block");
        break;
      case 'i':
        if (operand.kind != Operand::Kind::number) fail("an operand that is no integer");
        instruction.constant = integer(operand.text);
        break;
      case 'l':
        jumps_.emplace_back(code_.instructions.size(), operand.text);
        break;
      default:
        fail("a row of the table with an operand that nobody knows");
    }
  }
  if (row.key == "cp") {
    const std::int64_t bytes = instruction.constant;
    const bool cached_all = form.parts[1] == "ca";
    if (bytes != 16 && !(cached_all && (bytes == 4 || bytes == 8)))
      fail(fmt::format("a copy of {} bytes", bytes));
    if (instruction.operands[2] == no_operand)
      instruction.operands[2] = constant(static_cast<std::uint64_t>(bytes), 4);
    code_.shared_granule = std::min(code_.shared_granule, static_cast<int>(bytes));
    // Of partial copies every byte may be the last.
    code_.global_granule = std::min(code_.global_granule, static_cast<int>(bytes));
  }
}

}  // namespace

Code decode(const Kernel& kernel) { return Decoder(kernel).run(); }

}  // namespace fp16lab::engine::ptx
