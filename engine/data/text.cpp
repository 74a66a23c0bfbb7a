#include "engine/data/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <limits>
#include <stdexcept>
#include <system_error>
#include <unordered_map>

#include "numerics/files/disk/read_file.hpp"
#include "numerics/files/disk/sha256.hpp"
#include "numerics/platform/own_place.hpp"
#include "numerics/text/text.hpp"

namespace fp16lab::engine::data {
namespace {

/// The data set that is whatever file data.path names.
constexpr std::string_view own_text = "text";

const DatasetInfo& text_info(std::string_view name) {
  std::string known;
  for (const DatasetInfo& info : known_datasets()) {
    if (info.kind != DataKind::text) continue;
    if (info.name == name) return info;
    known += (known.empty() ? "" : ", ") + std::string(info.name);
  }
  throw std::invalid_argument(fmt::format("unknown data set '{}'; of text there are: {}", name, known));
}

std::string file_name(std::string_view name) { return std::string(name) + ".txt"; }

/// `path` itself, or the text's file in the folder that it is.
std::filesystem::path file_in(const std::filesystem::path& path, std::string_view name) {
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored) ? path / file_name(name) : path;
}

[[noreturn]] void fail_missing(const DatasetInfo& info, const TextLocation& location) {
  const std::string remedy =
      info.package.empty()
          ? "point data.path at a text file"
          : fmt::format(
                "run scripts/setup.sh, which exports it from the Debian package {}, or point data.path at a "
                "text file or ${} at a folder with {}",
                info.package, data_variable, file_name(info.name));
  throw std::runtime_error(fmt::format("{}: there is no file {} (chosen by {}); {}", info.name,
                                       location.file.string(), location.chosen_by, remedy));
}

std::int64_t checked_window_count(std::span<const std::int32_t> symbols, const TextLoaderOptions& options) {
  if (options.context < 1)
    throw std::invalid_argument(
        fmt::format("a window of {} symbols: expected 1 or more to predict", options.context));
  const auto size = static_cast<std::int64_t>(symbols.size());
  const std::int64_t windows = window_count(size, options.context);
  if (windows == 0)
    throw std::invalid_argument(
        fmt::format("a text of {} symbols is too short for one window of {} + 1", size, options.context));
  if (windows > std::numeric_limits<std::uint32_t>::max())
    throw std::invalid_argument(fmt::format("a text of {} windows: expected fewer than 2^32", windows));
  if (options.batch_size < 1 || options.batch_size > windows)
    throw std::invalid_argument(fmt::format(
        "a batch size of {} does not fit a text of {} symbols, {} windows of {}: expected 1 to {}",
        options.batch_size, size, windows, options.context, windows));
  return windows;
}

void take_bytes(std::string_view bytes, Text& text) {
  std::array<std::int32_t, 256> symbol_of{};
  for (const char c : bytes) symbol_of[static_cast<unsigned char>(c)] = 1;
  for (std::size_t byte = 0; byte < symbol_of.size(); ++byte) {
    if (symbol_of[byte] == 0) continue;
    symbol_of[byte] = static_cast<std::int32_t>(text.vocabulary.size());
    text.vocabulary.emplace_back(1, static_cast<char>(byte));
  }
  text.symbols.resize(bytes.size());
  std::transform(bytes.begin(), bytes.end(), text.symbols.begin(),
                 [&](char c) { return symbol_of[static_cast<unsigned char>(c)]; });
}

void take_words(std::string_view bytes, Text& text) {
  std::unordered_map<std::string_view, std::int32_t> symbol_of;
  std::vector<std::string_view> words;
  for (std::string_view rest = bytes; !rest.empty();) {
    const std::string_view word = first_word(rest);
    rest.remove_prefix(word.size());
    const auto [place, is_new] = symbol_of.try_emplace(word, static_cast<std::int32_t>(words.size()));
    if (is_new) words.push_back(word);
    text.symbols.push_back(place->second);  // by first appearance, until all are known
  }
  std::sort(words.begin(), words.end());
  std::vector<std::int32_t> ordered(words.size());
  for (std::size_t i = 0; i < words.size(); ++i)
    ordered[static_cast<std::size_t>(symbol_of.at(words[i]))] = static_cast<std::int32_t>(i);
  for (std::int32_t& symbol : text.symbols) symbol = ordered[static_cast<std::size_t>(symbol)];
  text.vocabulary.assign(words.begin(), words.end());
}

enum class Mark { space, letter, digit, other };
Mark mark_of(char c) {
  const auto byte = static_cast<unsigned char>(c);
  if (byte == ' ' || (byte >= '\t' && byte <= '\r')) return Mark::space;
  if (byte >= '0' && byte <= '9') return Mark::digit;
  const unsigned char lower = byte | 0x20;
  return (lower >= 'a' && lower <= 'z') || byte == '\'' || byte > 127 ? Mark::letter : Mark::other;
}

}  // namespace

std::string_view first_word(std::string_view text) {
  std::size_t begin = 0;
  while (begin < text.size() && mark_of(text[begin]) == Mark::space) ++begin;
  if (begin == text.size()) return text;
  const bool joins = begin > 0 && text[begin - 1] == ' ';  // the last space belongs to what follows
  const std::size_t spaces = joins ? begin - 1 : begin;
  if (spaces > 0) return text.substr(0, spaces);
  const Mark mark = mark_of(text[begin]);
  std::size_t end = begin;
  while (end < text.size() && mark_of(text[end]) == mark) ++end;
  return text.substr(0, end);
}

std::span<const std::int32_t> Text::training() const {
  return std::span(symbols).first(symbols.size() * 9 / 10);
}
std::span<const std::int32_t> Text::test() const { return std::span(symbols).subspan(training().size()); }

