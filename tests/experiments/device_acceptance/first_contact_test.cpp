// What exp_device_acceptance does when a device misbehaves: planted failures in rehearsals, a
// compute-sanitizer that is a script, and the parts that carry them: bundles, the journal, watched programs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "engine/backend/emulated/emulated_backend.hpp"
#include "experiments/device_acceptance/bundle.hpp"
#include "experiments/device_acceptance/case_section.hpp"
#include "experiments/device_acceptance/journal.hpp"
#include "experiments/device_acceptance/npy_file.hpp"
#include "experiments/device_acceptance/sanitizer_output.hpp"
#include "experiments/device_acceptance/watched.hpp"
#include "numerics/files/disk/atomic_file.hpp"
#include "numerics/files/disk/read_file.hpp"
#include "numerics/tensor_core/tensor_core_model.hpp"
#include "tests/support/message_of.hpp"
#include "tests/support/on_ptx.hpp"
#include "tests/support/spawn.hpp"
#include "tests/support/temporary_folder.hpp"

namespace fp16lab::experiments::acceptance {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing_support::Finished;
using testing_support::message_of;

class FirstContact : public testing_support::OnPtx {
 protected:
  /// exp_device_acceptance --rehearse with these arguments, on the PTX machine.
  Finished run(std::vector<std::string> arguments,
               const std::map<std::string, std::string>& environment = {}) {
    arguments.insert(arguments.begin(),
                     {std::string(FP16LAB_BIN_DIR) + "/exp_device_acceptance", "--rehearse"});
    arguments.insert(arguments.end(), {"--quiet", "-o", out().string()});
    return run_on_ptx(arguments, folder_.path(), environment);
  }
  /// The same where every matrix product fails: the machine's FP16LAB_PTX_PLANT.
  Finished planted(const std::string& kind, const std::vector<std::string>& arguments) {
    return run(arguments, {{"FP16LAB_PTX_PLANT", kind}});
  }
  Finished reproduce(const fs::path& bundle, const std::string& kind = {}) {
    return planted(kind, {"--reproduce", bundle.string()});
  }
  fs::path out() const { return folder_.path() / "out"; }
  /// Those whose name begins so.
  std::vector<fs::path> bundles(const std::string& prefix) const {
    std::vector<fs::path> found;
    for (const auto& entry : fs::directory_iterator(out() / "bundles"))
      if (entry.path().filename().string().starts_with(prefix)) found.push_back(entry.path());
    return found;
  }
  /// An executable of PATH's first folder.
  std::map<std::string, std::string> with_program(const std::string& name, const std::string& script) {
    const fs::path bin = folder_.path() / "bin";
    fs::create_directories(bin);
    std::ofstream(bin / name) << "#!/bin/sh\n" << script;
    fs::permissions(bin / name, fs::perms::owner_all);
    return {{"PATH", bin.string() + ":" + std::getenv("PATH")}};
  }
  testing_support::TemporaryFolder folder_;
};

TEST_F(FirstContact, SaysWhatItHasBeforeAnySection) {
  const Finished result = run({"--section", "device"}, with_program("ncu", "exit 1\n"));
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  const std::size_t section = result.out.find("device (");
  ASSERT_NE(section, std::string::npos);
  for (const char* const fact :
       {"device ", "multiprocessors ", "tensor cores ", "routes ", "compute-sanitizer ", "ncu "})
    EXPECT_LT(result.out.find(std::string("[rehearsal, no GPU] ") + fact), section) << fact;
  EXPECT_THAT(result.out, HasSubstr((folder_.path() / "bin" / "ncu").string()));
}

TEST_F(FirstContact, TheTenChecksComeFirstInTheirOrder) {
  std::vector<std::string> first, all;
  for (const Section& section : all_sections()) {
    all.emplace_back(section.name);
    if (section.first) first.emplace_back(section.name);
  }
  EXPECT_THAT(first, ElementsAre("device", "tests", "probes", "large", "sanitizer", "capture", "counts",
                                 "products", "profile"));
  ASSERT_GT(all.size(), first.size());
  EXPECT_TRUE(std::equal(first.begin(), first.end(), all.begin()));
}

TEST_F(FirstContact, WrongBitsLeaveABundleThatReproducesThem) {
  const Finished result = planted("bits", {"--section", "large"});
  EXPECT_EQ(result.exit_code, 5) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("FAILS        own products of 1024x2048"));
  EXPECT_THAT(result.out, HasSubstr("REHEARSED    FP16 NHWC convolution")) << "the others go on";
  const std::vector<fs::path> products = bundles("large-gemm-f16");
  ASSERT_FALSE(products.empty());
  EXPECT_TRUE(bundles("large-conv2d").empty());
  const fs::path bundle = products.front();
  EXPECT_THAT(result.out, HasSubstr("bundle: "));
  const std::string json = read_file(bundle / "bundle.json"), text = read_file(bundle / "reproduce.txt");
  for (const char* const word : {"\"route\": \"mma\"", "\"tensor_core\": \"hopper\"", "\"multiprocessors\"",
                                 "\"environment\"", "\"seed\"", "\"command\"", "\"operand-0.npy\""})
    EXPECT_THAT(json, HasSubstr(word));
  EXPECT_THAT(text, HasSubstr("build/bin/exp_device_acceptance --reproduce " + bundle.string()));
  EXPECT_THAT(text, HasSubstr("FP16LAB_PTX_ARCH=90 FP16LAB_PTX_MULTIPROCESSORS=4 build/tests/on_ptx"));
  for (const char* const file : {"operand-0.npy", "operand-1.npy", "expected-0.npy", "got-0.npy"})
    EXPECT_TRUE(fs::exists(bundle / file)) << file;

