// The user's own dumps: arrays of .npy, .npz and .safetensors files, element by element in bounded memory.
//
//   .npy          versions 1.0 to 3.0; f2, f4, f8, little- and big-endian, C and Fortran order
//   .npz          a ZIP archive of .npy members, stored or deflated, with ZIP64 and data descriptors
//   .safetensors  F16, BF16, F32, F64, F8_E4M3, F8_E5M2, F8_E4M3FNUZ, F8_E5M2FNUZ, F8_E8M0, and F4, whose
//                 elements are visited one in a byte
//
// A file's content, not its name, decides its format. Opening reads headers and checks them against the
// length of the file; a header's claim alone allocates nothing. Visiting holds one chunk (and 64 KiB of
// deflated input). Every error is one std::runtime_error "PATH: [byte N:] [member 'X' | tensor 'X':] what is
// wrong, and what was expected".
//
// Arrays of other types (integers, bool, complex, strings, structured, numpy's long double; F6_E2M3 of a
// .safetensors file) are listed, with the reason why they cannot be visited. numpy has no BF16, FP8 or FP4:
// extensions store them as raw bytes (|V2, <f1), people as integers (<u2); neither says what they are
// (ArrayInfo::take_as). Integers and booleans can be read, as what they are: as data, not as values to count.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "numerics/formats/dtype.hpp"
#include "numerics/text/named_enum.hpp"

namespace fp16lab {

enum class ArrayFormat : std::uint8_t { npy, npz, safetensors };
constexpr std::array<std::string_view, 3> names_of(ArrayFormat) { return {"npy", "npz", "safetensors"}; }

struct ArrayInfo {
  std::string name{};              ///< for a .npy file: the file's name without its ending
  std::string dtype{};             ///< as the file spells it: "<f4", "BF16"
  std::optional<DType> type{};     ///< type of floating-point numbers; absent: cannot be visited
  std::string refusal{};           ///< why not; empty if it can
  std::optional<DType> element{};  ///< also of integers and booleans; absent: cannot be read
  std::size_t element_bytes = 0;   ///< for plain numbers and raw bytes; 0 for everything else
  /// Offset of the first element in the file, if its bytes are stored unchanged; absent: deflated.
  std::optional<std::uint64_t> data_offset{};
  std::vector<std::uint64_t> shape{};
  bool fortran_order = false;  ///< the first index runs fastest
  bool big_endian = false;     ///< in the file; visitors get numbers
  std::size_t index = 0;       ///< in ArrayFile::arrays()

  std::uint64_t element_count() const;
  /// Takes the elements of an array of bytes or words, which has no floating-point type, as numbers of
  /// `format`:
  /// what numpy cannot say of BF16, FP8 and less, which has a byte each. False, and nothing changes, where it
  /// has a type or another size. A byte beyond the format's codes is an error of what reads it.
  bool take_as(DType format);
  /// "<f4 (2, 3), Fortran order", for people.
  std::string describe() const;
};

/// Consecutive elements, in the order of the file.
template <class... T>
std::variant<std::span<const T>...> chunk_of(TypeList<T...>);
using ArrayChunk = decltype(chunk_of(FloatElements{}));

class ArrayFile {
 public:
  /// A chunk has at most so many bytes.
  static constexpr std::size_t chunk_bytes = std::size_t{1} << 20;

  explicit ArrayFile(const std::filesystem::path& path);
  ~ArrayFile();
  ArrayFile(const ArrayFile&) = delete;
  ArrayFile& operator=(const ArrayFile&) = delete;

  const std::filesystem::path& path() const;
  ArrayFormat format() const;
  /// In the order of the file.
  std::span<const ArrayInfo> arrays() const;
  /// Members of an archive that are no arrays, by name.
  std::span<const std::string> other_members() const;
  /// The __metadata__ of a .safetensors file; empty for the others.
  const std::map<std::string, std::string>& metadata() const;

  /// Calls `visitor` for every chunk of one of this file's arrays, none of them empty, first to last. An
  /// array with a refusal throws std::invalid_argument. A deflated or stored member whose content is damaged
  /// is known as such only at its end: when this throws, what was visited must not be used.
  void visit(const ArrayInfo& array, const std::function<void(const ArrayChunk&)>& visitor) const;

  /// All elements of an array, in the order of the file, as this machine has them; `out` has their size.
  /// std::invalid_argument for an array without element.
  void read(const ArrayInfo& array, std::span<std::byte> out) const;
  /// The elements of two arrays of one shape side by side, in row-major order, as this machine has them:
  /// `visitor` gets as many of the one as of the other, at most chunk_bytes of each. An array in Fortran
  /// order of more than one dimension is held whole, to be turned; for all others one chunk is. Damage as in
  /// `visit`. std::invalid_argument for an array without element, and for two shapes.
  static void visit_both(
      const ArrayFile& file_a, const ArrayInfo& a, const ArrayFile& file_b, const ArrayInfo& b,
      const std::function<void(std::span<const std::byte>, std::span<const std::byte>)>& visitor);
  /// Reads an array of an archive once, whose checksum only its end can judge; nothing for other files.
  void check(const ArrayInfo& array) const;

  /// What the three formats implement for this interface.
  class Source;

 private:
  std::unique_ptr<Source> source_;
};

/// Elements of `dtype` that came big-endian, as this machine has them, in place.
void swap_byte_order(DType dtype, std::span<std::byte> elements);

/// Is this a file of torch.save: a ZIP archive with a pickle in it, or the older format, a pickle of
/// PyTorch's magic number? Such files hold Python code and are never loaded here. std::runtime_error if the
/// file cannot be read.
bool is_pytorch_file(const std::filesystem::path& path);

/// The endings of the names of such files, with their dots.
inline constexpr std::string_view npy_ending = ".npy", npz_ending = ".npz",
                                  safetensors_ending = ".safetensors";

}  // namespace fp16lab
