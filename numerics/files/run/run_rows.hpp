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
  FP16LAB_FIELD(std::uint64_t, step, 0, "counts from 1, skipped ones included");
  FP16LAB_FIELD(double, loss, 0, "the unscaled training loss, mean over the micro-batches", .curve = true);
  FP16LAB_FIELD(double, loss_scale, 1,
                "the one used in this step (not the next one), of loss 0 with scaler.per_loss, and of the "
                "last backward pass where the step was rescued",
                .curve = true);
  FP16LAB_FIELD(bool, found_inf, false, "in any optimizer's gradients");
  FP16LAB_FIELD(bool, skipped, false, "an optimizer skipped its update", .curve = true);
  FP16LAB_FIELD(double, grad_norm, 0,
                "L2 norm of the unscaled gradients before clipping, over all optimizers; not finite where "
                "found_inf is set",
                .curve = true);
  FP16LAB_FIELD(double, lr, 0, "learning rate of the first optimizer", .curve = true);
  FP16LAB_FIELD(std::optional<double>, underflow_rate, {},
                "where gradients were counted in this step and were cast: the share of their finite values "
                "that are not zero that the casts made zero (older folders: that FP16 would make zero, "
                "whatever they were stored in)",
                .curve = true);
  FP16LAB_FIELD(std::uint64_t, state_hash, 0, "of weights, optimizer state and StepState", .hex = true);
  FP16LAB_FIELD(double, seconds, 0, "that the step took", .unit = "s");
  FP16LAB_FIELD(std::optional<double>, epoch, {}, "passes over the training data so far", .since = 3);
  FP16LAB_RECORD_END(StepRow);
};

struct EvaluationRow {
  FP16LAB_RECORD(EvaluationRow, "evaluations.csv", 1, "One evaluation.");
  FP16LAB_FIELD(std::uint64_t, step, 0, "the iteration that it follows");
  FP16LAB_FIELD(std::string, split, {}, "\"train\" or \"test\"");
  FP16LAB_FIELD(double, loss, 0, "mean over the split", .curve = true);
  FP16LAB_FIELD(std::optional<double>, accuracy, {}, "of classifiers", .curve = true);
  FP16LAB_FIELD(std::optional<double>, bits_per_character, {},
                "of language models: loss / ln 2 * bytes of a character", .since = 2, .unit = "bit",
                .curve = true);
  FP16LAB_RECORD_END(EvaluationRow);
};

struct RunMemory {
  FP16LAB_RECORD(RunMemory, "manifest.json: memory", 3,
                 "Bytes of tensors in the first two steps of a run. All but `activations` and `peak`, which "
                 "the pool counts in whole blocks, follow from shapes and dtypes.");
  FP16LAB_FIELD(std::uint64_t, parameters, 0, "as the network computes with them", .unit = "B");
  FP16LAB_FIELD(std::uint64_t, masters, 0, "FP32 copies of 16-bit weights", .unit = "B");
  FP16LAB_FIELD(std::uint64_t, gradients, 0, "of parameters that are trained, all of them at once",
                .unit = "B");
  FP16LAB_FIELD(std::uint64_t, optimizer, 0, "momenta and the like", .unit = "B");
  FP16LAB_FIELD(std::uint64_t, activations, 0,
                "the second step's inputs, and what it had made when its first backward pass began: what the "
                "forward pass keeps for the backward pass, with casts of inputs and weights",
                .unit = "B");
  FP16LAB_FIELD(std::uint64_t, peak, 0,
                "most bytes alive at once, scratch included; less than the sum where gradients come into "
                "being while activations are given back",
                .unit = "B");
  FP16LAB_RECORD_END(RunMemory);
};

