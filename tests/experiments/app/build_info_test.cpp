// The name of a build: the commit, and a digest of what differs from it; what programs answer to --version;
// the licence; and the packages that scripts/setup.sh installs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/spawn.hpp"
#include "tests/support/temporary_folder.hpp"

namespace fp16lab::experiments {
namespace {

using testing::HasSubstr;
using testing::Not;

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

std::string source(const std::string& file) {
  const std::filesystem::path path = std::filesystem::path(FP16LAB_SOURCE_DIR) / file;
  EXPECT_TRUE(std::filesystem::exists(path)) << path;
  return testing_support::slurp(path);
}

TEST(Licence, IsTheSameEverywhere) {
  const std::string name = FP16LAB_LICENSE, owner = "The fp16lab authors";
  const std::string copyright = "Copyright 2026 " + owner;
  ASSERT_EQ(name, "Apache-2.0");
  EXPECT_THAT(source("LICENSE"),
              HasSubstr("Apache License\n                           Version 2.0, January 2004"));
  EXPECT_THAT(source("LICENSE"), HasSubstr("END OF TERMS AND CONDITIONS"));
  EXPECT_TRUE(source("NOTICE").starts_with("fp16lab\n" + copyright + "\n"));
  EXPECT_THAT(source("CITATION.cff"),
              HasSubstr("\nlicense: " + name + "\nauthors:\n  - name: " + owner + "\n"));
  EXPECT_THAT(source("python/pyproject.toml"), HasSubstr("\nlicense = \"" + name + "\"\n"));
  EXPECT_THAT(source("scripts/install.cmake"), HasSubstr("set(CPACK_PACKAGE_VENDOR \"" + owner + "\")"));
  for (const std::string page : {"README.md", "README.zh.md"})
    EXPECT_THAT(source(page), HasSubstr("[" + name + "](LICENSE)")) << page;
  EXPECT_THAT(source("docs/licences.md"), HasSubstr("[" + name + "](../LICENSE), " + copyright));
  for (const std::string package : {"fp16lab", "fp16lab-c"})
    EXPECT_THAT(testing_support::slurp(std::filesystem::path(FP16LAB_BIN_DIR) / ".." / (package + ".pc")),
                HasSubstr("\nLicense: " + name + "\n"));
  // A wheel takes files of its own folder alone.
  EXPECT_THAT(source("python/pyproject.toml"),
              HasSubstr("\nlicense-files = [\"LICENSE\", \"NOTICE\", \"THIRD_PARTY_NOTICES\"]\n"));
  for (const std::string file : {"LICENSE", "NOTICE", "THIRD_PARTY_NOTICES"})
    EXPECT_EQ(source("python/" + file), source(file)) << file;
}

TEST(Licence, EveryDependencyIsListedAndWhatIsCompiledInHasItsNotice) {
  struct Project {
    std::string name;  ///< in docs/licences.md
    bool compiled_in;  ///< its headers or sources
  };
  const std::map<std::string, Project> projects{
      {"hwy", {"Highway", true}},         {"fmt", {"fmt", true}},
      {"ZLIB", {"zlib", true}},           {"CLI11", {"CLI11", true}},
      {"tomlplusplus", {"toml++", true}}, {"nlohmann_json", {"nlohmann/json", true}},
      {"Boost", {"Boost", true}},         {"nanobind", {"nanobind", true}},
      {"OpenMP", {"libgomp", false}},     {"benchmark", {"Google Benchmark", false}},
      {"BLAS", {"OpenBLAS", false}},      {"GTest", {"GoogleTest", false}},
      {"CUDAToolkit", {"cuBLAS", false}}};
  const std::string page = source("docs/licences.md"), notices = source("THIRD_PARTY_NOTICES");
  std::set<std::string> found;
  for (const std::string file : {"scripts/packages.cmake", "scripts/cuda.cmake", "python/CMakeLists.txt"}) {
    const std::string text = source(file);
    const std::regex call(R"(find_package\((\w+))");
    for (auto match = std::sregex_iterator(text.begin(), text.end(), call); match != std::sregex_iterator();
         ++match)
      found.insert((*match)[1].str());
  }
  for (const std::string own : {"Threads", "Python", "fp16lab"}) found.erase(own);
  EXPECT_EQ(found.size(), projects.size());
  for (const std::string& package : found) {
    ASSERT_TRUE(projects.contains(package)) << package << " is in no list of licences: docs/licences.md";
    const Project& project = projects.at(package);
    EXPECT_THAT(page, HasSubstr(project.name));
    EXPECT_EQ(project.compiled_in, notices.find(project.name) != std::string::npos) << project.name;
  }
}

class Setup : public testing::Test {
 protected:
  /// What scripts/setup.sh asks apt-get to install where nothing is installed, `bible` prints a text and
  /// `present` are the files that are there already.
  std::string installs(const std::vector<std::string>& arguments) {
    const std::filesystem::path sources = temporary_.path() / "sources",
                                programs = temporary_.path() / "programs";
    std::filesystem::create_directories(sources / "scripts");
    std::filesystem::create_directories(programs);
    for (const std::string file : {"scripts/setup.sh", "scripts/packages.txt"})
      std::filesystem::copy_file(std::filesystem::path(FP16LAB_SOURCE_DIR) / file, sources / file,
                                 std::filesystem::copy_options::overwrite_existing);
    const std::filesystem::path said = temporary_.path() / "said";
    write(programs / "apt-get", "#!/bin/sh\necho \"$@\" >>'" + said.string() + "'\n");
    write(programs / "sudo", "#!/bin/sh\nexec \"$@\"\n");
    write(programs / "dpkg-query", "#!/bin/sh\nexit 1\n");
    write(programs / "bible", "#!/bin/sh\necho 'Rev22:21 Amen.'\n");
    const auto done =
        testing_support::run_program(sources / "scripts/setup.sh", arguments, temporary_.path(),
                                     {{"PATH", programs.string() + ":" + std::string(std::getenv("PATH"))}});
    EXPECT_EQ(done.exit_code, 0) << done.err;
    return testing_support::slurp(said);
  }
  static void write(const std::filesystem::path& file, const std::string& text) {
    std::ofstream(file) << text;
    std::filesystem::permissions(file, std::filesystem::perms::owner_all);
  }
  testing_support::TemporaryFolder temporary_;
};

TEST_F(Setup, InstallsWhatTheDemoNeedsAndTheRestWhenAsked) {
  const std::string demo = installs({});
  for (const std::string package :
       {"g++", "cmake", "libhwy-dev", "libcli11-dev", "librsvg2-bin", "bible-kjv"})
    EXPECT_THAT(demo, HasSubstr(" " + package));
  for (const std::string package :
       {"libgtest-dev", "libmpfr-dev", "libbenchmark-dev", "chromium", "context", "clang"})
    EXPECT_THAT(demo, Not(HasSubstr(package)));
  const std::string all = installs({"--tests"});
  for (const std::string package : {"g++", "librsvg2-bin", "libgtest-dev", "libmpfr-dev", "libbenchmark-dev"})
    EXPECT_THAT(all, HasSubstr(" " + package));
}

TEST_F(Setup, NamesPackagesWithoutTheirVersion) {
  std::istringstream lines(source("scripts/packages.txt"));
  std::set<std::string> packages;
  for (std::string line; std::getline(lines, line);) {
    const std::string package = line.substr(0, line.find_first_of(" |"));
    if (package.empty() || package.starts_with('#') || package.starts_with('[')) continue;
    EXPECT_TRUE(packages.insert(package).second) << package << " is there twice";
    // A name such as libboost1.81-dev or libclang-rt-14-dev is one Debian's; CLI11, zlib1g, librsvg2 and python3 are
    // names.
    std::string name = package;
    for (const std::string whole : {"libcli11", "zlib1g", "python3", "json3", "librsvg2"})
      if (const std::size_t place = name.find(whole); place != std::string::npos)
        name.erase(place, whole.size());
    EXPECT_EQ(name.find_first_of("0123456789"), std::string::npos) << package;
  }
  EXPECT_GE(packages.size(), 25u);
}

}  // namespace
}  // namespace fp16lab::experiments
