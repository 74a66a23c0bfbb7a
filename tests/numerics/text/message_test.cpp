// Messages: what becomes of long and strange ones, and that nothing that happens to stderr throws.
#include "numerics/text/message.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "numerics/platform/standard_streams.hpp"
#include "numerics/text/text.hpp"

namespace fp16lab {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

TEST(Message, IsOnePrintableLine) {
  EXPECT_EQ(message_line("plain"), "plain");
  EXPECT_EQ(message_line("two\nlines"), "two lines");
  EXPECT_EQ(message_line("a\x1b[31mb"), printable("a\x1b[31mb"));
  EXPECT_EQ(message_line(std::string(longest_message, 'x')), std::string(longest_message, 'x'));
}

TEST(Message, LosesItsMiddleWhereItIsLong) {
  const std::string text = "--set: '" + std::string(40000, 'x') + "' is no key; did you mean 'train.steps'?";
  const std::string line = message_line(text);
  EXPECT_LE(line.size(), longest_message);
  EXPECT_THAT(line, StartsWith("--set: 'xxx"));
  EXPECT_THAT(line, HasSubstr(" bytes left out) ... "));
  EXPECT_THAT(line, EndsWith("did you mean 'train.steps'?"));
  // No half characters, wherever the cut comes.
  for (int shift = 0; shift < 4; ++shift) {
    std::string long_one(static_cast<std::size_t>(shift), 'a');
    for (int i = 0; i < 2000; ++i) long_one += "\xe2\x82\xac";
    EXPECT_TRUE(utf8_length(message_line(long_one))) << shift;
    EXPECT_LE(message_line(long_one).size(), longest_message);
  }
}

/// How a process ends that does this: its exit code, or 128 + signal.
int end_of(const std::function<void()>& work) {
  const pid_t child = fork();
  if (child == 0) {
    work();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

TEST(Message, ThatCannotBeWrittenIsLost) {
  EXPECT_EQ(end_of([] {
              close(STDERR_FILENO);
              say("closed {}", 1);
            }),
            0);
  EXPECT_EQ(end_of([] {
              dup2(open("/dev/full", O_WRONLY), STDERR_FILENO);
              say("full {}", 1);
              show_text(std::string(100000, 'x'));
            }),
            0);
  EXPECT_EQ(end_of([] {  // the pipe has no reader
              std::signal(SIGPIPE, SIG_IGN);
              std::array<int, 2> ends{};
              if (pipe(ends.data()) != 0) _exit(1);
              dup2(ends[1], STDERR_FILENO);
              close(ends[0]);
              say("no reader");
            }),
            0);
}

TEST(Message, WaitsForAPipeThatDoesNotBlockButNotForEver) {
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe2(ends.data(), O_NONBLOCK), 0);
  const std::string text(300000, 'x');
  std::string got;
  std::thread reader([&] {
    std::array<char, 65536> block;
    while (got.size() < text.size()) {
      const ssize_t count = read(ends[0], block.data(), block.size());
      if (count > 0) got.append(block.data(), static_cast<std::size_t>(count));
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  });
  EXPECT_TRUE(write_text(ends[1], text));
  reader.join();
  EXPECT_EQ(got, text);
  EXPECT_FALSE(write_text(ends[1], text)) << "the reader is gone";
  EXPECT_EQ(errno, EAGAIN);
  close(ends[0]);
  close(ends[1]);
}

TEST(StandardDescriptors, AreThereAfterwardsAndRefuseToWork) {
  EXPECT_EQ(end_of([] {
              for (int descriptor = 0; descriptor < 3; ++descriptor) close(descriptor);
              open_standard_descriptors();
              if (!standard_output_was_closed()) _exit(1);
              if (write(STDOUT_FILENO, "x", 1) >= 0 || write(STDERR_FILENO, "x", 1) >= 0) _exit(2);
              char byte = 0;
              if (read(STDIN_FILENO, &byte, 1) >= 0) _exit(3);
              if (open("/dev/null", O_RDONLY) < 3) _exit(4);
            }),
            0);
  EXPECT_EQ(end_of([] {  // what is open stays as it is
              const int before = open("/dev/null", O_RDONLY);
              open_standard_descriptors();
              if (standard_output_was_closed() || open("/dev/null", O_RDONLY) != before + 1) _exit(1);
            }),
            0);
}

}  // namespace
}  // namespace fp16lab
