// The rows of a run folder: what observers hand over, files store and reports read. Each is described where
// it is declared (record.hpp); `fp16lab list records '*'` and the manual show the descriptions.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "numerics/files/run/observed.hpp"
#include "numerics/files/run/record.hpp"
#include "numerics/formats/dtype.hpp"
#include "numerics/histogram/exponent_histogram.hpp"

namespace fp16lab {

struct StepRow {
  FP16LAB_RECORD(StepRow, "steps.csv", 1, "One optimizer iteration, after its update or skip.");
  FP16LAB_FIELD(std::uint64_t, step, 0, "the iteration, counted from 1; skipped ones count too");
  FP16LAB_FIELD(double, loss, 0, "the unscaled training loss, mean over the micro-batches", .curve = true);
  FP16LAB_FIELD(
      double, loss_scale, 1,
      "the loss scale of this step, not of the next; with scaler.per_loss that of loss 0; in a step "
      "that was rescued that of its last backward pass",
      .curve = true);
  FP16LAB_FIELD(bool, found_inf, false, "some optimizer's gradients held an Inf or NaN");
  FP16LAB_FIELD(bool, skipped, false, "an optimizer skipped its update", .curve = true);
  FP16LAB_FIELD(
      double, grad_norm, 0,
      "L2 norm of the unscaled gradients of all optimizers, before clipping; it is not finite where "
      "found_inf is set",
      .curve = true);
  FP16LAB_FIELD(double, lr, 0, "learning rate of the first optimizer", .curve = true);
  FP16LAB_FIELD(std::optional<double>, underflow_rate, {},
                "the share of the finite, non-zero gradients that the casts of this step made zero; no value "
                "where nothing was counted or cast (in older folders: the share that FP16 would make zero, "
                "whatever they were stored in)",
                .curve = true);
  FP16LAB_FIELD(std::uint64_t, state_hash, 0, "a digest of weights, optimizer state and StepState",
                .hex = true);
  FP16LAB_FIELD(double, seconds, 0, "how long the step took", .unit = "s");
  FP16LAB_FIELD(std::optional<double>, epoch, {}, "passes over the training data so far", .since = 3);
  FP16LAB_RECORD_END(StepRow);
};

struct EvaluationRow {
  FP16LAB_RECORD(EvaluationRow, "evaluations.csv", 1, "One evaluation.");
  FP16LAB_FIELD(std::uint64_t, step, 0, "the iteration after which it was made");
  FP16LAB_FIELD(std::string, split, {}, "\"train\" or \"test\"");
  FP16LAB_FIELD(double, loss, 0, "the mean loss over the split", .curve = true);
  FP16LAB_FIELD(std::optional<double>, accuracy, {}, "the share of right answers (classifiers only)",
                .curve = true);
  FP16LAB_FIELD(std::optional<double>, bits_per_character, {},
                "loss / ln 2 x bytes of a character (language models only)", .since = 2, .unit = "bit",
                .curve = true);
  FP16LAB_RECORD_END(EvaluationRow);
};

struct RunMemory {
  FP16LAB_RECORD(RunMemory, "manifest.json: memory", 3,
                 "How many bytes tensors took in the first two steps of a run. The memory pool counts "
                 "`activations` and `peak` in whole blocks; the others follow from shapes and dtypes.");
  FP16LAB_FIELD(std::uint64_t, parameters, 0, "parameters as the network computes with them", .unit = "B");
  FP16LAB_FIELD(std::uint64_t, masters, 0, "FP32 copies of 16-bit weights", .unit = "B");
  FP16LAB_FIELD(std::uint64_t, gradients, 0, "the gradients of all trained parameters at once", .unit = "B");
  FP16LAB_FIELD(std::uint64_t, optimizer, 0, "the state of optimizers, such as momenta", .unit = "B");
  FP16LAB_FIELD(std::uint64_t, activations, 0,
                "what was kept when the second step's first backward pass began: the step's inputs, what its "
                "forward pass keeps for the backward pass, and casts of inputs and weights",
                .unit = "B");
  FP16LAB_FIELD(
      std::uint64_t, peak, 0,
      "the most bytes in use at once, scratch included; it is less than the sum of the others where "
      "activations are freed while gradients are made",
      .unit = "B");
  FP16LAB_RECORD_END(RunMemory);
};

struct HistogramRow {
  FP16LAB_RECORD(
      HistogramRow, "histograms.jsonl", 1,
      "The values of one tensor in one step, before and after the rounding to its stored dtype, summed over "
      "its uses in the step (micro-batches, time steps). Where nothing is rounded, both histograms are the "
      "same. `observed` says what the values are:\n"
      "- `gradients`: they are counted where they are rounded to their stored dtype, or stored in FP32. They "
      "still carry `loss_scale`, which is 1 in all other rows\n"
      "- `activations`: what a layer takes (\"fc2.input\") and what it gives (\"fc2.output\"): an input "
      "before and after its cast to 16 bits, an output before and after it leaves the accumulators of its "
      "product\n"
      "- `weights`: \"fc2.weight\" in the step's forward pass: before is the stored value, after is the copy "
      "in 16 bits that the network computes with; each dtype of such a copy has a row\n"
      "- `updates`: magnitudes of (w' - w) / w, computed in FP32, where w is the weight before the step and "
      "w' after it. Without a master copy, FP16 certainly loses an update below 2^-12 and BF16 one below "
      "2^-9; neither loses one above twice that where w is a normal number. A weight that does not change "
      "counts as zero, one that leaves 0 as infinite. Skipped steps and parameters without a gradient have "
      "no row\n"
      "- `optimizer_state`: the state after the step, under the names of checkpoints: "
      "\"fc2.weight.second_moment\"\n"
      "Each histogram is {zero, inf, nan, first_exponent, counts, smallest, greatest}, where counts[i] "
      "belongs to the bin (2^(first_exponent+i), 2^(first_exponent+i+1)] and empty bins at both ends are "
      "left out; smallest and greatest are the magnitudes of the smallest and the greatest finite value that "
      "is not zero. Without such a value they are absent. Older folders lack them, and have everything below "
      "2^-127 in the bin of -127. With scales of layers the uses of one tensor in a step may carry several "
      "scales: bins are then moved to the largest scale. Zeros stay as rounding made them, so after.zero - "
      "before.zero values were lost; `before` alone shows what would be lost if all uses had the largest "
      "scale.");
  FP16LAB_FIELD(std::uint64_t, step, 0, "the iteration");
  FP16LAB_FIELD(std::string, tensor, {}, "\"fc1.weight\", \"fc2.input\", \"loss.prediction\"");
  FP16LAB_FIELD(Observed, observed, Observed::gradients, "what the values are; left out of rows of gradients",
                .since = 3, .left_out = true);
  FP16LAB_FIELD(std::string, kind, {},
                "what the tensor belongs to: \"weight\" (any parameter) or \"activation\"");
  FP16LAB_FIELD(DType, dtype, DType::f32,
                "the stored dtype; e4m3 or e5m2 mark a cast inside a product, whose tensor is stored wider");
  FP16LAB_FIELD(
      bool, intermediate, false,
      "the rounding is between the gradients of layers, where loss-scale policies do not look; left "
      "out of the other rows",
      .since = 2, .left_out = true);
  FP16LAB_FIELD(double, loss_scale, 1, "S, times the layer's own scale if it has one");
  FP16LAB_FIELD(
      std::optional<std::uint64_t>, unmoved, {},
      "how many elements have a gradient that is not zero and kept their stored bits (updates only)",
      .since = 3, .left_out = true);
  FP16LAB_FIELD(ExponentHistogram, before, {}, "the values before rounding to `dtype`, in FP32");
  FP16LAB_FIELD(ExponentHistogram, after, {}, "the values as stored");
  FP16LAB_RECORD_END(HistogramRow);
};

struct RecipeRow {
  FP16LAB_RECORD(
      RecipeRow, "recipe.jsonl", 3,
      "What one operand of one product of a layer lost as codes with scales for blocks "
      "(amp.recipe, lab.recipe), in one step whose tensors are counted (observe.histograms_every), summed "
      "over its uses in it.");
  FP16LAB_FIELD(std::uint64_t, step, 0, "the iteration");
  FP16LAB_FIELD(std::string, tensor, {},
                "\"fc1.input\", \"fc1.weight\"; \"fc1.output\": the gradient of what the layer gives");
  FP16LAB_FIELD(std::string, product, {},
                "\"forward\": y = x W^T, \"dx\": the gradient of y times W, \"dw\": its transpose times x");
  FP16LAB_FIELD(std::uint64_t, values, 0, "numbers of the operand, without those that fill its last blocks");
  FP16LAB_FIELD(std::uint64_t, made_zero, 0, "numbers that are not zero whose codes are");
  FP16LAB_FIELD(std::uint64_t, saturated, 0, "finite numbers beyond the largest code, which became it");
  FP16LAB_FIELD(std::uint64_t, blocks, 0, "that have a headroom: neither zeros alone, nor with Inf or NaN");
  FP16LAB_FIELD(std::uint64_t, saturated_blocks, 0, "in which a number saturated");
  FP16LAB_FIELD(std::optional<double>, least_headroom, {},
                "binades by which the greatest magnitude of a block is below the largest code times the "
                "scale; negative where it is above it",
                .unit = "binades");
  FP16LAB_FIELD(std::optional<double>, mean_headroom, {}, "the same, mean over the blocks",
                .unit = "binades");
  FP16LAB_RECORD_END(RecipeRow);

