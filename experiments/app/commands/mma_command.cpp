// fp16lab mma: tensor-core dot products as a filter, for people who verify hardware.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "analysis/dot_explanation.hpp"
#include "experiments/app/build_info.hpp"
#include "experiments/app/commands.hpp"
#include "experiments/app/commands/line_filter.hpp"
#include "experiments/app/commands/mma_explain.hpp"
#include "experiments/app/commands/plan_options.hpp"
#include "experiments/app/commands/tensor_core_row.hpp"
#include "experiments/app/common_options.hpp"
#include "experiments/app/exit_code.hpp"
#include "experiments/tensor_core_probe/judge.hpp"
#include "numerics/arithmetic/round_pack.hpp"
#include "numerics/files/disk/read_file.hpp"
#include "numerics/formats/decimal.hpp"
#include "numerics/gemm/order_steps.hpp"
#include "numerics/random/philox.hpp"
#include "numerics/tensor_core/processor_dot.hpp"
#include "numerics/tensor_core/tensor_core_model.hpp"
#include "numerics/text/message.hpp"
#include "numerics/text/nearest_name.hpp"
#include "numerics/text/text.hpp"

namespace fp16lab::experiments {
namespace {

/// The first line of what capture_processor writes begins so.
inline constexpr std::string_view processor_capture_heading = "# vdpbf16ps of ";

std::string line_of(const probe::Instruction& in, const probe::Difference& difference) {
  using probe::hex;
  return fmt::format("{}\t{}\t{}\t{}\t{}\t{}\t{}\n", hex(difference.a, in.operands),
                     hex(difference.b, in.operands), hex(difference.c, in.accumulator),
                     hex(difference.device, in.accumulator), hex(difference.expected, in.accumulator),
                     in.name, difference.place);
}

/// Exponent fields of operands and of c: any; near 1; products and sums about 2^-126.
struct Exponents {
  std::uint32_t first, count, first_of_c, count_of_c;
};

constexpr Exponents exponents[] = {{0, 256, 0, 256}, {122, 10, 120, 12}, {60, 7, 0, 8}, {63, 2, 0, 3}};

constexpr std::uint32_t lines_of_each = 2000;

/// Lines of a-words, b-words, c-word and the d-word of this processor's vdpbf16ps on the standard output, as
/// fp16lab mma --verify FILE reads them: words of any kind, and of exponents at which
/// orders, roundings and flushed subnormals show. The same words everywhere. CommandError with
/// ExitCode::unavailable where the processor has no AVX512_BF16.
ExitCode capture_processor() {
  if (!has_processor_dot())
    throw CommandError(ExitCode::unavailable,
                       "mma: --capture cpu: this processor has no AVX512_BF16 (Zen 4, Zen 5, Cooper Lake, "
                       "Sapphire Rapids and later have it)");
  fmt::print("{}{}; fp16lab mma --verify FILE compares\n", processor_capture_heading, cpu_name());
  const PhiloxStream random{.seed = 1, .stream = stream_id("mma.capture.cpu")};
  std::uint64_t drawn = 0;
  for (const Exponents& of : exponents)
    for (std::uint32_t line = 0; line < lines_of_each; ++line) {
      const auto below = [&](std::uint32_t n) { return random.word(drawn++) % n; };
      const auto operand = [&] { return below(2) << 15 | (of.first + below(of.count)) << 7 | below(128); };
      std::vector<std::uint32_t> a(1 + below(6)), b(a.size());
      for (std::size_t k = 0; k < a.size(); ++k) {
        a[k] = operand();
        b[k] = operand();
      }
      const std::uint32_t c = below(2) << 31 | (of.first_of_c + below(of.count_of_c)) << 23 | below(1U << 23);
      fmt::print("{}\t{}\t{:08x}\t{:08x}\n", probe::hex(a, probe::bf16), probe::hex(b, probe::bf16), c,
                 processor_dot(a, b, c));
    }
  return ExitCode::ok;
}

/// The text of a file of lines, which begins with a comment or a line with tabs; nothing where it begins
/// otherwise, as the capture of a GPU does. CommandError with ExitCode::usage where it cannot be read.
std::optional<std::string> captured_lines(const std::filesystem::path& path) {
  std::string text;
  try {
    text = read_file(path, longest::table, NamedHow::by_user);
  } catch (const std::runtime_error& error) {
    throw CommandError(ExitCode::usage, fmt::format("mma: {}", error.what()));
  }
  const std::string_view first = std::string_view(text).substr(0, text.find('\n'));
  if (!first.starts_with('#') && first.find('\t') == std::string_view::npos) return std::nullopt;
  return text;
}

/// Writes a line for each output that differs (a-words, b-words, c-word, the GPU's d-word, ours, instruction,
/// place; tabs between them) to the standard output, and a line for each instruction to the standard error.
/// `model`: the generation to compare with; empty: that of the capture's capability. ExitCode::mismatch if an
/// output differs. CommandError with ExitCode::usage if the file is no capture, is damaged, or of a
/// capability that the table does not know.
ExitCode verify_capture(const std::filesystem::path& path, const std::string& model,
                        const CommonOptions& common) {
  probe::Capture capture;
  std::vector<probe::CaptureVerdict> verdicts;
  try {
    capture = probe::read_capture(path);
    const probe::Capability capability = capture.device.capability;
    if (model.empty() && probe::generation_of(capability).empty())
      throw std::runtime_error(
          fmt::format("no model describes compute capability {}.{}; choose one with --model",
                      capability.major, capability.minor));
    verdicts = probe::judge(capture, model, common.threads);
  } catch (const std::runtime_error& error) {
    throw CommandError(ExitCode::usage, fmt::format("mma: {}", error.what()));
  }

  std::size_t differing = 0;
  for (const probe::CaptureVerdict& verdict : verdicts) {
    for (const probe::Difference& difference : verdict.differences)
      fmt::print("{}", line_of(*verdict.instruction, difference));
    differing += verdict.differences.size();
  }
  if (common.quiet && differing == 0) return ExitCode::ok;
  say("fp16lab: mma: {} (compute capability {}.{}, kernels for {}, {})", capture.device.name,
      capture.device.capability.major, capture.device.capability.minor, capture.device.kernels,
      capture.device.compiler);
  for (const probe::CaptureVerdict& verdict : verdicts) {
    const char* const which = verdict.instruction->name;
    if (verdict.model.empty())
      say("fp16lab: mma: {}: not compared, no row describes it", which);
    else
      say("fp16lab: mma: {}: {} of {} outputs differ from {} ({} of questions, {} random)", which,
          verdict.differences.size(), verdict.questions + verdict.random_outputs, verdict.model,
          verdict.questions, verdict.random_outputs);
  }
  return differing == 0 ? ExitCode::ok : ExitCode::mismatch;
}

struct MmaCommand {
  CommonOptions common;
  std::vector<std::string> models;  ///< names of tensor-core models or chips
  std::filesystem::path capture;    ///< instead of lines
  std::string processor;            ///< --capture: "cpu"; empty: not given
  std::filesystem::path row;        ///< or a file with a row of the user's own
  std::string in;                   ///< format of a's words; empty: usual_operands, or what the file says
  std::string in_b;                 ///< of b's; empty: as a's
  std::string acc;                  ///< of c and d; empty: f32, of f64 f64, or what the file says
  std::string scale;                ///< format of block scales; empty: the row's first
  bool verify = false;              ///< lines hold d too; only mismatches are written
  bool explain = false;             ///< every step instead of the answer
  bool decimal = false;             ///< every word with its number
  bool json = false;                ///< of --explain
  PlanOptions plan;                 ///< of a library's call; without: one chain, which c enters
  // Changes to the model's row; absent or empty: as the table has it.
  std::optional<int> block_size, fraction_bits, exponent_floor;
  std::string subnormal_accumulator, underflow_zero, fp8_order;
};

[[noreturn]] void mma_usage(const std::string& message) {
  throw CommandError(ExitCode::usage, "mma: " + message);
}

template <NamedEnum Choice>
Choice chosen(const char* option, const std::string& name) {
  if (const auto choice = enumerator_called<Choice>(name)) return *choice;
  mma_usage(fmt::format("{} '{}': {}", option, name, known_are(name, names_of(Choice{}))));
}

/// What each line asks: the row with the user's changes, and how its words are written.
struct MmaQuestion {
  OwnRow own;
  DType a_format, b_format;
  DType scale_format;  ///< of a row with block scales

