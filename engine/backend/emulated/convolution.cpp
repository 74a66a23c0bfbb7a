// Convolutions: patches are gathered block by block into scratch, and each block is a product of
// numerics/gemm/gemm.hpp.
//
// A forward or input-gradient product has one accumulator chain for each (output row, position), so blocks of
// positions are independent and threads share them. In a weight gradient the positions are the chain itself:
// its blocks follow one another, each from the accumulators that the one before left. Groups of channels are
// products of their own, over the same unrolled planes.
#include <algorithm>

#include "engine/backend/checks.hpp"
#include "engine/backend/emulated/backend_impl.hpp"
#include "engine/backend/emulated/element_types.hpp"
#include "engine/backend/emulated/patches.hpp"
#include "engine/backend/emulated/product.hpp"

namespace fp16lab::engine {

using functions::Conv2dPlan;

namespace {

constexpr std::int64_t round_up(std::int64_t x, std::int64_t multiple) {
  return (x + multiple - 1) / multiple * multiple;
}

// Blocks of positions. Their patches stay in the second-level cache, but the other operand, packed anew for
// each block, must not cost much beside them.
constexpr std::int64_t position_step = 64;  ///< a vector panel of the products
constexpr std::int64_t patch_elements = std::int64_t{1} << 18;
constexpr std::int64_t fewest_positions = 256;
constexpr std::int64_t most_positions = 2048;

/// Threads worth waking for a product of so many multiply-adds.
int useful_threads(std::int64_t m, std::int64_t n, std::int64_t k, int threads) {
  constexpr double multiply_adds_per_thread = 1 << 19;
  const double work = static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  return static_cast<int>(std::clamp<double>(work / multiply_adds_per_thread, 1, threads));
}

/// Positions per block, so that every thread has its share.
std::int64_t block_of(std::int64_t positions, std::int64_t depth, int threads) {
  const std::int64_t fitting =
      std::clamp(patch_elements / std::max<std::int64_t>(1, depth), fewest_positions, most_positions);
  std::int64_t blocks = (positions + fitting - 1) / fitting;
  if (blocks >= threads || positions >= threads * fewest_positions) blocks = round_up(blocks, threads);
  return round_up((positions + blocks - 1) / blocks, position_step);
}

/// Runs body(image, first position in the image, first position in [begin, end), count) for the images of
/// [begin, end).
template <class Body>
void for_each_image(std::int64_t begin, std::int64_t end, std::int64_t plane, const Body& body) {
  for (std::int64_t at = begin; at < end;) {
    const std::int64_t count = std::min(plane - at % plane, end - at);
    body(at / plane, at % plane, at - begin, count);
    at += count;
  }
}

}  // namespace

/// The order of k, slowest first.
enum class ChainOrder { channel_row_column, row_column_channel };

/// For each group: out(row, position) = sum over the patches' rows of weights(row, k) * patches(k, position),
/// + bias(row).
template <class T>
struct EmulatedBackend::PatchProduct {
  const TensorCoreModel& row;
  const Patches& patches;
  const Tensor& source;
  ChainOrder order;  ///< order of the patches' rows
  const T* weights;  ///< those of all groups, rows x patches.depth() each, in that order
  std::int64_t groups;
  std::int64_t rows;  ///< a group's
  const float* bias;  ///< one per row of every group, or null
  Layout layout;      ///< out's: positions innermost, or rows innermost
  Tensor& out;
  CastProbe* probe;
};

template <class T>
void EmulatedBackend::run(const PatchProduct<T>& product) {
  const Patches& patches = product.patches;
  Tensor& output = product.out;
  const std::int64_t positions = patches.positions(), depth = patches.depth();
  const std::int64_t rows = product.rows, groups = product.groups, all_rows = groups * rows;
  if (positions == 0 || rows == 0) return;
  const int threads = useful_threads(all_rows, positions, depth, workers_.threads());
  const std::int64_t block = block_of(positions, depth, threads);
  const std::int64_t blocks_of_group = (positions + block - 1) / block, blocks = groups * blocks_of_group;
  // Enough blocks: each thread takes some. Too few: all threads work on one after the other.
  const bool share_blocks = blocks > 1 && blocks >= threads;
  const int seats = share_blocks ? workers_.threads() : 1;
  const int team_size = share_blocks ? 1 : threads;
  const Tensor patch_scratch = empty(Shape{seats, depth, block}, DTypeOf<T>::value);
  const Tensor accumulator_scratch = empty(Shape{seats, rows, block}, DType::f32);
  const bool planar = product.layout == Layout::nchw;
  // Are results of a block apart in out?
  const bool scattered = planar || groups > 1;
  const bool rounds = scattered && output.dtype() != DType::f32;
  const Tensor rounded_scratch =
      rounds ? empty(Shape{seats, rows, block}, output.dtype()) : accumulator_scratch;
  const Tensor unrolled = patches.unrolled<T>(*this, workers_, product.source, product.layout);
  const T* const planes = unrolled.host<T>().data();
  ProbedRounding round(product.probe);

  const auto run_block = [&](std::int64_t i, std::int64_t seat) {
    const std::int64_t group = i / blocks_of_group, begin = i % blocks_of_group * block;
    const std::int64_t end = std::min(positions, begin + block);
    const std::int64_t width = end - begin, channels = patches.group_channels();
    const T* const weights = product.weights + group * rows * depth;
    const float* const bias = product.bias == nullptr ? nullptr : product.bias + group * rows;
    T* const columns = patch_scratch.host<T>().data() + seat * depth * block;
    float* const acc = accumulator_scratch.host<float>().data() + seat * rows * block;
    const auto gather = [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t channel = first; channel < last; ++channel) {
        if (product.order == ChainOrder::channel_row_column)
          patches.write(planes, product.layout, group * channels + channel, begin, end,
                        columns + channel * patches.taps() * width, width);
        else
          patches.write(planes, product.layout, group * channels + channel, begin, end,
                        columns + channel * width, channels * width);
      }
    };
    if (team_size == 1)
      gather(0, channels);
    else
      workers_.for_each_chunk(channels, 8, gather);

    if (planar) {
      accumulate(product.row, {rows, width, depth}, MatrixView<T>{weights, depth, false},
                 MatrixView<T>{columns, width, false}, nullptr, acc, width, team_size);
      for (std::int64_t row = 0; row < rows && bias != nullptr; ++row)
        add_to(acc + row * width, bias[row], width);
    } else {
      accumulate(product.row, {width, rows, depth}, MatrixView<T>{columns, width, true},
                 MatrixView<T>{weights, depth, true}, nullptr, acc, rows, team_size);
      for (std::int64_t at = 0; at < width && bias != nullptr; ++at) add_to(acc + at * rows, bias, rows);
    }
    with_element_type(output.dtype(), [&](auto tag) {
      using Out = decltype(tag);
      Out* const out = output.host<Out>().data();
      if (!scattered) return round(acc, rows * width, out + begin * rows);
      Out* const rounded = rounded_scratch.host<Out>().data() + seat * rows * block;
      round(acc, rows * width, rounded);
      // With channels innermost they are runs of a group's rows, one for each position.
      for (std::int64_t at = 0; at < width && !planar; ++at)
        copy_run(rounded + at * rows, rows, out + (begin + at) * all_rows + group * rows);
      // Planar outputs are runs of positions, one for each row and image.
      for (std::int64_t row = 0; row < rows && planar; ++row)
        for_each_image(begin, end, patches.plane(),
                       [&](std::int64_t image, std::int64_t place, std::int64_t at, std::int64_t count) {
                         copy_run(rounded + row * width + at, count,
                                  out + (image * all_rows + group * rows + row) * patches.plane() + place);
                       });
    });
  };
  if (share_blocks) return workers_.for_each_task(blocks, run_block);
  for (std::int64_t i = 0; i < blocks; ++i) run_block(i, 0);
}

