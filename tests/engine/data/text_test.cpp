// engine/data/text: vocabulary, windows, where the loader looks for a text, and its error for a missing one.
#include "engine/data/text.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "engine/backend/emulated/emulated_backend.hpp"
#include "numerics/files/disk/atomic_file.hpp"
#include "numerics/files/disk/sha256.hpp"
#include "numerics/tensor_core/tensor_core_model.hpp"
#include "tests/support/message_of.hpp"
#include "tests/support/temporary_folder.hpp"

namespace fp16lab::engine::data {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing_support::message_of;

std::string alphabet(std::size_t size) {
  std::string text;
  for (std::size_t i = 0; i < size; ++i) text += static_cast<char>('a' + i * i % 26);
  return text;
}

TEST(Vocabulary, IsTheDistinctBytesInAscendingOrder) {
  const Text text = make_text("banana\n");
  EXPECT_THAT(text.vocabulary, ElementsAre("\n", "a", "b", "n"));
  EXPECT_THAT(text.symbols, ElementsAre(2, 1, 3, 1, 3, 1, 0));
  EXPECT_THROW(make_text(""), std::invalid_argument);
}

TEST(Vocabulary, AllBytesMakeTheRoundTrip) {
  std::string bytes;
  for (int i = 0; i < 1024; ++i) bytes += static_cast<char>(i * 37 % 256);
  const Text all = make_text(bytes);
  EXPECT_EQ(all.vocabulary.size(), 256u);
  EXPECT_EQ(bytes_of(all, all.symbols), bytes);
  const Text few = make_text("zebra");
  EXPECT_EQ(bytes_of(few, few.symbols), "zebra");
  const std::vector<std::int32_t> unknown{5};
  EXPECT_THROW(bytes_of(few, unknown), std::out_of_range);
}

TEST(Vocabulary, CharactersAreThoseOfUtf8) {
  const auto ratio = [](const std::string& bytes) {
    const Text text = make_text(bytes);
    return symbols_per_character(text, text.symbols);
  };
  EXPECT_EQ(ratio("banana\n"), 1);
  EXPECT_EQ(make_text("banana\n").characters, 7u);
  std::string chinese;
  for (int i = 0; i < 40000; ++i) chinese += i % 2 == 0 ? "\xe4\xb8\xad" : "\xe6\x96\x87";
  EXPECT_EQ(make_text(chinese).characters, 40000u);
  EXPECT_EQ(make_text(chinese).symbols.size(), 120000u);
  EXPECT_EQ(ratio(chinese), 3);
  EXPECT_EQ(ratio("a\xc3\xa9"), 1.5);
  // In another encoding a byte is the best guess at a character.
  EXPECT_EQ(ratio("caf\xe9s"), 1);
  EXPECT_EQ(make_text("caf\xe9s").characters, std::nullopt);
  // A part may begin in the middle of a character, which then does not begin in it.
  const Text text = make_text(
      "\xe4\xb8\xad"
      "ab");
  EXPECT_EQ(symbols_per_character(text, std::span(text.symbols).subspan(1)), 2);
  EXPECT_EQ(symbols_per_character(text, std::span(text.symbols).subspan(1, 2)), 1) << "none begins in it";
  EXPECT_EQ(symbols_per_character(text, {}), 1);
}

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  while (!text.empty()) {
    words.emplace_back(first_word(text));
    text.remove_prefix(words.back().size());
  }
  return words;
}

TEST(Words, CarryTheSpaceBeforeThemAndLeaveNothingOut) {
  EXPECT_THAT(
      words_of("In the year 1611, God's  word:\n\n It is"),
      ElementsAre("In", " the", " year", " 1611", ",", " God's", " ", " word", ":", "\n\n", " It", " is"));
  EXPECT_THAT(words_of("a1b2"), ElementsAre("a", "1", "b", "2"));
  EXPECT_THAT(words_of("\t x  "), ElementsAre("\t", " x", "  "));
  EXPECT_THAT(words_of("x\ty"), ElementsAre("x", "\t", "y")) << "only a space joins";
  EXPECT_THAT(words_of("(\"caf\xc3\xa9\")"), ElementsAre("(\"", "caf\xc3\xa9", "\")"));
  EXPECT_THAT(words_of("   "), ElementsAre("   "));
  EXPECT_EQ(first_word(""), "");
}

