// The numbers of all examples of a data set: an array whose first axis counts the examples.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "numerics/files/disk/input_file.hpp"
#include "numerics/formats/dtype.hpp"

namespace fp16lab::engine::data {

/// Examples that lie in a file at equal distances.
struct FilePiece {
  std::shared_ptr<const InputFile> file;
  std::uint64_t offset = 0;  ///< bytes; of the first of them
  std::uint64_t stride = 0;  ///< bytes; from one to the next, at least an example
  std::int64_t count = 0;
};

/// In memory, or in files and read whenever somebody asks. Copies share what they hold.
class ExampleArray {
 public:
  /// An array in files of so many bytes at most is held in memory as well.
  static constexpr std::size_t held_bytes = std::size_t{64} << 20;

  /// No examples.
  ExampleArray() = default;
  /// `elements`, row-major, as this machine has them; `shape` is that of one example, of one element or more.
  /// std::invalid_argument unless they are whole examples.
  ExampleArray(DType type, std::vector<std::int64_t> shape, std::vector<std::byte> elements);
  /// Row-major elements in files, one piece behind the other.
  ExampleArray(DType type, std::vector<std::int64_t> shape, std::vector<FilePiece> pieces,
               bool big_endian = false);

  /// The same examples in a shape of as many elements.
  ExampleArray reshaped(std::vector<std::int64_t> shape) const;

  std::int64_t count() const { return count_; }
  DType type() const { return type_; }
  /// Of one example.
  std::span<const std::int64_t> shape() const { return shape_; }
  std::int64_t elements() const { return elements_; }
  std::size_t example_bytes() const { return static_cast<std::size_t>(elements_) * size_of(type_); }

  /// The elements of one example: valid as long as this array and, where they had to be read, `buffer`. Once
  /// the buffer has the size of an example nothing is allocated. std::runtime_error where a file has become
  /// shorter.
  std::span<const std::byte> example(std::int64_t index, std::vector<std::byte>& buffer) const;
  /// Calls `visitor(bytes)` for blocks of whole examples, about a megabyte each, that together are the
  /// examples of `rows`, in their order; all of them where `rows` is empty.
  void visit(std::span<const std::uint32_t> rows,
             const std::function<void(std::span<const std::byte>)>& visitor) const;

 private:
  void read(std::int64_t first, std::int64_t count, std::span<std::byte> out) const;

  DType type_ = DType::u8;
  std::vector<std::int64_t> shape_;
  std::int64_t elements_ = 0;
  std::int64_t count_ = 0;
  std::shared_ptr<const std::vector<std::byte>> held_;
  std::vector<FilePiece> pieces_;
  bool big_endian_ = false;
};

/// The numbers themselves; FP64, and integers beyond 2^24, rounded to nearest. Sizes must fit.
void to_floats(DType type, std::span<const std::byte> elements, std::span<float> out);
/// Integers and booleans; what is above 2^63 - 1 becomes that. std::invalid_argument for other types.
void to_integers(DType type, std::span<const std::byte> elements, std::span<std::int64_t> out);
/// Integers and booleans.
constexpr bool is_integer(DType type) { return !is_floating(type); }

}  // namespace fp16lab::engine::data
