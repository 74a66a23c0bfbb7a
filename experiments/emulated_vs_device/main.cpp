// exp_emulated_vs_device: does the emulated run have the bits of the device run, at every step?
//
// Any configuration is trained on both back ends in one process. After every step the loss, found_inf, the
// norm and the bits of all gradients, every gradient's histogram, the next scale and the digest of all state
// are compared; the first difference is named with its step, quantity, tensor and element.
#include <fmt/format.h>

#include <filesystem>
#include <string>

#include "experiments/app/command_line.hpp"
#include "experiments/app/config/run_plan.hpp"
#include "experiments/app/process.hpp"
#include "experiments/app/progress.hpp"
#include "experiments/app/run/run_backend.hpp"
#include "experiments/emulated_vs_device/device_side.hpp"
#include "experiments/emulated_vs_device/lockstep.hpp"
#include "experiments/study/study.hpp"

namespace fp16lab::experiments {
namespace {

std::uint64_t count_of(const std::string& option, const std::string& text) {
  if (text.empty() || text.size() > 9 || text.find_first_not_of("0123456789") != std::string::npos)
    throw CommandError(ExitCode::usage, fmt::format("{}: '{}': expected a number of steps", option, text));
  return std::stoull(text);
}

struct Given {
  bool rehearse = false;
  std::string histograms_every = "1";
};

ExitCode run_exp_emulated_vs_device(const CommonOptions& common, const Given& given) {
  LockstepOptions lockstep{.histograms_every = count_of("--histograms-every", given.histograms_every)};
  CommonOptions of_both = common;
  of_both.set.emplace_back("backend.device=auto");  // what only a device reads is read here
  RunConfig config = resolve_run(of_both).config;
  const engine::CudaOptions device{.gemm = gemm_route(config.backend.gemm)};
  if (device.gemm == engine::GemmRoute::cublas)
    throw CommandError(
        ExitCode::usage,
        fmt::format("backend.gemm = \"{}\" promises no bits: cuBLAS adds in an order of its own; "
                    "expected auto or mma",
                    name_of(config.backend.gemm)));
  const DeviceSide side =
      given.rehearse ? open_rehearsal() : open_gpu(static_cast<int>(config.backend.ordinal));
  config.backend.tensor_core = side.tensor_core;
  resolve_run(config, "with the device's tensor cores");
  catch_interrupts();

  Progress progress(common.quiet);
  lockstep.progress = [&](std::uint64_t step, std::uint64_t of) {
    if (progress.due()) progress.show(fmt::format("{}step {}/{}: equal", line_mark(side), step, of));
  };
  const Question<Lockstep> same_bits{
      .claim = "the emulated run has the bits of the device run",
      .criterion = "loss, scale, found_inf, gradients, histograms and state have no other bit after any step",
      .judge = [&](const Lockstep& run) -> Answer {
        return {run.first           ? Verdict::fails
                : run.interrupted   ? Verdict::cannot_tell
                : run.steps.empty() ? Verdict::not_run
                : side.rehearsal    ? Verdict::rehearsed
                                    : Verdict::holds,
                summary_of(run), differences_of(run)};
      }};
  bool stopped = false;
  const ExitCode code = run_study<Lockstep>(
      common, {.question = "does the emulated run have the bits of the device run?",
               .questions = {same_bits},
               .measure =
                   [&] {
                     return run_lockstep(config, side.tensor_core, common.threads, side.make(device),
                                         lockstep);
                   },
               .describe =
                   [&](const Lockstep& run) {
                     write_records(common.out, run, side);
                     stopped = run.interrupted;
                     return fmt::format("device: {}\ntensor cores: {}", side.description, run.tensor_core);
                   },
               .printing = {.mark = line_mark(side)}});
  return code == ExitCode::ok && stopped ? ExitCode::interrupted : code;
}

}  // namespace
}  // namespace fp16lab::experiments

int main(int argc, char** argv) {
  using namespace fp16lab::experiments;
  Given given;
  return experiment_main(
      argc, argv,
      {.name = "exp_emulated_vs_device",
       .description =
           "Does the emulated run have the bits of the device run, at every step? Exit 5 at the first "
           "difference, 3\n"
           "without a GPU.",
       .examples = "  exp_emulated_vs_device -c classifier --set train.steps=200 --set amp.level=O2\n"
                   "  exp_emulated_vs_device -c lenet5 --set train.steps=3",
       .declare =
           [&](Options& options) {
             options
                 .add("--histograms-every", given.histograms_every,
                      "Compare the gradients' histograms of every N-th step (default: 1; 0: never)")
                 .type("N");
             options.flag(
                 "--rehearse", given.rehearse,
                 "the PTX machine stands in a GPU's place (build/tests/on_ptx; slow; tests this command)");
             return [&](const CommonOptions& common) { return run_exp_emulated_vs_device(common, given); };
           }},
      {.out = "results/exp_emulated_vs_device", .settings = true});
}
