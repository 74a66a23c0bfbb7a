// numerics/files: atomic writes, torn lines, SHA-256.
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <vector>

#include "numerics/files/disk/atomic_file.hpp"
#include "numerics/files/disk/read_file.hpp"
#include "numerics/files/disk/sha256.hpp"
#include "tests/numerics/files/files_fixture.hpp"
#include "tests/support/message_of.hpp"

namespace fp16lab {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing_support::message_of;

// ---- atomic_file --------------------------------------------------------------------------------

TEST_F(Files, AtomicWriteReplacesWholeContentAndLeavesNoTemporaryFile) {
  const std::string large(3'000'000, 'x');
  write_file_atomically(folder / "a", large);
  EXPECT_EQ(read_file(folder / "a"), large);
  const std::string binary("short\0with zero\n", 16);
  write_file_atomically(folder / "a", binary);
  EXPECT_EQ(read_file(folder / "a"), binary);
  EXPECT_THAT(names(), ElementsAre("a"));
}

TEST_F(Files, AtomicWriteThatCannotRenameKeepsTheOldContentAndCleansUp) {
  std::filesystem::create_directories(folder / "target" / "inside");  // a folder cannot be replaced by a file
  EXPECT_THAT(message_of([&] { write_file_atomically(folder / "target", "x"); }),
              AllOf(HasSubstr((folder / "target").string()), HasSubstr("a folder")));
  EXPECT_THAT(names(), ElementsAre("target"));
}

/// A process id comes again, in containers at once: a file under the temporary name belongs to another
/// process, or is a trap.
TEST_F(Files, ATemporaryFileIsNeverOneThatIsThere) {
  std::string own;
  {
    AtomicFile file(folder / "a");
    ASSERT_EQ(names().size(), 1u);
    own = names().front();
  }
  EXPECT_THAT(own, ::testing::MatchesRegex("a\\.tmp-[A-Za-z0-9._]+-" + std::to_string(::getpid())));
  write_raw("treasure", "mine");
  std::filesystem::create_symlink(folder / "treasure", folder / own);
  write_file_atomically(folder / "a", "new");
  EXPECT_EQ(read_file(folder / "a"), "new");
  EXPECT_EQ(read_file(folder / "treasure"), "mine");
  EXPECT_TRUE(std::filesystem::is_symlink(folder / own));
  AtomicFile one(folder / "a"), two(folder / "a");
  one.append("one");
  two.append("two");
  two.commit();
  one.commit();
  EXPECT_EQ(read_file(folder / "a"), "one");
  for (const std::string& name : {own, own + "-1", std::string("a.tmp-4711")}) {
    std::string_view whole;
    EXPECT_TRUE(AtomicFile::is_temporary(name, whole)) << name;
    EXPECT_EQ(whole, "a");
  }
}

TEST_F(Files, ErrorsNameThePathAndTheSystemsReason) {
  const std::filesystem::path missing = folder / "no" / "such";
  for (const std::string& message :
       {message_of([&] { write_file_atomically(missing, "x"); }), message_of([&] { read_file(missing); }),
        message_of([&] { LineFile(missing, LineFile::Mode::create); })})
    EXPECT_THAT(message, AllOf(HasSubstr(missing.string()), HasSubstr("No such file or directory")));
}

/// At the moment of a SIGKILL: every line whose append returned is there, and a reader sees whole lines only.
TEST_F(Files, LinesSurviveSigkill) {
  const std::filesystem::path path = folder / "lines";
  const std::string body(700, 'y');
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    LineFile file(path, LineFile::Mode::create);
    for (std::uint64_t i = 0;; ++i) file.append(std::to_string(i) + body);
  }
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  const auto size = [&] { return std::filesystem::exists(path) ? std::filesystem::file_size(path) : 0; };
  while (size() < 200'000 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  ::kill(child, SIGKILL);
  int status = 0;
  ::waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));
  const Lines lines = read_lines(path);
  ASSERT_GT(lines.complete.size(), 250u);
  for (std::size_t i = 0; i < lines.complete.size(); ++i)
    ASSERT_EQ(lines.complete[i], std::to_string(i) + body);
}

TEST_F(Files, TornLastLineIsDroppedAndReportedAndCutOffBeforeAppending) {
  write_raw("lines", "one\ntwo\nthr");
  EXPECT_THAT(read_lines(folder / "lines").complete, ElementsAre("one", "two"));
  EXPECT_EQ(read_lines(folder / "lines").torn_bytes, 3u);
  { LineFile(folder / "lines", LineFile::Mode::append).append("three"); }
  EXPECT_EQ(read_file(folder / "lines"), "one\ntwo\nthree\n");
  EXPECT_EQ(read_lines(folder / "lines").torn_bytes, 0u);
  EXPECT_THROW(LineFile(folder / "lines", LineFile::Mode::append).append("a\nb"), std::invalid_argument);
  EXPECT_EQ(read_file(folder / "lines"), "one\ntwo\nthree\n");
}

// ---- SHA-256 ------------------------------------------------------------------------------------

/// NIST, "Cryptographic Standards and Guidelines: Examples with Intermediate Values", SHA256.pdf, and SHA256
/// additional test vectors (empty message, one million letters a).
TEST(Sha256Test, StandardVectorsWithAndWithoutTheInstructionsOfTheCpu) {
  for (const bool own_instructions : {true, false}) {
    const auto digest = [&](const std::string& message) {
      Sha256 hash(own_instructions);
      hash.update(message);
      return hash.hex_digest();
    };
    EXPECT_EQ(digest(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    EXPECT_EQ(digest("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    EXPECT_EQ(digest("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
              "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    EXPECT_EQ(digest(std::string(1'000'000, 'a')),
              "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  }
  EXPECT_EQ(sha256_of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

/// However the message is cut into updates, the digest is the same: covers every fill level of the pending
/// block.
TEST(Sha256Test, CutsDoNotMatter) {
  std::string message;
  for (int i = 0; i < 200; ++i) message += static_cast<char>(i);
  const std::string expected = sha256_of(message);
  for (std::size_t cut = 0; cut <= message.size(); ++cut) {
    Sha256 hash;
    hash.update(message.substr(0, cut));
    hash.update(message.substr(cut));
    ASSERT_EQ(hash.hex_digest(), expected) << "cut at " << cut;
  }
  Sha256 hash;
  hash.hex_digest();
  EXPECT_THROW(hash.update("x"), std::logic_error);
}

TEST_F(Files, Sha256OfFile) {
  write_raw("a", std::string(1'000'000, 'a'));
  EXPECT_EQ(sha256_of_file(folder / "a"), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  EXPECT_THAT(message_of([&] { sha256_of_file(folder / "b"); }), HasSubstr((folder / "b").string()));
}

}  // namespace
}  // namespace fp16lab
