#include "engine/data/dataset.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "engine/backend/elementwise_functions.hpp"
#include "engine/data/idx.hpp"
#include "numerics/convert/convert.hpp"
#include "numerics/files/arrays/array_stream.hpp"
#include "numerics/files/disk/sha256.hpp"
#include "numerics/platform/extent.hpp"
#include "numerics/random/philox.hpp"

namespace fp16lab::engine::data {
namespace {

constexpr std::size_t block_bytes = std::size_t{1} << 20;

/// FP32, FP64 and integers: what static_cast rounds.
constexpr bool is_wide(DType type) { return !is_low_precision(type); }

/// Calls `body(element)` for each of them, in order.
template <bool (*is)(DType), class Body>
void for_each_element(DType type, std::span<const std::byte> elements, const Body& body) {
  visit_dtype<is>(type, [&](auto row) {
    // Any byte but 0 is true, and such a byte is no bool.
    using Element = std::conditional_t<std::is_same_v<typename decltype(row)::Element, bool>, std::uint8_t,
                                       typename decltype(row)::Element>;
    for (std::size_t at = 0; at < elements.size(); at += sizeof(Element)) {
      Element element;
      std::memcpy(&element, elements.data() + at, sizeof element);
      if constexpr (std::is_same_v<typename decltype(row)::Element, bool>)
        body(element != 0 ? 1 : 0);
      else
        body(element);
    }
  });
}

/// The number of every pattern of a format of 16 bits or fewer.
template <class T>
const std::vector<float>& values_of() {
  using Bits = typename T::Bits;
  static const std::vector<float> values = [] {
    std::vector<float> all(std::size_t{std::numeric_limits<Bits>::max()} + 1);
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = widen(T::from_bits(static_cast<Bits>(i)));
    return all;
  }();
  return values;
}

ExampleArray bytes_in_memory(std::vector<std::int64_t> shape, std::span<const std::uint8_t> values) {
  const auto bytes = std::as_bytes(values);
  return {DType::u8, std::move(shape), std::vector<std::byte>(bytes.begin(), bytes.end())};
}

}  // namespace

ImageSize image_size(const Dataset& dataset) {
  if (!dataset.images) throw std::invalid_argument("these examples are no images");
  const std::span<const std::int64_t> shape = dataset.inputs.shape();
  if (*dataset.images == Layout::nchw) return {shape[0], shape[1], shape[2]};
  return {shape[2], shape[0], shape[1]};
}

Dataset labelled_images(const ImageSize& size, std::int64_t classes, std::span<const std::uint8_t> pixels,
                        std::span<const std::uint8_t> labels) {
  return {.inputs = bytes_in_memory({size.channels, size.height, size.width}, pixels),
          .targets = bytes_in_memory({}, labels),
          .images = Layout::nchw,
          .classes = classes};
}

void keep_first(Dataset& dataset, std::int64_t subset) {
  if (subset == 0) return;
  if (subset < 0 || subset > dataset.count())
    throw std::invalid_argument(
        fmt::format("a subset of {} {} cannot be taken from the {}{}", subset,
                    dataset.images ? "images" : "examples", dataset.count(),
                    dataset.files.empty() ? std::string() : " of " + dataset.files.front().path.string()));
  if (dataset.rows.empty()) {
    dataset.rows.resize(static_cast<std::size_t>(dataset.count()));
    std::iota(dataset.rows.begin(), dataset.rows.end(), 0u);
  }
  dataset.rows.resize(static_cast<std::size_t>(subset));
}

void check_labels(const Dataset& dataset, const std::string& name) {
  std::vector<std::int64_t> labels;
  std::int64_t seen = 0;
  dataset.targets.visit({}, [&](std::span<const std::byte> bytes) {
    labels.resize(bytes.size() / size_of(dataset.targets.type()));
    to_integers(dataset.targets.type(), bytes, labels);
    for (const std::int64_t label : labels) {
      if (label < 0 || label >= dataset.classes)
        throw std::runtime_error(fmt::format("{}: label {} at element {}: expected 0 to {}", name, label,
                                             seen, dataset.classes - 1));
      ++seen;
    }
  });
}

Dataset read_idx_dataset(const std::filesystem::path& images, const std::filesystem::path& labels,
                         std::int64_t classes, std::int64_t subset) {
  const IdxArray image_array = read_idx(images, 3);
  const IdxArray label_array = read_idx(labels, 1);
  const std::uint32_t count = image_array.extents[0];
  if (label_array.extents[0] != count)
    throw std::runtime_error(fmt::format("{}: expected {} labels, one for each image of {}, got {}",
                                         labels.string(), count, images.string(), label_array.extents[0]));
  Dataset dataset = labelled_images({1, image_array.extents[1], image_array.extents[2]}, classes,
                                    image_array.values, label_array.values);
  check_labels(dataset, labels.string());
  for (const std::filesystem::path& path : {images, labels})
    dataset.files.push_back({path, sha256_of_file(path)});
  keep_first(dataset, subset);
  return dataset;
}

Dataset random_images(std::int64_t count, std::int64_t side, std::int64_t classes, std::uint64_t seed) {
  if (count < 1 || side < 1 || classes < 1 || classes > 256)
    throw std::invalid_argument(
        fmt::format("random images: {} of {} x {} pixels in {} classes: expected at least one image of one "
                    "pixel, and 1 to 256 classes",
                    count, side, side, classes));
  const PhiloxStream images{.seed = seed, .stream = stream_id("data.images")};
  const PhiloxStream labels{.seed = seed, .stream = stream_id("data.labels")};
  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(count * side * side));
  for (std::size_t i = 0; i < pixels.size(); ++i) {
    const std::uint32_t words[] = {images.word(2 * i), images.word(2 * i + 1)};
    const float x = functions::Normal{0.0f, 32.0f}(words);
    pixels[i] = static_cast<std::uint8_t>(std::clamp(std::nearbyint(128.0f + x), 0.0f, 255.0f));
  }
  std::vector<std::uint8_t> drawn(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < drawn.size(); ++i)
    drawn[i] =
        static_cast<std::uint8_t>(std::uint64_t{labels.word(i)} * static_cast<std::uint64_t>(classes) >> 32);
  return labelled_images({1, side, side}, classes, pixels, drawn);
}

