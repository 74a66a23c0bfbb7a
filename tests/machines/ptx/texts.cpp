#include "tests/machines/ptx/texts.hpp"

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <string_view>

namespace fp16lab::engine::ptx {

namespace {

namespace fs = std::filesystem;

std::string content_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// The integer in the bytes at `at`; 0 where they end before.
template <class T>
T integer_at(std::string_view bytes, std::size_t at) {
  T value{};
  if (at + sizeof(T) <= bytes.size()) std::memcpy(&value, bytes.data() + at, sizeof(T));
  return value;
}

/// Calls take(text) for each PTX in the fat binaries of `bytes`. Their layout is not documented; it is that
/// of CUDA 12 and 13: a header (magic, its own size at 6, that of what follows at 8), then entries, each with
/// its kind (1: PTX), the size of its header at 4, and the size of what follows at 8.
template <class Take>
void for_each_text(std::string_view bytes, const std::string& name, const Take& take) {
  constexpr std::string_view magic("\x50\xed\x55\xba", 4);
  for (std::size_t begin = bytes.find(magic); begin != bytes.npos; begin = bytes.find(magic, begin + 4)) {
    std::size_t at = begin + integer_at<std::uint16_t>(bytes, begin + 6);
    const std::size_t end = at + integer_at<std::uint64_t>(bytes, begin + 8);
    if (at < begin + 16 || end > bytes.size()) continue;  // the same four bytes by chance
    while (at < end) {
      const std::size_t header = integer_at<std::uint32_t>(bytes, at + 4);
      const std::size_t size = integer_at<std::uint64_t>(bytes, at + 8);
      if (header == 0 || header + size > end - at) break;
      if (integer_at<std::uint16_t>(bytes, at) == 1) {
        const std::string_view text = bytes.substr(at + header, size);
        if (text.find(".version") == text.npos)
          throw std::invalid_argument(name + ": its PTX is compressed; compile it with --no-compress");
        take(std::string(text.substr(0, text.find('\0'))));
      }
      at += header + size;
    }
  }
}

}  // namespace

Texts ptx_texts(const std::string& places) {
  Texts texts;
  std::istringstream list(places);
  for (std::string place; std::getline(list, place, ':');) {
    const std::size_t before = texts.size();
    if (fs::is_directory(place)) {
      for (const fs::directory_entry& entry : fs::recursive_directory_iterator(place))
        if (entry.path().extension() == ".ptx")
          texts[fs::relative(entry.path(), place).string()] = content_of(entry.path());
    } else {
      const std::string name = fs::path(place).filename().string();
      for_each_text(content_of(place), name, [&](std::string text) {
        texts[name + '.' + std::to_string(texts.size() - before)] = std::move(text);
      });
    }
    if (texts.size() == before)
      throw std::invalid_argument(place + ": there is no PTX; expected a folder of .ptx files, or a library");
  }
  return texts;
}

}  // namespace fp16lab::engine::ptx
