#include "numerics/files/arrays/npy_header.hpp"
#include "numerics/text/text.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <string_view>
#include <utility>

namespace fp16lab {
namespace {

constexpr std::string_view magic{"\x93NUMPY", 6};
/// numpy refuses headers above 10000 characters from files that it does not trust; structured types may be
/// longer.
constexpr std::uint64_t header_limit = 1u << 20;

std::string hex(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte byte : bytes)
    text += fmt::format("{}{:02x}", text.empty() ? "" : " ", std::to_integer<unsigned>(byte));
  return text;
}

/// The dict literal of a header; three of its values are needed. `base` is the offset of its first byte.
class HeaderText {
 public:
  HeaderText(std::string_view text, std::uint64_t base) : text_(text), base_(base) {}

  void parse(NpyHeader& header) {
    bool descr = false, order = false, shape = false;
    const auto once = [this](bool& seen, std::string_view key, std::size_t begin) {
      if (!std::exchange(seen, true)) return;
      position_ = begin;
      fail(fmt::format("the key '{}' occurs twice", key));
    };
    expect('{');
    while (!accept('}')) {
      skip_space();
      const std::size_t key_begin = position_;
      const std::string key = string();
      expect(':');
      if (key == "descr") {
        once(descr, key, key_begin);
        read_descr(header);
      } else if (key == "fortran_order") {
        once(order, key, key_begin);
        header.fortran_order = boolean();
      } else if (key == "shape") {
        once(shape, key, key_begin);
        header.shape = extents();
      } else {
        position_ = key_begin;
        fail(fmt::format("unknown key '{}'; expected descr, fortran_order and shape", shown(key)));
      }
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    for (const auto& [seen, key] :
         {std::pair{descr, "descr"}, std::pair{order, "fortran_order"}, std::pair{shape, "shape"}})
      if (!seen) fail(fmt::format("the header has no '{}'", key));
    skip_space();
    if (position_ != text_.size()) fail("text after the header's '}'");
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { throw DamagedBytes(base_ + position_, what); }

  char peek() const { return position_ < text_.size() ? text_[position_] : '\0'; }
  void skip_space() {
    while (position_ < text_.size() &&
           std::string_view(" \t\r\n").find(text_[position_]) != std::string_view::npos)
      ++position_;
  }
  bool accept(char c) {
    skip_space();
    if (position_ >= text_.size() || text_[position_] != c) return false;
    ++position_;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) fail(fmt::format("expected '{}' in the header, found {}", c, found()));
  }
  std::string found() const {
    return position_ < text_.size() ? fmt::format("'{}'", shown(text_.substr(position_, 1))) : "its end";
  }
  bool accept_word(std::string_view word) {
    if (!text_.substr(position_).starts_with(word)) return false;
    position_ += word.size();
    return true;
  }

  std::string string() {
    skip_space();
    const char quote = peek();
    if (quote != '\'' && quote != '"')
      fail(fmt::format("expected a string in the header, found {}", found()));
    const std::size_t end = text_.find(quote, position_ + 1);
    if (end == std::string_view::npos) fail("a string that does not end");
    const std::string_view content = text_.substr(position_ + 1, end - position_ - 1);
    if (content.find('\\') != std::string_view::npos) fail("a string with a backslash");
    position_ = end + 1;
    return std::string(content);
  }

  bool boolean() {
    skip_space();
    if (accept_word("True")) return true;
    if (accept_word("False")) return false;
    fail(fmt::format("fortran_order: expected True or False, found {}", found()));
  }

  std::vector<std::uint64_t> extents() {
    std::vector<std::uint64_t> shape;
    if (!accept('(')) fail(fmt::format("shape: expected a tuple, found {}", found()));
    bool comma = true;
    while (!accept(')')) {
      if (!comma) fail(fmt::format("shape: expected ',' or ')', found {}", found()));
      skip_space();
      std::uint64_t extent = 0;
      const char* begin = text_.data() + position_;
      const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), extent);
      if (error == std::errc::result_out_of_range) fail("shape: an extent of 2^64 or more");
      if (error != std::errc{}) fail(fmt::format("shape: expected a whole number, found {}", found()));
      position_ += static_cast<std::size_t>(end - begin);
      accept_word("L");  // as Python 2 wrote a long
      shape.push_back(extent);
      comma = accept(',');
    }
    if (shape.size() == 1 && !comma) fail("shape: (N) is no tuple, expected (N,)");
    return shape;
  }

