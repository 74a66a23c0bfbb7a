// Casts and elementwise arithmetic. FP16 goes through FP32 in strips that stay in the first-level cache.
#include <array>

#include "engine/backend/checks.hpp"
#include "engine/backend/elementwise_functions.hpp"
#include "engine/backend/emulated/backend_impl.hpp"
#include "engine/backend/emulated/vector_clones.hpp"
#include "numerics/convert.hpp"

namespace fp16lab::engine {

namespace {

constexpr std::int64_t strip = 1024;
using Strip = std::array<float, strip>;

/// out[i] = function(x[i]). `out` may be x.
template <class Function>
inline void map(const float* x, float* out, std::int64_t n, Function function) {
  FP16LAB_INDEPENDENT_ITERATIONS
  for (std::int64_t i = 0; i < n; ++i) out[i] = function(x[i]);
}

/// out[i] = function(a[i or 0], b[i or 0]): an operand with stride 0 stays.
template <class Function>
inline void map(const float* a, std::int64_t stride_a, const float* b, std::int64_t stride_b, float* out,
                std::int64_t n, Function function) {
  if (stride_a != 0 && stride_b != 0) {
    FP16LAB_INDEPENDENT_ITERATIONS
    for (std::int64_t i = 0; i < n; ++i) out[i] = function(a[i], b[i]);
  } else if (stride_a != 0) {
    const float constant = b[0];
    FP16LAB_INDEPENDENT_ITERATIONS
    for (std::int64_t i = 0; i < n; ++i) out[i] = function(a[i], constant);
  } else if (stride_b != 0) {
    const float constant = a[0];
    FP16LAB_INDEPENDENT_ITERATIONS
    for (std::int64_t i = 0; i < n; ++i) out[i] = function(constant, b[i]);
  } else {
    const float constant = function(a[0], b[0]);
    for (std::int64_t i = 0; i < n; ++i) out[i] = constant;
  }
}

FP16LAB_VECTOR_CLONES
void apply_unary(UnaryOp op, const float* x, float* out, std::int64_t n) {
  functions::visit(op, [=](auto function) { map(x, out, n, function); });
}

FP16LAB_VECTOR_CLONES
void apply_binary(BinaryOp op, const float* a, std::int64_t stride_a, const float* b, std::int64_t stride_b,
                  float* out, std::int64_t n) {
  functions::visit(op, [=](auto function) { map(a, stride_a, b, stride_b, out, n, function); });
}

std::size_t to_size(std::int64_t n) { return static_cast<std::size_t>(n); }

void widen_strip(const Float16* from, std::int64_t n, Strip& to) {
  widen(std::span(from, to_size(n)), std::span(to).first(to_size(n)));
}
void narrow_strip(const Strip& from, std::int64_t n, Float16* to) {
  narrow(std::span(from).first(to_size(n)), std::span(to, to_size(n)));
}

/// The same two for f16 operands: widen, apply, round.
void apply_unary(UnaryOp op, const Float16* x, Float16* out, std::int64_t n) {
  Strip wide;
  for (std::int64_t first = 0; first < n; first += strip) {
    const std::int64_t count = std::min(strip, n - first);
    widen_strip(x + first, count, wide);
    apply_unary(op, wide.data(), wide.data(), count);
    narrow_strip(wide, count, out + first);
  }
}

void apply_binary(BinaryOp op, const Float16* a, std::int64_t stride_a, const Float16* b,
                  std::int64_t stride_b, Float16* out, std::int64_t n) {
  Strip wide_a, wide_b;
  for (std::int64_t first = 0; first < n; first += strip) {
    const std::int64_t count = std::min(strip, n - first);
    widen_strip(a + first * stride_a, stride_a == 0 ? 1 : count, wide_a);
    widen_strip(b + first * stride_b, stride_b == 0 ? 1 : count, wide_b);
    apply_binary(op, wide_a.data(), stride_a, wide_b.data(), stride_b, wide_a.data(), count);
    narrow_strip(wide_a, count, out + first);
  }
}

/// binary with a scalar of FP32 as second operand, which f16 could not hold.
void apply_scalar(BinaryOp op, const float* x, float scalar, float* out, std::int64_t n) {
  apply_binary(op, x, 1, &scalar, 0, out, n);
}
void apply_scalar(BinaryOp op, const Float16* x, float scalar, Float16* out, std::int64_t n) {
  Strip wide;
  for (std::int64_t first = 0; first < n; first += strip) {
    const std::int64_t count = std::min(strip, n - first);
    widen_strip(x + first, count, wide);
    apply_binary(op, wide.data(), 1, &scalar, 0, wide.data(), count);
    narrow_strip(wide, count, out + first);
  }
}

/// Elements [begin, end) of the output in row-major order, one run along the innermost axis at a time.
template <class T>
void binary_range(BinaryOp op, const BroadcastPlan& plan, const T* a, const T* b, T* out, std::int64_t begin,
                  std::int64_t end) {
  const std::int64_t inner = plan.inner_extent();
  for (std::int64_t at = begin; at < end;) {
    const std::int64_t column = at % inner;
    std::int64_t row = at / inner;
    std::int64_t offset_a = column * plan.inner_stride_a();
    std::int64_t offset_b = column * plan.inner_stride_b();
    for (int axis = plan.rank - 2; axis >= 0; --axis) {
      const auto i = static_cast<std::size_t>(axis);
      const std::int64_t index = row % plan.extents[i];
      row /= plan.extents[i];
      offset_a += index * plan.strides_a[i];
      offset_b += index * plan.strides_b[i];
    }
    const std::int64_t run = std::min(inner - column, end - at);
    apply_binary(op, a + offset_a, plan.inner_stride_a(), b + offset_b, plan.inner_stride_b(), out + at, run);
    at += run;
  }
}

template <class T>
void binary_all(const Workers& workers, BinaryOp op, const BroadcastPlan& plan, const Tensor& a,
                const Tensor& b, Tensor& out) {
  const T* const pa = a.host<T>().data();
  const T* const pb = b.host<T>().data();
  T* const po = out.host<T>().data();
  workers.for_each_element_chunk(out.element_count(), [&](std::int64_t begin, std::int64_t end) {
    binary_range(op, plan, pa, pb, po, begin, end);
  });
}

/// Calls body(type tag) with a value of the element type of f tensors.
template <class Body>
void with_element_type(DType dtype, const Body& body) {
  if (dtype == DType::f32) return body(float{});
  return body(Float16::from_bits(0));
}

void scalar_all(const Workers& workers, BinaryOp op, const Tensor& x, float scalar, Tensor& out) {
  with_element_type(x.dtype(), [&](auto tag) {
    using T = decltype(tag);
    const T* const from = x.host<T>().data();
    T* const to = out.host<T>().data();
    workers.for_each_element_chunk(x.element_count(), [=](std::int64_t begin, std::int64_t end) {
      apply_scalar(op, from + begin, scalar, to + begin, end - begin);
    });
  });
}

}  // namespace

void EmulatedBackend::cast(const Tensor& x, Tensor& out, CastProbe* probe) {
  checks::cast(x, out);
  if (x.dtype() == DType::f32) return store(x, out, probe);
  if (probe != nullptr) count(x, probe->before);
  if (out.dtype() == DType::f16) {
    copy(x, out);
  } else {
    widen(x.host<Float16>(), out.host<float>(), workers_.threads());
  }
  if (probe != nullptr) count(out, probe->after);
}

void EmulatedBackend::unary(UnaryOp op, const Tensor& x, Tensor& out) {
  checks::unary(x, out);
  with_element_type(x.dtype(), [&](auto tag) {
    using T = decltype(tag);
    const T* const from = x.host<T>().data();
    T* const to = out.host<T>().data();
    workers_.for_each_element_chunk(x.element_count(), [=](std::int64_t begin, std::int64_t end) {
      apply_unary(op, from + begin, to + begin, end - begin);
    });
  });
}

void EmulatedBackend::binary(BinaryOp op, const Tensor& a, const Tensor& b, Tensor& out) {
  const BroadcastPlan plan = checks::binary(a, b, out);
  with_element_type(out.dtype(), [&](auto tag) { binary_all<decltype(tag)>(workers_, op, plan, a, b, out); });
}

void EmulatedBackend::scale(const Tensor& x, float factor, Tensor& out) {
  checks::scale_or_divide("scale", x, out);
  scalar_all(workers_, BinaryOp::multiply, x, factor, out);
}

void EmulatedBackend::divide(const Tensor& x, float divisor, Tensor& out) {
  checks::scale_or_divide("divide", x, out);
  scalar_all(workers_, BinaryOp::divide, x, divisor, out);
}

}  // namespace fp16lab::engine
