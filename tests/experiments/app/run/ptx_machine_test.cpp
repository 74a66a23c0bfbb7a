// The libfp16lab_cuda.so that we ship trains on the PTX machine (tests/machines/ptx), through a CUDA
// runtime whose work is done at the last moment, with the bits of the emulated back end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/experiments/app/small_runs.hpp"

namespace fp16lab::experiments {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

class PtxMachine : public SmallRuns {
 protected:
  testing_support::Finished on_ptx(const std::vector<std::string>& arguments,
                                   const std::map<std::string, std::string>& more = {}) const {
    std::map<std::string, std::string> environment{{"LD_PRELOAD", FP16LAB_PTX_CUDART},
                                                   {"FP16LAB_CUDA_PLUGIN", FP16LAB_PLUGIN},
                                                   {"FP16LAB_PTX", FP16LAB_PTX_FOLDER},
                                                   {"FP16LAB_PTX_ARCH", "90"}};
    for (const auto& [name, value] : more) environment[name] = value;
    return testing_support::run_program(fp16lab_binary, arguments, folder_, environment);
  }
  std::vector<std::string> on(const std::string& device, const std::string& out,
                              const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"train",   "-c",    write_config("6").string(), "-o",
                                       path(out), "--set", "backend.device=" + device};
    arguments.insert(arguments.end(),
                     {"--set", "observe.histograms_every=3", "--set", "data.test_subset=20"});
    for (const std::string& setting : more) arguments.insert(arguments.end(), {"--set", setting});
    return arguments;
  }
  /// Trains emulated, on the PTX machine step by step, and there as a replayed graph.
  void expect_three_alike(const std::vector<std::string>& more) {
    const auto emulated = fp16lab(on("emulated", "emulated", more));
    ASSERT_EQ(emulated.exit_code, 0) << emulated.err;
    const auto device = on_ptx(on("cuda", "device", more));
    ASSERT_EQ(device.exit_code, 0) << device.err;
    auto replayed = on("cuda", "replayed", more);
    replayed.emplace_back("--graph");
    const auto graph = on_ptx(replayed);
    ASSERT_EQ(graph.exit_code, 0) << graph.err;
    EXPECT_EQ(column("emulated/steps.csv", "state_hash").size(), 6u);
    for (const std::string run : {"device", "replayed"}) {
      EXPECT_EQ(steps(run), steps("emulated")) << run;
      EXPECT_EQ(read(run + "/histograms.jsonl"), read("emulated/histograms.jsonl")) << run;
    }
  }
};

TEST_F(PtxMachine, TrainsInMixedPrecisionWithOverflowsAndHistograms) {
  expect_three_alike(
      {"amp.level=O1", "scaler.policy=torch", "scaler.initial_scale=4194304", "scaler.growth_interval=2"});
  const std::vector<std::string> skipped = column("device/steps.csv", "skipped");
  EXPECT_THAT(skipped, ::testing::Contains("1"));
  EXPECT_THAT(skipped, ::testing::Contains("0"));
}

TEST_F(PtxMachine, TrainsInFullPrecision) { expect_three_alike({"amp.level=O0"}); }

TEST_F(PtxMachine, SaysThatItIsNoGpu) {
  const auto listed = on_ptx({"devices", "--json"});
  ASSERT_EQ(listed.exit_code, 0) << listed.err;
  EXPECT_THAT(nlohmann::json::parse(listed.out).at("gpus").at(0).at("name").get<std::string>(),
              HasSubstr("no GPU"));
}

