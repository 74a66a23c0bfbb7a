// Backend: the one interface between the training engine and the machine that computes.
//
// **Equality contract.** For every verb below, the emulated (CPU) and the CUDA back end give the same bits
// for the same inputs, whatever the number of threads or the launch geometry. Each verb states the rule that
// makes this possible. Rules common to all verbs:
//   * a stored NaN is the canonical one (FP32 7fffffff, FP16 and BF16 7fff); only byte moves (upload,
//     download, copy, a cast to the same dtype) keep the bits of any NaN;
//   * FP16 and BF16 elementwise arithmetic widens to FP32, does one correctly rounded FP32 operation and
//     rounds to nearest even once (harmless double rounding where both operands are 16 bits: 24 >= 2 * 11 +
//     2, Figueroa 1995); no contraction, no flush of subnormals;
//   * reductions follow TREE (numerics/arithmetic/tree_reduce.hpp), one fixed order, with FP32 accumulators;
//   * outputs are allocated by the caller and must not overlap inputs unless a verb says "in place allowed".
// Shape, dtype and overlap violations throw std::invalid_argument naming the verb, the argument and the
// offending shapes (engine/backend/checks.hpp, the same words on every back end). Tensors are contiguous,
// row-major. f = f32, f16 or bf16 below; "f16" in a verb's words holds for bf16 as well, and no verb mixes
// the two.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "engine/backend/kernels.hpp"
#include "engine/backend/step_state.hpp"
#include "engine/backend/update.hpp"
#include "engine/tensor/storage.hpp"
#include "engine/tensor/tensor.hpp"
#include "numerics/convert/quantizer.hpp"
#include "numerics/histogram/exponent_histogram.hpp"
#include "numerics/random/philox.hpp"

namespace fp16lab::engine {

enum class ReduceOp {
  sum,
  max,  ///< NaN if any element is NaN; -0 and +0 compare equal and the first in TREE order wins
};

/// Counts of the values that a narrowing verb saw: FP32 before the rounding, and what was stored. A back end
/// that is still at work when a verb returns, and a recording, count in memory of their own: `before` and
/// `after` are complete after Backend::settle.
struct CastProbe {
  ExponentHistogram before;
  ExponentHistogram after;
  std::uint64_t counted = 0;  ///< elements counted so far, known at once
  Tensor pending = {};        ///< counts still to be added, in the back end's own layout; undefined: none
};

/// Counts of an update u = w' - w of a weight, in FP32.
struct UpdateProbes {
  CastProbe relative;  ///< u / w
  CastProbe change;    ///< counts of u, zeros and NaN at least
  CastProbe quiet;  ///< max(|u|, |g|), g being the gradient, zeros at least: nothing moved it, and it did not
};

/// How an operand of 16 bits is rounded on its way into a product. As it is here: not at all.
struct OperandRounding {
  /// To this FP8 format, each element alone: to nearest even, saturating at its largest finite value (as
  /// cvt.rn.satfinite; an infinity saturates too, a NaN stays).
  std::optional<DType> fp8 = {};
  bool stochastic = false;  ///< codes, by the words of QuantizerCall::random
  bool hadamard = false;  ///< after random_hadamard(16, te_hadamard_signs) along k, as the other operand then
  bool delayed = false;   ///< the one scale of the tensor is of earlier steps: QuantizerCall::scale
  /// Else to codes with scales for blocks along k; a row of quantizers() or of amp::recipes(), which outlives
  /// the product.
  const Quantizer* quantizer = nullptr;

