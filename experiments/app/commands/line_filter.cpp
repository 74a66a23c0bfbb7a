#include "experiments/app/commands/line_filter.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <system_error>
#include <vector>

#include "numerics/files/disk/read_file.hpp"

namespace fp16lab::experiments {
namespace {

constexpr std::size_t block = std::size_t{1} << 18;

/// What is there, at least one byte; 0 at the end.
std::size_t read_some(char* to, std::size_t size) {
  for (;;) {
    const ssize_t count = ::read(STDIN_FILENO, to, size);
    if (count >= 0) return static_cast<std::size_t>(count);
    if (errno != EINTR)
      throw std::system_error(errno, std::generic_category(), "cannot read the standard input");
  }
}

void write_all(std::string& output) {
  for (std::size_t done = 0; done < output.size();) {
    const ssize_t count = ::write(STDOUT_FILENO, output.data() + done, output.size() - done);
    if (count < 0 && errno != EINTR)
      throw std::system_error(errno, std::generic_category(), "cannot write to the standard output");
    if (count > 0) done += static_cast<std::size_t>(count);
  }
  output.clear();
}

/// Numbers lines and writes their answers.
class Answers {
 public:
  explicit Answers(const LineAnswer& answer) : answer_(answer) { output_.reserve(2 * block); }

  void operator()(const char* begin, const char* end) {
    if (end != begin && end[-1] == '\r') --end;
    try {
      answer_({begin, static_cast<std::size_t>(end - begin)}, ++number_, output_);
    } catch (...) {
      write();
      throw;
    }
    if (output_.size() >= block) write();
  }
  void write() { write_all(output_); }

 private:
  const LineAnswer& answer_;
  std::uint64_t number_ = 0;
  std::string output_;
};

}  // namespace

void filter_lines(std::string_view text, const LineAnswer& answer) {
  Answers answer_line(answer);
  for (const char *line = text.data(), *const end = line + text.size(); line != end;) {
    const void* const newline = std::memchr(line, '\n', static_cast<std::size_t>(end - line));
    const char* const stop = newline == nullptr ? end : static_cast<const char*>(newline);
    answer_line(line, stop);
    line = stop == end ? end : stop + 1;
  }
  answer_line.write();
}

void filter_lines(const LineAnswer& answer) {
  std::vector<char> buffer(block);
  std::size_t held = 0;  // bytes of a line whose end has not been read
  Answers answer_line(answer);
  for (;;) {
    if (held > longest::line)
      throw std::runtime_error("the standard input has a line of more than " + std::to_string(longest::line) +
                               " bytes");
    if (held == buffer.size()) buffer.resize(2 * buffer.size());
    const std::size_t count = read_some(buffer.data() + held, buffer.size() - held);
    const char* line = buffer.data();
    const char* const end = line + held + count;
    const char* unseen = line + held;
    while (const void* newline =
               unseen == end ? nullptr : std::memchr(unseen, '\n', static_cast<std::size_t>(end - unseen))) {
      unseen = static_cast<const char*>(newline);
      answer_line(line, unseen);
      line = ++unseen;
    }
    held = static_cast<std::size_t>(end - line);
    if (count == 0) {
      if (held != 0) answer_line(line, end);
      answer_line.write();
      return;
    }
    answer_line.write();
    std::memmove(buffer.data(), line, held);
  }
}

std::string quoted(std::string_view line) {
  constexpr std::size_t longest = 120;
  std::string text(line.substr(0, longest));
  for (char& c : text)
    if (c < ' ' || c > '~') c = c == '\t' ? ' ' : '?';
  return "'" + text + (line.size() > longest ? "..." : "") + "'";
}

}  // namespace fp16lab::experiments