template <class T>
void EmulatedBackend::forward(const Conv2dPlan& plan, const Tensor& x, const Tensor& weight,
                              const Tensor* bias, const Conv2dGeometry& geometry, Tensor& out,
                              CastProbe* probe) {
  const Layout layout = geometry.layout;
  const bool nchw = layout == Layout::nchw;
  Tensor filters = weight;
  if (!nchw) {  // (K, R, S, C of a group)
    filters = empty(Shape{plan.outputs, plan.vertical.taps, plan.horizontal.taps, plan.group_inputs()},
                    weight.dtype());
    permute(weight, std::array{0, 2, 3, 1}, filters);
  }
  const Tensor wide_bias = bias == nullptr ? Tensor() : widened(*bias);
  const Patches patches(plan, Gather::inputs);
  run(PatchProduct<T>{.row = row_for<T>("conv2d", geometry.tf32),
                      .patches = patches,
                      .source = x,
                      .order = nchw ? ChainOrder::channel_row_column : ChainOrder::row_column_channel,
                      .weights = filters.host<T>().data(),
                      .groups = plan.groups,
                      .rows = plan.group_outputs(),
                      .bias = bias == nullptr ? nullptr : wide_bias.host<float>().data(),
                      .layout = layout,
                      .out = out,
                      .probe = probe});
}