  const Finished again = reproduce(bundle, "bits");
  EXPECT_EQ(again.exit_code, 5) << again.out << again.err;
  EXPECT_THAT(again.out, HasSubstr("the emulator gives what the bundle expects"));
  EXPECT_THAT(again.out, HasSubstr("the device's bits are those in the bundle"));
  EXPECT_THAT(again.out, HasSubstr("the failure is reproduced"));
  const Finished mended = reproduce(bundle);
  EXPECT_EQ(mended.exit_code, 0) << mended.out << mended.err;
  EXPECT_THAT(mended.out, HasSubstr("device against emulator: 0 of "));
  EXPECT_THAT(mended.out, HasSubstr("the device's bits are not those in the bundle"));
  EXPECT_THAT(mended.out, HasSubstr("is not reproduced, got and expected agree"));

  // The operands are the bundle's own, not drawn again.
  std::string operand = read_file(bundle / "operand-0.npy");
  operand.back() = static_cast<char>(operand.back() ^ 1);
  write_file_atomically(bundle / "operand-0.npy", operand);
  const Finished refused = reproduce(bundle);
  EXPECT_EQ(refused.exit_code, 1) << refused.out;
  EXPECT_THAT(refused.err, HasSubstr("operand-0.npy is not the array that was written"));
}

TEST_F(FirstContact, ACrashEndsItsCaseAndNotTheSection) {
  const Finished result = planted("crash", {"--section", "capture"});
  EXPECT_EQ(result.exit_code, 1) << result.out << result.err << "the training crashes behind the cases";
  EXPECT_THAT(result.out, HasSubstr("FAILED to run: the process ended with signal 11"));
  const std::string markdown = read_file(out() / "acceptance.md");
  EXPECT_THAT(markdown, HasSubstr("record: three replays: the process ended with signal 11"));
  EXPECT_THAT(markdown, Not(HasSubstr("scatter_rows and a probed histogram:"))) << "it ran and is right";
  ASSERT_EQ(bundles("capture-record").size(), 1u);
  const fs::path bundle = bundles("capture-record").front();
  EXPECT_TRUE(fs::exists(bundle / "expected-0.npy"));
  EXPECT_FALSE(fs::exists(bundle / "got-0.npy")) << "it gave nothing";
  const Finished again = reproduce(bundle, "crash");
  EXPECT_EQ(again.exit_code, 1) << again.out << again.err;
  EXPECT_THAT(again.out, HasSubstr("the process ended with signal 11"));
  EXPECT_EQ(reproduce(bundle).exit_code, 0);
}

TEST_F(FirstContact, ALostDeviceIsOpenedAgainForTheNextCase) {
  const Finished result = planted("poison", {"--section", "verbs", "--section", "counts"});
  EXPECT_EQ(result.exit_code, 5) << result.out << result.err;
  const std::string markdown = read_file(out() / "acceptance.md");
  EXPECT_THAT(markdown, HasSubstr("an illegal memory access was encountered"));
  EXPECT_THAT(markdown, HasSubstr("not run, 3 cases of this verb cost their process"));
  EXPECT_THAT(markdown, testing::ContainsRegex(R"(\| conv2d \| 8 \| [0-9]+ \| 0 \| 0 \| yes \|)"))
      << "what comes behind the products runs, and so does the last verb";
  EXPECT_THAT(markdown, testing::ContainsRegex(R"(\| digest \| 1 \| [0-9]+ \| 0 \| 0 \| yes \|)"));
  EXPECT_THAT(result.out, HasSubstr("REHEARSED    all counts and scattered rows"));
}

