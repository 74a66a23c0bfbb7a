// exp_device_acceptance without a GPU: the PTX machine replaces it, with kernels as they are and with planted
// faults (FP16LAB_PTX_PLANT), which it must find.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <thread>

#include "engine/backend/cuda/runtime/devices.hpp"
#include "engine/backend/emulated/emulated_backend.hpp"
#include "numerics/files/arrays/safetensors.hpp"
#include "numerics/files/disk/read_file.hpp"
#include "numerics/tensor_core/tensor_core_model.hpp"
#include "tests/engine/backend/cases/verb_cases.hpp"
#include "tests/support/on_ptx.hpp"
#include "tests/support/temporary_folder.hpp"

namespace fp16lab::device {
namespace {

namespace fs = std::filesystem;
using engine::cases::CaseSize;
using engine::cases::VerbCase;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing_support::Finished;

/// Hopper's row, and the same with one fraction bit less: products differ, nothing else.
std::unique_ptr<engine::Backend> emulated(bool changed) {
  TensorCoreModel row = tensor_core_model("hopper");
  if (changed) row.set(&Stage::fraction_bits, row.block().fraction_bits - 1);
  return engine::make_emulated_backend(row, 1);
}

TEST(VerbCases, AnotherTensorCoreShowsInProductsAndNowhereElse) {
  const std::set<std::string> products{"gemm", "conv2d", "conv2d_input_gradient", "conv2d_weight_gradient",
                                       "record"};
  const auto one = emulated(false), same = emulated(false), other = emulated(true);
  std::set<std::string> names, differing;
  for (const VerbCase& verb : engine::cases::all_verb_cases()) {
    EXPECT_TRUE(names.insert(key_of(verb)).second) << key_of(verb) << " is there twice";
    const auto expected = run_case(verb, *one, CaseSize::small, 1);
    EXPECT_TRUE(compare(expected, run_case(verb, *same, CaseSize::small, 1)).same()) << key_of(verb);
    if (!compare(expected, run_case(verb, *other, CaseSize::small, 1)).same()) differing.insert(verb.verb);
  }
  EXPECT_EQ(differing, products);
}

TEST(DifferingWords, CountsWordsAndBitsAndNamesTheFirst) {
  const std::array<std::uint16_t, 4> expected{1, 0x3c00, 7, 0xffff}, actual{1, 0x3c03, 7, 0x7fff};
  const engine::cases::DifferingWords words =
      engine::cases::differing_words(std::as_bytes(std::span(expected)), std::as_bytes(std::span(actual)), 2);
  EXPECT_EQ(words.words, 2U);
  EXPECT_EQ(words.bits, 3U);
  EXPECT_EQ(words.first, 1U);
  EXPECT_EQ(words.expected, 0x3c00U);
  EXPECT_EQ(words.actual, 0x3c03U);
}

class Acceptance : public testing_support::OnPtx {
 protected:
  static std::string program() { return std::string(FP16LAB_BIN_DIR) + "/exp_device_acceptance"; }
  fs::path out() const { return folder_.path() / "out"; }
  Finished run(std::vector<std::string> arguments,
               const std::map<std::string, std::string>& environment = {}) {
    arguments.insert(arguments.begin(), {program(), "--rehearse", "--quiet", "-o", out().string()});
    return run_on_ptx(arguments, folder_.path(), environment);
  }
  Finished planted(const std::string& fault, const std::vector<std::string>& arguments) {
    return run(arguments, {{"FP16LAB_PTX_PLANT", fault}});
  }
  /// PATH with a script of this name before all others.
  std::map<std::string, std::string> with_program(const std::string& name, const std::string& script) {
    const fs::path bin = folder_.path() / "bin";
    fs::create_directories(bin);
    std::ofstream(bin / name) << "#!/bin/sh\n" << script;
    fs::permissions(bin / name, fs::perms::owner_all);
    return {{"PATH", bin.string() + ":" + std::getenv("PATH")}};
  }
  std::vector<fs::path> bundles() const {
    std::vector<fs::path> all;
    if (fs::exists(out() / "bundles"))
      for (const auto& entry : fs::directory_iterator(out() / "bundles")) all.push_back(entry.path());
    return all;
  }
  testing_support::TemporaryFolder folder_;
};

TEST_F(Acceptance, RunsTheChosenSectionsInTheOrderOfAFirstContact) {
  const Finished result = run({"--section", "counts", "--section", "device"});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_THAT(result.out,
              testing::ContainsRegex("section device(.|\n)*multiprocessors +4(.|\n)*section counts"));
  EXPECT_THAT(result.out, HasSubstr("[rehearsal, no GPU] REHEARSED    counts: "));
  EXPECT_THAT(result.out, Not(HasSubstr("section verbs")));
  EXPECT_THAT(read_file(out() / "claims.json"), HasSubstr("\"verdict\": \"REHEARSED\""));
  EXPECT_THAT(bundles(), IsEmpty());
}

TEST_F(Acceptance, OtherBitsLeaveABundleThatRunsAgain) {
  const Finished result = planted("bits", {"--section", "large"});
  EXPECT_EQ(result.exit_code, 5) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("FAILS        large: "));
  ASSERT_THAT(bundles(), Not(IsEmpty()));
  const fs::path bundle = bundles().front();
  const std::string text = read_file(bundle / "bundle.json");
  EXPECT_THAT(text, HasSubstr("elements differ, the first at"));
  EXPECT_THAT(text, HasSubstr("\"processor\""));
  const SafetensorsReader arrays(bundle / "arrays.safetensors");
  EXPECT_NE(arrays.find("operand 0"), nullptr);
  bool differ = false;
  for (const SafetensorsEntry& entry : arrays.entries())
    if (entry.name.starts_with("expected"))
      differ = differ || arrays.read(entry) != arrays.read(*arrays.find("got" + entry.name.substr(8)));
  EXPECT_TRUE(differ);
  // Its test again, alone: with the fault it fails, without it passes.
  const std::string key = "\"again_on_a_gpu\": \"", start = text.substr(text.find(key) + key.size());
  const std::string filter =
      start.substr(start.find('\'') + 1, start.rfind('\'', start.find("--seed")) - start.find('\'') - 1);
  EXPECT_EQ(planted("bits", {"--gtest_filter=" + filter}).exit_code, 5) << filter;
  const Finished again = run({"--gtest_filter=" + filter});
  EXPECT_EQ(again.exit_code, 0) << again.out << again.err;
  EXPECT_THAT(again.out, HasSubstr("1 test from 1 test suite ran"));
  EXPECT_THAT(bundles().size(), testing::Ge(1U));
}

TEST_F(Acceptance, ACrashNamesItsTestAndTheNextSectionRuns) {
  const Finished result = planted("crash", {"--section", "capture", "--section", "counts"});
  EXPECT_EQ(result.exit_code, 1) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("FAILS        capture: ended with signal 11"));
  EXPECT_THAT(result.out, HasSubstr("REHEARSED    counts: "));
  ASSERT_THAT(bundles(), testing::SizeIs(1));
  EXPECT_THAT(bundles().front().filename().string(), testing::StartsWith("capture-record"));
  EXPECT_THAT(read_file(bundles().front() / "bundle.json"), HasSubstr("the process ended within this test"));
}

