#include "numerics/files/arrays/array_stream.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <stdexcept>

#include "numerics/files/arrays/array_source.hpp"
#include "numerics/files/disk/input_file.hpp"
#include "numerics/files/disk/zip_archive.hpp"
#include "numerics/text/text.hpp"

namespace fp16lab {
namespace {

static_assert(std::endian::native == std::endian::little, "little-endian elements are moved as bytes");

/// The format by the first bytes; by the name only for the message about a file that is none of them.
std::unique_ptr<ArrayFile::Source> open_source(const std::filesystem::path& path) {
  std::array<unsigned char, 9> start{};
  std::size_t count = 0;
  {
    const InputFile file(path);
    count = static_cast<std::size_t>(std::min<std::uint64_t>(start.size(), file.size()));
    file.read(0, std::as_writable_bytes(std::span(start).first(count)));
  }
  const auto begins = [&](std::string_view bytes) {
    return count >= bytes.size() && std::memcmp(start.data(), bytes.data(), bytes.size()) == 0;
  };
  const std::string ending = path.extension().string();
  if (begins("\x93NUMPY") || ending == npy_ending) return open_npy(path);
  if (begins("PK\x03\x04") || begins("PK\x05\x06")) return open_npz(path);
  // The length of a header is below 2^27, so its upper bytes are zeros; then comes the header's first
  // character.
  if (ending == safetensors_ending || (count == start.size() && start[8] == '{' && start[4] == 0 &&
                                       start[5] == 0 && start[6] == 0 && start[7] == 0))
    return open_safetensors(path);
  std::string hex;
  for (std::size_t i = 0; i < std::min<std::size_t>(count, 8); ++i) hex += fmt::format(" {:02x}", start[i]);
  if (count == 0) hex = " nothing";
  const std::string expected =
      ending == npz_ending ? "50 4b 03 04 (.npz, a ZIP archive)" : ".npy, .npz or .safetensors";
  InputFile(path).fail_at(0, fmt::format("the file begins with{}, expected {}", hex, expected));
}

template <class T>
void visit_elements(const ByteSource& source, std::uint64_t count, bool big_endian,
                    const std::function<void(const ArrayChunk&)>& visitor) {
  std::vector<T> buffer(static_cast<std::size_t>(std::clamp<std::uint64_t>(
      count, 1, ArrayFile::chunk_bytes / sizeof(T))));  // there may be many small arrays
  for (;;) {
    const std::size_t bytes = source(std::as_writable_bytes(std::span(buffer)));
    const std::span<T> elements = std::span(buffer).first(bytes / sizeof(T));
    if (elements.empty()) return;
    if (big_endian) swap_byte_order(DTypeOf<T>::value, std::as_writable_bytes(elements));
    visitor(ArrayChunk(std::span<const T>(elements)));
    if (elements.size() < buffer.size()) return;
  }
}

/// The same bytes, where all of them are codes of the array's format: E2M1 has 16.
ByteSource codes_alone(const ArrayFile::Source& file, const ArrayInfo& array, const ByteSource& bytes) {
  const int width = !array.type ? 8 : visit_dtype(*array.type, [](auto row) {
    using F = typename decltype(row)::Format;
    if constexpr (std::is_void_v<F>)
      return 8;
    else
      return F::width;
  });
  if (width >= 8) return bytes;
  return [&file, &array, &bytes, width, position = std::uint64_t{0}](std::span<std::byte> out) mutable {
    const std::size_t count = bytes(out);
    for (std::size_t i = 0; i < count; ++i)
      if (std::to_integer<int>(out[i]) >> width != 0)
        throw std::runtime_error(fmt::format(
            "{}: '{}': element {} is the byte 0x{:02x}; a code of {} has {} bits, and a byte of its own",
            file.path().string(), shown(array.name), position + i, std::to_integer<int>(out[i]),
            title_of(*array.type), width));
    position += count;
    return count;
  };
}

}  // namespace

std::uint64_t ArrayInfo::element_count() const {
  if (std::find(shape.begin(), shape.end(), 0u) != shape.end()) return 0;
  std::uint64_t count = 1;
  for (const std::uint64_t extent : shape) count *= extent;  // the readers have seen that it fits
  return count;
}

bool ArrayInfo::take_as(DType format) {
  if (type || element_bytes != size_of(format)) return false;
  type = element = format;
  refusal.clear();
  return true;
}

std::string ArrayInfo::describe() const {
  return fmt::format("{} ({}{}){}", shown(dtype), fmt::join(shape, ", "), shape.size() == 1 ? "," : "",
                     fortran_order ? ", Fortran order" : "");
}

ArrayFile::ArrayFile(const std::filesystem::path& path) : source_(open_source(path)) {
  for (std::size_t i = 0; i < source_->arrays.size(); ++i) source_->arrays[i].index = i;
}
ArrayFile::~ArrayFile() = default;

const std::filesystem::path& ArrayFile::path() const { return source_->path(); }
ArrayFormat ArrayFile::format() const { return source_->format(); }
std::span<const ArrayInfo> ArrayFile::arrays() const { return source_->arrays; }
std::span<const std::string> ArrayFile::other_members() const { return source_->other_members; }
const std::map<std::string, std::string>& ArrayFile::metadata() const { return source_->metadata; }

void ArrayFile::visit(const ArrayInfo& array, const std::function<void(const ArrayChunk&)>& visitor) const {
  if (!array.type)
    throw std::invalid_argument(fmt::format("{}: '{}' is {}: {}", path().string(), shown(array.name),
                                            array.describe(), array.refusal));
  source_->with_bytes(array.index, [&](const ByteSource& bytes) {
    visit_dtype<is_floating>(*array.type, [&](auto dtype) {
      using T = typename decltype(dtype)::Element;
      visit_elements<T>(codes_alone(*source_, array, bytes), array.element_count(), array.big_endian,
                        visitor);
    });
  });
}

void ArrayFile::read(const ArrayInfo& array, std::span<std::byte> out) const {
  if (!array.element || out.size() != array.element_count() * size_of(*array.element))
    throw std::invalid_argument(fmt::format("{}: '{}' is {}, which {} bytes cannot hold", path().string(),
                                            shown(array.name), array.describe(), out.size()));
  source_->with_bytes(array.index,
                      [&](const ByteSource& bytes) { codes_alone(*source_, array, bytes)(out); });
  if (array.big_endian) swap_byte_order(*array.element, out);
}

void ArrayFile::Source::with_rows(const ArrayInfo& array,
                                  const std::function<void(const ByteSource&)>& read) const {
  if (!array.element)
    throw std::invalid_argument(fmt::format("{}: '{}' is {}: {}", path().string(), shown(array.name),
                                            array.describe(), array.refusal));
  const std::size_t size = size_of(*array.element);
  with_bytes(array.index, [&](const ByteSource& raw) {
    const ByteSource bytes = codes_alone(*this, array, raw);
    if (!array.fortran_order || array.shape.size() < 2) return read(bytes);
    const auto count = static_cast<std::size_t>(array.element_count());
    std::vector<std::byte> columns(count * size), rows(columns.size());
    bytes(columns);
    // The position in the file of the element at `index`, which goes up by one from the last extent on.
    std::vector<std::uint64_t> index(array.shape.size()), stride(array.shape.size(), 1);
    for (std::size_t i = 1; i < stride.size(); ++i) stride[i] = stride[i - 1] * array.shape[i - 1];
    std::uint64_t position = 0;
    for (std::size_t element = 0; element < count; ++element) {
      std::memcpy(&rows[element * size], &columns[static_cast<std::size_t>(position) * size], size);
      for (std::size_t i = index.size(); i-- > 0;) {
        position += stride[i];
        if (++index[i] < array.shape[i]) break;
        position -= index[i] * stride[i];
        index[i] = 0;
      }
    }
    std::size_t delivered = 0;
    read([&](std::span<std::byte> out) {
      const std::size_t part = std::min(out.size(), rows.size() - delivered);
      std::copy_n(rows.begin() + static_cast<std::ptrdiff_t>(delivered), part, out.begin());
      delivered += part;
      return part;
    });
  });
}

void ArrayFile::visit_both(
    const ArrayFile& file_a, const ArrayInfo& a, const ArrayFile& file_b, const ArrayInfo& b,
    const std::function<void(std::span<const std::byte>, std::span<const std::byte>)>& visitor) {
  if (a.shape != b.shape)
    throw std::invalid_argument(
        fmt::format("'{}' is {}, and '{}' is {}", shown(a.name), a.describe(), shown(b.name), b.describe()));
  file_a.source_->with_rows(a, [&](const ByteSource& source_a) {
    file_b.source_->with_rows(b, [&](const ByteSource& source_b) {
      const std::size_t size_a = size_of(*a.element), size_b = size_of(*b.element);
      const std::uint64_t most = chunk_bytes / std::max(size_a, size_b);
      const auto room = static_cast<std::size_t>(std::min(most, a.element_count()));
      std::vector<std::byte> chunk_a(room * size_a), chunk_b(room * size_b);
      const auto next = [](const ArrayInfo& array, const ByteSource& source, std::span<std::byte> out) {
        source(out);
        if (array.big_endian) swap_byte_order(*array.element, out);
        return out;
      };
      for (std::uint64_t left = a.element_count(); left > 0;) {
        const auto count = static_cast<std::size_t>(std::min(most, left));
        visitor(next(a, source_a, std::span(chunk_a).first(count * size_a)),
                next(b, source_b, std::span(chunk_b).first(count * size_b)));
        left -= count;
      }
    });
  });
}

void ArrayFile::check(const ArrayInfo& array) const {
  if (format() != ArrayFormat::npz) return;
  source_->with_bytes(array.index, [](const ByteSource& bytes) {
    std::vector<std::byte> buffer(chunk_bytes);
    while (bytes(buffer) == buffer.size()) {
    }
  });
}

void swap_byte_order(DType dtype, std::span<std::byte> elements) {
  const std::size_t size = size_of(dtype);
  for (; elements.size() >= size; elements = elements.subspan(size))
    std::reverse(elements.begin(), elements.begin() + static_cast<std::ptrdiff_t>(size));
}

bool is_pytorch_file(const std::filesystem::path& path) {
  const InputFile file(path);
  std::string start(static_cast<std::size_t>(std::min<std::uint64_t>(file.size(), 512)), '\0');
  file.read(0, std::as_writable_bytes(std::span(start)));
  // pickle protocol 2 of the number 0x1950a86a20f9469cfc6c (torch/serialization.py, MAGIC_NUMBER).
  constexpr std::string_view legacy("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19", 14);
  if (start.starts_with(legacy)) return true;
  if (!start.starts_with("PK\x03\x04")) return false;
  // The first member of torch.save is NAME/data.pkl; a local header has the length of its name at byte 26,
  // the name at 30.
  constexpr std::string_view pickle = "/data.pkl";
  constexpr std::size_t name_begin = 30;
  if (start.size() > name_begin) {
    const std::size_t length = static_cast<unsigned char>(start[26]) | static_cast<unsigned char>(start[27])
                                                                           << 8;
    if (std::string_view(start).substr(name_begin, length).ends_with(pickle)) return true;
  }
  try {
    for (const ZipMember& member : read_zip_directory(file))
      if (member.name.ends_with(pickle)) return true;
  } catch (const std::runtime_error&) {  // the code that opens it as an archive reports what is wrong with it
  }
  return false;
}

}  // namespace fp16lab