// Networks whose making fails, and steps that do, are failed runs: the process lives on.
TEST_F(FirstContact, ADeviceLostWithinATrainingFailsItsRuns) {
  const Finished result = planted("poison", {"--section", "capture"});
  EXPECT_EQ(result.exit_code, 5) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("FAILS        training steps by a graph, products by mma: 2 of 2 steps"));
  EXPECT_THAT(read_file(out() / "acceptance.md"), HasSubstr("classifier, O2, graph, mma failed to run: "));
}

TEST_F(FirstContact, ASilentProcessIsKilledAndTheNextSectionRuns) {
  const Finished result = planted("hang", {"--section", "capture", "--section", "counts", "--silence", "3"});
  EXPECT_EQ(result.exit_code, 1) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("no word for 3 s, killed"));
  EXPECT_THAT(result.out, HasSubstr("counts ("));
  EXPECT_THAT(result.out, HasSubstr("REHEARSED    all counts and scattered rows"));
}

TEST_F(FirstContact, AnInterruptStopsTheChildAndKeepsWhatWasMeasured) {
  testing_support::Spawned running(testing_support::on_ptx(),
                                   {std::string(FP16LAB_BIN_DIR) + "/exp_device_acceptance", "--rehearse",
                                    "--section", "device", "--section", "capture", "-o", out().string()},
                                   folder_.path(), {{"FP16LAB_PTX_PLANT", "hang"}});
  const auto report = [&] { return testing_support::slurp(out() / "acceptance.md"); };
  for (int i = 0; i < 3000 && report().empty(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  ASSERT_THAT(report(), HasSubstr("## device"));
  running.signal(SIGINT);
  const Finished result = running.wait();
  EXPECT_EQ(result.exit_code, 130) << result.out << result.err;
  EXPECT_THAT(report(), Not(HasSubstr("## capture")));
  EXPECT_THAT(read_file(out() / "claims.json"), HasSubstr("training steps by a graph"))
      << "not run, but there";
}

constexpr const char* memcheck_finds = R"(========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at void fp16lab::engine::gpu::(anonymous namespace)::scatter<float>(float *)+0x160 in a.cu:32
=========     by thread (0,0,0) in block (0,0,0)
=========     Access at 0x7f6a1ec00001 is misaligned
=========         Host Frame: [0x2774ec]
[words of the program]
========= Invalid __global__ read of size 2 bytes
=========     at void other(int *)+0x10 in other.cu:1
========= ERROR SUMMARY: 2 errors
)";

TEST_F(FirstContact, WhatASanitizerFindsIsNamedByToolCountAndKernel) {
  const std::string script = std::string("case \"$*\" in *memcheck*) cat <<'END'\n") + memcheck_finds +
                             "END\nexit 99;; *racecheck*) echo '========= RACECHECK SUMMARY: 0 hazards "
                             "displayed (0 errors, 0 warnings)';; *) kill -9 $$;; esac\n";
  const Finished result = run({"--section", "sanitizer"}, with_program("compute-sanitizer", script));
  EXPECT_EQ(result.exit_code, 5) << result.out << result.err;
  EXPECT_THAT(result.out,
              HasSubstr("FAILS        errors that memcheck finds in the verbs: 2 errors, the first in "
                        "fp16lab::engine::gpu::(anonymous namespace)::scatter<float>"));
  EXPECT_THAT(result.out, HasSubstr("FAILS        errors that synccheck finds in the verbs: no summary; it "
                                    "ended with signal 9"));
  EXPECT_THAT(result.out, HasSubstr("REHEARSED    errors that racecheck finds in the verbs"));
  EXPECT_THAT(read_file(out() / "sanitizer-memcheck.log"), HasSubstr("[words of the program]"));
  ASSERT_EQ(bundles("sanitizer").size(), 1u);
  // A section's bundle runs the section again.
  const std::string clean = "echo '========= ERROR SUMMARY: 0 errors'\n";
  const Finished mended =
      run({"--reproduce", bundles("sanitizer").front().string()}, with_program("compute-sanitizer", clean));
  EXPECT_EQ(mended.exit_code, 0) << mended.out << mended.err;
  EXPECT_THAT(mended.out, HasSubstr("the section does not fail here"));
}

TEST_F(FirstContact, ASanitizerRunsTheVerbsInTheProcessThatItWatches) {
  const Finished result =
      run({"--section", "sanitizer"},
          with_program("compute-sanitizer",
                       "case $2 in memcheck) ;; *) exit 1;; esac\nshift 4\n\"$@\"\necho \"========= ERROR "
                       "SUMMARY: $? errors\"\n"));
  EXPECT_EQ(result.exit_code, 5) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("REHEARSED    errors that memcheck finds in the verbs: 0 errors"));
}

