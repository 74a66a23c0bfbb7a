#include "engine/data/arrays.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/data/dataset.hpp"
#include "engine/data/epoch_order.hpp"
#include "engine/data/idx.hpp"
#include "numerics/files/arrays/array_stream.hpp"
#include "numerics/files/disk/sha256.hpp"
#include "numerics/text/text.hpp"

namespace fp16lab::engine::data {
namespace {

/// One array of a file.
struct NamedArray {
  ExampleArray values;
  std::string name;  ///< as messages call it: "PATH: array 'x'"

  /// std::runtime_error "NAME: WHAT".
  [[noreturn]] void fail(const std::string& what) const;
};

/// The files of data.train and data.test: opened once, digested in the order in which they were asked for.
class ArrayFiles {
 public:
  /// std::runtime_error if there is nothing at `path`.
  explicit ArrayFiles(std::filesystem::path path);

  /// The array of an entry (ArraysOptions::path), with one example or more. `key`, for messages, names the
  /// option. std::runtime_error "PATH: ..." if there is none, or if it is no array of numbers in C order.
  NamedArray find(const std::string& entry, std::string_view key);

  const std::vector<SourceFile>& digests() const { return digests_; }

 private:
  std::pair<std::filesystem::path, std::string> place_of(const std::string& entry) const;
  const ArrayFile& open(const std::filesystem::path& path);
  void digest(const std::filesystem::path& path);
  NamedArray array_of(const std::filesystem::path& path, const std::string& array, std::string_view key);

