// What limits a process's memory, read from trees of files that stand for /proc and /sys.
#include "experiments/app/run/memory_limits.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/temporary_folder.hpp"

namespace fp16lab::experiments {
namespace {

using testing::HasSubstr;

class MemoryLimits : public testing::Test {
 protected:
  void write(const std::string& file, const std::string& text) const {
    const std::filesystem::path path = root_ / file;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  void machine(const std::string& available = "1000", const std::string& swap = "0") const {
    write("proc/meminfo",
          "MemTotal:  9000 kB\nMemAvailable:  " + available + " kB\nSwapFree:  " + swap + " kB\n");
  }
  void unified(const std::string& group, const std::string& mounted = "/") const {
    write("proc/self/cgroup", "0::" + group + "\n");
    write("proc/self/mountinfo", "24 1 0:22 / /sys rw shared:7 - sysfs sysfs rw\n35 24 0:30 " + mounted +
                                     " /sys/fs/cgroup rw,nosuid shared:9 master:3 - cgroup2 cgroup2 rw\n");
  }
  MemoryLimit tightest() const { return memory_limits(root_).at(0); }

  testing_support::TemporaryFolder temporary_;
  const std::filesystem::path& root_ = temporary_.path();
};

TEST_F(MemoryLimits, NothingIsKnownWhereThereIsNothing) {
  EXPECT_TRUE(memory_limits(root_).empty());
  EXPECT_EQ(memory_warning(~std::uint64_t{0}, 1, {}), "");
}

TEST_F(MemoryLimits, OfTheMachine) {
  machine("1000", "24");
  EXPECT_EQ(tightest().left, 1024u * 1024);
  EXPECT_THAT(tightest().whose, HasSubstr("MemAvailable"));
  write("proc/sys/vm/overcommit_memory", "2\n");
  write("proc/meminfo", "MemAvailable: 1000 kB\nCommitLimit: 900 kB\nCommitted_AS: 500 kB\n");
  EXPECT_EQ(tightest().left, 400u * 1024);
  write("proc/sys/vm/overcommit_memory", "0\n");
  EXPECT_EQ(tightest().left, 1000u * 1024);
}

TEST_F(MemoryLimits, OfTheProcess) {
  machine();
  write("proc/self/status", "Name:\tx\nVmSize:\t  300 kB\nVmData:\t 100 kB\n");
  write("proc/self/limits",
        "Limit                     Soft Limit           Hard Limit           Units     \n"
        "Max data size             unlimited            unlimited            bytes     \n"
        "Max address space         512000               unlimited            bytes     \n");
  EXPECT_EQ(tightest().left, 512000u - 300 * 1024);
  EXPECT_THAT(tightest().whose, HasSubstr("RLIMIT_AS"));
  write("proc/self/limits", "Max data size             204800            unlimited            bytes     \n");
  EXPECT_EQ(tightest().left, 204800u - 100 * 1024);
  write("proc/self/limits", "Max data size             2048              unlimited            bytes     \n");
  EXPECT_EQ(tightest().left, 0u);
}

TEST_F(MemoryLimits, OfControlGroupsAndThoseAboveThem) {
  machine();
  unified("/user.slice/run 1");
  write("sys/fs/cgroup/user.slice/run 1/memory.max", "max\n");
  write("sys/fs/cgroup/user.slice/memory.max", "500000\n");
  write("sys/fs/cgroup/user.slice/memory.current", "400000\n");
  write("sys/fs/cgroup/user.slice/memory.stat", "anon 5\nactive_file 20000\ninactive_file 30000\n");
  EXPECT_EQ(tightest().left, 150000u) << "caches go before anybody is killed";
  EXPECT_EQ(tightest().whose, "the control group /user.slice (memory.max)");
  write("sys/fs/cgroup/user.slice/run 1/memory.max", "120000\n");
  EXPECT_EQ(tightest().left, 120000u);
  EXPECT_EQ(tightest().whose, "the control group /user.slice/run 1 (memory.max)");
  // Swap: no more than the group may have, and no more than there is.
  machine("1000", "10");
  EXPECT_EQ(tightest().left, 120000u + 10240);
  write("sys/fs/cgroup/user.slice/run 1/memory.swap.max", "5000\n");
  write("sys/fs/cgroup/user.slice/run 1/memory.swap.current", "1000\n");
  EXPECT_EQ(tightest().left, 124000u);
}

TEST_F(MemoryLimits, OfAContainer) {
  machine();
  unified("/");  // a name space of its own
  write("sys/fs/cgroup/memory.max", "70000\n");
  EXPECT_EQ(tightest().left, 70000u);
  unified("/../other", "/");  // a process that was moved: seen from outside of the name space
  EXPECT_EQ(tightest().left, 70000u);
  unified("/docker/abc/inner", "/docker/abc");
  write("sys/fs/cgroup/inner/memory.max", "60000\n");
  EXPECT_EQ(tightest().left, 60000u);
}

TEST_F(MemoryLimits, OfTheFirstVersionOfControlGroups) {
  machine();
  write("proc/self/cgroup", "9:name=systemd:/\n4:cpu,memory:/a/b\n0::/\n");
  write("proc/self/mountinfo",
        "35 31 0:32 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpuset\n"
        "36 31 0:33 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,cpu,memory\n");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  write("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "300000\n");
  write("sys/fs/cgroup/memory/a/memory.usage_in_bytes", "100000\n");
  write("sys/fs/cgroup/memory/a/memory.stat", "total_inactive_file 1000\ntotal_active_file 2000\n");
  EXPECT_EQ(tightest().left, 203000u);
  EXPECT_EQ(tightest().whose, "the control group /a (memory.limit_in_bytes)");
}

TEST_F(MemoryLimits, NonsenseLimitsNothing) {
  machine();
  unified("/x");
  for (const char* const nonsense : {"", "\n", "-1", "12abc", "99999999999999999999999999", "\xff\xfe"}) {
    write("sys/fs/cgroup/x/memory.max", nonsense);
    EXPECT_EQ(memory_limits(root_).size(), 1u) << nonsense;
  }
  write("proc/self/mountinfo", "- - -\n1 2\n\n35 24 0:30 / /sys/fs/cgroup rw -\n");
  write("proc/self/cgroup", "0\n::\n:::::\n");
  write("proc/self/limits", "Max address space\nMax data size  x y\n");
  EXPECT_EQ(memory_limits(root_).size(), 1u);
}

TEST_F(MemoryLimits, TheWarningSaysWhatIsNeededWhatThereIsAndWhoseLimitThatIs) {
  machine("2000000");
  const std::vector<MemoryLimit> limits = memory_limits(root_);
  EXPECT_EQ(memory_warning(2048000000, 1, limits), "");
  const std::string warning = memory_warning(5000000000, 1, limits);
  EXPECT_THAT(warning, HasSubstr("a step needs 5.0 GB"));
  EXPECT_THAT(warning, HasSubstr("this machine (MemAvailable and SwapFree) leaves 2.0 GB"));
  EXPECT_THAT(warning, HasSubstr("a smaller train.batch_size"));
  EXPECT_THAT(memory_warning(5000000000, 4, limits), HasSubstr("4 concurrent runs"));
  EXPECT_THAT(memory_warning(5000000000, 4, limits), HasSubstr("fewer --jobs"));
}

TEST(OwnMemoryLimits, AreFound) {
  EXPECT_FALSE(memory_limits().empty());
  EXPECT_GT(memory_limits().front().left, 0u);
}

}  // namespace
}  // namespace fp16lab::experiments
