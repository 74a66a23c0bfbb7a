// The main function of a program that holds the tests of several CTest entries (fp16lab_test in
// scripts/targets.cmake).
// build/tests/NAME is a link to it; NAME.sources lists the sources of that entry, and under that name the
// program runs
// only their tests. Under its own name it runs all.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>

namespace {

/// Adds to --gtest_filter that tests of other sources than `sources` are left out. How many are there of
/// these?
int leave_out_others(const std::set<std::string>& sources) {
  const testing::UnitTest& all = *testing::UnitTest::GetInstance();
  std::string others;
  int kept = 0;
  for (int i = 0; i < all.total_test_suite_count(); ++i) {
    const testing::TestSuite& suite = *all.GetTestSuite(i);
    std::string of_suite;
    bool whole = true;
    for (int j = 0; j < suite.total_test_count(); ++j) {
      const testing::TestInfo& test = *suite.GetTestInfo(j);
      if (sources.contains(test.file())) {
        whole = false;
        ++kept;
      } else {
        of_suite += fmt::format(":{}.{}", suite.name(), test.name());
      }
    }
    others += whole ? fmt::format(":{}.*", suite.name()) : of_suite;
  }
  std::string filter = GTEST_FLAG_GET(filter);
  if (filter.find('-') == std::string::npos) filter += '-';
  GTEST_FLAG_SET(filter, filter + others);
  return kept;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string called = argv[0];
  testing::InitGoogleMock(&argc, argv);
  if (std::ifstream list(called + ".sources"); list) {
    std::set<std::string> sources;
    for (std::string line; std::getline(list, line);) sources.insert(line);
    if (leave_out_others(sources) == 0) {
      fmt::print(stderr, "{}: none of its tests is in a source of {}.sources: configure the build again\n",
                 called, called);
      return 1;
    }
  } else if (std::filesystem::is_symlink(called)) {
    fmt::print(stderr, "{}: {}.sources, the list of its sources, is missing: configure the build again\n",
               called, called);
    return 1;
  }
  return RUN_ALL_TESTS();
}
