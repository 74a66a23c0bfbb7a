// Casts and elementwise arithmetic.
#include "engine/backend/checks.hpp"
#include "engine/backend/elementwise_functions.hpp"
#include "engine/backend/emulated/backend_impl.hpp"
#include "engine/backend/emulated/element_types.hpp"
#include "numerics/convert/convert.hpp"
#include "numerics/platform/vector_clones.hpp"

namespace fp16lab::engine {

namespace {

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

/// The same two for operands of 16 bits: widen, apply, round.
template <class Half>
void apply_unary(UnaryOp op, const Half* x, Half* out, std::int64_t n) {
  Strip wide;
  for_each_strip_of(n, [&](std::int64_t first, std::int64_t count) {
    widen_strip(x + first, count, wide.data());
    apply_unary(op, wide.data(), wide.data(), count);
    narrow_strip(wide.data(), count, out + first);
  });
}

template <class Half>
void apply_binary(BinaryOp op, const Half* a, std::int64_t stride_a, const Half* b, std::int64_t stride_b,
                  Half* out, std::int64_t n) {
  Strip wide_a, wide_b;
  for_each_strip_of(n, [&](std::int64_t first, std::int64_t count) {
    widen_strip(a + first * stride_a, stride_a == 0 ? 1 : count, wide_a.data());
    widen_strip(b + first * stride_b, stride_b == 0 ? 1 : count, wide_b.data());
    apply_binary(op, wide_a.data(), stride_a, wide_b.data(), stride_b, wide_a.data(), count);
    narrow_strip(wide_a.data(), count, out + first);
  });
}

/// binary with a scalar of FP32 as second operand, which 16 bits could not hold.
void apply_scalar(BinaryOp op, const float* x, float scalar, float* out, std::int64_t n) {
  apply_binary(op, x, 1, &scalar, 0, out, n);
}
template <class Half>
void apply_scalar(BinaryOp op, const Half* x, float scalar, Half* out, std::int64_t n) {
  Strip wide;
  for_each_strip_of(n, [&](std::int64_t first, std::int64_t count) {
    widen_strip(x + first, count, wide.data());
    apply_binary(op, wide.data(), 1, &scalar, 0, wide.data(), count);
    narrow_strip(wide.data(), count, out + first);
  });
}

/// From one 16-bit format to the other: exact, then one rounding.
template <class From, class To>
void convert_all(const Workers& workers, const Tensor& x, Tensor& out) {
  const From* const from = x.host<From>().data();
  To* const to = out.host<To>().data();
  workers.for_each_element_chunk(x.element_count(), [=](std::int64_t begin, std::int64_t end) {
    Strip wide;
    for_each_strip_of(end - begin, [&](std::int64_t first, std::int64_t count) {
      widen_strip(from + begin + first, count, wide.data());
      narrow_strip(wide.data(), count, to + begin + first);
    });
  });
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

FP16LAB_VECTOR_CLONES
void round_to_tf32(const float* from, float* to, std::int64_t n) {
  const functions::RoundToTf32 round;
  FP16LAB_INDEPENDENT_ITERATIONS
  for (std::int64_t i = 0; i < n; ++i) to[i] = round(from[i]);
}

}  // namespace

Tensor EmulatedBackend::operand(const Tensor& x, bool tf32) {
  if (!tf32) return x;
  Tensor rounded = empty(x.shape(), DType::f32);
  const float* const from = x.host<float>().data();
  float* const to = rounded.host<float>().data();
  workers_.for_each_element_chunk(x.element_count(), [=](std::int64_t begin, std::int64_t end) {
    round_to_tf32(from + begin, to + begin, end - begin);
  });
  return rounded;
}

void EmulatedBackend::do_cast(const CastCall& call) {
  const FloatingPointScope scope;
  const Tensor& x = call.x;
  Tensor& out = call.out;
  const bool by_chance = call.stream != nullptr;
  if (x.dtype() == DType::f32 && !by_chance) return store(x, out, call.probe);
  if (call.probe != nullptr) count(x, call.probe->before);
  if (by_chance) {
    PhiloxStream stream = *call.stream;
    stream.iteration = static_cast<std::uint32_t>(read_step_state(*call.step).iteration);
    with_half_type(out.dtype(), [&](auto tag) {
      narrow_stochastic(std::span<const float>(x.host<float>()), out.host<decltype(tag)>(), stream, 0, {},
                        workers_.threads());
    });
  } else if (out.dtype() == x.dtype()) {
    copy(x, out);
  } else if (out.dtype() == DType::f32) {
    with_half_type(x.dtype(),
                   [&](auto tag) { widen(x.host<decltype(tag)>(), out.host<float>(), workers_.threads()); });
  } else if (out.dtype() == DType::bf16) {
    convert_all<Float16, BFloat16>(workers_, x, out);
  } else {
    convert_all<BFloat16, Float16>(workers_, x, out);
  }
  if (call.probe == nullptr) return;
  count(out, call.probe->after);
  call.probe->counted += static_cast<std::uint64_t>(out.element_count());
}

void EmulatedBackend::do_unary(UnaryOp op, const Tensor& x, Tensor& out) {
  const FloatingPointScope scope;
  with_element_type(x.dtype(), [&](auto tag) {
    using T = decltype(tag);
    const T* const from = x.host<T>().data();
    T* const to = out.host<T>().data();
    workers_.for_each_element_chunk(x.element_count(), [=](std::int64_t begin, std::int64_t end) {
      apply_unary(op, from + begin, to + begin, end - begin);
    });
  });
}

void EmulatedBackend::do_binary(const BinaryCall& call, const BroadcastPlan& plan) {
  const FloatingPointScope scope;
  with_element_type(call.out.dtype(), [&](auto tag) {
    using T = decltype(tag);
    const T* const a = call.a.host<T>().data();
    const T* const b = call.b == nullptr ? nullptr : call.b->host<T>().data();
    T* const out = call.out.host<T>().data();
    workers_.for_each_element_chunk(call.out.element_count(), [&](std::int64_t begin, std::int64_t end) {
      if (b == nullptr)
        apply_scalar(call.op, a + begin, call.scalar, out + begin, end - begin);
      else
        binary_range(call.op, plan, a, b, out, begin, end);
    });
  });
}

}  // namespace fp16lab::engine
