// The content of a member of a ZIP archive: stored or deflated, with its length and CRC-32 checked.
#include <fmt/core.h>
#define ZLIB_CONST  // next_in points to const
#include <zlib.h>

#include <algorithm>
#include <array>
#include <limits>

#include "numerics/files/disk/zip_archive.hpp"
#include "numerics/text/text.hpp"

namespace fp16lab {
namespace {

constexpr std::uint16_t stored = 0, deflated = 8;

std::string name_of_method(std::uint16_t method) {
  switch (method) {
    case 9:
      return "9 (deflate64)";
    case 12:
      return "12 (bzip2)";
    case 14:
      return "14 (LZMA)";
    case 93:
      return "93 (Zstandard)";
    default:
      return fmt::format("{}", method);
  }
}

}  // namespace

struct ZipMemberReader::Inflater {
  Inflater() {
    // Negative: a raw deflate stream; the archive has the lengths and the checksum.
    if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) throw std::runtime_error("zlib: cannot start inflate");
  }
  ~Inflater() { inflateEnd(&stream); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  z_stream stream{};
  std::array<std::byte, std::size_t{1} << 16> input;
  bool ended = false;
};

ZipMemberReader::ZipMemberReader(const InputFile& file, const ZipMember& member)
    : file_(file), member_(member) {
  if (member.encrypted) fail("encrypted members are not read");
  if (member.method == deflated)
    inflater_ = std::make_unique<Inflater>();
  else if (member.method != stored)
    fail(fmt::format("compression method {}; stored (0) and deflated (8) are read",
                     name_of_method(member.method)));
  crc32_ = static_cast<std::uint32_t>(::crc32(0, nullptr, 0));
}

ZipMemberReader::~ZipMemberReader() = default;

void ZipMemberReader::fail(const std::string& what) const {
  file_.fail_at(member_.data_offset + consumed_, fmt::format("member '{}': {}", shown(member_.name), what));
}

std::size_t ZipMemberReader::read(std::span<std::byte> out) {
  const std::size_t count = inflater_ ? read_deflated(out) : read_stored(out);
  for (std::span<std::byte> rest = out.first(count); !rest.empty();) {
    const std::size_t piece = std::min<std::size_t>(rest.size(), std::numeric_limits<uInt>::max());
    crc32_ = static_cast<std::uint32_t>(
        ::crc32(crc32_, reinterpret_cast<const Bytef*>(rest.data()), static_cast<uInt>(piece)));
    rest = rest.subspan(piece);
  }
  delivered_ += count;
  if (delivered_ == member_.size && !checked_) {
    checked_ = true;
    check_end();
  }
  return count;
}

std::size_t ZipMemberReader::read_stored(std::span<std::byte> out) {
  const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(out.size(), member_.size - consumed_));
  file_.read(member_.data_offset + consumed_, out.first(count));
  consumed_ += count;
  return count;
}

void ZipMemberReader::feed() {
  z_stream& stream = inflater_->stream;
  if (stream.avail_in > 0 || consumed_ == member_.compressed_size) return;
  const std::uint64_t left = member_.compressed_size - consumed_;
  const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(inflater_->input.size(), left));
  file_.read(member_.data_offset + consumed_, std::span(inflater_->input).first(count));
  consumed_ += count;
  stream.next_in = reinterpret_cast<const Bytef*>(inflater_->input.data());
  stream.avail_in = static_cast<uInt>(count);
}

std::size_t ZipMemberReader::read_deflated(std::span<std::byte> out) {
  out = out.first(static_cast<std::size_t>(std::min<std::uint64_t>(out.size(), member_.size - delivered_)));
  z_stream& stream = inflater_->stream;
  std::size_t done = 0;
  while (done < out.size()) {
    if (inflater_->ended)
      fail(fmt::format("the deflated data end after {} bytes of content, expected {}", delivered_ + done,
                       member_.size));
    feed();
    const std::size_t room = std::min<std::size_t>(out.size() - done, std::numeric_limits<uInt>::max());
    stream.next_out = reinterpret_cast<Bytef*>(out.data() + done);
    stream.avail_out = static_cast<uInt>(room);
    const int code = inflate(&stream, Z_NO_FLUSH);
    done += room - stream.avail_out;
    if (code == Z_STREAM_END) {
      inflater_->ended = true;
    } else if (code == Z_BUF_ERROR && consumed_ == member_.compressed_size) {
      fail(fmt::format("its {} bytes end in the middle of the deflated data", member_.compressed_size));
    } else if (code != Z_OK && code != Z_BUF_ERROR) {
      consumed_ -= stream.avail_in;  // for the message
      fail(fmt::format("damaged deflated data ({})", stream.msg != nullptr ? stream.msg : zError(code)));
    }
  }
  return done;
}

void ZipMemberReader::check_end() {
  if (inflater_) {
    // The end of the stream may still be unread: it must come without another byte of content.
    z_stream& stream = inflater_->stream;
    while (!inflater_->ended) {
      feed();
      Bytef more = 0;
      stream.next_out = &more;
      stream.avail_out = 1;
      const int code = inflate(&stream, Z_NO_FLUSH);
      if (stream.avail_out == 0) fail(fmt::format("more than its {} bytes of content", member_.size));
      if (code == Z_STREAM_END)
        inflater_->ended = true;
      else if (code != Z_OK && (code != Z_BUF_ERROR || consumed_ == member_.compressed_size))
        fail("the deflated data do not end where they should");
    }
    const std::uint64_t unused = stream.avail_in + (member_.compressed_size - consumed_);
    consumed_ -= stream.avail_in;
    if (unused > 0) fail(fmt::format("{} bytes after the end of its deflated data", unused));
  }
  if (crc32_ != member_.crc32)
    fail(fmt::format("the content has CRC-32 {:08x}, expected {:08x}; it is damaged", crc32_, member_.crc32));
}

}  // namespace fp16lab
