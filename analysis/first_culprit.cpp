#include "analysis/first_culprit.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "numerics/formats/format_range.hpp"
#include "numerics/text/scale_text.hpp"

namespace fp16lab::analysis {

namespace {

bool is_narrow(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16; }

std::string shape_text(const std::vector<std::int64_t>& shape) {
  return fmt::format("({})", fmt::join(shape, ", "));
}

std::string index_text(std::uint64_t element, const std::vector<std::int64_t>& shape) {
  if (shape.empty()) return "";
  std::vector<std::uint64_t> index(shape.size());
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    const auto extent = static_cast<std::uint64_t>(std::max<std::int64_t>(shape[axis], 1));
    index[axis] = element % extent;
    element /= extent;
  }
  return fmt::format("[{}]", fmt::join(index, ", "));
}

/// Ops that no list can move to FP32: their dtype follows from their inputs or users.
bool has_list_entry(std::string_view op) {
  constexpr std::array<std::string_view, 4> none = {"", "leaf", "identity", "cast"};
  return std::find(none.begin(), none.end(), op) == none.end();
}

/// As std::to_string, in few digits, and no NaN has a sign.
std::string number_text(double value) { return std::isnan(value) ? "nan" : fmt::format("{:g}", value); }

/// "|x| in [0.01, 2], 3 of 8 zero"
std::string operand_text(const CulpritOperandRow& operand) {
  const ExponentHistogram& counts = operand.histogram;
  std::vector<std::string> facts;
  if (counts.zero > 0) facts.push_back(fmt::format("{} of {} zero", counts.zero, counts.total()));
  if (counts.infinite > 0) facts.push_back(fmt::format("{} of {} infinite", counts.infinite, counts.total()));
  if (counts.nan > 0) facts.push_back(fmt::format("{} of {} NaN", counts.nan, counts.total()));
  if (operand.smallest > 0)
    facts.insert(facts.begin(),
                 fmt::format("|{}| in [{:.3g}, {:.3g}]", operand.name, operand.smallest, operand.greatest));
  const std::string text = fmt::format("{}", fmt::join(facts, ", "));
  return operand.smallest > 0 ? text
                              : fmt::format("|{}|: {}", operand.name, facts.empty() ? "no elements" : text);
}

std::string operands_text(const CulpritRow& row) {
  std::vector<std::string> texts;
  for (const CulpritOperandRow& operand : row.operands) texts.push_back(operand_text(operand));
  return fmt::format("{}", fmt::join(texts, ", "));
}

bool has_zero(const CulpritOperandRow& operand) { return operand.histogram.zero > 0; }

/// How to keep the culprit's operation in FP32, as configuration.
std::string cast_text(const CulpritRow& row) {
  const std::string black = fmt::format("amp.black = [\"{}\"]", row.black);
  const std::string excluded = fmt::format("amp.excluded = [\"{}\"]", row.excluded);
  if (!row.black.empty() && !row.excluded.empty()) return excluded + " or " + black;
  return row.black.empty() ? excluded : black;
}

void name_cast(CulpritRow& row) {
  if (has_list_entry(row.op)) row.black = row.op;
  row.excluded = row.layer;
}

/// "S = 2^11 -> 2^8": the shift that the tensor needs.
std::string shift_text(const CulpritRow& row) {
  return fmt::format("S = {} -> {}", scale_text(row.loss_scale),
                     scale_text(std::ldexp(row.loss_scale, -static_cast<int>(row.binades))));
}

std::string binades_text(const CulpritRow& row) {
  return fmt::format("{} {}", row.binades, row.binades == 1 ? "binade" : "binades");
}

/// Advice for an overflow in a backward pass that a lower scale would have avoided: the scale at which the
/// step was tried, or what this tensor needs (`binades`), with the words that the rest of the step is not
/// known.
void advise_scale(CulpritRow& row) {
  row.verdict = CulpritVerdict::lower_scale;
  const std::string alone =
      row.binades == 0 ? ""
                       : fmt::format("a loss scale lower by {} ({})", binades_text(row), shift_text(row));
  if (!row.finite_scale) {
    row.advice = (alone.empty() ? "a lower loss scale" : alone) +
                 " would have saved this tensor; whether the rest of the step is finite there was not tested";
  } else if (*row.finite_scale == 0) {
    row.verdict = CulpritVerdict::unknown;
    row.advice =
        "no loss scale down to 2^-24 makes every gradient of this step finite (checked: its backward passes "
        "were repeated)";
    if (!alone.empty()) row.advice += "; for this tensor " + alone + " would do";
  } else {
    row.advice = fmt::format(
        "S = {} makes every gradient of this step finite, S = {} does not (checked: its backward passes were "
        "repeated)",
        scale_text(*row.finite_scale), scale_text(2 * *row.finite_scale));
    if (!alone.empty() && std::ldexp(row.loss_scale, -static_cast<int>(row.binades)) != *row.finite_scale)
      row.advice += "; for this tensor " + alone + " would do";
  }
}

/// The same where the tensor before its rounding is known.
void advise_binades(CulpritRow& row) {
  row.binades = std::max<std::uint64_t>(binades_above(row.wide_greatest, row.dtype), 1);
  if (row.part == "scale" &&
      row.tensor == row.layer) {  // a gradient on its way into a layer with a scale of its own
    row.verdict = CulpritVerdict::lower_scale;
    row.advice =
        fmt::format("a scale of this layer that is lower by {} would have saved it", binades_text(row));
    return;
  }
  advise_scale(row);
  if (row.op == "cast" || row.layer.empty()) return;
  name_cast(row);
  if (!row.black.empty() || !row.excluded.empty())
    row.advice += "; FP32 would have saved this tensor too: " + cast_text(row);
}

void advise_operation(CulpritRow& row) {
  const bool forward = row.pass == CulpritPass::forward;
  // The value exceeds FP32, or no row says by how much it exceeds FP16, but the row has a lower scale.
  const bool finite_lower = !forward && row.finite_scale && *row.finite_scale > 0;
  if (finite_lower && !(row.wide_value && std::isfinite(*row.wide_value))) return advise_scale(row);
  if (row.wide_value && !std::isfinite(*row.wide_value)) {
    // Without zeros, rounding to 16 bits moved the operands only a little.
    const bool zeros = std::any_of(row.operands.begin(), row.operands.end(), has_zero);
    row.verdict = zeros ? CulpritVerdict::unknown : CulpritVerdict::model;
    row.advice = fmt::format("{}{} also when computed in FP32 of these operands{}",
                             zeros ? "" : "the model: ", std::isnan(*row.wide_value) ? "NaN" : "Inf",
                             zeros ? ", which 16 bits may have rounded" : "");
    if (!forward && row.loss_scale > 1)
      row.advice += fmt::format(", with S = {}", scale_text(row.loss_scale));
    return;
  }
  if (!is_narrow(row.dtype)) return;
  if (!row.wide_value) {
    row.advice = forward ? "its value in FP32 is not known; an FP32 cast may save it"
                         : "its value in FP32 is not known; a lower loss scale or an FP32 cast may save it";
    if (has_list_entry(row.op) || !row.layer.empty()) {
      name_cast(row);
      row.advice += ": " + cast_text(row);
    }
    return;
  }
  if (!range_of(row.dtype).overflows(std::fabs(*row.wide_value))) {
    row.advice = "it fits into its dtype; an intermediate result did not";
    return;
  }
  if (!forward) return advise_binades(row);
  row.verdict = CulpritVerdict::fp32_cast;
  name_cast(row);
  if (row.tensor == "inputs") {
    row.advice =
        fmt::format("inputs beyond {}: scale the data down, or amp.low_inputs = false", name_of(row.dtype));
  } else {
    const bool has_keys = !row.black.empty() || !row.excluded.empty();
    row.advice = fmt::format(
        "an FP32 cast would have saved this value{}; whether the rest of the step is finite then was not "
        "tested",
        has_keys ? fmt::format(" ({})", cast_text(row)) : "");
  }
}

}  // namespace

