// The judge's optimizer steps (tests/engine/backend/twin_backend.hpp).
#pragma once

#include "tests/engine/backend/twin_elements.hpp"

namespace fp16lab::engine::test {

class TwinOptimizers : public TwinElements {
 public:
  using TwinElements::TwinElements;

  void sgd_step(const SgdOptions& options, Tensor& weight, const Tensor& gradient, Tensor& velocity,
                int optimizer, const Tensor& step, const WeightStore& store) override {
    const StepState state = read_step_state(step);
    const auto slot = static_cast<std::size_t>(optimizer);
    if (state.found_inf[slot] != 0.0f) return;
    const std::vector<float> old = floats_of(weight), gradients = floats_of(gradient);
    std::vector<float> changes;
    for (std::size_t i = 0; i < old.size(); ++i) {
      float d = entering(gradients[i], options.gradient_factor);
      if (options.weight_decay != 0.0f) {
        const float decay = options.weight_decay * old[i];
        d = d + decay;
      }
      if (options.momentum != 0.0f) {
        float& v = velocity.host<float>()[i];
        const float kept = options.momentum * v, fresh = (1.0f - options.dampening) * d;
        v = state.taken_steps[slot] == 1 ? d : kept + fresh;
        const float ahead = options.momentum * v;
        d = options.nesterov ? d + ahead : v;
        v = canonical(v);
      }
      const float update = state.learning_rate[slot] * d;
      changes.push_back(update);
    }
    take(changes, weight, state, store);
  }

  void adam_step(const AdamOptions& options, Tensor& weight, const Tensor& gradient, Tensor& first_moment,
                 Tensor& second_moment, int optimizer, const Tensor& step,
                 const WeightStore& store) override {
    const StepState state = read_step_state(step);
    const auto slot = static_cast<std::size_t>(optimizer);
    if (state.found_inf[slot] != 0.0f) return;
    if (options.uncorrected) {
      const LambOptions same{options.beta1, options.beta2, options.epsilon, options.weight_decay,
                             options.gradient_factor};
      follow(weight, directions(same, weight, gradient, first_moment, second_moment, 1.0f, 1.0f),
             state.learning_rate[slot], state, store);
      return;
    }
    const auto rate = static_cast<double>(state.learning_rate[slot]);
    const auto step_size = static_cast<float>(rate / (1.0 - state.beta1_power[slot]));
    const auto root = static_cast<float>(std::sqrt(1.0 - state.beta2_power[slot]));
    const auto kept = static_cast<float>(1.0 - rate * static_cast<double>(options.weight_decay));
    const auto taken = static_cast<float>(rate * static_cast<double>(options.weight_decay));
    const std::vector<float> gradients = floats_of(gradient);
    const std::vector<float> old = floats_of(weight);
    std::vector<float> next, changes;
    for (std::size_t i = 0; i < old.size(); ++i) {
      float w = old[i], g = entering(gradients[i], options.gradient_factor), decayed = 0.0f;
      if (options.weight_decay != 0.0f) {
        if (options.decoupled_decay) {
          w = w * kept;
          decayed = taken * old[i];
        } else {
          const float decay = options.weight_decay * w;
          g = g + decay;
        }
      }
      float &first = first_moment.host<float>()[i], &second = second_moment.host<float>()[i];
      const float old_m = options.beta1 * first, new_m = (1.0f - options.beta1) * g;
      const float m = old_m + new_m;
      const float old_v = options.beta2 * second, scaled = (1.0f - options.beta2) * g;
      const float new_v = scaled * g;
      const float v = old_v + new_v;
      const float quotient = std::sqrt(v) / root;
      const float denominator = quotient + options.epsilon;
      const float numerator = step_size * m;
      const float update = numerator / denominator;
      next.push_back(w - update);
      changes.push_back(options.decoupled_decay && options.weight_decay != 0.0f ? update + decayed : update);
      first = canonical(m);
      second = canonical(v);
    }
    take(changes, next, weight, state, store);
  }

  void rmsprop_step(const RmspropOptions& options, Tensor& weight, const Tensor& gradient,
                    Tensor& square_average, Tensor& gradient_average, Tensor& velocity, int optimizer,
                    const Tensor& step, const WeightStore& store) override {
    const StepState state = read_step_state(step);
    const auto slot = static_cast<std::size_t>(optimizer);
    if (state.found_inf[slot] != 0.0f) return;
    const std::vector<float> gradients = floats_of(gradient);
    const std::vector<float> old = floats_of(weight);
    std::vector<float> changes;
    const float rest = 1.0f - options.alpha;
    for (std::size_t i = 0; i < old.size(); ++i) {
      float g = entering(gradients[i], options.gradient_factor);
      if (options.weight_decay != 0.0f) {
        const float decay = options.weight_decay * old[i];
        g = g + decay;
      }
      float& square = square_average.host<float>()[i];
      const float kept = options.alpha * square, scaled = rest * g;
      const float fresh = scaled * g;
      const float s = kept + fresh;
      square = canonical(s);
      float variance = s;
      if (options.centered) {
        float& average = gradient_average.host<float>()[i];
        const float stays = options.alpha * average;
        const float a = stays + scaled;
        average = canonical(a);
        const float squared = a * a;
        variance = s - squared;
        if (variance < 0.0f) variance = 0.0f;
      }
      const float root = std::sqrt(variance);
      const float denominator = root + options.epsilon;
      float d = g / denominator;
      if (options.momentum != 0.0f) {
        float& v = velocity.host<float>()[i];
        const float running = options.momentum * v;
        d = running + d;
        v = canonical(d);
      }
      const float update = state.learning_rate[slot] * d;
      changes.push_back(update);
    }
    take(changes, weight, state, store);
  }

