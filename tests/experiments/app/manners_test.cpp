// What fp16lab says to people and to their shells: help and lists that fit on a screen, scales as powers of
// two, and completion, asked through the shells that are here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/experiments/app/small_runs.hpp"

namespace fp16lab::experiments {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsSupersetOf;
using testing::Not;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream input(text);
  for (std::string line; std::getline(input, line);) lines.push_back(line);
  return lines;
}

class Manners : public SmallRuns {
 protected:
  testing_support::Finished at_width(const std::string& columns,
                                     const std::vector<std::string>& arguments) const {
    return testing_support::run_program(fp16lab_binary, arguments, folder_, {{"COLUMNS", columns}});
  }

  std::vector<std::string> commands() const {
    std::vector<std::string> names;
    for (const std::string& line : lines_of(ask({""}).out)) names.push_back(line.substr(0, line.find('\t')));
    return names;
  }

  testing_support::Finished ask(std::vector<std::string> words) const {
    words.insert(words.begin(), {"completion", "--answer"});
    return fp16lab(words);
  }
};

TEST_F(Manners, HelpOfEveryCommandFitsOnAScreenAndIsWrapped) {
  ASSERT_THAT(commands(), IsSupersetOf({"train", "sweep", "mma", "help", "completion"}));
  for (const std::string& command : commands())
    for (const std::size_t columns : {80u, 100u, 160u}) {
      const auto help = at_width(std::to_string(columns), {"help", command});
      ASSERT_EQ(help.exit_code, 0) << help.err;
      bool examples = false;
      std::size_t rows = 0;
      for (const std::string& line : lines_of(help.out)) {
        examples = (examples || line == "Examples:") && !line.starts_with("Exit codes:");
        EXPECT_LE(examples ? 0 : line.size(), columns) << command << ": " << line;
        rows += std::max<std::size_t>(1, (line.size() + columns - 1) / columns);
      }
      EXPECT_LE(rows, 40u) << command << " at " << columns << "\n" << help.out;
      EXPECT_EQ(help.out, at_width(std::to_string(columns), {command, "--help"}).out);
    }
}

TEST_F(Manners, HelpSaysAllWhenAsked) {
  const std::string all = at_width("400", {"sweep", "--help-all"}).out;
  EXPECT_THAT(all, HasSubstr("two minutes before it, the run saves"));
  EXPECT_THAT(at_width("80", {"sweep", "--help"}).out,
              Not(HasSubstr("two minutes before it, the run saves")));
  EXPECT_THAT(at_width("80", {"mma", "--help-all"}).out, HasSubstr("subnormal_accumulator  as"));
  // A screen also gets what a filter reads, but no words for what is not there.
  const std::string mma = at_width("80", {"help", "mma"}).out;
  EXPECT_THAT(mma, HasSubstr("Input lines:\n  a-words TAB b-words TAB c-word "));
  EXPECT_THAT(mma, HasSubstr("Output: the same line, TAB, d-word.\n"));
  EXPECT_THAT(mma, Not(HasSubstr("keys above")));
  EXPECT_THAT(at_width("80", {"help", "train"}).out, HasSubstr("results/classifier-seed1"));
  EXPECT_EQ(fp16lab({"help"}).out, fp16lab({"--help"}).out);
  expect_one_line_error(fp16lab({"help", "trian"}), 2, "unknown command 'trian'; did you mean 'train'?");
}

TEST_F(Manners, EverySectionOfListFitsOnAScreen) {
  const auto sections = nlohmann::json::parse(fp16lab({"list", "--json"}).out);
  for (const auto& [section, rows] : sections.items()) {
    const auto list = at_width("80", {"list", section});
    ASSERT_EQ(list.exit_code, 0) << list.err;
    EXPECT_LE(lines_of(list.out).size(), 48u) << list.out;  // 38 policies and the headings of their families
    for (const std::string& line : lines_of(list.out))
      EXPECT_LE(line.starts_with("More: ") ? 0 : line.size(), 80u) << line;
    EXPECT_THAT(fp16lab({"list"}).out, HasSubstr(section));
    EXPECT_GE(fp16lab({"list", section, "*"}).out.size(), list.out.size()) << section;
  }
  EXPECT_LE(lines_of(fp16lab({"list"}).out).size(), 15u);
}

