// What the tests of training methods share: runs on batches from literals, and the pieces of a training loop
// written by hand: host arithmetic for unscale, clip, step and policy, explicit casts for O1.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/data/batch_source.hpp"
#include "engine/train/trainer.hpp"
#include "tests/engine/autograd/support.hpp"
#include "tests/engine/train/training_run.hpp"

namespace fp16lab::engine::test {

/// labels (rows) for a classification, or values (rows, outputs) for a regression.
struct HostBatch {
  Shape shape;
  std::vector<float> inputs;
  std::vector<std::int32_t> labels = {};
  HostTensor values = {};
};

/// The given batches, again and again.
class FixedBatches final : public data::BatchSource {
 public:
  explicit FixedBatches(std::vector<HostBatch> batches) : batches_(std::move(batches)) {}
  std::uint64_t batches_per_epoch() const override { return batches_.size(); }
  std::int64_t rows_per_batch() const override { return batches_.front().shape[0]; }
  data::Batch batch(Backend& backend, std::uint64_t index) override {
    const HostBatch& host = at(index);
    return {.inputs = tensor_of(backend, host.shape, host.inputs),
            .targets = host.labels.empty() ? tensor_of(backend, host.values.shape, host.values.values)
                                           : index_of(backend, host.labels)};
  }
  const HostBatch& at(std::uint64_t index) const { return batches_[index % batches_.size()]; }

 private:
  std::vector<HostBatch> batches_;
};

/// `count` batches of 4 rows with 6 features, of which the class (of 3) raises two. Multiples of 1/64 below
/// 2.
inline std::vector<HostBatch> class_batches(std::size_t count) {
  std::vector<HostBatch> batches;
  for (std::size_t b = 0; b < count; ++b) {
    HostBatch batch{.shape = {4, 6}, .inputs = {}};
    for (std::size_t row = 0; row < 4; ++row) {
      const std::size_t label = (b * 5 + row * 2 + b * row) % 3;
      batch.labels.push_back(static_cast<std::int32_t>(label));
      for (std::size_t i = 0; i < 6; ++i) {
        const auto noise = static_cast<float>((b * 29 + row * 13 + i * 7 + row * i) % 32) / 64.0f;
        batch.inputs.push_back(noise + (i / 2 == label ? 1.0f : 0.0f));
      }
    }
    batches.push_back(std::move(batch));
  }
  return batches;
}

/// A trainer with all that it needs. Without `method`: Supervised.
struct MethodRun {
  using MakeModel = std::function<std::unique_ptr<nn::Module>(Backend&)>;
  using MakeMethod = std::function<std::unique_ptr<TrainingMethod>()>;

  MethodRun(std::vector<HostBatch> batches, const MakeModel& make_model, const MakeMethod& make_method,
            const RunSetup& setup, LossKind loss = LossKind::cross_entropy, int threads = 1)
      : backend(hopper_backend(threads)),
        training(std::move(batches)),
        workload(workload_of(make_model, make_method, loss)),
        trainer(*backend, workload, setup.train, setup.amp, setup.scaler, setup.optimizer, recorder) {}

  Workload workload_of(const MakeModel& make_model, const MakeMethod& make_method, LossKind loss) {
    Workload made;
    made.model = make_model(*backend);
    made.training = &training;
    made.evaluation = &training;
    made.loss = loss;
    if (make_method) made.method = make_method();
    return made;
  }
  /// By parameter, in the model's order.
  std::vector<std::vector<float>> weights() {
    std::vector<std::vector<float>> all;
    for (const Parameter* parameter : trainer.parameters())
      all.push_back(values_of(*backend, parameter->value));
    return all;
  }
  /// The gradients of the last step: unscaled, and clipped where it clips.
  std::vector<std::vector<float>> gradients() {
    std::vector<std::vector<float>> all;
    for (const Parameter* parameter : trainer.parameters())
      all.push_back(values_of(*backend, parameter->gradient));
    return all;
  }

