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

bool is_local(Check check) { return check == Check::local || check == Check::local_max; }
bool is_sharded(Check check) { return check == Check::shards || check == Check::shards_max; }

/// All ranks of one iteration; every member function is one thing that all of them do.
class Replicas {
 public:
  Replicas(Backend& backend, const Iteration& iteration)
      : backend_(&backend),
        iteration_(&iteration),
        policy_(engine::amp::make_scale_policy(iteration.scaler)) {
    StepState state = policy_.initial;
    state.learning_rate[0] = iteration.learning_rate;
    for (std::size_t rank = 0; rank < iteration.gradients.size(); ++rank)
      states_.push_back(backend.make_step_state(state));
  }

  /// detect: the back end's unscale, on whatever the ranks look at; leaves every rank's own unscaled part of
  /// the mean.
  void check_local() {
    std::vector<std::vector<float>> unscaled;
    for (std::size_t rank = 0; rank < states_.size(); ++rank)
      unscaled.push_back(this->unscaled(iteration_->gradients[rank], rank));
    const Mean mean = reduce_mean({}, unscaled, 1.0);
    parts_.assign(states_.size(), mean.values);
  }
  void check_mean(bool sharded) {
    const Mean mean = reduce_mean({}, iteration_->gradients, 1.0);  // still scaled
    for (std::size_t rank = 0; rank < states_.size(); ++rank) {
      const ChunkRange own = sharded ? shard(rank) : ChunkRange{0, mean.values.size()};
      parts_.push_back(unscaled(std::span(mean.values).subspan(own.begin, own.end - own.begin), rank));
    }
  }

  void reduce_found_inf() {
    float maximum = 0;
    for (const Tensor& state : states_)
      maximum = std::max(maximum, backend_->read_step_state(state).found_inf[0]);
    for (Tensor& tensor : states_) {
      StepState state = backend_->read_step_state(tensor);
      state.found_inf[0] = maximum;
      backend_->write_step_state(state, tensor);
    }
  }

  /// apply, and all-gather of the shards.
  void step(bool sharded) {
    const std::vector<float>& before = *iteration_->weights;
    weights_.assign(states_.size(), before);
    for (std::size_t rank = 0; rank < states_.size(); ++rank) {
      StepState state = backend_->read_step_state(states_[rank]);
      ++(state.found_inf[0] != 0 ? state.skipped_steps : state.taken_steps)[0];
      backend_->write_step_state(state, states_[rank]);
      const ChunkRange own = sharded ? shard(rank) : ChunkRange{0, before.size()};
      Tensor weight = tensor_of(*backend_, std::span(before).subspan(own.begin, own.end - own.begin));
      backend_->update({.rule = engine::UpdateRule::sgd,
                        .options = {},
                        .weight = weight,
                        .gradient = tensor_of(*backend_, parts_[rank]),
                        .optimizer = 0,
                        .step = states_[rank]});
      const std::vector<float> after = values_of(*backend_, weight);
      for (std::size_t other = 0; other < states_.size(); ++other)
        if (sharded || other == rank)
          std::ranges::copy(after, weights_[other].begin() + static_cast<std::ptrdiff_t>(own.begin));
    }
  }

  /// decide.
  std::vector<RankOutcome> update() {
    std::vector<RankOutcome> outcomes;
    for (std::size_t rank = 0; rank < states_.size(); ++rank) {
      RankOutcome outcome;
      outcome.skipped = backend_->read_step_state(states_[rank]).found_inf[0] != 0;
      backend_->run(policy_.update, states_[rank]);
      outcome.scale = backend_->read_step_state(states_[rank]).scale;
      outcome.nonfinite_weights = static_cast<std::uint64_t>(
          std::ranges::count_if(weights_[rank], [](float weight) { return !std::isfinite(weight); }));
      outcome.state_hash = backend_->digest(tensor_of(*backend_, weights_[rank]), stream_id("weights")) +
                           backend_->digest(states_[rank], stream_id("step_state"));
      outcomes.push_back(outcome);
    }
    return outcomes;
  }

 private:
  ChunkRange shard(std::size_t rank) const {
    return chunk_range(iteration_->weights->size(), static_cast<int>(rank), static_cast<int>(states_.size()));
  }
  std::vector<float> unscaled(std::span<const float> gradient, std::size_t rank) {
    Tensor tensor = tensor_of(*backend_, gradient);
    backend_->unscale(std::span(&tensor, 1), 0, states_[rank]);
    return values_of(*backend_, tensor);
  }

  Backend* backend_;
  const Iteration* iteration_;
  engine::amp::ScalePolicy policy_;
  std::vector<Tensor> states_;
  std::vector<std::vector<float>> parts_, weights_;
};

}  // namespace

bool agrees_by_construction(Check check) { return check != Check::local && check != Check::shards; }

std::vector<RankOutcome> run_ranks(engine::Backend& backend, const Iteration& iteration, Check check) {
  Replicas replicas(backend, iteration);
  if (is_local(check))
    replicas.check_local();
  else
    replicas.check_mean(is_sharded(check));
  if (check == Check::local_max || check == Check::shards_max) replicas.reduce_found_inf();
  replicas.step(is_sharded(check));
  return replicas.update();
}

std::size_t distinct_states(const std::vector<RankOutcome>& outcomes) {
  std::set<std::uint64_t> hashes;
  for (const RankOutcome& outcome : outcomes) hashes.insert(outcome.state_hash);
  return hashes.size();
}

}  // namespace fp16lab::experiments::allreduce
