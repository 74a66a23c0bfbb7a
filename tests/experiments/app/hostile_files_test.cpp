// Files that are no files, folders of results that lead elsewhere, and outputs that are no files: one line
// and an exit code, at once, and nothing is replaced that is no regular file.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <fstream>
#include <map>
#include <thread>

#include "tests/experiments/app/small_runs.hpp"

namespace fp16lab::experiments::hostile_files_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using testing_support::Finished;
namespace fs = std::filesystem;

constexpr int hung = 124;  ///< of timeout(1)

class HostileFiles : public SmallRuns {
 protected:
  Finished within_seconds(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {"-k", "1", "20", fp16lab_binary});
    return testing_support::run_program("/usr/bin/timeout", arguments, folder_);
  }
  /// Ended in time, with 0 or with one line on stderr that has no words of the library in it.
  static void expect_an_answer(const Finished& result, const std::string& what) {
    EXPECT_NE(result.exit_code, hung) << what;
    EXPECT_LT(result.exit_code, 128) << what << result.err;
    EXPECT_THAT(result.err, Not(HasSubstr("filesystem error"))) << what;
    if (result.exit_code == 0) return;
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << what << result.err;
    EXPECT_THAT(result.err, HasSubstr("error: ")) << what;
  }
  void expect_not_a_file(const Finished& result, const std::string& name) {
    expect_an_answer(result, name);
    EXPECT_NE(result.exit_code, 0) << name;
    EXPECT_THAT(result.err, AllOf(HasSubstr(name),
                                  ::testing::AnyOf(HasSubstr("not a regular file"), HasSubstr("a FIFO"))));
  }
  mode_t kind(const std::string& name) const {
    struct stat status {};
    return ::lstat(path(name).c_str(), &status) == 0 ? status.st_mode & S_IFMT : 0;
  }
  void make_fifo(const std::string& name) const { ASSERT_EQ(::mkfifo(path(name).c_str(), 0600), 0) << name; }
};

TEST_F(HostileFiles, AFifoInARunFolderHangsNoCommand) {
  ASSERT_EQ(train("run", {"--set", "train.steps=4", "--set", "checkpoint.every=2"}).exit_code, 0);
  ASSERT_EQ(fp16lab({"replay", path("run"), "-o", path("run")}).exit_code, 0);
  const std::vector<std::vector<std::string>> commands{
      {"report", path("run"), "-o", path("page")},
      {"hist", path("run")},
      {"replay", path("run")},
      {"compare", path("run"), path("run")},
      {"train", "--resume", "-o", path("run"), "--set", "train.steps=6"}};
  for (const char* const name :
       {"manifest.json", "config.toml", "steps.csv", "evaluations.csv", "histograms.jsonl", "overflows.jsonl",
        "checkpoints/step-000004.safetensors", "replay.json", "claim.json"}) {
    const std::string file = path("run/" + std::string(name));
    const bool there = fs::exists(file);
    if (there) fs::rename(file, path("away"));
    make_fifo("run/" + std::string(name));
    for (const std::vector<std::string>& command : commands) {
      const Finished result = within_seconds(command);
      expect_an_answer(result, command.front() + " with " + name + ": ");
      if (command.front() == "train") expect_not_a_file(result, fs::path(name).filename().string());
      EXPECT_EQ(kind("run/" + std::string(name)), mode_t{S_IFIFO});
    }
    fs::remove(file);
    if (there) fs::rename(path("away"), file);
  }
  expect_not_a_file(
      [&] {
        fs::remove(path("run/manifest.json"));
        make_fifo("run/manifest.json");
        return within_seconds(commands.front());
      }(),
      "manifest.json");
}

TEST_F(HostileFiles, AFifoThatAConfigurationNamesHangsNothing) {
  write_config("2");
  make_fifo("fifo");
  const std::string fifo = path("fifo");
  expect_not_a_file(
      within_seconds({"train", "-c", path("small.toml"), "-o", path("a"), "--load-initial", fifo}), "fifo");
  expect_not_a_file(within_seconds({"train", "-c", "charlm_lstm", "-o", path("a"), "--set", "data.name=text",
                                    "--set", "data.path=" + fifo}),
                    "fifo");
  expect_not_a_file(within_seconds({"hist", fifo}), "fifo");
  testing_support::write_bytes(
      path("sweep.toml"),
      "[[workload]]\nname = \"w\"\nconfig = \"fifo\"\nseeds = [1]\nvariants = [\"v\"]\n"
      "[[variant]]\nname = \"v\"\n");
  expect_not_a_file(within_seconds({"sweep", "-c", path("sweep.toml"), "-o", path("s")}), "fifo");
  EXPECT_FALSE(fs::exists(path("a")));
}