TEST_F(Acceptance, AHangIsKilledAndTheNextSectionRuns) {
  const Finished result = planted("hang", {"--section", "large", "--section", "counts", "--timeout", "8"});
  EXPECT_EQ(result.exit_code, 1) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("FAILS        large: was killed after 8 s"));
  EXPECT_THAT(result.out, HasSubstr("REHEARSED    counts: "));
}

TEST_F(Acceptance, ALostDeviceEndsItsSuiteAndTheNextOneRuns) {
  const Finished result = planted("poison", {"--section", "large", "--section", "counts"});
  EXPECT_EQ(result.exit_code, 5) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("it gives nothing but errors from now on"));
  EXPECT_THAT(result.out, HasSubstr("REHEARSED    counts: "));
  EXPECT_THAT(bundles(), testing::SizeIs(1)) << "the other tests skip";
}

TEST_F(Acceptance, WhatASanitizerFindsFails) {
  const Finished result = run({"--section", "sanitizer"},
                              with_program("compute-sanitizer",
                                           "case $2 in memcheck) echo 'Invalid __global__ write'; exit 99;; "
                                           "racecheck) kill -9 $$;; *) exit 0;; esac\n"));
  EXPECT_EQ(result.exit_code, 5) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("log: " + (out() / "logs" / "memcheck.log").string()));
  EXPECT_THAT(read_file(out() / "logs" / "memcheck.log"), HasSubstr("Invalid __global__ write"));
  EXPECT_THAT(result.out, HasSubstr("memcheck: fails; synccheck: passes; racecheck: ended with signal 9"));
}

