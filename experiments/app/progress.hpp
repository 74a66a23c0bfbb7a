// One line of progress on stderr.
#pragma once

#include <chrono>
#include <string>

namespace fp16lab::experiments {

/// On a terminal the line is rewritten in place, at most five times a second; elsewhere a new line appears
/// every few seconds. `quiet` shows nothing. end() and the destructor end an open line.
class Progress {
 public:
  explicit Progress(bool quiet);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Is it time for another line? Ask before building an expensive one.
  bool due() const;
  void show(const std::string& line);
  /// A message of its own; the progress line goes on below it.
  void message(const std::string& line);
  void end();

 private:
  bool quiet_;
  bool terminal_;
  bool open_ = false;
  std::chrono::steady_clock::time_point last_;
};

/// "42 s", "3 min 05 s", "2 h 10 min".
std::string duration_text(double seconds);

}  // namespace fp16lab::experiments
