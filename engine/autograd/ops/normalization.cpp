// Softmax and the norms. All arithmetic is FP32, whatever the input; a 16-bit result is rounded once.
//
// A norm is two differentiable values of x, for a set of axes with n elements:
//   r(x)    = 1 / sqrt(mean((x - mean(x))^2) + epsilon)         "rstd"
//   xhat(x) = (x - mean(x)) * r
// followed by the affine map y = xhat * weight + bias. Their vector-Jacobian products,
//   d xhat: r * (g - mean(g) - xhat * mean(g * xhat))
//   d r:    h * -r^3 / n * (x - mean(x)),
// use r and xhat as values of the tape, so that a second derivative flows through the statistics. r is
// computed once, with xhat, and recorded as a node of its own to which only double backward comes. The RMS
// norm is the same without the means: that of x, and those in both products of g.
#include <array>
#include <cstdint>
#include <string>

#include "engine/autograd/by_shard.hpp"
#include "engine/autograd/composite.hpp"
#include "engine/autograd/dispatch.hpp"
#include "engine/autograd/ops.hpp"

namespace fp16lab::engine::ops {

namespace {

using composite::enter;
using composite::enter_parameter;
using composite::without_policy;

/// One input: in FP32, and the dtype of the result.
struct Wide {
  Variable x;
  DType result;
};
Wide enter_one(Op op, const Variable& input, SlotLabel label) {
  std::array<Variable, 1> inputs = {input};
  const DType result = enter(op, inputs, std::array{label});
  return {inputs[0], result};
}

/// The row maximum is subtracted: every exponential is at most 1, and one of them is 1.
Tensor minus_maximum(Backend& backend, const Tensor& x, int axis) {
  return composite::binary(backend, BinaryOp::subtract, x,
                           composite::reduce(backend, ReduceOp::max, x, axis));
}

// ---- softmax ----

Variable softmax_f32(const Variable& x, int axis) {
  Backend& backend = x.tape().backend();
  Tensor y = minus_maximum(backend, x.tensor(), axis);
  backend.unary(UnaryOp::exp, y, y);
  backend.binary(BinaryOp::divide, y, composite::reduce(backend, ReduceOp::sum, y, axis), y);
  return x.tape().record(Op::softmax, y, {{x, [axis](const Variable& g, const Variable& value) {
                                             return multiply(
                                                 value, subtract(g, sum(multiply(g, value), axis, true)));
                                           }}});
}

Variable log_softmax_f32(const Variable& x, int axis) {
  Backend& backend = x.tape().backend();
  Tensor y = minus_maximum(backend, x.tensor(), axis);
  Tensor log_sum =
      composite::reduce(backend, ReduceOp::sum, composite::unary(backend, UnaryOp::exp, y), axis);
  backend.unary(UnaryOp::log, log_sum, log_sum);
  backend.binary(BinaryOp::subtract, y, log_sum, y);
  return x.tape().record(Op::log_softmax, y, {{x, [axis](const Variable& g, const Variable& value) {
                                                 return subtract(g, multiply(exp(value), sum(g, axis, true)));
                                               }}});
}

// ---- norms ----

/// Mean and biased variance over all but the axes that `shape` keeps; both of that shape. An undefined mean
/// is 0: the variance is then the mean square.
struct Statistics {
  Tensor mean;
  Tensor variance;
};

/// r = 1 / sqrt(variance + epsilon)
Tensor reciprocal_deviation(Backend& backend, const Tensor& variance, float epsilon) {
  return composite::unary(
      backend, UnaryOp::reciprocal_square_root,
      composite::binary(backend, BinaryOp::add, variance, composite::scalar(backend, epsilon)));
}

/// (x - mean) * r, with statistics that broadcast to x.
Tensor standardized(Backend& backend, const Tensor& x, const Tensor& mean, const Tensor& r) {
  if (!mean.defined()) return composite::binary(backend, BinaryOp::multiply, x, r);
  Tensor out = composite::binary(backend, BinaryOp::subtract, x, mean);
  backend.binary(BinaryOp::multiply, out, r, out);
  return out;
}

/// What a mean is over: the axes of x that `kept` does not have.
struct Averaged {
  Op op;
  Shape kept;               ///< as the mean broadcasts to x
  bool has_mean = true;     ///< for a norm that subtracts it
  std::int64_t shards = 0;  ///< > 0: x is by shard, and the mean is over all shards of all ranks