  const TensorCoreModel& row() const { return own.row; }
};

/// The run of products that stay together in one of the two blocks of FP8 through FP16.
int run_of(const std::string& fp8_order) {
  if (fp8_order == "pairs") return 2;
  if (fp8_order == "halves") return 16;
  mma_usage(fmt::format("--fp8-order '{}': {}", fp8_order,
                        known_are(fp8_order, std::array<std::string_view, 2>{"pairs", "halves"})));
}

/// "hopper with f16 and f32".
std::string label_of(const MmaQuestion& question) {
  return fmt::format("{} with {} and {}", question.row().name, name_of(question.a_format),
                     name_of(question.row().accumulator()));
}

/// Formats of a byte, each of which tensor cores multiply by any other.
constexpr bool is_mixed(DType format) { return is_operand(format) && is_byte_format(format); }

DType operand_called(const std::string& name) {
  return name == name_of(DType::f64) ? DType::f64 : operand_format(name);
}

DType scale_called(const TensorCoreModel& row, const std::string& name) {
  for (const ScaleKind& kind : row.scales)
    if (kind.block > 0 && name == name_of(kind.format)) return kind.format;
  mma_usage(fmt::format("--scale {}: '{}' has {}", shown(name), row.name, scales_text(row)));
}

std::vector<OwnRow> rows_of(const MmaCommand& command) {
  if (command.models.empty() && command.row.empty())
    mma_usage(fmt::format("expected --model NAME: {}; or --row FILE.toml",
                          fmt::join(fp16lab::tensor_core_names(), ", ")));
  if (!command.models.empty() && !command.row.empty())
    mma_usage(
        fmt::format("--model with --row: expected one of them; base = \"{}\" in {} takes that model's row",
                    command.models.front(), command.row.string()));
  if (!command.row.empty()) return {load_tensor_core_row(command.row, command.in, command.acc)};
  const bool wide = command.in == name_of(DType::f64) || command.acc == name_of(DType::f64);
  const DType accumulator = wide                  ? DType::f64
                            : command.acc.empty() ? DType::f32
                                                  : accumulator_format(command.acc);
  const DType operands = command.in.empty() && !wide
                             ? usual_operands(command.models.front(), accumulator)
                             : operand_called(command.in.empty() ? "f64" : command.in);
  std::vector<OwnRow> rows;
  for (const std::string& model : command.models)
    rows.push_back({nullptr, row_called(command.plan, model, operands, accumulator), operands});
  return rows;
}

/// A row that the command names, with its changes to it. An option that cannot change any result of the row
/// is refused: who gives it expects something of it.
MmaQuestion question_of(const MmaCommand& command, OwnRow own) {
  const DType a_format = own.operands;
  const DType b_format = command.in_b.empty() ? a_format : operand_called(command.in_b);
  MmaQuestion question{std::move(own), a_format, b_format, DType::e8m0};
  TensorCoreModel& row = question.own.row;
  if (a_format != b_format && !(is_mixed(a_format) && is_mixed(b_format)))
    mma_usage(fmt::format("--in {} with --in-b {}: only {} can be mixed", name_of(a_format), command.in_b,
                          fmt::join(dtype_names<is_mixed>, ", ")));
  if (row.is_scaled())
    question.scale_format =
        command.scale.empty() ? row.scales.front().format : scale_called(row, command.scale);
  else if (!command.scale.empty())
    mma_usage(fmt::format("--scale: {} takes no block scales; {} do", label_of(question),
                          fmt::join(block_scaled_names(), " and ")));
  if (row.is_scaled() && (!command.plan.plan.empty()))
    mma_usage(fmt::format("--plan: no library's order of {} is known", row.name));

  const bool two_blocks = row.stages == two_blocks_then_c(row.block().share.run, row.block().fraction_bits,
                                                          row.block().output, row.block().exponent_floor);
  const std::string which = label_of(question);
  if (command.block_size) {
    if (two_blocks)
      mma_usage(
          fmt::format("--block-size: {} has two blocks of 16 in an instruction of 32 products; "
                      "--fp8-order says which",
                      which));
    if (row.stages.size() > 1)
      mma_usage(
          fmt::format("--block-size: {} has several stages, which share an instruction's products", which));
    row.set(&Stage::products, *command.block_size);
  }
  if ((command.fraction_bits || command.exponent_floor || !command.underflow_zero.empty() ||
       command.block_size) &&
      row.block().sum != Sum::aligned)
    mma_usage(
        fmt::format("{} aligns nothing: expected no --block-size, --fraction-bits, --exponent-floor or "
                    "--underflow-zero",
                    which));
  if (command.fraction_bits) row.set(&Stage::fraction_bits, *command.fraction_bits);
  if (command.exponent_floor) row.set(&Stage::exponent_floor, *command.exponent_floor);
  if (!command.subnormal_accumulator.empty()) {
    row.subnormal_accumulator =
        chosen<SubnormalAccumulator>("--subnormal-accumulator", command.subnormal_accumulator);
    const bool of_fp32 = row.subnormal_accumulator == SubnormalAccumulator::fp16_emin;
    if (row.accumulator() != (of_fp32 ? DType::f32 : DType::f16))
      mma_usage(
          fmt::format("--subnormal-accumulator: {} has no {} accumulator", which, of_fp32 ? "FP32" : "FP16"));
  }
  if (!command.underflow_zero.empty())
    row.underflow_zero = chosen<UnderflowZero>("--underflow-zero", command.underflow_zero);
  if (!command.fp8_order.empty()) {
    const int run = run_of(command.fp8_order);
    if (!two_blocks)
      mma_usage(fmt::format("--fp8-order: {} does not go through FP16, as FP8 on hopper and blackwell does",
                            which));
    row.stages =
        two_blocks_then_c(run, row.block().fraction_bits, row.block().output, row.block().exponent_floor);
  }
  fused_dot_add(row, a_format, {}, b_format, {}, 0);  // lets it judge the numbers
  return question;
}

std::vector<MmaQuestion> questions_of(const MmaCommand& command) {
  if (command.json && !command.explain) mma_usage("--json requires --explain; answers are lines of words");
  if (command.verify && command.models.size() > 1)
    mma_usage(fmt::format("--verify compares with one --model, found {}", fmt::join(command.models, ", ")));
  try {
    std::vector<MmaQuestion> questions;
    for (OwnRow& own : rows_of(command)) questions.push_back(question_of(command, std::move(own)));
    if (command.explain && questions.front().a_format == DType::f64)
      mma_usage("--explain with --in f64: the steps of FP64 are fmas, each rounded to nearest even");
    for (const MmaQuestion& question : questions)
      if (question.row().is_scaled() != questions.front().row().is_scaled())
        mma_usage(fmt::format("{} with {}: only one of them takes block scales in its lines",
                              questions.front().row().name, question.row().name));
    return questions;
  } catch (const std::invalid_argument& error) {
    mma_usage(error.what());
  }
}

/// Hexadecimal digits of a word in a line: registers of 32 bits hold TF32 and FP32.
int digits_of(DType format) { return 2 * static_cast<int>(size_of(format)); }

/// One line's fields: taken apart, answered or compared, and every mistake named.
class Mma {
 public:
  Mma(const std::vector<MmaQuestion>& questions, const MmaCommand& command, CalledPlan plan)
      : questions_(questions),
        plan_(plan),
        verify_(command.verify),
        explain_(command.explain),
        json_(command.json),
        decimal_(command.decimal || questions.size() > 1),
        a_format_(questions.front().a_format),
        b_format_(questions.front().b_format),
        scaled_(questions.front().row().is_scaled()),
        scale_format_(questions.front().scale_format),
        d_format_(questions.front().row().accumulator()) {}