  bool any() const { return fp8.has_value() || quantizer != nullptr; }
  /// "e4m3", "nvfp4" or "none".
  std::string_view name() const {
    return quantizer != nullptr ? quantizer->name : fp8 ? name_of(*fp8) : "none";
  }
};

/// What the quantizer of an operand takes in one call, and what it tells.
struct QuantizerCall {
  std::optional<float> scale = {};  ///< QuantizeOptions::scale
  PhiloxStream random = {};         ///< its iteration is replaced by that of `step`, as in cast_stochastic
  const Tensor* step = nullptr;     ///< for stochastic codes
  QuantizerLoss* loss = nullptr;    ///< is added to; null: no observer
};

/// out (m x n) = op(a) * op(b) [+ bias] [+ addend], see Backend::gemm. All matrices may carry one leading
/// batch axis of equal extent (rank 3): independent products, one after the other. The bias is shared by all
/// of them.
struct GemmCall {
  const Tensor& a;
  const Tensor& b;
  Tensor& out;
  bool transpose_a = false;        ///< a is stored (k x m) instead of (m x k)
  bool transpose_b = false;        ///< b is stored (n x k) instead of (k x n)
  const Tensor* bias = nullptr;    ///< (n), dtype of a or f32
  const Tensor* addend = nullptr;  ///< (m x n), dtype of out or f32
  CastProbe* probe = nullptr;      ///< counts the FP32 results before, and the stored values after, rounding
  /// Both operands are rounded to FP8, or to codes with scales, or neither. In FP8 the accumulators follow
  /// the row's FP8 model; with scales they are as Backend::gemm says. std::invalid_argument for f32 operands,
  /// a row without FP8, or scales along a batch axis.
  OperandRounding a_format{}, b_format{};
  QuantizerCall a_quantizer{}, b_quantizer{};
  /// For f32 operands: every element of a and b is first rounded to TF32, to nearest with ties away from zero
  /// (functions::RoundToTf32), and the accumulators follow the row's TF32 model. std::invalid_argument for
  /// other operands, or a row without TF32 (volta, turing).
  bool tf32 = false;
  /// The result of Backend::pack_b for a call with these shapes, dtypes, transposes and formats, when b had
  /// the elements that it has now; null or undefined: nothing. It changes no bit. std::invalid_argument where
  /// its size shows that it is for another call.
  const Tensor* packed_b = nullptr;
};

/// Step t of an LSTM over T sequence rows of a batch of B: rows [t B, (t + 1) B) of the tensors that hold all
/// steps. Gates are side by side, (i, f, g, o), H columns each. All have one dtype f; f32 is also allowed
/// where a comment says so.
struct LstmCellCall {
  std::int64_t step;        ///< t
  const Tensor& products;   ///< (T B, 4 H): x W_ih^T + b_ih
  const Tensor& recurrent;  ///< (B, 4 H): h W_hh^T + b_hh, with the h of step t - 1
  Tensor& gates;            ///< (T B, 4 H): sigmoid(i), sigmoid(f), tanh(g), sigmoid(o) are written
  Tensor& cells;            ///< (T B, H): c is written; that of step t - 1 is read
  Tensor& outputs;          ///< (T B, H): h is written
  Tensor& hidden;           ///< (B, H): h again, as the next product takes it
};
/// Its backward: gradients of the sums before the gates' functions, from those of h and c.
struct LstmCellGradientCall {
  std::int64_t step;              ///< t
  const Tensor& gates;            ///< (T B, 4 H), as LstmCellCall left them
  const Tensor& cells;            ///< (T B, H), likewise
  const Tensor& gradient;         ///< (T B, H): the outputs'
  const Tensor* hidden_gradient;  ///< (B, H): h's, from later steps; null: there are none
  const Tensor* cell_gradient;    ///< (B, H): c's, from later steps; null: there are none
  Tensor& gate_gradients;         ///< (T B, 4 H), f or f32: the rows of step t are written
  Tensor& step_gradients;  ///< (B, 4 H), dtype of gate_gradients: the same, as the next product takes it
  Tensor* previous_cell_gradient;   ///< (B, H), f or f32: that of step t - 1's c; null: not needed
  CastProbe* probe = nullptr;       ///< counts the gates' gradients before and after their rounding
  CastProbe* cell_probe = nullptr;  ///< likewise previous_cell_gradient
};

/// The order of a 4-d activation's axes. Convolution weights are (K, C, R, S) in both.
enum class Layout : std::uint8_t { nchw, nhwc };

/// Output extent along one spatial axis: floor((H + 2 padding - dilation (R - 1) - 1) / stride) + 1. Channels
/// are cut into `groups` equal parts, of which part g of the outputs sees part g of the inputs only (groups =
/// C: depthwise).
struct Conv2dGeometry {
  std::array<std::int64_t, 2> stride{1, 1};   ///< (vertical, horizontal), >= 1
  std::array<std::int64_t, 2> padding{0, 0};  ///< rows and columns of +0 on each side, >= 0
  std::array<std::int64_t, 2> dilation{1, 1};
  Layout layout = Layout::nchw;
  std::int64_t groups = 1;  ///< >= 1, a divisor of both numbers of channels
  bool tf32 = false;        ///< for the products in all three directions: as GemmCall::tf32
};

/// As above with dilation 1 and R, S = kernel; padding at most half the kernel.
struct Pool2dGeometry {
  std::array<std::int64_t, 2> kernel{2, 2};
  std::array<std::int64_t, 2> stride{2, 2};
  std::array<std::int64_t, 2> padding{0, 0};  ///< of -infinity for the maximum, of +0 for the average
  Layout layout = Layout::nchw;
};

/// The three products of a convolution; each has its own `a`, `b` and `out`.
enum class Conv2dProduct : std::uint8_t {
  output,           ///< y of x and weight
  input_gradient,   ///< dX of dY and weight
  weight_gradient,  ///< dW of x and dY
};
struct Conv2dCall {
  Conv2dProduct product;
  const Tensor& a;
  const Tensor& b;
  const Conv2dGeometry& geometry;
  const Tensor* bias = nullptr;  ///< for `out`'s channels; a weight's gradient has none
  Tensor& out;
  CastProbe* probe = nullptr;

