// Keys train.*, optimizer.* and schedule.*: how steps go.
#include <fmt/format.h>

#include <string>
#include <vector>

#include "experiments/app/config/config_key_rows.hpp"

namespace fp16lab::experiments::keys {

namespace {

using engine::optim::Algorithm;

Named<engine::AccumulateMode> accumulate_modes() {
  return {{"mean", engine::AccumulateMode::mean}, {"sum", engine::AccumulateMode::sum}};
}

using engine::optim::OptimizerRow;
namespace reads = engine::optim::reads;

/// The names of the algorithms of which `asked` holds.
template <class Asked>
std::vector<std::string> algorithms(const Asked& asked) {
  std::vector<std::string> names;
  for (const Algorithm name : every<Algorithm>)
    if (asked(row_of(name))) names.emplace_back(name_of(name));
  return names;
}
std::vector<std::string> readers(unsigned option) {
  return algorithms([option](const OptimizerRow& row) { return (row.reads & option) != 0; });
}
std::vector<std::string> others_than_readers(unsigned option) {
  return algorithms([option](const OptimizerRow& row) { return (row.reads & option) == 0; });
}

/// "a, b and c"
std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i)
    text += (i == 0 ? "" : i + 1 == names.size() ? " and " : ", ") + names[i];
  return text;
}

/// "L2 for sgd, adam and rmsprop, decoupled for adamw and muon, ..."
std::string decays() {
  std::string text;
  for (const Algorithm name : every<Algorithm>) {
    const std::string_view decay = row_of(name).decay;
    if (text.find(decay) != std::string::npos) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", decay,
                        listed(algorithms([decay](const OptimizerRow& row) {
                          return std::string_view(row.decay) == decay;
                        })));
  }
  return text;
}

/// Where it is not given it reads as the update rule's.
ConfigKey epsilon_key() {
  return {.name = "optimizer.epsilon",
          .type = ConfigType::real,
          .read = [](const RunConfig& config) -> ConfigValue {
            return engine::optim::epsilon_of(config.optimizer);
          },
          .write = [](RunConfig& config,
                      const ConfigValue& value) { config.optimizer.epsilon = std::get<double>(value); },
          .doc = fmt::format("of all but {}; where it is not given {} of adam_weight_decay, {} of the others",
                             listed(others_than_readers(reads::epsilon)),
                             row_of(Algorithm::adam_weight_decay).epsilon, row_of(Algorithm::adam).epsilon),
          .range = positive};
}

}  // namespace

std::vector<ConfigKey> of_train() {
  return {
      FP16LAB_KEY(train.steps, "optimizer steps; 0: as many as train.epochs gives", counts),
      FP16LAB_KEY(train.epochs, "passes over the data where train.steps is 0", counts)
          .read_with("train.steps", {"0"}),
      FP16LAB_KEY(train.batch_size, "images, or windows of text, per micro-batch", positive_sizes),
      FP16LAB_KEY(train.accumulate, "micro-batches per step", positive_sizes),
      FP16LAB_KEY(train.accumulate_mode, "mean: the loss is divided by train.accumulate; sum: it is not",
                  accumulate_modes())
          .read_unless("train.accumulate", {"1"}),
      FP16LAB_KEY(train.clip_norm, "largest L2 norm of the gradients; 0: off", not_negative),
      FP16LAB_KEY(train.clip_value, "largest magnitude of a gradient's element, after clip_norm; 0: off",
                  not_negative),
      FP16LAB_KEY(train.method,
                  "what a step does. gradient_penalty: the norm of the loss's gradient is added to the loss; "
                  "two_models and gan: two blocks, each a network with its optimizer; a section such as "
                  "[optimizer.generator] overrides [optimizer] for one of them",
                  named(every<Method>)),
      FP16LAB_KEY(train.penalty, "(gradient_penalty only) weight of the gradient's norm in the loss",
                  not_negative)
          .read_with("train.method", {"gradient_penalty"}),
      FP16LAB_KEY(train.seed, "seed of weights and shuffling, up to 9007199254740991", counts),
      FP16LAB_KEY(train.initial,
                  "safetensors file of the initial weights, with the names of --dump-initial; empty: drawn "
                  "from train.seed (--load-initial)"),
      FP16LAB_KEY(train.perturb_ulps,
                  "moves every non-zero initial weight by this many FP32 ulps, up or down by train.seed, to "
                  "show how much training varies by itself. 0: off",
                  ConfigRange{0, 4194304})
          .as(KeyRole::configuration),
      FP16LAB_KEY(train.evaluate_every, "steps; 0: only at the end", counts).as(KeyRole::watching),
      FP16LAB_KEY(train.skip_limit, "consecutive skipped steps that end the run as diverged; 0: no limit",
                  counts)
          .as(KeyRole::watching)

          .read_with("scaler.drop_overflow_update", {"true"}),
      FP16LAB_KEY(
          train.graph,
          "a step is recorded once and replayed, with the same bits; on cuda as a CUDA graph (--graph)")
          .as(KeyRole::machine),
  };
}