  void operator()(std::string_view line, std::uint64_t number, std::string& output) {
    const bool blank =
        line.find_first_not_of(" \t") == std::string_view::npos && line.find('\t') == std::string_view::npos;
    if (blank || line.front() == '#') {
      if (!verify_ && !json_) output.append(line) += '\n';
      return;
    }
    line_ = line;
    number_ = number;
    std::array<std::string_view, 6> fields;
    split(fields);
    numbers_ = false;
    ambiguous_ = {};
    std::size_t field = 0;
    read_words("a", fields[field++], a_format_, a_);
    read_words("b", fields[field++], b_format_, b_);
    if (a_.size() != b_.size())
      refuse(fmt::format("{} of a and {} of b; expected as many", counted(a_.size(), "word"),
                         counted(b_.size(), "word")));
    if (scaled_) {
      read_words("scales of a", fields[field++], scale_format_, a_scales_);
      read_words("scales of b", fields[field++], scale_format_, b_scales_);
    }
    const std::uint64_t c = accumulator_word("c", fields[field++]);
    std::optional<std::uint64_t> captured;
    if (verify_) captured = accumulator_word("d", fields[field]);
    if (numbers_ && !ambiguous_.empty())
      refuse(fmt::format("{} may be a word or a number, since this line has numbers: write 0x{} or {}",
                         quoted(ambiguous_), ambiguous_, as_number(ambiguous_)));
    ++lines_;
    const bool table = !explain_ && !verify_ && (decimal_ || numbers_);
    for (const MmaQuestion& question : questions_) {
      const TensorCoreModel& row = question.row();
      std::optional<PlannedProduct> product;
      const std::uint64_t d = answer(row, c, product);
      if (captured == d) return;
      if (table && &question == questions_.data()) write_operands(c, output);
      ++answers_;
      if (explain_) {
        output += explanation_of(
            {.text = line,
             .number = number,
             .row = &row,
             .a_format = a_format_,
             .b_format = b_format_,
             .a = narrow_[0],
             .b = narrow_[1],
             .scales = scales(),
             .c = static_cast<std::uint32_t>(c),
             .d = static_cast<std::uint32_t>(d),
             .captured = captured ? std::optional(static_cast<std::uint32_t>(*captured)) : std::nullopt,
             .product = product ? &*product : nullptr,
             .plan = product ? plan_.name() : "",
             .call = product ? plan_.call_text() : ""},
            json_);
      } else if (table) {
        write_row(row.name, d_format_, {&d, 1}, output);
      } else {
        output.append(line) += '\t';
        append_hex(d, d_format_, output);
        output += '\n';
      }
    }
  }

