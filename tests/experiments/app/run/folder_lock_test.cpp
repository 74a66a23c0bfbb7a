// The lock on a run's folder: who holds it, who made another folder of its name meanwhile, and what the
// system refuses.
#include "experiments/app/run/folder_lock.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>

#include <cerrno>
#include <fstream>
#include <optional>

#include "experiments/app/exit_code.hpp"
#include "tests/support/temporary_folder.hpp"

namespace fp16lab::experiments {
namespace {

using ::testing::HasSubstr;

class FolderLockTest : public ::testing::Test {
 protected:
  static std::optional<CommandError> refusal(const std::filesystem::path& path,
                                             FolderLock::Flock call = nullptr) {
    try {
      const FolderLock lock(path, "another process is writing this run", call);
    } catch (const CommandError& error) {
      return error;
    }
    return std::nullopt;
  }

  testing_support::TemporaryFolder temporary_;
  static inline std::filesystem::path folder_;  // where a Flock, which is a plain function, finds it
  static inline int calls_ = 0;
  void SetUp() override {
    folder_ = temporary_.path() / "deep" / "run";
    calls_ = 0;
  }
};

TEST_F(FolderLockTest, OneHolderAtATimeAndAnotherAfterIt) {
  {
    const FolderLock lock(folder_, "");
    const auto refused = refusal(folder_);
    ASSERT_TRUE(refused);
    EXPECT_EQ(refused->code, ExitCode::usage);
    EXPECT_STREQ(refused->what(),
                 ("--out: " + folder_.string() + ": another process is writing this run").c_str());
  }
  EXPECT_FALSE(refusal(folder_));
}

TEST_F(FolderLockTest, OtherErrorsAreTheSystemsOwn) {
  const auto refused = refusal(folder_, [](int, int) {
    errno = ENOLCK;
    return -1;
  });
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->code, ExitCode::run_failed);
  EXPECT_THAT(refused->what(), HasSubstr("cannot lock this folder: No locks available"));
  EXPECT_FALSE(refusal(folder_)) << "nothing is held";
}

TEST_F(FolderLockTest, AFolderThatWasReplacedMeanwhileIsLockedAnew) {
  // Between open and flock the former holder removes the folder, and somebody else makes it again.
  const FolderLock lock(folder_, "", [](int descriptor, int operation) {
    if (++calls_ == 1) {
      std::filesystem::remove(folder_);
      std::filesystem::create_directory(folder_.parent_path() / "other");  // takes the inode's number
      std::filesystem::create_directory(folder_);
    } else if (calls_ == 2) {
      std::filesystem::remove(folder_);  // and nobody makes it again
    }
    return ::flock(descriptor, operation);
  });
  EXPECT_EQ(calls_, 3);
  EXPECT_TRUE(refusal(folder_)) << "the folder of that name is the one that is held";
}

TEST_F(FolderLockTest, WhatCannotBeMadeSaysWhy) {
  std::filesystem::create_directories(folder_.parent_path());
  std::ofstream(folder_) << "a file";
  const auto refused = refusal(folder_ / "inside");
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->code, ExitCode::run_failed);
  EXPECT_THAT(refused->what(), HasSubstr("cannot make this folder: Not a directory"));
}

}  // namespace
}  // namespace fp16lab::experiments
