// The judge's elementwise verbs, random fills, reductions, indexing and counts
// (tests/engine/backend/twin_backend.hpp).
#pragma once

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

#include "engine/backend/emulated/backend_impl.hpp"
#include "numerics/elementary/elementary.hpp"
#include "tests/engine/backend/conformance.hpp"

namespace fp16lab::engine::test {

/// body(a value of the element type).
template <class Body>
void with_type(DType dtype, const Body& body) {
  if (dtype == DType::f32) return body(0.0f);
  if (dtype == DType::f16) return body(Float16{});
  body(BFloat16{});
}

template <class T>
std::vector<T> values_of(const Tensor& x) {
  const std::span<T> values = x.host<T>();
  return {values.begin(), values.end()};
}
/// The elements of x in FP32, exact.
inline std::vector<float> floats_of(const Tensor& x) {
  std::vector<float> floats;
  with_type(x.dtype(), [&](auto tag) {
    floats = mapped(values_of<decltype(tag)>(x), [](auto value) { return wide(value); });
  });
  return floats;
}

/// One rounding, NaNs canonical; the probe counts both sides.
inline void store_rounded(const std::vector<float>& values, Tensor& out, CastProbe* probe = nullptr) {
  with_type(out.dtype(), [&](auto tag) {
    using T = decltype(tag);
    const std::vector<T> stored = mapped(values, [](float x) { return stored_as(canonical(x), T{}); });
    std::ranges::copy(stored, out.host<T>().begin());
    if (probe == nullptr) return;
    probe->before += naive_histogram(values);
    probe->after += naive_histogram(stored);
    probe->counted += values.size();
  });
}

// ---- elementwise ----

/// What judges a unary function: the shared function that the contract names (its own tests judge it), or FP64 on
/// an FP32 argument: exact, or for the square root rounded far below the FP32 last place (53 >= 2 * 24 + 2), so
/// one more rounding gives the correctly rounded result.
struct UnaryJudge {
  UnaryOp op;
  float (*shared)(float);
  double (*exact)(double);
};
inline const UnaryJudge& judge_of(UnaryOp op) {
  static constexpr UnaryJudge unary_judges[] = {
      {UnaryOp::exp, exp_f32, nullptr},
      {UnaryOp::log, log_f32, nullptr},
      {UnaryOp::log1p, log1p_f32, nullptr},
      {UnaryOp::reciprocal_square_root, rsqrt_f32, nullptr},
      {UnaryOp::sigmoid, sigmoid_f32, nullptr},
      {UnaryOp::tanh, tanh_f32, nullptr},
      {UnaryOp::erf, erf_f32, nullptr},
      {UnaryOp::gelu, gelu_f32, nullptr},
      {UnaryOp::gelu_tanh, gelu_tanh_f32, nullptr},
      {UnaryOp::negate, nullptr, [](double x) { return -x; }},
      {UnaryOp::relu, nullptr, [](double x) { return std::isnan(x) ? x : (x > 0.0 ? x : 0.0); }},
      {UnaryOp::square_root, nullptr, [](double x) { return std::sqrt(x); }},
      {UnaryOp::absolute, nullptr, [](double x) { return std::fabs(x); }},
      {UnaryOp::sign, nullptr,
       [](double x) {
         return std::isnan(x) ? x : static_cast<double>(x > 0.0) - static_cast<double>(x < 0.0);
       }},
  };
  const auto* const found = std::ranges::find(unary_judges, op, &UnaryJudge::op);
  if (found == std::end(unary_judges))
    throw std::logic_error(std::string("twin_elements.hpp: unary_judges has no row for ") + kernel_name(op));
  return *found;
}

inline float expected_unary(UnaryOp op, float x) {
  const UnaryJudge& judge = judge_of(op);
  if (judge.shared != nullptr) return judge.shared(x);
  return canonical(static_cast<float>(judge.exact(static_cast<double>(x))));
}
template <class F>
SmallFloat<F> expected_unary(UnaryOp op, SmallFloat<F> x) {
  using Half = SmallFloat<F>;
  const UnaryJudge& judge = judge_of(op);
  if (judge.shared != nullptr) return low_of<Half>(judge.shared(float_of(x)));
  return low_of<Half>(judge.exact(static_cast<double>(float_of(x))));
}

/// Kept out of its caller, where the compiler sees that no row of today comes here, and warns of a name beyond.
[[noreturn, gnu::noipa]] inline void no_case_for(BinaryOp op) {
  throw std::logic_error(std::string("twin_elements.hpp: plain_binary has no case for ") + kernel_name(op));
}

/// One operation in type T. In FP64 for 16-bit operands: products are exact, sums exact or like quotients
/// harmlessly rounded (53 >= 2 * 11 + 2).
template <class T>
T plain_binary(BinaryOp op, T a, T b) {
  switch (op) {
    case BinaryOp::add:
      return a + b;
    case BinaryOp::subtract:
      return a - b;
    case BinaryOp::multiply:
      return a * b;
    case BinaryOp::divide:
      return a / b;
    case BinaryOp::select_positive:
      return a > T{0} || std::isnan(a) ? b : T{0};
    case BinaryOp::maximum:
      return std::isnan(a) || std::isnan(b) ? a + b : b > a ? b : a;
    case BinaryOp::minimum:
      return std::isnan(a) || std::isnan(b) ? a + b : b < a ? b : a;
  }
  no_case_for(op);
}
inline float expected_binary(BinaryOp op, float a, float b) { return canonical(plain_binary(op, a, b)); }
template <class F>
SmallFloat<F> expected_binary(BinaryOp op, SmallFloat<F> a, SmallFloat<F> b) {
  return low_of<SmallFloat<F>>(
      plain_binary(op, static_cast<double>(float_of(a)), static_cast<double>(float_of(b))));
}

/// Offset in a tensor of shape `from` of what element `at` of a tensor of shape `to` reads, by NumPy's rule.
inline std::size_t broadcast_offset(const Shape& from, const Shape& to, std::int64_t at) {
  std::int64_t offset = 0, stride = 1;
  for (int axis = 1; axis <= to.rank(); ++axis) {
    const std::int64_t index = at % to[-axis];
    at /= to[-axis];
    if (axis > from.rank()) continue;
    if (from[-axis] != 1) offset += index * stride;
    stride *= from[-axis];
  }
  return static_cast<std::size_t>(offset);
}

/// The 24 random bits of word `index`, as a fraction of 2^24.
inline float uniform_at(const PhiloxStream& stream, std::uint64_t index, std::uint32_t more = 0) {
  const PhiloxCounter words =
      philox4x32_10({static_cast<std::uint32_t>(index / 4), static_cast<std::uint32_t>(index / 4 >> 32),
                     stream.iteration, stream.micro_batch},
                    stream.key());
  return static_cast<float>((words[index % 4] >> 8) + more) / 16777216.0f;
}

/// Element i of a random fill.
inline float drawn(const DrawCall& call, const PhiloxStream& stream, std::uint64_t i) {
  switch (call.distribution) {
    case Distribution::uniform: {
      const float width = call.second - call.first;
      const float product = width * uniform_at(stream, i);
      return call.first + product;
    }
    case Distribution::normal: {
      const float root = std::sqrt(-2.0f * log_f32(uniform_at(stream, 2 * i, 1)));
      const float z = root * cos_f32(6.283185307179586f * uniform_at(stream, 2 * i + 1));
      const float spread = call.second * z;
      return call.first + spread;
    }
    case Distribution::bernoulli:
      return uniform_at(stream, i) < call.first ? 1.0f : 0.0f;
  }
  throw std::logic_error("drawn: a distribution without a twin");
}

/// The digest from its definition, with its own copy of the mixer.
inline std::uint64_t naive_digest(const Tensor& x, std::uint64_t key) {
  const auto mix = [](std::uint64_t word) {
    word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9ull;
    word = (word ^ (word >> 27)) * 0x94d049bb133111ebull;
    return word ^ (word >> 31);
  };
  std::uint64_t sum = 0;
  for (std::size_t first = 0; first < x.byte_count(); first += 8) {
    std::uint64_t word = 0;
    for (std::size_t at = first; at < std::min(first + 8, x.byte_count()); ++at)
      word |= std::to_integer<std::uint64_t>(x.data()[at]) << (8 * (at - first));
    sum += mix(word ^ mix(key + (first / 8 + 1) * 0x9e3779b97f4a7c15ull));
  }
  return sum;
}

class TwinElements : public EmulatedBackend {
 public:
  using EmulatedBackend::EmulatedBackend;