  void read_descr(NpyHeader& header) {
    skip_space();
    if (peek() == '[' || peek() == '(') {  // a structured type: only its extent in the header is of interest
      header.descr = bracketed();
      return;
    }
    const std::size_t begin = position_;
    header.descr = string();
    const std::string_view descr = header.descr;
    if (descr.empty()) {
      position_ = begin;
      fail("descr is empty, expected a type such as '<f4'");
    }
    std::size_t at = 0;
    if (std::string_view("<>=|").find(descr[0]) != std::string_view::npos) header.byte_order = descr[at++];
    if (at == descr.size()) {
      position_ = begin;
      fail(fmt::format("descr '{}' names no type; expected one such as '<f4'", shown(descr)));
    }
    header.kind = descr[at++];
    std::uint64_t bytes = 0;
    const auto [end, error] = std::from_chars(descr.data() + at, descr.data() + descr.size(), bytes);
    if (error == std::errc::result_out_of_range) {
      position_ = begin;
      fail(fmt::format("descr '{}': elements of 2^64 bytes or more", shown(descr)));
    }
    // What is left, as in '<M8[ns]', does not change the size; a Unicode character has four bytes.
    if (error == std::errc{} && (end == descr.data() + descr.size() || *end == '[')) {
      if (header.kind == 'U' && __builtin_mul_overflow(bytes, std::uint64_t{4}, &bytes)) {
        position_ = begin;
        fail(fmt::format("descr '{}': elements of 2^64 bytes or more", shown(descr)));
      }
      header.element_bytes = bytes;
    } else if (error == std::errc{}) {
      header.kind = '\0';
    }
    if (header.kind == 'O') header.element_bytes.reset();  // pickled objects follow, with any length
  }

  /// The text of a list or tuple, brackets in its strings not counted.
  std::string bracketed() {
    const std::size_t begin = position_;
    std::size_t depth = 0;
    char quote = '\0';
    for (; position_ < text_.size(); ++position_) {
      const char c = text_[position_];
      if (quote != '\0') {
        if (c == quote) quote = '\0';
      } else if (c == '\'' || c == '"') {
        quote = c;
      } else if (c == '[' || c == '(') {
        ++depth;
      } else if ((c == ']' || c == ')') && --depth == 0) {
        ++position_;
        return std::string(text_.substr(begin, position_ - begin));
      }
    }
    position_ = begin;
    fail("descr: a list that does not end");
  }

  std::string_view text_;
  std::uint64_t base_;
  std::size_t position_ = 0;
};

void check_size(const NpyHeader& header, std::uint64_t base) {
  std::uint64_t bytes = std::max<std::uint64_t>(1, header.element_bytes.value_or(1));
  if (std::find(header.shape.begin(), header.shape.end(), 0u) != header.shape.end()) return;
  for (const std::uint64_t extent : header.shape)
    if (__builtin_mul_overflow(bytes, extent, &bytes))
      throw DamagedBytes(base, fmt::format("shape ({}) of '{}' has 2^64 bytes or more",
                                           fmt::join(header.shape, ", "), shown(header.descr)));
}

}  // namespace

std::uint64_t NpyHeader::element_count() const {
  if (std::find(shape.begin(), shape.end(), 0u) != shape.end()) return 0;
  std::uint64_t count = 1;
  for (const std::uint64_t extent : shape) count *= extent;  // read_npy_header has seen that it fits
  return count;
}

std::optional<std::uint64_t> NpyHeader::data_bytes() const {
  if (!element_bytes) return std::nullopt;
  return element_count() * *element_bytes;
}

NpyHeader read_npy_header(const ByteSource& source, std::uint64_t available) {
  std::array<std::byte, 12> start{};
  const auto need = [&](std::size_t first, std::size_t count, std::string_view what) {
    const std::size_t got = source(std::span(start).subspan(first, count));
    if (got < count)
      throw DamagedBytes(first + got, fmt::format("the data end in the {} of a .npy header", what));
  };
  need(0, 6, "magic string");
  if (std::memcmp(start.data(), magic.data(), magic.size()) != 0)
    throw DamagedBytes(
        0, fmt::format("bad magic {}, expected 93 4e 55 4d 50 59 (.npy)", hex(std::span(start).first(6))));
  need(6, 2, "version");
  const int major = std::to_integer<int>(start[6]), minor = std::to_integer<int>(start[7]);
  if (major < 1 || major > 3 || minor != 0)
    throw DamagedBytes(6, fmt::format("version {}.{} of .npy; known are 1.0, 2.0 and 3.0", major, minor));
  const std::size_t length_bytes = major == 1 ? 2 : 4;
  need(8, length_bytes, "length");
  std::uint64_t length = 0;
  for (std::size_t i = length_bytes; i-- > 0;)
    length = length << 8 | std::to_integer<std::uint64_t>(start[8 + i]);
  const std::uint64_t base = 8 + length_bytes;
  if (available < base || length > available - base)
    throw DamagedBytes(8, fmt::format("a header of {} bytes, but only {} follow", length,
                                      available < base ? 0 : available - base));
  if (length > header_limit)
    throw DamagedBytes(8, fmt::format("a header of {} bytes; at most {} are read", length, header_limit));

  std::string text(length, '\0');
  if (const std::size_t got = source(std::as_writable_bytes(std::span(text))); got < length)
    throw DamagedBytes(base + got, fmt::format("the data end in the header, which has {} bytes", length));
  if (text.empty() || text.back() != '\n')
    throw DamagedBytes(base + length - (length > 0 ? 1 : 0), "the header does not end with a newline");
  NpyHeader header;
  HeaderText(text, base).parse(header);
  header.data_offset = base + length;
  check_size(header, base);
  return header;
}

}  // namespace fp16lab