  /// What both lost together, under the names of this one.
  RecipeRow& operator+=(const RecipeRow& other);
};

enum class OverflowKind {
  gradient,  ///< a gradient was not finite
  loss,      ///< a 16-bit loss times the loss scale was beyond its dtype, and all gradients were finite
  both,
};
constexpr std::array<std::string_view, 3> names_of(OverflowKind) { return {"gradient", "loss", "both"}; }

struct RescueRow {
  FP16LAB_RECORD(RescueRow, "overflows.jsonl: rescue", 2,
                 "The backward pass of an overflowed step was done again at lower scales (scaler.rescue).");
  FP16LAB_FIELD(std::uint64_t, attempts, 0, "how often it was done again");
  FP16LAB_FIELD(double, loss_scale, 1, "the loss scale of the last attempt");
  FP16LAB_FIELD(bool, rescued, false, "the last attempt did not overflow, and the step was taken");
  FP16LAB_RECORD_END(RescueRow);
};

struct OverflowRow {
  FP16LAB_RECORD(OverflowRow, "overflows.jsonl", 2,
                 "A step in which something overflowed. Where lower scales were tried, kind, loss_scale and "
                 "parameters describe the first backward pass.");
  FP16LAB_FIELD(std::uint64_t, step, 0, "the iteration");
  FP16LAB_FIELD(OverflowKind, kind, OverflowKind::gradient,
                "what was not finite: a gradient, a 16-bit loss times the loss scale, or both");
  FP16LAB_FIELD(double, loss_scale, 1, "the loss scale of this step");
  FP16LAB_FIELD(std::vector<std::string>, optimizers, {},
                "the optimizers that skipped their update, named after the group of their parameters");
  FP16LAB_FIELD(std::vector<std::string>, parameters, {},
                "the parameters whose gradients held an Inf or NaN");
  FP16LAB_FIELD(std::optional<RescueRow>, rescue, {}, "how trying lower scales went, where it was tried",
                .left_out = true);
  FP16LAB_RECORD_END(OverflowRow);
};

enum class CulpritPass { forward, backward };
constexpr std::array<std::string_view, 2> names_of(CulpritPass) { return {"forward", "backward"}; }

enum class CulpritCause {
  operation,   ///< an operation gave an Inf or NaN, and all of its operands were finite
  infinity,    ///< an operation gave a NaN of operands that held infinities on purpose (a mask)
  parameter,   ///< a weight was not finite when the step began
  data,        ///< the batch holds an Inf or NaN
  constant,    ///< so does a constant of the model or a target
  loss_scale,  ///< S, or the loss times S, is beyond the loss's dtype
};
constexpr std::array<std::string_view, 6> names_of(CulpritCause) {
  return {"operation", "infinity", "parameter", "data", "constant", "loss_scale"};
}

/// What would have saved a value that overflowed.
enum class CulpritVerdict {
  fp32_cast,    ///< FP16 was too narrow in the forward pass
  lower_scale,  ///< S was too large
  model,        ///< it was no number in FP32 either
  data,         ///< nor in the batch
  unknown,
};
constexpr std::array<std::string_view, 5> names_of(CulpritVerdict) {
  return {"fp32_cast", "lower_scale", "model", "data", "unknown"};
}

struct CulpritOperandRow {
  FP16LAB_RECORD(CulpritOperandRow, "culprits.jsonl: operands", 2,
                 "A value that went into the operation at fault.");
  FP16LAB_FIELD(std::string, name, {}, "\"fc2.weight\", \"gradient\", \"relu of fc1\"");
  FP16LAB_FIELD(DType, dtype, DType::f32, "the stored dtype");
  FP16LAB_FIELD(std::vector<std::int64_t>, shape, {}, "extents, outermost first");
  FP16LAB_FIELD(double, smallest, 0, "the smallest finite magnitude that is not zero; 0: there is none");
  FP16LAB_FIELD(double, greatest, 0, "the greatest finite magnitude");
  FP16LAB_FIELD(ExponentHistogram, histogram, {}, "the histogram of its values");
  FP16LAB_RECORD_END(CulpritOperandRow);
};

struct CulpritRow {
  FP16LAB_RECORD(
      CulpritRow, "culprits.jsonl", 2,
      "The operation that made the first non-finite value of a pass, in a step with an overflow, and its "
      "operands. The engine finds the facts; analysis::advise() gives verdict, black, excluded, binades and "
      "advice.");
  FP16LAB_FIELD(std::uint64_t, step, 0, "the iteration");
  FP16LAB_FIELD(CulpritPass, pass, CulpritPass::forward, "the pass in which the value was made");
  FP16LAB_FIELD(CulpritCause, cause, CulpritCause::operation, "what brought the Inf or NaN into the pass");
  FP16LAB_FIELD(std::string, op, {},
                "the operation, as op lists name it; in a backward pass the one whose gradient was computed");
  FP16LAB_FIELD(
      std::string, part, {},
      "the operation inside of `op` that made the value, if it is another one: \"cast\", \"matmul\"");
  FP16LAB_FIELD(std::string, layer, {}, "the path of its module; empty: outside of all modules");
  FP16LAB_FIELD(std::string, tensor, {},
                "\"fc2.output\"; gradients are named as in histograms.jsonl: \"fc2.input\"");
  FP16LAB_FIELD(DType, dtype, DType::f32, "the stored dtype");
  FP16LAB_FIELD(std::vector<std::int64_t>, shape, {}, "extents, outermost first");
  FP16LAB_FIELD(std::uint64_t, micro_batch, 0, "the micro-batch, counted from 0");
  FP16LAB_FIELD(double, loss_scale, 1,
                "the loss scale of the backward pass, or of the last one before a forward pass");
  FP16LAB_FIELD(std::uint64_t, element, 0, "the first element that is not finite, row-major");
  FP16LAB_COMPUTED_FIELD(std::vector<std::uint64_t>, index,
                         "the position of that element on each axis, outermost first");
  FP16LAB_FIELD(double, value, 0, "the value there: an infinity or NaN");
  FP16LAB_FIELD(std::uint64_t, nonfinite, 0, "how many elements are not finite");
  FP16LAB_FIELD(std::optional<double>, wide_value, {}, "that element before it was rounded to 16 bits");
  FP16LAB_FIELD(double, wide_greatest, 0, "the greatest finite magnitude of its tensor before rounding");
  FP16LAB_FIELD(std::optional<ExponentHistogram>, wide, {}, "the histogram of its tensor before rounding");
  FP16LAB_FIELD(std::vector<CulpritOperandRow>, operands, {}, "what went into the operation");
  FP16LAB_FIELD(
      bool, reached, false,
      "the Inf or NaN reached the loss (forward pass) or the gradient of a parameter (backward pass)");
  FP16LAB_FIELD(CulpritVerdict, verdict, CulpritVerdict::unknown, "what would have saved the value");
  FP16LAB_FIELD(std::string, black, {},
                "an entry for amp.black that would have saved the value; empty: there is none");
  FP16LAB_FIELD(std::string, excluded, {},
                "an entry for amp.excluded that would have saved it; empty: there is none");
  FP16LAB_FIELD(std::uint64_t, binades, 0,
                "how many powers of two lower S would have had to be for this tensor; 0: not known");
  FP16LAB_FIELD(
      std::optional<double>, finite_scale, {},
      "the greatest S 2^-k at which no gradient of the step overflowed when its backward passes were "
      "done again; 0: one overflowed at every scale down to 2^-24; no value: that was not tried",
      .since = 3);
  FP16LAB_FIELD(std::string, advice, {}, "what to change, in a sentence");
  FP16LAB_RECORD_END(CulpritRow);
};

}  // namespace fp16lab
