// Running the programs that draw: node, rsvg-convert and graphviz.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace fp16lab::reports {

/// How a program ended.
enum class Drawing { done, not_installed, failed };

/// Runs `command` (a program's name or path, and its arguments) inside a new folder that holds copies of
/// `inputs`, and moves what it made there into `folder`: these programs write through links, and only regular
/// files of `folder` may be replaced. The messages of a program that failed become the file `log` of `folder`.
/// std::runtime_error where no process or folder can be made, or `folder` holds something else of a drawing's
/// name. `made` gets the names of those files.
Drawing draw(const std::vector<std::string>& command, const std::vector<std::filesystem::path>& inputs,
             const std::filesystem::path& folder, const std::string& log,
             std::vector<std::string>* made = nullptr);

/// A new folder inside another one (empty: where temporary files belong). The destructor removes it with its
/// content.
class PassingFolder {
 public:
  explicit PassingFolder(const std::filesystem::path& inside = {});
  ~PassingFolder();
  PassingFolder(const PassingFolder&) = delete;
  PassingFolder& operator=(const PassingFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  int lock_ = -1;  ///< a descriptor: others remove a folder that nobody locks
};

}  // namespace fp16lab::reports
