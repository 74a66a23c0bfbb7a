// numerics/files/disk and numerics/text/nesting: type, length and depth of what is read.
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "numerics/files/arrays/array_stream.hpp"
#include "numerics/files/arrays/safetensors.hpp"
#include "numerics/files/disk/input_file.hpp"
#include "numerics/files/disk/read_file.hpp"
#include "numerics/files/disk/sha256.hpp"
#include "numerics/files/run/replay_file.hpp"
#include "numerics/files/run/run_folder.hpp"
#include "numerics/text/nesting.hpp"
#include "tests/numerics/files/files_fixture.hpp"
#include "tests/support/message_of.hpp"

namespace fp16lab {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing_support::message_of;

class Reading : public Files {
 protected:
  Reading() { ::alarm(60); }  // a hang is a failure
  ~Reading() override { ::alarm(0); }

  /// A file of that length that takes no disk space.
  std::filesystem::path sparse(const std::string& name, std::uintmax_t bytes) const {
    write_raw(name, "");
    std::filesystem::resize_file(folder / name, bytes);
    return folder / name;
  }
};

TEST_F(Reading, WhatIsNoFileIsRefusedAtOnce) {
  const std::filesystem::path fifo = folder / "fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  const std::vector<std::function<void(const std::filesystem::path&)>> readers{[](const auto& path) { (void)read_file(path); },
                                                                               [](const auto& path) { (void)read_lines(path); },
                                                                               [](const auto& path) { (void)sha256_of_file(path); },
                                                                               [](const auto& path) { (void)InputFile(path); },
                                                                               [](const auto& path) { (void)LineReader(path); },
                                                                               [](const auto& path) { (void)SafetensorsReader(path); },
                                                                               [](const auto& path) { (void)ArrayFile(path); },
                                                                               [](const auto& path) { (void)read_replay(path); }};
  for (const auto& read : readers)
    for (const std::filesystem::path& path : {fifo, std::filesystem::path("/dev/zero")})
      EXPECT_THAT(message_of([&] { read(path); }),
                  AllOf(HasSubstr(path.string()), HasSubstr("not a regular file")));
  EXPECT_THAT(message_of([&] { (void)read_file(folder); }), HasSubstr("a folder"));
}

TEST_F(Reading, EveryFileOfARunThatIsAFifoIsRefusedAtOnce) {
  Manifest manifest;
  manifest.config = "[train]\nseed = 1\n";
  {
    RunWriter writer(folder / "run", manifest);
    writer.finish(ExitState::finished);
  }
  const auto read_all = [&] {
    (void)read_run_folder(folder / "run");
    (void)read_histograms(folder / "run");
    (void)read_overflows(folder / "run");
    (void)read_culprits(folder / "run");
  };
  read_all();
  for (const std::string_view name : {run_file::manifest, run_file::steps, run_file::evaluations,
                                      run_file::histograms, run_file::overflows, run_file::culprits}) {
    const std::filesystem::path file = folder / "run" / name, away = folder / "away";
    const bool there = std::filesystem::exists(file);
    if (there) std::filesystem::rename(file, away);
    ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);
    EXPECT_THAT(message_of(read_all), AllOf(HasSubstr(std::string(name)), HasSubstr("not a regular file")));
    // Nor may a run be continued whose files are none.
    EXPECT_THAT(message_of([&] { require_plain_run(folder / "run"); }),
                AllOf(HasSubstr(std::string(name)), HasSubstr("a FIFO")));
    std::filesystem::remove(file);
    if (there) std::filesystem::rename(away, file);
  }
  require_plain_run(folder / "run");
  std::filesystem::create_directory(folder / "elsewhere");
  std::ofstream(folder / "elsewhere" / "step-000001.safetensors.tmp-1") << "mine";
  std::filesystem::create_directory_symlink(folder / "elsewhere", folder / "run" / "checkpoints");
  EXPECT_THAT(message_of([&] { require_plain_run(folder / "run"); }), HasSubstr("a symbolic link"));
  EXPECT_THAT(message_of([&] { make_checkpoint_folder(folder / "run"); }), HasSubstr("a symbolic link"));
  remove_temporary_files(folder / "run");
  remove_run(folder / "run");
  EXPECT_TRUE(std::filesystem::exists(folder / "elsewhere" / "step-000001.safetensors.tmp-1"));
}

