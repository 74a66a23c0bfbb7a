// Who writes in a folder: one process at a time, on one machine or on several that share a file system.
//
// The owner holds a lock (flock(2)) on FOLDER/claim.json and says there who it is. The system drops the lock
// when the process ends, however that comes; NFS and others that keep locks tell it to other machines. So who
// gets the lock of a claim that is there finds a dead owner's, and takes the folder over.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "numerics/files/run/record.hpp"

namespace fp16lab::experiments {

struct Claimant {
  FP16LAB_RECORD(Claimant, "claim.json", 1, "Whose the folder is while somebody writes in it.");
  FP16LAB_FIELD(std::string, host, {}, "where the process runs", .as_it_is = true);
  FP16LAB_FIELD(std::int64_t, process, 0, "process id");
  FP16LAB_FIELD(std::string, since, {}, "UTC", .as_it_is = true);
  FP16LAB_RECORD_END(Claimant);
};

Claimant this_claimant();
std::string to_json(const Claimant& claimant);
/// Nothing for text that is no claim.
std::optional<Claimant> parse_claimant(std::string_view text);
/// Who has claimed the folder, dead or alive; nothing without a claim, or where the file is no claim.
std::optional<Claimant> claimant_of(const std::filesystem::path& folder);

/// The right to write in one folder, held from construction to destruction.
class FolderClaim {
 public:
  /// Makes the folder with its parents if it is missing. One line on stderr says that the folder is taken
  /// over from a process of another host. CommandError(usage) "--out: FOLDER: OTHER (host H, process P, since
  /// T)" if its owner lives, (run_failed) with the system's reason if the folder cannot be made or written or
  /// claim.json is no regular file.
  FolderClaim(const std::filesystem::path& folder, std::string_view other);
  /// Removes the claim, and the folder if it was made here and nothing is in it.
  ~FolderClaim();
  FolderClaim(const FolderClaim&) = delete;
  FolderClaim& operator=(const FolderClaim&) = delete;

 private:
  explicit FolderClaim(std::filesystem::path folder);
  [[noreturn]] void fail(const std::string& what) const;
  void make_folder();
  /// Opens claim.json and takes its lock. False if somebody has it, or if the file is not the folder's any
  /// more.
  bool lock();
  bool is_in_folder() const;

  std::filesystem::path folder_, path_;
  bool made_folder_ = false;  ///< so that it goes again if it stays empty
  int descriptor_ = -1;       ///< of the claim's file; closing it drops the lock
};

}  // namespace fp16lab::experiments
