// A folder of its own for a test.
#pragma once

#include <stdlib.h>  // mkdtemp, which is POSIX

#include <cerrno>
#include <filesystem>
#include <string>
#include <system_error>

namespace fp16lab::testing_support {

/// Made empty by the constructor, deleted with everything in it by the destructor.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "fp16lab-test-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::system_error(errno, std::generic_category(), name);
    path_ = name;
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace fp16lab::testing_support
