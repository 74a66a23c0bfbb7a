// backend.* and train.graph: what is asked for, what there is, and how each answer is shown. No test needs a
// GPU: where there is one, it is hidden.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "experiments/app/arguments.hpp"
#include "experiments/app/config/run_plan.hpp"
#include "experiments/app/run/run_backend.hpp"
#include "numerics/files/run/run_folder.hpp"
#include "numerics/tensor_core/tensor_core_model.hpp"
#include "tests/experiments/app/small_runs.hpp"
#include "tests/experiments/app/usage_error.hpp"
#include "tests/support/older_manifest.hpp"

namespace fp16lab::experiments {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class BackendKeys : public SmallRuns {
 protected:
  void SetUp() override { ASSERT_EQ(setenv("CUDA_VISIBLE_DEVICES", "", 1), 0); }
  testing_support::Finished train_on(const std::string& out, const std::vector<std::string>& settings,
                                     std::vector<std::string> more = {}) {
    for (const std::string& setting : settings) {
      more.emplace_back("--set");
      more.push_back(setting);
    }
    return train(out, more);
  }
  std::vector<std::string> hashes(const std::string& run) { return column(run + "/steps.csv", "state_hash"); }
};

std::string check(const std::vector<std::string>& settings) {
  return usage_error_of([&] {
    RunConfig config;
    for (const std::string& setting : settings) apply_setting(config, setting, "--set");
    resolve_run(config, "x.toml");
  });
}

TEST(BackendConfig, NoGpuSaturates) {
  EXPECT_EQ(check({"amp.level=O1", "backend.overflow=saturate", "backend.device=cuda"}),
            "x.toml: backend.overflow = \"saturate\" with backend.device = \"cuda\": no GPU saturates "
            "results; that is emulated only; expected backend.device = \"emulated\"");
  EXPECT_EQ(check({"amp.level=O1", "backend.overflow=saturate"}), "no error");
  EXPECT_EQ(check({"amp.level=O1", "backend.overflow=saturate", "backend.device=auto"}), "no error");
  EXPECT_THAT(check({"backend.overflow=inf"}), HasSubstr("expected one of infinity, saturate"));
}

TEST(RankDevices, RanksOfAHostTakeItsDevicesInTurn) {
  const std::vector<std::string> hosts{"a", "a", "b", "a", "b"};
  const auto all = [&](std::int64_t first, std::size_t devices) {
    std::vector<std::int64_t> found;
    for (int rank = 0; rank < 5; ++rank) found.push_back(device_of_rank(first, hosts, rank, devices));
    return found;
  };
  EXPECT_THAT(all(0, 4), testing::ElementsAre(0, 1, 0, 2, 1));
  EXPECT_THAT(all(1, 2), testing::ElementsAre(1, 0, 1, 1, 0));
  EXPECT_THAT(all(0, 1), testing::Each(0));                     // each rank was given one by its launcher
  EXPECT_THAT(all(7, 0), testing::Each(7));                     // whose absence is an error of its own
  EXPECT_THAT(all(9, 2), testing::ElementsAre(9, 0, 9, 1, 0));  // of which the first ranks tell
}

TEST(BackendConfig, OrdersOfLibrariesAreEmulatedOnlyAndOfTheirRows) {
  const std::vector<std::string> fitting{"amp.level=O1", "amp.dtype=bf16", "backend.tensor_core=zen5",
                                         "backend.library=onednn"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), fitting.begin(), fitting.end());
    return check(more);
  };
  EXPECT_EQ(with({}), "no error");
  EXPECT_EQ(with({"backend.library_threads=2"}), "no error");
  EXPECT_EQ(with({"backend.device=auto"}), "no error");
  EXPECT_THAT(with({"parallel.shards=2"}), HasSubstr("expected parallel.shards = 1 for it"));
  EXPECT_EQ(
      with({"backend.device=cuda"}),
      "x.toml: backend.library = \"onednn\" with backend.device = \"cuda\": orders of libraries are emulated "
      "only; expected backend.device = \"emulated\"");
  EXPECT_THAT(
      with({"backend.tensor_core=hopper"}),
      HasSubstr("backend.library = \"onednn\": plan 'onednn': it takes the row avx512_bf16, not hopper"));
  EXPECT_EQ(with({"amp.dtype=f16"}), "no error") << "by ATen's loops";
  EXPECT_THAT(check({"backend.library=mkl"}),
              HasSubstr("expected one of instruction, onednn, cublaslt-12.8"));
  EXPECT_THAT(
      with({"backend.library=instruction", "backend.library_threads=2"}),
      HasSubstr("backend.library_threads = 2: backend.library = instruction does not read it; onednn does"));
  const std::vector<std::string> fp8{"amp.level=O1", "amp.fp8_operands=e4m3", "amp.fp8_gradients=e4m3",
                                     "backend.library=cublaslt-12.8"};
  for (const auto& [row, fits] : {std::pair{"ada", true}, {"hopper-wgmma", true}, {"hopper", false}}) {
    std::vector<std::string> settings = fp8;
    settings.push_back(std::string("backend.tensor_core=") + row);
    EXPECT_EQ(check(settings) == "no error", fits) << row << check(settings);
  }
  EXPECT_THAT(check({"amp.level=O1", "backend.library=cublaslt-12.8", "backend.tensor_core=ada"}),
              HasSubstr("its products of f16 are not known"));
  EXPECT_THAT(check({"amp.level=O1", "amp.dtype=bf16", "backend.tensor_core=zen5", "backend.device=auto",
                     "backend.library=onednn", "backend.accumulator=f16"}),
              HasSubstr("backend.accumulator"));
  RunConfig config;
  for (const std::string& setting : fitting) apply_setting(config, setting, "--set");
  apply_setting(config, "backend.device=auto", "--set");
  EXPECT_THAT(choose_backend(config, 1).record.note, HasSubstr("orders of libraries"));
}