/// What a user names may be a pipe; its length is bounded.
TEST_F(HostileFiles, AConfigurationMayBeAPipe) {
  const fs::path config = write_config("1");
  make_fifo("fifo");
  std::thread writer([&] { std::ofstream(path("fifo")) << testing_support::slurp(config); });
  const Finished result = within_seconds({"train", "-c", path("fifo"), "-o", path("run")});
  writer.join();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const Finished endless = within_seconds({"train", "-c", "/dev/zero", "-o", path("b")});
  expect_one_line_error(endless, 2, "/dev/zero: it is longer than 67108864 bytes");
  EXPECT_LT(endless.peak_kb, 1'000'000);
}

TEST_F(HostileFiles, DeepJsonAndTomlAreOneLine) {
  ASSERT_EQ(train("run", {"--set", "train.steps=2"}).exit_code, 0);
  const std::string deep(100'000, '[');
  const auto ended = [&](const std::string& name, const std::vector<std::string>& command) {
    const std::string before = read(name);
    testing_support::write_bytes(path(name), deep + "\n");
    const Finished result = within_seconds(command);
    expect_an_answer(result, name);
    EXPECT_NE(result.exit_code, 0) << name;
    EXPECT_THAT(result.err, HasSubstr("nested deeper than 64")) << name;
    testing_support::write_bytes(path(name), before);
  };
  ended("run/manifest.json", {"report", path("run"), "-o", path("page")});
  ended("run/histograms.jsonl", {"hist", path("run")});
  ended("run/replay.json", {"report", path("run"), "-o", path("page")});
  std::string key = "a";
  for (int i = 0; i < 100'000; ++i) key += ".a";
  testing_support::write_bytes(path("deep.toml"), "[train]\n" + key + " = 1\n");
  expect_one_line_error(within_seconds({"train", "-c", path("deep.toml")}), 2,
                        "deep.toml:2: nested deeper than 64");
  expect_one_line_error(within_seconds({"sweep", "-c", path("deep.toml")}), 2, "nested deeper than 64");
  expect_one_line_error(within_seconds({"train", "-c", path("small.toml"), "--set", "train.seed=" + deep}), 2,
                        "train.seed");
}

TEST_F(HostileFiles, NothingIsWrittenThroughLinksInAReceivedFolder) {
  ASSERT_EQ(train("run", {"--set", "train.steps=4", "--set", "checkpoint.every=2"}).exit_code, 0);
  fs::create_directory(path("elsewhere"));
  testing_support::write_bytes(path("treasure"), "mine");
  const auto untouched = [&] {
    EXPECT_EQ(read("treasure"), "mine");
    EXPECT_TRUE(fs::is_empty(path("elsewhere")));
  };
  const auto refused = [&](const std::string& link, const std::string& target,
                           const std::vector<std::string>& command) {
    fs::remove_all(path(link));
    fs::create_symlink(path(target), path(link));
    const Finished result = within_seconds(command);
    expect_an_answer(result, link);
    EXPECT_NE(result.exit_code, 0) << link;
    EXPECT_THAT(result.err,
                AllOf(HasSubstr(fs::path(link).filename().string()), HasSubstr("a symbolic link")))
        << link;
    EXPECT_EQ(kind(link), mode_t{S_IFLNK}) << link;
    untouched();
    fs::remove(path(link));
  };
  const std::vector<std::string> report{"report", path("run")};
  refused("run/figures", "elsewhere", report);
  refused("run/report.html", "treasure", report);
  ASSERT_EQ(fp16lab(report).exit_code, 0);
  std::map<std::string, std::string> figures;  // one of each ending
  for (const auto& entry : fs::directory_iterator(path("run/figures")))
    figures[entry.path().extension().string()] = "run/figures/" + entry.path().filename().string();
  EXPECT_GE(figures.size(), 3u);
  for (const auto& [ending, figure] : figures) refused(figure, "treasure", report);
  const std::vector<std::string> resume{"train", "--resume", "-o", path("run"), "--set", "train.steps=6"};
  for (const char* const name : {"weights.safetensors", "op_stats.csv", "steps.csv", "checkpoints"}) {
    fs::copy(path("run"), path("kept"), fs::copy_options::recursive);
    refused("run/" + std::string(name), std::string(name) == "checkpoints" ? "elsewhere" : "treasure",
            resume);
    fs::remove_all(path("run"));
    fs::rename(path("kept"), path("run"));
  }
  fs::create_directory(path("out"));
  for (const char* const name : {"replay.json", "replay.csv", "claims.json", "replay.figure.json"})
    refused("out/" + std::string(name), "treasure", {"replay", path("run"), "-o", path("out"), "--quiet"});
  // The folder that the user named may be a link.
  fs::create_directory(path("real"));
  fs::create_directory_symlink(path("real"), path("named"));
  EXPECT_EQ(fp16lab({"report", path("run"), "-o", path("named")}).exit_code, 0);
  EXPECT_TRUE(fs::exists(path("real/report.html")));
}

TEST_F(HostileFiles, ASweepStaysInItsFolder) {
  write_config("1");
  testing_support::write_bytes(
      path("sweep.toml"),
      "[[workload]]\nname = \"w\"\nconfig = \"small.toml\"\nseeds = [1]\nvariants = [\"v\"]\n"
      "[[variant]]\nname = \"v\"\n");
  const std::vector<std::string> sweep{"sweep", "-c", path("sweep.toml"), "-o", path("s"), "--quiet"};
  fs::create_directory(path("elsewhere"));
  for (const char* const name : {"plan", "w-v-seed1"}) {
    fs::remove_all(path("s"));
    fs::create_directory(path("s"));
    fs::create_directory_symlink(path("elsewhere"), path("s/" + std::string(name)));
    const Finished result = within_seconds(sweep);
    EXPECT_NE(result.exit_code, 0) << name;
    EXPECT_THAT(result.err, HasSubstr("a symbolic link")) << name;
    EXPECT_TRUE(fs::is_empty(path("elsewhere"))) << name;
  }
}

TEST_F(HostileFiles, DumpsGoIntoWhatIsNoFileAndReplaceIt) {
  const auto dumps_to = [&](const std::string& file, const std::string& out) {
    return train(out, {"--set", "train.steps=2", "--dump-initial", file});
  };
  ASSERT_EQ(dumps_to(path("plain"), "a").exit_code, 0);
  const std::string expected = read("plain");
  ASSERT_GT(expected.size(), 1000u);

  make_fifo("fifo");
  std::string got;
  std::thread reader([&] { got = testing_support::slurp(path("fifo")); });
  EXPECT_EQ(dumps_to(path("fifo"), "b").exit_code, 0);
  reader.join();
  EXPECT_EQ(got, expected);
  EXPECT_EQ(kind("fifo"), mode_t{S_IFIFO});

  testing_support::write_bytes(path("old"), "old");
  fs::create_symlink("old", path("link"));
  EXPECT_EQ(dumps_to(path("link"), "c").exit_code, 0);
  EXPECT_EQ(read("old"), expected);
  EXPECT_EQ(kind("link"), mode_t{S_IFLNK});

  // Data alone on the standard output; the summary is on stderr.
  const Finished piped = dumps_to("/dev/stdout", "d");
  EXPECT_EQ(piped.exit_code, 0) << piped.err;
  EXPECT_EQ(piped.out, expected);
  EXPECT_THAT(piped.err, HasSubstr("\"state\":\"finished\""));

  if (::mknod(path("null").c_str(), S_IFCHR | 0600, makedev(1, 3)) == 0) {
    EXPECT_EQ(dumps_to(path("null"), "e").exit_code, 0);
    EXPECT_EQ(kind("null"), mode_t{S_IFCHR});
  }
  for (const char* const name : {"fifo", "link"}) {
    std::thread again([&] { (void)testing_support::slurp(path("fifo")); });
    const auto drawn =
        fp16lab({"model", "lenet5", "--draw", path(name), "--set", "data.path=" + path("data")});
    EXPECT_NE(drawn.exit_code, 0) << "no ending says how";
    std::ofstream(path("fifo")) << "";  // ends the reader
    again.join();
  }
  fs::create_symlink("drawn", path("link.dot"));
  EXPECT_EQ(fp16lab({"model", "lenet5", "--draw", path("link.dot"), "--set", "data.path=" + path("data")})
                .exit_code,
            0);
  EXPECT_EQ(kind("link.dot"), mode_t{S_IFLNK});
  EXPECT_THAT(read("drawn"), HasSubstr("digraph"));
}

/// Refused before the first step, and before there is a run folder.
TEST_F(HostileFiles, DumpsThatCannotBeWrittenAreRefusedBeforeTheRun) {
  fs::create_directory(path("folder"));
  fs::create_symlink("no/where", path("nowhere"));
  for (const auto& [file, what] : {std::pair{path("folder"), "a folder"},
                                   {path("nowhere"), "No such file or directory"},
                                   {path("no/such"), "is not a folder"},
                                   {std::string("/dev/fd/77"), "is not open"}})
    for (const bool gradients : {false, true}) {
      std::vector<std::string> more{gradients ? "--dump-gradients" : "--dump-initial"};
      if (gradients) more.emplace_back("40");
      more.push_back(file);
      expect_one_line_error(train("run", more), 2, what);
      EXPECT_FALSE(fs::exists(path("run"))) << file;
    }
  // The words of this program would be lost in the file that is replaced.
  const Finished lost = testing_support::run_program(
      "/bin/sh",
      {"-c", "exec \"$0\" train -c \"$1\" -o \"$2\" --dump-initial \"$3\" > \"$3\"", fp16lab_binary,
       write_config("1").string(), path("run"), path("file")},
      folder_);
  EXPECT_EQ(lost.exit_code, 2);
  EXPECT_THAT(lost.err, HasSubstr("the standard output of this program goes there"));
  EXPECT_FALSE(fs::exists(path("run")));
}

TEST_F(HostileFiles, AnEmptyFolderThatWasThereStays) {
  fs::create_directory(path("mine"));
  expect_one_line_error(train("mine", {"--set", "amp.excluded=nosuch"}), 2, "nosuch");
  EXPECT_TRUE(fs::is_directory(path("mine")));
  EXPECT_TRUE(fs::is_empty(path("mine")));
  expect_one_line_error(train("new", {"--set", "amp.excluded=nosuch"}), 2, "nosuch");
  EXPECT_FALSE(fs::exists(path("new"))) << "one that was made for nothing goes again";
}

TEST_F(HostileFiles, ErrorsOfTheSystemAreSaidInOurWords) {
  const fs::path config = write_config("1");
  testing_support::write_bytes(path("file"), "");
  for (const std::string& bad :
       {std::string(300, 'x'), std::string(5000, 'x'), path("file") + "/below", std::string("")})
    for (const std::vector<std::string>& command : std::vector<std::vector<std::string>>{
             {"report", bad},
             {"hist", bad},
             {"hist", bad + "*"},
             {"replay", bad},
             {"compare", bad, bad},
             {"model", bad},
             {"train", "-c", bad, "-o", path("a")},
             {"train", "-c", config.string(), "-o", bad.empty() ? path("file") : bad},
             {"train", "-c", config.string(), "-o", path("b"), "--tensorboard", bad},
             {"train", "-c", config.string(), "-o", path("b"), "--load-initial", bad},
             {"sweep", "-c", bad, "-o", path("c")},
             {"mma", "--row", bad}}) {
      std::string shown;
      for (const std::string& word : command) shown += word.substr(0, 40) + " ";
      const Finished result = within_seconds(command);
      EXPECT_THAT(result.err, Not(HasSubstr("filesystem error"))) << shown;
      EXPECT_NE(result.exit_code, hung) << shown;
      EXPECT_NE(result.exit_code, 0) << shown;
      EXPECT_LT(result.exit_code, 128) << shown;
    }
}

}  // namespace
}  // namespace fp16lab::experiments::hostile_files_test
