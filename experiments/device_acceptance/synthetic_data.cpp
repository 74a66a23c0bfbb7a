#include "experiments/device_acceptance/synthetic_data.hpp"

#include <cstdint>
#include <string>
#include <vector>

#include "numerics/files/disk/atomic_file.hpp"
#include "numerics/files/disk/folder.hpp"
#include "numerics/random/philox.hpp"

namespace fp16lab::experiments::acceptance {
namespace {

constexpr int side = 28;
constexpr int classes = 10;
constexpr int band = 3;  ///< rows of a class's bright band

/// The format's header: two zeros, the type (unsigned bytes), the number of axes, and each extent with the
/// highest byte first.
std::string idx_header(const std::vector<std::uint32_t>& extents) {
  std::string bytes{'\0', '\0', '\x08', static_cast<char>(extents.size())};
  for (const std::uint32_t extent : extents)
    for (const unsigned shift : {24U, 16U, 8U, 0U}) bytes += static_cast<char>(extent >> shift & 0xffU);
  return bytes;
}

void write_split(const std::filesystem::path& folder, const std::string& prefix, int count) {
  const PhiloxStream noise{.seed = 2026, .stream = stream_id("made_up." + prefix)};
  std::string pixels = idx_header({static_cast<std::uint32_t>(count), side, side});
  std::string labels = idx_header({static_cast<std::uint32_t>(count)});
  std::uint64_t word = 0;
  for (int image = 0; image < count; ++image) {
    const int label = image * 7 % classes;
    labels += static_cast<char>(label);
    for (int row = 0; row < side; ++row)
      for (int column = 0; column < side; ++column) {
        const bool bright = row / band == label % (classes - 1) && (label < classes - 1 || column % 2 == 0);
        pixels += static_cast<char>((bright ? 180U : 0U) + (noise.word(word++) >> 26));
      }
  }
  write_file_atomically(folder / (prefix + "-images-idx3-ubyte"), pixels);
  write_file_atomically(folder / (prefix + "-labels-idx1-ubyte"), labels);
}

}  // namespace

void write_synthetic_images(const std::filesystem::path& folder, int training, int test) {
  make_folders(folder);
  write_split(folder, "train", training);
  write_split(folder, "t10k", test);
}

void write_synthetic_text(const std::filesystem::path& file, int characters) {
  if (file.has_parent_path()) make_folders(file.parent_path());
  const PhiloxStream words{.seed = 2026, .stream = stream_id("made_up.text")};
  std::string text;
  for (std::uint64_t word = 0; text.size() < static_cast<std::size_t>(characters); ++word) {
    const std::uint32_t draw = words.word(word);
    for (std::uint32_t letter = 0; letter < 2 + draw % 6; ++letter)
      text += static_cast<char>('a' + (draw >> (4 * letter + 3)) % 26);
    text += draw >> 29 == 0 ? ".\n" : " ";
  }
  text.resize(static_cast<std::size_t>(characters));
  write_file_atomically(file, text);
}

}  // namespace fp16lab::experiments::acceptance
