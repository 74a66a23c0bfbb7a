#include "experiments/tensor_core_probe/capture_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <span>
#include <sstream>
#include <stdexcept>

#include "numerics/files/disk/input_file.hpp"
#include "numerics/platform/worker_pool.hpp"
#include "numerics/text/named_enum.hpp"
#include "numerics/text/text.hpp"

namespace fp16lab::probe {
namespace {

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
  std::string_view header(std::string_view name) {
    const std::string start = fmt::format("{}: ", name);
    require(fmt::format("expected '{}...'", start));
    if (!line_.starts_with(start)) refuse(fmt::format("expected '{}...'", start));
    return line_.substr(start.size());
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
  /// "13.0": {13, 0}.
  std::pair<int, int> version(std::string_view text, const char* what) const {
    const auto parts = fields(text, '.', 2, what);
    return {static_cast<int>(number(parts[0], 10, "a number") % 1000),
            static_cast<int>(number(parts[1], 10, "a number") % 100)};
  }
  std::uint32_t word(std::string_view text, const Format& format) const {
    const int digits = 2 * format.bytes;
    if (std::ssize(text) != digits) refuse(fmt::format("expected words of {} hexadecimal digits", digits));
    return static_cast<std::uint32_t>(number(text, 16, "hexadecimal words"));
  }
  Words words(std::string_view text, const Format& format, std::size_t count) const {
    Words list;
    for (std::string_view field : fields(text, ' ', count, counted(count, "word").c_str()))
      list.push_back(word(field, format));
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

/// "CUDA 13.0", after whatever `before` takes without the blank between them: 13000.
int read_cuda_version(const Lines& lines, std::string_view text, std::string& before) {
  const std::size_t name = text.rfind("CUDA ");
  if (name == std::string_view::npos) lines.refuse("expected 'CUDA' and its version");
  before = printable(text.substr(0, name == 0 ? 0 : name - 1));
  const auto [major, minor] = lines.version(text.substr(name + 5), "'CUDA' and its version, as in 13.0");
  return major * 1000 + minor * 10;
}

void read_header(Lines& lines, Capture& capture) {
  lines.require(fmt::format("expected '{}'", capture_heading));
  if (lines.line() != capture_heading) lines.refuse(fmt::format("expected '{}'", capture_heading));
  capture.device.name = printable(lines.header("device"));
  const auto [major, minor] = lines.version(lines.header("capability"), "a compute capability such as 9.0");
  capture.device.capability = {major, minor};
  capture.device.kernels = printable(lines.header("kernels"));
  capture.device.driver_version = read_cuda_version(lines, lines.header("driver"), capture.device.driver);
  std::string nothing;
  capture.device.runtime_version = read_cuda_version(lines, lines.header("runtime"), nothing);
  capture.device.compiler = printable(lines.header("compiler"));
  const std::string_view operands = lines.header("operands");
  const auto words = lines.fields(operands, ' ', 5, "'philox4x32-10, seed N, outputs N'");
  if (words[0] != "philox4x32-10," || words[1] != "seed" || words[3] != "outputs" || !words[2].ends_with(','))
    lines.refuse("expected 'philox4x32-10, seed N, outputs N'");
  capture.seed = lines.number(words[2].substr(0, words[2].size() - 1), 10, "a number");
  capture.outputs = lines.number(words[4], 10, "a number");
}

CapturedVector read_question(const Lines& lines, std::string_view text) {
  const auto fields = lines.fields(text, '\t', 6, "instruction, id, a, b, c and d with tabs between them");
  const Instruction& in = lines.instruction_called(fields[0]);
  const bool uniform = fields[5].find(' ') == std::string_view::npos;
  return {&in,
          {printable(fields[1]), lines.words(fields[2], in.operands, in.k),
           lines.words(fields[3], in.operands, in.k), lines.word(fields[4], in.accumulator)},
          lines.words(fields[5], in.accumulator, uniform ? 1 : in.outputs())};
}

CapturedHalf read_half(const Lines& lines, std::string_view text) {
  const auto fields = lines.fields(text, '\t', 3, "operation, operands and result with tabs between them");
  const auto name = lines.fields(fields[0], ' ', 2, "'add f16' or the like");
  const std::optional<HalfOperation> operation = enumerator_called<HalfOperation>(name[0]);
  if (!operation || (name[1] != "f16" && name[1] != "f16x2"))
    lines.refuse("expected add, mul, fma, narrow or widen of f16 or f16x2");
  return {*operation, name[1] == "f16x2", lines.words(fields[1], f32, arity_of(*operation)),
          lines.word(fields[2], f32)};
}

CapturedTiles read_tiles(Lines& lines, std::string_view text) {
  const auto fields =
      lines.fields(text, ' ', 8, "an instruction, a kind, 'tiles N operands DIGEST results DIGEST'");
  const Instruction& in = lines.instruction_called(fields[0]);
  const std::optional<Distribution> distribution = enumerator_called<Distribution>(fields[1]);
  if (!distribution) lines.refuse("unknown kind of operands");
  CapturedTiles tiles{&in, *distribution, 0, 0, {}};
  constexpr std::uint64_t most_tiles = 1U << 20;
  tiles.count = lines.number(fields[3], 10, "a number of tiles");
  if (tiles.count == 0 || tiles.count > most_tiles)
    lines.refuse(fmt::format("expected 1 to {} tiles", most_tiles));
  tiles.operands = lines.number(fields[5], 16, "a digest");
  const std::uint64_t results = lines.number(fields[7], 16, "a digest");

  const std::size_t first_line = lines.number() + 1;
  const auto digits = static_cast<std::size_t>(2 * in.accumulator.bytes);
  const std::size_t total = tiles.count * in.outputs();
  while (tiles.d.size() < total) {
    lines.require("expected words of results");
    const std::size_t here = std::min<std::size_t>(16, total - tiles.d.size());
    if (lines.line().size() != here * digits)
      lines.refuse(fmt::format("expected {} of {} digits without blanks", counted(here, "word"), digits));
    for (std::size_t i = 0; i < here; ++i)
      tiles.d.push_back(lines.word(lines.line().substr(i * digits, digits), in.accumulator));
  }
  Digest digest;
  digest.add(tiles.d, in.accumulator);
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
      capture.vectors.push_back(read_question(lines, rest));
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

std::string capture_text(Device& device, std::uint64_t seed, std::size_t random_outputs) {
  std::ostringstream text;
  write_capture(text, device, seed, random_outputs);
  return std::move(text).str();
}

Tiles random_tiles(const Instruction& in, Distribution distribution, std::uint64_t seed,
                   std::uint64_t first_tile, std::size_t count, int threads) {
  Tiles tiles = make_tiles(in, count);
  const RandomTiles random(in, distribution, seed);
  share_tasks(count, threads, [&](std::size_t tile) { random.make(first_tile + tile, tiles, tile); });
  return tiles;
}

Tiles operands_of(const CapturedTiles& captured, std::uint64_t seed, int threads) {
  const Instruction& in = *captured.instruction;
  Tiles tiles = random_tiles(in, captured.distribution, seed, 0, captured.count, threads);
  if (digest_of(in, tiles) != captured.operands)
    throw std::runtime_error(
        fmt::format("{}, {}: operands have digest {:016x} here and {:016x} in the capture; it was made by "
                    "another generator",
                    in.name, name_of(captured.distribution), digest_of(in, tiles), captured.operands));
  return tiles;
}

}  // namespace fp16lab::probe