std::uint64_t binades_above(double magnitude, DType dtype) {
  if (!(magnitude >= 0) || std::isinf(magnitude))
    throw std::invalid_argument(
        fmt::format("binades_above: magnitude {}; must be finite and >= 0", magnitude));
  const FormatRange range = range_of(dtype);
  std::uint64_t binades = 0;
  while (range.overflows(std::ldexp(magnitude, -static_cast<int>(binades))))
    ++binades;  // exact: far above subnormals
  return binades;
}

void advise(CulpritRow& row) {
  row.verdict = CulpritVerdict::unknown;
  row.black.clear();
  row.excluded.clear();
  row.binades = 0;
  row.advice.clear();
  if (row.cause == CulpritCause::operation) {
    advise_operation(row);
  } else if (row.cause == CulpritCause::data) {
    row.verdict = CulpritVerdict::data;
    row.advice = "the data: no cast and no loss scale helps; look at this batch";
  } else if (row.cause == CulpritCause::parameter) {
    row.verdict = CulpritVerdict::model;
    row.advice = "the model: this weight was not finite when the step began; look at the steps before it";
  } else if (row.cause == CulpritCause::constant) {
    row.verdict = CulpritVerdict::data;
    row.advice = "a target, or a constant of the model: no cast and no loss scale helps";
  } else if (row.cause == CulpritCause::infinity) {
    row.verdict = CulpritVerdict::model;
    row.advice = "the model: its own infinities (a mask?) met; no row may consist of them alone";
  } else if (row.cause == CulpritCause::loss_scale) {
    if (row.wide_value && std::isfinite(*row.wide_value))
      row.binades = std::max<std::uint64_t>(binades_above(row.wide_greatest, row.dtype), 1);
    advise_scale(row);
    row.advice += "; a loss in FP32 would have saved it too";
  }
}

