// The judge's optimizer steps (tests/engine/backend/twin_backend.hpp).
#pragma once

#include "tests/engine/backend/twin_elements.hpp"

namespace fp16lab::engine::test {

class TwinOptimizers : public TwinElements {
 public:
  using TwinElements::TwinElements;

  void do_update(const UpdateCall& call) override {
    const StepState state = read_step_state(call.step);
    const auto slot = static_cast<std::size_t>(call.optimizer);
    if (state.found_inf[slot] != 0.0f) return;
    Given given{.o = call.options,
                .rate = state.learning_rate[slot],
                .beta1_power = state.beta1_power[slot],
                .beta2_power = state.beta2_power[slot],
                .is_first = state.taken_steps[slot] == 1};
    if (call.norms[0] != nullptr) {
      const double of_weight = read_step_state(*call.norms[0]).grad_norm,
                   along = read_step_state(*call.norms[1]).grad_norm;
      given.gradient_norm = along;
      if (of_weight != 0.0 && along != 0.0) given.ratio = of_weight / along;
    }
    const std::vector<float> old = floats_of(call.weight), gradients = floats_of(call.gradient);
    std::vector<float> changes, next;
    std::vector<std::size_t> used;
    for (std::size_t k = 0; k < info_of(call.rule).states.size(); ++k)
      if (info_of(call.rule).uses(call.options, static_cast<int>(k))) used.push_back(k);
    for (std::size_t i = 0; i < old.size(); ++i) {
      const float factor = call.options.gradient_factor;
      const float g = factor == 1.0f ? gradients[i] : gradients[i] * factor;
      float s[most_update_states] = {};
      for (const std::size_t k : used) s[k] = call.states[k]->host<float>()[i];
      const Moved moved = element(call.rule, given, old[i], g, s);
      for (const std::size_t k : used) call.states[k]->host<float>()[i] = canonical(s[k]);
      changes.push_back(moved.change);
      next.push_back(moved.next);
    }
    if (call.rule == UpdateRule::lamb_direction || call.rule == UpdateRule::muon_momentum) return;
    take(changes, next, call.weight, state, call.store);
  }

 private:
  struct Given {
    const UpdateOptions& o;
    float rate;
    double beta1_power, beta2_power;
    bool is_first;
    double ratio = 1, gradient_norm = 0;
  };
  /// What the update takes from the weight, and the weight without it.
  struct Moved {
    float change, next;
  };

  static Moved element(UpdateRule rule, const Given& x, float w, float g, float* s) {
    switch (rule) {
      case UpdateRule::sgd:
        return sgd(x, w, g, s);
      case UpdateRule::adam:
        return adam(x, w, g, s, false);
      case UpdateRule::adamw:
        return adam(x, w, g, s, true);
      case UpdateRule::adam_weight_decay: {
        const float d = direction(x, w, g, s, 1.0f, 1.0f), update = x.rate * d;
        return {update, w - update};
      }
      case UpdateRule::rmsprop:
        return rmsprop(x, w, g, s);
      case UpdateRule::lamb_direction: {
        const auto correction = static_cast<float>(1.0 - x.beta1_power);
        const auto root = static_cast<float>(std::sqrt(1.0 - x.beta2_power));
        s[2] = direction(x, w, g, s, correction, root);
        return {};
      }
      case UpdateRule::follow: {
        const auto rate = static_cast<float>(static_cast<double>(x.rate) * x.ratio);
        const float update = rate * g;
        return {update, w - update};
      }
      case UpdateRule::muon_momentum: {
        const auto rest = static_cast<float>(1.0 - static_cast<double>(x.o.momentum));
        const float apart = g - s[0], moved = rest * apart;
        s[0] = s[0] + moved;
        const float ahead = s[0] - g, back = rest * ahead;
        s[1] = x.o.nesterov ? s[0] - back : s[0];
        return {};
      }
      case UpdateRule::normalise: {
        const auto norm = static_cast<float>(x.gradient_norm);
        return {0.0f, g / std::max(norm, x.o.epsilon)};
      }
      case UpdateRule::combine: {
        const float own = x.o.beta1 * w, other = x.o.beta2 * g;
        return {0.0f, own + other};
      }
      case UpdateRule::muon: {
        const auto rate = static_cast<double>(x.rate), decay = static_cast<double>(x.o.weight_decay);
        const auto along = static_cast<float>(rate * static_cast<double>(x.o.alpha));
        const auto kept = static_cast<float>(1.0 - rate * decay), taken = static_cast<float>(rate * decay);
        const float update = along * g, left = w * kept, lost = taken * w;
        return {update + lost, left - update};
      }
    }
    throw std::logic_error("TwinOptimizers: a rule without a twin");
  }

