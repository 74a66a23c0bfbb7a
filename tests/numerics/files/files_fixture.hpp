// A folder of its own for each test of numerics/files.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/temporary_folder.hpp"

namespace fp16lab {

class Files : public ::testing::Test {
 protected:
  void write_raw(std::string_view name, std::string_view content) const {
    std::ofstream(folder / name, std::ios::binary) << content;
  }
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator(folder))
      found.push_back(entry.path().filename().string());
    std::sort(found.begin(), found.end());
    return found;
  }

  testing_support::TemporaryFolder temporary;
  const std::filesystem::path& folder = temporary.path();
};

}  // namespace fp16lab
