// README's commands, in the order in which they stand: each exists and parses, reads only what an earlier one
// has written, and takes no folder that another one has filled. Single trainings and what reads them are run,
// with small data.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <sstream>

#include "experiments/app/sweep/sweep.hpp"
#include "tests/experiments/app/shown_commands.hpp"
#include "tests/experiments/app/small_runs.hpp"

namespace fp16lab::experiments {
namespace {

/// Programs of the build in lines of code and in `code`, as typed in the root of the sources. What stands
/// behind a pipe or a semicolon, or in parentheses, is another command or none.
std::vector<std::string> commands_of(const std::string& text) {
  std::vector<std::string> commands;
  std::istringstream lines(text);
  bool fenced = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("```")) {
      fenced = !fenced;
      continue;
    }
    std::vector<std::string> spans;
    if (fenced) {
      spans.push_back(line.substr(0, line.find('#')));
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
      const std::string command = span.substr(begin + folder.size());
      commands.push_back(command.substr(0, command.find_first_of("|;\\")));
    }
  }
  return commands;
}

/// The words after `option`, at each place where it stands.
std::vector<std::string> values_of(const std::vector<std::string>& words, const std::string& option) {
  std::vector<std::string> values;
  for (std::size_t i = 0; i + 1 < words.size(); ++i)
    if (words[i] == option) values.push_back(words[i + 1]);
  return values;
}

class Readme : public SmallRuns {
 protected:
  Readme() : commands_(commands_of(testing_support::slurp(FP16LAB_SOURCE_DIR "/README.md"))) {}

  /// The runs that a sweep plans, and the folder that holds them.
  void note_sweep(const std::vector<std::string>& words) {
    CommonOptions common;
    common.config = std::filesystem::path(FP16LAB_SOURCE_DIR) / values_of(words, "-c").at(0);
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

  const std::vector<std::string> commands_;
  std::set<std::string> written_;  ///< folders that commands so far have left behind
};

TEST_F(Readme, HasCommandsOfEveryKind) {
  std::set<std::string> programs;
  for (const std::string& command : commands_) programs.insert(command.substr(0, command.find(' ')));
  EXPECT_GE(commands_.size(), 25u);
  for (const char* const program :
       {"fp16lab", "bench_engine", "bench_numerics", "exp_claims", "exp_tutorials"})
    EXPECT_TRUE(programs.contains(program)) << program;
}

void expect_all_parse(const std::vector<std::string>& commands) {
  for (std::string command : commands) {
    if (command.starts_with("bench_")) {
      EXPECT_TRUE(std::filesystem::exists(std::filesystem::path(FP16LAB_BIN_DIR) / command)) << command;
      continue;
    }
    if (const std::size_t dots = command.find(" ..."); dots != std::string::npos) command.resize(dots);
    expect_parses(command);
  }
}

TEST_F(Readme, EveryCommandParses) { expect_all_parse(commands_); }

TEST(Pages, EveryCommandParses) {
  for (const auto& [page, least] : {std::pair{"docs/many_machines.md", 3u},
                                    {"reports/findings/shards_and_small_gradients/README.md", 2u},
                                    {"reports/findings/gradients_over_ranks/README.md", 2u}}) {
    SCOPED_TRACE(page);
    const std::vector<std::string> commands =
        commands_of(testing_support::slurp(std::filesystem::path(FP16LAB_SOURCE_DIR) / page));
    EXPECT_GE(commands.size(), least);
    expect_all_parse(commands);
  }
}

TEST_F(Readme, EveryCommandFindsWhatItReadsAndAFreshFolder) {
  for (const std::string& command : commands_) {
    const std::vector<std::string> words = words_of(command);
    for (std::size_t i = 2; i < words.size(); ++i) {
      const bool value = words[i - 1].starts_with("-");
      if (words[i].starts_with("results/") && !value) {
        EXPECT_TRUE(written_.contains(words[i])) << command << ": nobody has written " << words[i];
      }
    }
    if (words.size() > 1 && words[1] == "sweep") {
      ASSERT_NO_FATAL_FAILURE(note_sweep(words)) << command;
      continue;
    }
    std::vector<std::string> folders = values_of(words, "-o");
    const std::vector<std::string> configs = values_of(words, "-c");
    if (words.size() > 1 && words[1] == "train" && folders.empty() && !configs.empty())
      folders.push_back("results/" + std::filesystem::path(configs[0]).stem().string() + "-seed1");
    for (const std::string& folder : folders)
      EXPECT_TRUE(written_.insert(folder).second) << command << ": an earlier command has written " << folder;
  }
}

TEST_F(Readme, TrainingsAndWhatReadsThemRunInOrder) {
  write_config();
  int ran = 0;
  for (const std::string& command : commands_) {
    std::vector<std::string> words = words_of(command);
    if (words.front() != "fp16lab" || words.size() < 2 || command.find("...") != std::string::npos) continue;
    const std::string name = words[1];
    const bool reads = (name == "hist" || name == "replay" || name == "policy" || name == "list");
    if ((name != "train" && !reads) || command.find('*') != std::string::npos) continue;
    words.erase(words.begin());
    for (std::size_t i = 0; i + 1 < words.size(); ++i)
      if (words[i] == "-c")
        words[i + 1] = (std::filesystem::path(FP16LAB_SOURCE_DIR) / words[i + 1]).string();
    if (name == "train")
      for (const std::string& setting :
           {std::string("train.steps=2"), "data.path=" + path("data"), std::string("data.test_subset=0")})
        words.insert(words.end(), {"--set", setting});
    const auto result = run_inside("fp16lab", words);
    EXPECT_EQ(result.exit_code, 0) << command << "\n" << result.err;
    ++ran;
  }
  EXPECT_GE(ran, 9);
}

}  // namespace
}  // namespace fp16lab::experiments
