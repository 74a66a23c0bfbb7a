// Cases of updates: every rule, dtype of weights and gradients, taken and skipped steps, and the ways
// to store a weight of 16 bits.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>

#include "tests/engine/backend/cases/verb_cases.hpp"

namespace fp16lab::engine::cases {
namespace {

/// body(weight, gradient, step, data of the moments, name): taken and skipped steps, dtypes of weights and
/// gradients.
template <class Body>
void for_each_update(CaseContext& c, const Body& body) {
  struct Update {
    DType weight, gradient;
    bool skipped;
    std::uint64_t taken_steps;
    Data weights, gradients;
    std::int64_t size;
  };
  const auto run = [&](const Update& one) {
    StepState state = state_in_training();
    state.found_inf[1] = one.skipped ? 1.0f : 0.0f;
    state.found_inf[2] = 1.0f;  // another optimizer's
    state.taken_steps[1] = one.taken_steps;
    const Tensor step = c.backend().make_step_state(state);
    Tensor w = c.random({one.size}, one.weight, one.weights);
    const Tensor g = c.random({one.size}, one.gradient, one.gradients);
    const std::string what = fmt::format("{} from {}{}", name_of(one.weight), name_of(one.gradient),
                                         one.skipped ? ", skipped" : "");
    body(w, g, step, one.weights, what);
    if (c.odd()) c.keep(what + " gradient", g);
  };
  for (const DType weight : floats)
    for (const DType gradient : floats) {
      for (const bool skipped : {false, true})
        if (!skipped || weight == DType::f32)
          run({weight, gradient, skipped,
               gradient == DType::f16 ? 1u : 6u,  // the first step sets the velocity
               Data::training, gradient == DType::bf16 ? Data::special : Data::training,
               c.extent(100003, 1003)});
      if (!c.odd()) continue;
      for (const std::uint64_t taken : {1u, 2u})
        for (const Data data : {Data::ordinary, Data::special})
          for (const std::int64_t size : {31, 2051}) run({weight, gradient, false, taken, data, data, size});
      run({weight, gradient, true, 2, Data::special, Data::special, 1025});  // payloads of NaNs stay
    }
  if (!c.odd()) return;
  // Shared by threads.
  for (const auto& [weight, gradient] :
       {std::pair(DType::f32, DType::f32), std::pair(DType::f32, DType::bf16),
        std::pair(DType::f16, DType::f16), std::pair(DType::bf16, DType::f16)})
    run({weight, gradient, false, 2, Data::special, Data::special, 140001});
}

/// The states of a rule, beside a weight; means of squares are positive. Those that the rule does not use
/// with such options are there too, and keep every byte.
struct States {
  States(CaseContext& c, UpdateRule rule, const Shape& shape, Data data) : names(info_of(rule).states) {
    for (const std::string_view name : names) {
      all.push_back(c.random(shape, DType::f32, data));
      if (name.starts_with("sec") || name.starts_with("square"))
        c.backend().unary(UnaryOp::absolute, all.back(), all.back());
    }
    for (std::size_t k = 0; k < all.size(); ++k) of_call[k] = &all[k];
  }
  void keep(CaseContext& c, const std::string& what) const {
    for (std::size_t k = 0; k < all.size(); ++k) c.keep(fmt::format("{} {}", what, names[k]), all[k]);
  }