  std::unique_ptr<Backend> backend;
  FixedBatches training;
  Recorder recorder;
  Workload workload;
  Trainer trainer;
};

inline std::vector<std::uint64_t> hashes_of(const MethodRun& run) {
  std::vector<std::uint64_t> all;
  for (const StepRow& record : run.recorder.steps) all.push_back(record.state_hash);
  return all;
}

/// The same bits with one thread and two, in every step.
inline void expect_the_same_with_two_threads(
    const std::function<std::unique_ptr<MethodRun>(int threads)>& make) {
  const auto one = make(1), two = make(2);
  one->trainer.run();
  two->trainer.run();
  EXPECT_EQ(hashes_of(*one), hashes_of(*two));
  EXPECT_EQ(one->weights(), two->weights());
}

/// A run of `make` that is interrupted at each step in turn, and resumed by another trainer from the
/// checkpoint, goes on with the same bits. Some steps must have been skipped, and some not.
inline void expect_the_same_after_resuming(const std::function<std::unique_ptr<MethodRun>()>& make,
                                           const std::filesystem::path& folder) {
  const auto whole = make();
  whole->recorder.folder = folder;
  const RunResult result = whole->trainer.run();
  EXPECT_GT(result.skipped_steps, 0u) << "checkpoints of skipped steps are wanted too";
  EXPECT_LT(result.skipped_steps, result.steps);
  const std::vector<StepRow>& steps = whole->recorder.steps;
  for (std::uint64_t after = 1; after < result.steps; ++after) {
    const auto tail = make();
    tail->trainer.resume(CheckpointFile(folder / std::to_string(after)));
    tail->trainer.run();
    expect_same_tail(steps, tail->recorder.steps, after);
    EXPECT_EQ(tail->weights(), whole->weights()) << "after " << after;
    EXPECT_EQ(tail->recorder.evaluations.back().loss, whole->recorder.evaluations.back().loss);
  }
}

/// At every level of every dialect, two steps that skip nothing move the weights. `make` makes a run of a
/// setup; `o1` is that setup but for level, dialect, scale and steps.
template <class Make>
void expect_every_level_trains(const RunSetup& o1, const Make& make) {
  for (const amp::Dialect dialect : every<amp::Dialect>) {
    for (const Level level : amp::levels_of(dialect)) {
      SCOPED_TRACE(std::string(name_of(dialect)) + " " + std::string(name_of(level)));
      RunSetup setup = o1;
      setup.amp = {.level = level, .dialect = dialect};
      setup.scaler.initial_scale = 16;
      setup.train.steps = 2;
      MethodRun run = make(setup);
      const auto before = run.weights();
      EXPECT_EQ(run.trainer.run().skipped_steps, 0u);
      EXPECT_NE(run.weights(), before);
    }
  }
}

// ---- a training loop by hand ------------------------------------------------------------------------------

using HostValues = std::vector<std::vector<float>>;  ///< by parameter

/// One model: FP32 weights, velocities, and what SGD does to them. One rounding per operation, as torch.
struct HandModel {
  std::vector<Shape> shapes;
  HostValues weights;
  HostValues velocities = {};
  std::uint64_t taken = 0, skipped = 0;

