// The commands of README and of the manual, page by page in their order there: each exists and
// parses, reads only what an earlier one of the page has written, and takes no folder that another one has
// filled. Then they run as they are, in a folder that looks like a checkout, training runs with two steps
// and small data; tests/not_run.md says which are not, and why.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <regex>
#include <set>
#include <sstream>

#include "experiments/app/config/shipped_configs.hpp"
#include "experiments/app/sweep/sweep.hpp"
#include "tests/experiments/app/shown_commands.hpp"
#include "tests/experiments/app/small_runs.hpp"
#include "tests/support/array_files.hpp"

namespace fp16lab::experiments::readme_commands_test {
namespace {

const std::filesystem::path sources = FP16LAB_SOURCE_DIR;

/// A line of code, or a piece of it in a sentence, that calls a program of the build.
struct Shown {
  std::string line;     ///< as typed in the root of the sources
  std::string command;  ///< program and arguments; what follows a pipe or a semicolon is another command
  bool operator==(const Shown&) const = default;
};

std::string without_end(std::string text, const char* characters) {
  text.erase(std::min(text.find_first_of(characters), text.size()));
  text.erase(text.find_last_not_of(' ') + 1);
  return text;
}

std::vector<Shown> commands_of(const std::string& page) {
  std::vector<Shown> commands;
  std::istringstream lines(testing_support::slurp(sources / page));
  bool fenced = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("```")) {
      fenced = !fenced;
      continue;
    }
    std::vector<std::string> spans;
    if (fenced) {
      spans.push_back(without_end(line, "#"));
    } else {
      for (std::size_t begin = line.find('`'); begin != std::string::npos; begin = line.find('`', begin)) {
        const std::size_t end = line.find('`', begin + 1);
        if (end == std::string::npos) break;
        spans.push_back(line.substr(begin + 1, end - begin - 1));
        begin = end + 1;
      }
    }
    const std::string folder = "build/bin/";
    for (const std::string& span : spans) {
      const std::size_t begin = span.find(folder);
      if (begin == std::string::npos) continue;
      commands.push_back({span, without_end(span.substr(begin + folder.size()), "|;\\")});
    }
  }
  return commands;
}

/// README and docs/ in English; those of docs/lookup are made from the program and show no commands.
std::vector<std::string> pages() {
  std::vector<std::string> found{"README.md"};
  for (const char* const folder : {"docs", "docs/do"})
    for (const auto& entry : std::filesystem::directory_iterator(sources / folder)) {
      const std::string name = entry.path().filename().string();
      if (!name.ends_with(".md") || name.ends_with(".zh.md")) continue;
      const std::string page = std::string(folder) + "/" + name;
      if (!commands_of(page).empty()) found.push_back(page);
    }
  std::sort(found.begin(), found.end());
  return found;
}

/// The table of tests/not_run.md: beginnings of lines.
std::vector<std::string> not_run() {
  std::vector<std::string> beginnings;
  std::istringstream lines(testing_support::slurp(sources / "tests/not_run.md"));
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("| `")) beginnings.push_back(line.substr(3, line.find('`', 3) - 3));
  return beginnings;
}

bool is_run(const std::string& line) {
  const std::vector<std::string> beginnings = not_run();
  return std::none_of(beginnings.begin(), beginnings.end(),
                      [&](const std::string& beginning) { return line.starts_with(beginning); });
}

std::vector<std::string> pages_that_run() {
  std::vector<std::string> found = pages();
  std::erase_if(found, [](const std::string& page) {
    const std::vector<Shown> commands = commands_of(page);
    return std::none_of(commands.begin(), commands.end(),
                        [](const Shown& shown) { return is_run(shown.line); });
  });
  return found;
}

/// The words after `option`, at each of its places.
std::vector<std::string> values_of(const std::vector<std::string>& words, const std::string& option) {
  std::vector<std::string> values;
  for (std::size_t i = 0; i + 1 < words.size(); ++i)
    if (words[i] == option) values.push_back(words[i + 1]);
  return values;
}

void expect_all_parse(const std::vector<Shown>& commands) {
  for (const Shown& shown : commands) {
    std::string command = shown.command;
    if (command.starts_with("bench_")) {
      EXPECT_TRUE(std::filesystem::exists(std::filesystem::path(FP16LAB_BIN_DIR) /
                                          command.substr(0, command.find(' '))))
          << command;
      continue;
    }
    if (const std::size_t dots = command.find(" ..."); dots != std::string::npos) command.resize(dots);
    expect_parses(command);
  }
}

class Page : public SmallRuns, public testing::WithParamInterface<std::string> {
 protected:
  Page() : commands_(commands_of(GetParam())) {}