TEST(Words, AreNumberedInTheOrderOfTheirBytesAndGiveBackTheText) {
  const std::string bytes = "the cat, the dog, the caf\xc3\xa9\n";
  const Text text = make_text(bytes, Tokens::words);
  EXPECT_THAT(text.vocabulary, ElementsAre("\n", " caf\xc3\xa9", " cat", " dog", " the", ",", "the"));
  EXPECT_THAT(text.symbols, ElementsAre(6, 2, 5, 4, 3, 5, 4, 1, 0));
  EXPECT_EQ(bytes_of(text, text.symbols), bytes);
  EXPECT_EQ(text.characters, 27u);
  EXPECT_EQ(symbols_per_character(text, text.symbols), 9.0 / 27);
  EXPECT_EQ(symbols_per_character(text, std::span(text.symbols).first(2)), 2.0 / 7) << "\"the cat\"";
  EXPECT_EQ(symbols_per_character(make_text("caf\xe9 s", Tokens::words), std::vector<std::int32_t>{1}),
            1.0 / 4)
      << "no UTF-8: bytes";
}

TEST(TextSplit, TheFirstNineTenthsTrainAndTheRestTests) {
  for (const std::size_t size : {1u, 9u, 10u, 11u, 19u, 4404412u}) {
    const Text text = make_text(std::string(size, 'x'));
    EXPECT_EQ(text.training().size(), size * 9 / 10);
    EXPECT_EQ(text.training().size() + text.test().size(), size);
    EXPECT_EQ(text.test().data(), text.training().data() + text.training().size());
  }
}

TEST(TextWindows, EverySymbolButTheFirstIsPredictedOnceAnEpoch) {
  // 41 symbols, windows of 4: ten of them, the last target is symbol 40.
  std::vector<std::int32_t> symbols(41);
  for (std::size_t i = 0; i < symbols.size(); ++i) symbols[i] = static_cast<std::int32_t>(i);
  const auto backend = make_emulated_backend(tensor_core_model("hopper"), 1);
  TextLoader loader(symbols, {.batch_size = 2, .context = 4, .shuffle = true, .seed = 7});
  ASSERT_EQ(loader.window_count(), 10);
  ASSERT_EQ(loader.batches_per_epoch(), 5u);
  EXPECT_EQ(loader.rows_per_batch(), 8);
  for (const std::uint64_t epoch : {0u, 3u}) {
    std::multiset<std::int32_t> predicted;
    for (std::uint64_t b = 0; b < 5; ++b) {
      const Batch batch = loader.batch(*backend, epoch * 5 + b);
      ASSERT_EQ(batch.inputs.shape(), (Shape{2, 4}));
      ASSERT_EQ(batch.targets.shape(), (Shape{8}));
      ASSERT_EQ(batch.inputs.dtype(), DType::i32);
      ASSERT_EQ(batch.targets.dtype(), DType::i32);
      for (std::size_t row = 0; row < 8; ++row) {
        const std::int32_t input = batch.inputs.host<std::int32_t>()[row];
        const std::int32_t target = batch.targets.host<std::int32_t>()[row];
        EXPECT_EQ(target, input + 1) << "the next symbol, in the order (b, t)";
        if (row % 4 == 0)
          EXPECT_EQ(input % 4, 0) << "windows begin at multiples of the context";
        else
          EXPECT_EQ(input, batch.inputs.host<std::int32_t>()[row - 1] + 1) << "windows are in one piece";
        predicted.insert(target);
      }
    }
    EXPECT_EQ(predicted.size(), 40u);
    EXPECT_EQ(std::set<std::int32_t>(predicted.begin(), predicted.end()).size(), 40u);
    EXPECT_EQ(predicted.count(0), 0u);
  }
}

TEST(TextWindows, WhatFillsNoWindowOrNoBatchIsLeftOut) {
  const std::vector<std::int32_t> symbols(44);
  EXPECT_EQ(window_count(44, 4), 10);
  EXPECT_EQ(window_count(41, 4), 10);
  EXPECT_EQ(window_count(40, 4), 9) << "the last window would lack its last target";
  EXPECT_EQ(window_count(4, 4), 0);
  EXPECT_EQ(window_count(0, 4), 0);
  const TextLoader loader(symbols, {.batch_size = 3, .context = 4});
  EXPECT_EQ(loader.batches_per_epoch(), 3u);
}