  /// "conv2d", "conv2d_input_gradient" or "conv2d_weight_gradient".
  std::string_view verb() const;
};

// ---- parameters of the drivers of tables, see the verbs of Backend ----

/// cast, and cast_stochastic where there are a stream and a step.
struct CastCall {
  const Tensor& x;
  Tensor& out;
  CastProbe* probe = nullptr;
  const PhiloxStream* stream = nullptr;
  const Tensor* step = nullptr;
};

/// binary: f(a, b), or f(a, scalar) where there is no b; then a has the shape of out.
struct BinaryCall {
  BinaryOp op;
  const Tensor& a;
  const Tensor* b = nullptr;
  float scalar = 0.0f;
  Tensor& out;
};

/// The random fills: the parameters of the distribution in the order of its verb.
struct DrawCall {
  Distribution distribution;
  float first = 0.0f, second = 0.0f;
  const PhiloxStream& stream;
  const Tensor* step = nullptr;  ///< gives the stream's iteration, see fill_bernoulli
  Tensor& out;
};

struct GradientPassCall {
  GradientPass pass;
  std::span<Tensor> gradients;
  Tensor* step = nullptr;  ///< null for a pass that reads nothing of it
  double limit = 0.0;      ///< the clipping's
  int optimizer = 0;       ///< whose found_inf unscale sets
};

// Plans that engine/backend/checks.hpp makes for valid calls.
struct BroadcastPlan;
struct Permutation;
namespace functions {
struct Conv2dPlan;
struct Pool2dPlan;
}  // namespace functions
namespace checks {
struct GemmPlan;
struct LstmPlan;
struct MatrixExtents;
struct PoolIndexPlan;
struct ReducePlan;
struct SlicePlan;
}  // namespace checks

/// What a back end implements: do_NAME for each row, which does the verb after its arguments have been
/// checked. Parameters are those of the verb, or its call, and the plan that the check has made of them (of a
/// fill: the bits of its value). Transfers begin with the verb that moves bytes, for what a back end says
/// when it cannot.
#define FP16LAB_BACKEND_VERBS(VERB)                                                                      \
  VERB(upload, std::string_view, std::span<const std::byte>, Tensor&)                                    \
  VERB(download, std::string_view, const Tensor&, std::span<std::byte>)                                  \
  VERB(copy, const Tensor&, Tensor&)                                                                     \
  VERB(fill, Tensor&, double, std::uint64_t)                                                             \
  VERB(permute, const Tensor&, std::span<const int>, Tensor&, const Permutation&)                        \
  VERB(slice, const Tensor&, int, std::int64_t, Tensor&, const checks::SlicePlan&)                       \
  VERB(insert, const Tensor&, int, std::int64_t, Tensor&, const checks::SlicePlan&)                      \
  /* the drivers of the tables of kernels */                                                             \
  VERB(cast, const CastCall&)                                                                            \
  VERB(unary, UnaryOp, const Tensor&, Tensor&)                                                           \
  VERB(binary, const BinaryCall&, const BroadcastPlan&)                                                  \
  VERB(draw, const DrawCall&)                                                                            \
  VERB(gradient_pass, const GradientPassCall&)                                                           \
  VERB(update, const UpdateCall&)                                                                        \
  VERB(lstm_cell, const LstmCellCall&, const checks::LstmPlan&)                                          \
  VERB(lstm_cell_gradient, const LstmCellGradientCall&, const checks::LstmPlan&)                         \
  /* reductions, indices, products, windows */                                                           \
  VERB(reduce, ReduceOp, const Tensor&, int, Tensor&, CastProbe*, const checks::ReducePlan&)             \
  VERB(global_norm, std::span<const Tensor>, Tensor&)                                                    \
  VERB(pick, const Tensor&, const Tensor&, Tensor&, const checks::MatrixExtents&)                        \
  VERB(place, const Tensor&, const Tensor&, Tensor&, const checks::MatrixExtents&)                       \
  VERB(gather_rows, const Tensor&, const Tensor&, Tensor&, const checks::MatrixExtents&)                 \
  VERB(scatter_rows, const Tensor&, const Tensor&, Tensor&, CastProbe*, const checks::MatrixExtents&)    \
  VERB(gemm, const GemmCall&, const checks::GemmPlan&)                                                   \
  VERB(conv2d, const Conv2dCall&, const functions::Conv2dPlan&)                                          \
  VERB(max_pool2d, const Tensor&, const Pool2dGeometry&, Tensor&, Tensor&, const functions::Pool2dPlan&) \
  VERB(average_pool2d, const Tensor&, const Pool2dGeometry&, Tensor&, const functions::Pool2dPlan&)      \
  VERB(average_pool2d_transposed, const Tensor&, const Pool2dGeometry&, Tensor&,                         \
       const functions::Pool2dPlan&)                                                                     \
  VERB(pool_pick, const Tensor&, const Tensor&, Layout, Tensor&, const checks::PoolIndexPlan&)           \
  VERB(pool_place, const Tensor&, const Tensor&, Layout, Tensor&, const checks::PoolIndexPlan&)          \
  /* the step, counting */                                                                               \
  VERB(run, const ScalarProgram&, Tensor&)                                                               \
  VERB(fill_scale, const Tensor&, Tensor&)                                                               \
  VERB(histogram, const Tensor&, ExponentHistogram&)                                                     \
  VERB(count, const Tensor&, std::optional<DType>, CastProbe&)                                           \
  VERB(settle, std::span<CastProbe* const>)

/// A tensor whose digest is needed, under its key.
struct DigestItem {
  Tensor tensor;
  std::uint64_t key = 0;
};

/// Verbs recorded by Backend::record.
class Recording {
 public:
  virtual ~Recording() = default;
  /// Does them again, on the same memory.
  virtual void replay() = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;