  /// The runs that a sweep plans, and the folder that holds them.
  void note_sweep(const std::vector<std::string>& words) {
    CommonOptions common;
    common.config = sources / values_of(words, "-c").at(0);
    common.set = values_of(words, "--set");
    common.out = values_of(words, "-o").at(0);
    std::vector<std::string> policies;
    for (const std::string& list : values_of(words, "--policies")) {
      std::istringstream stream(list);
      for (std::string policy; std::getline(stream, policy, ',');) policies.push_back(policy);
    }
    for (const PlannedRun& run : load_sweep(common, false, policies).runs)
      written_.insert(run.folder.string());
    written_.insert(common.out.string());
  }

  /// Dumps such as a user's own training writes: mine.npz and dumps/step100.npz.
  void write_dumps() const {
    using namespace testing_support;
    const std::string numbers = from_hex("5f708930 00000034 0000803e");  // 1e-9, 2^-23 and 0.25 in FP32
    const std::string archive = zip({stored("fc1.weight.npy", npy("<f4", "(3,)", numbers))});
    std::filesystem::create_directories(folder_ / "dumps");
    for (const char* const name : {"mine.npz", "dumps/step100.npz"}) write_bytes(folder_ / name, archive);
  }

  const std::vector<Shown> commands_;
  std::set<std::string> written_;  ///< folders that commands so far have left
};

TEST_P(Page, EveryCommandParses) { expect_all_parse(commands_); }

TEST_P(Page, EveryCommandFindsWhatItReadsAndAFreshFolder) {
  for (const auto& [line, command] : commands_) {
    const std::vector<std::string> words = words_of(command);
    if (words.size() > 1 && (words[1] == "sweep" || words[1] == "train") &&
        (command.find("--collect") != std::string::npos || command.find("--resume") != std::string::npos)) {
      const std::string folder = values_of(words, "-o").at(0);
      EXPECT_TRUE(written_.contains(folder) || !folder.starts_with("results/"))
          << line << ": no command has begun it";
      continue;
    }
    for (std::size_t i = 2; i < words.size(); ++i) {
      const bool value = words[i - 1].starts_with("-");
      if (words[i].starts_with("results/") && !value) {
        EXPECT_TRUE(written_.contains(words[i])) << line << ": no command has written " << words[i];
      }
    }
    if (words.size() > 1 && words[1] == "sweep") {
      ASSERT_NO_FATAL_FAILURE(note_sweep(words)) << line;
      continue;
    }
    std::vector<std::string> folders = values_of(words, "-o");
    const std::vector<std::string> configs = values_of(words, "-c");
    if (words.size() > 1 && words[1] == "train" && folders.empty() && !configs.empty())
      folders.push_back("results/" + std::filesystem::path(configs[0]).stem().string() + "-seed1");
    for (const std::string& folder : folders)
      EXPECT_TRUE(written_.insert(folder).second) << line << ": an earlier command has written " << folder;
  }
}

class RunPage : public Page {};

TEST_P(RunPage, CommandsRunAsWritten) {
  write_config();
  write_dumps();
  std::filesystem::create_directory(folder_ / "build");
  std::filesystem::create_directory_symlink(FP16LAB_BIN_DIR, folder_ / "build/bin");
  std::filesystem::create_directory_symlink(sources / "experiments", folder_ / "experiments");
  int ran = 0;
  std::vector<std::string> absent;  // commands that this machine's processor cannot run
  for (const auto& [shown, command] : commands_) {
    if (!is_run(shown)) continue;
    if (!absent.empty() && command.find("--verify captured.tsv") != std::string::npos)
      continue;  // it reads that
    std::string line = shown;
    if (command.starts_with("fp16lab train ")) {
      line = std::regex_replace(line, std::regex("--dump-gradients [0-9]+"), "--dump-gradients 1");
      line = std::regex_replace(line, std::regex(" --set train.epochs=[0-9]+"), "") + " --set train.steps=2";
      for (const std::string& config : values_of(words_of(command), "-c"))
        if (load_config(config_called(std::filesystem::path(config).filename())).data.test_subset != 0)
          line += " --set data.test_subset=0";
    }
    const auto result =
        testing_support::run_program("/bin/sh", {"-c", "cd \"$0\" && " + line, folder_.string()}, folder_,
                                     {{"FP16LAB_DATA", path("data")}});
    if (result.exit_code == 3 && result.err.find("this processor has no") != std::string::npos) {
      absent.push_back(shown);
      continue;
    }
    EXPECT_EQ(result.exit_code, 0) << line << "\n" << result.err;
    ++ran;
  }
  EXPECT_GE(ran, 1);
  if (!absent.empty()) GTEST_SKIP() << "not on this processor: " << absent.front();
}

std::string test_name(const testing::TestParamInfo<std::string>& page) {
  return std::regex_replace(page.param, std::regex("[^A-Za-z0-9]"), "_");
}
INSTANTIATE_TEST_SUITE_P(Manual, Page, testing::ValuesIn(pages()), test_name);
INSTANTIATE_TEST_SUITE_P(Manual, RunPage, testing::ValuesIn(pages_that_run()), test_name);

