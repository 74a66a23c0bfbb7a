#include "experiments/tensor_core_probe/capture_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <stdexcept>

#include "numerics/files/disk/input_file.hpp"
#include "numerics/text/text.hpp"

namespace fp16lab::probe {
namespace {

/// FNV-1a of 64 bits.
class Digest {
 public:
  void add(std::span<const std::uint32_t> words, std::uint32_t mask) {
    for (const std::uint32_t word : words)
      for (int shift = 0; shift < 32; shift += 8)
        value_ = (value_ ^ ((word & mask) >> shift & 0xff)) * 0x100000001b3u;
  }
  std::uint64_t value() const { return value_; }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325u;
};

std::uint32_t mask_of(DType format) { return 0xffffffffU >> (32 - 8 * size_of(format)); }
std::size_t digits_of(DType format) { return 2 * size_of(format); }
std::size_t outputs_of(const Instruction& in) { return static_cast<std::size_t>(in.m * in.n); }

/// The lines of a capture, one after the other, and what each must hold.
class Lines {
 public:
  explicit Lines(std::string_view text) : rest_(text) {}

  /// False at the end.
  bool next() {
    if (rest_.empty()) return false;
    const std::size_t end = std::min(rest_.find('\n'), rest_.size());
    line_ = rest_.substr(0, end);
    rest_.remove_prefix(std::min(end + 1, rest_.size()));
    if (line_.ends_with('\r')) line_.remove_suffix(1);
    ++number_;
    return true;
  }
  std::string_view line() const { return line_; }
  std::size_t number() const { return number_; }

  [[noreturn]] void refuse(const std::string& what) const {
    throw std::runtime_error(fmt::format("line {}: {}, found '{}'", number_, what, shown(line_)));
  }
  void require(const std::string& what) {
    if (!next()) throw std::runtime_error(fmt::format("line {}: {}, found the end", number_ + 1, what));
  }

  /// The rest of a line that begins with `name`.
  std::string header(std::string_view name) {
    const std::string start = fmt::format("{}: ", name);
    require(fmt::format("expected '{}...'", start));
    if (!line_.starts_with(start)) refuse(fmt::format("expected '{}...'", start));
    return std::string(line_.substr(start.size()));
  }

  std::vector<std::string_view> fields(std::string_view text, char separator, std::size_t count,
                                       const char* what) const {
    std::vector<std::string_view> list;
    for (bool last = false; !last;) {
      const std::size_t end = text.find(separator);
      last = end == std::string_view::npos;
      list.push_back(text.substr(0, end));
      if (!last) text.remove_prefix(end + 1);
    }
    if (list.size() != count) refuse(fmt::format("expected {}", what));
    return list;
  }

  std::uint64_t number(std::string_view text, int base, const char* what) const {
    std::uint64_t value = 0;
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value, base);
    if (error != std::errc() || stop != end || text.empty()) refuse(fmt::format("expected {}", what));
    return value;
  }
  std::uint32_t word(std::string_view text, std::size_t digits) const {
    if (text.size() != digits) refuse(fmt::format("expected words of {} hexadecimal digits", digits));
    return static_cast<std::uint32_t>(number(text, 16, "hexadecimal words"));
  }
  std::vector<std::uint32_t> words(std::string_view text, std::size_t digits, std::size_t count) const {
    std::vector<std::uint32_t> list;
    for (std::string_view field : fields(text, ' ', count, counted(count, "word").c_str()))
      list.push_back(word(field, digits));
    return list;
  }
  const Instruction& instruction_called(std::string_view name) const {
    const Instruction* const in = find_instruction(name);
    if (in == nullptr) refuse(fmt::format("unknown instruction '{}'", shown(name)));
    return *in;
  }