  /// "emulated" or "cuda", and the tensor-core row that its FP16 products follow ("hopper").
  virtual std::string_view name() const = 0;
  virtual std::string_view tensor_core() const = 0;

  // ---- memory ----
  /// Counts of the pool that `empty` takes from: system_allocations stays constant once a training loop is
  /// warm.
  virtual PoolStatistics memory_statistics() const = 0;
  /// Uninitialised memory from a size-class pool: no system allocation once warm.
  virtual Tensor empty(const Shape& shape, DType dtype) = 0;
  /// Byte copies between host memory and a tensor of exactly that size.
  void upload(std::span<const std::byte> host, Tensor& out);
  /// Is what is uploaded ever read? Where it is not, no caller need make numbers in host memory.
  virtual bool keeps_uploads() const { return true; }
  void download(const Tensor& x, std::span<std::byte> host);
  void copy(const Tensor& x, Tensor& out);  ///< same dtype and element count
  /// Every element = `value` rounded once to nearest even to the dtype. Integer dtypes take integers in
  /// range.
  void fill(Tensor& out, double value);
  /// f32 uniform in [low, high]: u = uniform01(stream.word(i)), 24 random bits * 2^-24, for logical element
  /// i, then low + (high - low) * u, each operation rounded in FP32 (so `high` itself can come out by
  /// rounding).
  void fill_uniform(Tensor& out, const PhiloxStream& stream, float low, float high);