  std::int64_t values_of(const Variable& x) const {
    const std::int64_t here = x.shape().element_count() / kept.element_count();
    return shards == 0 ? here : here / stack_height(x.tape()) * shards;
  }
  Variable mean(const Variable& x) const {
    Tape& tape = x.tape();
    if (op == Op::batch_norm && tape.grad_mode() && tape.context().shards.total > 1)
      reject(op, "in a batch of several shards it has no second derivative; expected parallel.shards = 1");
    const auto count = static_cast<float>(values_of(x));
    if (shards == 0) return divide_constant(sum_to(x, kept), count);
    const Shape of_shard = with_extent(kept, 0, stack_height(tape));
    const Tensor sum = sum_over_shards(tape, sum_to(x, of_shard).tensor());
    return divide_constant(tape.constant(sum.reshaped(kept)), count);
  }
  Variable centred(const Variable& x) const { return has_mean ? subtract(x, mean(x)) : x; }
};

/// Records r and xhat of x; `statistics` broadcast to x. `shards` as in Averaged.
Variable normalized(Op op, const Variable& x, const Statistics& statistics, float epsilon,
                    std::int64_t shards = 0) {
  Tape& tape = x.tape();
  Backend& backend = tape.backend();
  const Tensor value = reciprocal_deviation(backend, statistics.variance, epsilon);
  const Averaged over{op, value.shape(), statistics.mean.defined(), shards};
  const Variable r = tape.record(op, value, {{x, [x, over](const Variable& h, const Variable& y) {
                                                const Variable slope = divide_constant(
                                                    negate(multiply(h, multiply(y, multiply(y, y)))),
                                                    static_cast<float>(over.values_of(x)));
                                                return multiply(over.centred(x), slope);
                                              }}});
  return tape.record(op, standardized(backend, x.tensor(), statistics.mean, value),
                     {{x, [r, over](const Variable& g, const Variable& xhat) {
                         const Variable along = multiply(xhat, over.mean(multiply(g, xhat)));
                         return multiply(r, subtract(over.centred(g), along));
                       }}});
}

/// xhat * weight + bias as one node; the parameters (n) broadcast to xhat as `shape`. Both undefined: xhat;
/// the bias alone: no sum.
Variable affine(Op op, const Variable& xhat, const Variable& weight, const Variable& bias,
                const Shape& shape) {
  if (!weight.defined()) return xhat;
  Tape& tape = xhat.tape();
  Backend& backend = tape.backend();
  Tensor y = composite::binary(backend, BinaryOp::multiply, xhat.tensor(), weight.tensor().reshaped(shape));
  if (bias.defined()) backend.binary(BinaryOp::add, y, bias.tensor().reshaped(shape), y);
  const Slot slot_x = {xhat, [weight, shape](const Variable& g, const Variable&) {
                         return multiply(g, reshape(weight, shape));
                       }};
  const Slot slot_w = {weight, [xhat, shape, own = weight.shape()](const Variable& g, const Variable&) {
                         return reshape(sum_to(multiply(g, xhat), shape), stacked(g.tape(), own));
                       }};
  if (!bias.defined()) return tape.record(op, y, {slot_x, slot_w});
  const Slot slot_b = {bias, [shape, own = bias.shape()](const Variable& g, const Variable&) {
                         return reshape(sum_to(g, shape), stacked(g.tape(), own));
                       }};
  return tape.record(op, y, {slot_x, slot_w, slot_b});
}

/// `both`: neither comes without the other one.
void check_parameters(Op op, const Variable& x, const Variable& weight, const Variable& bias,
                      std::int64_t features, bool both = true) {
  if (both && weight.defined() != bias.defined())
    reject(op, "weight and bias go together: give both or neither");
  for (const Variable& parameter : {weight, bias}) {
    if (parameter.defined() && !(parameter.shape() == Shape{features})) {
      reject(op, "a parameter is " + describe(parameter) + " for x " + describe(x) + "; (" +
                     std::to_string(features) + ") is needed");
    }
  }
}

void check_epsilon(Op op, float epsilon) {
  if (!(epsilon >= 0.0f)) reject(op, "epsilon " + std::to_string(epsilon) + "; at least 0 is needed");
}

Statistics layer_statistics(Backend& backend, const Tensor& x) {
  const auto extent = static_cast<float>(x.shape()[-1]);
  const int last = x.shape().rank() - 1;
  const Tensor mean = composite::divide(backend, composite::reduce(backend, ReduceOp::sum, x, last), extent);
  Tensor squares = composite::binary(backend, BinaryOp::subtract, x, mean);
  backend.binary(BinaryOp::multiply, squares, squares, squares);
  return {mean, composite::divide(backend, composite::reduce(backend, ReduceOp::sum, squares, last), extent)};
}

/// r of the RMS norm is that of the mean square, over the last axis.
Statistics square_statistics(Backend& backend, const Tensor& x) {
  const Tensor squares = composite::binary(backend, BinaryOp::multiply, x, x);
  const Tensor sum = composite::reduce(backend, ReduceOp::sum, squares, x.shape().rank() - 1);
  return {{}, composite::divide(backend, sum, static_cast<float>(x.shape()[-1]))};
}

// ---- group norm ----

/// x (N, C, ...) or (N, ..., C): its extents, and the shape in which (C) broadcasts to it.
struct Grouped {
  std::int64_t batch = 0, channels = 0, places = 0;
  bool channels_last = false;  ///< and there are places
  Shape kept;
};

Grouped grouped(const Variable& x, std::int64_t groups, Layout layout) {
  constexpr Op op = Op::group_norm;
  const Shape shape = x.shape();
  if (shape.rank() < 2) reject(op, describe(x) + "; (N, C, ...) or (N, ..., C) is needed");
  const int axis = layout == Layout::nchw ? 1 : shape.rank() - 1;
  const std::int64_t channels = shape[axis];
  if (groups < 1 || channels < 1 || channels % groups != 0)
    reject(op, std::to_string(groups) + " groups of the " + std::to_string(channels) + " channels of " +
                   describe(x) + ": they must divide them");
  ShapeBuilder kept;
  std::int64_t places = 1;
  for (int i = 0; i < shape.rank(); ++i) {
    kept.push(i == axis ? channels : 1);
    if (i != 0 && i != axis) places *= shape[i];
  }
  return {.batch = shape[0],
          .channels = channels,
          .places = places,
          .channels_last = axis != 1,
          .kept = kept.shape()};
}

// ---- batch norm ----

/// Where the channels are: x as (C, values of one channel), and the shape in which (C) broadcasts to x.
struct Channels {
  std::int64_t count = 0;
  std::int64_t values = 0;  ///< per channel
  bool leading = false;     ///< NCHW: the axes after C are not empty
  Shape kept;
};

Channels channels_of(Op op, const Variable& x, Layout layout) {
  const Shape shape = x.shape();
  if (shape.rank() != 2 && shape.rank() != 4)
    reject(op, describe(x) + "; (N, C), (N, C, H, W) or (N, H, W, C) is needed");
  Channels channels;
  channels.leading = shape.rank() == 4 && layout == Layout::nchw;
  channels.count = shape[channels.leading ? 1 : -1];
  if (channels.count < 1) reject(op, describe(x) + " has no channels");
  channels.values = shape.element_count() / channels.count;
  channels.kept = shape.rank() == 2  ? Shape{1, channels.count}
                  : channels.leading ? Shape{1, channels.count, 1, 1}
                                     : Shape{1, 1, 1, channels.count};
  return channels;
}

/// One TREE a channel over its values in row-major order, in each local shard of the rows of x; or, where
/// statistics are synchronised, over all shards. They broadcast to by_shard(x).
Statistics batch_statistics(const Tape& tape, const Tensor& x, const Channels& channels) {
  Backend& backend = tape.backend();
  const std::int64_t shards = stack_height(tape), values = channels.values / shards;
  const bool synchronised = tape.context().synchronises();
  ShapeBuilder kept;
  if (shards > 1) kept.push(synchronised ? 1 : shards);
  for (const std::int64_t extent : channels.kept.extents()) kept.push(extent);
  Tensor rows;  // by shard, the values of a channel adjacent, or the channels of a value
  int axis = 1;
  if (channels.leading) {
    const std::int64_t batch = x.shape()[0] / shards, places = x.shape()[2] * x.shape()[3];
    Tensor planes = backend.empty({shards, channels.count, batch, places}, DType::f32);
    backend.permute(x.reshaped({shards, batch, channels.count, places}), std::array{0, 2, 1, 3}, planes);
    rows = planes.reshaped({shards, channels.count, values});
    axis = 2;
  } else {
    rows = x.reshaped({shards, values, channels.count});
  }
  const auto mean_of = [&](const Tensor& of) {
    const Tensor sums = composite::reduce(backend, ReduceOp::sum, of, axis);
    if (!synchronised) return composite::divide(backend, sums, static_cast<float>(values));
    const Tensor sum = sum_over_shards(tape, sums).reshaped(with_extent(sums.shape(), 0, 1));
    return composite::divide(backend, sum, static_cast<float>(values * tape.context().shards.total));
  };
  const Tensor mean = mean_of(rows);
  Tensor squares = composite::binary(backend, BinaryOp::subtract, rows, mean);
  backend.binary(BinaryOp::multiply, squares, squares, squares);
  return {mean.reshaped(kept.shape()), mean_of(squares).reshaped(kept.shape())};
}

/// Parameters of a norm in FP32, as they are stored (no list concerns them), each under its own name.
struct Affine {
  Variable weight, bias;
};
Affine enter_affine(Op op, const Variable& weight, const Variable& bias) {
  Affine affine;
  if (weight.defined()) affine.weight = enter_parameter(op, weight, SlotLabel::weight);
  if (bias.defined()) affine.bias = enter_parameter(op, bias, SlotLabel::bias);
  return affine;
}

}  // namespace

Variable softmax(const Variable& input, int axis) {
  const Wide wide = enter_one(Op::softmax, input, SlotLabel::none);
  return handed_on(Op::softmax, without_policy(wide.x.tape(), [&] {
                     return cast(softmax_f32(wide.x, normalized_axis(Op::softmax, wide.x, axis)),
                                 wide.result);
                   }));
}

Variable log_softmax(const Variable& input, int axis) {
  const Wide wide = enter_one(Op::log_softmax, input, SlotLabel::none);
  return handed_on(Op::log_softmax, without_policy(wide.x.tape(), [&] {
                     return cast(log_softmax_f32(wide.x, normalized_axis(Op::log_softmax, wide.x, axis)),
                                 wide.result);
                   }));
}

Variable layer_norm(const Variable& input, const Variable& weight, const Variable& bias, float epsilon) {
  tape_of(Op::layer_norm, input);
  const Shape shape = input.shape();
  if (shape.rank() < 1 || shape[-1] < 1)
    reject(Op::layer_norm, describe(input) + " has no last axis to normalise over");
  check_parameters(Op::layer_norm, input, weight, bias, shape[-1]);
  check_epsilon(Op::layer_norm, epsilon);
  const Wide wide = enter_one(Op::layer_norm, input, SlotLabel::input);
  const Affine parameters = enter_affine(Op::layer_norm, weight, bias);
  Tape& tape = wide.x.tape();
  return handed_on(
      Op::layer_norm, without_policy(tape, [&] {
        const Variable xhat =
            normalized(Op::layer_norm, wide.x, layer_statistics(tape.backend(), wide.x.tensor()), epsilon);
        return cast(affine(Op::layer_norm, xhat, parameters.weight, parameters.bias, Shape{shape[-1]}),
                    wide.result);
      }));
}

Variable rms_norm(const Variable& input, const Variable& weight, float epsilon) {
  tape_of(Op::rms_norm, input);
  const Shape shape = input.shape();
  if (shape.rank() < 1 || shape[-1] < 1)
    reject(Op::rms_norm, describe(input) + " has no last axis to normalise over");
  check_parameters(Op::rms_norm, input, weight, {}, shape[-1], false);
  check_epsilon(Op::rms_norm, epsilon);
  const Wide wide = enter_one(Op::rms_norm, input, SlotLabel::input);
  const Affine parameters = enter_affine(Op::rms_norm, weight, {});
  Tape& tape = wide.x.tape();
  return handed_on(
      Op::rms_norm, without_policy(tape, [&] {
        const Variable xhat =
            normalized(Op::rms_norm, wide.x, square_statistics(tape.backend(), wide.x.tensor()), epsilon);
        return cast(affine(Op::rms_norm, xhat, parameters.weight, {}, Shape{shape[-1]}), wide.result);
      }));
}

Variable group_norm(const Variable& input, std::int64_t groups, const Variable& weight, const Variable& bias,
                    float epsilon, Layout layout) {
  tape_of(Op::group_norm, input);
  const Grouped of = grouped(input, groups, layout);
  check_parameters(Op::group_norm, input, weight, bias, of.channels);
  check_epsilon(Op::group_norm, epsilon);
  const Wide wide = enter_one(Op::group_norm, input, SlotLabel::input);
  const Affine parameters = enter_affine(Op::group_norm, weight, bias);
  Tape& tape = wide.x.tape();
  return handed_on(
      Op::group_norm, without_policy(tape, [&] {
        // A row for each part: its channels one after the other.
        const Shape shape = input.shape(), last{of.batch, of.places, of.channels},
                    first{of.batch, of.channels, of.places};
        constexpr std::array swapped{0, 2, 1};
        const Variable planes = of.channels_last ? permute(reshape(wide.x, last), swapped) : wide.x;
        const Variable rows = reshape(planes, {of.batch * groups, of.channels / groups * of.places});
        const Variable xhat =
            normalized(Op::group_norm, rows, layer_statistics(tape.backend(), rows.tensor()), epsilon);
        const Variable back = of.channels_last ? permute(reshape(xhat, first), swapped) : xhat;
        return cast(affine(Op::group_norm, reshape(back, shape), parameters.weight, parameters.bias, of.kept),
                    wide.result);
      }));
}

BatchNormResult batch_norm(const Variable& input, const Variable& weight, const Variable& bias, float epsilon,
                           Layout layout) {
  tape_of(Op::batch_norm, input);
  const Channels channels = channels_of(Op::batch_norm, input, layout);
  check_parameters(Op::batch_norm, input, weight, bias, channels.count);
  check_epsilon(Op::batch_norm, epsilon);
  if (channels.values < 2) {
    reject(Op::batch_norm, describe(input) +
                               " has fewer than two values per channel, which make no batch "
                               "statistics; use the running ones");
  }
  const Wide wide = enter_one(Op::batch_norm, input, SlotLabel::input);
  const Affine parameters = enter_affine(Op::batch_norm, weight, bias);
  Tape& tape = wide.x.tape();
  const std::int64_t over = tape.context().synchronises() ? tape.context().shards.total : 0;
  const Statistics statistics = batch_statistics(tape, wide.x.tensor(), channels);
  const Variable y = handed_on(Op::batch_norm, without_policy(tape, [&] {
                                 const Variable xhat =
                                     normalized(Op::batch_norm, by_shard(wide.x), statistics, epsilon, over);
                                 return cast(affine(Op::batch_norm, reshape(xhat, wide.x.shape()),
                                                    parameters.weight, parameters.bias, channels.kept),
                                             wide.result);
                               }));
  const Shape shape = over > 0 ? Shape{channels.count} : stacked(tape, Shape{channels.count});
  return {.y = y,
          .mean = statistics.mean.reshaped(shape),
          .variance = statistics.variance.reshaped(shape),
          .values = channels.values / stack_height(tape) * std::max<std::int64_t>(over, 1)};
}

Variable batch_norm_inference(const Variable& input, const Tensor& mean, const Tensor& variance,
                              const Variable& weight, const Variable& bias, float epsilon, Layout layout) {
  tape_of(Op::batch_norm, input);
  const Channels channels = channels_of(Op::batch_norm, input, layout);
  check_parameters(Op::batch_norm, input, weight, bias, channels.count);
  check_epsilon(Op::batch_norm, epsilon);
  for (const Tensor& statistic : {mean, variance}) {
    if (!statistic.defined() || statistic.dtype() != DType::f32 ||
        !(statistic.shape() == Shape{channels.count})) {
      reject(Op::batch_norm,
             "a running statistic is " + (statistic.defined() ? statistic.describe() : "undefined") +
                 " for x " + describe(input) + "; f32 (" + std::to_string(channels.count) + ") is needed");
    }
  }
  const Wide wide = enter_one(Op::batch_norm, input, SlotLabel::input);
  const Affine parameters = enter_affine(Op::batch_norm, weight, bias);
  Tape& tape = wide.x.tape();
  Backend& backend = tape.backend();
  const Tensor r = reciprocal_deviation(backend, variance.reshaped(channels.kept), epsilon);
  return handed_on(
      Op::batch_norm, without_policy(tape, [&] {
        const Variable xhat = tape.record(
            Op::batch_norm, standardized(backend, wide.x.tensor(), mean.reshaped(channels.kept), r),
            {{wide.x,
              [r](const Variable& g, const Variable&) { return multiply(g, g.tape().constant(r)); }}});
        return cast(affine(Op::batch_norm, xhat, parameters.weight, parameters.bias, channels.kept),
                    wide.result);
      }));
}

}  // namespace fp16lab::engine::ops