 private:
  std::string_view rest_, line_;
  std::size_t number_ = 0;
};

std::string name_in_file(Distribution distribution) {
  std::string name(name_of(distribution));
  std::ranges::replace(name, ' ', '-');
  return name;
}

/// "CUDA 13.0", behind whatever `before` takes without the blank between them: 13000.
int cuda_version(const Lines& lines, std::string_view text, std::string& before) {
  const std::size_t name = text.rfind("CUDA ");
  if (name == std::string_view::npos) lines.refuse("expected 'CUDA' and its version");
  before = printable(text.substr(0, name == 0 ? 0 : name - 1));
  const auto parts = lines.fields(text.substr(name + 5), '.', 2, "'CUDA' and its version, as in 13.0");
  return static_cast<int>(lines.number(parts[0], 10, "a number") % 1000 * 1000 +
                          lines.number(parts[1], 10, "a number") % 100 * 10);
}

void read_header(Lines& lines, Capture& capture) {
  lines.require(fmt::format("expected '{}'", capture_heading));
  if (lines.line() != capture_heading) lines.refuse(fmt::format("expected '{}'", capture_heading));
  capture.device.name = printable(lines.header("device"));
  const std::string capability = lines.header("capability");
  const auto parts = lines.fields(capability, '.', 2, "a compute capability such as 9.0");
  capture.device.capability.major = static_cast<int>(lines.number(parts[0], 10, "a number") % 1000);
  capture.device.capability.minor = static_cast<int>(lines.number(parts[1], 10, "a number") % 1000);
  capture.kernels = printable(lines.header("kernels"));
  const std::string driver = lines.header("driver");
  capture.device.driver_version = cuda_version(lines, driver, capture.device.driver);
  const std::string runtime = lines.header("runtime");
  std::string nothing;
  capture.device.runtime_version = cuda_version(lines, runtime, nothing);
  capture.compiler = printable(lines.header("compiler"));
  const std::string operands = lines.header("operands");
  const auto words = lines.fields(operands, ' ', 5, "'philox4x32-10, seed N, outputs N'");
  if (words[0] != "philox4x32-10," || words[1] != "seed" || words[3] != "outputs" || !words[2].ends_with(','))
    lines.refuse("expected 'philox4x32-10, seed N, outputs N'");
  capture.seed = lines.number(words[2].substr(0, words[2].size() - 1), 10, "a number");
  capture.outputs = lines.number(words[4], 10, "a number");
}

CapturedVector read_vector(const Lines& lines, std::string_view text) {
  const auto fields = lines.fields(text, '\t', 6, "instruction, id, a, b, c and d with tabs between them");
  const Instruction& in = lines.instruction_called(fields[0]);
  const auto k = static_cast<std::size_t>(in.k);
  CapturedVector vector{&in, printable(fields[1]), {}, {}, 0, {}};
  vector.a = lines.words(fields[2], digits_of(in.operands), k);
  vector.b = lines.words(fields[3], digits_of(in.operands), k);
  vector.c = lines.word(fields[4], digits_of(in.accumulator));
  const bool uniform = fields[5].find(' ') == std::string_view::npos;
  vector.d = lines.words(fields[5], digits_of(in.accumulator), uniform ? 1 : outputs_of(in));
  return vector;
}

CapturedHalf read_half(const Lines& lines, std::string_view text) {
  const auto fields = lines.fields(text, '\t', 3, "operation, operands and result with tabs between them");
  const auto name = lines.fields(fields[0], ' ', 2, "'add f16' or the like");
  constexpr std::array<std::string_view, 5> names{"add", "mul", "fma", "narrow", "widen"};
  constexpr std::array operations{HalfOperation::add, HalfOperation::mul, HalfOperation::fma,
                                  HalfOperation::cvt_f16_f32, HalfOperation::cvt_f32_f16};
  constexpr std::array<std::size_t, 5> arities{2, 2, 3, 1, 1};
  const auto which = static_cast<std::size_t>(std::ranges::find(names, name[0]) - names.begin());
  if (which == names.size() || (name[1] != "f16" && name[1] != "f16x2"))
    lines.refuse("expected add, mul, fma, narrow or widen of f16 or f16x2");
  return {operations[which], name[1] == "f16x2", lines.words(fields[1], 8, arities[which]),
          lines.word(fields[2], 8)};
}

CapturedTiles read_tiles(Lines& lines, std::string_view text) {
  const auto fields =
      lines.fields(text, ' ', 8, "an instruction, a kind, 'tiles N operands DIGEST results DIGEST'");
  const Instruction& in = lines.instruction_called(fields[0]);
  const auto* const distribution =
      std::ranges::find_if(every<Distribution>, [&](Distribution d) { return name_in_file(d) == fields[1]; });
  if (distribution == every<Distribution>.end()) lines.refuse("unknown kind of operands");
  CapturedTiles tiles{&in, *distribution, 0, 0, {}};
  constexpr std::uint64_t most_tiles = 1U << 20;
  tiles.count = lines.number(fields[3], 10, "a number of tiles");
  if (tiles.count == 0 || tiles.count > most_tiles)
    lines.refuse(fmt::format("expected 1 to {} tiles", most_tiles));
  tiles.operands = lines.number(fields[5], 16, "a digest");
  const std::uint64_t results = lines.number(fields[7], 16, "a digest");

  const std::size_t first_line = lines.number() + 1, digits = digits_of(in.accumulator);
  const std::size_t total = tiles.count * outputs_of(in);
  while (tiles.d.size() < total) {
    lines.require("expected words of results");
    const std::size_t here = std::min<std::size_t>(16, total - tiles.d.size());
    if (lines.line().size() != here * digits)
      lines.refuse(fmt::format("expected {} of {} digits without blanks", counted(here, "word"), digits));
    for (std::size_t i = 0; i < here; ++i)
      tiles.d.push_back(lines.word(lines.line().substr(i * digits, digits), digits));
  }
  Digest digest;
  digest.add(tiles.d, mask_of(in.accumulator));
  if (digest.value() != results)
    throw std::runtime_error(fmt::format(
        "lines {} to {}: a word of {}, {}, was changed since the device wrote it: digest {:016x}, found "
        "{:016x}",
        first_line, lines.number(), in.name, name_of(tiles.distribution), results, digest.value()));
  return tiles;
}

}  // namespace