  /// f32, normal with FP32 `mean` and `deviation` by Box and Muller (1958) on the words 2i and 2i + 1 of
  /// logical element i: u = ((word >> 8) + 1) * 2^-24 in (0, 1], v = uniform01(word);
  /// z = sqrt(-2 log_f32(u)) * cos_f32(2 pi v), out = mean + deviation * z, each operation rounded in FP32.
  void fill_normal(Tensor& out, const PhiloxStream& stream, float mean, float deviation);
  /// Every element of out (f) is 1 with probability `keep`, else +0: uniform01(stream.word(i)) < keep for
  /// logical element i, where stream.iteration is replaced by the low 32 bits of StepState::iteration in
  /// `step`, so that a captured graph draws new masks each time.
  void fill_bernoulli(Tensor& out, const PhiloxStream& stream, float keep, const Tensor& step);

  // ---- moving bytes ----
  // Any dtype; the bits of NaNs are kept.
  /// Axis i of out is axis axes[i] of x; `axes` is a permutation of 0 .. rank - 1.
  void permute(const Tensor& x, std::span<const int> axes, Tensor& out);
  /// out = x[..., begin : begin + out.shape()[axis], ...]; all other extents agree.
  void slice(const Tensor& x, int axis, std::int64_t begin, Tensor& out);
  /// out[..., begin : begin + x.shape()[axis], ...] = x; the rest of out stays as it is.
  void insert(const Tensor& x, int axis, std::int64_t begin, Tensor& out);

  // ---- elementwise ----
  /// f -> f, one rounding to nearest even when narrowing, exact when widening. Same dtype: a copy of the
  /// bytes. The probe counts x and out, whatever their dtypes.
  void cast(const Tensor& x, Tensor& out, CastProbe* probe = nullptr);
  /// f32 -> f16 or bf16, rounded stochastically with 16 random bits of `stream`, as narrow_stochastic
  /// (numerics/convert/convert.hpp) has it, element i's by its logical index; stream.iteration is replaced by
  /// the low 32 bits of StepState::iteration in `step`, as in fill_bernoulli. The probe counts x and out.
  void cast_stochastic(const Tensor& x, Tensor& out, const PhiloxStream& stream, const Tensor& step,
                       CastProbe* probe = nullptr);
  /// out, x: same shape, same dtype f. In place allowed.
  void unary(UnaryOp op, const Tensor& x, Tensor& out);
  /// NumPy broadcasting of a and b to out's shape; same dtype f. In place (out is a or b, same shape)
  /// allowed.
  void binary(BinaryOp op, const Tensor& a, const Tensor& b, Tensor& out);
  /// out = f(a, b) with an FP32 number as b; a and out: same shape, same dtype f. In place allowed.
  void binary(BinaryOp op, const Tensor& a, float b, Tensor& out);
  /// out = round(x * factor), factor an FP32 number. In place allowed. f16: the product is rounded to FP32,
  /// then to f16 (the same bits as one rounding when factor has at most 13 significant bits, a power of two
  /// say).
  void scale(const Tensor& x, float factor, Tensor& out) { binary(BinaryOp::multiply, x, factor, out); }
  /// out = round(x / divisor): not the same bits as scale(x, 1 / divisor). In place allowed.
  void divide(const Tensor& x, float divisor, Tensor& out) { binary(BinaryOp::divide, x, divisor, out); }