  void do_copy(const Tensor& x, Tensor& out) override { std::copy_n(x.data(), x.byte_count(), out.data()); }

  void do_fill(Tensor& out, double value, std::uint64_t) override {
    const auto fill_with = [&](auto element) { std::ranges::fill(out.host<decltype(element)>(), element); };
    if (out.dtype() == DType::f64) return fill_with(value);
    if (out.dtype() == DType::i32) return fill_with(static_cast<std::int32_t>(value));
    if (out.dtype() == DType::u8) return fill_with(static_cast<std::uint8_t>(value));
    if (out.dtype() == DType::f32) return fill_with(canonical(static_cast<float>(value)));
    with_type(out.dtype(), [&](auto tag) {
      if constexpr (!std::is_same_v<decltype(tag), float>) fill_with(low_of<decltype(tag)>(value));
    });
  }

  void do_draw(const DrawCall& call) override {
    PhiloxStream stream = call.stream;
    if (call.step != nullptr)
      stream.iteration = static_cast<std::uint32_t>(read_step_state(*call.step).iteration);
    std::vector<float> values;
    for (std::int64_t i = 0; i < call.out.element_count(); ++i)
      values.push_back(drawn(call, stream, static_cast<std::uint64_t>(i)));
    store_rounded(values, call.out);
  }