TEST(TextWindows, ABatchIsAPureFunctionOfSeedAndIndex) {
  std::vector<std::int32_t> symbols(200);
  for (std::size_t i = 0; i < symbols.size(); ++i) symbols[i] = static_cast<std::int32_t>(i);
  const auto backend = make_emulated_backend(tensor_core_model("hopper"), 1);
  const auto inputs_of = [&](TextLoader& loader, std::uint64_t index) {
    const Batch batch = loader.batch(*backend, index);
    const auto values = batch.inputs.host<std::int32_t>();
    return std::vector<std::int32_t>(values.begin(), values.end());
  };
  const TextLoaderOptions options{.batch_size = 3, .context = 8, .shuffle = true, .seed = 5};
  TextLoader in_order(symbols, options);
  std::vector<std::vector<std::int32_t>> expected;
  for (std::uint64_t i = 0; i < 25; ++i) expected.push_back(inputs_of(in_order, i));
  TextLoader jumping(symbols, options);
  for (const std::uint64_t i : {24u, 0u, 9u, 9u, 3u, 17u, 8u}) EXPECT_EQ(inputs_of(jumping, i), expected[i]);
  EXPECT_NE(expected[0], expected[8]) << "each epoch has its own order";
  TextLoader other(symbols, {.batch_size = 3, .context = 8, .shuffle = true, .seed = 6});
  EXPECT_NE(inputs_of(other, 0), expected[0]);
  // Without shuffling every epoch begins with the first windows.
  TextLoader fixed(symbols, {.batch_size = 3, .context = 8, .shuffle = false});
  EXPECT_THAT(fixed.windows(0), ElementsAre(0, 1, 2));
  EXPECT_THAT(fixed.windows(8), ElementsAre(0, 1, 2));
}

TEST(TextWindows, ImpossibleSizesAreNamed) {
  const std::vector<std::int32_t> symbols(20);
  const auto error = [&](std::int64_t batch_size, std::int64_t context) {
    return message_of([&] { TextLoader(symbols, {.batch_size = batch_size, .context = context}); });
  };
  EXPECT_THAT(error(1, 20), AllOf(HasSubstr("20 symbols"), HasSubstr("too short for one window of 20 + 1")));
  EXPECT_THAT(error(1, 0), HasSubstr("a window of 0 symbols"));
  EXPECT_THAT(error(0, 4), HasSubstr("expected 1 to 4"));
  EXPECT_THAT(error(5, 4), AllOf(HasSubstr("batch size of 5"), HasSubstr("4 windows of 4")));
}

class TextFiles : public testing::Test {
 protected:
  void SetUp() override {
    unsetenv("FP16LAB_DATA");  // NOLINT(concurrency-mt-unsafe): one thread
  }
  void TearDown() override {
    unsetenv("FP16LAB_DATA");  // NOLINT(concurrency-mt-unsafe): one thread
  }
  std::filesystem::path write(const std::string& name, const std::string& text) {
    std::filesystem::create_directories((folder_ / name).parent_path());
    write_file_atomically(folder_ / name, text);
    return folder_ / name;
  }
  testing_support::TemporaryFolder temporary_;
  const std::filesystem::path& folder_ = temporary_.path();
};

TEST_F(TextFiles, AreReadWithTheirFingerprints) {
  const std::string bytes = alphabet(300);
  const auto path = write("mine.txt", bytes);
  const TextLocation location = find_text("text", path);
  EXPECT_EQ(location.file, path);
  EXPECT_EQ(location.chosen_by, "data.path");
  const Text text = load_text(location);
  EXPECT_EQ(bytes_of(text, text.symbols), bytes);
  ASSERT_EQ(text.files.size(), 2u);
  EXPECT_EQ(text.files[0].path, path);
  EXPECT_EQ(text.files[0].sha256, sha256_of(bytes));
  std::string mapping;
  for (const std::string& token : text.vocabulary) mapping += token;
  EXPECT_EQ(text.files[1].sha256, sha256_of(mapping));
  EXPECT_THAT(text.files[1].path.string(), HasSubstr(std::to_string(mapping.size()) + " bytes"));
}

