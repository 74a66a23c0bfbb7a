#include "experiments/app/run/tensorboard_feed.hpp"

#include <chrono>
#include <string>
#include <vector>

namespace fp16lab::experiments {

namespace {

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

void TensorboardFeed::on_gradient(const engine::GradientRecord& record) {
  writer_.exponents(record.step, wall_time(), "exponents/" + std::string(record.tensor), record.probe.before);
}

void TensorboardFeed::on_step(const engine::StepRecord& record) {
  std::vector<EventScalar> scalars = {{"loss", record.loss},
                                      {"loss_scale", record.loss_scale},
                                      {"grad_norm", record.grad_norm},
                                      {"lr", record.learning_rate},
                                      {"skipped", record.skipped ? 1.0 : 0.0}};
  if (record.underflow_rate) scalars.push_back({"underflow_rate", *record.underflow_rate});
  writer_.scalars(record.step, wall_time(), scalars);
}

void TensorboardFeed::on_evaluation(const engine::EvaluationRecord& record) {
  std::vector<EventScalar> scalars = {{"evaluation/loss", record.loss}};
  if (record.accuracy) scalars.push_back({"evaluation/accuracy", *record.accuracy});
  if (record.bits_per_character)
    scalars.push_back({"evaluation/bits_per_character", *record.bits_per_character});
  writer_.scalars(record.step, wall_time(), scalars);
}

}  // namespace fp16lab::experiments
