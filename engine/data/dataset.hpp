// Labelled images in host memory, as the bytes of their files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fp16lab::engine::data {

/// A file that data came from, for manifests.
struct SourceFile {
  std::filesystem::path path;
  std::string sha256;
};

/// `count` images of `features` = height * width bytes each, row-major, with one label in [0, classes) each.
struct Dataset {
  std::int64_t count = 0;
  std::int64_t features = 0;
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::int64_t classes = 0;
  std::vector<std::uint8_t> pixels;  ///< count * features
  std::vector<std::uint8_t> labels;  ///< count
  std::vector<SourceFile> files;

  std::span<const std::uint8_t> image(std::int64_t index) const {
    return std::span(pixels).subspan(static_cast<std::size_t>(index * features),
                                     static_cast<std::size_t>(features));
  }
};

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
/// Nats: the least mean cross-entropy of an answer that is the same for every image, whatever it is.
double label_entropy(const Dataset& dataset);

enum class DataKind { images, text, synthetic };
std::string_view name_of(DataKind kind);

struct DatasetInfo {
  std::string_view name;  ///< what users type: "fashion-mnist"
  DataKind kind;
  std::string_view description;
  std::string_view package;   ///< the Debian package that installs it; empty: the user's own file, or none
  std::int64_t features = 0;  ///< of images
  std::int64_t classes = 0;
};
/// The data set of images that random_images makes (1024 of 32 x 32): not found, drawn.
inline constexpr std::string_view random_images_name = "random-images";

/// All data sets: find_dataset takes those of images, find_text (engine/data/text.hpp) those of text, and
/// SyntheticRegression (engine/data/synthetic.hpp) makes the synthetic ones.
std::span<const DatasetInfo> known_datasets();

/// Where a data set lies, and who said so.
struct DatasetLocation {
  std::filesystem::path folder;
  std::string chosen_by;  ///< "data.path", "$FP16LAB_DATA" or that neither is set
};

/// Looks for the four IDX files of `name` (".gz" or unpacked) in `path` if that is not empty, else in
/// $FP16LAB_DATA (or its subfolder `name`) if that is set, else in /usr/share/datasets/fashion-mnist. The
/// first that applies is the only one tried: a wrong explicit path is an error, not a reason to look
/// elsewhere. std::invalid_argument for a name that is unknown, drawn or not of images; std::runtime_error
/// naming the file that is missing and where it was looked for, and the Debian package.
DatasetLocation find_dataset(std::string_view name, const std::filesystem::path& path);

enum class Split { train, test };

/// One half of a data set found by find_dataset.
Dataset load_dataset(std::string_view name, const DatasetLocation& location, Split split,
                     std::int64_t subset = 0);

}  // namespace fp16lab::engine::data
