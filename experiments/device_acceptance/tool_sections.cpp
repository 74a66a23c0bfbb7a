// Sections "tests" and "profile": what other programs say of the device.
#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "experiments/device_acceptance/child.hpp"
#include "experiments/device_acceptance/timing.hpp"
#include "experiments/device_acceptance/watched.hpp"
#include "numerics/files/disk/atomic_file.hpp"

namespace fp16lab::experiments::acceptance {
namespace {

namespace fs = std::filesystem;

/// Of ctest's line "97% tests passed, 1 tests failed out of 33".
struct TestCount {
  int failed = 0, all = 0;
};
std::optional<TestCount> count_of(std::string_view line) {
  const std::size_t failed = line.find("tests passed, "), all = line.find(" out of ");
  if (failed == std::string_view::npos || all == std::string_view::npos) return std::nullopt;
  TestCount count;
  std::from_chars(line.data() + failed + 14, line.data() + line.size(), count.failed);
  std::from_chars(line.data() + all + 8, line.data() + line.size(), count.all);
  return count;
}

/// Set where a profiler has started this process, which then starts none.
constexpr const char* profiled = "FP16LAB_ACCEPTANCE_PROFILED";

}  // namespace

Goals test_goals(const Settings&) {
  return {{.claim = {.claim = "tests that want a GPU (ctest -L gpu)", .criterion = "0 fail"}}};
}

SectionResult run_gpu_tests(const Settings& settings, const Goals& goals) {
  SectionResult result;
  Claim claim = goals[0].claim;
  const fs::path build = fs::read_symlink("/proc/self/exe").parent_path().parent_path();
  const fs::path ctest = tool_called("ctest");
  const auto skipped = [&](const std::string& why) {
    claim.measured = "skipped: " + why;
    return SectionResult{.tables = {}, .notes = {}, .claims = {claim}};
  };
  if (settings.rehearsal()) return skipped("there is no GPU");
  if (ctest.empty()) return skipped(not_installed_text("ctest"));
  if (!fs::exists(build / "CTestTestfile.cmake"))
    return skipped("this program is not in the bin folder of a build");

  std::string text;
  int not_there = 0, left_out = 0;
  std::optional<TestCount> count;
  // Not this command itself, nor what only measures times.
  const std::vector<std::string> arguments{
      "--test-dir",         build.string(), "-L", "gpu", "-E", "^exp_(device_acceptance|shapes)$",
      "--output-on-failure"};
  const Ended ended = run_watched(ctest, arguments, settings.silence, [&](const std::string& line) {
    text += line + '\n';
    if (settings.progress) settings.progress(line);
    if (const auto counted = count_of(line)) count = counted;
    if (line.find("***Skipped") != std::string::npos) ++left_out;
    if (line.find("***Not Run") != std::string::npos) ++not_there;
  });
  write_file_atomically(settings.out / "tests.log", text);
  if (!count || count->all == 0) return skipped("ctest found no such test; tests.log has what it said");
  if (not_there == count->failed && not_there == count->all)
    return skipped("none of the tests is built (cmake --build build)");
  if (left_out == count->all) return skipped("all of them skip themselves here");
  claim.measured = fmt::format("{} of {} fail ({} not built, {} skip themselves)", count->failed, count->all,
                               not_there, left_out);
  claim.verdict = analysis::verdict_of(count->failed == 0 && ended.status == 0);
  result.claims = {claim};
  result.notes.emplace_back("tests.log has what ctest said");
  return result;
}

SectionResult profile_product(const Settings& settings, const Goals&) {
  const bool inside = std::getenv(profiled) != nullptr;
  SectionResult result;
  const double speed =
      own_product_speed(settings, inside ? TimingPlan{.warm_up = 1, .repetitions = 1}
                                         : settings.sized<TimingPlan>({.warm_up = 3, .repetitions = 9},
                                                                      {.warm_up = 2, .repetitions = 5},
                                                                      {.warm_up = 1, .repetitions = 1}));
  const std::int64_t n = profiled_extent(settings);
  result.tables = {{.caption = "FP16 by our own kernel, alone (section gemm compares it with cuBLAS)",
                    .columns = {"n", "TFLOP/s", "of an H100 SXM at 8192 we think"},
                    .rows = {{fmt::format("{}", n), fmt::format("{:.4g}", speed), "390 to 450"}}}};
  if (inside) return result;
  const fs::path ncu = settings.rehearsal() ? fs::path() : tool_called("ncu");
  if (ncu.empty()) {
    result.notes.push_back(settings.rehearsal() ? "no profiler: there is no GPU"
                                                : "no counters: " + not_installed_text("ncu"));
    return result;
  }
  const fs::path task = settings.out / "profile-task.json";
  std::vector<std::string> arguments{std::string(profiled) + "=1",
                                     ncu.string(),
                                     "--kernel-name",
                                     "multiply_tiles",
                                     "--launch-count",
                                     "1",
                                     "--set",
                                     "full",
                                     fs::read_symlink("/proc/self/exe").string()};
  for (std::string& argument : direct_arguments(settings, "profile", task))
    arguments.push_back(std::move(argument));
  std::string text;
  const Ended ended = run_watched("/usr/bin/env", arguments, settings.silence, [&](const std::string& line) {
    text += line + '\n';
    if (settings.progress) settings.progress("ncu: " + line);
  });
  fs::remove(task);
  write_file_atomically(settings.out / "profile.txt", text);
  result.notes.push_back(
      fmt::format("ncu ended with {}; profile.txt has its counters", ended.how(settings.silence)));
  return result;
}

}  // namespace fp16lab::experiments::acceptance
