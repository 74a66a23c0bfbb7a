#include "experiments/questions/allreduce/agreement.hpp"
#include "engine/parallel/chunk_range.hpp"
#include "experiments/questions/tensor_values.hpp"
#include "numerics/random/philox.hpp"

#include <algorithm>
#include <cmath>
#include <set>
#include <span>

namespace fp16lab::experiments::allreduce {

namespace {

using engine::Backend;
using engine::StepState;
using engine::Tensor;
using engine::parallel::chunk_range;
using engine::parallel::ChunkRange;

Tensor tensor_of(Backend& backend, std::span<const float> values) {
  Tensor tensor = backend.empty({static_cast<std::int64_t>(values.size())}, DType::f32);
  backend.upload(std::as_bytes(values), tensor);
  return tensor;
}

}  // namespace

bool agrees_by_construction(Check check) { return check != Check::local && check != Check::shards; }

std::vector<RankOutcome> run_ranks(Backend& backend, const Iteration& iteration, Check check) {
  const std::size_t ranks = iteration.gradients.size();
  const std::vector<float>& before = *iteration.weights;
  const bool sharded = check == Check::shards || check == Check::shards_max;
  const engine::amp::ScalePolicy policy = engine::amp::make_scale_policy(iteration.scaler);
  StepState initial = policy.initial;
  initial.learning_rate[0] = iteration.learning_rate;
  std::vector<Tensor> states;
  for (std::size_t rank = 0; rank < ranks; ++rank) states.push_back(backend.make_step_state(initial));
  const auto part_of = [&](std::span<const float> values, std::size_t rank) {
    const ChunkRange own = sharded
                               ? chunk_range(values.size(), static_cast<int>(rank), static_cast<int>(ranks))
                               : ChunkRange{0, values.size()};
    return values.subspan(own.begin, own.end - own.begin);
  };

  // Detect: the back end's unscale, on whatever the ranks look at; leaves every rank's own unscaled part of the
  // mean.
  const auto unscaled = [&](std::span<const float> gradient, std::size_t rank) {
    Tensor tensor = tensor_of(backend, gradient);
    backend.unscale(std::span(&tensor, 1), 0, states[rank]);
    return values_of(backend, tensor);
  };
  std::vector<std::vector<float>> parts;
  if (check == Check::local || check == Check::local_max) {
    for (std::size_t rank = 0; rank < ranks; ++rank)
      parts.push_back(unscaled(iteration.gradients[rank], rank));
    const Mean mean = reduce_mean({}, parts, 1.0);
    parts.assign(ranks, mean.values);
  } else {
    const Mean mean = reduce_mean({}, iteration.gradients, 1.0);  // still scaled
    for (std::size_t rank = 0; rank < ranks; ++rank)
      parts.push_back(unscaled(part_of(mean.values, rank), rank));
  }
  float found_inf = 0;
  for (const Tensor& state : states)
    found_inf = std::max(found_inf, backend.read_step_state(state).found_inf[0]);

  // Apply, and all-gather of the shards.
  std::vector<std::vector<float>> weights(ranks, before);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    StepState state = backend.read_step_state(states[rank]);
    if (check == Check::local_max || check == Check::shards_max) state.found_inf[0] = found_inf;
    ++(state.found_inf[0] != 0 ? state.skipped_steps : state.taken_steps)[0];
    backend.write_step_state(state, states[rank]);
    const std::span<const float> own = part_of(before, rank);
    Tensor weight = tensor_of(backend, own);
    backend.update({.rule = engine::UpdateRule::sgd,
                    .options = {},
                    .weight = weight,
                    .gradient = tensor_of(backend, parts[rank]),
                    .optimizer = 0,
                    .step = states[rank]});
    const std::vector<float> after = values_of(backend, weight);
    for (std::size_t other = 0; other < ranks; ++other)
      if (sharded || other == rank)
        std::ranges::copy(after, weights[other].begin() + (own.data() - before.data()));
  }

  // Decide.
  std::vector<RankOutcome> outcomes;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    RankOutcome& outcome = outcomes.emplace_back();
    outcome.skipped = backend.read_step_state(states[rank]).found_inf[0] != 0;
    backend.run(policy.update, states[rank]);
    outcome.scale = backend.read_step_state(states[rank]).scale;
    outcome.nonfinite_weights = static_cast<std::uint64_t>(
        std::ranges::count_if(weights[rank], [](float weight) { return !std::isfinite(weight); }));
    outcome.state_hash = backend.digest(tensor_of(backend, weights[rank]), stream_id("weights")) +
                         backend.digest(states[rank], stream_id("step_state"));
  }
  return outcomes;
}

std::size_t distinct_states(const std::vector<RankOutcome>& outcomes) {
  std::set<std::uint64_t> hashes;
  for (const RankOutcome& outcome : outcomes) hashes.insert(outcome.state_hash);
  return hashes.size();
}

}  // namespace fp16lab::experiments::allreduce