  void do_fill_scale(const Tensor& step, Tensor& out) override {
    out.host<float>()[0] = static_cast<float>(read_step_state(step).scale);
  }

  void do_histogram(const Tensor& x, ExponentHistogram& out) override {
    out += naive_histogram(floats_of(x));
  }

  void do_count(const Tensor& x, std::optional<DType> format, CastProbe& probe) override {
    if (format) return EmulatedBackend::do_count(x, format, probe);
    const ExponentHistogram counts = naive_histogram(floats_of(x));
    probe.before += counts;
    probe.after += counts;
    probe.counted += counts.total();
  }

  std::uint64_t do_digest(std::span<const DigestItem> items) override {
    std::uint64_t sum = 0;
    for (const DigestItem& item : items) sum += naive_digest(item.tensor, item.key);
    return sum;
  }

  void do_cast(const CastCall& call) override {
    const Tensor& x = call.x;
    Tensor& out = call.out;
    CastProbe* const probe = call.probe;
    if (call.stream == nullptr) {
      store_rounded(floats_of(x), out, probe);
      if (x.dtype() == out.dtype()) copy(x, out);  // payloads of NaNs too
      return;
    }
    PhiloxStream current = *call.stream;
    current.iteration = static_cast<std::uint32_t>(read_step_state(*call.step).iteration);
    const std::vector<float> values = floats_of(x);
    with_type(out.dtype(), [&](auto tag) {
      using T = decltype(tag);
      if constexpr (!std::is_same_v<T, float>) {
        std::vector<T> rounded;
        for (std::size_t i = 0; i < values.size(); ++i) {
          const std::uint32_t word = current.word(i / 2);
          ArithmeticOptions options(Rounding::stochastic);
          options.random_bits = i % 2 == 0 ? word << 16 : word & 0xffff0000u;
          rounded.push_back(narrow<typename T::Format>(canonical(values[i]), options));
        }
        std::ranges::copy(rounded, out.host<T>().begin());
        if (probe == nullptr) return;
        probe->before += naive_histogram(values);
        probe->after += naive_histogram(rounded);
        probe->counted += values.size();
      }
    });
  }

  void do_unary(UnaryOp op, const Tensor& x, Tensor& out) override {
    with_type(x.dtype(), [&](auto tag) {
      using T = decltype(tag);
      const std::vector<T> results =
          mapped(values_of<T>(x), [op](T value) { return expected_unary(op, value); });
      std::ranges::copy(results, out.host<T>().begin());
    });
  }

  void do_binary(const BinaryCall& call, const BroadcastPlan&) override {
    const Shape& shape = call.out.shape();
    if (call.b == nullptr) {  // the number is FP32, and so is the result before it is rounded
      const std::vector<float> x = floats_of(call.a);
      return store_rounded(
          mapped(x, [&call](float value) { return plain_binary(call.op, value, call.scalar); }), call.out);
    }
    with_type(call.out.dtype(), [&](auto tag) {
      using T = decltype(tag);
      const std::vector<T> x = values_of<T>(call.a), y = values_of<T>(*call.b);
      for (std::int64_t i = 0; i < call.out.element_count(); ++i)
        call.out.host<T>()[static_cast<std::size_t>(i)] =
            expected_binary(call.op, x[broadcast_offset(call.a.shape(), shape, i)],
                            y[broadcast_offset(call.b->shape(), shape, i)]);
    });
  }

  void do_reduce(ReduceOp op, const Tensor& x, int axis, Tensor& out, CastProbe* probe,
                 const checks::ReducePlan&) override {
    if (axis < 0) axis += x.shape().rank();
    std::int64_t outer = 1, inner = 1;
    for (int i = 0; i < axis; ++i) outer *= x.shape()[i];
    for (int i = axis + 1; i < x.shape().rank(); ++i) inner *= x.shape()[i];
    const std::vector<float> values = floats_of(x);
    std::vector<float> results;
    for (std::int64_t o = 0; o < outer; ++o)
      for (std::int64_t i = 0; i < inner; ++i) {
        std::vector<float> line;
        for (std::int64_t k = 0; k < x.shape()[axis]; ++k)
          line.push_back(values[static_cast<std::size_t>((o * x.shape()[axis] + k) * inner + i)]);
        results.push_back(tree_of(op, line));
      }
    store_rounded(results, out, probe);
  }