TEST_F(Manners, AListHasTheSameLinesHoweverLongTheProgramsPathIs) {
  const std::filesystem::path far = folder_ / std::string(100, 'x') / "fp16lab";
  std::filesystem::create_directory(far.parent_path());
  std::filesystem::create_symlink(fp16lab_binary, far);
  auto near = lines_of(at_width("80", {"list", "policies"}).out);
  near.back() =
      "More: " + far.string() + " list SECTION '*' shows all of each row, or of those like a name; --json.";
  const auto called =
      testing_support::run_program(far.string(), {"list", "policies"}, folder_, {{"COLUMNS", "80"}});
  EXPECT_EQ(lines_of(called.out), near);
}

TEST_F(Manners, TheListOfPoliciesTellsThemApart) {
  const std::string list = at_width("80", {"list", "policies"}).out;
  EXPECT_THAT(list, HasSubstr("\n  torch                 x 0.5 on overflow; x 2 after 2000 good steps\n"));
  EXPECT_THAT(
      list,
      HasSubstr("\n  apex                  x 0.5 on overflow; x 2 after 2000 good steps, up to 2^24\n"));
  EXPECT_THAT(list, HasSubstr("\n  none                  S = 1; "));
  EXPECT_THAT(list, HasSubstr("\n hysteresis:  the first hysteresis - 1 overflows are forgiven"));
}

TEST_F(Manners, APatternOfListShowsAllOfWhatIsLikeIt) {
  const std::string keys = fp16lab({"list", "config_keys", "clip"}).out;
  EXPECT_THAT(keys, HasSubstr("train.clip_norm\n"));
  EXPECT_THAT(keys, Not(HasSubstr("train.seed")));
  const auto json = nlohmann::json::parse(fp16lab({"list", "policies", "paddle*", "--json"}).out);
  EXPECT_GT(json.at("policies").size(), 2u);
  for (const auto& row : json.at("policies")) EXPECT_THAT(row.at("name"), testing::StartsWith("paddle"));
  EXPECT_THAT(fp16lab({"list", "layers", "conv2d"}).out, HasSubstr("kernel_size"));
  const auto column = nlohmann::json::parse(fp16lab({"list", "records", "state_hash_version", "--json"}).out);
  ASSERT_EQ(column.at("records").size(), 1U) << "a column finds its file";
  EXPECT_EQ(column.at("records").front().at("fields").size(), 1U);
  EXPECT_THAT(fp16lab({"list", "config_keys", "rmsprop"}).out, HasSubstr("optimizer.alpha"))
      << "said in its row";
  expect_one_line_error(fp16lab({"list", "policies", "megatrn"}), 2, "did you mean 'megatron'?");
  expect_one_line_error(fp16lab({"list", "layers", "datsets"}), 2, "did you mean 'datasets'?");
}

TEST_F(Manners, ScalesArePowersOfTwoForPeopleAndNumbersForPrograms) {
  const auto run = train("run", {"--set", "scaler.policy=fixed", "--set", "scaler.initial_scale=2^24"});
  ASSERT_EQ(run.exit_code, 4) << run.err;  // no step is taken at that scale
  EXPECT_THAT(run.err, HasSubstr("scale 2^24"));
  const auto hist = fp16lab({"hist", path("run")});
  for (const std::string& text : {run.err, hist.out, hist.err, fp16lab({"list", "policies", "*"}).out}) {
    EXPECT_THAT(text, Not(HasSubstr("16777216")));
    EXPECT_THAT(text, Not(HasSubstr("1.67772e+07")));
  }
  EXPECT_THAT(hist.err, HasSubstr("recorded at loss scale 2^24"));
  EXPECT_THAT(read("run/steps.csv"), HasSubstr(",16777216,"));
}

