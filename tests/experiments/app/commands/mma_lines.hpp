// fp16lab mma through the real binary, with lines on its standard input.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/spawn.hpp"
#include "tests/support/temporary_folder.hpp"

namespace fp16lab::experiments {

class MmaLines : public testing::Test {
 protected:
  testing_support::Finished run(const std::string& input, const std::string& arguments) const {
    const std::filesystem::path file = folder_.path() / "input.tsv";
    std::ofstream(file, std::ios::binary) << input;
    return testing_support::run_program(
        "/bin/sh", {"-c", std::string(FP16LAB_BIN_DIR) + "/fp16lab mma " + arguments + " < " + file.string()},
        folder_.path());
  }

  testing_support::TemporaryFolder folder_;
};

}  // namespace fp16lab::experiments
