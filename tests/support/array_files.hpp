// .npy, .npz and .safetensors files put together byte by byte, without the code that reads them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fp16lab::testing_support {

/// The `count` low bytes of a number, lowest first.
inline std::string little_endian(std::uint64_t number, int count) {
  std::string bytes;
  for (int i = 0; i < count; ++i) bytes += static_cast<char>(number >> (8 * i) & 0xff);
  return bytes;
}

/// Bytes from hexadecimal digits; white space between them is skipped.
inline std::string from_hex(const std::string& digits) {
  std::string bytes, pair;
  for (const char c : digits) {
    if (c == ' ' || c == '\n') continue;
    pair += c;
    if (pair.size() < 2) continue;
    bytes += static_cast<char>(std::stoi(pair, nullptr, 16));
    pair.clear();
  }
  return bytes;
}

/// A header of version 1.0, 2.0 or 3.0 whose dict is `dict`, padded to a multiple of 64 bytes as numpy does.
inline std::string npy_header(const std::string& dict, int version = 1) {
  const int length_bytes = version == 1 ? 2 : 4;
  std::string text = dict;
  while ((8 + static_cast<std::size_t>(length_bytes) + text.size() + 1) % 64 != 0) text += ' ';
  text += '\n';
  return "\x93NUMPY" + little_endian(static_cast<std::uint64_t>(version), 2) +
         little_endian(text.size(), length_bytes) + text;
}

/// npy("<f4", "(2,)", data): a whole file.
inline std::string npy(const std::string& descr, const std::string& shape, const std::string& data,
                       bool fortran_order = false, int version = 1) {
  return npy_header("{'descr': '" + descr + "', 'fortran_order': " + (fortran_order ? "True" : "False") +
                        ", 'shape': " + shape + ", }",
                    version) +
         data;
}

/// CRC-32 of ISO 3309, one bit at a time.
inline std::uint32_t crc32_of(const std::string& bytes) {
  std::uint32_t crc = 0xffffffff;
  for (const char c : bytes) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1) != 0 ? 0xedb88320u : 0u);
  }
  return ~crc;
}

/// A deflate stream of uncompressed blocks (RFC 1951, 3.2.4).
inline std::string deflated_in_stored_blocks(const std::string& content) {
  std::string stream;
  std::size_t at = 0;
  do {
    const std::size_t length = std::min<std::size_t>(content.size() - at, 1000);
    stream += at + length == content.size() ? '\1' : '\0';
    stream += little_endian(length, 2) + little_endian(~length, 2) + content.substr(at, length);
    at += length;
  } while (at < content.size());
  return stream;
}

struct ZipEntry {
  std::string name;
  std::string data;  ///< as it is in the archive
  std::uint64_t size = 0;
  std::uint32_t crc32 = 0;
  int method = 0;
  int flags = 0;            ///< bit 3: a data descriptor follows
  int descriptor_size = 4;  ///< bytes of its sizes: 4 or 8
  bool descriptor_signature = true;
  bool zip64 = false;  ///< sizes in the extra fields
};

inline ZipEntry stored(const std::string& name, const std::string& content) {
  return {.name = name, .data = content, .size = content.size(), .crc32 = crc32_of(content)};
}
inline ZipEntry deflated(const std::string& name, const std::string& content) {
  return {.name = name,
          .data = deflated_in_stored_blocks(content),
          .size = content.size(),
          .crc32 = crc32_of(content),
          .method = 8};
}

/// `zip64_end`: with the ZIP64 end record and its locator.
inline std::string zip(const std::vector<ZipEntry>& entries, bool zip64_end = false,
                       const std::string& comment = "") {
  std::string file, directory;
  const std::string times(4, '\0'), version = little_endian(45, 2);
  for (const ZipEntry& entry : entries) {
    const bool descriptor = (entry.flags & 8) != 0;
    const auto common = [&](bool local) {
      const bool saturated = entry.zip64;
      const std::string sizes = saturated ? std::string(8, '\xff')
                                : local && descriptor
                                    ? std::string(8, '\0')
                                    : little_endian(entry.data.size(), 4) + little_endian(entry.size, 4);
      return version + little_endian(static_cast<std::uint64_t>(entry.flags), 2) +
             little_endian(static_cast<std::uint64_t>(entry.method), 2) + times +
             little_endian(local && descriptor ? 0 : entry.crc32, 4) + sizes +
             little_endian(entry.name.size(), 2) + little_endian(entry.zip64 ? (local ? 20 : 28) : 0, 2);
    };
    const std::string sizes64 = little_endian(entry.size, 8) + little_endian(entry.data.size(), 8);
    const std::uint64_t offset = file.size();
    file += "PK\3\4" + common(true) + entry.name;
    if (entry.zip64) file += little_endian(1, 2) + little_endian(16, 2) + sizes64;
    file += entry.data;
    if (descriptor)
      file += (entry.descriptor_signature ? "PK\7\b" : "") + little_endian(entry.crc32, 4) +
              little_endian(entry.data.size(), entry.descriptor_size) +
              little_endian(entry.size, entry.descriptor_size);
    directory += "PK\1\2" + version + common(false) + std::string(10, '\0') +
                 (entry.zip64 ? std::string(4, '\xff') : little_endian(offset, 4)) + entry.name;
    if (entry.zip64)
      directory += little_endian(1, 2) + little_endian(24, 2) + sizes64 + little_endian(offset, 8);
  }
  const std::uint64_t begin = file.size(), count = entries.size();
  file += directory;
  if (zip64_end) {
    const std::uint64_t end64 = file.size();
    file += "PK\6\6" + little_endian(44, 8) + version + version + std::string(8, '\0') +
            little_endian(count, 8) + little_endian(count, 8) + little_endian(directory.size(), 8) +
            little_endian(begin, 8);
    file += "PK\6\7" + std::string(4, '\0') + little_endian(end64, 8) + little_endian(1, 4);
    file += "PK\5\6" + std::string(4, '\0') + std::string(12, '\xff');
  } else {
    file += "PK\5\6" + std::string(4, '\0') + little_endian(count, 2) + little_endian(count, 2) +
            little_endian(directory.size(), 4) + little_endian(begin, 4);
  }
  return file + little_endian(comment.size(), 2) + comment;
}

/// A header, not padded, and the data.
inline std::string safetensors(const std::string& header, const std::string& data) {
  return little_endian(header.size(), 8) + header + data;
}

}  // namespace fp16lab::testing_support