TEST(BackendConfig, NamesAndNumbersAreChecked) {
  EXPECT_THAT(check({"backend.gemm=cubals"}),
              AllOf(HasSubstr("expected one of auto, mma, cublas, cublas-any-order"),
                    HasSubstr("did you mean 'cublas'?")));
  EXPECT_THAT(check({"backend.pins=pins.json"}), HasSubstr("unknown key"));
  EXPECT_THAT(check({"backend.ordinal=-1"}),
              HasSubstr("backend.ordinal = -1: expected an integer, from 0 to 2147483647"));
  EXPECT_THAT(check({"backend.device=gpu"}), HasSubstr("expected one of emulated, cuda, auto"));
  EXPECT_THAT(check({"backend.tensor_core=autto"}), HasSubstr("did you mean 'auto'?"));
  EXPECT_THAT(check({"train.graph=1"}), HasSubstr("train.graph = 1: expected true or false"));
}

TEST(BackendConfig, RoutesHaveTheEnginesNames) {
  EXPECT_EQ(gemm_route(Gemm::automatic), engine::GemmRoute::mma);
  EXPECT_EQ(gemm_route(Gemm::mma), engine::GemmRoute::mma);
  EXPECT_EQ(gemm_route(Gemm::cublas), engine::GemmRoute::cublas);
  EXPECT_EQ(gemm_route(Gemm::cublas_any_order), engine::GemmRoute::cublas);
  EXPECT_EQ(cuda_version_text(13000), "13.0");
  EXPECT_EQ(cuda_version_text(12040), "12.4");
}

TEST(BackendConfig, AnAutomaticRowIsHopperWhereProductsAreEmulatedAndElseTheDevices) {
  EXPECT_EQ(configured_tensor_core({}), "hopper");
  EXPECT_EQ(configured_tensor_core({.device = Device::emulated, .tensor_core = "volta"}), "volta");
  EXPECT_EQ(configured_tensor_core({.device = Device::cuda, .tensor_core = "ampere"}), "ampere");
  EXPECT_EQ(configured_tensor_core({.device = Device::cuda}), std::nullopt);
  EXPECT_EQ(configured_tensor_core({.device = Device::automatic}), std::nullopt);
  // It can be rejected only once there is a device.
  EXPECT_EQ(check({"amp.level=O1", "amp.dtype=bf16", "backend.device=cuda"}), "no error");
  EXPECT_THAT(check({"amp.level=O1", "amp.dtype=bf16", "backend.device=cuda", "backend.tensor_core=turing"}),
              HasSubstr("backend.tensor_core = \"turing\""));
}

TEST(BackendConfig, GraphsNeedAMethodThatCanBeRecorded) {
  for (const std::string device : {"cuda", "auto", "emulated"}) {
    EXPECT_EQ(check({"train.graph=true", "backend.device=" + device}), "no error");
    EXPECT_THAT(check({"train.graph=true", "backend.device=" + device, "train.method=gan"}),
                AllOf(HasSubstr("train.graph = true"), HasSubstr("method")));
  }
  EXPECT_EQ(check({"train.graph=false", "backend.device=cuda", "train.method=gan"}), "no error");
}