TEST_F(FirstContact, BadOptionsAreUsageErrors) {
  const auto exit_code = [&](const std::vector<std::string>& arguments) {
    return testing_support::run_program(std::string(FP16LAB_BIN_DIR) + "/exp_device_acceptance", arguments,
                                        folder_.path())
        .exit_code;
  };
  EXPECT_EQ(exit_code({"--rehearse"}), 3) << "without the PTX machine";
  EXPECT_EQ(exit_code({"--rehearse", "--silence", "0"}), 2);
  const Finished result = run({"--reproduce", (folder_.path() / "none").string()});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("bundle.json"));
  write_file_atomically(folder_.path() / "bundle.json", "{}");
  EXPECT_THAT(run({"--reproduce", folder_.path().string()}).err, HasSubstr("expected a bundle of"));
}

TEST(SanitizerOutput, HasErrorsFirstFindingAndKernel) {
  const SanitizerFindings found = read_sanitizer_output(memcheck_finds);
  EXPECT_EQ(found.errors, 2u);
  EXPECT_EQ(found.first, "Invalid __global__ write of size 4 bytes");
  EXPECT_EQ(found.kernel, "fp16lab::engine::gpu::(anonymous namespace)::scatter<float>(float *)");
  const SanitizerFindings race = read_sanitizer_output(
      "========= COMPUTE-SANITIZER\n"
      "========= Error: Race reported between Write access at sumKernel(int *, int *)+0xc0 in sum.cu:48\n"
      "=========     and Read access at sumKernel(int *, int *)+0x130 in sum.cu:51 [124 hazards]\n"
      "=========\n========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)\n");
  EXPECT_EQ(race.errors, 1u);
  EXPECT_EQ(race.kernel, "sumKernel(int *, int *)");
  const SanitizerFindings older =
      read_sanitizer_output("========= Race reported between Write access at 0x70 in sum.cu:40:sumKernel\n");
  EXPECT_EQ(older.kernel, "sum.cu:40:sumKernel");
  EXPECT_EQ(older.errors, std::nullopt) << "it did not come to its end";
  EXPECT_EQ(read_sanitizer_output("").errors, std::nullopt);
  EXPECT_EQ(read_sanitizer_output("========= ERROR SUMMARY: 0 errors\n").first, "");
}

TEST(JournalOfCases, RemembersWhatEndedAndWhatDidNot) {
  const testing_support::TemporaryFolder folder;
  const fs::path file = folder.path() / "journal.jsonl";
  VerbRow row{.verb = "gemm",
              .cases = 1,
              .elements = 7,
              .differing_elements = 2,
              .differing_bits = 3,
              .notes = {"a\nnote"},
              .failed = true,
              .refusals = {"k"}};
  {
    Journal journal(file);
    EXPECT_EQ(journal.unfinished(), std::nullopt);
    journal.begin("gemm/one");
    journal.end("gemm/one", row);
    journal.begin("gemm/two");
  }
  const Journal later(file);
  EXPECT_EQ(later.unfinished(), "gemm/two");
  ASSERT_NE(later.ended("gemm/one"), nullptr);
  EXPECT_EQ(later.ended("gemm/two"), nullptr);
  const VerbRow& read = *later.ended("gemm/one");
  EXPECT_EQ(read.differing_elements, 2u);
  EXPECT_EQ(read.notes, row.notes);
  EXPECT_EQ(read.refusals, row.refusals);
  EXPECT_TRUE(read.failed);
}

