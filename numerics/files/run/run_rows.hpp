// The rows of a run folder: what observers hand over, files store and reports read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "numerics/files/run/observed.hpp"
#include "numerics/formats/dtype.hpp"
#include "numerics/histogram/exponent_histogram.hpp"

namespace fp16lab {

/// A row of steps.csv: one optimizer iteration, after its update or skip. `step` counts from 1, skipped ones
/// included. `loss` is the unscaled training loss, mean over the micro-batches; `loss_scale` the one used in
/// this step (not the next one), of loss 0 with scaler.per_loss, and of the last backward pass where the step
/// was rescued.
struct StepRow {
  std::uint64_t step = 0;
  double loss = 0;
  double loss_scale = 1;
  bool found_inf = false;  ///< in any optimizer's gradients
  bool skipped = false;    ///< an optimizer skipped its update
  /// L2 norm of the unscaled gradients before clipping, over all optimizers; not finite where found_inf is
  /// set.
  double grad_norm = 0;
  double lr = 0;  ///< of the first optimizer
  /// Where gradients were counted in this step and were cast: the share of their finite values that are not
  /// zero that the casts made zero. (Older folders: that FP16 would make zero, whatever they were stored in.)
  std::optional<double> underflow_rate{};
  std::uint64_t state_hash = 0;  ///< of weights, optimizer state and StepState; 16 hex digits in the file
  double seconds = 0;
  std::optional<double> epoch{};  ///< passes over the training data so far; older folders have none
  bool operator==(const StepRow&) const = default;
};

struct EvaluationRow {
  std::uint64_t step = 0;
  std::string split{};  ///< "train" or "test"
  double loss = 0;
  std::optional<double> accuracy{};            ///< of classifiers
  std::optional<double> bits_per_character{};  ///< of language models: loss / ln 2 * bytes of a character
  bool operator==(const EvaluationRow&) const = default;
};

/// Bytes of tensors in the first two steps of a run; of the manifest. All but `activations` and `peak`, which
/// the pool counts in whole blocks, follow from shapes and dtypes.
struct RunMemory {
  std::uint64_t parameters = 0;  ///< as the network computes with them
  std::uint64_t masters = 0;     ///< FP32 weights behind 16-bit ones
  std::uint64_t gradients = 0;   ///< of parameters that are trained, all of them at once
  std::uint64_t optimizer = 0;   ///< momenta and the like
  /// The second step's inputs, and what it had made when its first backward pass began: what the forward pass
  /// keeps for the backward pass, with casts of inputs and weights.
  std::uint64_t activations = 0;
  std::uint64_t peak = 0;  ///< most bytes alive at once, scratch included; less than the sum where gradients
                           ///< come into being while activations are given back
  bool operator==(const RunMemory&) const = default;
};

/// A line of histograms.jsonl: the values of one tensor in one step, summed over its uses in it
/// (micro-batches, time steps), on both sides of the rounding to its stored dtype; where nothing is rounded,
/// both sides are the values. `observed` says of what:
///   gradients        where they were rounded to their stored dtype (or stored in FP32). They still carry
///                    `loss_scale`, which is 1 in all other rows
///   activations      what a layer works on ("fc2.input"), and what it gives ("fc2.output"): before and after
///                    the cast of an input to 16 bits, of an output from the accumulators of its product
///   weights          "fc2.weight" as the step's forward pass has it: the stored value before, the copy in 16
///                    bits that the network computes with after; a row for each dtype of such a copy
///   updates          magnitudes of (w' - w) / w, computed in FP32, w' being the weight behind the step and w
///                    before it: below 2^-12 FP16 without a master copy surely loses an update, BF16 below
///                    2^-9, and above twice that neither does where w is a normal number. A weight that stays
///                    as it is counts as zero, one that leaves 0 as infinite. None in steps that were
///                    skipped, nor of a parameter without a gradient
///   optimizer_state  as the step leaves it, by the names of checkpoints: "fc2.weight.second_moment"
/// JSON keys: step, tensor, observed (but of gradients, whose older rows have none), kind, dtype,
/// loss_scale, unmoved (of updates), before, after; each histogram is {zero, inf, nan, first_exponent,
/// counts}, where counts[i] belongs to the bin (2^(first_exponent+i), 2^(first_exponent+i+1)] and empty bins
/// at both ends are left out; smallest and greatest magnitude are those of the finite values that are not
/// zero. Where there is no such value they are absent; older folders have none at all, and everything below
/// 2^-127 in the bin of -127. With scales of layers (engine/amp/scalers/layer_scaler.hpp) the uses of one
/// tensor in a step may carry several scales: their counts are then brought to the largest by moving bins.
/// Zeros stay what rounding made of them, so after.zero - before.zero is what was lost; counts of `before`
/// alone say what would be lost if all uses had the largest scale. A dtype of e4m3 or e5m2 is that of a cast
/// inside products, of a tensor that is stored wider. Rows of roundings on the way between the layers'
/// gradients also have "intermediate": true; loss-scale policies see the others.
struct HistogramRow {
  std::uint64_t step = 0;
  std::string tensor{};  ///< "fc1.weight", "fc2.input", "loss.prediction"
  Observed observed = Observed::gradients;
  std::string kind{};  ///< what the tensor belongs to: "weight" (any parameter) or "activation"
  DType dtype = DType::f32;
  bool intermediate = false;
  double loss_scale = 1;  ///< S, times the layer's own scale where it has one
  /// Of updates: elements whose gradient is not zero and whose stored bits the step left as they were.
  std::optional<std::uint64_t> unmoved{};
  ExponentHistogram before{};  ///< FP32, before rounding to `dtype`
  ExponentHistogram after{};   ///< as stored
  bool operator==(const HistogramRow&) const = default;
};

enum class OverflowKind {
  gradient,  ///< a gradient was not finite
  loss,      ///< a 16-bit loss times the loss scale was beyond its dtype, and all gradients were finite
  both,
};
std::string_view name_of(OverflowKind kind);

/// The backward pass of an overflowed step was done again at lower scales (scaler.rescue).
struct RescueRow {
  std::uint64_t attempts = 0;
  double loss_scale = 1;  ///< of the last attempt
  bool rescued = false;   ///< it did not overflow, and the step was taken
  bool operator==(const RescueRow&) const = default;
};

/// A line of overflows.jsonl: a step in which something overflowed. JSON keys: step, kind, loss_scale,
/// optimizers, parameters, and where the step was rescued or that was tried: rescue {attempts, loss_scale,
/// rescued}. kind, loss_scale and parameters are then of the first backward pass.
struct OverflowRow {
  std::uint64_t step = 0;
  OverflowKind kind = OverflowKind::gradient;
  double loss_scale = 1;  ///< used in this step
  std::vector<std::string>
      optimizers{};  ///< that skipped their update, by the name of their parameters' group
  std::vector<std::string> parameters{};  ///< whose gradients held an Inf or NaN
  std::optional<RescueRow> rescue{};
  bool operator==(const OverflowRow&) const = default;
};

enum class CulpritPass { forward, backward };
std::string_view name_of(CulpritPass pass);

enum class CulpritCause {
  operation,   ///< an operation gave an Inf or NaN, and all of its operands were finite
  infinity,    ///< an operation gave a NaN of operands that held infinities on purpose (a mask)
  parameter,   ///< a weight was not finite when the step began
  data,        ///< the batch holds an Inf or NaN
  constant,    ///< so does a constant of the model or a target
  loss_scale,  ///< S, or the loss times S, is beyond the loss's dtype
};
std::string_view name_of(CulpritCause cause);

/// What would have saved a value that overflowed.
enum class CulpritVerdict {
  fp32_cast,    ///< FP16 was too narrow in the forward pass
  lower_scale,  ///< S was too large
  model,        ///< it was no number in FP32 either
  data,         ///< nor in the batch
  unknown,
};
std::string_view name_of(CulpritVerdict verdict);

/// A value that went into the operation at fault.
struct CulpritOperandRow {
  std::string name{};  ///< "fc2.weight", "gradient", "relu of fc1"
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape{};
  double smallest = 0;  ///< magnitude that is finite and not zero; 0: there is none
  double greatest = 0;
  ExponentHistogram histogram{};
  bool operator==(const CulpritOperandRow&) const = default;
};

/// A line of culprits.jsonl: what made the first non-finite value of a pass, in a step with an overflow, and
/// of what. The engine finds the facts; verdict, black, excluded, binades and advice are
/// analysis::advise()'s. JSON keys as the members; index (of the element, by axis) is added, and `wide`,
/// `wide_value` and `finite_scale` are null where they are not known.
struct CulpritRow {
  std::uint64_t step = 0;
  CulpritPass pass = CulpritPass::forward;
  CulpritCause cause = CulpritCause::operation;
  std::string op{};      ///< as op lists name it; in a backward pass: whose gradient was computed
  std::string part{};    ///< the operation within it, where that is another one: "cast", "matmul"
  std::string layer{};   ///< module path; empty: outside of all modules
  std::string tensor{};  ///< "fc2.output"; of gradients as in HistogramRow: "fc2.input"
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape{};
  std::uint64_t micro_batch = 0;
  double loss_scale = 1;               ///< of the backward pass, or of the last one before
  std::uint64_t element = 0;           ///< the first that is not finite, row-major
  double value = 0;                    ///< there: an infinity or NaN
  std::uint64_t nonfinite = 0;         ///< how many are not finite
  std::optional<double> wide_value{};  ///< the element before it was rounded to 16 bits
  double wide_greatest = 0;            ///< finite magnitude of its tensor
  std::optional<ExponentHistogram> wide{};
  std::vector<CulpritOperandRow> operands{};
  bool reached = false;  ///< the loss (of a forward pass), or the gradient of a parameter
  CulpritVerdict verdict = CulpritVerdict::unknown;
  std::string black{};        ///< an entry for amp.black that would have saved it; empty: none
  std::string excluded{};     ///< and one for amp.excluded
  std::uint64_t binades = 0;  ///< by so many S would have had to be lower for this tensor; 0: not said
  /// The greatest S 2^-k at which no gradient of the step overflowed when the backward passes were done
  /// again; 0: none, down to 2^-24. Nothing: that was not tried.
  std::optional<double> finite_scale{};
  std::string advice{};  ///< a sentence
  bool operator==(const CulpritRow&) const = default;
};

}  // namespace fp16lab
