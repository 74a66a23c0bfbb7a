// Operands with scales for blocks: padded to whole blocks, and quantized.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "engine/backend/emulated/backend_impl.hpp"
#include "engine/backend/emulated/product.hpp"

namespace fp16lab::engine {

namespace {

/// A block of 0 is as large as the matrix.
std::int64_t multiple_of(std::int64_t block) { return std::max<std::int64_t>(block, 1); }

}  // namespace

EmulatedBackend::QuantizedOperand EmulatedBackend::quantized(const Tensor& x, bool transposed,
                                                             const OperandRounding& rounding,
                                                             const QuantizerCall& call) {
  const Quantizer& quantizer = *rounding.quantizer;
  const std::int64_t rows = x.shape()[transposed ? 1 : 0], k = x.shape()[transposed ? 0 : 1];
  const std::int64_t of_k = multiple_of(quantizer.block.columns);
  const MatrixSize size{padded(rows, multiple_of(quantizer.block.rows)),
                        padded(k, rounding.hadamard ? std::lcm(of_k, std::int64_t{hadamard_length}) : of_k)};

  Tensor matrix = empty({size.rows, size.columns}, DType::f32);
  const std::span<float> values = matrix.host<float>();
  const Tensor wide = widened(x);
  const float* const from = wide.host<float>().data();
  const std::int64_t rows_per_task = std::max<std::int64_t>(1, elementwise_chunk / std::max(k, rows));
  workers_.for_each_chunk(size.rows, rows_per_task, [&](std::int64_t begin, std::int64_t end) {
    const auto columns = static_cast<std::size_t>(size.columns);
    const std::span part = values.subspan(static_cast<std::size_t>(begin) * columns,
                                          static_cast<std::size_t>(end - begin) * columns);
    std::ranges::fill(part, 0.0F);
    end = std::min(end, rows);
    if (!transposed) {
      for (std::int64_t row = begin; row < end; ++row)
        std::copy_n(from + row * k, k, values.data() + row * size.columns);
    } else {
      for (std::int64_t column = 0; column < k; ++column)
        for (std::int64_t row = begin; row < end; ++row)
          values[static_cast<std::size_t>(row * size.columns + column)] = from[column * rows + row];
    }
    if (rounding.hadamard) random_hadamard(part, hadamard_length, te_hadamard_signs);
  });

  const MatrixSize blocks = quantizer.scales_of(size);
  QuantizedOperand result{quantizer, {rows, size.columns}};
  result.scales.resize(static_cast<std::size_t>(blocks.rows * blocks.columns));
  result.codes.resize(values.size());
  std::vector<BlockLoss> losses(call.loss == nullptr ? 0 : result.scales.size());
  PhiloxStream random = call.random;
  if (rounding.stochastic)
    random.iteration = static_cast<std::uint32_t>(read_step_state(*call.step).iteration);
  result.tensor_scale = quantize(
      quantizer, size, values, result.codes, result.scales,
      {.scale = call.scale, .random = rounding.stochastic ? &random : nullptr, .threads = workers_.threads()},
      losses);
  if (call.loss != nullptr) {
    QuantizerLoss loss{.values = static_cast<std::uint64_t>(rows * k)};
    for (const BlockLoss& block : losses) loss.add(block);
    for (const float value : values) loss.amax = std::max(loss.amax, std::fabs(value));
    *call.loss += loss;
  }
  result.codes.resize(static_cast<std::size_t>(rows * size.columns));  // a product needs no rows of padding
  return result;
}

}  // namespace fp16lab::engine
