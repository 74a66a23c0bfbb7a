#include "numerics/files/arrays/array_source.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "numerics/files/arrays/safetensors.hpp"
#include "numerics/files/disk/zip_archive.hpp"
#include "numerics/text/text.hpp"

namespace fp16lab {
namespace {

std::string refusal_of(const NpyHeader& header) {
  const bool ordered = header.byte_order == '<' || header.byte_order == '>' || header.byte_order == '=';
  const std::uint64_t bytes = header.element_bytes.value_or(0);
  switch (header.kind) {
    case 'f':
      if (bytes != 2u && bytes != 4u && bytes != 8u)
        return "only floating-point numbers of 2, 4 and 8 bytes are counted";
      return ordered ? "" : "its type has no byte order";
    case 'i':
    case 'u':
      return "integers";
    case 'b':
      return "booleans";
    case 'c':
      return "complex numbers; save real and imaginary parts";
    case 'O':
      return "pickled Python objects, which are never loaded";
    case 'V':
      return "raw bytes, and numpy has no BF16 or FP8";
    case 'S':
    case 'U':
      return "text";
    case 'M':
    case 'm':
      return "times";
    default:
      return header.descr.starts_with('[') ? "a structured type" : "an unknown type";
  }
}

/// The element type of plain numbers.
std::optional<DType> element_of(const NpyHeader& header) {
  const std::uint64_t bytes = header.element_bytes.value_or(0);
  if (bytes > 1 && header.byte_order != '<' && header.byte_order != '>' && header.byte_order != '=')
    return std::nullopt;
  const auto kind_of = [](DType type) {
    if (type == DType::boolean) return 'b';
    if (is_floating(type)) return size_of(type) == 1 || type == DType::bf16 ? '\0' : 'f';
    return name_of(type).front();  // i or u, as in numpy
  };
  for (const DType type : dtypes<is_file_type>)
    if (kind_of(type) == header.kind && size_of(type) == bytes) return type;
  return std::nullopt;
}

/// Refuses an array whose elements are not `available` bytes; `base` is added to the offsets of messages.
void check_data_bytes(const NpyHeader& header, std::uint64_t available) {
  const std::optional<std::uint64_t> expected = header.data_bytes();
  if (!expected || *expected == available) return;
  const std::string what = array_info(header, "").describe();
  if (*expected > available)
    throw DamagedBytes(
        header.data_offset + available,
        fmt::format("the data end here, after {} of the {} bytes of {}", available, *expected, what));
  throw DamagedBytes(header.data_offset + *expected,
                     fmt::format("{} bytes after the {} bytes of {}; one file holds one array",
                                 available - *expected, *expected, what));
}

/// The bytes [begin, end) of a file, one piece after the other.
ByteSource bytes_between(const InputFile& file, std::uint64_t begin, std::uint64_t end) {
  return [&file, begin, end](std::span<std::byte> out) mutable {
    const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(out.size(), end - begin));
    file.read(begin, out.first(count));
    begin += count;
    return count;
  };
}

class NpySource final : public ArrayFile::Source {
 public:
  explicit NpySource(const std::filesystem::path& path) : file_(path) {
    try {
      header_ = read_npy_header(bytes_between(file_, 0, file_.size()), file_.size());
      check_data_bytes(header_, file_.size() - header_.data_offset);
    } catch (const DamagedBytes& damage) {
      file_.fail_at(damage.offset(), damage.what());
    }
    arrays.push_back(array_info(header_, path.stem().string()));
    arrays.back().data_offset = header_.data_offset;
  }
  const std::filesystem::path& path() const override { return file_.path(); }
  ArrayFormat format() const override { return ArrayFormat::npy; }
  void with_bytes(std::size_t, const std::function<void(const ByteSource&)>& read) const override {
    read(bytes_between(file_, header_.data_offset, file_.size()));
  }

