// Data sets: examples, and what a network is to answer to each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/backend/backend.hpp"
#include "numerics/files/disk/input_file.hpp"
#include "numerics/formats/dtype.hpp"
#include "numerics/text/named_enum.hpp"

namespace fp16lab::engine::data {

/// Examples at equal distances in a file.
struct FilePiece {
  std::shared_ptr<const InputFile> file;
  std::uint64_t offset = 0;  ///< bytes; that of the first of them
  std::uint64_t stride = 0;  ///< bytes; from one to the next, at least an example
  std::int64_t count = 0;
};

/// The numbers of all examples of a data set: an array whose first axis counts the examples.
/// In memory, or in files and read on demand. Copies share their contents.
class ExampleArray {
 public:
  /// An array in files of so many bytes at most is held in memory as well.
  static constexpr std::size_t held_bytes = std::size_t{64} << 20;

  /// No examples.
  ExampleArray() = default;
  /// `elements`, row-major, as this machine has them; `shape` is that of one example, of one element or more.
  /// std::invalid_argument unless they are whole examples.
  ExampleArray(DType type, std::vector<std::int64_t> shape, std::vector<std::byte> elements);
  /// Row-major elements in files, one piece after the other.
  ExampleArray(DType type, std::vector<std::int64_t> shape, std::vector<FilePiece> pieces,
               bool big_endian = false);

  /// The same examples in a shape of as many elements.
  ExampleArray reshaped(std::vector<std::int64_t> shape) const;

  std::int64_t count() const { return count_; }
  DType type() const { return type_; }
  /// The shape of one example.
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
/// Integers and booleans; values above 2^63 - 1 become that. std::invalid_argument for other types.
void to_integers(DType type, std::span<const std::byte> elements, std::span<std::int64_t> out);
/// Integers and booleans.
constexpr bool is_integer(DType type) { return !is_floating(type); }

/// The environment variable that names the folder of data sets.
inline constexpr std::string_view data_variable = "FP16LAB_DATA";

/// A file that data came from, for manifests.
struct SourceFile {
  std::filesystem::path path;
  std::string sha256;
};

/// Row i of `inputs` is an example, row i of `targets` belongs to it.
struct Dataset {
  ExampleArray inputs{};   ///< bytes p mean p / 255, all others themselves
  ExampleArray targets{};  ///< without examples: there are none, and only inputs can be learnt
  /// The order of an example's axes if it is an image, (C, H, W) or (H, W, C).
  std::optional<Layout> images{};
  std::int64_t vocabulary = 0;  ///< inputs are symbols in [0, vocabulary); 0: numbers
  std::int64_t classes = 0;     ///< targets are in [0, classes), one or several an example; 0: numbers
  /// Targets are no classes but a probability for each of them, (..., classes): soft labels.
  bool soft = false;
  std::vector<std::uint32_t> rows{};  ///< the examples that the set has, of those of the arrays; empty: all
  std::vector<SourceFile> files{};

  std::int64_t count() const {
    return rows.empty() ? inputs.count() : static_cast<std::int64_t>(rows.size());
  }
  /// Classes, or rows of probabilities, of an example; 1 where targets are numbers.
  std::int64_t answers() const {
    return classes == 0 ? 1 : soft ? targets.elements() / classes : targets.elements();
  }
  /// Where example `index` is in the arrays.
  std::uint32_t row(std::uint32_t index) const { return rows.empty() ? index : rows[index]; }
};

/// Channels, height and width of the images. std::invalid_argument for a data set of anything else.
struct ImageSize {
  std::int64_t channels = 0, height = 0, width = 0;
};
ImageSize image_size(const Dataset& dataset);

/// Images of bytes in the order (C, H, W), with one label in [0, classes) each, in memory.
Dataset labelled_images(const ImageSize& size, std::int64_t classes, std::span<const std::uint8_t> pixels,
                        std::span<const std::uint8_t> labels);

/// Keeps the first `subset` examples (0: all); std::invalid_argument if there are fewer.
void keep_first(Dataset& dataset, std::int64_t subset);

/// Throws std::runtime_error "NAME: label X at element I: expected 0 to CLASSES - 1" for targets that are not
/// below dataset.classes.
void check_labels(const Dataset& dataset, const std::string& name);

/// Reads a pair of IDX files. std::runtime_error (see read_idx), also if the number of labels is not the
/// number of images or a label is not below `classes`. Keeps the first `subset` images (0: all); more than
/// there are throws.
Dataset read_idx_dataset(const std::filesystem::path& images, const std::filesystem::path& labels,
                         std::int64_t classes, std::int64_t subset = 0);

/// `count` square images of `side` x `side` independent random pixels, normal numbers x in steps of 1/32
/// stored as the byte 128 + 32 x (limited to 0 .. 255, four deviations), and labels that are uniform on [0,
/// classes) and know nothing of them: the data of tutorials that have none. Philox streams "data.images" and
/// "data.labels" of `seed`. No files. std::invalid_argument unless count and side are >= 1 and classes is 1
/// to 256.
Dataset random_images(std::int64_t count, std::int64_t side, std::int64_t classes, std::uint64_t seed);
/// Nats: the least mean cross-entropy of an answer that is the same for every example, whatever it is.
double label_entropy(const Dataset& dataset);

enum class DataKind { images, arrays, text, synthetic };
constexpr std::array<std::string_view, 4> names_of(DataKind) {
  return {"images", "arrays", "text", "synthetic"};
}

struct DatasetInfo {
  std::string_view name;  ///< what users type: "fashion-mnist"
  DataKind kind;
  std::string_view description;
  std::string_view package;  ///< the Debian package that installs it; empty: the user's own file, or none
};
/// The data set of images that random_images makes (1024 of 32 x 32): not found, drawn.
inline constexpr std::string_view random_images_name = "random-images";

/// All data sets: find_dataset takes those of images, load_arrays (engine/data/arrays.hpp) arrays, find_text
/// (engine/data/text.hpp) those of text, and SyntheticBatches (engine/data/synthetic.hpp) makes the synthetic
/// ones.
std::span<const DatasetInfo> known_datasets();

/// Where a data set is, and which setting named it.
struct DatasetLocation {
  std::filesystem::path folder;
  std::string chosen_by;  ///< "data.path", "$FP16LAB_DATA" or a note that neither is set
};

/// Looks for the files of `name` (IDX: ".gz" or unpacked) in `path` if that is not empty, else in
/// $FP16LAB_DATA (or its subfolder `name`) if that is set, else in /usr/share/datasets/NAME. The first that
/// applies is the only one tried: a wrong explicit path is an error, not a reason to look elsewhere.
/// std::invalid_argument for a name that is unknown, drawn or not of images; std::runtime_error naming the
/// file that is missing and where it was looked for, and the Debian package if there is one.
DatasetLocation find_dataset(std::string_view name, const std::filesystem::path& path);

enum class Split { train, test };

/// One half of a data set found by find_dataset.
Dataset load_dataset(std::string_view name, const DatasetLocation& location, Split split,
                     std::int64_t subset = 0);

}  // namespace fp16lab::engine::data
