// libfp16lab_cuda.so from the program's side: it is loaded only when a device is asked for, gives the bits of
// its back end across the border, and what cannot be loaded is one line. The library of these tests is the
// emulated back end (tests/engine/backend/cuda/pretended_plugin.cpp); experiments_ptx_machine has the one
// that we ship.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/experiments/app/small_runs.hpp"

namespace fp16lab::experiments {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

class CudaPlugin : public SmallRuns {
 protected:
  testing_support::Finished with(const std::string& plugin, const std::vector<std::string>& arguments) const {
    return testing_support::run_program(fp16lab_binary, arguments, folder_,
                                        {{"FP16LAB_CUDA_PLUGIN", plugin}, {"CUDA_VISIBLE_DEVICES", ""}});
  }
  std::vector<std::string> on(const std::string& device, const std::string& out) {
    return {"train", "-c", write_config("3").string(), "-o", path(out), "--set", "backend.device=" + device};
  }
};

TEST_F(CudaPlugin, TrainsAcrossTheBorderWithTheBitsOfTheEmulatedRun) {
  const auto device = with(FP16LAB_PRETENDED_PLUGIN, on("cuda", "device"));
  ASSERT_EQ(device.exit_code, 0) << device.err;
  const auto emulated = fp16lab(on("emulated", "emulated"));
  ASSERT_EQ(emulated.exit_code, 0) << emulated.err;
  EXPECT_EQ(column("device/steps.csv", "state_hash"), column("emulated/steps.csv", "state_hash"));
  EXPECT_EQ(read("device/histograms.jsonl"), read("emulated/histograms.jsonl"));
  const auto listed = nlohmann::json::parse(with(FP16LAB_PRETENDED_PLUGIN, {"devices", "--json"}).out);
  EXPECT_EQ(listed.at("gpus").at(0).at("name"), "a pretended GPU");
  const auto automatic = with(FP16LAB_PRETENDED_PLUGIN, on("auto", "auto"));
  EXPECT_THAT(automatic.err, HasSubstr("found a pretended GPU")) << automatic.err;
}

TEST_F(CudaPlugin, ATuringGpuTrainsInFp16AndRefusesTheRestByItsCapability) {
  const auto on_turing = [&](const std::string& dtype, const std::string& device, const std::string& out) {
    std::vector<std::string> arguments = on(device, out);
    arguments.insert(arguments.end(), {"--set", "amp.level=O1", "--set", "amp.dtype=" + dtype});
    if (device == "emulated") arguments.insert(arguments.end(), {"--set", "backend.tensor_core=turing"});
    return testing_support::run_program(fp16lab_binary, arguments, folder_,
                                        {{"FP16LAB_CUDA_PLUGIN", FP16LAB_PRETENDED_PLUGIN},
                                         {"FP16LAB_PRETENDED_TENSOR_CORE", "turing"},
                                         {"CUDA_VISIBLE_DEVICES", ""}});
  };
  ASSERT_EQ(on_turing("f16", "cuda", "device").exit_code, 0);
  ASSERT_EQ(on_turing("f16", "emulated", "emulated").exit_code, 0);
  EXPECT_EQ(column("device/steps.csv", "state_hash"), column("emulated/steps.csv", "state_hash"));
  for (const std::string dtype : {"bf16", "tf32"}) {
    const auto refused = on_turing(dtype, "cuda", dtype);
    EXPECT_EQ(refused.exit_code, 2) << refused.err;
    EXPECT_THAT(refused.err,
                HasSubstr("a pretended GPU, compute capability 7.5: amp.dtype = \"" + dtype +
                          "\" with backend.tensor_core = \"turing\": these tensor cores have no " + dtype +
                          " products"));
    EXPECT_EQ(std::count(refused.err.begin(), refused.err.end(), '\n'), 1) << refused.err;
  }
}

/// Where "auto" finds a GPU that does not do what the run asks for, it says so, and what this program takes.
TEST_F(CudaPlugin, AutoWarnsWhereAGpuIsThereThatCannotDoIt) {
  const auto automatic = [&](const std::string& generation, const std::string& dtype, const std::string& out,
                             const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments = on("auto", out);
    arguments.insert(arguments.end(), {"--set", "amp.level=O1", "--set", "amp.dtype=" + dtype});
    arguments.insert(arguments.end(), more.begin(), more.end());
    const auto result = testing_support::run_program(fp16lab_binary, arguments, folder_,
                                                     {{"FP16LAB_CUDA_PLUGIN", FP16LAB_PRETENDED_PLUGIN},
                                                      {"FP16LAB_PRETENDED_TENSOR_CORE", generation},
                                                      {"CUDA_VISIBLE_DEVICES", ""}});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.err;
  };
  const std::string emulated = "warning: backend.device = \"auto\": emulated (tensor cores: hopper; ";
  const std::string turing =
      "a pretended GPU has compute capability 7.5, whose tensor cores multiply FP16 alone; ";
  EXPECT_THAT(automatic("turing", "bf16", "bf16"),
              HasSubstr(emulated + turing + "BF16 products on a device need 8.0 (sm_80) or newer)"));
  EXPECT_THAT(automatic("turing", "tf32", "tf32"),
              HasSubstr(emulated + turing + "TF32 products on a device need 8.0 (sm_80) or newer)"));
  EXPECT_THAT(automatic("volta", "f16", "volta"),
              HasSubstr(emulated + "a pretended GPU has compute capability 7.0: V100 is emulated; this "
                                   "program runs on 7.5 and newer"));
  // None where the device does it, or where only the emulation can.
  EXPECT_THAT(automatic("turing", "f16", "f16"), ::testing::Not(HasSubstr("warning")));
  EXPECT_THAT(automatic("turing", "f16", "fp8", {"--set", "backend.accumulator=f16"}),
              ::testing::Not(HasSubstr("warning")));
  const auto listed = [&](const std::string& generation) {
    return testing_support::run_program(fp16lab_binary, {"devices"}, folder_,
                                        {{"FP16LAB_CUDA_PLUGIN", FP16LAB_PRETENDED_PLUGIN},
                                         {"FP16LAB_PRETENDED_TENSOR_CORE", generation}})
        .err;
  };
  EXPECT_EQ(listed("hopper"), "");
  EXPECT_EQ(
      listed("volta"),
      "warning: a pretended GPU has compute capability 7.0: V100 is emulated; this program runs on 7.5 and "
      "newer; use backend.device = \"emulated\"\n");
  EXPECT_EQ(listed("turing"), "warning: " + turing +
                                  "BF16 products on a device need 8.0 (sm_80) or newer\nwarning: " + turing +
                                  "TF32 products on a device need 8.0 (sm_80) or newer\n");
}

/// Exceptions of the library are the program's: a wrong row is refused with exit code 3, not an abort.
TEST_F(CudaPlugin, ItsErrorsAreOneLine) {
  auto arguments = on("cuda", "out");
  arguments.insert(arguments.end(), {"--set", "backend.tensor_core=nonesuch"});
  EXPECT_EQ(with(FP16LAB_PRETENDED_PLUGIN, arguments).exit_code, 2);
  const auto refused = [&](const std::string& plugin) {
    const auto result = with(plugin, on("cuda", "out"));
    EXPECT_EQ(result.exit_code, 3) << result.err;
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    return result.err;
  };
  EXPECT_THAT(refused(FP16LAB_OTHER_PLUGIN),
              HasSubstr(FP16LAB_OTHER_PLUGIN " is of another build than this program; build both again"));
  testing_support::write_bytes(path("text.so"), "no library");
  EXPECT_THAT(refused(path("text.so")), HasSubstr("text.so cannot be loaded: "));
  EXPECT_THAT(refused("libz.so.1"), HasSubstr("is no device back end of fp16lab"));
  EXPECT_THAT(refused(path("nowhere.so")), HasSubstr("cannot be loaded: "));
}

/// What needs no device pays for none.
TEST_F(CudaPlugin, IsNotLoadedUnasked) {
  const std::string absent = path("nowhere.so");
  const auto version = with(absent, {"--version"});
  EXPECT_EQ(version.exit_code, 0);
  EXPECT_LT(version.peak_kb, 30'000);
  EXPECT_EQ(with(absent, on("emulated", "out")).exit_code, 0);
}

}  // namespace
}  // namespace fp16lab::experiments
