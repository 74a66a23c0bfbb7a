// exp_tensor_core_probe: does this GPU compute what the table of tensor cores says, bit for bit, and what are the bits
// where the published models disagree?
//
// Each probe is a claim with rival hypotheses, fixed before anything runs, and dot products on which they differ (see
// tensor_core_probe/). Then random operands of every kind go through every instruction and through the emulator.
#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "experiments/command_line.hpp"
#include "experiments/tensor_core_probe/device.hpp"
#include "experiments/tensor_core_probe/record.hpp"

namespace fp16lab::experiments {
namespace {

struct ProbeOptions {
  std::string generation;
  std::string outputs = "10000000";
};

probe::Settings settings_of(const CommonOptions& common, const ProbeOptions& options) {
  probe::Settings settings;
  settings.generation = options.generation;
  settings.threads = common.threads;
  if (common.seed) settings.seed = static_cast<std::uint64_t>(*common.seed);
  const bool digits = options.outputs.find_first_not_of("0123456789") == std::string::npos;
  if (!digits || options.outputs.empty() || options.outputs.size() > 12)
    throw CommandError(ExitCode::usage,
                       fmt::format("--outputs '{}': expected a number of 1 to 12 digits", options.outputs));
  settings.random_outputs = std::stoull(options.outputs);
  try {
    if (!settings.generation.empty()) tensor_core_model(settings.generation);
  } catch (const std::invalid_argument& error) {
    throw CommandError(ExitCode::usage, fmt::format("--model: {}", error.what()));
  }
  return settings;
}

ExitCode run_probe(const CommonOptions& common, const ProbeOptions& options) {
  const probe::Settings settings = settings_of(common, options);
  std::string reason;
  const std::unique_ptr<probe::Device> device = probe::open_cuda_device(reason);
  if (!device) throw CommandError(ExitCode::unavailable, "no GPU to probe: " + reason);
  const probe::DeviceInfo& info = device->info();
  if (settings.generation.empty() && probe::generation_of(info.capability).empty())
    throw CommandError(
        ExitCode::unavailable,
        fmt::format("{}: no model claims to describe compute capability {}.{}; choose one with --model",
                    info.name, info.capability.major, info.capability.minor));

  fmt::print("device: {}\nmodel: {}\n", probe::describe(info),
             settings.generation.empty() ? probe::generation_of(info.capability) : settings.generation);
  std::vector<probe::Finding> findings;
  const auto show = [&](const char* what, std::vector<probe::Finding> more) {
    for (probe::Finding& finding : more) {
      fmt::print("{}", probe::text_of(finding));
      findings.push_back(std::move(finding));
    }
    std::fflush(stdout);
    if (!common.quiet) fmt::print(stderr, "{}: done\n", what);
  };
  show("questions to the tensor core", probe::ask_tensor_core(*device, settings));
  show("plain FP16 instructions", probe::ask_half(*device, settings));
  show("random operands against the emulator", probe::compare_with_emulator(*device, settings));

  const std::filesystem::path& folder = common.out;
  probe::write_records(folder, info, findings);
  int confirmed = 0, refuted = 0, not_here = 0;
  for (const probe::Finding& finding : findings)
    ++(finding.verdict == probe::Verdict::confirmed ? confirmed
       : finding.verdict == probe::Verdict::refuted ? refuted
                                                    : not_here);
  fmt::print("verdict: {} claims confirmed, {} refuted, {} not on this device\n", confirmed, refuted,
             not_here);
  if (!common.quiet)
    fmt::print(stderr, "wrote {}/probe.tsv, probe_fp16.tsv and report.md\n", folder.string());
  return refuted == 0 ? ExitCode::ok : ExitCode::mismatch;
}

}  // namespace
}  // namespace fp16lab::experiments

int main(int argc, char** argv) {
  using namespace fp16lab::experiments;
  ProbeOptions options;
  return experiment_main(
      argc, argv,
      {"exp_tensor_core_probe",
       "Does this GPU compute what the table of tensor cores says, bit for bit, and what are the bits where\n"
       "the published models disagree? Exit 5 where the table differs from the device.",
       "  exp_tensor_core_probe -o results/h200\n"
       "  exp_tensor_core_probe --model ampere --outputs 100000000",
       {{"--model", "NAME", "The generation to compare mma and wmma with (default: the device's)",
         &options.generation},
        {"--outputs", "N", "Random outputs for each instruction (default: 10000000)", &options.outputs}}},
      {.out = "results/exp_tensor_core_probe", .seed = true},
      [&options](const CommonOptions& common) { return run_probe(common, options); });
}