TEST_F(Manners, HistAnswersOnOneScreen) {
  ASSERT_EQ(train("run").exit_code, 0);
  const auto result = fp16lab({"hist", path("run")});
  const std::vector<std::string> lines = lines_of(result.out);
  EXPECT_LE(lines.size(), 25u);
  EXPECT_THAT(result.out, HasSubstr(" Suggested for step 40 alone: "));
  EXPECT_THAT(lines.back(), testing::StartsWith("Next: " + fp16lab_binary + " "));
}

// ---- completion -------------------------------------------------------------------------------------------

class Completion : public Manners {
 protected:
  void SetUp() override {
    ASSERT_EQ(train("results/one").exit_code, 0);
    std::filesystem::create_directories(folder_ / "results/more");
    testing_support::write_bytes(folder_ / "results/dump.npz", "x");
    testing_support::write_bytes(folder_ / "results/notes.txt", "x");
  }

  /// In this test's folder. `script` finds the program's folder as $0 and `words` as "$@".
  std::vector<std::string> in_shell(const std::string& shell, const std::string& script,
                                    std::vector<std::string> words) const {
    std::vector<std::string> options;
    if (shell == "zsh") options = {"-f"};
    if (shell == "bash") options = {"--norc"};
    if (shell == "fish") options = {"--no-config"};
    options.insert(options.end(), {"-c", script});
    if (shell != "fish") options.emplace_back(FP16LAB_BIN_DIR);
    options.insert(options.end(), words.begin(), words.end());
    options.insert(options.begin(), {"-c", "cd \"$0\" && exec \"$@\"", folder_.string(), shell});
    const auto result =
        testing_support::run_program("/bin/sh", options, folder_, {{"HOME", folder_.string()}});
    EXPECT_EQ(result.err, "");
    return lines_of(result.out);
  }

  static bool is_here(const std::string& shell) {
    return std::system(("command -v " + shell + " >/dev/null").c_str()) == 0;  // NOLINT
  }

  /// Words as bash splits them, at = and :, too.
  std::vector<std::string> bash(std::vector<std::string> words) const {
    words.insert(words.begin(), "fp16lab");
    return in_shell("bash",
                    "PATH=$0:$PATH; source <(fp16lab completion bash); COMP_WORDS=(\"$@\"); "
                    "COMP_CWORD=$(($# - 1)); _fp16lab; ((${#COMPREPLY[@]})) && printf '%s\\n' "
                    "\"${COMPREPLY[@]}\"; complete -p fp16lab >/dev/null",
                    std::move(words));
  }
};

TEST_F(Completion, InBash) {
  EXPECT_THAT(bash({"tr"}), ElementsAre("train"));
  EXPECT_THAT(bash({""}), IsSupersetOf({"train", "hist", "help", "completion"}));
  EXPECT_THAT(bash({"train", "--ex"}), ElementsAre("--explain-overflow"));
  EXPECT_THAT(bash({"train", "-c", "len"}), Contains("lenet5"));
  EXPECT_THAT(bash({"train", "-c", ""}), testing::AllOf(Contains("small.toml"), Not(Contains("demo"))));
  EXPECT_THAT(bash({"sweep", "-c", "de"}), Contains("demo"));
  EXPECT_THAT(bash({"train", "--set", "scaler.pol"}), ElementsAre("scaler.policy="));
  EXPECT_THAT(bash({"train", "--set", "scaler.policy", "="}), IsSupersetOf({"torch", "megatron"}));
  EXPECT_THAT(bash({"train", "--set", "scaler.policy", "=", "mega"}), ElementsAre("megatron"));
  EXPECT_THAT(bash({"train", "--set", "=", "backend.tensor_core", "=", "hop"}),
              IsSupersetOf({"hopper", "hopper-wgmma"}));
  EXPECT_THAT(bash({"hist", "results/"}), ElementsAre("results/dump.npz", "results/more/", "results/one"));
  EXPECT_THAT(bash({"replay", "results/"}), ElementsAre("results/more/", "results/one"));
  EXPECT_THAT(bash({"mma", "--model", "vol"}), ElementsAre("volta"));
  EXPECT_THAT(bash({"policy", "--policy", "lost"}), ElementsAre("lost-mass"));
  EXPECT_THAT(bash({"list", "pol"}), ElementsAre("policies"));
  EXPECT_THAT(bash({"help", "swe"}), ElementsAre("sweep"));
  EXPECT_THAT(bash({"completion", "f"}), ElementsAre("fish"));
  EXPECT_THAT(bash({"train", "--seed", ""}), ElementsAre());
  EXPECT_THAT(bash({"nonsense", ""}), ElementsAre());
  EXPECT_THAT(bash({"--hel"}), ElementsAre("--help"));
}

