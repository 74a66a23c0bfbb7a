#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "engine/backend/cuda/runtime/devices.hpp"
#include "experiments/app/build_info.hpp"
#include "experiments/app/sweep/child_process.hpp"
#include "numerics/files/arrays/safetensors.hpp"
#include "numerics/files/disk/atomic_file.hpp"
#include "tests/device/settings.hpp"

extern char** environ;

namespace fp16lab::device {
namespace {

using Json = nlohmann::ordered_json;

/// A folder's name: "large-gemm-f16-128x256-tiles-1024x2048x64-NT".
std::string plain(const std::string& text) {
  constexpr std::size_t longest = 120;
  std::string name;
  for (const char c : text.substr(0, longest)) {
    const bool kept = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '_';
    if (kept || (!name.empty() && name.back() != '-')) name += kept ? c : '-';
  }
  while (name.ends_with('-')) name.pop_back();
  return name;
}

/// What CUDA, its tools and this program read of the environment.
Json environment() {
  Json json = Json::object();
  for (char** one = environ; *one != nullptr; ++one) {
    const std::string_view text = *one;
    const auto name = text.substr(0, text.find('='));
    for (const char* prefix : {"CUDA_", "CUBLAS", "NVIDIA_", "FP16LAB_", "LD_PRELOAD"})
      if (name.starts_with(prefix))
        json[std::string(name)] = text.substr(std::min(name.size() + 1, text.size()));
  }
  return json;
}

/// A filter of GoogleTest: its special characters become "?", which matches any character.
std::string filter_of(const testing::TestInfo& test) {
  std::string filter = fmt::format("{}.{}", test.test_suite_name(), test.name());
  std::ranges::replace_if(
      filter, [](char c) { return c == ':' || c == '-' || c == '*' || c == '\''; }, '?');
  return filter;
}

/// The output of nvidia-smi, if the machine has it.
void add_nvidia_smi(int ordinal, std::vector<std::pair<std::string, std::string>>& facts) {
  const std::filesystem::path program = experiments::program_called("nvidia-smi");
  if (program.empty()) return;
  for (const char* const key : {"driver_version", "vbios_version", "pci.bus_id", "clocks.sm", "clocks.mem",
                                "clocks.max.sm", "clocks.max.mem", "power.limit", "temperature.gpu",
                                "ecc.mode.current", "mig.mode.current", "persistence_mode"}) {
    experiments::ProgramAnswer answer = experiments::ask(
        program,
        {"-i", fmt::format("{}", ordinal), fmt::format("--query-gpu={}", key), "--format=csv,noheader"});
    answer.text.resize(std::min(answer.text.find_last_not_of("\r\n") + 1, answer.text.size()));
    if (answer.status == 0) facts.emplace_back(key, answer.text);
  }
}

}  // namespace

std::filesystem::path cuda_tool(const std::string& name) {
  if (std::filesystem::path program = experiments::program_called(name); !program.empty()) return program;
  const char* const home = std::getenv("CUDA_HOME");
  for (const std::filesystem::path folder : {home == nullptr ? "" : home, "/usr/local/cuda"})
    if (!folder.empty() && std::filesystem::exists(folder / "bin" / name)) return folder / "bin" / name;
  return {};
}

std::vector<std::pair<std::string, std::string>> facts(const Settings& settings) {
  const experiments::DeviceSide& side = settings.side;
  std::vector<std::pair<std::string, std::string>> all{{"device", side.description},
                                                       {"tensor cores", side.tensor_core}};
  for (const engine::CudaDevice& device : engine::cuda_status().devices) {
    if (device.ordinal != side.ordinal) continue;
    all.emplace_back("compute capability",
                     fmt::format("{}.{}", device.capability_major, device.capability_minor));
    all.emplace_back("multiprocessors", fmt::format("{}", device.multiprocessors));
    all.emplace_back("memory", fmt::format("{} bytes", device.memory_bytes));
  }
  if (!side.rehearsal) add_nvidia_smi(side.ordinal, all);
  for (const char* const tool : {"compute-sanitizer", "ncu"}) {
    const std::filesystem::path path = cuda_tool(tool);
    all.emplace_back(tool, path.empty() ? "not installed" : path.string());
  }
  all.emplace_back("version", experiments::git_hash());
  all.emplace_back("compiler", experiments::compiler_name() + " " + experiments::compiler_flags());
  all.emplace_back("processor",
                   fmt::format("{}, {} threads used", experiments::cpu_name(), settings.threads));
  return all;
}

BundleListener::BundleListener(const Settings& settings) : settings_(&settings) {}

std::filesystem::path BundleListener::folder_of(const testing::TestInfo& test) const {
  return settings_->out / "bundles" / plain(fmt::format("{}-{}", test.test_suite_name(), test.name()));
}

void BundleListener::keep(const std::vector<Operand>& operands, const std::vector<Kept>& expected,
                          const std::vector<Kept>& got) {
  operands_ = operands;
  expected_ = expected;
  got_ = got;
}

void BundleListener::OnTestStart(const testing::TestInfo& test) {
  failure_.clear();
  keep({}, {}, {});
  write(test, "the process ended within this test");
}

void BundleListener::OnTestPartResult(const testing::TestPartResult& result) {
  if (result.failed()) failure_ += std::string(result.message()) + '\n';
}

void BundleListener::OnTestEnd(const testing::TestInfo& test) {
  std::filesystem::remove_all(folder_of(test));
  if (test.result()->Failed()) write(test, failure_);
  keep({}, {}, {});
}

void BundleListener::write(const testing::TestInfo& test, const std::string& failure) {
  const std::filesystem::path folder = folder_of(test);
  std::filesystem::create_directories(folder);
  const experiments::DeviceSide& side = settings_->side;
  const std::string again = fmt::format("build/bin/exp_device_acceptance --gtest_filter='{}' --seed {}{}",
                                        filter_of(test), settings_->seed, settings_->quick ? " --quick" : "");
  const std::string architecture = side.tensor_core == "turing"   ? "75"
                                   : side.tensor_core == "hopper" ? "90"
                                                                  : "80";
  Json json{{"format", "fp16lab-bundle"},
            {"version", 2},
            {"test", fmt::format("{}.{}", test.test_suite_name(), test.name())},
            {"failure", failure},
            {"seed", settings_->seed},
            {"quick", settings_->quick},
            {"again_on_a_gpu", again},
            {"again_on_the_ptx_machine",
             fmt::format("FP16LAB_PTX_ARCH={} FP16LAB_PTX_MULTIPROCESSORS={} build/tests/on_ptx {}{}",
                         architecture, side.multiprocessors, again, side.rehearsal ? " --rehearse" : "")},
            {"environment", environment()}};
  if (!failure_.empty())  // nvidia-smi is asked for what failed alone
    for (const auto& [name, value] : facts(*settings_)) json["facts"][name] = value;

  std::vector<SafetensorsSource> arrays;
  std::uint64_t left = std::uint64_t{64} << 20;
  const auto add = [&](const std::string& name, std::optional<DType> dtype, const engine::Shape& shape,
                       std::span<const std::byte> bytes) {
    if (bytes.size() > left) {
      json["left_out"].push_back(name);
      return;
    }
    left -= bytes.size();
    std::vector<std::uint64_t> extents{bytes.size()};
    if (dtype) extents.assign(shape.extents().begin(), shape.extents().end());
    arrays.push_back(safetensors_source(name, dtype.value_or(DType::u8), extents, bytes));
  };
  for (std::size_t i = 0; i < operands_.size(); ++i)
    add(fmt::format("operand {}", i), operands_[i].dtype, operands_[i].shape, operands_[i].bytes);
  for (const auto& [what, kept] : {std::pair{"expected", &expected_}, std::pair{"got", &got_}})
    for (std::size_t i = 0; i < kept->size(); ++i) {
      const Kept& one = (*kept)[i];
      add(fmt::format("{} {}: {}", what, i, one.name), one.dtype, one.shape, one.bytes);
    }
  if (!arrays.empty()) write_safetensors(folder / "arrays.safetensors", std::move(arrays));
  write_file_atomically(folder / "bundle.json",
                        json.dump(2, ' ', true, Json::error_handler_t::replace) + "\n");
}

}  // namespace fp16lab::device
