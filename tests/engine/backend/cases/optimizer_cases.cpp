// Cases of the optimizers: every rule, dtype of weights and gradients, taken and skipped steps, and the ways
// to store a weight of 16 bits.
#include <fmt/format.h>

#include <iterator>

#include "tests/engine/backend/cases/verb_cases.hpp"

namespace fp16lab::engine::cases {
namespace {

using engine::StepState;
using engine::Tensor;
using engine::WeightStore;

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

/// run(options) for the first, on the odd extents for all.
template <class Options, class Run>
void for_each_of(CaseContext& c, const std::vector<Options>& options, const Run& run) {
  for (std::size_t i = 0; i < (c.odd() ? options.size() : 1); ++i) run(options[i]);
}

void add_sgd_and_adam_cases(std::vector<VerbCase>& cases) {
  const std::pair<const char*, std::vector<engine::SgdOptions>> sgd[] = {
      {"plain", {{}, {.weight_decay = 0.01f}, {.gradient_factor = 1.0f / 1024}}},
      {"momentum", {{.momentum = 0.9f}, {.momentum = 0.9f, .dampening = 0.3f, .weight_decay = 0.01f}}},
      {"everything",
       {{.momentum = 0.9f, .dampening = 0.1f, .weight_decay = 0.01f, .gradient_factor = 1.0f / 1024}}},
      {"nesterov",
       {{.momentum = 0.9f, .weight_decay = 0.01f, .nesterov = true},
        {.momentum = 0.9f, .nesterov = true},
        {.momentum = 0.9f, .weight_decay = 0.01f, .nesterov = true, .gradient_factor = 1.0f / 3}}}};
  for (const auto& [name, options] : sgd)
    cases.push_back({"sgd_step", name, [options = options](CaseContext& c) {
                       for_each_of(c, options, [&](const engine::SgdOptions& one) {
                         for_each_update(c, [&](Tensor& w, const Tensor& g, const Tensor& step, Data data,
                                                const std::string& what) {
                           Tensor velocity = c.random(w.shape(), DType::f32, data);
                           c.backend().sgd_step(one, w, g, velocity, 1, step);
                           c.keep(what, w);
                           c.keep(what + " velocity", velocity);
                         });
                       });
                     }});
  const std::pair<const char*, std::vector<engine::AdamOptions>> adam[] = {
      {"adam", {{}, {.gradient_factor = 1.0f / 1024}}},
      {"adam with decay",
       {{.weight_decay = 0.01f, .gradient_factor = 1.0f / 1024},
        {.beta1 = 0.5f,
         .beta2 = 0.75f,
         .epsilon = 1e-3f,
         .weight_decay = 0.01f,
         .gradient_factor = 1.0f / 3}}},
      {"adamw",
       {{.weight_decay = 0.01f, .decoupled_decay = true}, {.weight_decay = 0.1f, .decoupled_decay = true}}},
      {"AdamWeightDecay",
       {{.epsilon = 1e-3f, .weight_decay = 0.01f, .uncorrected = true, .gradient_factor = 0.3f}}}};
  for (const auto& [name, options] : adam)
    cases.push_back({"adam_step", name, [options = options](CaseContext& c) {
                       for_each_of(c, options, [&](const engine::AdamOptions& one) {
                         for_each_update(c, [&](Tensor& w, const Tensor& g, const Tensor& step, Data data,
                                                const std::string& what) {
                           Tensor first = c.random(w.shape(), DType::f32, data);
                           Tensor second = c.random(w.shape(), DType::f32, data);
                           c.backend().unary(engine::UnaryOp::absolute, second, second);
                           c.backend().adam_step(one, w, g, first, second, 1, step);
                           c.keep(what, w);
                           c.keep(what + " first moment", first);
                           c.keep(what + " second moment", second);
                         });
                       });
                     }});
}

void add_rmsprop_cases(std::vector<VerbCase>& cases) {
  const std::pair<const char*, std::vector<engine::RmspropOptions>> rmsprop[] = {
      {"plain", {{.weight_decay = 0.01f, .gradient_factor = 1.0f / 1024}}},
      {"momentum", {{.alpha = 0.5f, .epsilon = 1e-3f, .momentum = 0.5f}}},
      {"centered", {{.alpha = 0.9f, .centered = true, .weight_decay = 0.01f}}},
      {"everything", {{.momentum = 0.9f, .centered = true, .weight_decay = 0.01f, .gradient_factor = 0.1f}}}};
  for (const auto& [name, options] : rmsprop)
    cases.push_back({"rmsprop_step", name, [options = options](CaseContext& c) {
                       for_each_of(c, options, [&](const engine::RmspropOptions& one) {
                         for_each_update(c, [&](Tensor& w, const Tensor& g, const Tensor& step, Data data,
                                                const std::string& what) {
                           Tensor square = c.random(w.shape(), DType::f32, data);
                           c.backend().unary(engine::UnaryOp::absolute, square, square);
                           Tensor average = c.random(w.shape(), DType::f32, data);
                           Tensor velocity = c.random(w.shape(), DType::f32, data);
                           c.backend().rmsprop_step(one, w, g, square, average, velocity, 1, step);
                           c.keep(what, w);
                           c.keep(what + " square average", square);
                           c.keep(what + " gradient average", average);
                           c.keep(what + " velocity", velocity);
                         });
                       });
                     }});
}

void add_lamb_cases(std::vector<VerbCase>& cases) {
  const std::pair<const char*, std::vector<engine::LambOptions>> lamb[] = {
      {"plain", {{.beta1 = 0.5f, .beta2 = 0.75f, .epsilon = 1e-3f}}},
      {"with decay", {{.weight_decay = 0.1f, .gradient_factor = 1.0f / 1024}}}};
  for (const auto& [name, options] : lamb)
    cases.push_back({"lamb_step", name, [options = options](CaseContext& c) {
                       for_each_of(c, options, [&](const engine::LambOptions& one) {
                         for_each_update(c, [&](Tensor& w, const Tensor& g, const Tensor& step, Data data,
                                                const std::string& what) {
                           Tensor first = c.random(w.shape(), DType::f32, data);
                           Tensor second = c.random(w.shape(), DType::f32, data);
                           c.backend().unary(engine::UnaryOp::absolute, second, second);
                           c.backend().lamb_step(one, w, g, first, second, 1, step);
                           c.keep(what, w);
                           c.keep(what + " first moment", first);
                           c.keep(what + " second moment", second);
                         });
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
  cases.push_back({"sgd_step", "stored otherwise", [](CaseContext& c) {
                     for_each_store(c, [&](Tensor& w, const Tensor& g, const Tensor& step,
                                           const WeightStore& store, const std::string& what) {
                       Tensor velocity = c.random(w.shape(), DType::f32, Data::training);
                       c.backend().sgd_step({.momentum = 0.9f, .weight_decay = 0.01f}, w, g, velocity, 1,
                                            step, store);
                       c.keep(what + " velocity", velocity);
                     });
                   }});
  const auto moments = [&cases](const char* verb, const char* name, const auto& call) {
    cases.push_back({verb, name, [call](CaseContext& c) {
                       for_each_store(c, [&](Tensor& w, const Tensor& g, const Tensor& step,
                                             const WeightStore& store, const std::string& what) {
                         Tensor first = c.random(w.shape(), DType::f32, Data::training);
                         Tensor second = c.random(w.shape(), DType::f32, Data::training);
                         c.backend().unary(engine::UnaryOp::absolute, second, second);
                         call(c, w, g, first, second, step, store);
                         c.keep(what + " first", first);
                         c.keep(what + " second", second);
                       });
                     }});
  };
  const engine::AdamOptions adam[] = {{.weight_decay = 0.1f},
                                      {.weight_decay = 0.1f, .decoupled_decay = true},
                                      {.weight_decay = 0.1f, .uncorrected = true}};
  const char* const names[] = {"stored otherwise", "adamw stored otherwise",
                               "AdamWeightDecay stored otherwise"};
  for (std::size_t i = 0; i < std::size(adam); ++i)
    moments("adam_step", names[i],
            [one = adam[i]](CaseContext& c, Tensor& w, const Tensor& g, Tensor& first, Tensor& second,
                            const Tensor& step, const WeightStore& store) {
              c.backend().adam_step(one, w, g, first, second, 1, step, store);
            });
  moments("lamb_step", "stored otherwise",
          [](CaseContext& c, Tensor& w, const Tensor& g, Tensor& first, Tensor& second, const Tensor& step,
             const WeightStore& store) {
            c.backend().lamb_step({.weight_decay = 0.1f}, w, g, first, second, 1, step, store);
          });
  moments("rmsprop_step", "stored otherwise",
          [](CaseContext& c, Tensor& w, const Tensor& g, Tensor& velocity, Tensor& square, const Tensor& step,
             const WeightStore& store) {
            Tensor none;
            c.backend().rmsprop_step({.momentum = 0.9f, .weight_decay = 0.1f}, w, g, square, none, velocity,
                                     1, step, store);
          });
}

}  // namespace

void add_optimizer_cases(std::vector<VerbCase>& cases) {
  add_sgd_and_adam_cases(cases);
  add_rmsprop_cases(cases);
  add_lamb_cases(cases);
  add_store_cases(cases);
}

}  // namespace fp16lab::engine::cases