Text make_text(std::string_view bytes, Tokens tokens) {
  if (bytes.empty()) throw std::invalid_argument("a text without bytes");
  Text text;
  text.characters = utf8_length(bytes);
  if (tokens == Tokens::bytes)
    take_bytes(bytes, text);
  else
    take_words(bytes, text);
  if (text.symbols.size() > std::numeric_limits<std::int32_t>::max())
    throw std::invalid_argument(
        fmt::format("a text of {} tokens: expected fewer than 2^31", text.symbols.size()));
  return text;
}

double symbols_per_character(const Text& text, std::span<const std::int32_t> symbols) {
  std::size_t bytes = 0, characters = 0;
  for (const std::int32_t symbol : symbols) {
    const std::string& token = text.vocabulary.at(static_cast<std::size_t>(symbol));
    bytes += token.size();
    characters += static_cast<std::size_t>(std::count_if(token.begin(), token.end(), [](char c) {
      return begins_utf8_character(static_cast<unsigned char>(c));
    }));
  }
  if (!text.characters) characters = bytes;
  return characters == 0 ? 1 : static_cast<double>(symbols.size()) / static_cast<double>(characters);
}

std::string bytes_of(const Text& text, std::span<const std::int32_t> symbols) {
  std::string bytes;
  for (const std::int32_t symbol : symbols) bytes += text.vocabulary.at(static_cast<std::size_t>(symbol));
  return bytes;
}

std::filesystem::path exported_text(std::string_view name) {
  const std::filesystem::path folder = first_beside_us({FP16LAB_EXPORTED_DATA, "../share/fp16lab/data"});
  return (folder.empty() ? ".cache/data" : folder) / file_name(name);
}

TextLocation find_text(std::string_view name, const std::filesystem::path& path) {
  const DatasetInfo& info = text_info(name);
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nothing in fp16lab changes the environment
  const char* const set = std::getenv(std::string(data_variable).c_str());
  TextLocation location;
  if (!path.empty()) {
    location = {file_in(path, name), "data.path"};
  } else if (name == own_text) {
    throw std::invalid_argument(
        fmt::format("data.name = \"{}\" needs data.path, the text file to learn from", own_text));
  } else if (set != nullptr && *set != '\0') {
    const std::filesystem::path folder(set);
    std::error_code ignored;
    const bool subfolder = std::filesystem::is_directory(folder / name, ignored);
    location = {(subfolder ? folder / name : folder) / file_name(name), fmt::format("${}", data_variable)};
  } else {
    location = {exported_text(name), "the folder of scripts/setup.sh"};
  }
  std::error_code ignored;
  if (!std::filesystem::exists(location.file, ignored)) fail_missing(info, location);
  return location;
}

Text load_text(const TextLocation& location, Tokens tokens) {
  const std::string bytes = read_file(location.file, longest::data);
  if (bytes.empty())
    throw std::runtime_error(fmt::format("{} (chosen by {}) is empty: expected a text",
                                         location.file.string(), location.chosen_by));
  Text text = make_text(bytes, tokens);
  std::string vocabulary;
  for (const std::string& token : text.vocabulary) {
    vocabulary += token;
    if (tokens == Tokens::words) vocabulary += '\0';
  }
  text.files = {{location.file, sha256_of(bytes)},
                {fmt::format("{}: vocabulary of {} {}", location.file.string(), text.vocabulary.size(),
                             name_of(tokens)),
                 sha256_of(vocabulary)}};
  return text;
}

std::int64_t window_count(std::int64_t symbols, std::int64_t context) {
  return std::max<std::int64_t>(0, (symbols - 1) / context);
}

TextLoader::TextLoader(std::span<const std::int32_t> symbols, const TextLoaderOptions& options)
    : symbols_(symbols),
      options_(options),
      order_(checked_window_count(symbols, options), options.shuffle, options.seed) {}

std::uint64_t TextLoader::batches_per_epoch() const {
  return static_cast<std::uint64_t>(window_count() / options_.batch_size);
}

std::span<const std::uint32_t> TextLoader::windows(std::uint64_t global_micro_batch_index) {
  return batch_of(order_, options_.batch_size, global_micro_batch_index);
}

Batch TextLoader::part_of_batch(Backend& backend, std::uint64_t global_micro_batch_index,
                                const BatchPart& part) {
  const std::int64_t rows = part.size(options_.batch_size);
  Batch batch{.inputs = backend.empty(Shape{rows, options_.context}, DType::i32),
              .targets = backend.empty(Shape{rows * options_.context}, DType::i32)};
  if (!backend.keeps_uploads()) return batch;
  inputs_.resize(static_cast<std::size_t>(rows_per_batch()));
  targets_.resize(inputs_.size());
  const std::span<const std::uint32_t> chosen =
      windows(global_micro_batch_index)
          .subspan(static_cast<std::size_t>(part.begin(options_.batch_size)), static_cast<std::size_t>(rows));
  const auto context = static_cast<std::size_t>(options_.context);
  for (std::size_t b = 0; b < chosen.size(); ++b) {
    const auto window = symbols_.subspan(chosen[b] * context, context + 1);
    std::copy(window.begin(), window.end() - 1, inputs_.begin() + static_cast<std::ptrdiff_t>(b * context));
    std::copy(window.begin() + 1, window.end(), targets_.begin() + static_cast<std::ptrdiff_t>(b * context));
  }
  const std::size_t symbols = chosen.size() * context;
  backend.upload(std::as_bytes(std::span(inputs_).first(symbols)), batch.inputs);
  backend.upload(std::as_bytes(std::span(targets_).first(symbols)), batch.targets);
  return batch;
}

}  // namespace fp16lab::engine::data
