// The name of a build: the commit, and a digest of what differs from it; and what programs answer to
// --version.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/spawn.hpp"
#include "tests/support/temporary_folder.hpp"

namespace fp16lab::experiments {
namespace {

class BuildInfo : public testing::Test {
 protected:
  BuildInfo() {
    for (const char* const folder : {"numerics", "experiments", "tests"})
      std::filesystem::create_directories(sources_ / folder);
    write("numerics/a.cpp", "int a;\n");
    write("README.md", "text\n");
    git({"init", "--quiet"});
    commit();
  }
  void write(const std::string& file, const std::string& text) const {
    std::ofstream(sources_ / file) << text;
  }
  void git(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {"git", "-C", sources_.string(), "-c", "user.name=a", "-c",
                                         "user.email=a@b", "-c", "commit.gpgsign=false"});
    const auto done = testing_support::run_program("/usr/bin/env", arguments, temporary_.path());
    ASSERT_EQ(done.exit_code, 0) << done.err;
  }
  void commit() const {
    git({"add", "--all"});
    git({"commit", "--quiet", "-m", "state"});
  }
  /// What the build would write into its header.
  std::string hash() const {
    const std::filesystem::path header = temporary_.path() / "info.h";
    const auto done = testing_support::run_program(
        "/usr/bin/env",
        {"cmake", "-DSOURCE_DIR=" + sources_.string(), "-DOUTPUT=" + header.string(), "-DFLAGS=-O3", "-P",
         FP16LAB_SOURCE_DIR "/experiments/app/build_info.cmake"},
        temporary_.path());
    EXPECT_EQ(done.exit_code, 0) << done.err;
    const std::string text = testing_support::slurp(header), key = "FP16LAB_GIT_HASH \"";
    const std::size_t begin = text.find(key) + key.size();
    return text.substr(begin, text.find('"', begin) - begin);
  }

  testing_support::TemporaryFolder temporary_;
  std::filesystem::path sources_ = temporary_.path() / "sources";
};

TEST_F(BuildInfo, TwoBuildsOfDifferentChangesHaveDifferentNames) {
  const std::string clean = hash();
  EXPECT_EQ(clean.size(), 12u) << clean;
  write("numerics/a.cpp", "int a = 1;\n");
  const std::string first = hash();
  EXPECT_EQ(first.size(), clean.size() + std::string("-dirty-01234567").size()) << first;
  EXPECT_TRUE(first.starts_with(clean + "-dirty-")) << first;
  EXPECT_EQ(hash(), first);
  write("numerics/a.cpp", "int a = 2;\n");
  EXPECT_NE(hash(), first);
  write("numerics/a.cpp", "int a = 1;\n");
  EXPECT_EQ(hash(), first);
  write("numerics/a.cpp", "int a;\n");
  EXPECT_EQ(hash(), clean);
}

TEST_F(BuildInfo, NewSourcesCountTextsAndTestsDoNot) {
  const std::string clean = hash();
  write("README.md", "another text\n");
  write("tests/new.cpp", "int t;\n");
  EXPECT_EQ(hash(), clean);
  write("numerics/new;[name].hpp", "int b;\n");
  const std::string one = hash();
  EXPECT_NE(one, clean);
  write("numerics/new;[name].hpp", "int c;\n");
  EXPECT_NE(hash(), one);
  commit();
  EXPECT_EQ(hash().size(), 12u);
  EXPECT_NE(hash(), clean);
}

TEST(Version, EveryProgramAnswersWithOneLineAndTheProjectsVersion) {
  const testing_support::TemporaryFolder temporary;
  std::set<std::string> programs;
  std::istringstream names(FP16LAB_VERSIONED_PROGRAMS);
  for (std::string name; names >> name;) programs.insert(name);
  ASSERT_TRUE(programs.contains("fp16lab") && programs.contains("exp_underflow"))
      << FP16LAB_VERSIONED_PROGRAMS;
  const auto version_of = [&](const std::string& program) {
    return testing_support::run_program(std::string(FP16LAB_BIN_DIR) + "/" + program, {"--version"},
                                        temporary.path());
  };
  const std::string begin = " " FP16LAB_VERSION " (";
  const std::string own = version_of("fp16lab").out.substr(std::string("fp16lab").size());
  EXPECT_TRUE(own.starts_with(begin) && own.ends_with(")\n")) << own;
  EXPECT_EQ(std::count(own.begin(), own.end(), '\n'), 1) << own;
  for (const std::string& program : programs) {
    const auto result = version_of(program);
    EXPECT_EQ(result.exit_code, 0) << program << ": " << result.err;
    EXPECT_EQ(result.out, program + own);
    EXPECT_EQ(result.err, "") << program;
  }
}

}  // namespace
}  // namespace fp16lab::experiments