  const std::string& first_short() const { return first_short_; }
  std::uint64_t lines() const { return lines_; }      ///< without comments and empty lines
  std::uint64_t answers() const { return answers_; }  ///< lines written: with --verify, the mismatches

 private:
  /// `product`: the order of this line's sum; none: one chain.
  std::uint64_t answer(const TensorCoreModel& row, std::uint64_t c, std::optional<PlannedProduct>& product) {
    try {
      if (d_format_ == DType::f64) return fused_dot_add(row, a_, b_, c);
      narrow_[0].assign(a_.begin(), a_.end());
      narrow_[1].assign(b_.begin(), b_.end());
      narrow_[2].assign(a_scales_.begin(), a_scales_.end());
      narrow_[3].assign(b_scales_.begin(), b_scales_.end());
      if (plan_.is_one_chain())
        return fused_dot_add(row, a_format_, narrow_[0], b_format_, narrow_[1], static_cast<std::uint32_t>(c),
                             scales());
      if (c != 0) refuse(fmt::format("c: plan '{}': where c enters is not known; expected 0", plan_.name()));
      product = plan_.product(row, a_.size());
      return planned_dot(*product, a_format_, narrow_[0], b_format_, narrow_[1]);
    } catch (const std::invalid_argument& error) {
      refuse(error.what());
    }
  }