std::vector<ConfigKey> of_optimizer() {
  return {
      FP16LAB_KEY(optimizer.name, "the update rule; muon updates matrices, and adamw everything else",
                  named(every<Algorithm>)),
      FP16LAB_KEY_AS("optimizer.lr", optimizer.learning_rate, "learning rate", not_negative),
      FP16LAB_KEY(optimizer.momentum, "of " + listed(readers(reads::momentum)), below_one)
          .read_with("optimizer.name", readers(reads::momentum)),
      FP16LAB_KEY(
          optimizer.dampening,
          "of " + listed(readers(reads::dampening)) + ": the gradient enters the momentum times 1 minus this",
          below_one)
          .read_with("optimizer.name", readers(reads::dampening))
          .read_unless("optimizer.momentum", {"0.0"}),
      FP16LAB_KEY(optimizer.nesterov,
                  "of " + listed(readers(reads::nesterov)) + "; needs a momentum, and no dampening")
          .read_with("optimizer.name", readers(reads::nesterov))
          .read_unless("optimizer.momentum", {"0.0"}),
      FP16LAB_KEY(optimizer.weight_decay, decays(), not_negative),
      FP16LAB_KEY(optimizer.beta1, "of " + listed(readers(reads::betas)), below_one)
          .read_unless("optimizer.name", others_than_readers(reads::betas)),
      FP16LAB_KEY(optimizer.beta2, "of " + listed(readers(reads::betas)), below_one)
          .read_unless("optimizer.name", others_than_readers(reads::betas)),
      FP16LAB_KEY(optimizer.alpha, "of " + listed(readers(reads::averages)) + ": decay rate of its averages",
                  below_one)
          .read_with("optimizer.name", readers(reads::averages)),
      FP16LAB_KEY(optimizer.centered, "of " + listed(readers(reads::averages)) +
                                          ": divide by the deviation of the gradients from their average")
          .read_with("optimizer.name", readers(reads::averages)),
      epsilon_key().read_unless("optimizer.name", others_than_readers(reads::epsilon)),
      FP16LAB_KEY(optimizer.kahan,
                  "16-bit weights without master weights keep what rounding removes from their updates, and "
                  "add it to the next one (Kahan's sum)")
          .as(KeyRole::configuration),
      FP16LAB_KEY(
          optimizer.set_to_zero,
          "gradients are cleared to zeros, so that momentum and weight decay also move weights that a "
          "step's losses do not reach, and keep their memory; false: to nothing, and such weights stay "
          "(clear_grad(set_to_zero) of paddle)"),
      FP16LAB_KEY(optimizer.loss_scale,
                  "divides every gradient: what scaler.drop_overflow_update = false leaves to the optimizer",
                  scales)
          .as(KeyRole::configuration),
  };
}

std::vector<ConfigKey> of_schedule() {
  return {
      FP16LAB_KEY_AS("schedule.name", optimizer.schedule.name, "how the learning rate changes",
                     named(every<engine::optim::Schedule>)),
      FP16LAB_KEY_AS("schedule.warmup_steps", optimizer.schedule.warmup_steps,
                     "steps of a linear rise to optimizer.lr, with any schedule", counts),
      FP16LAB_KEY_AS("schedule.total_steps", optimizer.schedule.total_steps,
                     "cosine, linear, polynomial: step at which they end; 0: with the run", counts)
          .read_with("schedule.name", {"cosine", "linear", "polynomial"}),
      FP16LAB_KEY_AS("schedule.minimum_factor", optimizer.schedule.minimum_factor,
                     "cosine, linear, polynomial: ratio of the last learning rate to the first",
                     ConfigRange{0, 1})
          .read_with("schedule.name", {"cosine", "linear", "polynomial"}),
      FP16LAB_KEY_AS("schedule.step_interval", optimizer.schedule.step_interval, "step: steps between drops",
                     counts)
          .read_with("schedule.name", {"step"}),
      FP16LAB_KEY_AS("schedule.step_factor", optimizer.schedule.step_factor,
                     "step: factor of the learning rate at a drop", ConfigRange{0, 1, true, false})
          .read_with("schedule.name", {"step"}),
      FP16LAB_KEY_AS("schedule.power", optimizer.schedule.power,
                     "polynomial: exponent of the share of the steps that are left", in_fp64(positive))
          .read_with("schedule.name", {"polynomial"}),
      FP16LAB_KEY_AS("schedule.gamma", optimizer.schedule.gamma,
                     "exponential: factor of the learning rate at every step", ConfigRange{0, 1, true, false})
          .read_with("schedule.name", {"exponential"}),
  };
}

}  // namespace fp16lab::experiments::keys
