// A lock on a folder itself, so that two processes do not write into it at once.
#pragma once

#include <filesystem>
#include <string_view>

namespace fp16lab::experiments {

/// Held from construction to destruction; it vanishes with the process, however that ends.
class FolderLock {
 public:
  /// As flock(2).
  using Flock = int (*)(int descriptor, int operation);

  /// Makes the folder with its parents if it is missing. CommandError(usage) "--out: FOLDER: OTHER" if
  /// another process holds it, (run_failed) with the system's reason if it cannot be made, opened, locked or
  /// written. `flock`: only tests give another one.
  FolderLock(const std::filesystem::path& folder, std::string_view other, Flock flock = nullptr);
  ~FolderLock() { release(); }
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  void release();

 private:
  int descriptor_ = -1;
};

}  // namespace fp16lab::experiments