TEST_F(Acceptance, ASanitizerWatchesTheProcessOfTheVerbs) {
  const auto script = with_program("compute-sanitizer", "shift 4\necho \"$@\"\n");
  const Finished result = run({"--section", "sanitizer"}, script);
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  const std::string log = read_file(out() / "logs" / "racecheck.log");
  EXPECT_THAT(log, HasSubstr("/exp_device_acceptance --seed 1"));
  EXPECT_THAT(log, HasSubstr("--gtest_filter=verbs.*"));
}

TEST_F(Acceptance, AnInterruptStopsTheSuiteAndKeepsWhatWasMeasured) {
  testing_support::Spawned running(
      testing_support::on_ptx(),
      {program(), "--rehearse", "--section", "device", "--section", "large", "-o", out().string()},
      folder_.path(), {{"FP16LAB_PTX_PLANT", "hang"}});
  const auto claims = [&] { return testing_support::slurp(out() / "claims.json"); };
  for (int i = 0; i < 3000 && claims().find("REHEARSED") == std::string::npos; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  ASSERT_THAT(claims(), HasSubstr("REHEARSED"));
  running.signal(SIGINT);
  const Finished result = running.wait();
  EXPECT_EQ(result.exit_code, 130) << result.out << result.err;
  EXPECT_THAT(claims(), HasSubstr("NOT RUN")) << "large was not judged";
}

TEST_F(Acceptance, WithoutADeviceItIsOneSentenceAndExitCode3) {
  const Finished none = run({}, {{"FP16LAB_PTX_DEVICES", "0"}});
  EXPECT_EQ(none.exit_code, 3);
  EXPECT_EQ(none.out, "");
  EXPECT_THAT(none.err, HasSubstr("no GPU to accept: no CUDA-capable device is detected"));
  EXPECT_FALSE(fs::exists(out()));
}

TEST(AcceptanceProgram, HelpIsItsOwn) {
  const testing_support::TemporaryFolder folder;
  const Finished help = testing_support::run_program(std::string(FP16LAB_BIN_DIR) + "/exp_device_acceptance",
                                                     {"--help"}, folder.path());
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_THAT(help.out, HasSubstr("--first"));
}

TEST(AcceptanceProgram, BadOptionsAreUsageErrors) {
  const testing_support::TemporaryFolder folder;
  const auto exit_code = [&](const std::string& name, const std::vector<std::string>& arguments) {
    return testing_support::run_program(std::string(FP16LAB_BIN_DIR) + "/" + name, arguments, folder.path())
        .exit_code;
  };
  EXPECT_EQ(exit_code("exp_device_acceptance", {"--section", "everything"}), 2);
  EXPECT_EQ(exit_code("exp_device_acceptance", {"--set", "train.steps=1"}), 2);
  EXPECT_EQ(exit_code("exp_device_acceptance", {"--timeout", "0"}), 2);
  if (!engine::cuda_status().devices.empty()) return;
  for (const char* name : {"exp_device_acceptance", "exp_shapes"}) EXPECT_EQ(exit_code(name, {}), 3) << name;
}

}  // namespace
}  // namespace fp16lab::device