TEST(BackendConfig, ProductsOfFp8AreEmulatedOnly) {
  const std::vector<std::string> fp8{"amp.level=O1", "amp.fp8_operands=e4m3", "amp.fp8_gradients=e5m2"};
  const auto on = [&](const char* device) {
    std::vector<std::string> settings = fp8;
    settings.push_back(std::string("backend.device=") + device);
    return settings;
  };
  EXPECT_EQ(check(on("emulated")), "no error");
  EXPECT_EQ(check(on("auto")), "no error");
  EXPECT_THAT(check(on("cuda")),
              AllOf(HasSubstr("amp.fp8_operands = \"e4m3\""), HasSubstr("backend.device = \"emulated\"")));
  RunConfig config;
  for (const std::string& setting : on("auto")) apply_setting(config, setting, "--set");
  const ChosenBackend chosen = choose_backend(config, 1);
  EXPECT_EQ(chosen.record.device, "emulated");
  EXPECT_THAT(chosen.record.note, HasSubstr("FP8"));
}

TEST(BackendConfig, SumsInFp16AreOfFp16AndEmulatedOnly) {
  const auto with = [](std::vector<std::string> settings) {
    settings.insert(settings.end(), {"amp.level=O1", "backend.accumulator=f16"});
    return settings;
  };
  for (const std::string_view row : fp16lab::tensor_core_names())
    EXPECT_EQ(check(with({fmt::format("backend.tensor_core={}", row)})) == "no error", row != "avx512_bf16");
  EXPECT_EQ(check(with({"backend.device=auto"})), "no error");
  EXPECT_EQ(check(with({"backend.tensor_core=ada", "amp.fp8_operands=e4m3", "amp.fp8_gradients=e5m2"})),
            "no error");
  EXPECT_THAT(check({"backend.accumulator=f8"}), HasSubstr("expected one of f32, f16"));
  EXPECT_THAT(check(with({"backend.device=cuda"})),
              AllOf(HasSubstr("backend.accumulator = \"f16\" with backend.device = \"cuda\""),
                    HasSubstr("expected backend.device = \"emulated\"")));
  for (const char* setting : {"amp.dtype=bf16", "amp.to_float=[\"fc1=bf16\"]"})
    EXPECT_THAT(check(with({setting})), AllOf(HasSubstr("backend.accumulator = \"f16\" with BF16"),
                                              HasSubstr("expected backend.accumulator = \"f32\"")));
  RunConfig config;
  for (const std::string& setting : with({"backend.device=auto"})) apply_setting(config, setting, "--set");
  const ChosenBackend chosen = choose_backend(config, 1);
  EXPECT_EQ(chosen.record.device, "emulated");
  EXPECT_THAT(chosen.record.note, HasSubstr("FP16"));
}

TEST(ExitCodes, ADeviceThatIsMissingIsThreeAndOneThatFailsIsOne) {
  const auto ends = [](const std::function<void()>& body) {
    testing::internal::CaptureStderr();
    const int code = guarded("fp16lab", [&]() -> ExitCode {
      body();
      return ExitCode::ok;
    });
    return std::pair(code, testing::internal::GetCapturedStderr());
  };
  EXPECT_EQ(ends([] { throw engine::DeviceUnavailable("no GPU"); }),
            std::pair(3, std::string("fp16lab: error: no GPU\n")));
  EXPECT_EQ(ends([] { throw engine::DeviceFailure("out of device memory: f16 (4)"); }),
            std::pair(1, std::string("fp16lab: error: out of device memory: f16 (4)\n")));
}

TEST_F(BackendKeys, CudaWithoutADeviceIsExitCodeThreeAndLeavesNothing) {
  for (const std::vector<std::string>& more : {std::vector<std::string>{}, {"--graph"}, {"--quiet"}}) {
    const auto result = train_on("run", {"backend.device=cuda"}, more);
    expect_one_line_error(result, 3, "CUDA");
    EXPECT_THAT(result.err, AllOf(HasSubstr("backend.device = \"cuda\""), HasSubstr("\"emulated\""),
                                  HasSubstr("\"auto\"")));
    EXPECT_FALSE(std::filesystem::exists(path("run")));
  }
}