  void lamb_step(const LambOptions& options, Tensor& weight, const Tensor& gradient, Tensor& first_moment,
                 Tensor& second_moment, int optimizer, const Tensor& step,
                 const WeightStore& store) override {
    const StepState state = read_step_state(step);
    const auto slot = static_cast<std::size_t>(optimizer);
    if (state.found_inf[slot] != 0.0f) return;
    const std::vector<float> weights = floats_of(weight);
    const std::vector<float> along = directions(options, weight, gradient, first_moment, second_moment,
                                                static_cast<float>(1.0 - state.beta1_power[slot]),
                                                static_cast<float>(std::sqrt(1.0 - state.beta2_power[slot])));
    const double of_weights = norm(weights), of_directions = norm(along);
    double ratio = 1.0;
    if (of_weights != 0.0 && of_directions != 0.0) ratio = of_weights / of_directions;
    follow(weight, along, static_cast<float>(static_cast<double>(state.learning_rate[slot]) * ratio), state,
           store);
  }

 private:
  static double norm(const std::vector<float>& values) {
    const std::vector<double> squares =
        mapped(values, [](float x) { return static_cast<double>(x) * static_cast<double>(x); });
    return squares.empty() ? 0.0
                           : std::sqrt(naive_tree<double>(squares, [](double a, double b) { return a + b; }));
  }

  /// The direction of every element, in which LAMB and AdamWeightDecay step.
  static std::vector<float> directions(const LambOptions& options, const Tensor& weight,
                                       const Tensor& gradient, Tensor& first_moment, Tensor& second_moment,
                                       float correction, float root_correction) {
    const std::vector<float> weights = floats_of(weight), gradients = floats_of(gradient);
    std::vector<float> along;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      const float g = entering(gradients[i], options.gradient_factor);
      float &first = first_moment.host<float>()[i], &second = second_moment.host<float>()[i];
      const float old_m = options.beta1 * first, new_m = (1.0f - options.beta1) * g;
      const float m = old_m + new_m;
      const float old_v = options.beta2 * second, scaled = (1.0f - options.beta2) * g;
      const float new_v = scaled * g;
      const float v = old_v + new_v;
      const float corrected = m / correction, root = std::sqrt(v) / root_correction;
      const float denominator = root + options.epsilon;
      float d = corrected / denominator;
      if (options.weight_decay != 0.0f) {
        const float decay = options.weight_decay * weights[i];
        d = d + decay;
      }
      along.push_back(d);
      first = canonical(m);
      second = canonical(v);
    }
    return along;
  }

  void follow(Tensor& weight, const std::vector<float>& along, float rate, const StepState& state,
              const WeightStore& store) {
    take(mapped(along, [rate](float d) { return rate * d; }), weight, state, store);
  }

  /// Takes what updates change from the weights, and stores them.
  void take(const std::vector<float>& changes, Tensor& weight, const StepState& state,
            const WeightStore& store) {
    const std::vector<float> old = floats_of(weight);
    std::vector<float> next;
    for (std::size_t i = 0; i < old.size(); ++i) next.push_back(old[i] - changes[i]);
    take(changes, next, weight, state, store);
  }
  /// `next`: the weights without those changes, where nothing is compensated.
  void take(const std::vector<float>& changes, const std::vector<float>& next, Tensor& weight,
            const StepState& state, const WeightStore& store) {
    if (store.stochastic) {
      PhiloxStream stream = store.random;
      stream.iteration = static_cast<std::uint32_t>(state.iteration);
      with_type(weight.dtype(), [&](auto tag) {
        using T = decltype(tag);
        if constexpr (!std::is_same_v<T, float>)
          for (std::size_t i = 0; i < next.size(); ++i) {
            ArithmeticOptions options(Rounding::stochastic);
            options.random_bits = (i % 2 == 0 ? stream.word(i / 2) << 16 : stream.word(i / 2) & 0xffff0000u);
            weight.host<T>()[i] = narrow<typename T::Format>(next[i], options);
          }
      });
      return;
    }
    if (store.compensation == nullptr) return store_rounded(next, weight);
    const std::vector<float> old = floats_of(weight), kept = floats_of(*store.compensation);
    std::vector<float> ys, sums, left;
    for (std::size_t i = 0; i < old.size(); ++i) {
      ys.push_back(kept[i] - changes[i]);
      sums.push_back(old[i] + ys[i]);
    }
    store_rounded(sums, weight);
    const std::vector<float> rounded = floats_of(weight);
    for (std::size_t i = 0; i < old.size(); ++i) {
      const float moved = rounded[i] - old[i];
      left.push_back(std::isfinite(rounded[i]) ? ys[i] - moved : 0.0f);
    }
    store_rounded(left, *store.compensation);
  }

  /// A gradient as it enters an update.
  static float entering(float gradient, float factor) {
    return factor == 1.0f ? gradient : gradient * factor;
  }
};

}  // namespace fp16lab::engine::test
