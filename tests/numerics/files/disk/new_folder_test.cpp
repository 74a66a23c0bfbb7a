// Replacing a folder: killed at every system call, with every system call refused, and by two at once.
#include "numerics/files/disk/new_folder.hpp"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>

#include "numerics/files/disk/atomic_file.hpp"
#include "numerics/files/disk/read_file.hpp"
#include "tests/numerics/files/files_fixture.hpp"
#include "tests/support/message_of.hpp"
#include "tests/support/struck_process.hpp"

namespace fp16lab {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing_support::can_strike;
using testing_support::message_of;
using testing_support::Strike;
using testing_support::Struck;
using testing_support::struck;

class NewFolderTest : public Files {
 protected:
  static void fill(const std::filesystem::path& at, const std::string& content) {
    std::filesystem::create_directories(at / "inner");
    for (const std::filesystem::path& file : {at / "a", at / "inner" / "b"}) {
      std::ofstream stream;
      stream.exceptions(std::ios::failbit | std::ios::badbit);
      stream.open(file);
      stream << content << std::flush;
    }
  }
  /// "old" or "new" where all of it is there.
  static std::string content(const std::filesystem::path& at) {
    std::error_code none;
    if (!std::filesystem::exists(at, none)) return "nothing";
    try {
      const std::string a = read_file(at / "a");
      return a == read_file(at / "inner" / "b") ? a : "a mixture";
    } catch (const std::runtime_error&) {
      return "a part";
    }
  }
  void save() const {
    NewFolder made(run);
    fill(made.made(), "new");
    made.commit(true);
  }
  /// Empties the folder; with `old`, an old run is in it.
  void begin(bool old) const {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) std::filesystem::remove_all(entry);
    if (old) fill(run, "old");
  }
  /// Is every folder whole that the rule asks for, and does the next one who saves find it and leave nothing else?
  void check(const Strike& strike, const Struck& result, bool old) const {
    const std::string at = "call " + std::to_string(strike.at) + ", error " + std::to_string(strike.error) +
                           (strike.no_exchange ? ", two renames" : "");
    if (result.succeeded) {
      EXPECT_EQ(content(run), "new") << at;
    }
    const std::string here = content(run);
    if (here != "new" && here != (old ? "old" : "nothing")) {
      EXPECT_EQ(here, "nothing") << at;
      EXPECT_TRUE(strike.no_exchange) << at;
      for (const auto& place : std::filesystem::directory_iterator(folder)) {
        EXPECT_EQ(content(place.path() / "earlier"), "old") << at;
        EXPECT_EQ(content(place.path() / "new"), "new") << at;
      }
    }
    { NewFolder next(run); }
    const std::string found = content(run);
    const std::vector<std::string> right = here != "nothing" ? std::vector{here}
                                           : old             ? std::vector<std::string>{"old", "new"}
                                                             : std::vector{here};
    EXPECT_THAT(right, ::testing::Contains(found)) << at;
    EXPECT_EQ(names(), found == "nothing" ? std::vector<std::string>{} : std::vector<std::string>{"run"})
        << at;
  }

  const std::filesystem::path run = folder / "run";
};

TEST_F(NewFolderTest, TakesThePlaceAndLeavesNothingElse) {
  save();
  EXPECT_EQ(content(run), "new");
  begin(true);
  save();
  EXPECT_EQ(content(run), "new");
  EXPECT_THAT(names(), ElementsAre("run"));
  {
    NewFolder discarded(folder / "run" / "");  // a name with a slash at its end
    fill(discarded.made(), "other");
  }
  EXPECT_EQ(content(run), "new");
  EXPECT_THAT(names(), ElementsAre("run"));
  NewFolder refused(run);
  fill(refused.made(), "other");
  EXPECT_THAT(message_of([&] { refused.commit(false); }),
              AllOf(HasSubstr(run.string()), HasSubstr("File exists")));
  EXPECT_EQ(content(run), "new");
  refused.discard();
  EXPECT_THROW(refused.commit(true), std::logic_error);
}

TEST_F(NewFolderTest, KilledAtEverySystemCallTheOldOrTheNewOneIsThere) {
  if (!can_strike) GTEST_SKIP() << "system calls are struck on x86-64 alone";
  for (const bool old : {true, false})
    for (const bool no_exchange : {false, true}) {
      Strike strike{.no_exchange = no_exchange};
      for (bool more = true; more;) {
        ++strike.at;
        begin(old);
        const Struck result = struck(strike, [&] { save(); });
        more = result.killed;
        check(strike, result, old);
      }
      EXPECT_GT(strike.at, 20);
    }
}

TEST_F(NewFolderTest, WithEverySystemCallRefusedTheOldOrTheNewOneIsThere) {
  if (!can_strike) GTEST_SKIP() << "system calls are struck on x86-64 alone";
  constexpr std::array errors{ENOSPC, EACCES, EXDEV};
  for (const bool no_exchange : {false, true})
    for (const bool from_then_on : {false, true}) {
      Strike strike{.from_then_on = from_then_on, .no_exchange = no_exchange};
      for (bool more = true; more;) {
        ++strike.at;
        strike.error = errors[static_cast<std::size_t>(strike.at) % errors.size()];
        begin(true);
        const Struck result = struck(strike, [&] { save(); });
        more = result.calls >= strike.at;
        check(strike, result, true);
      }
      EXPECT_GT(strike.at, 20);
    }
}

/// Between two renames a living process has neither folder in the place; no other process takes its work for
/// a dead one's.
TEST_F(NewFolderTest, TheWorkOfALivingProcessIsLeftAlone) {
  fill(run, "old");
  NewFolder first(run);
  fill(first.made(), "new");
  std::filesystem::rename(run, first.made().parent_path() / "earlier");
  { NewFolder second(run); }
  EXPECT_EQ(content(first.made()), "new");
  EXPECT_EQ(content(first.made().parent_path() / "earlier"), "old");
  EXPECT_EQ(content(run), "nothing");
  std::filesystem::rename(first.made().parent_path() / "earlier", run);
  first.commit(true);
  EXPECT_EQ(content(run), "new");
}

/// Names that look like it but were not made here, and links, must stay.
TEST_F(NewFolderTest, OnlyItsOwnPlacesAreDeleted) {
  fill(run, "old");
  for (const char* name : {".run.new-backup1", ".run.new-abcde", ".other.new-abcdef", ".run.new-abc_ef"})
    fill(folder / name, "mine");
  fill(folder / ".run.new-abcdef", "mine");  // without a lock
  fill(folder / "elsewhere", "mine");
  std::filesystem::create_symlink("elsewhere", folder / ".run.new-ABCDEF");
  write_raw("elsewhere/lock", "");
  const auto before = names();
  save();
  EXPECT_EQ(names(), before);
  EXPECT_EQ(content(folder / "elsewhere"), "mine");
  EXPECT_EQ(content(folder / ".run.new-abcdef"), "mine");
}

/// What is in the place may be a link to a folder elsewhere: the link is replaced, its folder stays.
TEST_F(NewFolderTest, ALinkInThePlaceIsReplacedAndItsFolderStays) {
  fill(folder / "elsewhere", "old");
  std::filesystem::create_directory_symlink("elsewhere", run);
  save();
  EXPECT_FALSE(std::filesystem::is_symlink(run));
  EXPECT_EQ(content(run), "new");
  EXPECT_EQ(content(folder / "elsewhere"), "old");
}

}  // namespace
}  // namespace fp16lab