  /// How many elements have one scale follows from how many scales there are.
  DotScales scales() const {
    if (!scaled_ || narrow_[2].empty()) return {};
    return {{scale_format_, static_cast<int>(a_.size() / narrow_[2].size())}, narrow_[2], narrow_[3]};
  }

  [[noreturn]] void refuse(const std::string& mistake) const {
    mma_usage(fmt::format("line {}: {}: {}", number_, quoted(line_), mistake));
  }

  void split(std::array<std::string_view, 6>& fields) const {
    const std::size_t expected = (verify_ ? 4 : 3) + (scaled_ ? 2 : 0);
    std::size_t count = 0;
    std::string_view rest = line_;
    for (bool last = false; !last; ++count) {
      const std::size_t tab = rest.find('\t');
      last = tab == std::string_view::npos;
      if (count < expected) fields[count] = rest.substr(0, tab);
      if (!last) rest.remove_prefix(tab + 1);
    }
    if (count == expected) return;
    const char* const hint = scaled_ && count + 2 == expected ? " (this row has block scales)"
                             : !verify_ && count == 4         ? " (--verify compares a fourth, d-word)"
                             : verify_ && count == 3
                                 ? " (--verify compares with the fourth, the d-word of some hardware)"
                             : count == 1 ? " (a tab between them, spaces between words)"
                                          : "";
    refuse(fmt::format("expected {} fields with tabs between them, a-words, b-words, {}c-word{}; found {}{}",
                       expected, scaled_ ? "a-scales, b-scales, " : "", verify_ ? ", d-word" : "", count,
                       hint));
  }

  static void append_hex(std::uint64_t word, DType format, std::string& output) {
    for (int i = digits_of(format) - 1; i >= 0; --i) output += "0123456789abcdef"[word >> (4 * i) & 15];
  }

  /// "a        3c00 = 1, b800 = -0.5": a TF32 register with all that it holds.
  void write_row(std::string_view name, DType format, std::span<const std::uint64_t> words,
                 std::string& output) const {
    std::size_t width = scaled_ ? std::string_view("scales a").size() : 1;
    for (const MmaQuestion& question : questions_) width = std::max(width, question.row().name.size());
    output.append(name).append(width - name.size() + 1, ' ');
    for (const std::uint64_t& word : words) {
      output += &word == words.data() ? " " : ", ";
      append_hex(word, format, output);
      output += " = " + analysis::number_text(format == DType::tf32 ? DType::f32 : format, word);
    }
    output += '\n';
  }

  void write_operands(std::uint64_t c, std::string& output) {
    if (answers_ != 0) output += '\n';
    write_row("a", a_format_, a_, output);
    write_row("b", b_format_, b_, output);
    if (scaled_) {
      write_row("scales a", scale_format_, a_scales_, output);
      write_row("scales b", scale_format_, b_scales_, output);
    }
    write_row("c", d_format_, {&c, 1}, output);
  }

  /// "12" or "1e4".
  static bool is_decimal(std::string_view text) {
    const std::string_view whole = text.substr(0, text.find_first_of("eE"));
    constexpr std::string_view decimals = "0123456789";
    return !whole.empty() && whole.find_first_not_of(decimals) == std::string_view::npos &&
           (whole == text || (whole.size() + 1 < text.size() &&
                              text.find_first_not_of(decimals, whole.size() + 1) == std::string_view::npos));
  }
  /// "12.0", "1.0e4"
  static std::string as_number(std::string_view text) {
    const std::size_t whole = std::min(text.find_first_of("eE"), text.size());
    return fmt::format("{}.0{}", text.substr(0, whole), text.substr(whole));
  }