std::string description(const CulpritRow& row) {
  std::string text;
  const std::string place = row.tensor + (row.shape.empty() ? "" : " " + shape_text(row.shape)) +
                            index_text(row.element, row.shape);
  if (row.cause == CulpritCause::operation || row.cause == CulpritCause::infinity) {
    const std::string part = row.part.empty() ? "" : fmt::format(" ({})", row.part);
    const std::string layer = row.layer.empty() ? "" : " in " + row.layer;
    text =
        fmt::format("{}{}{}{} gave {} = {} ({})", row.pass == CulpritPass::backward ? "the backward of " : "",
                    row.op, part, layer, place, number_text(row.value), name_of(row.dtype));
    text += row.cause == CulpritCause::operation ? " of finite operands" : " of operands with infinities";
  } else {
    text = fmt::format("{} = {} ({})", place, number_text(row.value), name_of(row.dtype));
  }
  if (row.wide_value && row.dtype != DType::f32)
    text += fmt::format(", {} in FP32{}", number_text(*row.wide_value),
                        std::isfinite(*row.wide_value) ? "" : " of these operands");
  if (!row.operands.empty()) text += "; " + operands_text(row);
  return text;
}

bool ToldOnce::is_new(const std::string& kind, std::uint64_t step, double loss_scale) {
  const auto found = std::ranges::find(kinds_, kind, &Kind::name);
  if (found == kinds_.end()) {
    kinds_.push_back({.name = kind, .told = step});
    return true;
  }
  if (found->told == step || (found->count > 0 && found->last == step)) return false;  // another micro-batch
  if (found->count++ == 0) {
    found->first = step;
    found->lowest = found->highest = loss_scale;
  }
  found->last = step;
  found->lowest = std::min(found->lowest, loss_scale);
  found->highest = std::max(found->highest, loss_scale);
  return false;
}

std::vector<std::string> ToldOnce::again() const {
  std::vector<std::string> lines;
  for (const Kind& kind : kinds_) {
    if (kind.count == 0) continue;
    const std::string steps = kind.count == 1 ? fmt::format("step {}", kind.first)
                              : kind.count == kind.last - kind.first + 1
                                  ? fmt::format("steps {} to {}", kind.first, kind.last)
                                  : fmt::format("{} steps from {} to {}", kind.count, kind.first, kind.last);
    const std::string scales =
        kind.lowest == kind.highest
            ? "a scale of " + scale_text(kind.lowest)
            : fmt::format("scales from {} down to {}", scale_text(kind.highest), scale_text(kind.lowest));
    lines.push_back(kinds_.size() == 1 ? fmt::format("the same in {}, at {}", steps, scales)
                                       : fmt::format("the same as in step {} ({}) in {}, at {}", kind.told,
                                                     kind.name, steps, scales));
  }
  return lines;
}

std::string kind_of(const CulpritRow& row) {
  if (row.op.empty()) return fmt::format("{} in the {} pass", row.tensor, name_of(row.pass));
  const std::string part = row.part.empty() ? "" : fmt::format(" ({})", row.part);
  const std::string layer = row.layer.empty() ? "" : " in " + row.layer;
  return fmt::format("{}{}{}{} gave {}", row.pass == CulpritPass::backward ? "the backward of " : "", row.op,
                     part, layer, row.tensor);
}

std::string culprit_line(const CulpritRow& row) {
  return fmt::format("step {}, {}, micro-batch {}: {}. Advice: {}{}", row.step, name_of(row.pass),
                     row.micro_batch, description(row), row.advice.empty() ? "none" : row.advice,
                     row.reached ? "" : " (it reached no gradient)");
}

}  // namespace fp16lab::analysis
