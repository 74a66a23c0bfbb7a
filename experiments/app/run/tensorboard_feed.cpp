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

void TensorboardFeed::on_tensor(const HistogramRow& row) {
  const std::string_view group = row.observed == Observed::gradients ? "exponents" : name_of(row.observed);
  writer_.exponents(row.step, wall_time(), std::string(group) + "/" + row.tensor, row.before);
  if (!row.unmoved) return;
  const std::string tag = "unmoved/" + row.tensor;
  const EventScalar unmoved{tag, static_cast<double>(*row.unmoved)};
  writer_.scalars(row.step, wall_time(), std::vector{unmoved});
}

void TensorboardFeed::on_step(const StepRow& row) {
  std::vector<EventScalar> scalars = {{"loss", row.loss},
                                      {"loss_scale", row.loss_scale},
                                      {"grad_norm", row.grad_norm},
                                      {"lr", row.lr},
                                      {"skipped", row.skipped ? 1.0 : 0.0}};
  if (row.underflow_rate) scalars.push_back({"underflow_rate", *row.underflow_rate});
  writer_.scalars(row.step, wall_time(), scalars);
}

void TensorboardFeed::on_evaluation(const EvaluationRow& row) {
  std::vector<EventScalar> scalars = {{"evaluation/loss", row.loss}};
  if (row.accuracy) scalars.push_back({"evaluation/accuracy", *row.accuracy});
  if (row.bits_per_character) scalars.push_back({"evaluation/bits_per_character", *row.bits_per_character});
  writer_.scalars(row.step, wall_time(), scalars);
}

}  // namespace fp16lab::experiments
