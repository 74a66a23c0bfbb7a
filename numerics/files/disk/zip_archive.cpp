#include "numerics/files/disk/zip_archive.hpp"
#include "numerics/text/text.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <string_view>
#include <unordered_set>

namespace fp16lab {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are read as they lie in the file");

constexpr std::uint32_t local_signature = 0x04034b50, central_signature = 0x02014b50,
                        end_signature = 0x06054b50, end64_signature = 0x06064b50,
                        locator_signature = 0x07064b50, descriptor_signature = 0x08074b50;
constexpr std::uint64_t local_length = 30, central_length = 46, end_length = 22, end64_length = 56,
                        locator_length = 20;
constexpr std::uint64_t longest_comment = 0xffff;
constexpr std::uint16_t zip64_extra = 1;
constexpr std::uint16_t flag_encrypted = 1u << 0, flag_descriptor = 1u << 3;
constexpr std::uint32_t saturated32 = 0xffffffff;
constexpr std::uint16_t saturated16 = 0xffff;
/// Enough for about a million arrays. Only the directory is held in memory.
constexpr std::uint64_t directory_limit = std::uint64_t{64} << 20;
/// Deflate cannot expand more (RFC 1951: 258 bytes for a match of two bits).
constexpr std::uint64_t max_deflate_ratio = 1032;

using Bytes = std::vector<std::byte>;

template <class T>
T number_at(std::span<const std::byte> bytes, std::uint64_t offset) {
  T value;
  std::memcpy(&value, bytes.subspan(offset, sizeof(T)).data(), sizeof(T));
  return value;
}
std::uint16_t u16(std::span<const std::byte> bytes, std::uint64_t offset) {
  return number_at<std::uint16_t>(bytes, offset);
}
std::uint32_t u32(std::span<const std::byte> bytes, std::uint64_t offset) {
  return number_at<std::uint32_t>(bytes, offset);
}
std::uint64_t u64(std::span<const std::byte> bytes, std::uint64_t offset) {
  return number_at<std::uint64_t>(bytes, offset);
}

Bytes read_bytes(const InputFile& file, std::uint64_t offset, std::uint64_t count) {
  Bytes bytes(count);
  file.read(offset, bytes);
  return bytes;
}

std::string text_of(std::span<const std::byte> bytes) {
  std::string text(bytes.size(), '\0');
  if (!bytes.empty()) std::memcpy(text.data(), bytes.data(), bytes.size());
  return text;
}

/// The place of the central directory.
struct Directory {
  std::uint64_t entries = 0;
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
};

/// The end record is the last thing in the file but for a comment of a length that it says.
std::uint64_t find_end_record(const InputFile& file) {
  const std::uint64_t tail_length = std::min(file.size(), end_length + longest_comment);
  const std::uint64_t tail_begin = file.size() - tail_length;
  const Bytes tail = read_bytes(file, tail_begin, tail_length);
  if (tail_length >= end_length)
    for (std::uint64_t i = tail_length - end_length + 1; i-- > 0;)
      if (u32(tail, i) == end_signature && i + end_length + u16(tail, i + 20) == tail_length)
        return tail_begin + i;
  file.fail_at(
      tail_begin,
      "no end record of a ZIP archive from here to the end; the file is cut off or of another format");
}

Directory find_directory(const InputFile& file) {
  const std::uint64_t end_offset = find_end_record(file);
  const Bytes end = read_bytes(file, end_offset, end_length);
  Directory directory{.entries = u16(end, 10), .offset = u32(end, 16), .size = u32(end, 12)};
  if (u16(end, 4) != u16(end, 6) || u16(end, 8) != u16(end, 10))
    file.fail_at(end_offset + 4, "an archive of several parts, which is not read");
  std::uint64_t directory_end = end_offset;
  if (directory.entries == saturated16 || directory.offset == saturated32 || directory.size == saturated32) {
    const std::uint64_t locator_offset = end_offset - std::min(end_offset, locator_length);
    const Bytes locator = read_bytes(file, locator_offset, std::min(end_offset, locator_length));
    if (locator.size() == locator_length && u32(locator, 0) == locator_signature) {
      const std::uint64_t end64_offset = u64(locator, 8);
      if (locator_offset < end64_length || end64_offset > locator_offset - end64_length)
        file.fail_at(locator_offset + 8,
                     fmt::format("the ZIP64 end record is said to be at byte {}, which is not before this",
                                 end64_offset));
      const Bytes end64 = read_bytes(file, end64_offset, end64_length);
      if (u32(end64, 0) != end64_signature)
        file.fail_at(end64_offset, "no ZIP64 end record where the locator has it");
      if (u32(end64, 16) != 0 || u32(end64, 20) != 0 || u64(end64, 24) != u64(end64, 32))
        file.fail_at(end64_offset + 16, "an archive of several parts, which is not read");
      directory = {.entries = u64(end64, 32), .offset = u64(end64, 48), .size = u64(end64, 40)};
      directory_end = end64_offset;
    }
  }
  if (directory.offset > directory_end || directory.size != directory_end - directory.offset)
    file.fail_at(end_offset,
                 fmt::format("the central directory is said to have {} bytes at byte {}, but ends at byte {}",
                             directory.size, directory.offset, directory_end));
  if (directory.size > directory_limit)
    file.fail_at(end_offset, fmt::format("a central directory of {} bytes; at most {} are read",
                                         directory.size, directory_limit));
  if (directory.entries > directory.size / central_length)
    file.fail_at(end_offset,
                 fmt::format("{} members in a central directory of {} bytes, which has room for {}",
                             directory.entries, directory.size, directory.size / central_length));
  return directory;
}

/// Replaces the saturated ones of `fields`, in their order, by those of the ZIP64 extra field.
bool read_zip64(std::span<const std::byte> extra, std::span<std::uint64_t* const> fields) {
  const auto wanted =
      std::count_if(fields.begin(), fields.end(), [](const auto* f) { return *f == saturated32; });
  if (wanted == 0) return true;
  while (extra.size() >= 4) {
    const std::uint64_t length = u16(extra, 2);
    if (length > extra.size() - 4) return false;
    if (u16(extra, 0) == zip64_extra) {
      const std::span<const std::byte> values = extra.subspan(4, length);
      std::uint64_t at = 0;
      for (std::uint64_t* field : fields) {
        if (*field != saturated32) continue;
        if (values.size() - at < 8) return false;
        *field = u64(values, at);
        at += 8;
      }
      return true;
    }
    extra = extra.subspan(4 + length);
  }
  return false;
}

std::string at(const ZipMember& member) { return fmt::format("member '{}'", shown(member.name)); }

/// Length of the data descriptor after the data, or 0 if the bytes there are none of this member's. Its
/// signature is optional, and its sizes have four or eight bytes.
std::uint64_t descriptor_length(const InputFile& file, const ZipMember& member, std::uint64_t offset,
                                std::uint64_t limit) {
  const Bytes bytes = read_bytes(file, offset, std::min<std::uint64_t>(24, limit - offset));
  for (const std::uint64_t signature : {4, 0})
    for (const std::uint64_t width : {8, 4}) {
      const std::uint64_t length = signature + 4 + 2 * width;
      if (bytes.size() < length || (signature > 0 && u32(bytes, 0) != descriptor_signature)) continue;
      const auto size = [&](std::uint64_t i) {
        return width == 8 ? u64(bytes, i) : std::uint64_t{u32(bytes, i)};
      };
      if (u32(bytes, signature) == member.crc32 && size(signature + 4) == member.compressed_size &&
          size(signature + 4 + width) == member.size)
        return length;
    }
  return 0;
}

/// Compares the local header with `member`, sets data_offset and returns where the member ends. `limit`:
/// where members must end.
std::uint64_t check_local_header(const InputFile& file, ZipMember& member, std::uint64_t limit) {
  const std::uint64_t offset = member.header_offset;
  const auto fail = [&](std::uint64_t where, const std::string& what) {
    file.fail_at(where, fmt::format("{}: {}", at(member), what));
  };
  if (offset > limit || limit - offset < local_length)
    fail(offset,
         fmt::format("its local header is not before the central directory, which is at byte {}", limit));
  const Bytes header = read_bytes(file, offset, local_length);
  if (u32(header, 0) != local_signature)
    fail(offset, "no local header here, where the central directory has it");
  const std::uint64_t name_length = u16(header, 26), extra_length = u16(header, 28);
  if (name_length + extra_length > limit - offset - local_length)
    fail(offset + 26, "its local header does not end");
  const Bytes rest = read_bytes(file, offset + local_length, name_length + extra_length);
  if (text_of(std::span(rest).first(name_length)) != member.name)
    fail(offset + local_length, "another name in its local header");
  if (u16(header, 8) != member.method)
    fail(offset + 8, fmt::format("compression method {} in its local header, {} in the central directory",
                                 u16(header, 8), member.method));
  member.data_offset = offset + local_length + name_length + extra_length;
  if (member.compressed_size > limit - member.data_offset)
    fail(member.data_offset,
         fmt::format("its {} bytes do not end before the central directory, which is at byte {}",
                     member.compressed_size, limit));
  const std::uint64_t data_end = member.data_offset + member.compressed_size;
  if ((u16(header, 6) & flag_descriptor) != 0) {
    const std::uint64_t length = descriptor_length(file, member, data_end, limit);
    if (length == 0) fail(data_end, "no data descriptor here that agrees with the central directory");
    return data_end + length;
  }
  std::uint64_t compressed_size = u32(header, 18), size = u32(header, 22);
  std::uint64_t* const fields[] = {&size, &compressed_size};
  if (!read_zip64(std::span(rest).subspan(name_length), fields))
    fail(offset + 26, "its ZIP64 extra field is damaged");
  if (u32(header, 14) != member.crc32 || compressed_size != member.compressed_size || size != member.size)
    fail(offset + 14,
         fmt::format("CRC-32 {:08x}, {} bytes of {} in its local header; {:08x}, {} of {} in the central "
                     "directory",
                     u32(header, 14), compressed_size, size, member.crc32, member.compressed_size,
                     member.size));
  return data_end;
}

}  // namespace

