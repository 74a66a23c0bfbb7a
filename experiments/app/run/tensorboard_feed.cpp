#include "experiments/app/run/tensorboard_feed.hpp"

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace fp16lab::experiments {

namespace {

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// What the row's description calls a curve, under its name after `group`.
template <class Row>
void write_curves(TensorboardWriter& writer, const Row& row, const std::string& group) {
  std::vector<std::pair<std::string, double>> values;
  for_each_field<Row>([&](const auto& field) {
    if (!field.traits.curve) return;
    const auto& value = row.*field.member;
    if constexpr (std::is_arithmetic_v<std::remove_cvref_t<decltype(value)>>)
      values.emplace_back(group + std::string(field.name), static_cast<double>(value));
    else if constexpr (std::is_same_v<std::remove_cvref_t<decltype(value)>, std::optional<double>>)
      if (value) values.emplace_back(group + std::string(field.name), *value);
  });
  std::vector<EventScalar> scalars;
  for (const auto& [tag, value] : values) scalars.push_back({tag, value});
  writer.scalars(row.step, wall_time(), scalars);
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

void TensorboardFeed::on_step(const StepRow& row) { write_curves(writer_, row, ""); }

void TensorboardFeed::on_evaluation(const EvaluationRow& row) { write_curves(writer_, row, "evaluation/"); }

}  // namespace fp16lab::experiments