 private:
  InputFile file_;
  NpyHeader header_;
};

class NpzSource final : public ArrayFile::Source {
 public:
  explicit NpzSource(const std::filesystem::path& path) : file_(path) {
    for (ZipMember& member : read_zip_directory(file_)) {
      if (!member.name.ends_with(npy_ending)) {
        other_members.push_back(std::move(member.name));
        continue;
      }
      ZipMemberReader reader(file_, member);
      const ByteSource bytes = [&reader](std::span<std::byte> out) { return reader.read(out); };
      NpyHeader header;
      try {
        header = read_npy_header(bytes, member.size);
        check_data_bytes(header, member.size - header.data_offset);
      } catch (const DamagedBytes& damage) {
        // A stored member has its content in the file as it is; the bytes of a deflated one have no place
        // there.
        const std::string name = fmt::format("member '{}'", shown(member.name));
        if (member.method == 0)
          file_.fail_at(member.data_offset + damage.offset(), fmt::format("{}: {}", name, damage.what()));
        file_.fail_at(member.data_offset, fmt::format("{}: byte {} of its inflated content: {}", name,
                                                      damage.offset(), damage.what()));
      }
      const std::string_view name = member.name;
      arrays.push_back(array_info(header, std::string(name.substr(0, name.size() - npy_ending.size()))));
      if (member.method == 0) arrays.back().data_offset = member.data_offset + header.data_offset;
      data_offsets_.push_back(header.data_offset);
      members_.push_back(std::move(member));
    }
  }
  const std::filesystem::path& path() const override { return file_.path(); }
  ArrayFormat format() const override { return ArrayFormat::npz; }
  void with_bytes(std::size_t index, const std::function<void(const ByteSource&)>& read) const override {
    ZipMemberReader reader(file_, members_[index]);
    std::vector<std::byte> header(data_offsets_[index]);  // its checksum covers the header too
    reader.read(header);
    read([&reader](std::span<std::byte> out) { return reader.read(out); });
  }

 private:
  InputFile file_;
  std::vector<ZipMember> members_;  ///< of `arrays`
  std::vector<std::uint64_t> data_offsets_;
};

class SafetensorsSourceOfArrays final : public ArrayFile::Source {
 public:
  explicit SafetensorsSourceOfArrays(const std::filesystem::path& path) : reader_(path) {
    metadata = reader_.metadata();
    arrays.reserve(reader_.entries().size());
    for (const SafetensorsEntry& entry : reader_.entries()) {
      ArrayInfo info{.name = entry.name, .dtype = entry.dtype, .shape = entry.shape};
      info.element = entry.type;
      if (entry.type != DType::e2m1) info.data_offset = reader_.offset_of(entry);
      if (!entry.type)
        info.refusal = "its type is not counted";
      else if (is_floating(*entry.type))
        info.type = entry.type;
      else
        info.refusal = entry.type == DType::boolean ? "booleans" : "integers";
      if (entry.type && *entry.type != DType::boolean) info.element_bytes = size_of(*entry.type);
      arrays.push_back(std::move(info));
    }
  }
  const std::filesystem::path& path() const override { return reader_.path(); }
  ArrayFormat format() const override { return ArrayFormat::safetensors; }
  void with_bytes(std::size_t index, const std::function<void(const ByteSource&)>& read) const override {
    const SafetensorsEntry& entry = reader_.entries()[index];
    std::uint64_t position = 0;
    if (entry.type == DType::e2m1) {
      std::vector<std::byte> pairs;
      return read([&](std::span<std::byte> out) {
        const std::uint64_t left = arrays[index].element_count() - position, first = position / 2;
        const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(out.size(), left));
        pairs.resize(static_cast<std::size_t>((position + count + 1) / 2 - first));
        reader_.read(entry, first, pairs);
        for (std::byte& code : out.first(count)) {
          const std::byte pair = pairs[static_cast<std::size_t>(position / 2 - first)];
          code = position++ % 2 == 0 ? pair & std::byte{15} : pair >> 4;
        }
        return count;
      });
    }
    read([&](std::span<std::byte> out) {
      const auto count =
          static_cast<std::size_t>(std::min<std::uint64_t>(out.size(), entry.byte_count() - position));
      reader_.read(entry, position, out.first(count));
      position += count;
      return count;
    });
  }

 private:
  SafetensorsReader reader_;
};

}  // namespace

ArrayInfo array_info(const NpyHeader& header, std::string name) {
  ArrayInfo info{.name = std::move(name),
                 .dtype = header.descr,
                 .refusal = refusal_of(header),
                 .element = element_of(header),
                 .shape = header.shape,
                 .fortran_order = header.fortran_order,
                 .big_endian = header.byte_order == '>'};
  if (info.refusal.empty()) info.type = info.element;
  const bool ordered = header.byte_order != '|' || header.element_bytes == 1u;
  const bool plain = header.kind == 'f' || header.kind == 'i' || header.kind == 'u';
  if (plain ? ordered : header.kind == 'V')
    info.element_bytes = static_cast<std::size_t>(header.element_bytes.value_or(0));
  return info;
}

std::unique_ptr<ArrayFile::Source> open_npy(const std::filesystem::path& path) {
  return std::make_unique<NpySource>(path);
}
std::unique_ptr<ArrayFile::Source> open_npz(const std::filesystem::path& path) {
  return std::make_unique<NpzSource>(path);
}
std::unique_ptr<ArrayFile::Source> open_safetensors(const std::filesystem::path& path) {
  return std::make_unique<SafetensorsSourceOfArrays>(path);
}

}  // namespace fp16lab
