// A network whose overflows are known by hand: two linear layers with weights from literals, and anything in
// between.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/nn/linear.hpp"
#include "tests/engine/train/recipe_support.hpp"

namespace fp16lab::engine::test {

/// fc1 (6 -> 5) has weight[o][0] = first and nothing else; fc2 (5 -> 3) as given; no biases' values.
struct CulpritNetOptions {
  float first = 1.0f;
  std::vector<float> second = std::vector<float>(15, 0.0f);
  std::function<Variable(Tape&, const Variable&)> between = {};  ///< default: relu
};

class CulpritNet final : public nn::Module {
 public:
  CulpritNet(Backend& backend, CulpritNetOptions options)
      : options_(std::move(options)),
        fc1_(add_child(std::make_unique<nn::Linear>(
            backend, "fc1", nn::LinearOptions{.inputs = 6, .outputs = 5, .seed = 3}))),
        fc2_(add_child(std::make_unique<nn::Linear>(
            backend, "fc2", nn::LinearOptions{.inputs = 5, .outputs = 3, .seed = 3}))) {
    if (options_.between) add_scope("act");
    std::vector<float> first(30, 0.0f);
    for (std::size_t o = 0; o < 5; ++o) first[o * 6] = options_.first;
    for (Parameter* parameter : parameters()) {
      std::vector<float> values(static_cast<std::size_t>(parameter->value.element_count()), 0.0f);
      if (parameter->name == "fc1.weight") values = first;
      if (parameter->name == "fc2.weight") values = options_.second;
      backend.upload(std::as_bytes(std::span(values)), parameter->value);
    }
  }
  Variable forward(Tape& tape, const Variable& x) override {
    const Variable h = fc1_.forward(tape, x);
    return fc2_.forward(tape, options_.between ? options_.between(tape, h) : ops::relu(h));
  }

 private:
  CulpritNetOptions options_;
  nn::Linear& fc1_;
  nn::Linear& fc2_;
};

/// Batches of `rows` rows whose first feature is `value`, the others 0; the class is always `label`.
inline std::vector<HostBatch> equal_rows(std::int64_t rows, float value, std::int32_t label = 0,
                                         std::size_t count = 1) {
  HostBatch batch{.shape = {rows, 6}, .inputs = {}};
  for (std::int64_t row = 0; row < rows; ++row) {
    batch.labels.push_back(label);
    for (int i = 0; i < 6; ++i) batch.inputs.push_back(i == 0 ? value : 0.0f);
  }
  return std::vector<HostBatch>(count, batch);
}

/// One step at O1 with a fixed scale, explained.
inline RunSetup one_step(double scale) {
  RunSetup setup;
  setup.train = {.steps = 1, .seed = 3};
  setup.scaler = {.policy = "fixed", .initial_scale = scale};
  return setup;
}

inline std::unique_ptr<MethodRun> culprit_run(std::vector<HostBatch> batches, const CulpritNetOptions& net,
                                              const RunSetup& setup) {
  auto run = std::make_unique<MethodRun>(
      std::move(batches), [net](Backend& backend) { return std::make_unique<CulpritNet>(backend, net); },
      MethodRun::MakeMethod{}, setup);
  run->recorder.explain = true;
  return run;
}

}  // namespace fp16lab::engine::test