TEST(Manual, HasCommandsOfEveryKind) {
  std::set<std::string> programs;
  std::size_t commands = 0;
  for (const std::string& page : pages())
    for (const Shown& shown : commands_of(page)) {
      programs.insert(shown.command.substr(0, shown.command.find(' ')));
      ++commands;
    }
  EXPECT_GE(commands, 45U);
  for (const char* const program :
       {"fp16lab", "bench_engine", "bench_numerics", "exp_device_acceptance", "exp_tensor_core_probe"})
    EXPECT_TRUE(programs.contains(program)) << program;
}

TEST(Manual, EveryRowOfCommandsThatAreNotRunFitsOne) {
  std::vector<Shown> commands;
  for (const std::string& page : pages())
    for (const Shown& shown : commands_of(page)) commands.push_back(shown);
  const std::vector<std::string> beginnings = not_run();
  EXPECT_GE(beginnings.size(), 5U);
  for (const std::string& beginning : beginnings)
    EXPECT_TRUE(std::any_of(commands.begin(), commands.end(), [&](const Shown& shown) {
      return shown.line.starts_with(beginning);
    })) << beginning;
}

TEST(Manual, BothLanguagesHaveTheSameCommands) {
  for (const char* const page :
       {"README", "docs/start", "docs/understand", "docs/nan", "docs/do/frameworks"}) {
    SCOPED_TRACE(page);
    const std::vector<Shown> english = commands_of(page + std::string(".md"));
    const std::vector<Shown> chinese = commands_of(page + std::string(".zh.md"));
    ASSERT_FALSE(english.empty());
    ASSERT_EQ(english.size(), chinese.size());
    for (std::size_t i = 0; i < english.size(); ++i) EXPECT_EQ(english[i].line, chinese[i].line);
  }
}

/// The settings that the comments of a shipped file show, those of a line together; a line that begins with
/// one goes on where the line before ended.
std::vector<std::vector<std::string>> settings_in_comments(const std::filesystem::path& file) {
  const std::regex setting("--set '?([^ ',)]+(,[^ ',)]+)*)");
  std::vector<std::vector<std::string>> all;
  std::istringstream lines(testing_support::slurp(file));
  bool goes_on = false;
  for (std::string line; std::getline(lines, line);) {
    std::vector<std::string> found;
    for (std::sregex_iterator at(line.begin(), line.end(), setting), end; at != end; ++at) {
      found.push_back((*at)[1]);
      if (found.back().ends_with('.')) found.back().pop_back();
    }
    const bool begins = line.starts_with("#") &&
                        line.substr(1, line.find("--set") - 1).find_first_not_of(' ') == std::string::npos;
    if (!line.starts_with("#")) found.clear();
    if (begins && goes_on)
      std::ranges::copy(found, std::back_inserter(all.back()));
    else if (!found.empty())
      all.push_back(found);
    goes_on = !found.empty();
  }
  return all;
}

class ShippedComments : public SmallRuns {};

TEST_F(ShippedComments, TheirSettingsTrain) {
  write_config();
  std::size_t trained = 0;
  for (const ShippedConfig& config : shipped_configs()) {
    if (config.is_sweep) continue;
    for (const std::vector<std::string>& settings : settings_in_comments(config.path)) {
      const std::string name = config.path.stem().string();
      std::vector<std::string> words{
          "train", "--quiet", "-c", config.path.string(), "-o", path(fmt::format("run{}", ++trained))};
      const auto set = [&words](const std::string& setting) {
        words.insert(words.end(), {"--set", setting});
      };
      if (name.starts_with("paddle")) set("model.scale_down=64");
      for (const std::string& setting : settings) set(setting);
      if (load_config(config.path).data.test_subset != 0) set("data.test_subset=0");
      for (const char* const setting : {"train.steps=2", "checkpoint.every=0"}) set(setting);
      const auto result =
          testing_support::run_program(fp16lab_binary, words, folder_, {{"FP16LAB_DATA", path("data")}});
      EXPECT_EQ(result.exit_code, 0) << fmt::format("{}", fmt::join(words, " ")) << "\n" << result.err;
    }
  }
  EXPECT_GE(trained, 25U);
}

TEST(Findings, CommandsParse) {
  for (const char* const page : {"reports/findings/shards_and_small_gradients/README.md",
                                 "reports/findings/gradients_over_ranks/README.md"}) {
    SCOPED_TRACE(page);
    const std::vector<Shown> commands = commands_of(page);
    EXPECT_GE(commands.size(), 2U);
    expect_all_parse(commands);
  }
}

}  // namespace
}  // namespace fp16lab::experiments::readme_commands_test