TEST_F(TextFiles, AreLookedForOnlyInTheGivenFolder) {
  const auto named = write("explicit/bible-kjv.txt", "In the beginning");
  EXPECT_EQ(find_text("bible-kjv", folder_ / "explicit").file, named) << "a folder with the file";
  EXPECT_EQ(find_text("bible-kjv", named).file, named) << "the file";
  EXPECT_EQ(find_text("bible-kjv", {}).file, exported_text("bible-kjv")) << "tests run after the set-up";

  setenv("FP16LAB_DATA", (folder_ / "explicit").c_str(), 1);  // NOLINT(concurrency-mt-unsafe): one thread
  const TextLocation by_variable = find_text("bible-kjv", {});
  EXPECT_EQ(by_variable.file, named);
  EXPECT_EQ(by_variable.chosen_by, "$FP16LAB_DATA");
  const auto below = write("variable/bible-kjv/bible-kjv.txt", "In the beginning");
  setenv("FP16LAB_DATA", (folder_ / "variable").c_str(), 1);  // NOLINT(concurrency-mt-unsafe): one thread
  EXPECT_EQ(find_text("bible-kjv", {}).file, below) << "its subfolder of that name";

  // The first place that applies is the only one: a wrong one is an error, not a reason to look elsewhere.
  EXPECT_THAT(message_of([&] { find_text("bible-kjv", folder_ / "nowhere"); }),
              AllOf(HasSubstr("nowhere"), HasSubstr("chosen by data.path"), HasSubstr("scripts/setup.sh"),
                    HasSubstr("Debian package bible-kjv")));
  setenv("FP16LAB_DATA", (folder_ / "empty").c_str(), 1);  // NOLINT(concurrency-mt-unsafe): one thread
  EXPECT_THAT(message_of([&] { find_text("bible-kjv", {}); }),
              AllOf(HasSubstr((folder_ / "empty" / "bible-kjv.txt").string()), HasSubstr("$FP16LAB_DATA")));
}

TEST_F(TextFiles, WhatCannotBeIsOneClearError) {
  EXPECT_THAT(message_of([&] { find_text("text", {}); }), HasSubstr("needs data.path"));
  EXPECT_THAT(message_of([&] { find_text("text", folder_ / "absent.txt"); }),
              AllOf(HasSubstr("absent.txt"), HasSubstr("point data.path at a text file")));
  EXPECT_THAT(message_of([&] { find_text("fashion-mnist", {}); }),
              AllOf(HasSubstr("unknown data set 'fashion-mnist'"), HasSubstr("bible-kjv, text")));
  EXPECT_THAT(message_of([&] { find_dataset("bible-kjv", {}); }), HasSubstr("of images there are"));
  const auto empty = write("empty.txt", "");
  EXPECT_THAT(message_of([&] { load_text(find_text("text", empty)); }),
              AllOf(HasSubstr("empty.txt"), HasSubstr("is empty")));
  // A folder in the place of the file cannot be read, even by root.
  std::filesystem::create_directories(folder_ / "odd" / "text.txt");
  EXPECT_THAT(message_of([&] { load_text(find_text("text", folder_ / "odd")); }), HasSubstr("text.txt"));
}

TEST_F(TextFiles, TheExportedBibleIsTheOneThatTheConfigurationsWereTunedOn) {
  const Text text = load_text(find_text("bible-kjv", {}));
  EXPECT_EQ(text.symbols.size(), 4404412u);
  const Text words = load_text(find_text("bible-kjv", {}), Tokens::words);
  EXPECT_GT(words.vocabulary.size(), 12000u);
  EXPECT_EQ(bytes_of(words, words.symbols), bytes_of(text, text.symbols));
  EXPECT_NE(words.files[1].sha256, text.files[1].sha256);
  EXPECT_EQ(text.vocabulary.size(), 73u);
  EXPECT_THAT(bytes_of(text, std::span(text.symbols).first(60)),
              "Ge1:1 In the beginning God created the heaven and the earth.");
}

}  // namespace
}  // namespace fp16lab::engine::data
