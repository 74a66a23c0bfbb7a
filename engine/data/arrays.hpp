// Data sets of users: arrays of .npy, .npz, .safetensors and IDX files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/data/dataset.hpp"
#include "numerics/text/named_enum.hpp"

namespace fp16lab::engine::data {

/// What an example of an array of inputs is, by its axes after the first.
enum class ExampleKind {
  automatic,  ///< tokens for integers of 16 bits and more; images for three axes, where the first (then nchw)
  ///< or the last (then nhwc) of them has an extent of 1, 3 or 4 and the other has not, and for two
  ///< axes of bytes; else features
  nchw,      ///< images (C, H, W), or (H, W) of one channel
  nhwc,      ///< images (H, W, C), or (H, W)
  features,  ///< numbers of any shape
  tokens,    ///< integers of any shape: symbols for an embedding
};
constexpr std::array<std::string_view, 5> names_of(ExampleKind) {
  return {"auto", "nchw", "nhwc", "features", "tokens"};
}

struct ArraysOptions {
  /// A file, whose arrays `train` and `test` name; or a folder, in which each of their entries is a file: one
  /// that holds a single array, or "FILE:ARRAY"; ".npy" may be left out.
  std::filesystem::path path{};
  std::vector<std::string> train{};  ///< inputs, targets; or inputs alone
  std::vector<std::string> test{};   ///< likewise; not used with a test_size
  /// Not 0: how much of the training arrays is the test set, a share of them (rounded down) below 1, else a
  /// number of examples.
  double test_size = 0;
  /// Which of them: not 0, the last in the shuffled order (engine/data/epoch_order.hpp) of this seed and
  /// epoch 0, in the order of their rows; 0, the last rows.
  std::uint64_t test_seed = 1;
  ExampleKind kind = ExampleKind::automatic;
  bool targets = true;           ///< false: entries for targets are not read
  bool classes_expected = true;  ///< are targets classes (floating point: soft labels), or numbers?
  std::int64_t classes = 0;      ///< 0: one more than the greatest target, or as many as soft labels have
  std::int64_t subset = 0;       ///< first examples of the training set; 0: all
  std::int64_t test_subset = 0;  ///< for the test set
};

struct SplitDataset {
  Dataset training, test;  ///< the files of both are training's
};

/// Arrays are read when a batch needs them, but for deflated members of .npz, IDX, and what has 64 MiB at
/// most (ExampleArray): these are held in memory. Tokens and classes are read once and checked: they must be
/// in [0, vocabulary) and [0, classes), in both sets together; so are soft labels, which are finite, 0 or
/// more. Targets (N, 1) and (N, T) are one and T an example; soft labels are (N, classes) or (N, T, classes).
/// std::runtime_error "PATH: ..." for files that are missing, damaged or do not fit each other, with what was
/// expected and what was found; std::invalid_argument for options that cannot be.
SplitDataset load_arrays(const ArraysOptions& options);

}  // namespace fp16lab::engine::data