  static float decayed(const Given& x, float w, float g) {
    if (x.o.weight_decay == 0.0f) return g;
    const float decay = x.o.weight_decay * w;
    return g + decay;
  }

  static Moved sgd(const Given& x, float w, float g, float* s) {
    float d = decayed(x, w, g);
    if (x.o.momentum != 0.0f) {
      const float kept = x.o.momentum * s[0], fresh = (1.0f - x.o.dampening) * d;
      s[0] = x.is_first ? d : kept + fresh;
      const float ahead = x.o.momentum * s[0];
      d = x.o.nesterov ? d + ahead : s[0];
    }
    const float update = x.rate * d;
    return {update, w - update};
  }

  static void move_moments(const Given& x, float g, float* s) {
    const float old_m = x.o.beta1 * s[0], new_m = (1.0f - x.o.beta1) * g;
    s[0] = old_m + new_m;
    const float old_v = x.o.beta2 * s[1], scaled = (1.0f - x.o.beta2) * g;
    const float new_v = scaled * g;
    s[1] = old_v + new_v;
  }

  static Moved adam(const Given& x, float w, float g, float* s, bool decoupled) {
    const auto rate = static_cast<double>(x.rate), decay = static_cast<double>(x.o.weight_decay);
    const auto step_size = static_cast<float>(rate / (1.0 - x.beta1_power));
    const auto root = static_cast<float>(std::sqrt(1.0 - x.beta2_power));
    const auto kept = static_cast<float>(1.0 - rate * decay), taken = static_cast<float>(rate * decay);
    move_moments(x, decoupled ? g : decayed(x, w, g), s);
    const float quotient = std::sqrt(s[1]) / root;
    const float denominator = quotient + x.o.epsilon;
    const float numerator = step_size * s[0];
    const float update = numerator / denominator;
    if (!decoupled || x.o.weight_decay == 0.0f) return {update, w - update};
    const float left = w * kept, lost = taken * w;
    return {update + lost, left - update};
  }

  static Moved rmsprop(const Given& x, float w, float gradient, float* s) {
    const float g = decayed(x, w, gradient);
    const float kept = x.o.alpha * s[0], scaled = (1.0f - x.o.alpha) * g;
    const float fresh = scaled * g;
    s[0] = kept + fresh;
    float variance = s[0];
    if (x.o.centered) {
      const float stays = x.o.alpha * s[1];
      s[1] = stays + scaled;
      const float squared = s[1] * s[1];
      variance = s[0] - squared;
      if (variance < 0.0f) variance = 0.0f;
    }
    const float root = std::sqrt(variance);
    const float denominator = root + x.o.epsilon;
    float d = g / denominator;
    if (x.o.momentum != 0.0f) {
      const float running = x.o.momentum * s[2];
      d = running + d;
      s[2] = d;
    }
    const float update = x.rate * d;
    return {update, w - update};
  }

  /// In which LAMB and AdamWeightDecay step.
  static float direction(const Given& x, float w, float g, float* s, float correction,
                         float root_correction) {
    move_moments(x, g, s);
    const float corrected = s[0] / correction, root = std::sqrt(s[1]) / root_correction;
    const float denominator = root + x.o.epsilon;
    return decayed(x, w, corrected / denominator);
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
};

}  // namespace fp16lab::engine::test