double label_entropy(const Dataset& dataset) {
  std::vector<double> counts(static_cast<std::size_t>(dataset.classes));
  std::vector<std::int64_t> labels;
  double total = 0;
  dataset.targets.visit(dataset.rows, [&](std::span<const std::byte> bytes) {
    labels.resize(bytes.size() / size_of(dataset.targets.type()));
    to_integers(dataset.targets.type(), bytes, labels);
    for (const std::int64_t label : labels) ++counts.at(static_cast<std::size_t>(label));
    total += static_cast<double>(labels.size());
  });
  double entropy = 0;
  for (const double count : counts)
    if (count > 0) entropy -= count / total * std::log(count / total);
  return entropy;
}

ExampleArray::ExampleArray(DType type, std::vector<std::int64_t> shape, std::vector<std::byte> elements)
    : type_(type), shape_(std::move(shape)), elements_(product_of(shape_)) {
  if (elements_ < 1 || elements.size() % example_bytes() != 0)
    throw std::invalid_argument(fmt::format("{} bytes are no whole examples of {} elements of {}",
                                            elements.size(), elements_, name_of(type)));
  count_ = static_cast<std::int64_t>(elements.size() / example_bytes());
  held_ = std::make_shared<const std::vector<std::byte>>(std::move(elements));
}

ExampleArray::ExampleArray(DType type, std::vector<std::int64_t> shape, std::vector<FilePiece> pieces,
                           bool big_endian)
    : type_(type),
      shape_(std::move(shape)),
      elements_(product_of(shape_)),
      pieces_(std::move(pieces)),
      big_endian_(big_endian) {
  for (const FilePiece& piece : pieces_) count_ += piece.count;
  if (static_cast<std::size_t>(count_) > held_bytes / example_bytes()) return;
  std::vector<std::byte> all(static_cast<std::size_t>(count_) * example_bytes());
  read(0, count_, all);
  held_ = std::make_shared<const std::vector<std::byte>>(std::move(all));
  pieces_.clear();
}

