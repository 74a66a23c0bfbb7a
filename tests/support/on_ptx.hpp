// Programs on the PTX machine (tests/machines/ptx), from tests; skipped where it is not built, as without
// nvcc.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "tests/support/spawn.hpp"

namespace fp16lab::testing_support {

/// on_ptx COMMAND: the script that the build writes.
inline std::string on_ptx() { return FP16LAB_BIN_DIR "/../tests/on_ptx"; }

class OnPtx : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(on_ptx())) GTEST_SKIP() << "there is no PTX machine: built without nvcc";
  }
  /// command[0] is the program.
  static Finished run_on_ptx(const std::vector<std::string>& command, const std::filesystem::path& folder,
                             const std::map<std::string, std::string>& environment = {}) {
    return run_program(on_ptx(), command, folder, environment);
  }
};

}  // namespace fp16lab::testing_support