TEST_F(BackendKeys, AutoWithoutADeviceIsEmulatedSaysSoOnceAndRecordsIt) {
  const auto result = train_on("auto", {"backend.device=auto", "train.steps=5"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::string line = "backend.device = \"auto\": emulated (tensor cores: hopper; ";
  const std::size_t found = result.err.find(line);
  ASSERT_NE(found, std::string::npos) << result.err;
  EXPECT_EQ(result.err.find("backend.device", found + 1), std::string::npos) << "once";
  const Manifest manifest = read_manifest(path("auto"));
  ASSERT_TRUE(manifest.backend.has_value());
  EXPECT_EQ(manifest.backend->device, "emulated");
  EXPECT_EQ(manifest.backend->tensor_core, "hopper");
  EXPECT_NE(manifest.backend->note, "") << "why";
  EXPECT_THAT(result.err, HasSubstr(manifest.backend->note));
  EXPECT_EQ(manifest.backend->gemm, std::nullopt);
  EXPECT_EQ(manifest.gpu, std::nullopt);
  EXPECT_EQ(manifest.driver, std::nullopt);

  EXPECT_EQ(train_on("quiet", {"backend.device=auto", "train.steps=5"}, {"--quiet"}).err, "");
  ASSERT_EQ(train_on("asked", {"train.steps=5"}).exit_code, 0);
  EXPECT_EQ(read_manifest(path("asked")).backend->note, "");
  EXPECT_EQ(hashes("auto"), hashes("asked"));
}

TEST_F(BackendKeys, TheDefaultRowKeepsItsBits) {
  ASSERT_EQ(train_on("default", {"train.steps=5"}).exit_code, 0);
  ASSERT_EQ(train_on("hopper", {"train.steps=5", "backend.tensor_core=hopper"}).exit_code, 0);
  ASSERT_EQ(train_on("volta", {"train.steps=5", "backend.tensor_core=volta"}).exit_code, 0);
  EXPECT_EQ(hashes("default"), hashes("hopper"));
  EXPECT_NE(hashes("default"), hashes("volta"));
  EXPECT_EQ(read_manifest(path("volta")).backend->tensor_core, "volta");
}

TEST_F(BackendKeys, TheOrderOfALibraryTrainsOtherBits) {
  model_ =
      R"(layer = [{ type = "flatten" }, { type = "mlp", widths = [256, 10] }])";  // BF16 hides most of it
  const std::vector<std::string> bf16{"train.steps=5",      "train.batch_size=100",
                                      "amp.level=O1",       "amp.dtype=bf16",
                                      "scaler.policy=none", "backend.tensor_core=avx512_bf16"};
  const auto trained = [&](const std::string& out, const std::vector<std::string>& more, int threads = 1) {
    std::vector<std::string> settings = bf16;
    settings.insert(settings.end(), more.begin(), more.end());
    const auto result = train_on(out, settings, {"--threads", std::to_string(threads)});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return hashes(out);
  };
  const auto plain = trained("plain", {}), planned = trained("onednn", {"backend.library=onednn"});
  EXPECT_EQ(trained("instruction", {"backend.library=instruction"}), plain);
  EXPECT_NE(planned, plain);
  EXPECT_EQ(trained("threads", {"backend.library=onednn"}, 2), planned) << "threads of this program";
}

TEST_F(BackendKeys, SumsInFp16TrainOtherBitsAndResume) {
  const std::string f16 = "backend.accumulator=f16";
  ASSERT_EQ(train_on("f32", {"train.steps=6"}).exit_code, 0);
  ASSERT_EQ(train_on("named", {"train.steps=6", "backend.accumulator=f32"}).exit_code, 0);
  ASSERT_EQ(train_on("f16", {"train.steps=6", f16}).exit_code, 0);
  EXPECT_EQ(hashes("f32"), hashes("named"));
  EXPECT_NE(hashes("f32").front(), hashes("f16").front());
  const std::vector<std::string> losses = column("f16/steps.csv", "loss");
  EXPECT_LT(std::stod(losses.back()), std::stod(losses.front()));

  ASSERT_EQ(train_on("part", {"train.steps=4", "checkpoint.every=2", f16}).exit_code, 0);
  const std::vector<std::string> on{"train",   "--resume", "-o",           path("part"),
                                    "--quiet", "--set",    "train.steps=6"};
  std::vector<std::string> changed = on;
  changed.insert(changed.end(), {"--set", "backend.accumulator=f32"});
  expect_one_line_error(fp16lab(changed), 2, "backend.accumulator = ");
  ASSERT_EQ(fp16lab(on).exit_code, 0);
  EXPECT_EQ(hashes("part"), hashes("f16"));
}

TEST_F(BackendKeys, ARunContinuesWhereTheArithmeticIsTheSame) {
  ASSERT_EQ(train_on("run", {"train.steps=4", "checkpoint.every=2"}).exit_code, 0);
  const auto resume = [&](const std::string& steps, const std::string& setting) {
    return fp16lab({"train", "--resume", "-o", path("run"), "--quiet", "--set", "train.steps=" + steps,
                    "--set", setting});
  };
  const auto expect_refused = [&](const std::string& setting, const std::string& part) {
    const auto result = resume("20", setting);
    expect_one_line_error(result, 2, part);
    EXPECT_THAT(result.err, HasSubstr("--resume")) << setting;
  };
  expect_refused("backend.tensor_core=ampere", "\"ampere\", but the run in");
  expect_one_line_error(resume("20", "backend.gemm=cublas-any-order"), 2,
                        "backend.device = emulated does not read it; cuda, auto do");
  // On another device the row is known only when that is there.
  expect_one_line_error(resume("20", "backend.device=cuda"), 3, "CUDA");

  int steps = 5;
  for (const char* setting : {"backend.tensor_core=hopper", "backend.tensor_core=auto", "backend.device=auto",
                              "backend.gemm=mma", "backend.ordinal=3"}) {
    EXPECT_EQ(resume(std::to_string(++steps), setting).exit_code, 0) << setting;
  }
  ASSERT_EQ(train_on("whole", {"train.steps=" + std::to_string(steps)}).exit_code, 0);
  EXPECT_EQ(hashes("run"), hashes("whole"));
}

TEST_F(BackendKeys, FoldersFromBeforeThereWereDevicesContinueOnTheirRow) {
  const auto begin = [&](const std::string& run, const std::string& row) {
    ASSERT_EQ(train_on(run, {"train.steps=4", "checkpoint.every=2", "backend.tensor_core=" + row}).exit_code,
              0);
    auto manifest = nlohmann::ordered_json::parse(read(run + "/manifest.json"));
    ASSERT_EQ(manifest.erase("backend"), 1u);
    testing_support::write_bytes(folder_ / run / "manifest.json",
                                 testing_support::without_digests(manifest.dump()));
  };
  begin("hopper", "hopper");
  begin("volta", "volta");
  const auto resume = [&](const std::string& run) {
    return fp16lab({"train", "--resume", "-o", path(run), "--quiet", "--set", "train.steps=6", "--set",
                    "backend.tensor_core=auto", "--set", "backend.device=auto"});
  };
  EXPECT_EQ(resume("hopper").exit_code, 0);
  expect_one_line_error(resume("volta"), 2, "\"hopper\", but the run in");
}

TEST_F(BackendKeys, DevicesSaysWhatIsThereAndWhyNothingElse) {
  const auto all = nlohmann::json::parse(fp16lab({"devices", "--json"}).out);
  EXPECT_EQ(all.at("devices").at(0).at("name"), "emulated");
  EXPECT_TRUE(all.at("gpus").empty());
  EXPECT_NE(all.at("gpus_missing_because"), "");
  EXPECT_TRUE(all.at("cuda").at("built_with_cuda").is_boolean());
  EXPECT_EQ(all.at("cuda").at("least_compute_capability"), "7.5 (sm_75)");
  EXPECT_TRUE(all.at("cuda").contains("driver_runs_cuda"));
  EXPECT_TRUE(all.at("cuda").contains("runtime"));
  EXPECT_THAT(fp16lab({"devices"}).out, HasSubstr("none: "));
}

TEST_F(BackendKeys, ASweepAsksForItsDevicesBeforeItsFirstRun) {
  write_config("3");
  const auto sweep = [&](const std::string& device, const std::string& out) {
    testing_support::write_bytes(
        path("sweep.toml"),
        "[[workload]]\nname = \"small\"\nconfig = \"small.toml\"\nseeds = [1, 2]\n"
        "[[variant]]\nname = \"here\"\n[[variant]]\nname = \"there\"\nset = [\"backend.device=" +
            device + "\"]\n");
    return fp16lab({"sweep", "-c", path("sweep.toml"), "-o", path(out)});
  };
  expect_one_line_error(sweep("cuda", "cuda"), 3, "CUDA");
  EXPECT_FALSE(std::filesystem::exists(path("cuda/small-here-seed1"))) << "no run was begun";
  const auto result = sweep("auto", "auto");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::size_t first = result.err.find("backend.device = \"auto\": emulated");
  ASSERT_NE(first, std::string::npos) << result.err;
  EXPECT_EQ(result.err.find("backend.device = \"auto\"", first + 1), std::string::npos)
      << "once for all runs";
  EXPECT_EQ(hashes("auto/small-there-seed1"), hashes("auto/small-here-seed1"));
  EXPECT_EQ(read_manifest(path("auto/small-there-seed2")).backend->device, "emulated");
}

}  // namespace
}  // namespace fp16lab::experiments
