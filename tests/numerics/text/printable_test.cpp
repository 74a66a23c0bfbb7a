// Any text, made printable for lines, scripts and command lines.
#include <gtest/gtest.h>

#include <filesystem>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "numerics/text/text.hpp"
#include "tests/support/spawn.hpp"
#include "tests/support/temporary_folder.hpp"

namespace fp16lab {
namespace {

TEST(Printable, ActsOnNothingAndKeepsWhatIsSeen) {
  for (const std::string kept : {"", "fc1.weight", "a b\\n'\"`$(x)</b>", "Größe ≤ 2⁻²⁴", "神经网络",
                                 "\xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x94\xac"}) {
    EXPECT_EQ(printable(kept), kept);
    EXPECT_TRUE(is_printable(kept));
  }
  for (const auto& [text, shown] : std::vector<std::pair<std::string, std::string>>{
           {"a\nb\tc\r", "a\\x0ab\\x09c\\x0d"},
           {std::string("\0\a\x1b[31m\x7f", 8), "\\x00\\x07\\x1b[31m\\x7f"},
           {"\xc2\x80\xc2\x9b\xc2\x9f", "\\u0080\\u009b\\u009f"},              // C1: CSI in one character
           {"\xe2\x80\xa8\xe2\x80\xa9", "\\u2028\\u2029"},                     // ends of lines
           {"\xe2\x80\xae\xe2\x81\xa6\xe2\x80\x8f", "\\u202e\\u2066\\u200f"},  // text that runs backwards
           {"\xd8\x9c\xef\xbb\xbf", "\\u061c\\ufeff"},
           {"\xef\xbf\xbe\xef\xbf\xbf\xf0\x9f\xbf\xbf", "\\ufffe\\uffff\\u1ffff"},  // no characters of XML
           {"\xf3\xa0\x81\x81", "\\ue0041"},
           {"caf\xe9 \xff\xc3", "caf\\xe9 \\xff\\xc3"},               // Latin-1, cut off
           {"\xed\xa0\x80\xc0\x8a", "\\xed\\xa0\\x80\\xc0\\x8a"}}) {  // a surrogate, an overlong line break
    EXPECT_EQ(printable(text), shown);
    EXPECT_FALSE(is_printable(text));
    EXPECT_TRUE(is_printable(shown));
  }
}

TEST(Printable, IsUtf8WithoutControlsWhateverTheBytesAre) {
  std::mt19937 random(37);
  for (int i = 0; i < 20000; ++i) {
    std::string text;
    for (std::size_t length = random() % 12; text.size() < length;)
      text += static_cast<char>(random() % 3 == 0 ? 0xe2 - random() % 3 : random() % 256);
    const std::string line = printable(text);
    ASSERT_TRUE(utf8_length(line)) << line;
    ASSERT_EQ(printable(line), line);
    for (const char c : line) ASSERT_TRUE(static_cast<unsigned char>(c) >= 0x20 && c != 0x7f) << line;
  }
}

TEST(Printable, ShownIsCutBetweenCharacters) {
  EXPECT_EQ(shown(std::string(79, 'a') + "é"), std::string(79, 'a') + "...");
  EXPECT_EQ(shown(std::string(80, 'a')), std::string(80, 'a'));
  EXPECT_EQ(shown(std::string(78, 'a') + "éé"), std::string(78, 'a') + "é...");
  EXPECT_EQ(shown(std::string(90, '\n')).size(), 80 * 4 + 3u);
}

TEST(CsvText, IsOneFieldOfOneLine) {
  EXPECT_EQ(csv_text("a, b"), "\"a, b\"");
  EXPECT_EQ(csv_text("say \"x\"\nand"), "\"say \"\"x\"\"\\x0aand\"");
}

TEST(ShellLine, IsReadBackByAShell) {
  if (!std::filesystem::exists("/bin/bash")) GTEST_SKIP() << "there is no bash";
  const std::vector<std::string> pieces{"a",
                                        "Z0",
                                        " ",
                                        "'",
                                        "\"",
                                        "\\",
                                        "`touch CANARY`",
                                        "$(touch CANARY)",
                                        "$HOME",
                                        "\n",
                                        "\t",
                                        "\a",
                                        "!",
                                        "*",
                                        "~",
                                        ";",
                                        "&",
                                        "|",
                                        "#",
                                        "\x1b[31m",
                                        "é",
                                        "7",
                                        "\xff",
                                        "{a,b}",
                                        "\xe2\x80\xae",
                                        "-",
                                        "=",
                                        "<x>",
                                        "?"};
  std::mt19937 random(37);
  const testing_support::TemporaryFolder folder;
  std::string script = "cd '" + folder.path().string() + "' || exit 1\n", expected;
  for (int i = 0; i < 300; ++i) {
    std::vector<std::string> words{"printf", "%s\\0"};
    for (std::size_t n = 1 + random() % 3; words.size() < 2 + n;) {
      std::string& word = words.emplace_back();
      for (std::size_t length = random() % 8; length > 0; --length) word += pieces[random() % pieces.size()];
      expected += word + '\0';
    }
    const std::string line = shell_line(words);
    EXPECT_TRUE(is_printable(line)) << line;
    script += line + "\n";
  }
  const testing_support::Finished bash =
      testing_support::run_program("/bin/bash", {"-c", script}, folder.path());
  EXPECT_EQ(bash.exit_code, 0) << bash.err;
  EXPECT_EQ(bash.out, expected);
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "CANARY"));
}

}  // namespace
}  // namespace fp16lab