  void step(const HostValues& gradients, bool found_inf, float learning_rate, float momentum) {
    if (found_inf) {
      ++skipped;
      return;
    }
    ++taken;
    if (taken == 1) velocities = gradients;
    for (std::size_t p = 0; p < weights.size(); ++p) {
      for (std::size_t i = 0; i < weights[p].size(); ++i) {
        float& v = velocities[p][i];
        if (taken > 1) {
          const float kept = momentum * v;
          v = kept + gradients[p][i];
        }
        const float moved = learning_rate * v;
        weights[p][i] = weights[p][i] - moved;
      }
    }
  }
  /// FP32 leaves on the tape.
  std::vector<Variable> leaves(Tape& tape) const {
    std::vector<Variable> all;
    for (std::size_t p = 0; p < weights.size(); ++p)
      all.push_back(tape.input(tensor_of(tape.backend(), shapes[p], weights[p])));
    return all;
  }
};

/// The parameters of `model` as they are.
inline HandModel hand_model(Backend& backend, const nn::Module& model) {
  HandModel hand;
  for (const Parameter* parameter : model.parameters()) {
    hand.shapes.push_back(parameter->value.shape());
    hand.weights.push_back(values_of(backend, parameter->value));
  }
  return hand;
}

/// f16 under O1, else x.
inline Variable low_if(bool o1, const Variable& x) { return o1 ? ops::cast(x, DType::f16) : x; }

inline std::vector<Variable> low_if(bool o1, const std::vector<Variable>& all) {
  std::vector<Variable> low;
  low.reserve(all.size());
  for (const Variable& x : all) low.push_back(low_if(o1, x));
  return low;
}

/// A perceptron with ReLU from parameters (weight, bias, weight, bias, ...) and x of one dtype.
inline Variable perceptron(const std::vector<Variable>& parameters, Variable x) {
  for (std::size_t i = 0; i < parameters.size(); i += 2) {
    if (i > 0) x = ops::relu(x);
    x = ops::linear(x, parameters[i], parameters[i + 1]);
  }
  return x;
}

/// d(S * output)/d(leaves) as host values.
inline HostValues scaled_gradients(Tape& tape, const Variable& output, float scale,
                                   const std::vector<Variable>& leaves, bool retain_graph = false) {
  const std::vector<Variable> outputs{output};
  const std::vector<Tensor> seeds{tensor_of(tape.backend(), Shape{}, {scale})};
  HostValues all;
  for (const Variable& gradient :
       tape.gradients(outputs, seeds, leaves, {.retain_graph = retain_graph, .allow_unused = true}))
    all.push_back(values_of(tape.backend(), gradient.tensor()));
  return all;
}

inline void add_to(HostValues& sum, const HostValues& more) {
  if (sum.empty()) {
    sum = more;
    return;
  }
  for (std::size_t p = 0; p < sum.size(); ++p)
    for (std::size_t i = 0; i < sum[p].size(); ++i) sum[p][i] = sum[p][i] + more[p][i];
}

/// Multiplies by float(1 / S); returns whether anything was not finite before.
inline bool unscale_by_hand(HostValues& gradients, double scale) {
  const auto inverse = static_cast<float>(1.0 / scale);
  bool found_inf = false;
  for (auto& part : gradients) {
    for (float& g : part) {
      found_inf = found_inf || !std::isfinite(g);
      g = g * inverse;
    }
  }
  return found_inf;
}

/// The L2 norm as design rule TREE orders it: 32 lanes, folded by halves. At most 1024 elements a tensor.
inline double norm_by_hand(const HostValues& gradients) {
  double total = 0;
  for (const auto& part : gradients) {
    std::vector<double> lanes;
    for (std::size_t i = 0; i < part.size(); ++i) {
      const double square = static_cast<double>(part[i]) * static_cast<double>(part[i]);
      if (i < 32) {
        lanes.push_back(square);
      } else {
        lanes[i % 32] += square;
      }
    }
    for (std::size_t distance = 16; distance > 0; distance /= 2)
      for (std::size_t lane = 0; lane < distance && lane + distance < lanes.size(); ++lane)
        lanes[lane] += lanes[lane + distance];
    total += lanes.front();
  }
  return std::sqrt(total);
}

/// Where the norm is finite and above max_norm.
inline void clip_by_hand(HostValues& gradients, double max_norm) {
  const double norm = norm_by_hand(gradients);
  if (!std::isfinite(norm) || norm <= max_norm) return;
  const auto factor = static_cast<float>(max_norm / (norm + 1e-6));
  for (auto& part : gradients)
    for (float& g : part) g = g * factor;
}

/// torch's dynamic scale with factors 2 and 1/2.
struct HandScale {
  double scale = 1;
  std::int64_t interval = 2000;
  std::int64_t good = 0;
  void update(bool found_inf) {
    if (found_inf) {
      scale /= 2;
      good = 0;
    } else if (++good == interval) {
      scale *= 2;
      good = 0;
    }
  }
};

}  // namespace fp16lab::engine::test
