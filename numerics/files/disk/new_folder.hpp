// Replacing a whole folder so that neither the old one nor the new one is ever lost.
//
// The new folder is made beside its place, in a folder PARENT/.NAME.new-XXXXXX of its own, and then exchanged
// with the old one in one step (renameat2 with RENAME_EXCHANGE, Linux). A file system that cannot exchange
// gets two renames; between them both folders are whole, the old one as "earlier", and the process that makes
// a new folder of that name next completes what was begun. What a killed process left is then deleted. A lock
// (flock, which ends with its process) distinguishes the work of a living process from it.
#pragma once

#include <filesystem>

namespace fp16lab {

class NewFolder {
 public:
  /// Makes the place for a new content of `path`, whose parent must be there, after completing or deleting what
  /// killed processes left of theirs. std::runtime_error with the path and the system's reason.
  explicit NewFolder(std::filesystem::path path);
  /// discard()
  ~NewFolder();
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;

  /// Where to make it; not there yet.
  const std::filesystem::path& made() const { return made_; }
  /// Puts it in the place of `path`, once. `replace` deletes what is there already, after the exchange;
  /// without it that is an error. std::runtime_error: `path` is what it was; or, where even that could not be
  /// restored, the message names both folders, and nothing is deleted.
  void commit(bool replace);
  /// Deletes what is not, or no longer, in the place of `path`. The end of this object; again it does nothing.
  void discard() noexcept;

 private:
  void recover() const;
  void make_place();
  bool move_new();
  void exchange();

  std::filesystem::path path_, place_, made_;
  int lock_ = -1;
  bool kept_ = false;  ///< `path` is empty, and both folders are here
};

}  // namespace fp16lab
