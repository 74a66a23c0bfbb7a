#include "engine/data/idx.hpp"

#include <fmt/format.h>
#define ZLIB_CONST  // next_in points to const
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string_view>

#include "numerics/files/disk/input_file.hpp"
#include "numerics/files/disk/read_file.hpp"
#include "numerics/text/text.hpp"

namespace fp16lab::engine::data {
namespace {

constexpr std::uint32_t unsigned_byte_code = 0x08;
constexpr int most_dimensions = 8;
/// Deflate cannot expand more than 1032:1 (RFC 1951: 258 bytes for a match of two bits), so a header that
/// promises more than that is wrong before a byte of it is allocated.
constexpr std::uint64_t max_deflate_ratio = 1032;
constexpr std::uint64_t beyond_any_file = std::uint64_t{1} << 62;

class Source {
 public:
  virtual ~Source() = default;
  /// Up to `size` bytes; fewer only at the end.
  virtual std::size_t read(std::uint8_t* out, std::size_t size) = 0;
  /// An upper bound of the bytes still to come.
  virtual std::uint64_t remaining_at_most() const = 0;
};

class PlainSource final : public Source {
 public:
  explicit PlainSource(std::string_view bytes) : rest_(bytes) {}
  std::size_t read(std::uint8_t* out, std::size_t size) override {
    const std::size_t count = std::min(size, rest_.size());
    if (count > 0) std::memcpy(out, rest_.data(), count);
    rest_.remove_prefix(count);
    return count;
  }
  std::uint64_t remaining_at_most() const override { return rest_.size(); }

 private:
  std::string_view rest_;
};

class GzipSource final : public Source {
 public:
  GzipSource(std::string_view bytes, std::string name) : bytes_(bytes), name_(std::move(name)) {
    // 16 + MAX_WBITS: a gzip wrapper with its CRC and length checked by zlib.
    if (inflateInit2(&stream_, 16 + MAX_WBITS) != Z_OK)
      throw std::runtime_error("zlib: cannot start inflate");
    stream_.next_in = reinterpret_cast<const Bytef*>(bytes_.data());
    feed();
  }
  ~GzipSource() override { inflateEnd(&stream_); }
  GzipSource(const GzipSource&) = delete;
  GzipSource& operator=(const GzipSource&) = delete;

  std::size_t read(std::uint8_t* out, std::size_t size) override {
    std::size_t done = 0;
    while (done < size && !ended_) {
      const std::size_t room = std::min<std::size_t>(size - done, std::numeric_limits<uInt>::max());
      stream_.next_out = out + done;
      stream_.avail_out = static_cast<uInt>(room);
      if (stream_.avail_in == 0) feed();
      const int code = inflate(&stream_, Z_NO_FLUSH);
      done += room - stream_.avail_out;
      if (code == Z_STREAM_END) {
        ended_ = true;
        if (consumed() != bytes_.size())
          throw std::runtime_error(
              fmt::format("{}: {} bytes after the end of the gzip stream at compressed byte {}", name_,
                          bytes_.size() - consumed(), consumed()));
      } else if (code == Z_BUF_ERROR && stream_.avail_in == 0 && consumed() == bytes_.size()) {
        throw std::runtime_error(fmt::format(
            "{}: truncated gzip file: its {} bytes end in the middle of the stream", name_, bytes_.size()));
      } else if (code != Z_OK && code != Z_BUF_ERROR) {
        throw std::runtime_error(fmt::format("{}: damaged gzip data at compressed byte {} of {} ({})", name_,
                                             consumed(), bytes_.size(),
                                             stream_.msg != nullptr ? stream_.msg : zError(code)));
      }
    }
    return done;
  }
  std::uint64_t remaining_at_most() const override {
    return std::uint64_t{bytes_.size()} * max_deflate_ratio;
  }

 private:
  std::size_t consumed() const {
    return static_cast<std::size_t>(reinterpret_cast<const char*>(stream_.next_in) - bytes_.data());
  }
  void feed() {
    stream_.avail_in = static_cast<uInt>(
        std::min<std::size_t>(bytes_.size() - consumed(), std::numeric_limits<uInt>::max()));
  }

