// Matrix products: the accumulators of numerics/gemm/, then the epilogue in blocks of rows.
#include "numerics/gemm/gemm.hpp"

#include <fmt/format.h>

#include <optional>
#include <stdexcept>
#include <type_traits>

#include "engine/backend/checks.hpp"
#include "engine/backend/emulated/backend_impl.hpp"
#include "engine/backend/emulated/element_types.hpp"
#include "engine/backend/emulated/product.hpp"

namespace fp16lab::engine {

namespace {

/// Matrix `index` of the (rows x columns) matrices of x, whose memory holds elements T; rows and columns as
/// stored.
template <class T>
MatrixView<T> view(const Tensor& x, std::int64_t index, bool transposed) {
  const std::int64_t rows = x.shape()[-2], columns = x.shape()[-1];
  return {reinterpret_cast<const T*>(x.data()) + index * rows * columns, columns, transposed};
}

template <class T>
StridedMatrix strided(const MatrixView<T>& x) {
  return {.format = operand_format_of<T>,
          .data = x.data,
          .row_stride = x.transposed ? 1 : x.leading_dimension,
          .column_stride = x.transposed ? x.leading_dimension : 1};
}

/// Below, waking a thread costs more than it saves.
constexpr std::int64_t multiply_adds_per_task = std::int64_t{1} << 19;

}  // namespace

template <class F>
Tensor EmulatedBackend::rounded_to_fp8(const Tensor& x) {
  Tensor codes = empty(x.shape(), DType::u8);
  auto* const to = reinterpret_cast<SmallFloat<F>*>(codes.data());
  ArithmeticOptions saturating;
  saturating.saturate = true;
  with_half_type(x.dtype(), [&](auto tag) {
    const auto* const from = x.host<decltype(tag)>().data();
    workers_.for_each_element_chunk(x.element_count(), [=](std::int64_t begin, std::int64_t end) {
      Strip wide;
      for_each_strip_of(end - begin, [&](std::int64_t first, std::int64_t count) {
        widen_strip(from + begin + first, count, wide.data());
        const auto n = static_cast<std::size_t>(count);
        narrow(std::span<const float>(wide).first(n), std::span(to + begin + first, n), saturating);
      });
    });
  });
  return codes;
}

void EmulatedBackend::count_rounded_to_fp8(const Tensor& x, DType format, CastProbe& probe) {
  visit_dtype<is_fp8>(format, [&](auto dtype) {
    using Code = typename decltype(dtype)::Element;
    const Tensor codes = rounded_to_fp8<typename Code::Format>(x);
    const auto* const from = reinterpret_cast<const Code*>(codes.data());
    Strip wide;
    for_each_strip_of(x.element_count(), [&](std::int64_t first, std::int64_t count) {
      const std::span<float> strip = std::span(wide).first(static_cast<std::size_t>(count));
      widen(std::span(from + first, strip.size()), strip);
      count_exponents(std::span<const float>(strip), probe.after);
    });
  });
  count(x, probe.before);
  probe.counted += static_cast<std::uint64_t>(x.element_count());
}

void EmulatedBackend::require_one_chain(std::string_view verb, std::string_view what) const {
  if (!in_one_chain())
    throw std::invalid_argument(fmt::format("{}: plan '{}' has no rule for {}", verb, library_.name, what));
}

template <class A, class B>
PlannedProduct EmulatedBackend::planned(const GemmCall& call, const checks::GemmPlan& plan) const {
  constexpr DType a = operand_format_of<A>, b = operand_format_of<B>;
  const TensorCoreModel& row =
      model_.operands.contains(a) ? model_ : planned_row(library_, model_.name, a, b, DType::f32);
  // As a library sees it, a transposed row or column is none.
  return library_.product(row, {.shape = plan.shape,
                                .batch = plan.batch,
                                .kind = call.out.shape().rank() == 3 ? ProductKind::bmm : ProductKind::mm,
                                .a_transposed = call.transpose_a && plan.shape.m > 1,
                                .b_transposed = call.transpose_b && plan.shape.k > 1,
                                .a = a,
                                .b = b,
                                .threads = library_threads_});
}

template <class T>
Tensor EmulatedBackend::rounded_operand(const Tensor& x, bool tf32) {
  if constexpr (is_fp8(operand_format_of<T>))
    return rounded_to_fp8<typename T::Format>(x);
  else
    return operand(x, tf32);
}

template <class A, class B>
std::int64_t EmulatedBackend::packed_b_count(const GemmCall& call, const checks::GemmPlan& plan) const {
  if (call.out.shape().rank() != 2 || (!std::is_same_v<A, float> && !in_one_chain())) return 0;
  return static_cast<std::int64_t>(
      packed_operand_bytes(row_for<A>("gemm", call.tf32), plan.shape, view<B>(call.b, 0, call.transpose_b)));
}

template <class A, class B>
void EmulatedBackend::multiply(const GemmCall& call, const checks::GemmPlan& plan) {
  const bool packs = call.packed_b != nullptr && call.packed_b->defined();
  std::byte* const packed_b = packs ? call.packed_b->data() : nullptr;
  if (packs && call.packed_b->element_count() != packed_b_count<A, B>(call, plan))
    throw std::invalid_argument(fmt::format("gemm: packed_b has {} bytes, but pack_b makes {} of this call",
                                            call.packed_b->element_count(),
                                            packed_b_count<A, B>(call, plan)));
  const Tensor a = rounded_operand<A>(call.a, call.tf32);
  const Tensor b = packed_b == nullptr ? rounded_operand<B>(call.b, call.tf32) : call.b;
  std::optional<PlannedProduct> order;
  if (!std::is_same_v<A, float> && !in_one_chain()) order = planned<A, B>(call, plan);
  const TensorCoreModel& row = order ? *order->row : row_for<A>("gemm", call.tf32);
  finished(call, plan, [&](std::int64_t index, float* to, int threads) {
    const MatrixView<A> left = view<A>(a, index, call.transpose_a);
    const MatrixView<B> right = view<B>(b, index, call.transpose_b);
    if (order)
      planned_gemm(*order, plan.shape, strided(left), strided(right), to, plan.shape.n, threads);
    else
      accumulate(row, plan.shape, left, right, nullptr, to, plan.shape.n, threads, packed_b);
  });
}

void EmulatedBackend::multiply_quantized(const GemmCall& call, const checks::GemmPlan& plan) {
  require_one_chain("gemm", "operands with scales for blocks");
  const Quantizer &of_a = *call.a_format.quantizer, &of_b = *call.b_format.quantizer;
  const bool own = of_a.scale == DType::f32 || model_.name.starts_with("blackwell");
  const TensorCoreModel& row = row_of_quantized(of_a, of_b, own ? model_.name : std::string_view());
  const QuantizedOperand a = quantized(call.a, call.transpose_a, call.a_format, call.a_quantizer);
  const QuantizedOperand b = quantized(call.b, !call.transpose_b, call.b_format, call.b_quantizer);
  const auto count = static_cast<std::size_t>(plan.shape.m * plan.shape.n);
  finished(call, plan, [&](std::int64_t, float* to, int threads) {
    quantized_gemm(row, a.matrix(), b.matrix(), {to, count}, threads);
  });
}

template <class Product>
void EmulatedBackend::finished(const GemmCall& call, const checks::GemmPlan& plan, const Product& product) {
  const GemmShape& shape = plan.shape;
  const std::int64_t n = shape.n;
  if (call.out.element_count() == 0) return;
  const Tensor accumulators = call.out.dtype() == DType::f32 ? call.out : empty(call.out.shape(), DType::f32);
  float* const acc = accumulators.host<float>().data();
  const Tensor bias = call.bias == nullptr ? Tensor() : widened(*call.bias);
  const Tensor addend = call.addend == nullptr ? Tensor() : widened(*call.addend);
  const float* const bias_row = bias.defined() ? bias.host<float>().data() : nullptr;
  const float* const addend_rows = addend.defined() ? addend.host<float>().data() : nullptr;
  ProbedRounding round(call.probe);
  const auto finish = [&](std::int64_t begin, std::int64_t end) {  // rows of all products
    for (std::int64_t i = begin; i < end; ++i) {
      if (bias_row != nullptr) add_to(acc + i * n, bias_row, n);
      if (addend_rows != nullptr) add_to(acc + i * n, addend_rows + i * n, n);
    }
    const std::int64_t first = begin * n, count = (end - begin) * n;
    with_element_type(call.out.dtype(), [&](auto tag) {
      round(acc + first, count, call.out.host<decltype(tag)>().data() + first);
    });
  };

  // Many products share the threads; a few have them all, one after the other.
  if (plan.batch >= workers_.threads() && plan.batch > 1) {
    const std::int64_t work = std::max<std::int64_t>(1, shape.m * n * shape.k);
    const std::int64_t products_per_task = std::max<std::int64_t>(1, multiply_adds_per_task / work);
    workers_.for_each_chunk(plan.batch, products_per_task, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) product(i, acc + i * shape.m * n, 1);
      finish(begin * shape.m, end * shape.m);
    });
    return;
  }
  for (std::int64_t i = 0; i < plan.batch; ++i) product(i, acc + i * shape.m * n, workers_.threads());
  workers_.for_each_chunk(plan.batch * shape.m, std::max<std::int64_t>(1, elementwise_chunk / n), finish);
}