  std::filesystem::path path_;
  bool folder_ = false;
  std::map<std::filesystem::path, std::unique_ptr<ArrayFile>> files_;
  std::vector<SourceFile> digests_;
};

NamedArray idx_array(const std::filesystem::path& path) {
  const IdxArray idx = read_idx(path, 0);
  const auto bytes = std::as_bytes(std::span(idx.values));
  return {ExampleArray(DType::u8, {idx.extents.begin() + 1, idx.extents.end()},
                       std::vector<std::byte>(bytes.begin(), bytes.end())),
          path.string()};
}

NamedArray read_array(const ArrayFile& file, const ArrayInfo& info) {
  NamedArray found{.values = {},
                   .name = fmt::format("{}: array '{}'", file.path().string(), shown(info.name))};
  if (!info.element) found.fail(fmt::format("{} ({}); expected numbers", info.describe(), info.refusal));
  if (info.shape.empty()) found.fail("a single number; expected examples along a first axis");
  if (info.fortran_order && info.shape.size() > 1)
    found.fail(info.describe() +
               ": the numbers of an example are not contiguous; save numpy.ascontiguousarray of it");
  const std::uint64_t elements = info.element_count(), count = info.shape.front();
  if (elements == 0 || count > std::numeric_limits<std::uint32_t>::max())
    found.fail(fmt::format("{}; expected 1 to 2^32 - 1 examples of one number or more", info.describe()));
  std::vector<std::int64_t> shape(info.shape.begin() + 1, info.shape.end());
  const std::uint64_t bytes = elements * size_of(*info.element);
  if (info.data_offset) {
    file.check(info);
    found.values = ExampleArray(*info.element, std::move(shape),
                                {FilePiece{.file = std::make_shared<const InputFile>(file.path()),
                                           .offset = *info.data_offset,
                                           .stride = bytes / count,
                                           .count = static_cast<std::int64_t>(count)}},
                                info.big_endian);
  } else {
    std::vector<std::byte> all(static_cast<std::size_t>(bytes));
    file.read(info, all);
    found.values = ExampleArray(*info.element, std::move(shape), std::move(all));
  }
  return found;
}

void NamedArray::fail(const std::string& what) const { throw std::runtime_error(name + ": " + what); }

ArrayFiles::ArrayFiles(std::filesystem::path path) : path_(std::move(path)) {
  std::error_code ignored;
  if (!std::filesystem::exists(path_, ignored))
    throw std::runtime_error(
        fmt::format("{}: there is no such file or folder; point data.path at the file of the arrays, or at "
                    "the folder of their files",
                    path_.string()));
  folder_ = std::filesystem::is_directory(path_, ignored);
}

NamedArray ArrayFiles::find(const std::string& entry, std::string_view key) {
  const auto [file, array] = place_of(entry);
  if (file.empty())
    throw std::runtime_error(
        fmt::format("{}: there is no file '{}' or '{}.npy' in this folder; name files, or FILE:ARRAY, in {}",
                    path_.string(), shown(entry), shown(entry), key));
  if (!is_idx_file(file)) return array_of(file, array, key);
  if (!array.empty())
    throw std::runtime_error(
        fmt::format("{}: an IDX file holds one array without a name, not '{}'; point data.path at its folder "
                    "and name the file in {}",
                    file.string(), shown(array), key));
  NamedArray found = idx_array(file);
  digest(file);
  return found;
}

/// The file of an entry, and its array there; no file where there is none, no array where the file has one.
std::pair<std::filesystem::path, std::string> ArrayFiles::place_of(const std::string& entry) const {
  if (!folder_) return {path_, entry};
  std::error_code ignored;
  for (const std::string_view ending : {std::string_view(), npy_ending})
    if (auto path = path_ / (entry + std::string(ending)); std::filesystem::is_regular_file(path, ignored))
      return {std::move(path), ""};
  const std::size_t colon = entry.rfind(':');
  if (colon == std::string::npos || colon == 0) return {};
  std::filesystem::path path = path_ / entry.substr(0, colon);
  if (!std::filesystem::is_regular_file(path, ignored)) return {};
  return {std::move(path), entry.substr(colon + 1)};
}

void ArrayFiles::digest(const std::filesystem::path& path) {
  const auto is_this = [&](const SourceFile& file) { return file.path == path; };
  if (std::none_of(digests_.begin(), digests_.end(), is_this))
    digests_.push_back({path, sha256_of_file(path)});
}

const ArrayFile& ArrayFiles::open(const std::filesystem::path& path) {
  std::unique_ptr<ArrayFile>& file = files_[path];
  if (file == nullptr) file = std::make_unique<ArrayFile>(path);
  return *file;
}

NamedArray ArrayFiles::array_of(const std::filesystem::path& path, const std::string& array,
                                std::string_view key) {
  const ArrayFile& file = open(path);
  const std::span<const ArrayInfo> all = file.arrays();
  const ArrayInfo* info = nullptr;
  if (array.empty() && all.size() == 1) info = &all.front();
  std::string names;
  for (const ArrayInfo& one : all) {
    if (one.name == array) info = &one;
    names += fmt::format("{}'{}'", names.empty() ? "" : ", ", shown(one.name));
  }
  if (info == nullptr)
    throw std::runtime_error(fmt::format("{}: {}; it holds {}; name one in {}", path.string(),
                                         array.empty() ? "which of its arrays? (FILE:ARRAY)"
                                                       : fmt::format("there is no array '{}'", shown(array)),
                                         names.empty() ? "none" : shown(names), key));
  NamedArray found = read_array(file, *info);
  digest(path);
  return found;
}

constexpr std::int64_t most_symbols = std::numeric_limits<std::int32_t>::max();

void check_options(const ArraysOptions& options) {
  const auto refuse = [](const std::string& what) { throw std::invalid_argument(what); };
  const bool test_arrays = options.test_size == 0;
  for (const auto& [key, entries] : {std::pair{"data.train", &options.train}, {"data.test", &options.test}}) {
    if (entries == &options.test && !test_arrays) continue;
    if (entries->size() < (options.targets ? 2u : 1u) || entries->size() > 2)
      refuse(fmt::format("{} = [{}]: expected {}", key, shown(fmt::format("{}", fmt::join(*entries, ", "))),
                         options.targets ? "two arrays, the inputs and the targets"
                                         : "the inputs, and the targets if there are any"));
  }
  if (!(options.test_size >= 0) ||
      (options.test_size > 1 && options.test_size != std::floor(options.test_size)))
    refuse(fmt::format("data.test_size = {}: expected a share below 1, or a number of examples",
                       options.test_size));
  if (options.classes < 0 || options.classes > most_symbols)
    refuse(fmt::format("data.classes = {}: expected 0 to {}", options.classes, most_symbols));
}

std::string shape_text(const ExampleArray& array) {
  return fmt::format("{} ({}{})", name_of(array.type()), array.count(),
                     array.shape().empty() ? "," : fmt::format(", {}", fmt::join(array.shape(), ", ")));
}

/// The greatest of integers that must be in [0, limit).
std::int64_t greatest(const NamedArray& array, std::int64_t limit, std::string_view what) {
  std::vector<std::int64_t> values;
  std::int64_t seen = 0, most = 0;
  array.values.visit({}, [&](std::span<const std::byte> bytes) {
    values.resize(bytes.size() / size_of(array.values.type()));
    to_integers(array.values.type(), bytes, values);
    for (const std::int64_t value : values) {
      if (value < 0 || value >= limit)
        array.fail(fmt::format("element {}, of example {}, is {}: expected {} from 0 to {}", seen,
                               seen / array.values.elements(), value, what, limit - 1));
      most = std::max(most, value);
      ++seen;
    }
  });
  return most;
}

/// How many probabilities a soft label has: the extent of the last axis. 0: an example has a single number.
std::int64_t classes_of_rows(const ExampleArray& targets) {
  return targets.shape().empty() ? 0 : targets.shape().back();
}

/// A row of them need not add up to 1.
void check_probabilities(const NamedArray& array) {
  std::vector<float> values;
  std::int64_t seen = 0;
  array.values.visit({}, [&](std::span<const std::byte> bytes) {
    values.resize(bytes.size() / size_of(array.values.type()));
    to_floats(array.values.type(), bytes, values);
    for (const float value : values) {
      if (!(value >= 0) || std::isinf(value))
        array.fail(fmt::format("element {}, of example {}, is {}: expected a probability, 0 or more", seen,
                               seen / array.values.elements(), value));
      ++seen;
    }
  });
}

bool is_channel_count(std::int64_t extent) { return extent == 1 || extent == 3 || extent == 4; }

ExampleKind kind_of(const NamedArray& inputs) {
  const std::span<const std::int64_t> shape = inputs.values.shape();
  const DType type = inputs.values.type();
  if (is_integer(type) && size_of(type) > 1) return ExampleKind::tokens;
  if (shape.size() == 2 && type == DType::u8) return ExampleKind::nchw;
  if (shape.size() != 3) return ExampleKind::features;
  const bool first = is_channel_count(shape[0]), last = is_channel_count(shape[2]);
  if (first != last) return first ? ExampleKind::nchw : ExampleKind::nhwc;
  inputs.fail(shape_text(inputs.values) +
              ": its examples may be images in the order nchw or nhwc, or features; state it in data.layout");
}

/// Gives the data set its inputs and says what they are.
void take_inputs(Dataset& dataset, const NamedArray& inputs, ExampleKind kind) {
  dataset.inputs = inputs.values;
  if (kind == ExampleKind::features) return;
  if (kind == ExampleKind::tokens) {
    if (!is_integer(inputs.values.type())) inputs.fail(shape_text(inputs.values) + ": tokens are integers");
    return;
  }
  dataset.images = kind == ExampleKind::nchw ? Layout::nchw : Layout::nhwc;
  std::vector<std::int64_t> shape(inputs.values.shape().begin(), inputs.values.shape().end());
  if (shape.size() == 2) shape.insert(kind == ExampleKind::nchw ? shape.begin() : shape.end(), 1);
  if (shape.size() != 3)
    inputs.fail(fmt::format("{}: expected images, (N, {}) or (N, H, W), for data.layout = \"{}\"",
                            shape_text(inputs.values), kind == ExampleKind::nchw ? "C, H, W" : "H, W, C",
                            name_of(kind)));
  dataset.inputs = inputs.values.reshaped(shape);
}

/// The inputs of a set, and its targets if they are wanted.
struct Pair {
  NamedArray inputs;
  std::optional<NamedArray> targets;
};

Pair find_pair(ArrayFiles& files, const std::vector<std::string>& entries, const ArraysOptions& options,
               std::string_view key) {
  Pair pair{.inputs = files.find(entries[0], key), .targets = {}};
  if (!options.targets) return pair;
  pair.targets = files.find(entries[1], key);
  if (pair.targets->values.count() != pair.inputs.values.count())
    pair.targets->fail(fmt::format("{}: expected {} targets, one for each example of {}",
                                   shape_text(pair.targets->values), pair.inputs.values.count(),
                                   pair.inputs.name));
  const ExampleArray& targets = pair.targets->values;
  const std::int64_t classes = classes_of_rows(targets);
  if (options.classes_expected && !is_integer(targets.type()) &&
      (classes < 2 || (options.classes != 0 && options.classes != classes)))
    pair.targets->fail(fmt::format(
        "{}: cross_entropy expects integers, the classes, or soft labels, a probability for each of {}, "
        "({}, {}); for numbers take another model.loss",
        shape_text(targets), options.classes == 0 ? "two or more classes" : "data.classes",
        pair.inputs.values.count(), options.classes == 0 ? "classes" : fmt::format("{}", options.classes)));
  return pair;
}

void require_same_examples(const NamedArray& test, const NamedArray& training) {
  if (!std::ranges::equal(test.values.shape(), training.values.shape()))
    test.fail(fmt::format("{}: expected examples of the shape of {}, {}", shape_text(test.values),
                          training.name, shape_text(training.values)));
}

/// Parts the rows of the training arrays.
void split(SplitDataset& data, const ArraysOptions& options) {
  const std::int64_t count = data.training.inputs.count();
  const double wanted =
      options.test_size < 1 ? std::floor(static_cast<double>(count) * options.test_size) : options.test_size;
  if (wanted < 1 || wanted >= static_cast<double>(count))
    throw std::invalid_argument(
        fmt::format("data.test_size = {} of {} examples: expected at least one to test with and one to train",
                    options.test_size, count));
  std::vector<std::uint32_t> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), 0u);
  if (options.test_seed != 0) order = shuffled_order(options.test_seed, 0, count);
  const auto first = order.end() - static_cast<std::ptrdiff_t>(wanted);
  std::sort(order.begin(), first);
  std::sort(first, order.end());
  data.test = data.training;
  data.test.rows.assign(first, order.end());
  order.erase(first, order.end());
  data.training.rows = std::move(order);
}

}  // namespace

