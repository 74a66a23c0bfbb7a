// One step of one weight: scalars from the step state, then one pass over its elements.
#include <type_traits>

#include "engine/backend/checks.hpp"
#include "engine/backend/emulated/backend_impl.hpp"
#include "engine/backend/emulated/element_types.hpp"
#include "engine/backend/update_rules.hpp"
#include "numerics/platform/vector_clones.hpp"

namespace fp16lab::engine {

namespace {

using functions::Gives;
using functions::StepView;

using States = std::array<float*, most_update_states>;

States from(const States& states, std::int64_t first) {
  States moved{};
  for (std::size_t i = 0; i < moved.size(); ++i)
    moved[i] = states[i] == nullptr ? nullptr : states[i] + first;
  return moved;
}

/// A run of elements in FP32.
struct Range {
  float* weight;
  const float* gradient;
  States states;
  std::int64_t count;
};

template <class Rule, int Variant, Gives gives>
inline void loop(const typename Rule::Scalars& scalars, const Range& range) {
  constexpr unsigned used = Rule::used(Variant);
  const typename Rule::Scalars c = scalars;  // a local: the stores below cannot change it
  float* const weight = range.weight;
  const float* const gradient = range.gradient;
  float* const first = range.states[0];
  float* const second = range.states[1];
  float* const third = range.states[2];
  FP16LAB_INDEPENDENT_ITERATIONS
  for (std::int64_t i = 0; i < range.count; ++i) {
    float state[most_update_states] = {};
    if constexpr ((used & 1u) != 0) state[0] = first[i];
    if constexpr ((used & 2u) != 0) state[1] = second[i];
    if constexpr ((used & 4u) != 0) state[2] = third[i];
    float w = weight[i];
    Rule::template element<Variant>(c, gives, w, gradient[i], state);
    if constexpr (Rule::moves_weight) weight[i] = w;
    if constexpr ((used & 1u) != 0) first[i] = state[0];
    if constexpr ((used & 2u) != 0) second[i] = state[1];
    if constexpr ((used & 4u) != 0) third[i] = state[2];
  }
}

template <class Rule>
inline void every_loop(const typename Rule::Scalars& scalars, int variant, Gives gives, const Range& range) {
  functions::with_variant<Rule>(variant, [&](auto v) {
    if (gives == Gives::change)
      loop<Rule, decltype(v)::value, Gives::change>(scalars, range);
    else
      loop<Rule, decltype(v)::value, Gives::weight>(scalars, range);
  });
}

// A clone for each instruction set must be a function of its own, not a template's.
#define FP16LAB_LOOPS(name, functor)                                                               \
  FP16LAB_VECTOR_CLONES                                                                            \
  void name##_range(const functions::updates::functor::Scalars& scalars, int variant, Gives gives, \
                    const Range& range) {                                                          \
    every_loop<functions::updates::functor>(scalars, variant, gives, range);                       \
  }
FP16LAB_UPDATE_RULES(FP16LAB_LOOPS)
#undef FP16LAB_LOOPS

// ---- storing ----

/// change[i] becomes y, sum[i] what is to be rounded.
FP16LAB_VECTOR_CLONES
void compensate_strip(const float* weight, const float* compensation, float* change, float* sum,
                      std::int64_t n) {
  FP16LAB_INDEPENDENT_ITERATIONS
  for (std::int64_t i = 0; i < n; ++i) {
    change[i] = functions::compensated_change(compensation[i], change[i]);
    sum[i] = functions::compensated_sum(weight[i], change[i]);
  }
}

/// y[i] becomes the next compensation.
FP16LAB_VECTOR_CLONES
void leave_strip(const float* weight, const float* rounded, float* y, std::int64_t n) {
  FP16LAB_INDEPENDENT_ITERATIONS
  for (std::int64_t i = 0; i < n; ++i) y[i] = functions::compensation_left(weight[i], y[i], rounded[i]);
}

/// Kahan's sum for one strip: `change` is overwritten.
template <class Half>
void compensate(Half* weight, Half* compensation, float* change, std::int64_t n) {
  Strip old, kept, sum;
  widen_strip(weight, n, old.data());
  widen_strip(compensation, n, kept.data());
  compensate_strip(old.data(), kept.data(), change, sum.data(), n);
  narrow_strip(sum.data(), n, weight);
  widen_strip(weight, n, sum.data());
  leave_strip(old.data(), sum.data(), change, n);
  narrow_strip(change, n, compensation);
}

/// With the iteration that the step state has.
WeightStore in_iteration(const WeightStore& store, const StepState& state) {
  WeightStore current = store;
  current.random.iteration = static_cast<std::uint32_t>(state.iteration);
  return current;
}

FP16LAB_VECTOR_CLONES
void multiply_to(const float* x, float factor, float* out, std::int64_t n) {
  const functions::Multiply multiply;
  FP16LAB_INDEPENDENT_ITERATIONS
  for (std::int64_t i = 0; i < n; ++i) out[i] = multiply(x[i], factor);
}

/// update(weight, gradient, first, count) with FP32 arrays for runs of elements [first, first + count). If
/// the weight or the gradient has 16 bits, or the gradient a factor, the runs are strips: widened,
/// multiplied, and the weight rounded once when it is done, as `store` says.
/// If the weights stay (Stores is false), none of them is written.
template <bool Stores, class Update>
void for_each_update(const Workers& workers, Tensor& weight, const Tensor& gradient, float factor,
                     const WeightStore& store, const Update& update) {
  with_element_type(weight.dtype(), [&](auto weight_tag) {
    with_element_type(gradient.dtype(), [&](auto gradient_tag) {
      using Weight = decltype(weight_tag);
      using Gradient = decltype(gradient_tag);
      Weight* const weights = weight.host<Weight>().data();
      const Gradient* const gradients = gradient.host<Gradient>().data();
      Weight* const compensation =
          store.compensation == nullptr ? nullptr : store.compensation->host<Weight>().data();
      workers.for_each_element_chunk(weight.element_count(), [&](std::int64_t begin, std::int64_t end) {
        if constexpr (!is_half<Weight> && !is_half<Gradient>)
          if (factor == 1.0f) return update(weights + begin, gradients + begin, begin, end - begin);
        Strip wide_weight, wide_gradient;
        for_each_strip_of(end - begin, [&](std::int64_t first, std::int64_t count) {
          first += begin;
          const float* g = wide_gradient.data();
          if constexpr (is_half<Gradient>)
            widen_strip(gradients + first, count, wide_gradient.data());
          else
            g = gradients + first;
          if (factor != 1.0f) {
            multiply_to(g, factor, wide_gradient.data(), count);
            g = wide_gradient.data();
          }
          if constexpr (is_half<Weight>) {
            float* const w = wide_weight.data();
            const auto some = static_cast<std::size_t>(count);
            widen_strip(weights + first, count, w);
            update(w, g, first, count);
            if constexpr (!Stores)
              return;
            else if (compensation != nullptr)
              compensate(weights + first, compensation + first, w, count);
            else if (store.stochastic)
              narrow_stochastic(std::span<const float>(w, some), std::span(weights + first, some),
                                store.random, static_cast<std::uint64_t>(first));
            else
              narrow_strip(w, count, weights + first);
          } else {
            update(weights + first, g, first, count);
          }
        });
      });
    });
  });
}

template <class Rule, class Loops>
void update_by(const Workers& workers, const UpdateCall& call, const StepView& step, const Loops& loops) {
  const typename Rule::Scalars scalars = Rule::scalars(call.options, step);
  const int variant = Rule::variant(call.options, step);
  const Gives gives = call.store.compensation == nullptr ? Gives::weight : Gives::change;
  States states{};
  for (std::size_t i = 0; i < states.size(); ++i)
    if ((Rule::used(variant) >> i & 1u) != 0) states[i] = call.states[i]->host<float>().data();
  for_each_update<Rule::moves_weight>(workers, call.weight, call.gradient, call.options.gradient_factor,
                                      in_iteration(call.store, step.state),
                                      [&](float* w, const float* g, std::int64_t first, std::int64_t count) {
                                        loops(scalars, variant, gives, {w, g, from(states, first), count});
                                      });
}

}  // namespace

void EmulatedBackend::do_update(const UpdateCall& call) {
  const FloatingPointScope scope;
  const StepState state = read_step_state(call.step);
  StepView step{.state = state, .optimizer = static_cast<std::size_t>(call.optimizer)};
  if (state.found_inf[step.optimizer] != 0.0f) return;
  if (info_of(call.rule).reads_norms) {
    step.weight_norm = read_step_state(*call.norms[0]).grad_norm;
    step.gradient_norm = read_step_state(*call.norms[1]).grad_norm;
  }
  using Update = void (*)(const Workers&, const UpdateCall&, const StepView&);
#define FP16LAB_UPDATE(name, functor)                                        \
  [](const Workers& workers, const UpdateCall& one, const StepView& at) {    \
    update_by<functions::updates::functor>(workers, one, at, &name##_range); \
  },
  static constexpr Update table[] = {FP16LAB_UPDATE_RULES(FP16LAB_UPDATE)};
#undef FP16LAB_UPDATE
  table[static_cast<std::size_t>(call.rule)](workers_, call, step);
}

}  // namespace fp16lab::engine
