// Another program, whose words are read while it runs, and which is killed when it falls silent.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace fp16lab::experiments::acceptance {

struct Ended {
  int status = 0;          ///< exit code, or 128 + signal
  bool silent = false;     ///< it was killed for its silence
  bool stopped = false;    ///< by an interrupt of this process
  std::string last_words;  ///< the last lines that it said, at most twelve
  /// "signal 11 (Segmentation fault)", "exit code 1", "no word for 60 s, killed".
  std::string how(double silence) const;
};

/// A program of the toolkit: in PATH, in CUDA_HOME/bin, or in /usr/local/cuda/bin; empty: in none of them.
std::filesystem::path tool_called(const std::string& name);
/// "NAME is not installed (neither in PATH nor ...)".
std::string not_installed_text(const std::string& name);

/// stdout and stderr together go to `on_line`, line by line without the newline. After `silence` seconds
/// without a line the program and its children are killed. std::runtime_error where it cannot be started.
Ended run_watched(const std::filesystem::path& program, const std::vector<std::string>& arguments,
                  double silence, const std::function<void(const std::string&)>& on_line);

}  // namespace fp16lab::experiments::acceptance