Capture parse_capture(std::string_view text) {
  Capture capture;
  Lines lines(text);
  read_header(lines, capture);
  while (true) {
    lines.require("expected 'question', 'half', 'random' or 'end'; the capture is cut off");
    const std::string_view line = lines.line();
    const std::size_t blank = std::min(line.find(' '), line.size());
    const std::string_view kind = line.substr(0, blank), rest = line.substr(std::min(blank + 1, line.size()));
    if (kind == "question") {
      capture.vectors.push_back(read_vector(lines, rest));
    } else if (kind == "half") {
      capture.halves.push_back(read_half(lines, rest));
    } else if (kind == "random") {
      capture.tiles.push_back(read_tiles(lines, rest));
    } else if (kind == "end") {
      const std::string expected = fmt::format("after {} lines", lines.number() - 1);
      if (rest != expected)
        lines.refuse(fmt::format("expected 'end {}'; lines are missing or added", expected));
      break;
    } else {
      lines.refuse("expected 'question', 'half', 'random' or 'end'");
    }
  }
  while (lines.next())
    if (!lines.line().empty()) lines.refuse("expected nothing after the end");
  return capture;
}

Capture read_capture(const std::filesystem::path& path) {
  const InputFile file(path);
  constexpr std::uint64_t most_bytes = 256U << 20;
  if (file.size() > most_bytes) file.fail("too long for a capture");
  std::string text(file.size(), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  try {
    return parse_capture(text);
  } catch (const std::runtime_error& error) {
    file.fail(error.what());
  }
}

std::uint64_t digest_of(const Instruction& in, const Tiles& tiles) {
  Digest digest;
  digest.add(tiles.a, mask_of(in.operands));
  digest.add(tiles.b, mask_of(in.operands));
  digest.add(tiles.c, mask_of(in.accumulator));
  return digest.value();
}

Tiles operands_of(const CapturedTiles& captured, std::uint64_t seed, int threads) {
  const Instruction& in = *captured.instruction;
  Tiles tiles = random_tiles(in, captured.distribution, seed, 0, captured.count, threads);
  if (digest_of(in, tiles) != captured.operands)
    throw std::runtime_error(
        fmt::format("{}, {}: operands have digest {:016x} here and {:016x} in the capture; it was made by "
                    "another generator",
                    in.name, name_of(captured.distribution), digest_of(in, tiles), captured.operands));
  const auto narrow = [](std::vector<std::uint32_t>& words, DType format) {
    for (std::uint32_t& word : words) word &= mask_of(format);
  };
  narrow(tiles.a, in.operands);
  narrow(tiles.b, in.operands);
  narrow(tiles.c, in.accumulator);
  return tiles;
}

}  // namespace fp16lab::probe