template <class A, class B>
Tensor EmulatedBackend::packed(const GemmCall& call, const checks::GemmPlan& plan) {
  const std::int64_t bytes = packed_b_count<A, B>(call, plan);
  if (bytes == 0) return {};
  Tensor result = empty({bytes}, DType::u8);
  const Tensor b = rounded_operand<B>(call.b, call.tf32);
  pack_operand(row_for<A>("gemm", call.tf32), plan.shape, view<B>(b, 0, call.transpose_b), result.data(),
               workers_.threads());
  return result;
}

namespace {

/// body(A(), B()), the element types that the product takes.
template <class Body>
decltype(auto) with_operand_types(const GemmCall& call, const Body& body) {
  if (!call.a_format.fp8.has_value())
    return with_element_type(call.a.dtype(), [&](auto tag) -> decltype(auto) { return body(tag, tag); });
  return visit_dtype<is_fp8>(*call.a_format.fp8, [&](auto a) -> decltype(auto) {
    return visit_dtype<is_fp8>(*call.b_format.fp8, [&](auto b) -> decltype(auto) {
      return body(typename decltype(a)::Element{}, typename decltype(b)::Element{});
    });
  });
}

}  // namespace

void EmulatedBackend::do_gemm(const GemmCall& call, const checks::GemmPlan& plan) {
  const FloatingPointScope scope;
  if (call.a_format.quantizer != nullptr) return multiply_quantized(call, plan);
  with_operand_types(call, [&](auto a, auto b) { multiply<decltype(a), decltype(b)>(call, plan); });
}

Tensor EmulatedBackend::do_pack_b(const GemmCall& call, const checks::GemmPlan& plan) {
  if (call.a_format.quantizer != nullptr) return {};
  const FloatingPointScope scope;
  return with_operand_types(call,
                            [&](auto a, auto b) { return packed<decltype(a), decltype(b)>(call, plan); });
}

}  // namespace fp16lab::engine
