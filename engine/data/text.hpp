// Text for language models over bytes or words: a file, its vocabulary, and windows of it as batches.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/backend/backend.hpp"
#include "engine/data/batch_source.hpp"
#include "engine/data/dataset.hpp"
#include "engine/data/epoch_order.hpp"
#include "numerics/text/named_enum.hpp"

namespace fp16lab::engine::data {

/// What a symbol of a text means.
enum class Tokens {
  bytes,  ///< one byte
  words,  ///< a word with the space before it, digits, marks, or a run of spaces: see first_word
};
constexpr std::array<std::string_view, 2> names_of(Tokens) { return {"bytes", "words"}; }

/// A text in pieces that follow each other and leave nothing out, in the manner of GPT-2 (Radford et al.
/// 2019, section 2.2) before its byte pairs: a run of letters, of digits, or of other marks, each with one
/// space before it if there is one; the remaining white space is a piece of its own. Letters are those of
/// ASCII, the apostrophe, and every byte above 127, so that words of UTF-8 stay whole. Returns the piece that
/// `text` begins with; nothing of an empty text.
std::string_view first_word(std::string_view text);

/// A text as symbols: symbol i means the bytes `vocabulary[i]`. The vocabulary is the distinct tokens of the
/// whole file in ascending order of their bytes, so nothing in the test set is unknown.
struct Text {
  std::vector<std::string> vocabulary;
  std::vector<std::int32_t> symbols;
  std::optional<std::size_t> characters{};  ///< of UTF-8; nothing if the bytes are no UTF-8
  std::vector<SourceFile> files;            ///< the file, and the vocabulary as if it were one

  /// First 90 %: floor(9 n / 10) symbols; and the rest.
  std::span<const std::int32_t> training() const;
  std::span<const std::int32_t> test() const;
};

/// The text whose bytes are `bytes`; no files. std::invalid_argument if there are none, or 2^31 tokens.
Text make_text(std::string_view bytes, Tokens tokens = Tokens::bytes);
/// How many of `symbols`, a part of `text`, spell one character that begins in it. For bytes: 1 for ASCII, 3
/// for Chinese; 1 too for what is no UTF-8, where every byte counts as a character. 1 for none.
double symbols_per_character(const Text& text, std::span<const std::int32_t> symbols);
/// The bytes that `symbols` spell. std::out_of_range for a symbol that `text` does not have.
std::string bytes_of(const Text& text, std::span<const std::int32_t> symbols);

/// Where a text is, and which setting named it.
struct TextLocation {
  std::filesystem::path file;
  std::string chosen_by;  ///< "data.path", "$FP16LAB_DATA" or "the folder of scripts/setup.sh"
};

/// The file that scripts/setup.sh exports the text `name` to.
std::filesystem::path exported_text(std::string_view name);

/// Looks for `name`.txt in `path` if that is not empty (a file, under any name, or a folder with it), else in
/// $FP16LAB_DATA (or its subfolder `name`) if that is set, else takes exported_text(name). The first that
/// applies is the only one tried. The name "text" has no file but `path`. std::invalid_argument for a name
/// that is unknown or not of text, and for "text" without a path; std::runtime_error naming the file that is
/// missing, the setting that chose it, and the Debian package.
TextLocation find_text(std::string_view name, const std::filesystem::path& path);

/// std::runtime_error if the file cannot be read or is empty.
Text load_text(const TextLocation& location, Tokens tokens = Tokens::bytes);

struct TextLoaderOptions {
  std::int64_t batch_size = 1;  ///< windows
  std::int64_t context = 64;    ///< T, symbols a window predicts
  bool shuffle = true;
  std::uint64_t seed = 0;
};

/// Windows of T + 1 symbols at 0, T, 2 T, ...: inputs (B, T) are the first T symbols of each, targets (B * T)
/// the last T, in the order of the logits' rows (b, t). The last symbol of a window is the first of the next,
/// so an epoch predicts every symbol but the very first once (and leaves out what fills no window or no
/// batch). Shuffled by window, as Loader is by image; a pure function of (options, index) as well. The
/// symbols must outlive the loader. Once warm, no batch allocates memory.
class TextLoader final : public BatchSource {
 public:
  /// std::invalid_argument unless context >= 1 and 1 <= batch_size <= number of windows.
  TextLoader(std::span<const std::int32_t> symbols, const TextLoaderOptions& options);

  std::uint64_t batches_per_epoch() const override;
  std::int64_t rows_per_batch() const override { return options_.batch_size * options_.context; }
  std::int64_t window_count() const { return order_.count(); }
  Batch batch(Backend& backend, std::uint64_t global_micro_batch_index) override {
    return part_of_batch(backend, global_micro_batch_index, {});
  }
  Batch part_of_batch(Backend& backend, std::uint64_t global_micro_batch_index,
                      const BatchPart& part) override;
  /// The windows of that batch, by their number: window w begins at symbol w * T. Valid until the next call.
  std::span<const std::uint32_t> windows(std::uint64_t global_micro_batch_index);

 private:
  std::span<const std::int32_t> symbols_;
  TextLoaderOptions options_;
  EpochOrder order_;
  std::vector<std::int32_t> inputs_, targets_;  ///< host memory of one batch
};

/// Windows of T + 1 symbols that fit into `symbols` symbols at a distance of T.
std::int64_t window_count(std::int64_t symbols, std::int64_t context);

}  // namespace fp16lab::engine::data