  /// A word of hexadecimal digits, as many as it has or, but for TF32, fewer; or a number, rounded to nearest
  /// even: of TF32 to the FP32 that the register holds.
  std::uint64_t word(const char* field, std::string_view text, DType format) {
    // Elsewhere TF32 is also written as 19 bits in 5 digits, which are not the register's lower digits.
    const bool exactly = format == DType::tf32;
    const int digits = digits_of(format);
    std::string_view digits_only = text;
    if (digits_only.starts_with("0x") || digits_only.starts_with("0X")) digits_only.remove_prefix(2);
    std::uint64_t value = 0;
    bool hexadecimal = !digits_only.empty();
    for (const char character : digits_only) {
      const std::uint8_t digit = digit_values[static_cast<unsigned char>(character)];
      hexadecimal = hexadecimal && digit < 16;
      value = value << 4 | (digit & 15U);
    }
    const auto size = static_cast<int>(digits_only.size());
    if (hexadecimal && size <= digits && (!exactly || size == digits)) {
      // A whole word such as 3e00 is meant as one.
      const bool whole_with_letter = size == digits && text.find_first_of("eE") != std::string_view::npos;
      if (value != 0 && digits_only == text && is_decimal(text) && !whole_with_letter) {
        ambiguous_ = text;
        if (size < digits && first_short_.empty())
          first_short_ = fmt::format("line {}: {} was read as the word 0x{}; a number has a point, {}",
                                     number_, quoted(text), text, as_number(text));
      }
      return value;
    }
    try {
      if (!hexadecimal) {
        const Exact number = parse_number(text).to_exact();
        numbers_ = true;
        return visit_dtype<is_floating>(exactly ? DType::f32 : format, [&](auto row) {
          using F = typename decltype(row)::Format;
          return static_cast<std::uint64_t>(round_pack<F>(number, {}).bits());
        });
      }
    } catch (const std::invalid_argument&) {
      // answered below
    }
    refuse(
        fmt::format("{}: expected words of {} {} hexadecimal digits, found {}; a number has a point or a "
                    "sign, as 0.5, -2.0 and 2^-24 have",
                    field, exactly ? "exactly" : "at most", digits, quoted(text)));
  }

  void read_words(const char* field, std::string_view text, DType format, std::vector<std::uint64_t>& words) {
    words.clear();
    for (std::size_t i = 0; i < text.size();) {
      if (text[i] == ' ') {
        ++i;
        continue;
      }
      const std::size_t end = std::min(text.find(' ', i), text.size());
      words.push_back(word(field, text.substr(i, end - i), format));
      i = end;
    }
  }

  std::uint64_t accumulator_word(const char* field, std::string_view text) {
    while (text.starts_with(' ')) text.remove_prefix(1);
    while (text.ends_with(' ')) text.remove_suffix(1);
    return word(field, text, d_format_);
  }