TEST_F(Completion, InZsh) {
  if (!is_here("zsh")) GTEST_SKIP() << "zsh is not installed (Debian: zsh)";
  const auto zsh = [this](std::vector<std::string> typed) {
    typed.insert(typed.begin(), "fp16lab");
    return in_shell("zsh",
                    "PATH=$0:$PATH; compdef() {}; compadd() { while [[ $1 != -- ]]; do shift; done; shift; "
                    "print -l -- \"$@\" }; source <(fp16lab completion zsh); words=(\"$@\"); "
                    "CURRENT=$#; PREFIX=${words[-1]}; _fp16lab || true",
                    std::move(typed));
  };
  EXPECT_THAT(zsh({"tr"}), ElementsAre("train"));
  EXPECT_THAT(zsh({"train", "--set", "scaler.policy=mega"}), ElementsAre("scaler.policy=megatron"));
  EXPECT_THAT(zsh({"hist", "results/"}), ElementsAre("results/dump.npz", "results/more/", "results/one"));
  EXPECT_THAT(zsh({"mma", "--model", ""}), Contains("volta"));
  EXPECT_THAT(zsh({"train", "--seed", ""}), ElementsAre());
}

TEST_F(Completion, InFish) {
  if (!is_here("fish")) GTEST_SKIP() << "fish is not installed (Debian: fish)";
  const auto fish = [this](const std::string& line) {
    return in_shell("fish",
                    "set PATH " FP16LAB_BIN_DIR " $PATH; fp16lab completion fish | source; complete -C \"" +
                        line + "\" | string replace -r '\\t.*' ''",
                    {});
  };
  EXPECT_THAT(fish("fp16lab tr"), ElementsAre("train"));
  EXPECT_THAT(fish("fp16lab train --set scaler.policy=mega"), ElementsAre("scaler.policy=megatron"));
  EXPECT_THAT(fish("fp16lab hist results/"), ElementsAre("results/dump.npz", "results/more/", "results/one"));
  EXPECT_THAT(fish("fp16lab mma --model "), Contains("volta"));
}

TEST_F(Completion, EveryOptionOfEveryCommandIsOffered) {
  for (const std::string& command : commands()) {
    const std::string help = fp16lab({command, "--help-all"}).out;
    const std::string offered = ask({command, "--"}).out;
    std::size_t options = 0;
    for (const std::string& line : lines_of(help)) {
      const std::size_t begin = line.starts_with("  -") ? line.find("--") : std::string::npos;
      if (begin == std::string::npos) continue;
      ++options;
      EXPECT_THAT("\n" + offered,
                  HasSubstr("\n" + line.substr(begin, line.find_first_of(" ,[", begin) - begin)));
    }
    EXPECT_GE(options, 3u) << command;
  }
}

}  // namespace
}  // namespace fp16lab::experiments