  void do_pick(const Tensor& x, const Tensor& index, Tensor& out, const checks::MatrixExtents&) override {
    const std::vector<float> values = floats_of(x);
    const std::vector<std::int32_t> where = values_of<std::int32_t>(index);
    std::vector<float> picked;
    for (std::size_t row = 0; row < where.size(); ++row)
      picked.push_back(
          values[row * static_cast<std::size_t>(x.shape()[1]) + static_cast<std::size_t>(where[row])]);
    store_rounded(picked, out);
  }

  void do_place(const Tensor& x, const Tensor& index, Tensor& out, const checks::MatrixExtents&) override {
    const std::vector<float> values = floats_of(x);
    const std::vector<std::int32_t> where = values_of<std::int32_t>(index);
    std::vector<float> placed(static_cast<std::size_t>(out.element_count()), 0.0f);
    for (std::size_t row = 0; row < where.size(); ++row)
      placed[row * static_cast<std::size_t>(out.shape()[1]) + static_cast<std::size_t>(where[row])] =
          values[row];
    store_rounded(placed, out);
  }

  void do_gather_rows(const Tensor& table, const Tensor& index, Tensor& out,
                      const checks::MatrixExtents&) override {
    const std::vector<float> values = floats_of(table);
    std::vector<float> rows;
    for (const std::int32_t row : values_of<std::int32_t>(index))
      for (std::int64_t column = 0; column < table.shape()[1]; ++column)
        rows.push_back(values[static_cast<std::size_t>(row * table.shape()[1] + column)]);
    store_rounded(rows, out);
  }

  void do_scatter_rows(const Tensor& x, const Tensor& index, Tensor& out, CastProbe* probe,
                       const checks::MatrixExtents&) override {
    const std::vector<float> values = floats_of(x);
    std::vector<std::vector<std::size_t>> positions(static_cast<std::size_t>(out.shape()[0]));
    const std::vector<std::int32_t> rows = values_of<std::int32_t>(index);
    for (std::size_t i = 0; i < rows.size(); ++i) positions[static_cast<std::size_t>(rows[i])].push_back(i);
    const auto columns = static_cast<std::size_t>(out.shape()[1]);
    std::vector<float> sums;
    for (const std::vector<std::size_t>& ascending : positions)
      for (std::size_t column = 0; column < columns; ++column)
        sums.push_back(tree_of(ReduceOp::sum, mapped(ascending, [&](std::size_t position) {
                                 return values[position * columns + column];
                               })));
    store_rounded(sums, out, probe);
  }

  void do_global_norm(std::span<const Tensor> gradients, Tensor& step) override {
    double sum = 0.0;
    for (const Tensor& gradient : gradients) {
      const std::vector<double> squares = mapped(
          floats_of(gradient), [](float g) { return static_cast<double>(g) * static_cast<double>(g); });
      if (!squares.empty()) sum += naive_tree<double>(squares, [](double a, double b) { return a + b; });
    }
    StepState state = read_step_state(step);
    state.grad_norm = std::isnan(sum) ? double_from_bits(0x7fffffffffffffffu) : std::sqrt(sum);
    write_step_state(state, step);
  }

  void do_gradient_pass(const GradientPassCall& call) override {
    StepState state = call.step == nullptr ? StepState{} : read_step_state(*call.step);
    const auto limit = static_cast<float>(call.limit);
    for (Tensor& gradient : call.gradients) {
      std::vector<float> values = floats_of(gradient);
      switch (call.pass) {
        case GradientPass::unscale:
          if (!std::ranges::all_of(values, [](float g) { return std::isfinite(g); }))
            state.found_inf[static_cast<std::size_t>(call.optimizer)] = 1.0f;
          for (float& g : values) g = g * state.inverse_scale;
          break;
        case GradientPass::clip_by_norm: {
          if (!std::isfinite(state.grad_norm) || !(state.grad_norm > call.limit)) return;
          const auto factor = static_cast<float>(call.limit / (state.grad_norm + 1e-6));
          for (float& g : values) g = g * factor;
          break;
        }
        case GradientPass::clip_by_value:
          for (float& g : values) g = std::isnan(g) ? g : std::clamp(g, -limit, limit);
      }
      store_rounded(values, gradient);
    }
    if (call.pass == GradientPass::unscale) write_step_state(state, *call.step);
  }
};

}  // namespace fp16lab::engine::test