struct HistogramRow {
  FP16LAB_RECORD(
      HistogramRow, "histograms.jsonl", 1,
      "The values of one tensor in one step, summed over its uses in it (micro-batches, time steps), on both "
      "sides of the rounding to its stored dtype; where nothing is rounded, both sides are the values. "
      "`observed` says of what:\n"
      "- `gradients`: where they were rounded to their stored dtype (or stored in FP32). They still carry "
      "`loss_scale`, which is 1 in all other rows\n"
      "- `activations`: what a layer works on (\"fc2.input\"), and what it gives (\"fc2.output\"): before "
      "and after the cast of an input to 16 bits, of an output from the accumulators of its product\n"
      "- `weights`: \"fc2.weight\" as the step's forward pass has it: the stored value before, the copy in "
      "16 bits that the network computes with after; a row for each dtype of such a copy\n"
      "- `updates`: magnitudes of (w' - w) / w, computed in FP32, w' being the weight after the step and w "
      "before it: below 2^-12 FP16 without a master copy surely loses an update, BF16 below 2^-9, and above "
      "twice that neither does where w is a normal number. A weight that stays as it is counts as zero, one "
      "that leaves 0 as infinite. None in steps that were skipped, nor of a parameter without a gradient\n"
      "- `optimizer_state`: as the step leaves it, by the names of checkpoints: "
      "\"fc2.weight.second_moment\"\n"
      "Each histogram is {zero, inf, nan, first_exponent, counts, smallest, greatest}, where counts[i] "
      "belongs to the bin (2^(first_exponent+i), 2^(first_exponent+i+1)] and empty bins at both ends are "
      "left out; smallest and greatest are magnitudes of the finite values that are not zero. Where there is "
      "no such value they are absent; older folders have none at all, and everything below 2^-127 in the bin "
      "of -127. With scales of layers the uses of one tensor in a step may carry several scales: their "
      "counts are then brought to the largest by moving bins. Zeros stay what rounding made of them, so "
      "after.zero - before.zero is what was lost; counts of `before` alone say what would be lost if all "
      "uses had the largest scale.");
  FP16LAB_FIELD(std::uint64_t, step, 0, "the iteration");
  FP16LAB_FIELD(std::string, tensor, {}, "\"fc1.weight\", \"fc2.input\", \"loss.prediction\"");
  FP16LAB_FIELD(Observed, observed, Observed::gradients, "what the values are; left out of rows of gradients",
                .since = 3, .left_out = true);
  FP16LAB_FIELD(std::string, kind, {},
                "what the tensor belongs to: \"weight\" (any parameter) or \"activation\"");
  FP16LAB_FIELD(DType, dtype, DType::f32,
                "as stored; e4m3 or e5m2: of a cast inside products, of a tensor that is stored wider");
  FP16LAB_FIELD(bool, intermediate, false,
                "of a rounding on the way between the layers' gradients, which loss-scale policies do not "
                "see; left out of the other rows",
                .since = 2, .left_out = true);
  FP16LAB_FIELD(double, loss_scale, 1, "S, times the layer's own scale where it has one");
  FP16LAB_FIELD(
      std::optional<std::uint64_t>, unmoved, {},
      "of updates: elements whose gradient is not zero and whose stored bits the step left as they were",
      .since = 3, .left_out = true);
  FP16LAB_FIELD(ExponentHistogram, before, {}, "FP32, before rounding to `dtype`");
  FP16LAB_FIELD(ExponentHistogram, after, {}, "as stored");
  FP16LAB_RECORD_END(HistogramRow);
};

struct RecipeRow {
  FP16LAB_RECORD(RecipeRow, "recipe.jsonl", 3,
                 "What one operand of one product of a layer lost as codes with scales for blocks "
                 "(amp.recipe), in one step whose tensors are counted (observe.histograms_every), summed "
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
                "scale; negative where it saturates",
                .unit = "binades");
  FP16LAB_FIELD(std::optional<double>, mean_headroom, {}, "the same, mean over the blocks",
                .unit = "binades");
  FP16LAB_RECORD_END(RecipeRow);
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
  FP16LAB_FIELD(std::uint64_t, attempts, 0, "how often");
  FP16LAB_FIELD(double, loss_scale, 1, "of the last attempt");
  FP16LAB_FIELD(bool, rescued, false, "it did not overflow, and the step was taken");
  FP16LAB_RECORD_END(RescueRow);
};

