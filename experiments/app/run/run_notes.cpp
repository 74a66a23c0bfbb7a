#include "experiments/app/run/run_notes.hpp"

#include <fmt/format.h>

#include <exception>
#include <utility>

#include "engine/backend/cuda/runtime/devices.hpp"
#include "engine/backend/cuda/runtime/no_device.hpp"
#include "experiments/app/run/memory_limits.hpp"
#include "numerics/text/message.hpp"
#include "numerics/text/scale_text.hpp"

namespace fp16lab::experiments {
namespace {

/// Gradients are divided by S once: by the scaler, or where that leaves it to the optimizer, by
/// optimizer.loss_scale. Another product of factors is a run that tutorials show by mistake, so it runs.
void note_division(const RunPlan& plan) {
  const double left = scale_left_to_optimizer(plan);
  const double divided = plan.optimizer.loss_scale;
  if (left == divided) return;
  say("note: {} and optimizer.loss_scale = {}: every gradient is {} times what it would be",
      left == 1 ? "the scaler leaves no scale in the gradients"
                : fmt::format("scaler.drop_overflow_update = false leaves the loss scale {} in the gradients",
                              scale_text(left)),
      divided, left / divided);
}

/// A level that leaves the scaler to the user has none until the user makes one.
void note_no_scale(const RunPlan& plan) {
  if (plan.amp.level == engine::Level::O0 || plan.amp.low != DType::f16 || plan.policy.name != "none") return;
  const std::string_view usual = plan.amp.rules.scaler;
  say("note: there is no loss scale (scaler.policy = none){}",
      usual == "none" ? "" : fmt::format("; training of this kind mostly uses one: scaler.policy={}", usual));
}

/// Scales that are no powers of two round every gradient twice.
void note_unscaling(const RunPlan& plan) {
  if (!plan.scaler.enabled || plan.scaler.power_of_two != engine::amp::PowerOfTwo::warn) return;
  if (const std::optional<std::string> why = engine::amp::inexact_unscaling(plan.scaler, plan.policy))
    say("warning: {}", *why);
}

/// Outside the promise of the other orders.
void note_order(const RunPlan& plan) {
  if (plan.parallel.shards == 1 || plan.parallel.wire.order != engine::parallel::SumOrder::library) return;
  say("note: parallel.order = mpi: MPI adds gradients in its own order, so that bits depend on the number of "
      "ranks and on the library; --resume needs the same ones");
}

void note_graph(const RunPlan& plan) {
  if (plan.train.graph)
    say("note: train.graph = true: each kind of step is recorded once and then replayed, with the same bits");
}

/// What "auto" took; a warning where a GPU is there that cannot do it.
void note_backend(const PreparedRun& run) {
  const RunConfig& config = run.plan.config;
  if (config.backend.device != Device::automatic) return;
  const bool unfit =
      !run.chosen.gpu && needs_emulation(config).empty() && !engine::cuda_status().devices.empty();
  say("{}{}", unfit ? "warning: " : "", choice_text(run.chosen.record));
}

}  // namespace

std::vector<std::string> gpu_advice(const RunPlan& plan) {
  std::vector<std::string> all;
  if (plan.amp.level == engine::Level::O0) return all;
  for (const engine::CudaDevice& gpu : engine::cuda_status().devices)
    if (std::string lacking = engine::lacking_text(gpu, plan.amp.low); !lacking.empty())
      all.push_back(std::move(lacking));
  return all;
}

std::string never_grows(const engine::amp::ScalePolicy& policy, std::uint64_t steps) {
  constexpr std::uint64_t farthest = 100'000;
  const engine::amp::PolicyDescription& description = engine::amp::scale_policy(policy.name);
  if (description.constant || description.per_layer || policy.wants_statistics) return "";
  engine::StepState state = policy.initial;
  const double first = state.scale;
  for (std::uint64_t clean = 1; clean <= farthest; ++clean) {
    engine::amp::advance(policy, state, {.scale = state.scale});
    if (state.scale <= first) continue;
    return clean < steps
               ? ""
               : fmt::format(
                     "{} first raises the loss scale after {} clean steps: in {} steps it can only lower it",
                     policy.name, clean, steps);
  }
  return "";
}

bool note_memory(const StepCosts& costs) {
  const std::string warning = memory_warning(costs.memory.peak + costs.scratch, 1, memory_limits());
  if (!warning.empty()) say("warning: {}", warning);
  return !warning.empty();
}

void print_notes(const PreparedRun& run) {
  for (const std::string& sentence : run.plan.left_out) say("note: {}", sentence);
  note_division(run.plan);
  note_no_scale(run.plan);
  note_unscaling(run.plan);
  note_order(run.plan);
  note_graph(run.plan);
  note_backend(run);
  if (!run.plan.scaler.enabled) return;
  if (const std::string why = never_grows(run.plan.policy, run.plan.train.steps); !why.empty())
    say("warning: {}", why);
}

}  // namespace fp16lab::experiments
