// Running the programs that draw: gnuplot and graphviz.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace fp16lab::reports {

/// How a program ended.
enum class Drawing { done, not_installed, failed };

/// Runs `command` (a program's name or path, and its arguments) inside `folder`, with its messages in the
/// file `log` there, which is removed unless the program failed. std::runtime_error where no process can be
/// made.
Drawing draw(const std::vector<std::string>& command, const std::filesystem::path& folder,
             const std::string& log);

}  // namespace fp16lab::reports
