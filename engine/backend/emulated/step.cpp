// The scalars of a step, and the passes over all gradients: unscale and check, norm, clip.
#include <atomic>
#include <cstring>

#include "engine/backend/checks.hpp"
#include "engine/backend/elementwise_functions.hpp"
#include "engine/backend/emulated/backend_impl.hpp"
#include "engine/backend/emulated/element_types.hpp"
#include "engine/backend/update_rules.hpp"
#include "numerics/arithmetic/tree_reduce.hpp"
#include "numerics/platform/vector_clones.hpp"

namespace fp16lab::engine {

namespace {

/// x = mul_rn(x, factor) in place; returns whether an element was infinite or NaN before.
FP16LAB_VECTOR_CLONES
bool multiply_and_check(float* x, float factor, std::int64_t n) {
  const functions::Multiply multiply;
  std::uint32_t largest = 0;  // of the magnitudes' bits: NaN is above infinity, infinity above every number
  FP16LAB_INDEPENDENT_ITERATIONS
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint32_t magnitude = bits_of(x[i]) & Binary32::magnitude_mask;
    largest = magnitude > largest ? magnitude : largest;
    x[i] = multiply(x[i], factor);
  }
  return largest >= Binary32::infinity;
}

/// x = minimum(maximum(x, -max_value), max_value) in place.
FP16LAB_VECTOR_CLONES
void limit(float* x, float max_value, std::int64_t n) {
  FP16LAB_INDEPENDENT_ITERATIONS
  for (std::int64_t i = 0; i < n; ++i) x[i] = functions::limited(x[i], max_value);
}

/// pass(values, count) over the elements of x (f), in place: those of f32 as they are, those of 16 bits
/// widened in strips and rounded again.
template <class Pass>
void for_each_run(const Workers& workers, const Tensor& x, const Pass& pass) {
  with_element_type(x.dtype(), [&](auto tag) {
    auto* const values = x.host<decltype(tag)>().data();
    workers.for_each_element_chunk(x.element_count(), [&](std::int64_t begin, std::int64_t end) {
      if constexpr (std::is_same_v<decltype(tag), float>) {
        pass(values + begin, end - begin);
      } else {
        Strip wide;
        for_each_strip_of(end - begin, [&](std::int64_t first, std::int64_t count) {
          widen_strip(values + begin + first, count, wide.data());
          pass(wide.data(), count);
          narrow_strip(wide.data(), count, values + begin + first);
        });
      }
    });
  });
}

/// TREE sum of squares of 1 to 1024 elements. Squares of FP32 numbers are exact in FP64.
FP16LAB_VECTOR_CLONES
double chunk_of_squares(const float* x, std::int64_t n) {
  return tree_reduce<double>(
      n,
      [x](std::int64_t i) {
        const auto value = static_cast<double>(x[i]);
        return value * value;
      },
      TreeSum{});
}
/// The same of elements of 16 bits: widening is exact.
template <class Half>
double chunk_of_squares(const Half* x, std::int64_t n) {
  static_assert(tree_chunk_size <= strip_elements);
  Strip wide;
  widen_strip(x, n, wide.data());
  return chunk_of_squares(static_cast<const float*>(wide.data()), n);
}

}  // namespace

Tensor EmulatedBackend::make_step_state(const StepState& initial) {
  Tensor step = empty({static_cast<std::int64_t>(sizeof(StepState))}, DType::u8);
  write_step_state(initial, step);
  return step;
}

StepState EmulatedBackend::read_step_state(const Tensor& step) {
  checks::step_state("read_step_state", step);
  StepState state;
  std::memcpy(&state, step.data(), sizeof(state));
  return state;
}

void EmulatedBackend::write_step_state(const StepState& state, Tensor& step) {
  checks::step_state("write_step_state", step);
  std::memcpy(step.data(), &state, sizeof(state));
}