template <class T>
void EmulatedBackend::input_gradient(const Conv2dPlan& plan, const Tensor& gradient, const Tensor& weight,
                                     const Tensor* bias, const Conv2dGeometry& geometry, Tensor& out,
                                     CastProbe* probe) {
  // The filters of each group: (the group's C, the group's K, R, S).
  const std::int64_t taps = plan.vertical.taps * plan.horizontal.taps;
  Tensor filters = empty(Shape{plan.groups, plan.group_inputs(), plan.group_outputs(), taps}, weight.dtype());
  permute(weight.reshaped({plan.groups, plan.group_outputs(), plan.group_inputs(), taps}),
          std::array{0, 2, 1, 3}, filters);
  const Tensor wide_bias = bias == nullptr ? Tensor() : widened(*bias);
  const Patches patches(plan, Gather::outputs);
  run(PatchProduct<T>{.row = row_for<T>("conv2d_input_gradient", geometry.tf32),
                      .patches = patches,
                      .source = gradient,
                      .order = ChainOrder::channel_row_column,
                      .weights = filters.host<T>().data(),
                      .groups = plan.groups,
                      .rows = plan.group_inputs(),
                      .bias = bias == nullptr ? nullptr : wide_bias.host<float>().data(),
                      .layout = geometry.layout,
                      .out = out,
                      .probe = probe});
}

namespace {

/// The part of dW that one task accumulates: filters [row, row + rows), which are of one group, and its input
/// channels [channel, channel + channels), counted from `first_channel` of all.
struct WeightPart {
  std::int64_t row, rows, channel, channels, first_channel;
};

/// dW cut into about `parts` parts for each group, along the input channels (each then gathers its own
/// patches) as far as they go.
class WeightParts {
 public:
  /// rows, channels: a group's.
  WeightParts(std::int64_t groups, std::int64_t rows, std::int64_t channels, std::int64_t parts)
      : groups_(groups),
        rows_(rows),
        channels_(channels),
        channel_parts_(std::min(channels, parts)),
        row_parts_(std::min(rows, (parts + channel_parts_ - 1) / channel_parts_)) {}

  std::int64_t of_group() const { return channel_parts_ * row_parts_; }
  std::int64_t count() const { return groups_ * of_group(); }
  WeightPart operator[](std::int64_t i) const {
    const std::int64_t group = i / of_group(), r = i % of_group() / channel_parts_, c = i % channel_parts_;
    const std::int64_t row = rows_ * r / row_parts_, channel = channels_ * c / channel_parts_;
    return {group * rows_ + row, rows_ * (r + 1) / row_parts_ - row, channel,
            channels_ * (c + 1) / channel_parts_ - channel, group * channels_};
  }
  /// No part has more.
  std::int64_t most_rows() const { return (rows_ + row_parts_ - 1) / row_parts_; }
  std::int64_t most_channels() const { return (channels_ + channel_parts_ - 1) / channel_parts_; }

 private:
  std::int64_t groups_, rows_, channels_, channel_parts_, row_parts_;
};

}  // namespace