TEST_F(Reading, APipeThatAUserNamesIsWaitedForAndBounded) {
  const std::filesystem::path fifo = folder / "fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  std::thread writer([&] { std::ofstream(fifo) << "text"; });
  EXPECT_EQ(read_file(fifo, 4, NamedHow::by_user), "text");
  writer.join();
  EXPECT_THAT(message_of([&] { (void)read_file("/dev/zero", 100'000, NamedHow::by_user); }),
              AllOf(HasSubstr("/dev/zero"), HasSubstr("longer than 100000 bytes")));
  EXPECT_THAT(message_of([&] { (void)read_file(folder, 4, NamedHow::by_user); }), HasSubstr("a folder"));
}

TEST_F(Reading, LengthsAreBounded) {
  write_raw("a", "12345");
  EXPECT_EQ(read_file(folder / "a", 5), "12345");
  EXPECT_THAT(message_of([&] { (void)read_file(folder / "a", 4); }),
              HasSubstr("it has 5 bytes, more than 4"));
  const std::filesystem::path large = sparse("large", std::uintmax_t{1} << 40);
  for (const std::uint64_t most : {longest::document, longest::table, longest::data})
    EXPECT_THAT(message_of([&] { (void)read_file(large, most); }), HasSubstr("1099511627776 bytes"));
  EXPECT_THAT(message_of([&] {
                LineReader lines(large);
                for (std::string_view line; lines.next(line);) {
                }
              }),
              HasSubstr("large:1: a line of more than"));
  EXPECT_EQ(read_file("/proc/self/stat").find(std::to_string(::getpid())), 0u)
      << "its length is said to be 0";
}

TEST_F(Reading, LinesComeWholeWhereverBlocksEnd) {
  std::string content;
  std::vector<std::string> expected;
  for (std::size_t length : {0u, 1u, 262'143u, 262'144u, 262'145u, 1'000'000u, 3u}) {
    expected.emplace_back(length, static_cast<char>('a' + expected.size()));
    content += expected.back() + '\n';
  }
  write_raw("lines", content + "torn");
  LineReader lines(folder / "lines");
  std::vector<std::string> found;
  for (std::string_view line; lines.next(line);) found.emplace_back(line);
  EXPECT_EQ(found, expected);
  EXPECT_EQ(lines.torn_bytes(), 4u);
  EXPECT_EQ(read_lines(folder / "lines").complete, expected);
  LineReader last(folder / "lines", content.size() - 4);
  std::string_view line;
  EXPECT_TRUE(last.next(line));
  EXPECT_EQ(line, "ggg");
  EXPECT_FALSE(last.next(line));
  LineReader beyond(folder / "lines", std::uint64_t{1} << 40);
  EXPECT_FALSE(beyond.next(line));
  EXPECT_EQ(beyond.torn_bytes(), 0u);
}

// ---- nesting ------------------------------------------------------------------------------------

TEST(Nesting, JsonOfSixtyFourLevelsIsReadAndNoDeeperOne) {
  const auto nested = [](std::size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_NO_THROW(parse_json(nested(64)));
  EXPECT_EQ(message_of([&] { parse_json(nested(65)); }), "byte 65: nested deeper than 64");
  std::string mixed;
  for (int i = 0; i < 100'000; ++i) mixed += R"({"a":[)";
  EXPECT_EQ(message_of([&] { parse_json(mixed); }), "byte 193: nested deeper than 64");
  const std::string quoted = "[\"\\\"" + nested(1000) + "\\\\\", \"[\"]";
  EXPECT_EQ(parse_json(quoted).size(), 2u) << "brackets in strings are text";
  std::string wide = "[";
  for (int i = 0; i < 1000; ++i) wide += "[],";
  EXPECT_EQ(parse_json(wide + "[]]").size(), 1001u);
  EXPECT_EQ(message_of([] { parse_json("[1,]"); }), "not valid JSON at byte 4");
  EXPECT_EQ(message_of([] { parse_json("[1e999]"); }), "a number beyond the range of FP64");
}

TEST(Nesting, TomlOfSixtyFourLevelsIsReadAndNoDeeperOne) {
  const auto dotted = [](std::size_t parts) {
    std::string key = "a";
    for (std::size_t i = 1; i < parts; ++i) key += ".a";
    return key;
  };
  EXPECT_EQ(too_deep_in_toml("x = 1\n" + dotted(64) + " = 1\n"), std::nullopt);
  EXPECT_EQ(too_deep_in_toml("x = 1\n" + dotted(65) + " = 1\n"), 2u);
  EXPECT_EQ(too_deep_in_toml("[" + dotted(100'000) + "]\n"), 1u);
  EXPECT_EQ(too_deep_in_toml("\n\nx = " + std::string(65, '[')), 3u);
  EXPECT_EQ(too_deep_in_toml("x = " + std::string(64, '[') + std::string(64, ']')), std::nullopt);
  std::string reals = "x = [";
  for (int i = 0; i < 1000; ++i) reals += "1.5, ";
  EXPECT_EQ(too_deep_in_toml(reals + "]"), std::nullopt) << "a dot in a number is no level";
  const std::string brackets(100, '[');
  for (const std::string& text : {"x = \"" + brackets + "\"", "x = '" + brackets + "'", "# " + brackets,
                                  "x = \"\"\"\n" + brackets + "\"\"\"", "x = \"\\\"" + brackets + "\"",
                                  "x = '''\n'" + brackets + "'''"})
    EXPECT_EQ(too_deep_in_toml(text), std::nullopt) << text;
  for (const std::string& text :
       {"x = \"\"\"a\"\"\"\", y" + brackets, "x = \"a\nb = " + brackets, "x = \"\" #\n" + brackets,
        "'it' = 1\n" + brackets, "x = \"\\\\\" " + brackets})
    EXPECT_NE(too_deep_in_toml(text), std::nullopt) << text;
}

TEST_F(Reading, DeepJsonIsOneErrorOfEveryFileOfARun) {
  const std::string deep(100'000, '[');
  Manifest manifest;
  manifest.config = "[train]\nseed = 1\n";
  { RunWriter(folder / "run", manifest).finish(ExitState::finished); }
  const auto damaged = [&](std::string_view name, const std::function<void()>& read) {
    const std::string before =
        std::filesystem::exists(folder / "run" / name) ? read_file(folder / "run" / name) : "";
    write_raw("run/" + std::string(name), deep + "\n");
    EXPECT_THAT(message_of(read),
                AllOf(HasSubstr(std::string(name)), HasSubstr("byte 65: nested deeper than 64")));
    write_raw("run/" + std::string(name), before);
  };
  damaged(run_file::manifest, [&] { (void)read_manifest(folder / "run"); });
  damaged(run_file::histograms, [&] { (void)read_histograms(folder / "run"); });
  damaged(run_file::overflows, [&] { (void)read_overflows(folder / "run"); });
  damaged(run_file::culprits, [&] { (void)read_culprits(folder / "run"); });
  damaged(run_file::replay, [&] { (void)read_replay(folder / "run"); });
}

}  // namespace
}  // namespace fp16lab