ExampleArray ExampleArray::reshaped(std::vector<std::int64_t> shape) const {
  ExampleArray same = *this;
  same.shape_ = std::move(shape);
  return same;
}

void ExampleArray::read(std::int64_t first, std::int64_t count, std::span<std::byte> out) const {
  const std::size_t size = example_bytes();
  std::span<std::byte> rest = out;
  for (const FilePiece& piece : pieces_) {
    if (count == 0) break;
    const std::int64_t here = std::min(count, piece.count - first);
    if (here <= 0) {
      first -= piece.count;
      continue;
    }
    const std::uint64_t begin = piece.offset + static_cast<std::uint64_t>(first) * piece.stride;
    const std::size_t bytes = static_cast<std::size_t>(here) * size;
    if (piece.stride == size) {
      piece.file->read(begin, rest.first(bytes));
    } else {
      for (std::size_t i = 0; i < static_cast<std::size_t>(here); ++i)
        piece.file->read(begin + i * piece.stride, rest.subspan(i * size, size));
    }
    rest = rest.subspan(bytes);
    count -= here;
    first = 0;
  }
  if (big_endian_) swap_byte_order(type_, out);
}

std::span<const std::byte> ExampleArray::example(std::int64_t index, std::vector<std::byte>& buffer) const {
  const std::size_t size = example_bytes();
  if (held_ != nullptr) return std::span(*held_).subspan(static_cast<std::size_t>(index) * size, size);
  buffer.resize(size);
  read(index, 1, buffer);
  return buffer;
}

void ExampleArray::visit(std::span<const std::uint32_t> rows,
                         const std::function<void(std::span<const std::byte>)>& visitor) const {
  const auto total = rows.empty() ? static_cast<std::size_t>(count_) : rows.size();
  const std::size_t size = example_bytes();
  const std::size_t block = std::max<std::size_t>(1, block_bytes / std::max<std::size_t>(size, 1));
  std::vector<std::byte> buffer;
  for (std::size_t i = 0; i < total;) {
    const std::size_t first = rows.empty() ? i : rows[i];
    std::size_t run = 1;  // a run of examples that follow each other
    while (run < block && i + run < total && (rows.empty() || rows[i + run] == first + run)) ++run;
    if (held_ != nullptr) {
      visitor(std::span(*held_).subspan(first * size, run * size));
    } else {
      buffer.resize(run * size);
      read(static_cast<std::int64_t>(first), static_cast<std::int64_t>(run), buffer);
      visitor(buffer);
    }
    i += run;
  }
}

void to_floats(DType type, std::span<const std::byte> elements, std::span<float> out) {
  if (is_file_low_precision(type)) {
    visit_dtype<is_file_low_precision>(type, [&](auto row) {
      using Bits = typename decltype(row)::Element::Bits;
      const std::vector<float>& values = values_of<typename decltype(row)::Element>();
      for (std::size_t i = 0; i < out.size(); ++i) {
        Bits bits;
        std::memcpy(&bits, elements.data() + i * sizeof bits, sizeof bits);
        out[i] = values[bits];
      }
    });
    return;
  }
  auto place = out.begin();
  for_each_element<is_wide>(type, elements, [&](auto element) {
    const auto x = static_cast<float>(element);
    *place++ = x == x ? x : float_from_bits(0x7fffffff);  // the NaN of tensors
  });
}

void to_integers(DType type, std::span<const std::byte> elements, std::span<std::int64_t> out) {
  auto place = out.begin();
  constexpr auto largest = std::numeric_limits<std::int64_t>::max();
  for_each_element<is_integer>(type, elements, [&](auto element) {
    if constexpr (std::is_same_v<decltype(element), std::uint64_t>)
      *place++ = static_cast<std::int64_t>(std::min<std::uint64_t>(element, largest));
    else
      *place++ = static_cast<std::int64_t>(element);
  });
}

}  // namespace fp16lab::engine::data