template <class T>
void EmulatedBackend::weight_gradient(const Conv2dPlan& plan, const Tensor& x, const Tensor& gradient,
                                      const Conv2dGeometry& geometry, Tensor& out, CastProbe* probe) {
  const Layout layout = geometry.layout;
  const TensorCoreModel& row = row_for<T>("conv2d_weight_gradient", geometry.tf32);
  const Patches patches(plan, Gather::inputs);
  const std::int64_t rows = plan.outputs, depth = patches.depth(), positions = patches.positions();
  if (rows == 0 || depth == 0) return;
  Tensor accumulators = out.dtype() == DType::f32 ? out : empty(out.shape(), DType::f32);
  if (positions == 0) {
    fill(accumulators, 0.0);
    return store(accumulators, out, probe);
  }
  const std::int64_t threads = useful_threads(rows, depth, positions, workers_.threads());
  const WeightParts parts(plan.groups, plan.group_outputs(), plan.group_inputs(),
                          (threads + plan.groups - 1) / plan.groups);
  const std::int64_t seats = parts.count() > 1 ? workers_.threads() : 1;
  const std::int64_t taps = patches.taps();
  // A block ends where a fused block of the tensor core ends, so that the chain is the one over all
  // positions.
  const std::int64_t fitting =
      std::clamp<std::int64_t>(patch_elements / (parts.most_channels() * taps), 512, 8192);
  const std::int64_t block = round_up(std::min(fitting, positions), row.products() * position_step);
  const bool planar = layout == Layout::nchw;
  const Tensor unrolled = patches.unrolled<T>(*this, workers_, x, layout);
  const Tensor patch_scratch = empty(Shape{seats, parts.most_channels() * taps, block}, DTypeOf<T>::value);
  const Tensor gradient_scratch =
      planar ? empty(Shape{seats, parts.most_rows(), block}, DTypeOf<T>::value) : Tensor();
  const T* const dy = gradient.host<T>().data();

  const auto run_block = [&](std::int64_t seat, const WeightPart& part, std::int64_t begin,
                             std::int64_t end) {
    const std::int64_t width = end - begin;
    T* const columns = patch_scratch.host<T>().data() + seat * parts.most_channels() * taps * block;
    for (std::int64_t i = 0; i < part.channels; ++i)
      patches.write(unrolled.host<T>().data(), layout, part.first_channel + part.channel + i, begin, end,
                    columns + i * taps * width, width);
    MatrixView<T> dy_block{dy + begin * rows + part.row, rows, true};
    if (planar) {
      T* const runs = gradient_scratch.host<T>().data() + seat * parts.most_rows() * block;
      for (std::int64_t filter = 0; filter < part.rows; ++filter)
        for_each_image(begin, end, patches.plane(),
                       [&](std::int64_t image, std::int64_t place, std::int64_t at, std::int64_t count) {
                         copy_run(dy + (image * rows + part.row + filter) * patches.plane() + place, count,
                                  runs + filter * width + at);
                       });
      dy_block = {runs, width, false};
    }
    float* const acc = accumulators.host<float>().data() + part.row * depth + part.channel * taps;
    accumulate(row, {part.rows, part.channels * taps, width}, dy_block, MatrixView<T>{columns, width, true},
               begin == 0 ? nullptr : acc, acc, depth, 1);
  };
  workers_.for_each_task(parts.count(), [&](std::int64_t i, std::int64_t seat) {
    for (std::int64_t begin = 0; begin < positions; begin += block)
      run_block(seat, parts[i], begin, std::min(positions, begin + block));
  });
  store(accumulators, out, probe);
}

void EmulatedBackend::do_conv2d(const Conv2dCall& call, const Conv2dPlan& plan) {
  require_one_chain(call.verb(), "convolutions");
  const FloatingPointScope scope;
  const Conv2dGeometry& geometry = call.geometry;
  const Tensor a = operand(call.a, geometry.tf32), b = operand(call.b, geometry.tf32);
  with_element_type(a.dtype(), [&](auto tag) {
    using T = decltype(tag);
    if (call.product == Conv2dProduct::output)
      forward<T>(plan, a, b, call.bias, geometry, call.out, call.probe);
    else if (call.product == Conv2dProduct::input_gradient)
      input_gradient<T>(plan, a, b, call.bias, geometry, call.out, call.probe);
    else
      weight_gradient<T>(plan, a, b, geometry, call.out, call.probe);
  });
}

}  // namespace fp16lab::engine
