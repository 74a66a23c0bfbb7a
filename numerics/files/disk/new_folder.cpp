#include "numerics/files/disk/new_folder.hpp"

#include <fcntl.h>
#include <stdlib.h>  // mkdtemp, which is POSIX
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "numerics/files/disk/descriptor.hpp"
#include "numerics/files/disk/folder.hpp"

namespace fp16lab {
namespace {

namespace fs = std::filesystem;

// In the place: the lock, the new folder, the old one while it is in no place, and after that.
constexpr std::string_view lock_name = "lock", new_name = "new", earlier_name = "earlier", old_name = "old";

[[noreturn]] void fail(const fs::path& path, int error) {
  fail_on("put a new folder in the place of", path, error);
}

fs::path parent_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

std::string mark_of(const fs::path& path) { return "." + path.filename().string() + ".new-"; }

bool is_place(std::string_view name, std::string_view mark) {
  constexpr std::size_t random = 6;  // letters of mkdtemp
  return name.size() == mark.size() + random && name.starts_with(mark) &&
         std::all_of(name.end() - random, name.end(),
                     [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; });
}

/// A flag that this file system, or this kernel, does not know.
bool unknown_flag(int error) { return error == EINVAL || error == ENOSYS || error == EOPNOTSUPP; }

int rename_with(const fs::path& from, const fs::path& to, unsigned flags) {
  return ::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), flags) == 0 ? 0 : errno;
}
int rename_plainly(const fs::path& from, const fs::path& to) {
  return ::rename(from.c_str(), to.c_str()) == 0 ? 0 : errno;
}

/// The lock is removed last, so that a place without one is empty.
void remove_place(const fs::path& place) {
  std::error_code error;
  for (const std::string_view name : {new_name, old_name, earlier_name, lock_name}) {
    fs::remove_all(place / name, error);
    if (error) return;
  }
  ::rmdir(place.c_str());
}

}  // namespace

NewFolder::NewFolder(std::filesystem::path path) : path_(std::move(path)) {
  if (!path_.has_filename()) path_ = path_.parent_path();
  recover();
  make_place();
}

NewFolder::~NewFolder() { discard(); }

void NewFolder::discard() noexcept {
  if (lock_ < 0) return;
  if (!kept_) remove_place(place_);
  ::close(std::exchange(lock_, -1));
}

void NewFolder::recover() const {
  const std::string mark = mark_of(path_);
  std::vector<fs::path> places;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(parent_of(path_), none))
    if (is_place(entry.path().filename().string(), mark) &&
        entry.symlink_status(none).type() == fs::file_type::directory)
      places.push_back(entry.path());
  for (const fs::path& place : places) {
    const int lock = ::open((place / lock_name).c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (lock < 0) {
      if (errno == ENOENT) ::rmdir(place.c_str());  // only where it is empty
      continue;
    }
    if (::flock(lock, LOCK_EX | LOCK_NB) == 0) {
      bool restored = true;
      if (is_there(place / earlier_name) && !is_there(path_))
        restored =
            rename_plainly(place / new_name, path_) == 0 || rename_plainly(place / earlier_name, path_) == 0;
      if (restored) remove_place(place);
    }
    ::close(lock);
  }
}

void NewFolder::make_place() {
  constexpr int most = 100;
  for (int attempt = 0; attempt < most; ++attempt) {
    std::string name = (parent_of(path_) / mark_of(path_)).string() + "XXXXXX";
    if (::mkdtemp(name.data()) == nullptr) fail(path_, errno);
    place_ = name;
    made_ = place_ / new_name;
    lock_ = ::open((place_ / lock_name).c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
    const int error = errno;
    struct stat own {};
    // A process that looks for left places may have taken this one for one, until it is locked.
    if (lock_ >= 0 && (::flock(lock_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) &&
        ::fstat(lock_, &own) == 0 && own.st_nlink == 1)
      return;
    if (lock_ >= 0)
      ::close(std::exchange(lock_, -1));
    else if (error != ENOENT) {
      ::rmdir(place_.c_str());
      fail(path_, error);
    }
  }
  fail(path_, EBUSY);
}

/// False if there is something of this name.
bool NewFolder::move_new() {
  int error = rename_with(made_, path_, RENAME_NOREPLACE);
  if (unknown_flag(error)) error = is_there(path_) ? EEXIST : rename_plainly(made_, path_);
  if (error != 0 && error != EEXIST) fail(path_, error);
  return error == 0;
}

void NewFolder::exchange() {
  int error = rename_with(made_, path_, RENAME_EXCHANGE);
  if (error == 0) return;
  if (!unknown_flag(error)) fail(path_, error);
  const fs::path earlier = place_ / earlier_name;
  if ((error = rename_plainly(path_, earlier)) != 0) fail(path_, error);
  if ((error = rename_plainly(made_, path_)) == 0) {
    rename_plainly(earlier, place_ / old_name);  // from here on it may be deleted
    return;
  }
  if (rename_plainly(earlier, path_) == 0) fail(path_, error);
  kept_ = true;
  throw std::runtime_error("cannot put " + made_.string() + " in the place of " + path_.string() + ": " +
                           std::strerror(error) + "; the folder that was there is " + earlier.string());
}

void NewFolder::commit(bool replace) {
  if (lock_ < 0) throw std::logic_error("NewFolder::commit of " + path_.string() + " after its end");
  if (!move_new()) {
    if (!replace) fail(path_, EEXIST);
    exchange();
  }
  sync_folder_of(path_);
}

}  // namespace fp16lab
