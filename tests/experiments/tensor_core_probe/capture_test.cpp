// A capture of every architecture, written as capture.cu writes it, with the emulator in the GPU's place, and
// judged: as the table says, with one wrong bit, and damaged on its way.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>

#include "experiments/tensor_core_probe/emulated_device.hpp"
#include "tests/support/spawn.hpp"
#include "tests/support/temporary_folder.hpp"

namespace fp16lab::probe::capture_test {
namespace {

using testing::HasSubstr;

constexpr Capability volta{7, 0}, turing{7, 5};

std::string rehearsed_capture(Device& device) { return capture_text(device, 1, 100'000); }

std::string text_of(const Finding& finding) { return analysis::claims_text({&finding.claim, 1}); }

Settings settings_of(const Capture& capture) {
  Settings settings;
  settings.seed = capture.seed;
  settings.random_outputs = capture.outputs;
  return settings;
}

TEST(Capture, AnswersEveryQuestionOfEveryArchitecture) {
  const std::map<int, std::size_t> instructions_of{{70, 3},  {75, 3},   {80, 11}, {89, 15},
                                                   {90, 15}, {100, 15}, {120, 15}};
  std::string operands;  // digests of those of 7.0 and 9.0, which have every instruction
  for (const auto& [architecture, count] : instructions_of) {
    EmulatedDevice device(Capability{architecture / 10, architecture % 10});
    const std::string text = rehearsed_capture(device);
    EXPECT_LT(text.size(), 12U << 20);
    const Capture capture = parse_capture(text);
    EXPECT_EQ(capture.device.capability.major, architecture / 10);
    EXPECT_EQ(capture.device.driver, "1.2.3");
    EXPECT_EQ(capture.device.driver_version, 13000);
    EXPECT_EQ(capture.device.runtime_version, 13000);
    EXPECT_EQ(capture.device.kernels, "sm_" + std::to_string(architecture));

    for (const CapturedTiles& tiles : capture.tiles)
      if (architecture == 70 || architecture == 90) operands += fmt::format("{:016x}", tiles.operands);
    const std::vector<CaptureVerdict> verdicts = judge(capture, "", 2);
    EXPECT_EQ(verdicts.size(), count) << architecture;
    for (const CaptureVerdict& verdict : verdicts) {
      EXPECT_FALSE(verdict.model.empty()) << verdict.instruction->name;
      EXPECT_EQ(verdict.differences.size(), 0U) << verdict.instruction->name << " of " << architecture;
      EXPECT_GE(verdict.random_outputs, 100'000U);
    }

    const std::unique_ptr<Device> recorded = open_recorded_device(capture, 2);
    std::size_t asked = 0;
    for (const Finding& finding : ask_everything(*recorded, settings_of(capture))) {
      const std::string& measured = finding.claim.measured;
      const bool elsewhere = measured.find("not on this device") != std::string::npos ||
                             measured.find("captures have no sweep") != std::string::npos;
      EXPECT_EQ(finding.claim.verdict, elsewhere ? Verdict::not_run : Verdict::holds) << text_of(finding);
      if (measured.find("not on this device") != std::string::npos) {
        EXPECT_THAT(finding.claim.claim, HasSubstr("wgmma")) << text_of(finding);
      }
      asked += elsewhere ? 0 : 1;
    }
    EXPECT_GT(asked, 15U) << architecture;
  }
  // Operands are not in captures: the version that made one and every later one must make the same.
  EXPECT_EQ(digest_of(operands), 0xea47709b30c54f6eu);
}

class CaptureFile : public testing::Test {
 protected:
  std::string write(const std::string& text) const {
    const std::string path = (folder_.path() / "capture.txt").string();
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }
  testing_support::Finished run(const std::string& program, const std::vector<std::string>& arguments) const {
    return testing_support::Spawned(std::string(FP16LAB_BIN_DIR) + '/' + program, arguments, folder_.path(),
                                    {{"CUDA_VISIBLE_DEVICES", ""}})
        .wait();
  }
  std::string refusal(const std::string& text) const {
    try {
      read_capture(write(text));
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return "accepted";
  }
  testing_support::TemporaryFolder folder_;
};

TEST_F(CaptureFile, NamesTheOneOutputThatIsWrong) {
  // One output of the first instruction, once: word number 70,000 of all.
  EmulatedDevice device(turing);
  device.change_word = [number = 0](std::uint32_t word) mutable {
    return number++ == 70'000 ? word ^ 1U << 3 : word;
  };
  const std::string text = rehearsed_capture(device);
  const Capture capture = parse_capture(text);
  const std::vector<CaptureVerdict> verdicts = judge(capture, "", 1);
  ASSERT_EQ(verdicts.at(0).differences.size(), 1U);
  EXPECT_EQ(verdicts.at(1).differences.size() + verdicts.at(2).differences.size(), 0U);
  const Difference& found = verdicts.at(0).differences.at(0);
  EXPECT_STREQ(verdicts.at(0).instruction->name, "mma.m16n8k8.f32.f16");
  EXPECT_EQ(found.device ^ found.expected, 1U << 3);
  const std::unique_ptr<Device> recorded = open_recorded_device(capture, 1);
  int failed = 0;
  for (const Finding& finding : ask_everything(*recorded, settings_of(capture)))
    if (finding.claim.verdict == Verdict::fails) {
      ++failed;
      EXPECT_THAT(finding.claim.measured, HasSubstr("1 of ")) << text_of(finding);
    }
  EXPECT_EQ(failed, 1);

  const testing_support::Finished verified = run("fp16lab", {"mma", "--verify", write(text)});
  EXPECT_EQ(verified.exit_code, 5) << verified.err;
  EXPECT_EQ(std::count(verified.out.begin(), verified.out.end(), '\n'), 1) << verified.out;
  EXPECT_THAT(verified.out, HasSubstr("\tmma.m16n8k8.f32.f16\t" + found.place + '\n'));
  EXPECT_THAT(verified.err, HasSubstr("mma.m16n8k8.f32.f16: 1 of "));
  EXPECT_THAT(verified.err, HasSubstr("mma.m16n8k8.f16.f16: 0 of "));
  const testing_support::Finished asked = run(
      "exp_tensor_core_probe", {"--from", write(text), "-o", (folder_.path() / "asked").string(), "--quiet"});
  EXPECT_EQ(asked.exit_code, 5) << asked.err;
  EXPECT_THAT(asked.out, HasSubstr("emulated GPU, compute capability 7.5"));
}

TEST_F(CaptureFile, IsJudgedByBothPrograms) {
  EmulatedDevice device(turing);
  const std::string path = write(rehearsed_capture(device));
  const testing_support::Finished verified = run("fp16lab", {"mma", "--verify", path});
  EXPECT_EQ(verified.exit_code, 0) << verified.err;
  EXPECT_EQ(verified.out, "");
  EXPECT_EQ(run("fp16lab", {"mma", "--verify", path, "--model", "volta"}).exit_code, 5);
  const testing_support::Finished asked =
      run("exp_tensor_core_probe", {"--from", path, "-o", (folder_.path() / "asked").string(), "--quiet"});
  EXPECT_EQ(asked.exit_code, 0) << asked.out << asked.err;

  for (const std::vector<std::string>& wrong : std::vector<std::vector<std::string>>{
           {path}, {"--verify", path, "--in", "bf16"}, {"--verify", path, "--model", "tring"}}) {
    std::vector<std::string> arguments{"mma"};
    arguments.insert(arguments.end(), wrong.begin(), wrong.end());
    EXPECT_EQ(run("fp16lab", arguments).exit_code, 2);
  }
  EXPECT_EQ(run("exp_tensor_core_probe", {"--from", path, "--outputs", "5"}).exit_code, 2);
  EXPECT_EQ(run("exp_tensor_core_probe", {"--from", (folder_.path() / "none").string()}).exit_code, 2);
}

TEST_F(CaptureFile, DamageIsNamedApartFromDifferences) {
  EmulatedDevice device(volta);
  const std::string whole = rehearsed_capture(device);
  EXPECT_EQ(refusal(whole), "accepted");
  std::string windows;
  for (const char c : whole) windows += c == '\n' ? std::string("\r\n") : std::string(1, c);
  EXPECT_EQ(refusal(windows), "accepted");

  std::string changed = whole;
  const std::size_t place = changed.find('\n', changed.find("\nrandom ") + 1) + 5;
  changed[place] = changed[place] == '0' ? '1' : '0';
  EXPECT_THAT(refusal(changed), HasSubstr("was changed since the device wrote it"));

  std::string other_operands = whole;
  const std::size_t digest = other_operands.find(" operands ", other_operands.find("\nrandom ")) + 10;
  other_operands[digest] = other_operands[digest] == '0' ? '1' : '0';
  const Capture unlike = parse_capture(other_operands);
  EXPECT_THROW(judge(unlike, "", 1), std::runtime_error);
  EXPECT_THROW(open_recorded_device(unlike, 1), std::runtime_error);

  EXPECT_THAT(refusal(whole.substr(0, whole.size() / 2)), HasSubstr("line "));
  std::string without_a_line = whole;
  const std::size_t question = without_a_line.find("\nquestion ");
  without_a_line.erase(question, without_a_line.find('\n', question + 1) - question);
  EXPECT_THAT(refusal(without_a_line), HasSubstr("lines are missing or added"));
  EXPECT_THAT(refusal("a\tb\n"), HasSubstr("line 1: expected 'fp16lab capture 1'"));
  EXPECT_THAT(refusal(""), HasSubstr("line 1"));
  for (const auto& [from, to] : {std::pair{"capability: 7.0", "capability: seven"},
                                 {"philox4x32-10", "mersenne"},
                                 {"mma.m8n8k4.f32.f16\t", "mma.m9n9k9.f32.f16\t"},
                                 {"half add", "half sub"},
                                 {" ordinary ", " odd "}}) {
    std::string wrong = whole;
    wrong.replace(wrong.find(from), std::string(from).size(), to);
    EXPECT_THAT(refusal(wrong), HasSubstr("line ")) << from;
  }
}

}  // namespace
}  // namespace fp16lab::probe::capture_test
