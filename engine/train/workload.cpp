#include "engine/train/workload.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "engine/amp/scalers/layer_scaler.hpp"

namespace fp16lab::engine {

void check(const TrainOptions& options, const amp::ScalerOptions& scaler) {
  if (options.accumulate < 1 || options.accumulate > largest_size)
    throw std::invalid_argument(
        fmt::format("train.accumulate = {}: must be from 1 to {}", options.accumulate, largest_size));
  constexpr std::uint64_t most = std::uint64_t{1} << 53;
  if (options.steps > most / static_cast<std::uint64_t>(options.accumulate))
    throw std::invalid_argument(
        fmt::format("train.steps = {} of train.accumulate = {}: there must be at most "
                    "2^53 micro-batches",
                    options.steps, options.accumulate));
  const auto check_clipping = [&](std::string_view key, double limit) {
    if (!std::isfinite(limit) || limit < 0)
      throw std::invalid_argument(fmt::format("{} = {}: must be finite and >= 0 (0: off)", key, limit));
    if (limit > 0 && scaler.enabled && !scaler.drop_overflow_update)
      throw std::invalid_argument(
          fmt::format("{} = {} with scaler.drop_overflow_update = false: gradients keep their loss scale "
                      "then, and clipping "
                      "them would depend on it; must be 0",
                      key, limit));
  };
  check_clipping("train.clip_norm", options.clip_norm);
  check_clipping("train.clip_value", options.clip_value);
  if (options.graph && scaler.enabled && amp::scale_policy(scaler.policy).wants_statistics)
    throw std::invalid_argument(
        fmt::format("train.graph = true with scaler.policy = \"{}\": it decides by the counts of every step, "
                    "which the host sums, and a recorded step cannot wait for them; expected train.graph = "
                    "false, or a policy that decides by overflows alone, such as torch",
                    scaler.policy));
  if (options.graph && scaler.rescue > 0)
    throw std::invalid_argument(
        fmt::format("train.graph = true with scaler.rescue = {}: whether a backward pass is done again is "
                    "decided in the middle of a step, which a recorded one cannot wait for; one of the two "
                    "must be off",
                    scaler.rescue));
  if (amp::scales_layers(scaler) && options.graph)
    throw std::invalid_argument(fmt::format(
        "train.graph = true with scaler.policy = \"{}\": scales of layers are decided by the host in "
        "the middle of a step, which a recorded one cannot wait for; expected train.graph = false",
        scaler.policy));
}

namespace {

/// Paddle's static rule zeroes gradients, but not under Adam and AdamW.
void check_on_overflow(const TrainingPlan& plan) {
  if (plan.scaler.on_overflow == amp::OnOverflow::skip) return;
  const auto check_rule = [](std::string_view key, optim::Algorithm rule) {
    if (rule == optim::Algorithm::adam || rule == optim::Algorithm::adamw)
      throw std::invalid_argument(fmt::format(
          "scaler.on_overflow = \"zero\" with {} = \"{}\": Paddle's Adam and AdamW skip the step all "
          "the same; expected \"skip\", or another rule",
          key, name_of(rule)));
  };
  check_rule("optimizer.name", plan.optimizer.name);
  for (const auto& [group, options] : plan.own_optimizers)
    check_rule(fmt::format("optimizer.{}.name", group), options.name);
}

void check_shards(const TrainingPlan& plan) {
  parallel::check_shard_count(plan.parallel.shards);
  if (plan.parallel.shards == 1) return;
  const auto refuse = [&](std::string_view with, std::string_view why) {
    throw std::invalid_argument(fmt::format(
        "parallel.shards = {} with {}: {}; expected one of the two (parallel.shards = 1 cuts nothing)",
        plan.parallel.shards, with, why));
  };
  if (amp::scales_layers(plan.scaler))
    refuse(fmt::format("scaler.policy = \"{}\"", plan.scaler.policy),
           "scales of layers are decided inside a backward pass, by what one shard has");
  if (plan.optimizer.set_to_zero ||
      std::ranges::any_of(plan.own_optimizers, [](const auto& own) { return own.second.set_to_zero; }))
    refuse("optimizer.set_to_zero = true", "gradients of a shard are added to none");
  if (plan.train.graph)
    refuse("train.graph = true", "shards are added by the host, which a recorded step does not wait for");
}

}  // namespace

optim::OptimizerOptions TrainingPlan::optimizer_of(std::string_view group) const {
  const auto own = own_optimizers.find(group);
  if (own == own_optimizers.end()) return optimizer;
  optim::OptimizerOptions options = own->second;
  options.schedule = optimizer.schedule;
  options.loss_scale = optimizer.loss_scale;
  options.kahan = optimizer.kahan;
  options.stochastic_rounding = optimizer.stochastic_rounding;
  options.seed = optimizer.seed;
  return options;
}

TrainingPlan plan_training(const TrainOptions& train, const amp::AmpOptions& amp,
                           const amp::ScalerOptions& scaler, const optim::OptimizerOptions& optimizer,
                           const ParallelOptions& parallel,
                           std::map<std::string, optim::OptimizerOptions, std::less<>> own_optimizers) {
  TrainingPlan plan{.train = train,
                    .amp = amp::resolve(amp),
                    .scaler = scaler,
                    .policy = amp::make_scale_policy(scaler),
                    .optimizer = optimizer,
                    .parallel = parallel,
                    .own_optimizers = std::move(own_optimizers)};
  check(train, scaler);
  check_on_overflow(plan);
  check_shards(plan);
  amp::scales_layers(scaler, plan.amp);
  if (plan.amp.has_recipe() && plan.train.graph)
    throw std::invalid_argument(
        fmt::format("amp.recipe = \"{}\" with train.graph = true: the host keeps what operands lost, which "
                    "a recorded step would not tell it; expected train.graph = false",
                    amp.recipe));
  if (plan.amp.has_recipe() && parallel.shards > 1)
    throw std::invalid_argument(
        fmt::format("amp.recipe = \"{}\" with parallel.shards = {}: the scale of a tensor would be that of "
                    "the shards that a rank has; expected parallel.shards = 1",
                    amp.recipe, parallel.shards));
  if (optimizer.kahan && !plan.amp.low_weights())
    throw std::invalid_argument(fmt::format(
        "optimizer.kahan = true: it sums updates of 16-bit weights, but with amp.level = \"{}\" of {} the "
        "weights that are updated are FP32; expected optimizer.kahan = false, or a level with a 16-bit model "
        "and amp.master_weights = false",
        name_of(plan.amp.level), name_of(plan.amp.dialect)));
  plan.optimizer.stochastic_rounding = plan.amp.stochastic_weights();
  plan.optimizer.seed = train.seed;
  if (optimizer.kahan && plan.optimizer.stochastic_rounding)
    throw std::invalid_argument(fmt::format(
        "optimizer.kahan = true with amp.rounding = \"{}\": both recover what rounding weights to nearest "
        "loses; expected one of the two, or \"stochastic_gradients\" with Kahan's sums",
        plan.amp.rounding == amp::LowRounding::stochastic ? "stochastic" : "stochastic_weights"));
  return plan;
}

void check_graph(const TrainOptions& options, const TrainingMethod& method) {
  if (options.graph && !method.recordable())
    throw std::invalid_argument(
        "train.graph = true: the training method (train.method) reads numbers from the host in every step, "
        "as gan does for its noise, and a recorded step would repeat those of the first; expected "
        "train.graph = false");
}

void check_graph(const TrainOptions& options, const Backend& backend, const TrainingMethod& method) {
  if (options.graph && !backend.records())
    throw std::invalid_argument(
        fmt::format("train.graph = true: the {} back end does not record steps; expected train.graph = false",
                    backend.name()));
  check_graph(options, method);
}

void check_per_loss(const amp::ScalerOptions& scaler, int losses) {
  if (!scaler.per_loss) return;
  if (losses < 2)
    throw std::invalid_argument(
        "scaler.per_loss = true: this training method has one loss; expected one with several, as two_models "
        "and gan have, or false");
  if (scaler.enabled && amp::scale_policy(scaler.policy).wants_statistics)
    throw std::invalid_argument(fmt::format(
        "scaler.per_loss = true with scaler.policy = \"{}\": it decides by the counts of all "
        "gradients of a step, and those of several losses carry several scales; expected a policy "
        "that counts steps, or false",
        scaler.policy));
  if (!scaler.drop_overflow_update)
    throw std::invalid_argument(
        "scaler.per_loss = true with scaler.drop_overflow_update = false: the division is left to the "
        "optimizer "
        "then, which divides by one scale; one of the two must be the other way");
}

}  // namespace fp16lab::engine
