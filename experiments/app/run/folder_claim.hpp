// Who writes in a folder, on one machine or on several that share a file system.
//
// FOLDER/claim.json names host, process, start and a token. It is made whole by link(2), so that one of
// several claimants gets the folder, and its modification time is renewed while its owner lives. A claim is
// stale when its process is seen to be dead (same machine), or when a watcher has seen no renewal for
// `patience` of its own time: clocks of two hosts are never compared. A stale claim is replaced by rename(2),
// and a claim is removed, only by the one who has made claim.json.next, in the same way as a claim itself;
// one that died while it had that is followed in the same way, under claim.json.next.next. An owner that was
// overtaken because it was stopped or cut off finds another token in the file.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "numerics/files/run/record.hpp"

namespace fp16lab::experiments {

struct Claimant {
  FP16LAB_RECORD(Claimant, "claim.json", 1, "Whose the folder is while somebody writes in it.");
  FP16LAB_FIELD(std::string, host, {}, "for people", .as_it_is = true);
  FP16LAB_FIELD(std::string, machine, {}, "boot and process id name space: where `process` means something",
                .as_it_is = true);
  FP16LAB_FIELD(std::int64_t, process, 0, "process id");
  FP16LAB_FIELD(std::uint64_t, process_start, 0, "clock ticks since boot: ids come again");
  FP16LAB_FIELD(std::string, since, {}, "UTC", .as_it_is = true);
  FP16LAB_FIELD(std::string, token, {}, "random, 32 hex digits", .as_it_is = true);
  FP16LAB_RECORD_END(Claimant);
};

/// This process, with a new token.
Claimant this_claimant();
std::string to_json(const Claimant& claimant);
/// Nothing for text that is no claim.
std::optional<Claimant> parse_claimant(std::string_view text);
/// Who has claimed the folder, dead or alive; nothing where nobody has, or where the file is no claim.
std::optional<Claimant> claimant_of(const std::filesystem::path& folder);

/// The right to write in one folder, held from construction to destruction.
class FolderClaim {
 public:
  /// How claims age. Only tests give others.
  struct Timing {
    std::chrono::milliseconds renewal = std::chrono::seconds(10);   ///< by a thread of the owner
    std::chrono::milliseconds patience = std::chrono::seconds(60);  ///< six renewals that did not come
  };

  enum class Renewal {
    by_thread,  ///< of this object
    by_owner,  ///< who calls renew() more often than that: for a process that must stay of one thread, as one
               ///< does whose children are told of its end (a signal comes for each of its threads)
  };

  /// Makes the folder with its parents if it is missing. A claim of another machine is watched until it is
  /// renewed or `patience` is over, which one line on stderr says. CommandError(usage) "--out: FOLDER: OTHER
  /// (host H, process P, since T)" if its owner lives, (run_failed) with the system's reason if the folder
  /// cannot be made or written or claim.json is no regular file, (interrupted) if a signal ends the wait.
  /// `self`: only tests are others.
  FolderClaim(const std::filesystem::path& folder, std::string_view other,
              Renewal renewal = Renewal::by_thread)
      : FolderClaim(folder, other, this_claimant(), Timing{}, renewal) {}
  FolderClaim(std::filesystem::path folder, std::string_view other, const Claimant& self, Timing timing,
              Renewal renewal = Renewal::by_thread);
  /// Removes the claim if it is still this one, and the folder if it was made here and nothing is in it.
  ~FolderClaim();
  FolderClaim(const FolderClaim&) = delete;
  FolderClaim& operator=(const FolderClaim&) = delete;

  /// Renews the claim if it is time to.
  void renew();
  /// Is it still this process's? Reads the file (an open asks a server, where attributes may be old).
  bool held() const;
  /// CommandError(run_failed) that names who has overtaken it. Before everything that is written.
  void require_held() const;
  /// Was it taken from an owner that may only be cut off, and may still have files open?
  bool took_over_unseen() const { return took_over_unseen_; }

 private:
  struct Sight;  ///< what a claim's file is like at a moment
  /// By path: how a claim of another machine was when it was first seen, and when that was.
  using Watch = std::map<std::filesystem::path, std::pair<Sight, std::chrono::steady_clock::time_point>>;
  enum class Verdict {
    alive,
    dead,     ///< its process is seen to be
    unseen,   ///< not renewed for as long as the patience lasts
    unknown,  ///< not yet
  };
  static bool is_stale(Verdict verdict) { return verdict == Verdict::dead || verdict == Verdict::unseen; }

  void make_folder();
  void acquire(std::string_view other);
  bool make(const std::filesystem::path& path) const;
  bool replace(const std::filesystem::path& path, const Sight& stale, Watch& watch) const;
  Verdict judge(const std::filesystem::path& path, const Sight& now, Watch& watch) const;
  void begin_renewal();
  void release() noexcept;

  std::filesystem::path folder_, path_;
  Claimant self_;
  std::string text_;  ///< of the file
  Timing timing_;
  bool took_over_unseen_ = false;
  bool made_folder_ = false;  ///< so that it goes again if it stays empty
  std::chrono::steady_clock::time_point renewed_ = std::chrono::steady_clock::now();
  int descriptor_ = -1;  ///< of this claim's own file, whatever its name means by now
  std::mutex mutex_;
  std::condition_variable wake_;
  bool ended_ = false;  ///< under mutex_
  std::thread renewal_;
};

}  // namespace fp16lab::experiments