  z_stream stream_{};
  std::string_view bytes_;
  std::string name_;
  bool ended_ = false;
};

std::uint32_t big_endian(const std::uint8_t* bytes) {
  return std::uint32_t{bytes[0]} << 24 | std::uint32_t{bytes[1]} << 16 | std::uint32_t{bytes[2]} << 8 |
         bytes[3];
}

}  // namespace

bool is_idx_file(const std::filesystem::path& path) {
  const InputFile file(path);
  std::array<std::byte, 3> start{};
  if (file.size() < start.size()) return false;
  file.read(0, start);
  const auto is = [&](unsigned a, unsigned b) {
    return std::to_integer<unsigned>(start[0]) == a && std::to_integer<unsigned>(start[1]) == b;
  };
  return is(0x1f, 0x8b) || (is(0, 0) && std::to_integer<unsigned>(start[2]) == unsigned_byte_code);
}

IdxArray read_idx(const std::filesystem::path& path, int dimensions) {
  const std::string name = path.string();
  const std::string bytes = read_file(path, longest::data);
  std::unique_ptr<Source> source;
  if (bytes.size() >= 2 && bytes[0] == '\x1f' && bytes[1] == '\x8b')
    source = std::make_unique<GzipSource>(bytes, name);
  else
    source = std::make_unique<PlainSource>(bytes);

  // Header.
  std::array<std::uint8_t, 4> word{};
  std::size_t got = source->read(word.data(), word.size());
  if (got < word.size())
    throw std::runtime_error(
        fmt::format("{}: truncated at byte {}: the magic number needs 4 bytes", name, got));
  const std::uint32_t magic = big_endian(word.data());
  const bool any = dimensions == 0;
  if (any) dimensions = std::clamp<int>(word[3], 1, most_dimensions);
  const std::uint32_t expected_magic = unsigned_byte_code << 8 | static_cast<std::uint32_t>(dimensions);
  if (magic != expected_magic)
    throw std::runtime_error(
        fmt::format("{}: wrong magic number at byte 0: expected 0x{:08x} (IDX, unsigned bytes, {}{}), "
                    "got 0x{:08x}",
                    name, expected_magic, counted(dimensions, "dimension"),
                    any ? fmt::format(" of 1 to {}", most_dimensions) : "", magic));
  IdxArray array;
  std::uint64_t size = 1;
  const std::uint64_t header = 4 + 4 * static_cast<std::uint64_t>(dimensions);
  for (int axis = 0; axis < dimensions; ++axis) {
    const std::uint64_t offset = 4 + 4 * static_cast<std::uint64_t>(axis);
    got = source->read(word.data(), word.size());
    if (got < word.size())
      throw std::runtime_error(
          fmt::format("{}: truncated at byte {}: the header needs {} bytes", name, offset + got, header));
    const std::uint32_t extent = big_endian(word.data());
    if (extent == 0)
      throw std::runtime_error(
          fmt::format("{}: impossible size at byte {}: extent {} is 0", name, offset, axis));
    array.extents.push_back(extent);
    size = extent > beyond_any_file / size ? beyond_any_file : size * extent;
  }
  if (size > source->remaining_at_most())
    throw std::runtime_error(
        fmt::format("{}: truncated, or an impossible size at byte 4: expected {} = {} elements, at most {} "
                    "can follow the header",
                    name, fmt::join(array.extents, " x "), size, source->remaining_at_most()));

  // Elements, and nothing after them.
  array.values.resize(static_cast<std::size_t>(size));
  got = source->read(array.values.data(), array.values.size());
  if (got < array.values.size())
    throw std::runtime_error(fmt::format("{}: truncated at byte {}: expected {} elements ({}), got {}", name,
                                         header + got, size, fmt::join(array.extents, " x "), got));
  std::array<std::uint8_t, 4096> tail{};
  std::uint64_t trailing = 0;
  while ((got = source->read(tail.data(), tail.size())) > 0) trailing += got;
  if (trailing > 0)
    throw std::runtime_error(
        fmt::format("{}: {} trailing bytes at byte {}: expected the end after {} elements ({})", name,
                    trailing, header + size, size, fmt::join(array.extents, " x ")));
  return array;
}

}  // namespace fp16lab::engine::data