  // ---- reductions and indexing ----
  /// Reduces `axis` of x (it is dropped, or may be kept with extent 1 in out's shape: element counts decide).
  /// f in, out of the same dtype; 16-bit sums widen to FP32, follow TREE, and round once at the end.
  /// An empty sum is +0; an empty max throws. Adjacent axes reduce together, in one TREE, by reshaping first.
  void reduce(ReduceOp op, const Tensor& x, int axis, Tensor& out, CastProbe* probe = nullptr);
  /// x (rows x columns) f, index (rows) i32 in [0, columns): out (rows) = x[r, index[r]]. An index out of
  /// range throws std::out_of_range naming the row and the value; where the device runs asynchronously, at
  /// the latest in the next verb that hands numbers to the host, and what the verbs between stored is
  /// unspecified.
  void pick(const Tensor& x, const Tensor& index, Tensor& out);
  /// The transpose of pick: out (rows x columns) is +0 but for out[r, index[r]] = x[r].
  void place(const Tensor& x, const Tensor& index, Tensor& out);
  /// table (V, E) f, index i32 of any shape with n elements in [0, V): out (n, E), row i = row index[i] of
  /// table. Errors as pick.
  void gather_rows(const Tensor& table, const Tensor& index, Tensor& out);
  /// Its transpose: x (n, E) f; row v of out (V, E) is the TREE sum, in FP32, of the rows i with index[i] ==
  /// v in ascending i (a stable sort of (index, i) and TREE within each segment), rounded once; +0 where
  /// there is none.
  void scatter_rows(const Tensor& x, const Tensor& index, Tensor& out, CastProbe* probe = nullptr);

  // ---- products ----
  /// f16 x f16: accumulators start at +0 and follow the tensor-core row over ascending logical k, all
  /// transposes alike; then t = acc; t = add_rn(t, bias); t = add_rn(t, addend); one round-to-nearest-even to
  /// out's dtype (f16 or f32). f32 x f32 -> f32: the accumulator is one fma chain over ascending k, same
  /// epilogue; or it follows the row's TF32 model (GemmCall::tf32). bf16 x bf16 follows the row's BF16 model;
  /// std::invalid_argument on rows that have none (volta, turing), for convolutions too.
  /// Operands with scales for blocks (OperandRounding::quantizer): op(a) and the transpose of op(b) have rows
  /// along k. They are widened, padded with +0 to whole blocks (k to multiples of 16 for a transform),
  /// transformed, quantized (element i of the padded matrix by half word i), and multiplied as
  /// quantized_gemm.hpp says: E8M0 and UE4M3 scales in the sums of Blackwell's rows, whatever the generation
  /// of other products, and FP32 scales after each block's chain by the generation's FP8 row
  /// (std::invalid_argument where it has none); then bias, addend and rounding as above.
  void gemm(const GemmCall& call);
  /// For several products with one b: b as this back end's products take it (u8, opaque), so that it is
  /// rounded and packed once. Undefined where that saves nothing.
  Tensor pack_b(const GemmCall& call);

  // ---- recurrent cells ----
  // Operands widen to FP32; every operation rounds to FP32, as written, and what is stored is rounded once
  // more to its dtype. sigmoid and tanh are the shared functions. At step 0 the previous c is +0. A layer's
  // dW_hh is no sum over steps: it is one gemm of gate_gradients^T and the h of the steps before, over k =
  // (t, b) ascending, in which step 0 has +0 (ops::lstm).
  /// With a = products + recurrent, one sum an element, and c' the stored c of step t - 1:
  ///   i = sigmoid(a_i), f = sigmoid(a_f), g = tanh(a_g), o = sigmoid(a_o)
  ///   c = f * c' + i * g
  ///   h = o * tanh(c)          (of the c that was not yet rounded to its dtype, as the gates are not)
  void lstm_cell(const LstmCellCall& call);
  /// From the stored gates and c; a gradient that is not given is left out:
  ///   dh = gradient + hidden_gradient,  s = tanh(c)
  ///   dc = (dh * o) * ((1 - s) * (1 + s)) + cell_gradient
  ///   di = (dc * g) * (i * (1 - i)),          df = (dc * c') * (f * (1 - f))
  ///   dg = (dc * i) * ((1 - g) * (1 + g)),    do = (dh * s) * (o * (1 - o))
  ///   previous_cell_gradient = dc * f
  /// previous_cell_gradient may be the memory of cell_gradient.
  void lstm_cell_gradient(const LstmCellGradientCall& call);