/// The machine's cuBLAS (tests/machines/ptx/cudart/api_cublas.cpp) adds in another order than our kernels.
TEST_F(PtxMachine, ARunWhoseProductsAreCublasSaysSo) {
  for (const std::string gemm : {"mma", "cublas", "cublas-any-order"}) {
    const auto run = on_ptx(on("cuda", gemm, {"amp.level=O1", "backend.gemm=" + gemm}));
    ASSERT_EQ(run.exit_code, 0) << run.err;
    const auto summary = nlohmann::json::parse(run.out),
               manifest = nlohmann::json::parse(read(gemm + "/manifest.json"));
    EXPECT_EQ(manifest.at("backend").at("gemm"), gemm);
    if (gemm == "mma") {
      EXPECT_TRUE(manifest.at("backend").at("library_products").is_null());
      EXPECT_THAT(run.err, Not(HasSubstr("cuBLAS")));
      continue;
    }
    // Two layers: two products forward and three backward a step, and two for each batch that is evaluated.
    const auto products = manifest.at("backend").at("library_products").get<std::uint64_t>();
    EXPECT_EQ(products, 6 * 5 + 2);
    EXPECT_EQ(summary.at("library_products"), products);
    EXPECT_THAT(run.err,
                HasSubstr("cuBLAS computed 32 products, in an order of its own: the promise of equal bits "
                          "does not hold for this run\n"));
  }
  EXPECT_NE(steps("cublas"), steps("mma"));
  EXPECT_EQ(steps("cublas"), steps("cublas-any-order")) << "two names of one thing";
  const auto compared = fp16lab({"compare", path("mma"), path("cublas")});
  EXPECT_THAT(compared.out, HasSubstr("Note: B: cuBLAS computed 32 products"));
  const auto more = on_ptx({"train", "--resume", "-o", path("cublas"), "--set", "backend.gemm=mma"});
  EXPECT_EQ(more.exit_code, 2);
  EXPECT_THAT(more.err, HasSubstr("--resume: backend.gemm = \"mma\""));
}

TEST_F(PtxMachine, RevealsTheOrderOfAProductOnTheDevice) {
  const auto order = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"reveal", "-k", "33", "--json"});
    const auto result = on_ptx(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return nlohmann::json::parse(result.out);
  };
  const auto of = [&](const std::string& gemm, const std::string& transposed) {
    return order({"--gemm", gemm, "--in", "bf16", "--m", "3", "--n", "5", "--transposed", transposed});
  };
  const auto row = order({"--model", "hopper", "--in", "bf16"});
  for (const std::string transposed : {"a", "b", "a,b"}) {
    const auto own = of("mma", transposed), library = of("cublas", transposed);
    EXPECT_EQ(own.at("model"), "mma on hopper");
    EXPECT_EQ(own.at("joins"), row.at("joins"));
    EXPECT_EQ(library.at("in_words"), "descending chain of 33") << library;
  }
  const auto refused = on_ptx({"reveal", "--gemm", "cublas", "--parts", "2"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("expected with --gemm no more than"));
}

/// What the machine's cuBLAS stands for.
TEST_F(PtxMachine, TheLibraryIsLinkedWithCublas) {
  std::ostringstream bytes;
  bytes << std::ifstream(FP16LAB_PLUGIN, std::ios::binary).rdbuf();
  const std::string library = bytes.str();
  for (const char* const symbol : {"libcublas.so", "cublasGemmStridedBatchedEx"})
    EXPECT_NE(library.find(symbol), std::string::npos);
}

/// As a driver without code for a device does.
TEST_F(PtxMachine, DevicesThatTheKernelsDoNotFitAreRefused) {
  for (const auto& [architecture, capability] : {std::pair{"75", "7.5"}, {"80", "8.0"}}) {
    const auto without = on_ptx(on("cuda", "out", {}), {{"FP16LAB_PTX_ARCH", architecture}});
    EXPECT_EQ(without.exit_code, 3);
    EXPECT_THAT(without.err, HasSubstr(std::string("has compute capability ") + capability +
                                       ", but this program was built for"));
  }
  const auto none = on_ptx(on("cuda", "out", {}), {{"FP16LAB_PTX_DEVICES", "0"}});
  EXPECT_EQ(none.exit_code, 3);
  EXPECT_THAT(none.err, HasSubstr("no CUDA-capable device is detected"));
}

}  // namespace
}  // namespace fp16lab::experiments
