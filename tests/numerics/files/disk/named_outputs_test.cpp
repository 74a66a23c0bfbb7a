// numerics/files/disk: what an output may replace, and what is written into.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <future>
#include <string>

#include "numerics/files/disk/atomic_file.hpp"
#include "numerics/files/disk/folder.hpp"
#include "numerics/files/disk/read_file.hpp"
#include "tests/numerics/files/files_fixture.hpp"
#include "tests/support/message_of.hpp"

namespace fp16lab {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing_support::message_of;

class Outputs : public Files {
 protected:
  Outputs() { ::alarm(60); }  // a hang is a failure
  ~Outputs() override { ::alarm(0); }

  mode_t kind(const std::string& name) const {
    struct stat status {};
    return ::lstat((folder / name).c_str(), &status) == 0 ? status.st_mode & S_IFMT : 0;
  }
  std::filesystem::path fifo(const std::string& name) const {
    EXPECT_EQ(::mkfifo((folder / name).c_str(), 0600), 0);
    return folder / name;
  }
  /// False where this user, or this sandbox, may make none.
  bool make_device(const std::string& name, mode_t type, unsigned major, unsigned minor) const {
    return ::mknod((folder / name).c_str(), type | 0600, makedev(major, minor)) == 0;
  }
  /// What a FIFO is given, read by another thread.
  static std::future<std::string> reading(const std::filesystem::path& path) {
    return std::async(std::launch::async,
                      [path] { return read_file(path, longest::document, NamedHow::by_user); });
  }
};

TEST_F(Outputs, InAFolderOfResultsOnlyRegularFilesAreReplaced) {
  write_raw("treasure", "mine\n");
  std::filesystem::create_symlink("treasure", folder / "link");
  std::filesystem::create_symlink("nowhere", folder / "dangling");
  std::filesystem::create_directory(folder / "folder");
  fifo("fifo");
  const std::vector<std::string> before = names();
  for (const auto& [name, what] : {std::pair{"link", "a symbolic link"},
                                   {"dangling", "a symbolic link"},
                                   {"folder", "a folder"},
                                   {"fifo", "a FIFO"}}) {
    const mode_t was = kind(name);
    const auto expected = AllOf(HasSubstr((folder / name).string()), HasSubstr(what));
    EXPECT_THAT(message_of([&] { write_file_atomically(folder / name, "x"); }), expected);
    EXPECT_THAT(message_of([&] { LineFile(folder / name, 0); }), expected);
    EXPECT_THAT(message_of([&] { LineFile(folder / name, LineFile::Mode::create); }), expected);
    EXPECT_THAT(message_of([&] { require_replaceable(folder / name); }), expected);
    EXPECT_EQ(kind(name), was) << name;
  }
  EXPECT_EQ(read_file(folder / "treasure"), "mine\n");
  EXPECT_EQ(names(), before) << "no temporary file, and nothing at the end of the dangling link";
}

TEST_F(Outputs, DevicesInAFolderOfResultsStay) {
  if (!make_device("null", S_IFCHR, 1, 3)) GTEST_SKIP() << "no device can be made here";
  EXPECT_THAT(message_of([&] { write_file_atomically(folder / "null", "x"); }), HasSubstr("a device"));
  EXPECT_THAT(message_of([&] { LineFile(folder / "null", 0); }), HasSubstr("a device"));
  EXPECT_EQ(kind("null"), mode_t{S_IFCHR});
}

/// The folder that a user names may be a link; one inside it may not.
TEST_F(Outputs, FoldersInsideResultsAreNoLinks) {
  std::filesystem::create_directories(folder / "elsewhere");
  std::filesystem::create_directory_symlink("elsewhere", folder / "results");
  EXPECT_FALSE(make_folders(folder / "results"));
  make_folder_inside(folder / "results" / "figures");
  make_folder_inside(folder / "results" / "figures");
  EXPECT_TRUE(std::filesystem::is_directory(folder / "elsewhere" / "figures"));
  std::filesystem::create_directory_symlink("elsewhere", folder / "figures");
  EXPECT_THAT(message_of([&] { make_folder_inside(folder / "figures"); }),
              AllOf(HasSubstr((folder / "figures").string()), HasSubstr("a symbolic link")));
  write_raw("file", "");
  EXPECT_THAT(message_of([&] { make_folder_inside(folder / "file"); }), HasSubstr("a file"));
  EXPECT_TRUE(make_folders(folder / "new" / "one/"));
  EXPECT_FALSE(make_folders(folder / "new" / "one"));
}

/// A copy made by "cp -al" keeps what it has.
TEST_F(Outputs, ALineFileWithASecondNameGetsAFileOfItsOwn) {
  write_raw("lines", "one\ntwo\nthr");
  std::filesystem::create_hard_link(folder / "lines", folder / "backup");
  { LineFile(folder / "lines", LineFile::Mode::append).append("three"); }
  EXPECT_EQ(read_file(folder / "lines"), "one\ntwo\nthree\n");
  EXPECT_EQ(read_file(folder / "backup"), "one\ntwo\nthr");
  std::filesystem::remove(folder / "backup");
  std::filesystem::create_hard_link(folder / "lines", folder / "backup");
  LineFile(folder / "lines", LineFile::Mode::create).append("new");
  EXPECT_EQ(read_file(folder / "lines"), "new\n");
  EXPECT_EQ(read_file(folder / "backup"), "one\ntwo\nthree\n");
}

TEST_F(Outputs, AUsersLinkStaysAndItsFileIsReplacedOrMade) {
  const auto write = [&](const std::string& name) {
    require_output(folder / name);
    write_file_atomically(folder / name, name, NamedBy::user);
  };
  write_raw("file", "old");
  ::chmod((folder / "file").c_str(), 0640);
  std::filesystem::create_directory(folder / "inside");
  std::filesystem::create_symlink("../file", folder / "inside" / "link");
  std::filesystem::create_symlink("inside/link", folder / "link");
  write("link");
  EXPECT_EQ(read_file(folder / "file"), "link");
  EXPECT_EQ(kind("link"), mode_t{S_IFLNK});
  EXPECT_EQ(std::filesystem::status(folder / "file").permissions(), std::filesystem::perms{0640});
  std::filesystem::create_symlink("made", folder / "dangling");
  write("dangling");
  EXPECT_EQ(read_file(folder / "made"), "dangling");
  EXPECT_EQ(kind("dangling"), mode_t{S_IFLNK});
  write("new");
  EXPECT_EQ(read_file(folder / "new"), "new");

  std::filesystem::create_symlink("no/such/folder", folder / "nowhere");
  std::filesystem::create_symlink("loop", folder / "loop");
  const std::vector<std::string> before = names();
  for (const auto& [name, what] : {std::pair{"nowhere", "No such file or directory"},
                                   {"loop", "Too many levels"},
                                   {"inside", "a folder"},
                                   {"no/such", "No such file or directory"},
                                   {"file/below", "Not a directory"}}) {
    const auto expected = AllOf(HasSubstr(name), HasSubstr(what));
    EXPECT_THAT(message_of([&, name = name] { require_output(folder / name); }), expected);
    EXPECT_THAT(message_of([&, name = name] { write_file_atomically(folder / name, "x", NamedBy::user); }),
                expected);
  }
  EXPECT_EQ(names(), before);
}

TEST_F(Outputs, AUsersPipeIsWrittenInto) {
  const std::filesystem::path pipe = fifo("pipe");
  require_output(pipe);  // does not wait for a reader
  std::filesystem::create_symlink("pipe", folder / "link");
  for (const char* const name : {"pipe", "link"}) {
    std::future<std::string> got = reading(pipe);
    AtomicFile file(folder / name, NamedBy::user);
    file.append("a ");
    file.append("b");
    file.commit();
    EXPECT_EQ(got.get(), "a b");
    EXPECT_EQ(kind("pipe"), mode_t{S_IFIFO});
  }
  EXPECT_THAT(names(), ElementsAre("link", "pipe"));
}

TEST_F(Outputs, AReaderThatGoesAwayIsAnError) {
  const std::filesystem::path pipe = fifo("pipe");
  const int reader = ::open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
  AtomicFile file(pipe, NamedBy::user);
  ::close(reader);
  const auto before = std::signal(SIGPIPE, SIG_IGN);  // as programs and Python do
  EXPECT_THAT(message_of([&] { file.append("x"); }),
              AllOf(HasSubstr(pipe.string()), HasSubstr("Broken pipe")));
  std::signal(SIGPIPE, before);
}

TEST_F(Outputs, ADescriptorIsUsedAsItIs) {
  write_raw("log", "before\n");
  const int log = ::open((folder / "log").c_str(), O_WRONLY | O_APPEND);
  std::filesystem::create_symlink("/dev/fd/" + std::to_string(log), folder / "link");
  for (const std::string& name : {"/dev/fd/" + std::to_string(log), "/proc/self/fd/" + std::to_string(log),
                                  (folder / "link").string()}) {
    require_output(name);
    write_file_atomically(name, "after\n", NamedBy::user);
    EXPECT_TRUE(writes_to_descriptor(name, log));
    EXPECT_FALSE(writes_to_descriptor(name, STDIN_FILENO));
  }
  EXPECT_EQ(read_file(folder / "log"), "before\nafter\nafter\nafter\n");
  ::close(log);
  EXPECT_THAT(message_of([&] { require_output("/dev/fd/" + std::to_string(log)); }),
              HasSubstr("is not open"));
  const int reading_only = ::open((folder / "log").c_str(), O_RDONLY);
  EXPECT_THAT(message_of([&] { require_output("/dev/fd/" + std::to_string(reading_only)); }),
              HasSubstr("for reading only"));
  ::close(reading_only);
  EXPECT_TRUE(writes_to_descriptor("/dev/stdout", STDOUT_FILENO));
  EXPECT_FALSE(writes_to_descriptor("/dev/null", STDOUT_FILENO));
  EXPECT_FALSE(writes_to_descriptor(folder / "log", STDOUT_FILENO));
}

TEST_F(Outputs, AUsersDevicesStay) {
  if (!make_device("null", S_IFCHR, 1, 3) || !make_device("full", S_IFCHR, 1, 7) ||
      !make_device("disk", S_IFBLK, 7, 200))
    GTEST_SKIP() << "no device can be made here";
  require_output(folder / "null");
  write_file_atomically(folder / "null", "x", NamedBy::user);
  EXPECT_THAT(message_of([&] { write_file_atomically(folder / "full", "x", NamedBy::user); }),
              HasSubstr("No space left"));
  EXPECT_THAT(message_of([&] { require_output(folder / "disk"); }), HasSubstr("a block device"));
  EXPECT_EQ(kind("null"), mode_t{S_IFCHR});
  EXPECT_EQ(kind("full"), mode_t{S_IFCHR});
  EXPECT_EQ(kind("disk"), mode_t{S_IFBLK});
  EXPECT_THAT(names(), ElementsAre("disk", "full", "null"));
}

TEST_F(Outputs, ASocketIsRefused) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = (folder / "socket").string();
  ASSERT_LT(path.size(), sizeof(address.sun_path));
  std::strcpy(address.sun_path, path.c_str());
  const int listener = ::socket(AF_UNIX, SOCK_STREAM, 0);
  ASSERT_EQ(::bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  EXPECT_THAT(message_of([&] { require_output(path); }), HasSubstr("a socket"));
  EXPECT_THAT(message_of([&] { write_file_atomically(path, "x"); }), HasSubstr("a socket"));
  EXPECT_EQ(kind("socket"), mode_t{S_IFSOCK});
  ::close(listener);
}

}  // namespace
}  // namespace fp16lab