  std::span<const std::string_view> names;
  std::vector<Tensor> all;
  std::array<Tensor*, most_update_states> of_call{};
};

/// StepStates with the norms of the weight and of what it follows, for the rule that reads them.
struct Norms {
  Norms(CaseContext& c, double of_weight, double of_direction) {
    for (const double norm : {of_weight, of_direction}) {
      StepState state;
      state.grad_norm = norm;
      all.push_back(c.backend().make_step_state(state));
    }
  }
  std::vector<Tensor> all;
};

struct RuleCase {
  UpdateRule rule;
  const char* name;
  std::vector<UpdateOptions> options;  ///< the first one; on the odd extents all
};

/// The options that distinguish the variants of every rule.
const std::vector<RuleCase>& rule_cases() {
  static const std::vector<RuleCase> all{
      {UpdateRule::sgd, "plain", {{}, {.weight_decay = 0.01f}, {.gradient_factor = 1.0f / 1024}}},
      {UpdateRule::sgd,
       "momentum",
       {{.momentum = 0.9f}, {.momentum = 0.9f, .dampening = 0.3f, .weight_decay = 0.01f}}},
      {UpdateRule::sgd,
       "everything",
       {{.momentum = 0.9f, .dampening = 0.1f, .weight_decay = 0.01f, .gradient_factor = 1.0f / 1024}}},
      {UpdateRule::sgd,
       "nesterov",
       {{.momentum = 0.9f, .weight_decay = 0.01f, .nesterov = true},
        {.momentum = 0.9f, .nesterov = true},
        {.momentum = 0.9f, .weight_decay = 0.01f, .nesterov = true, .gradient_factor = 1.0f / 3}}},
      {UpdateRule::adam, "plain", {{}, {.gradient_factor = 1.0f / 1024}}},
      {UpdateRule::adam,
       "with decay",
       {{.weight_decay = 0.01f, .gradient_factor = 1.0f / 1024},
        {.beta1 = 0.5f,
         .beta2 = 0.75f,
         .epsilon = 1e-3f,
         .weight_decay = 0.01f,
         .gradient_factor = 1.0f / 3}}},
      {UpdateRule::adamw, "with decay", {{.weight_decay = 0.01f}, {.weight_decay = 0.1f}, {}}},
      {UpdateRule::adam_weight_decay,
       "with decay",
       {{.epsilon = 1e-3f, .weight_decay = 0.01f, .gradient_factor = 0.3f}}},
      {UpdateRule::rmsprop, "plain", {{.weight_decay = 0.01f, .gradient_factor = 1.0f / 1024}}},
      {UpdateRule::rmsprop, "momentum", {{.alpha = 0.5f, .epsilon = 1e-3f, .momentum = 0.5f}}},
      {UpdateRule::rmsprop, "centered", {{.alpha = 0.9f, .centered = true, .weight_decay = 0.01f}}},
      {UpdateRule::rmsprop,
       "everything",
       {{.momentum = 0.9f, .centered = true, .weight_decay = 0.01f, .gradient_factor = 0.1f}}},
      {UpdateRule::lamb_direction, "plain", {{.beta1 = 0.5f, .beta2 = 0.75f, .epsilon = 1e-3f}}},
      {UpdateRule::lamb_direction,
       "with decay",
       {{.epsilon = 1e-6f, .weight_decay = 0.1f, .gradient_factor = 1.0f / 1024}}},
      {UpdateRule::follow, "plain", {{}}},
      {UpdateRule::muon_momentum,
       "nesterov",
       {{.momentum = 0.95f, .nesterov = true}, {.momentum = 0.9f, .gradient_factor = 1.0f / 3}}},
      {UpdateRule::normalise, "plain", {{.epsilon = 1e-7f}, {.epsilon = 4.0f}}},
      {UpdateRule::combine, "plain", {{.beta1 = -4.775f, .beta2 = 2.0315f}}},
      {UpdateRule::muon, "with decay", {{.alpha = 1.5f, .weight_decay = 0.1f}, {.alpha = 1.0f}}},
  };
  return all;
}

void add_rule_cases(std::vector<VerbCase>& cases) {
  for (const RuleCase& one : rule_cases())
    cases.push_back({std::string(info_of(one.rule).name), one.name, [one](CaseContext& c) {
                       for (std::size_t i = 0; i < (c.odd() ? one.options.size() : 1); ++i)
                         for_each_update(c, [&](Tensor& w, const Tensor& g, const Tensor& step, Data data,
                                                const std::string& what) {
                           States states(c, one.rule, w.shape(), data);
                           const Norms norms(c, data == Data::special ? 0.0 : 3.7, 0.3);
                           c.backend().update({.rule = one.rule,
                                               .options = one.options[i],
                                               .weight = w,
                                               .gradient = g,
                                               .states = states.of_call,
                                               .optimizer = 1,
                                               .step = step,
                                               .norms = {&norms.all[0], &norms.all[1]}});
                           c.keep(what, w);
                           states.keep(c, what);
                         });
                     }});
}

/// run(weight, gradient, step, store, name): weights of 16 bits, Kahan's sum and stochastic rounding, taken
/// and skipped steps.
template <class Run>
void for_each_store(CaseContext& c, const Run& run) {
  for (const DType weight : {DType::f16, DType::bf16})
    for (const bool kahan : {true, false})
      for (const Data data : {Data::training, Data::special})
        for (const std::int64_t size : {c.extent(100003, 1003), std::int64_t{31}, std::int64_t{140001}}) {
          if (size != 31 && (c.odd() ? data == Data::special : size == 140001)) continue;
          if (size == 140001 && weight == DType::f16) continue;
          StepState state = state_in_training();
          state.iteration = 0x100000002;  // its low 32 bits count
          state.found_inf[1] = size == 31 && data == Data::training ? 1.0f : 0.0f;
          const Tensor step = c.backend().make_step_state(state);
          Tensor w = c.random({size}, weight, data);
          const Tensor g = c.random({size}, kahan ? DType::f32 : weight, data);
          Tensor kept = c.random({size}, weight, Data::training);
          c.backend().scale(kept, 0x1p-11f, kept);
          WeightStore store;
          if (kahan)
            store.compensation = &kept;
          else
            store = {.stochastic = true, .random = {.seed = 7, .stream = stream_id("fc1.weight/rounding")}};
          const std::string what =
              fmt::format("{} {} {}", name_of(weight), kahan ? "kahan" : "stochastic", size);
          run(w, g, step, store, what);
          c.keep(what, w);
          c.keep(what + " compensation", kept);
        }
}

void add_store_cases(std::vector<VerbCase>& cases) {
  // These leave no change in the weight for a store to keep or to round.
  constexpr UpdateRule without_change[] = {UpdateRule::lamb_direction, UpdateRule::muon_momentum,
                                           UpdateRule::normalise, UpdateRule::combine};
  for (const UpdateRule rule : all_update_rules) {
    if (std::ranges::find(without_change, rule) != std::end(without_change)) continue;
    cases.push_back({std::string(info_of(rule).name), "stored otherwise", [rule](CaseContext& c) {
                       for_each_store(c, [&](Tensor& w, const Tensor& g, const Tensor& step,
                                             const WeightStore& store, const std::string& what) {
                         States states(c, rule, w.shape(), Data::training);
                         const Norms norms(c, 3.7, 0.3);
                         c.backend().update({.rule = rule,
                                             .options = {.momentum = 0.9f, .weight_decay = 0.1f},
                                             .weight = w,
                                             .gradient = g,
                                             .states = states.of_call,
                                             .optimizer = 1,
                                             .step = step,
                                             .store = store,
                                             .norms = {&norms.all[0], &norms.all[1]}});
                         states.keep(c, what);
                       });
                     }});
  }
}

}  // namespace

void add_optimizer_cases(std::vector<VerbCase>& cases) {
  add_rule_cases(cases);
  add_store_cases(cases);
}

}  // namespace fp16lab::engine::cases