struct OverflowRow {
  FP16LAB_RECORD(OverflowRow, "overflows.jsonl", 2,
                 "A step in which something overflowed. Where it was rescued, or that was tried, kind, "
                 "loss_scale and parameters are of the first backward pass.");
  FP16LAB_FIELD(std::uint64_t, step, 0, "the iteration");
  FP16LAB_FIELD(
      OverflowKind, kind, OverflowKind::gradient,
      "what was not finite: a gradient, or a 16-bit loss times the loss scale where all gradients were");
  FP16LAB_FIELD(double, loss_scale, 1, "used in this step");
  FP16LAB_FIELD(std::vector<std::string>, optimizers, {},
                "that skipped their update, by the name of their parameters' group");
  FP16LAB_FIELD(std::vector<std::string>, parameters, {}, "whose gradients held an Inf or NaN");
  FP16LAB_FIELD(std::optional<RescueRow>, rescue, {}, "where lower scales were tried", .left_out = true);
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
  FP16LAB_FIELD(DType, dtype, DType::f32, "as stored");
  FP16LAB_FIELD(std::vector<std::int64_t>, shape, {}, "extents, outermost first");
  FP16LAB_FIELD(double, smallest, 0, "magnitude that is finite and not zero; 0: there is none");
  FP16LAB_FIELD(double, greatest, 0, "magnitude that is finite");
  FP16LAB_FIELD(ExponentHistogram, histogram, {}, "of its values");
  FP16LAB_RECORD_END(CulpritOperandRow);
};

struct CulpritRow {
  FP16LAB_RECORD(
      CulpritRow, "culprits.jsonl", 2,
      "What made the first non-finite value of a pass, in a step with an overflow, and of what. The engine "
      "finds the facts; verdict, black, excluded, binades and advice are analysis::advise()'s.");
  FP16LAB_FIELD(std::uint64_t, step, 0, "the iteration");
  FP16LAB_FIELD(CulpritPass, pass, CulpritPass::forward, "in which the value was made");
  FP16LAB_FIELD(CulpritCause, cause, CulpritCause::operation, "what brought the Inf or NaN into the pass");
  FP16LAB_FIELD(std::string, op, {}, "as op lists name it; in a backward pass: whose gradient was computed");
  FP16LAB_FIELD(std::string, part, {},
                "the operation within it, where that is another one: \"cast\", \"matmul\"");
  FP16LAB_FIELD(std::string, layer, {}, "module path; empty: outside of all modules");
  FP16LAB_FIELD(std::string, tensor, {},
                "\"fc2.output\"; of gradients as in histograms.jsonl: \"fc2.input\"");
  FP16LAB_FIELD(DType, dtype, DType::f32, "as stored");
  FP16LAB_FIELD(std::vector<std::int64_t>, shape, {}, "extents, outermost first");
  FP16LAB_FIELD(std::uint64_t, micro_batch, 0, "counts from 0");
  FP16LAB_FIELD(double, loss_scale, 1, "of the backward pass, or of the last one before");
  FP16LAB_FIELD(std::uint64_t, element, 0, "the first that is not finite, row-major");
  FP16LAB_COMPUTED_FIELD(std::vector<std::uint64_t>, index, "of the element, by axis, outermost first");
  FP16LAB_FIELD(double, value, 0, "there: an infinity or NaN");
  FP16LAB_FIELD(std::uint64_t, nonfinite, 0, "how many are not finite");
  FP16LAB_FIELD(std::optional<double>, wide_value, {}, "the element before it was rounded to 16 bits");
  FP16LAB_FIELD(double, wide_greatest, 0, "finite magnitude of its tensor before rounding");
  FP16LAB_FIELD(std::optional<ExponentHistogram>, wide, {}, "of its tensor before rounding");
  FP16LAB_FIELD(std::vector<CulpritOperandRow>, operands, {}, "of the operation");
  FP16LAB_FIELD(bool, reached, false, "the loss (of a forward pass), or the gradient of a parameter");
  FP16LAB_FIELD(CulpritVerdict, verdict, CulpritVerdict::unknown, "what would have saved the value");
  FP16LAB_FIELD(std::string, black, {}, "an entry for amp.black that would have saved it; empty: none");
  FP16LAB_FIELD(std::string, excluded, {}, "and one for amp.excluded");
  FP16LAB_FIELD(std::uint64_t, binades, 0,
                "by so many S would have had to be lower for this tensor; 0: not said");
  FP16LAB_FIELD(std::optional<double>, finite_scale, {},
                "the greatest S 2^-k at which no gradient of the step overflowed when the backward passes "
                "were done again; 0: none, down to 2^-24; nothing: that was not tried",
                .since = 3);
  FP16LAB_FIELD(std::string, advice, {}, "a sentence");
  FP16LAB_RECORD_END(CulpritRow);
};

}  // namespace fp16lab
