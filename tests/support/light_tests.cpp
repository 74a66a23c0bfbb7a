// The main function of a program that holds the tests of several CTest entries (fp16lab_test in scripts/targets.cmake).
// build/tests/NAME is a link to it; NAME.sources lists the sources of that entry, and under that name the program runs
// only their tests. Under its own name it runs all.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>

namespace {

/// Adds to --gtest_filter that tests of other sources than `sources` are left out.
void leave_out_others(const std::set<std::string>& sources) {
  const testing::UnitTest& all = *testing::UnitTest::GetInstance();
  std::string others;
  for (int i = 0; i < all.total_test_suite_count(); ++i) {
    const testing::TestSuite& suite = *all.GetTestSuite(i);
    for (int j = 0; j < suite.total_test_count(); ++j) {
      const testing::TestInfo& test = *suite.GetTestInfo(j);
      if (!sources.contains(test.file())) others += std::string(":") + suite.name() + "." + test.name();
    }
  }
  std::string filter = GTEST_FLAG_GET(filter);
  if (filter.find('-') == std::string::npos) filter += '-';
  GTEST_FLAG_SET(filter, filter + others);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string called = argv[0];
  testing::InitGoogleMock(&argc, argv);
  if (std::ifstream list(called + ".sources"); list) {
    std::set<std::string> sources;
    for (std::string line; std::getline(list, line);) sources.insert(line);
    leave_out_others(sources);
  } else if (std::filesystem::is_symlink(called)) {
    std::fprintf(stderr, "%s: the list of its sources, %s.sources, is missing: configure the build again\n",
                 called.c_str(), called.c_str());
    return 1;
  }
  return RUN_ALL_TESTS();
}