  std::vector<MmaQuestion> questions_;
  CalledPlan plan_;
  bool verify_, explain_, json_;
  std::string first_short_;  // what to note of the first word of fewer digits that might be meant as a number
  std::string_view ambiguous_;  // a word of this line that might be meant as a number, "16777216"
  bool decimal_;                // every word with its number, whatever the lines hold
  bool numbers_ = false;        // does this line hold some?
  DType a_format_, b_format_;
  bool scaled_;
  DType scale_format_, d_format_;
  std::string_view line_;
  std::uint64_t number_ = 0;
  std::uint64_t lines_ = 0, answers_ = 0;
  std::vector<std::uint64_t> a_, b_, a_scales_, b_scales_;
  std::array<std::vector<std::uint32_t>, 4> narrow_;  // these, unless they are of FP64
};

/// Answers lines, of `text` or of the standard input.
ExitCode run_lines(const MmaCommand& command, const std::string* text) {
  const std::vector<MmaQuestion> questions = questions_of(command);
  CalledPlan plan;
  try {
    const MmaQuestion& first = questions.front();
    plan = CalledPlan(command.plan, first.row(), first.a_format, first.b_format);
  } catch (const std::invalid_argument& error) {
    mma_usage(error.what());
  }
  Mma mma(questions, command, plan);
  const auto answer = [&mma](std::string_view line, std::uint64_t number, std::string& output) {
    mma(line, number, output);
  };
  text == nullptr ? filter_lines(answer) : filter_lines(*text, answer);
  if (!command.common.quiet && !mma.first_short().empty()) say("note: {}", mma.first_short());
  if (!command.verify) return ExitCode::ok;
  if (!command.common.quiet || mma.answers() != 0)
    say("fp16lab: mma: {} of {} lines differ from {}{}", mma.answers(), mma.lines(),
        label_of(questions.front()),
        plan.is_one_chain() ? "" : fmt::format(" in the order of plan '{}'", plan.name()));
  return mma.answers() == 0 ? ExitCode::ok : ExitCode::mismatch;
}

/// A capture says itself what its words are: only --model, for another generation than the device's own.
ExitCode run_capture(const MmaCommand& command) {
  if (!command.verify)
    mma_usage(fmt::format("{}: a capture goes with --verify; lines of words come from the standard input",
                          command.capture.string()));
  if (const std::optional<std::string> lines = captured_lines(command.capture)) {
    MmaCommand of_lines = command;
    if (command.models.empty() && command.row.empty() && lines->starts_with(processor_capture_heading))
      of_lines.models = {"avx512_bf16"};
    return run_lines(of_lines, &*lines);
  }
  const bool plain =
      command.row.empty() && command.in.empty() && command.in_b.empty() && command.acc.empty() &&
      command.scale.empty() && !command.explain && !command.decimal && !command.json &&
      command.plan.plan.empty() && !command.block_size && !command.fraction_bits && !command.exponent_floor &&
      command.subnormal_accumulator.empty() && command.underflow_zero.empty() && command.fp8_order.empty();
  if (!plain)
    mma_usage("with a capture only --model can be chosen: its instructions determine formats and rows");
  if (command.models.size() > 1) mma_usage("--verify compares a capture with one --model");
  std::string generation;
  try {
    if (!command.models.empty()) generation = tensor_core_model(command.models.front()).name;
  } catch (const std::invalid_argument& error) {
    mma_usage(error.what());
  }
  return verify_capture(command.capture, generation, command.common);
}

ExitCode run_mma(const MmaCommand& command) {
  if (!command.processor.empty()) {
    if (!command.models.empty() || !command.row.empty() || !command.capture.empty() || command.verify)
      mma_usage("--capture cpu asks the processor: expected no --model, --row, --verify or FILE with it");
    return capture_processor();
  }
  return command.capture.empty() ? run_lines(command, nullptr) : run_capture(command);
}

}  // namespace

Command mma_command() {
  return {
      .name = "mma",
      .description =
          "Compute tensor-core dot products as a filter: d = c + a.b as the hardware computes it.\n\nInput "
          "lines:\n  a-words TAB b-words TAB c-word      words (3c00) or numbers (1.0), spaces between, any "
          "K\nOutput: the same line, TAB, d-word.\n\nRows with block scales (blackwell-mxf8f6f4, "
          "blackwell-mxf4nvf4) take two more fields:\n  a-words TAB b-words TAB a-scales TAB b-scales TAB "
          "c-word\nHow many elements of K have one scale, 16 or 32, follows from how many scales there "
          "are.\n\nWith several models, with --decimal, or for a line with "
          "numbers (0.5, -2.0, 2^-24, inf) instead of words,\nthe output is a row for a, b, c and each "
          "model, with words and numbers. Digits alone are a word:\nnext to "
          "numbers write 0x3800 or 3800.0.\n\nWords have 2 digits (formats of 8 bits and fewer), 4 "
          "(f16, bf16), 8 (f32; tf32 is an "
          "FP32 "
          "register\nwhose low 13 bits are ignored, all 8 digits required) or 16 (f64). 0x, capitals and\n"
          "missing leading zeros are fine. Empty lines and lines that begin with # pass "
          "through unchanged.\nA malformed line ends "
          "the run with exit code 2, after the answers to the lines before it.\n--verify FILE compares a "
          "capture of a GPU (experiments/capture/README.md) with the rows of that GPU:\noutput lines are "
          "a-words, b-words, c-word, the GPU's d-word, ours, instruction and place. The output of\n--capture "
          "cpu, and other lines with d-words, are compared as if read from standard input.\n\n--row "
          "FILE.toml describes hardware of your own by these keys. Without base, the keys operands, "
          "block_size,\nfraction_bits, exponent_floor and output are required:\n" +
          tensor_core_row_keys(),
      .examples =
          "  printf '3c00 b800\\t3c00 3c00\\t3f800000\\n' | fp16lab mma --model hopper\n"
          "  printf '1.0 -0.5\\t1.0 1.0\\t1.0\\n' | fp16lab mma --model v100,a100,h100\n"
          "  fp16lab mma --model ampere --in bf16 --verify < captured.tsv > mismatches.tsv\n"
          "  fp16lab mma --verify capture.txt\n"
          "  printf '0800\\t8c00\\t3f800000\\n' | fp16lab mma --model hopper --explain",
      .uses = {},
      .declare = [](Options& options) -> Command::Run {
        auto command = std::make_shared<MmaCommand>();
        const std::string models = fmt::format("{}, {}", fmt::join(fp16lab::tensor_core_names(), ", "),
                                               fmt::join(block_scaled_names(), ", "));
        options
            .add("--model", command->models,
                 fmt::format("{} (fp16lab list shows their rows); or a chip: {}. Several, separated by "
                             "commas, are shown side by side",
                             models, fmt::join(tensor_core_chips(), ", ")))
            .type("NAME")
            .separated(',')
            .repeatable()
            .offers(offer_names(fp16lab::tensor_core_names()));
        options
            .add("FILE", command->capture,
                 "With --verify: a capture of a GPU, or lines, instead of the standard input")
            .type("")
            .offers(offer_files());
        options
            .add("--row", command->row,
                 "Instead of --model: a row of your own, in the keys that --help-all explains")
            .type("FILE.toml")
            .not_empty("a file")
            .offers(offer_files({".toml"}));
        std::string operands = "Operands:";
        for (const DType format : dtypes<is_operand>)
          operands +=
              fmt::format("{} {}{}", operands.back() == ':' ? "" : ",", name_of(format),
                          format == DType::f16
                              ? " (default where the row has it, else its own; with --row, the file's first)"
                              : "");
        operands += ", f64";
        options.add("--in", command->in, operands).type("FMT").offers(offer_names(dtype_names<is_operand>));
        options
            .add("--in-b", command->in_b,
                 fmt::format("Format of b where it differs: any of {} with any other",
                             fmt::join(dtype_names<is_mixed>, ", ")))
            .type("FMT")
            .offers(offer_names(dtype_names<is_mixed>));
        options
            .add("--scale", command->scale,
                 "Format of block scales: of blackwell-mxf8f6f4 e8m0, of blackwell-mxf4nvf4 ue4m3 (default) "
                 "or "
                 "e8m0")
            .type("FMT")
            .offers(offer_words({"e8m0", "ue4m3"}));
        options
            .add("--acc", command->acc,
                 "Accumulator c and result d: f32 (default), f16; of f64 f64; with --row, the file's")
            .type("FMT")
            .offers(offer_words({"f32", "f16"}));
        options.flag(
            "--verify", command->verify,
            "Each line has a fourth field, the d-word of some hardware: write only lines that differ, "
            "with our d-word after them; exit code 5 if there is one");
        options
            .add("--capture", command->processor,
                 "cpu: instead of reading lines, write 8,000 lines with the d-words of this processor's "
                 "vdpbf16ps (AVX512_BF16), for --verify FILE on any machine")
            .one_of({"cpu"})
            .type("cpu");
        options.flag(
            "--explain", command->explain,
            "Show every step instead of the answer: operands, aligned terms and what they lose, sums, "
            "roundings, the exact sum and the error in ulp; with --verify, for lines that differ. Bits after "
            "| are dropped, .. stands for more of them; the error is d minus the exact sum");
        options.flag("--decimal", command->decimal,
                     "Show every word with its number, and a row for each model");
        options.flag("--json", command->json,
                     "With --explain: print JSON, one object a line; comments are left out");
        declare_plan(options, command->plan, "The lines' c is 0");
        const std::string open = "What published models leave open";
        options
            .add("--subnormal-accumulator", command->subnormal_accumulator,
                 "Alignment exponent of a subnormal FP16 c: emin (default) or own_exponent; fp16_emin: c is "
                 "FP32 "
                 "with FP16's numbers, as mma.m8n8k4.f32.f16.f16.f16 has it (volta)")
            .type("RULE")
            .group(open);
        options
            .add("--underflow-zero", command->underflow_zero,
                 "A negative sum that rounds to zero: positive (default) or keeps_sign")
            .type("RULE")
            .group(open);
        options
            .add("--fp8-order", command->fp8_order,
                 "FP8 through FP16 (hopper, blackwell): the first block takes k mod 4 in {0,1} "
                 "(pairs, default) or k < 16 (halves)")
            .type("ORDER")
            .group(open);
        options.add("--exponent-floor", command->exponent_floor, "E0, the least exponent of the alignment")
            .type("N")
            .group(open);
        options.add("--block-size", command->block_size, "L, products in a fused block")
            .type("N")
            .group(open);
        options.add("--fraction-bits", command->fraction_bits, "F, bits kept below the largest exponent")
            .type("N")
            .group(open);
        return [command](const CommonOptions& common) {
          command->common = common;
          return run_mma(*command);
        };
      }};
}

}  // namespace fp16lab::experiments
