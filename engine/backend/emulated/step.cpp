// The scalars of a step, and the passes over all gradients: unscale and check, norm, clip.
#include <atomic>

#include "engine/backend/checks.hpp"
#include "engine/backend/emulated/backend_impl.hpp"
#include "engine/backend/emulated/element_types.hpp"
#include "engine/backend/gradient_passes.hpp"
#include "numerics/arithmetic/tree_reduce.hpp"
#include "numerics/platform/vector_clones.hpp"

namespace fp16lab::engine {

namespace {

/// x = pass(x) in place; returns whether an element was infinite or NaN before, if the pass notes it.
template <class Pass>
inline bool change(Pass pass, float* x, std::int64_t n) {
  std::uint32_t largest = 0;  // the magnitudes' bits: NaN is above infinity, infinity above every number
  FP16LAB_INDEPENDENT_ITERATIONS
  for (std::int64_t i = 0; i < n; ++i) {
    if constexpr (Pass::notes_overflow) {
      const std::uint32_t magnitude = bits_of(x[i]) & Binary32::magnitude_mask;
      largest = magnitude > largest ? magnitude : largest;
    }
    x[i] = pass(x[i]);
  }
  return largest >= Binary32::infinity;
}
#define FP16LAB_RANGE(name, functor) \
  FP16LAB_VECTOR_CLONES              \
  bool name##_range(functions::passes::functor pass, float* x, std::int64_t n) { return change(pass, x, n); }
FP16LAB_GRADIENT_PASSES(FP16LAB_RANGE)
#undef FP16LAB_RANGE

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

void EmulatedBackend::do_run(const ScalarProgram& program, Tensor& step) {
  const FloatingPointScope scope;
  StepState state = read_step_state(step);
  program.function(state, program.parameters.data());
  write_step_state(state, step);
}

void EmulatedBackend::do_fill_scale(const Tensor& step, Tensor& out) {
  const FloatingPointScope scope;
  out.host<float>()[0] = canonicalize(static_cast<float>(read_step_state(step).scale));
}

void EmulatedBackend::do_gradient_pass(const GradientPassCall& call) {
  const FloatingPointScope scope;
  const StepState state = call.step == nullptr ? StepState{} : read_step_state(*call.step);
  std::atomic<bool> found = false;
  const auto run = [&](auto tag, const auto& range) {
    using Pass = decltype(tag);
    if (!Pass::applies(&state, call.limit)) return;
    const Pass pass = Pass::of(&state, call.limit);
    for (const Tensor& gradient : call.gradients)
      for_each_run(workers_, gradient, [&](float* values, std::int64_t count) {
        if (range(pass, values, count)) found.store(true, std::memory_order_relaxed);
      });
  };
#define FP16LAB_PASS(name, functor)                  \
  case GradientPass::name:                           \
    run(functions::passes::functor{}, name##_range); \
    break;
  switch (call.pass) { FP16LAB_GRADIENT_PASSES(FP16LAB_PASS) }
#undef FP16LAB_PASS
  if (!found) return;
  StepState noted = state;
  noted.found_inf[static_cast<std::size_t>(call.optimizer)] = 1.0f;
  write_step_state(noted, *call.step);
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

void EmulatedBackend::do_global_norm(std::span<const Tensor> gradients, Tensor& step) {
  const FloatingPointScope scope;
  double sum = 0.0;
  for (const Tensor& gradient : gradients) sum += sum_of_squares(gradient);
  StepState state = read_step_state(step);
  state.grad_norm = canonicalize(functions::square_root_f64(sum));
  write_step_state(state, step);
}

}  // namespace fp16lab::engine
