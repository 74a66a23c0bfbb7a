// exp_tensor_core_probe: does this GPU compute what the table of tensor cores says, bit for bit, and what are
// the bits where the published models disagree?
//
// Each probe is a claim with rival hypotheses, fixed before anything runs, and dot products on which they
// differ (see tensor_core_probe/). Then random operands of every kind go through every instruction and
// through the emulator.
#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "experiments/app/command_line.hpp"
#include "experiments/study/study.hpp"
#include "experiments/tensor_core_probe/device.hpp"
#include "experiments/tensor_core_probe/question.hpp"
#include "numerics/text/message.hpp"

namespace fp16lab::experiments {
namespace {

struct ProbeOptions {
  std::string generation;
  std::optional<std::int64_t> outputs;  ///< of each instruction
  std::filesystem::path from;           ///< a capture instead of a GPU
};

probe::Settings settings_of(const CommonOptions& common, const ProbeOptions& options) {
  probe::Settings settings;
  settings.generation = options.generation;
  settings.threads = common.threads;
  if (common.seed) settings.seed = static_cast<std::uint64_t>(*common.seed);
  if (options.outputs) settings.random_outputs = static_cast<std::uint64_t>(*options.outputs);
  try {
    if (!settings.generation.empty()) settings.generation = tensor_core_model(settings.generation).name;
  } catch (const std::invalid_argument& error) {
    throw CommandError(ExitCode::usage, fmt::format("--model: {}", error.what()));
  }
  return settings;
}

/// The GPU, or the capture of one, whose seed and number of outputs the settings take then.
std::unique_ptr<probe::Device> open_device(const CommonOptions& common, const ProbeOptions& options,
                                           probe::Settings& settings) {
  if (!options.from.empty()) {
    if (options.outputs || common.seed)
      throw CommandError(ExitCode::usage, "--from: the capture has its own --outputs and --seed");
    try {
      const probe::Capture capture = probe::read_capture(options.from);
      settings.seed = capture.seed;
      settings.random_outputs = capture.outputs;
      return probe::open_recorded_device(capture, settings.threads);
    } catch (const std::runtime_error& error) {
      throw CommandError(ExitCode::usage, fmt::format("--from: {}", error.what()));
    }
  }
  std::string reason;
  std::unique_ptr<probe::Device> device = probe::open_cuda_device(reason);
  if (!device) throw CommandError(ExitCode::unavailable, "no GPU to probe: " + reason);
  return device;
}

ExitCode run_probe(const CommonOptions& common, const ProbeOptions& options) {
  probe::Settings settings = settings_of(common, options);
  const std::unique_ptr<probe::Device> device = open_device(common, options, settings);
  announce_output(common);
  const probe::DeviceInfo& info = device->info();
  if (settings.generation.empty() && probe::generation_of(info.capability).empty())
    throw CommandError(ExitCode::unavailable,
                       fmt::format("{}: no model describes compute capability {}.{}; choose one with --model",
                                   info.name, info.capability.major, info.capability.minor));

  probe::Settings before = settings;
  before.only_criteria = true;
  write_claims(common, common.question, probe::claims_of(probe::ask_everything(*device, before)));
  const std::vector<probe::Finding> findings =
      probe::ask_everything(*device, settings, [&](const char* what) {
        if (!common.quiet) say("{}", what);
      });
  probe::write_records(common.out, info, findings);
  show(common, common.question,
       {fmt::format(
           "device: {}\nmodel: {}", probe::describe(info),
           settings.generation.empty() ? probe::generation_of(info.capability) : settings.generation)});
  const ExitCode code = conclude(common, common.question, probe::claims_of(findings));
  if (!common.quiet)
    say("wrote {}/probe.tsv, probe_fp16.tsv, report.md and {}", common.out.string(), claims_file);
  return code;
}

}  // namespace
}  // namespace fp16lab::experiments

int main(int argc, char** argv) {
  using namespace fp16lab::experiments;
  ProbeOptions given;
  return experiment_main(
      argc, argv,
      {.name = "exp_tensor_core_probe",
       .question = "Does this GPU compute what the table of tensor cores says?",
       .more = " Compares bit for bit, and shows the bits where the published models disagree. Exit 5 where "
               "the table differs from the device.",
       .examples = "{} -o results/h200\n{} --from capture.txt",
       .out = "results/exp_tensor_core_probe",
       .seed = true,
       .device = true,
       .declare = [&](Options& options) -> Command::Run {
         options
             .add("--model", given.generation,
                  "The generation to compare mma and wmma with (default: the device's)")
             .type("NAME");
         options
             .add("--from", given.from,
                  "Instead of a GPU: what experiments/capture/capture.cu wrote on some machine")
             .type("FILE")
             .not_empty("a file");
         options.add("--outputs", given.outputs, "Random outputs for each instruction (default: 10000000)")
             .type("N")
             .at_least(0, 999'999'999'999);
         return [&](const CommonOptions& common) { return run_probe(common, given); };
       }});
}
