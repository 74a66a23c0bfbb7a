#include "experiments/device_acceptance/npy_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <string_view>

#include "numerics/files/arrays/npy_header.hpp"
#include "numerics/files/disk/atomic_file.hpp"
#include "numerics/files/disk/input_file.hpp"

namespace fp16lab::experiments::acceptance {
namespace {

std::string descr_of(std::optional<DType> dtype, std::size_t element_bytes) {
  if (!dtype || dtype == DType::bf16 || dtype == DType::u8)
    return fmt::format("{}u{}", element_bytes == 1 ? '|' : '<', element_bytes);
  return fmt::format("<{}{}", dtype == DType::i32 ? 'i' : 'f', element_bytes);
}

}  // namespace

void write_npy(const std::filesystem::path& path, std::optional<DType> dtype, const engine::Shape& shape,
               std::size_t element_bytes, std::span<const std::byte> bytes) {
  std::string extents;
  if (dtype) {
    for (const std::int64_t extent : shape.extents()) extents += fmt::format("{}, ", extent);
  } else {
    extents = fmt::format("{}, ", bytes.size() / element_bytes);
  }
  std::string header = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}",
                                   descr_of(dtype, element_bytes), extents);
  constexpr std::size_t before = 10, multiple = 64;  // magic, version and length; the elements are aligned
  header.append(multiple - 1 - (before + header.size()) % multiple, ' ');
  header += '\n';
  const auto length = static_cast<unsigned>(header.size());
  const char start[] = {'\x93',
                        'N',
                        'U',
                        'M',
                        'P',
                        'Y',
                        1,
                        0,
                        static_cast<char>(length & 0xffU),
                        static_cast<char>(length >> 8)};
  AtomicFile file(path);
  file.append({start, sizeof(start)});
  file.append(header);
  file.append({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  file.commit();
}

Operand read_npy(const std::filesystem::path& path, DType dtype, const engine::Shape& shape) {
  const InputFile file(path);
  std::uint64_t at = 0;
  const auto source = [&](std::span<std::byte> out) {
    const std::size_t count = std::min<std::uint64_t>(out.size(), file.size() - at);
    file.read(at, out.first(count));
    at += count;
    return count;
  };
  NpyHeader header;
  try {
    header = read_npy_header(source, file.size());
  } catch (const DamagedBytes& damage) {
    file.fail_at(damage.offset(), damage.what());
  }
  Operand operand{.dtype = dtype, .shape = shape, .bytes = {}};
  const bool same_shape = std::ranges::equal(
      header.shape, shape.extents(),
      [](std::uint64_t ours, std::int64_t theirs) { return ours == static_cast<std::uint64_t>(theirs); });
  if (header.descr != descr_of(dtype, size_of(dtype)) || header.fortran_order || !same_shape)
    file.fail(fmt::format("it is no {} {} in C order, which bundle.json says it is", name_of(dtype),
                          shape.to_string()));
  const std::uint64_t there = file.size() - header.data_offset;
  if (header.data_bytes() != there)
    file.fail(
        fmt::format("it has {} bytes of elements, expected {}", there, header.data_bytes().value_or(0)));
  operand.bytes.resize(there);
  file.read(header.data_offset, operand.bytes);
  return operand;
}

}  // namespace fp16lab::experiments::acceptance