  // Convolution (cross-correlation) is three implicit GEMMs for each group of channels: every output is one
  // accumulator chain from +0 over ascending logical k, as in gemm (f16: the tensor-core row; f32: one fma
  // chain), then the epilogue of gemm and one rounding. Padding and stride holes enter the chain as +0
  // operands; what belongs to another group does not enter it at all. With x (N, C, H, W), weight (K, C /
  // groups, R, S), y (N, K, P, Q) in NCHW, or x (N, H, W, C), y (N, P, Q, K) in NHWC, and c and k_out
  // ascending in the channels of the output's own group:
  /// y: k runs over (c, r, s) in NCHW and (r, s, c) in NHWC. bias (K) or null, dtype of x or f32.
  void conv2d(const Tensor& x, const Tensor& weight, const Conv2dGeometry& geometry, const Tensor* bias,
              Tensor& out, CastProbe* probe = nullptr);
  /// dX from dY and weight: k runs over (k_out, r, s) in both layouts; dY is gathered (the element that x
  /// touched through tap (r, s), or +0 where there is none). bias (C) or null, dtype of dY or f32: read
  /// forward, this verb is the transposed convolution.
  void conv2d_input_gradient(const Tensor& gradient, const Tensor& weight, const Conv2dGeometry& geometry,
                             const Tensor* bias, Tensor& out, CastProbe* probe = nullptr);
  /// dW (K, C / groups, R, S) from x and dY: k runs over (n, p, q).
  void conv2d_weight_gradient(const Tensor& x, const Tensor& gradient, const Conv2dGeometry& geometry,
                              Tensor& out, CastProbe* probe = nullptr);

  // ---- pooling ----
  // x and out f, 4-d in the geometry's layout; index i32 in out's shape.
  /// out: the maximum of each window, index: its place h * W + w. Windows are walked in (r, s) order; the
  /// first maximum wins, a NaN is above everything and the first NaN wins.
  void max_pool2d(const Tensor& x, const Pool2dGeometry& geometry, Tensor& out, Tensor& index);
  /// out = x at `index`, plane by plane.
  void pool_pick(const Tensor& x, const Tensor& index, Layout layout, Tensor& out);
  /// Its transpose: every element of out is the FP32 sum of the x whose index names it, in ascending (p, q)
  /// from the first one, rounded once; +0 where there is none.
  void pool_place(const Tensor& x, const Tensor& index, Layout layout, Tensor& out);
  /// out = div_rn(FP32 sum of the window's elements in (r, s) order from the first one, R * S), rounded once;
  /// padding counts (as torch's count_include_pad) but is not added.
  void average_pool2d(const Tensor& x, const Pool2dGeometry& geometry, Tensor& out);
  /// Its transpose: every element of out is div_rn(FP32 sum of the x of the windows that hold it in ascending
  /// (p, q) from the first one, R * S), rounded once; +0 where there is none.
  void average_pool2d_transposed(const Tensor& x, const Pool2dGeometry& geometry, Tensor& out);

  // ---- the step: detect, decide, apply ----
  /// A StepState in back-end memory (a u8 tensor of sizeof(StepState) bytes).
  Tensor make_step_state(const StepState& initial);
  StepState read_step_state(const Tensor& step);
  void write_step_state(const StepState& state, Tensor& step);
  /// Runs a scalar program on the state, in stream order with the other verbs.
  void run(const ScalarProgram& program, Tensor& step);
  /// out (f32, one element) = float(S): the seed of the backward pass.
  void fill_scale(const Tensor& step, Tensor& out);
  /// g = mul_rn(g, inverse_scale) for every gradient (f; dtypes may differ), in place, one pass, no early
  /// out; sets found_inf[optimizer] to 1 if any element was not finite before the multiplication, and leaves
  /// it otherwise: the caller zeroes it. A 16-bit gradient is rounded again, so that unscaling may flush what
  /// scaling had saved (paddle's O2 does so, and amp::GradScaler offers to widen first).
  void unscale(std::span<Tensor> gradients, int optimizer, Tensor& step);
  // Gradients of 16 bits: norms widen (exact), clipping rounds once more.
  /// grad_norm = sqrt(sum over tensors, in the given order, of TREE sums of squares), all in FP64.
  void global_norm(std::span<const Tensor> gradients, Tensor& step);
  /// If grad_norm is finite and above max_norm: g = mul_rn(g, float(max_norm / (grad_norm + 1e-6))). In
  /// place.
  void clip_by_norm(std::span<Tensor> gradients, double max_norm, Tensor& step);
  /// g = minimum(maximum(g, -max_value), max_value), max_value > 0 an FP32 number; a NaN stays. In place.
  void clip_by_value(std::span<Tensor> gradients, float max_value);
  /// One step of one weight by a rule of the table, which says what it computes and in which order
  /// (engine/backend/update_rules.hpp). Applied only if found_inf[optimizer] == 0; otherwise no byte of
  /// weight or states changes. A weight of 16 bits (where there is no master copy) is widened, and the new
  /// one rounded to nearest even once, at the end, or as `store` says.
  void update(const UpdateCall& call);

