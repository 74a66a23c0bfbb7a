// exp_device_acceptance with the device library that we ship, on the machine that executes PTX: what it says
// of the device, a bundle of another machine, and the tests that it starts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "tests/support/on_ptx.hpp"
#include "tests/support/temporary_folder.hpp"

namespace fp16lab::experiments::acceptance {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;
using testing_support::Finished;

class FirstContactPtx : public testing_support::OnPtx {
 protected:
  Finished on_ptx(std::vector<std::string> arguments,
                  const std::map<std::string, std::string>& environment = {}) {
    arguments.insert(arguments.begin(), std::string(FP16LAB_BIN_DIR) + "/exp_device_acceptance");
    arguments.insert(arguments.end(), {"--quiet", "-o", out().string()});
    return run_on_ptx(arguments, folder_.path(), environment);
  }
  fs::path out() const { return folder_.path() / "out"; }
  testing_support::TemporaryFolder folder_;
};

TEST_F(FirstContactPtx, SaysWhatTheDeviceIsAndWhoWillJudgeIt) {
  const Finished result = on_ptx({"--section", "device", "--quick"});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  for (const char* const fact :
       {"compute capability 9.0", "multiprocessors    4", "memory             4.0 GiB",
        "judged by the row hopper", "routes             mma (mma.sync), cuBLASLt ", "compute-sanitizer  "})
    EXPECT_THAT(result.out, HasSubstr(fact));
  const Finished none = on_ptx({"--section", "device"}, {{"FP16LAB_PTX_DEVICES", "0"}});
  EXPECT_EQ(none.exit_code, 3);
  EXPECT_EQ(none.out, "") << "one sentence, on stderr";
  EXPECT_THAT(none.err, HasSubstr("no GPU to accept: no CUDA-capable device is detected"));
}

TEST_F(FirstContactPtx, ABundleOfAnotherMachineAgreesHere) {
  const Finished planted = on_ptx({"--rehearse", "--section", "large"}, {{"FP16LAB_PTX_PLANT", "bits"}});
  ASSERT_EQ(planted.exit_code, 5) << planted.out << planted.err;
  int bundles = 0;
  for (const auto& entry : fs::directory_iterator(out() / "bundles")) {
    if (bundles++ >= 2) break;
    const Finished result = on_ptx({"--reproduce", entry.path().string()});
    EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
    EXPECT_THAT(result.out, HasSubstr("here:  the PTX machine"));
    EXPECT_THAT(result.out, HasSubstr("the emulator gives what the bundle expects"));
    EXPECT_THAT(result.out, Not(HasSubstr("OTHER BITS")));
    EXPECT_THAT(result.out, HasSubstr("0 of 5 outputs differ from the emulator here"));
  }
  EXPECT_GT(bundles, 0);
}

TEST_F(FirstContactPtx, TheTestsThatWantAGpuAreCounted) {
  const fs::path bin = folder_.path() / "bin";
  fs::create_directories(bin);
  const auto with_ctest = [&](const std::string& last_line, int exit_code) {
    std::ofstream(bin / "ctest") << "#!/bin/sh\necho '  2/33 Test #9: x ...***Skipped 0.1 sec'\necho '"
                                 << last_line << "'\nexit " << exit_code << "\n";
    fs::permissions(bin / "ctest", fs::perms::owner_all);
    return on_ptx({"--section", "tests"}, {{"PATH", bin.string() + ":" + std::getenv("PATH")}});
  };
  const Finished failing = with_ctest("97% tests passed, 1 tests failed out of 33", 8);
  EXPECT_EQ(failing.exit_code, 5) << failing.out << failing.err;
  EXPECT_THAT(failing.out, HasSubstr("FAILS        tests that want a GPU (ctest -L gpu): 1 of 33 fail (0 not "
                                     "built, 1 skip themselves)"));
  const Finished passing = with_ctest("100% tests passed, 0 tests failed out of 33", 0);
  EXPECT_EQ(passing.exit_code, 0) << passing.out << passing.err;
  EXPECT_THAT(passing.out, HasSubstr("HOLDS        tests that want a GPU (ctest -L gpu): 0 of 33 fail"));
  const Finished none = with_ctest("No tests were found!!!", 0);
  EXPECT_THAT(none.out, HasSubstr("NOT RUN      tests that want a GPU (ctest -L gpu): skipped: "));
}

}  // namespace
}  // namespace fp16lab::experiments::acceptance
