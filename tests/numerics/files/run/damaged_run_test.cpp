// Run folders that fuzzing (tests/fuzz) damaged so that a reader answered badly: each is one printable line
// with its file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "numerics/files/run/replay_file.hpp"
#include "numerics/files/run/run_folder.hpp"
#include "tests/fuzz/small_run.hpp"
#include "tests/numerics/files/files_fixture.hpp"
#include "tests/support/message_of.hpp"

namespace fp16lab {
namespace {

using testing_support::message_of;

class DamagedRun : public Files {
 protected:
  void SetUp() override {
    for (const auto& [name, content] : fuzz::small_run) write_raw(name, content);
  }
  std::string path(const std::string& name) const { return (folder / name).string(); }
};

TEST_F(DamagedRun, TheUndamagedOneIsRead) {
  const RunFolder run = read_run_folder(folder);
  EXPECT_EQ(run.steps.size(), 3u);
  EXPECT_EQ(run.evaluations.size(), 2u);
  EXPECT_EQ(read_histograms(folder).at(0).before.at(-28), 18446744073709551615u);
  EXPECT_EQ(read_overflows(folder).size(), 1u);
  EXPECT_EQ(read_culprits(folder).size(), 1u);
  EXPECT_GT(find_cut(folder, 2, 0x0123456789abcdef).steps.bytes, 0u);
}

TEST_F(DamagedRun, NumbersBeyondFp64) {
  write_raw("manifest.json", R"({"threads":1e400})");
  EXPECT_EQ(message_of([&] { read_run_folder(folder); }),
            path("manifest.json") + ": a number beyond the range of FP64");
  write_raw("histograms.jsonl", "{\"step\":1,\"loss_scale\":-1e999}\n");
  EXPECT_EQ(message_of([&] { read_histograms(folder); }),
            path("histograms.jsonl") + ":1: a number beyond the range of FP64");
  write_raw("replay.json", "[1e999]");
  EXPECT_EQ(message_of([&] { read_replay(folder); }),
            path("replay.json") + ": a number beyond the range of FP64");
}

TEST_F(DamagedRun, ControlCharactersAreShownNotWritten) {
  write_raw("evaluations.csv", "step,split,loss,accuracy,bits_per_character\n2,test,2.5,0.\x1b[31m,\n");
  const std::string message = message_of([&] { read_run_folder(folder); });
  EXPECT_THAT(message, ::testing::HasSubstr("0.\\x1b[31m"));
  EXPECT_EQ(message.find('\x1b'), std::string::npos);
}

TEST_F(DamagedRun, TheStepToCutAtNamesItsFile) {
  write_raw("steps.csv",
            "step,loss,loss_scale,found_inf,skipped,grad_norm,lr,underflow_rate,state_hash,seconds,epoch\n"
            "1,2.5,65536,1,1,inf,0.1,,0123456789abcde0,0.25,0.5\n"
            "2,x,32768,0,0,1.5,0.1,0.125,0123456789abcdef,0.5,1\n");
  EXPECT_THAT(message_of([&] { find_cut(folder, 2, 0x0123456789abcdef); }),
              ::testing::StartsWith(path("steps.csv") + ":3: column loss: "));
}

}  // namespace
}  // namespace fp16lab
