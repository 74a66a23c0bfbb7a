#include "numerics/files/disk/folder.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <system_error>

#include "numerics/files/disk/descriptor.hpp"

namespace fp16lab {
namespace {

[[noreturn]] void fail(std::string_view what, const std::filesystem::path& path,
                       const std::error_code& error) {
  fail_on(what, path, error.message());
}

}  // namespace

bool is_there(const std::filesystem::path& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0;
}

bool is_folder(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::is_directory(path, error);
}

bool is_file(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::is_regular_file(path, error);
}

bool make_folders(const std::filesystem::path& folder) {
  std::error_code error;
  // A slash at the end would make a folder, and then say that none was made.
  const bool made =
      std::filesystem::create_directories(folder.has_filename() ? folder : folder.parent_path(), error);
  if (error) fail("make the folder", folder, error);
  return made;
}

void make_folder_inside(const std::filesystem::path& folder) {
  if (::mkdir(folder.c_str(), 0777) == 0) {
    sync_folder_of(folder);
    return;
  }
  if (errno != EEXIST) fail_on("make the folder", folder, errno);
  struct stat status {};
  if (::lstat(folder.c_str(), &status) != 0) fail_on("make the folder", folder, errno);
  if (S_ISDIR(status.st_mode)) return;
  const std::string_view kind = kind_of(status.st_mode);
  fail_on("write into", folder,
          "it is " + std::string(kind.empty() ? "a file" : kind) +
              "; inside a folder of results expected a folder, or nothing of that name");
}

void require_replaceable(const std::filesystem::path& path) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) {
    if (errno == ENOENT) return;
    fail_on("write", path, errno);
  }
  if (const std::string_view kind = kind_of(status.st_mode); !kind.empty())
    fail_on("write", path,
            "it is " + std::string(kind) +
                "; in a folder of results expected a regular file, or nothing of that name");
}

std::vector<std::filesystem::path> entries_of(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> found;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error))
    found.push_back(entry->path());
  std::sort(found.begin(), found.end());
  return found;
}

void sync_folder_of(const std::filesystem::path& file) {
  const std::filesystem::path folder =
      file.has_parent_path() ? file.parent_path() : std::filesystem::path(".");
  const Descriptor descriptor(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (descriptor.get() < 0) fail_on("open folder", folder, errno);
  // Some file systems cannot sync a folder and say EINVAL; the rename is atomic all the same.
  if (::fsync(descriptor.get()) != 0 && errno != EINVAL) fail_on("sync folder", folder, errno);
}

void remove_file(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::remove(path, error);
  if (error) fail("remove", path, error);
}

void remove_everything(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::remove_all(path, error);
  if (error) fail("remove", path, error);
}

}  // namespace fp16lab