  // ---- counting and digests ----
  void histogram(const Tensor& x, ExponentHistogram& out);  ///< adds to `out`
  /// Counts x on both sides of `probe`, for values that nothing rounded.
  void histogram(const Tensor& x, CastProbe& probe);
  /// Counts x (f16 or bf16) before and after rounding to an FP8 format as OperandRounding::fp8 does it, which
  /// stores nothing. Back ends that refuse FP8 products refuse this (std::invalid_argument).
  void histogram(const Tensor& x, DType format, CastProbe& probe);
  /// Counts what an update made of a weight: `before` (f32) is the weight before it, `weight` after it, and
  /// `gradient` its gradient; shapes are equal. The counts are those of the verbs that UpdateProbes names,
  /// and come from those verbs where a back end has nothing better.
  void count_update(const Tensor& before, const Tensor& weight, const Tensor& gradient, UpdateProbes& probes);
  /// Completes the counts of the probes (probes that share `pending` with another one: each of them, once).
  void settle(std::span<CastProbe* const> probes);
  /// Order-independent digest: the sum mod 2^64 of digest_word(word, position, key) over the tensor's bytes
  /// as little-endian 64-bit words, the last one zero-padded (engine/backend/digest_functions.hpp).
  std::uint64_t digest(const Tensor& x, std::uint64_t key);
  /// The sum mod 2^64 of the digests of all items, handed to the host once.
  std::uint64_t digest(std::span<const DigestItem> items);

  // ---- a step as one piece ----
  /// Can verbs be recorded?
  virtual bool records() const { return false; }
  /// Calls `work` once; its verbs are recorded instead of done (CUDA: captured as a graph), and
  /// Recording::replay does them, with the bits that calling `work` would give. Host code of `work` runs now
  /// and not again. Tensors that `work` made and still holds stay valid; memory that it gave back serves
  /// other recordings too, so between two replays it holds nothing. Tensors from before that `work` uses must
  /// live as long as the recording. Verbs that hand numbers to or take them from the host (upload, download,
  /// read_step_state, write_step_state, settle, digest, histogram into an ExponentHistogram) throw
  /// std::logic_error naming themselves. std::logic_error where records() is false.
  virtual std::unique_ptr<Recording> record(const std::function<void()>& work);

  /// Threads of this process that share a verb: 1 where verbs run elsewhere.
  virtual int host_threads() const { return 1; }

  // ---- the clock ----
  /// Milliseconds that `work` takes: on the device's own time line where there is one, from the end of the
  /// verbs before it to the end of its own; else by the host's clock. Waits. std::logic_error while
  /// recording.
  virtual double milliseconds(const std::function<void()>& work);

 protected:
#define FP16LAB_VERB(verb, ...) virtual void do_##verb(__VA_ARGS__) = 0;
  FP16LAB_BACKEND_VERBS(FP16LAB_VERB)
#undef FP16LAB_VERB
  virtual std::uint64_t do_digest(std::span<const DigestItem> items) = 0;
  virtual Tensor do_pack_b(const GemmCall&, const checks::GemmPlan&) { return {}; }
  virtual void do_count_update(const Tensor& before, const Tensor& weight, const Tensor& gradient,
                               UpdateProbes& probes);
  /// `out`, after each verb that rounds results into it: for a back end whose formats saturate.
  virtual void rounded(Tensor& /*out*/) {}

 private:
  void conv2d(const Conv2dCall& call, const functions::Conv2dPlan& plan);
};

/// `x` (floating) in FP32, exact: `x` itself if it has that dtype, else a new tensor.
Tensor widened(Backend& backend, const Tensor& x);

}  // namespace fp16lab::engine