SplitDataset load_arrays(const ArraysOptions& options) {
  check_options(options);
  ArrayFiles files(options.path);
  const bool test_arrays = options.test_size == 0;
  std::vector<Pair> pairs;
  pairs.push_back(find_pair(files, options.train, options, "data.train"));
  if (test_arrays) {
    pairs.push_back(find_pair(files, options.test, options,
                              "data.test, or take a part of the training arrays with data.test_size"));
    require_same_examples(pairs[1].inputs, pairs[0].inputs);
    if (options.targets) {
      require_same_examples(*pairs[1].targets, *pairs[0].targets);
      if (const DType type = pairs[0].targets->values.type();
          options.classes_expected && is_integer(type) != is_integer(pairs[1].targets->values.type()))
        pairs[1].targets->fail(fmt::format("{}: expected what {} has ({}): classes, or soft labels, in both",
                                           shape_text(pairs[1].targets->values), pairs[0].targets->name,
                                           name_of(type)));
    }
  }
  const ExampleKind kind = options.kind == ExampleKind::automatic ? kind_of(pairs[0].inputs) : options.kind;

  std::int64_t vocabulary = 0, classes = options.classes;
  std::vector<Dataset> sets(pairs.size());
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    take_inputs(sets[i], pairs[i].inputs, kind);
    if (kind == ExampleKind::tokens)
      vocabulary = std::max(vocabulary, 1 + greatest(pairs[i].inputs, most_symbols, "a token"));
    if (!options.targets) continue;
    sets[i].targets = pairs[i].targets->values;
    if (!options.classes_expected) continue;
    if (sets[i].soft = !is_integer(sets[i].targets.type()); sets[i].soft) {
      check_probabilities(*pairs[i].targets);
      classes = classes_of_rows(sets[i].targets);
      continue;
    }
    const std::int64_t limit = options.classes == 0 ? most_symbols : options.classes;
    classes = std::max(classes, 1 + greatest(*pairs[i].targets, limit, "a class"));
  }
  for (Dataset& set : sets) {
    set.vocabulary = vocabulary;
    if (options.targets && options.classes_expected) set.classes = classes;
  }
  SplitDataset data{.training = std::move(sets.front()), .test = {}};
  data.training.files = files.digests();
  if (test_arrays)
    data.test = std::move(sets.back());
  else
    split(data, options);
  data.test.files.clear();
  keep_first(data.training, options.subset);
  keep_first(data.test, options.test_subset);
  return data;
}

}  // namespace fp16lab::engine::data