void EmulatedBackend::run(const ScalarProgram& program, Tensor& step) {
  const FloatingPointScope scope;
  checks::step_state("run", step);
  checks::scalar_program(program);
  StepState state = read_step_state(step);
  program.function(state, program.parameters.data());
  write_step_state(state, step);
}

void EmulatedBackend::fill_scale(const Tensor& step, Tensor& out) {
  const FloatingPointScope scope;
  checks::step_state("fill_scale", step);
  checks::fill_scale(out);
  out.host<float>()[0] = canonicalize(static_cast<float>(read_step_state(step).scale));
}

void EmulatedBackend::unscale(std::span<Tensor> gradients, int optimizer, Tensor& step) {
  const FloatingPointScope scope;
  checks::step_state("unscale", step);
  checks::gradients("unscale", gradients);
  checks::optimizer_index("unscale", optimizer);
  StepState state = read_step_state(step);
  std::atomic<bool> found = false;
  for (const Tensor& gradient : gradients)
    for_each_run(workers_, gradient, [&](float* values, std::int64_t count) {
      if (multiply_and_check(values, state.inverse_scale, count))
        found.store(true, std::memory_order_relaxed);
    });
  if (!found) return;
  state.found_inf[static_cast<std::size_t>(optimizer)] = 1.0f;
  write_step_state(state, step);
}

double EmulatedBackend::sum_of_squares(const Tensor& x) {
  // Level one of TREE in parallel; its chunk results are a sequence that the same rule reduces.
  const std::int64_t count = x.element_count();
  const std::int64_t chunks = (count + tree_chunk_size - 1) / tree_chunk_size;
  chunk_sums_.resize(static_cast<std::size_t>(chunks));
  static_assert(elementwise_chunk % tree_chunk_size == 0);
  with_element_type(x.dtype(), [&](auto tag) {
    const decltype(tag)* const values = x.host<decltype(tag)>().data();
    workers_.for_each_chunk(
        chunks, elementwise_chunk / tree_chunk_size, [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t chunk = begin; chunk < end; ++chunk) {
            const std::int64_t first = chunk * tree_chunk_size;
            chunk_sums_[static_cast<std::size_t>(chunk)] =
                chunk_of_squares(values + first, std::min<std::int64_t>(tree_chunk_size, count - first));
          }
        });
  });
  return tree_sum<double>(chunks,
                          [this](std::int64_t i) { return chunk_sums_[static_cast<std::size_t>(i)]; });
}

void EmulatedBackend::global_norm(std::span<const Tensor> gradients, Tensor& step) {
  const FloatingPointScope scope;
  checks::step_state("global_norm", step);
  checks::gradients("global_norm", gradients);
  double sum = 0.0;
  for (const Tensor& gradient : gradients) sum += sum_of_squares(gradient);
  StepState state = read_step_state(step);
  state.grad_norm = canonicalize(functions::square_root_f64(sum));
  write_step_state(state, step);
}

void EmulatedBackend::clip_by_norm(std::span<Tensor> gradients, double max_norm, Tensor& step) {
  const FloatingPointScope scope;
  checks::step_state("clip_by_norm", step);
  checks::gradients("clip_by_norm", gradients);
  checks::max_norm(max_norm);
  const StepState state = read_step_state(step);
  if (!functions::clips(state.grad_norm, max_norm)) return;
  const float factor = functions::clip_factor(state.grad_norm, max_norm);
  for (Tensor& gradient : gradients) scale(gradient, factor, gradient);
}

void EmulatedBackend::clip_by_value(std::span<Tensor> gradients, float max_value) {
  const FloatingPointScope scope;
  checks::gradients("clip_by_value", gradients);
  checks::max_value(max_value);
  for (const Tensor& gradient : gradients)
    for_each_run(workers_, gradient,
                 [=](float* values, std::int64_t count) { limit(values, max_value, count); });
}

}  // namespace fp16lab::engine
