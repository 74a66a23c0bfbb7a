#include "engine/backend/emulated/product.hpp"

#include <algorithm>
#include <memory>
#include <span>

#include "engine/backend/elementwise_functions.hpp"
#include "numerics/convert/convert.hpp"
#include "numerics/platform/vector_clones.hpp"

namespace fp16lab::engine {

FP16LAB_VECTOR_CLONES
void add_to(float* t, const float* addend, std::int64_t n) {
  const functions::Add add;
  FP16LAB_INDEPENDENT_ITERATIONS
  for (std::int64_t i = 0; i < n; ++i) t[i] = add(t[i], addend[i]);
}

FP16LAB_VECTOR_CLONES
void add_to(float* t, float addend, std::int64_t n) {
  const functions::Add add;
  FP16LAB_INDEPENDENT_ITERATIONS
  for (std::int64_t i = 0; i < n; ++i) t[i] = add(t[i], addend);
}

void accumulate_in_f16(const TensorCoreModel& row, GemmShape shape, MatrixView<Float16> a,
                       MatrixView<Float16> b, const float* c, float* d, std::int64_t ldd, int threads,
                       std::byte* packed_b) {
  const auto columns = static_cast<std::size_t>(shape.n);
  const auto sums = std::make_unique_for_overwrite<Float16[]>(static_cast<std::size_t>(shape.m) * columns);
  const auto sums_of = [&](std::int64_t i) { return std::span(sums.get() + i * shape.n, columns); };
  if (c != nullptr)
    for (std::int64_t i = 0; i < shape.m; ++i) narrow(std::span(c + i * ldd, columns), sums_of(i));
  emulated_gemm(row, shape, a, b, c == nullptr ? nullptr : sums.get(), sums.get(), shape.n, threads,
                packed_b);
  for (std::int64_t i = 0; i < shape.m; ++i) {
    const std::span row_of_d(d + i * ldd, columns);
    widen(std::span<const Float16>(sums_of(i)), row_of_d);
    for (float& x : row_of_d) x = x != x ? float_from_bits(0x7fffffffu) : x;  // NaNs are stored canonical
  }
}

template <class Half>
void ProbedRounding::narrow_block(const float* t, std::int64_t n, Half* out) {
  const std::span from(t, static_cast<std::size_t>(n));
  const std::span to(out, static_cast<std::size_t>(n));
  if (probe_ == nullptr) return narrow(from, to);
  CastProbe block;
  narrow_and_count(from, to, block.before);
  count_exponents(std::span<const Half>(to), block.after);
  const std::scoped_lock lock(mutex_);
  probe_->before += block.before;
  probe_->after += block.after;
  probe_->counted += static_cast<std::uint64_t>(n);
}

void ProbedRounding::operator()(const float* t, std::int64_t n, Float16* out) { narrow_block(t, n, out); }
void ProbedRounding::operator()(const float* t, std::int64_t n, BFloat16* out) { narrow_block(t, n, out); }

void ProbedRounding::operator()(const float* t, std::int64_t n, float* out) {
  if (out != t) std::copy_n(t, n, out);
  if (probe_ == nullptr) return;
  ExponentHistogram block;
  count_exponents(std::span(t, static_cast<std::size_t>(n)), block);
  const std::scoped_lock lock(mutex_);
  probe_->before += block;
  probe_->after += block;
  probe_->counted += static_cast<std::uint64_t>(n);
}

}  // namespace fp16lab::engine