std::vector<ZipMember> read_zip_directory(const InputFile& file) {
  const Directory directory = find_directory(file);
  const Bytes bytes = read_bytes(file, directory.offset, directory.size);
  std::vector<ZipMember> members;
  std::unordered_set<std::string> names;
  std::uint64_t position = 0;
  for (std::uint64_t i = 0; i < directory.entries; ++i) {
    const std::uint64_t offset = directory.offset + position;
    if (bytes.size() - position < central_length || u32(bytes, position) != central_signature)
      file.fail_at(offset,
                   fmt::format("no entry of the central directory here, where member {} of {} should be",
                               i + 1, directory.entries));
    const std::span<const std::byte> entry = std::span(bytes).subspan(position);
    const std::uint64_t name_length = u16(entry, 28), extra_length = u16(entry, 30),
                        comment_length = u16(entry, 32);
    const std::uint64_t length = central_length + name_length + extra_length + comment_length;
    if (length > entry.size())
      file.fail_at(offset + 28, "an entry that reaches beyond the central directory");
    ZipMember member{.name = text_of(entry.subspan(central_length, name_length)),
                     .method = u16(entry, 10),
                     .encrypted = (u16(entry, 8) & flag_encrypted) != 0,
                     .crc32 = u32(entry, 16),
                     .compressed_size = u32(entry, 20),
                     .size = u32(entry, 24),
                     .header_offset = u32(entry, 42)};
    std::uint64_t* const fields[] = {&member.size, &member.compressed_size, &member.header_offset};
    if (!read_zip64(entry.subspan(central_length + name_length, extra_length), fields))
      file.fail_at(offset + 30, fmt::format("{}: its ZIP64 extra field is missing or damaged", at(member)));
    if (member.name.find('\0') != std::string::npos)
      file.fail_at(offset + central_length, fmt::format("{}: a zero byte in the name", at(member)));
    if (!names.insert(member.name).second)
      file.fail_at(offset, fmt::format("{}: the name occurs twice", at(member)));
    if (member.method == 0 && member.size != member.compressed_size)
      file.fail_at(offset + 20, fmt::format("{}: stored, but {} bytes of content in {}", at(member),
                                            member.size, member.compressed_size));
    if (member.method == 8 && member.size / max_deflate_ratio > member.compressed_size)
      file.fail_at(offset + 20, fmt::format("{}: {} bytes of content cannot be deflated to {}", at(member),
                                            member.size, member.compressed_size));
    members.push_back(std::move(member));
    position += length;
  }
  if (position != bytes.size())
    file.fail_at(directory.offset + position,
                 fmt::format("{} bytes after the {} members of the central directory",
                             bytes.size() - position, directory.entries));

  struct Extent {
    std::uint64_t begin, end;
    const ZipMember* member;
  };
  std::vector<Extent> extents;
  for (ZipMember& member : members) {
    const std::uint64_t end = check_local_header(file, member, directory.offset);
    extents.push_back({member.header_offset, end, &member});
  }
  std::sort(extents.begin(), extents.end(),
            [](const Extent& a, const Extent& b) { return a.begin < b.begin; });
  for (std::size_t i = 1; i < extents.size(); ++i)
    if (extents[i].begin < extents[i - 1].end)
      file.fail_at(extents[i].begin,
                   fmt::format("{} begins before {} ends, at byte {}", at(*extents[i].member),
                               at(*extents[i - 1].member), extents[i - 1].end));
  return members;
}

}  // namespace fp16lab
