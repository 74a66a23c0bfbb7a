#include "experiments/app/run/culprit_rows.hpp"

#include <array>
#include <string_view>
#include <vector>

#include "analysis/first_culprit.hpp"

namespace fp16lab::experiments {

namespace {

std::string_view name_of(engine::CulpritCause cause) {
  constexpr std::array<std::string_view, 6> names = {"operation", "infinity", "parameter",
                                                     "data",      "constant", "loss_scale"};
  return names[static_cast<std::size_t>(cause)];
}

std::vector<std::int64_t> extents(const engine::Shape& shape) {
  return {shape.extents().begin(), shape.extents().end()};
}

CulpritRow culprit_row(const engine::OverflowRecord& record, const engine::OverflowCulprit& culprit) {
  CulpritRow row;
  row.step = record.step;
  row.pass = culprit.pass == engine::CulpritPass::forward ? "forward" : "backward";
  row.cause = name_of(culprit.cause);
  row.op = culprit.op;
  row.part = culprit.part;
  row.layer = culprit.layer;
  row.tensor = culprit.tensor;
  row.dtype = culprit.dtype;
  row.shape = extents(culprit.shape);
  row.micro_batch = culprit.micro_batch;
  row.loss_scale = culprit.loss_scale;
  row.element = culprit.element;
  row.value = culprit.value;
  row.nonfinite = culprit.nonfinite;
  row.wide_value = culprit.wide_value;
  row.wide_greatest = culprit.wide_greatest;
  row.wide = culprit.wide;
  for (const engine::CulpritOperand& operand : culprit.operands)
    row.operands.push_back({.name = operand.name,
                            .dtype = operand.dtype,
                            .shape = extents(operand.shape),
                            .smallest = operand.smallest,
                            .greatest = operand.greatest,
                            .histogram = operand.histogram});
  row.reached = culprit.reached;
  if (culprit.pass == engine::CulpritPass::backward) row.finite_scale = record.finite_scale;
  analysis::advise(row);
  return row;
}

}  // namespace

std::vector<CulpritRow> culprit_rows(const engine::OverflowRecord& record) {
  std::vector<CulpritRow> rows;
  for (const engine::OverflowCulprit& culprit : record.culprits) rows.push_back(culprit_row(record, culprit));
  return rows;
}

}  // namespace fp16lab::experiments