TEST(NpyFiles, HoldWhatWasWritten) {
  const testing_support::TemporaryFolder folder;
  const fs::path file = folder.path() / "x.npy";
  const std::vector<std::byte> bytes(12, std::byte{0x3c});
  write_npy(file, DType::f16, {2, 3}, 2, bytes);
  EXPECT_THAT(read_file(file), HasSubstr("{'descr': '<f2', 'fortran_order': False, 'shape': (2, 3, ), }"));
  EXPECT_EQ(read_file(file).size() % 64, 12u);
  EXPECT_EQ(read_npy(file, DType::f16, {2, 3}).bytes, bytes);
  EXPECT_THAT(message_of([&] { read_npy(file, DType::bf16, {2, 3}); }), HasSubstr("no bf16 (2, 3)"));
  EXPECT_THAT(message_of([&] { read_npy(file, DType::f16, {3, 2}); }), HasSubstr("x.npy"));
  write_file_atomically(file, read_file(file).substr(0, 128 + 11));
  EXPECT_THAT(message_of([&] { read_npy(file, DType::f16, {2, 3}); }), HasSubstr("11 bytes of elements"));
  write_npy(file, std::nullopt, {}, 4, bytes);
  EXPECT_THAT(read_file(file), HasSubstr("'<u4'"));
}

/// A case whose operands are many bytes.
VerbCase large_case() {
  return {"copy", "large", [](CaseContext& c) {
            const engine::Tensor x = c.random({20, 1024, 1024}, DType::f32, Data::ordinary);
            engine::Tensor out = c.output({1}, DType::f32);
            c.backend().fill(out, 1);
            c.keep("out", out);
          }};
}

TEST(Bundles, SayWhichArraysAreMissing) {
  const testing_support::TemporaryFolder folder;
  Settings settings;
  settings.side.tensor_core = "hopper";
  settings.out = folder.path();
  settings.section = "verbs";
  const fs::path bundle = write_case_bundle(settings, large_case(), CaseSize::full, {}, "broke");
  EXPECT_EQ(bundle.filename(), "verbs-copy-large");
  EXPECT_FALSE(fs::exists(bundle / "operand-0.npy")) << "80 MiB";
  EXPECT_TRUE(fs::exists(bundle / "expected-0.npy"));
  EXPECT_THAT(read_file(bundle / "bundle.json"), HasSubstr("\"file\": null"));
  const Bundle read = read_bundle(bundle);
  EXPECT_FALSE(read.operands.given) << "they are drawn again";
  EXPECT_EQ(read.key, "copy/large");
  EXPECT_EQ(read.failure, "broke");
  ASSERT_EQ(read.outputs.size(), 1u);
  EXPECT_EQ(read.outputs[0].got, std::nullopt);
}

TEST(Operands, ThatAreGivenMustBeThoseOfTheCase) {
  const auto backend = engine::make_emulated_backend(tensor_core_model("hopper"), 1);
  const auto use = [&](Operands& operands, const engine::Shape& shape) {
    CaseContext context(*backend, CaseSize::small, "a case", 1, {}, &operands);
    const engine::Tensor x = context.random(shape, DType::f16, Data::ordinary);
    context.keep("x", x);
    return context.take()[0].bytes;
  };
  Operands operands;
  const std::vector<std::byte> drawn = use(operands, {3});
  ASSERT_EQ(operands.all.size(), 1u);
  EXPECT_EQ(operands.all[0].bytes, drawn);
  operands.given = true;
  operands.all[0].bytes[0] ^= std::byte{1};
  EXPECT_EQ(use(operands, {3}), operands.all[0].bytes);
  EXPECT_THAT(message_of([&] { use(operands, {4}); }), HasSubstr("takes f16 (4), and f16 (3) is given"));
  operands.all.clear();
  EXPECT_THAT(message_of([&] { use(operands, {3}); }), HasSubstr("0 operands are given"));
}

TEST(WatchedPrograms, AreReadLineByLineAndKilledWhenSilent) {
  std::vector<std::string> lines;
  const auto run = [&](const std::string& script, double silence) {
    lines.clear();
    return run_watched("/bin/sh", {"-c", script}, silence,
                       [&](const std::string& line) { lines.push_back(line); });
  };
  const Ended fine = run("echo one; echo two >&2; printf three; exit 7", 60);
  EXPECT_EQ(fine.status, 7);
  EXPECT_THAT(lines, ElementsAre("one", "two", "three"));
  EXPECT_EQ(fine.last_words, "one\ntwo\nthree");
  EXPECT_EQ(fine.how(60), "exit code 7");
  EXPECT_THAT(run("kill -SEGV $$", 60).how(60), HasSubstr("signal 11 ("));
  const auto start = std::chrono::steady_clock::now();
  const Ended silent = run("echo begun; sleep 100 & wait", 0.3);
  EXPECT_TRUE(silent.silent);
  EXPECT_EQ(silent.how(0.3), "no word for 0.3 s, killed");
  EXPECT_THAT(lines, ElementsAre("begun"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

}  // namespace
}  // namespace fp16lab::experiments::acceptance
