// Cases of the step: scalars, unscaling, norms, clipping.
#include <fmt/format.h>

#include <cmath>

#include "engine/amp/policy.hpp"
#include "engine/amp/scalers/scaler_programs.hpp"
#include "engine/optim/optimizer_programs.hpp"
#include "engine/train/iteration_programs.hpp"
#include "tests/engine/backend/cases/verb_cases.hpp"

namespace fp16lab::engine::cases {
namespace {

using engine::Shape;
using engine::StepState;
using engine::Tensor;

/// A list as a training step has it: several dtypes, sizes and alignments, one empty.
std::vector<Tensor> gradients(CaseContext& c, Data data) {
  return {c.random({c.extent(300, 30), c.extent(257, 25)}, DType::f32, data),
          c.random({c.extent(4097, 67)}, DType::f16, data),
          c.random({1}, DType::f32, data),
          c.random({c.extent(70001, 1501)}, DType::bf16, data),
          c.random({0}, DType::f32, data),
          c.random({c.extent(33, 3), 31}, DType::f16, data)};
}

void keep_all(CaseContext& c, const std::vector<Tensor>& tensors) {
  for (std::size_t i = 0; i < tensors.size(); ++i) c.keep(fmt::format("gradient {}", i), tensors[i]);
}

/// The policy over a trace of finite and overflowing steps.
void run_policy(CaseContext& c, const engine::amp::ScalerOptions& options) {
  const engine::amp::ScalePolicy policy = engine::amp::make_scale_policy(options);
  Tensor step = c.backend().make_step_state(policy.initial);
  const std::string_view trace = "FFFOFFFFFFOOFFFF";
  for (std::size_t i = 0; i < trace.size(); ++i) {
    StepState state = c.backend().read_step_state(step);
    state.found_inf[i % 3] = trace[i] == 'O' ? 1.0f : 0.0f;
    c.backend().write_step_state(state, step);
    c.backend().run(policy.update, step);
    c.backend().run(
        engine::scalar_program("scaler.clear_found_inf", &engine::amp::clear_found_inf_program, 0), step);
    c.keep(fmt::format("{} after {}", options.policy, i), c.backend().read_step_state(step));
  }
}

/// The programs of a training step, by the names under which the device knows them.
void run_step_programs(CaseContext& c) {
  Tensor step = c.backend().make_step_state(state_in_training());
  Tensor norms = c.output({engine::max_optimizers}, DType::f64);
  const engine::Norms by_optimizer{
      .by_optimizer = reinterpret_cast<double*>(norms.data()), .count = 3, .optimizer = 1};
  const Tensor rates = c.random({9}, DType::f32, Data::ordinary);
  const Tensor low = c.random({1}, DType::f16, Data::ordinary), scaled = c.backend().empty({1}, DType::f16);
  Tensor infinite = scaled;
  c.backend().fill(infinite, 1e9);
  const auto run = [&](const char* name, void (*function)(StepState&, const std::byte*),
                       const auto& parameters) {
    c.backend().run(engine::scalar_program(name, function, parameters), step);
    c.keep(name, c.backend().read_step_state(step));
  };
  run("train.begin_iteration", &engine::begin_iteration_program, by_optimizer);
  run("train.keep_norm", &engine::keep_norm_program, by_optimizer);
  run("train.total_norm", &engine::total_norm_program, by_optimizer);
  run("train.unscale_norm", &engine::unscale_norm_program, 0);
  run("train.note_loss_overflow", &engine::note_loss_overflow_program,
      engine::ScaledLoss{.loss = reinterpret_cast<const std::uint16_t*>(low.data()),
                         .scaled = reinterpret_cast<const std::uint16_t*>(infinite.data()),
                         .infinity = 0x7c00});
  for (const std::uint64_t optimizer : {0U, 2U})
    run("optimizer.begin_iteration", &engine::optim::begin_iteration_program,
        engine::optim::BeginIteration{.optimizer = optimizer,
                                      .learning_rates = reinterpret_cast<const float*>(rates.data()),
                                      .count = 9});
  run("optimizer.advance_steps", &engine::optim::advance_steps_program,
      engine::optim::AdvanceSteps{.optimizer = 2, .beta1 = 0.9f, .beta2 = 0.999f});
  StepState overflowed = state_in_training();
  overflowed.found_inf[1] = 1.0f;
  const Tensor other = c.backend().make_step_state(overflowed);
  run("scaler.merge_found_inf", &engine::amp::merge_found_inf_program,
      engine::amp::MergeFoundInf{.loss_state = other.data()});
  run("optimizer.advance_steps", &engine::optim::advance_steps_program,
      engine::optim::AdvanceSteps{.optimizer = 1, .beta1 = 0.9f, .beta2 = 0.999f});
}

void add_scalar_cases(std::vector<VerbCase>& cases) {
  for (const char* verb : {"make_step_state", "read_step_state", "write_step_state"})
    cases.push_back({verb, "there and back", [](CaseContext& c) {
                       StepState state = state_in_training();
                       Tensor step = c.backend().make_step_state(state);
                       c.keep("made", c.backend().read_step_state(step));
                       state.policy[63] = std::byte{9};
                       c.backend().write_step_state(state, step);
                       c.keep("written", c.backend().read_step_state(step));
                     }});
  cases.push_back({"run", "loss-scale policies", [](CaseContext& c) {
                     run_policy(c, {.policy = "none"});
                     run_policy(c, {.policy = "fixed", .initial_scale = 1024});
                     run_policy(c, {.policy = "dynamic", .growth_interval = 3});
                     run_policy(c, {.policy = "dynamic",
                                    .initial_scale = 0x1p120,
                                    .growth_factor = 3000,
                                    .backoff_factor = 1.0 / 3000,
                                    .growth_interval = 2});
                   }});
  cases.push_back({"run", "programs of a training step", run_step_programs});
  cases.push_back({"fill_scale", "S as FP32", [](CaseContext& c) {
                     const Tensor step = c.backend().make_step_state(state_in_training());
                     Tensor out = c.output({}, DType::f32);
                     c.backend().fill_scale(step, out);
                     c.keep("seed", out);
                   }});
}

/// Odd extents also get one gradient of each type and size, and many of one element.
std::vector<std::vector<Tensor>> gradient_lists(CaseContext& c, Data data) {
  std::vector<std::vector<Tensor>> lists{gradients(c, data)};
  if (!c.odd()) return lists;
  for (const DType dtype : floats)
    for (const std::int64_t size : {1, 31, 70001, 131073}) lists.push_back({c.random({size}, dtype, data)});
  std::vector<Tensor>& many = lists.emplace_back();
  for (int i = 0; i < 700; ++i) many.push_back(c.random({i * i % 61}, floats[i % 3], data));
  std::vector<Tensor>& edges = lists.emplace_back();
  for (const DType dtype : floats)
    for (const std::int64_t size : {3, 4, 7, 8, 9, 1023, 1024, 1025, 4095, 4096, 4097, 8200})
      edges.push_back(c.random({size}, dtype, data));
  lists.emplace_back();
  return lists;
}

/// A gradient whose last element is `last`, between others.
std::vector<Tensor> gradients_ending_with(CaseContext& c, DType dtype, std::int64_t size, double last) {
  std::vector<Tensor> all{c.random({100}, DType::f32, Data::ordinary), c.random({size}, dtype, Data::wide),
                          c.random({3000}, DType::bf16, Data::ordinary)};
  Tensor element = c.backend().empty({1}, dtype);
  c.backend().fill(element, last);
  c.backend().insert(element, 0, size - 1, all[1]);
  return all;
}

void add_gradient_cases(std::vector<VerbCase>& cases) {
  cases.push_back({"unscale", "found_inf and values", [](CaseContext& c) {
                     const auto unscaled = [&c](std::vector<Tensor> all, float found = 0.0f) {
                       StepState state = state_in_training();
                       state.found_inf[2] = found;
                       Tensor step = c.backend().make_step_state(state);
                       c.backend().unscale(all, 2, step);
                       keep_all(c, all);
                       c.keep("state", c.backend().read_step_state(step));
                     };
                     for (const Data data : {Data::training, Data::wide, Data::special})
                       for (const std::vector<Tensor>& all : gradient_lists(c, data)) unscaled(all);
                     unscaled(gradients(c, Data::training), 1.0f);  // the flag is never cleared
                     if (!c.odd()) return;
                     for (const DType dtype : floats)
                       for (const std::int64_t size : {1, 31, 131073})
                         for (const double last : {1.0, HUGE_VAL, -HUGE_VAL, std::nan(""), 0x1.fffffep127})
                           unscaled(gradients_ending_with(c, dtype, size, last));
                   }});
  cases.push_back({"global_norm", "in FP64", [](CaseContext& c) {
                     for (const Data data : {Data::training, Data::ordinary, Data::wide, Data::special})
                       for (const std::vector<Tensor>& all : gradient_lists(c, data)) {
                         Tensor step = c.backend().make_step_state(state_in_training());
                         c.backend().global_norm(all, step);
                         c.keep(name_of(data), c.backend().read_step_state(step));
                       }
                   }});
  cases.push_back({"clip_by_norm", "above, below, not finite", [](CaseContext& c) {
                     std::vector<double> norms{3.5, 0.5, 1e300, HUGE_VAL};
                     if (c.odd()) norms.insert(norms.end(), {1.0, 1.0 + 0x1p-52, 37.25, std::nan("")});
                     for (const double norm : norms)
                       for (std::vector<Tensor>& all : gradient_lists(c, Data::special)) {
                         StepState state = state_in_training();
                         state.grad_norm = norm;
                         Tensor step = c.backend().make_step_state(state);
                         c.backend().clip_by_norm(all, 1.0, step);
                         keep_all(c, all);
                         if (c.odd()) c.keep("state", c.backend().read_step_state(step));
                       }
                   }});
  cases.push_back({"clip_by_value", "NaN stays", [](CaseContext& c) {
                     std::vector<float> limits{0.1f, 1.0f, 60000.0f};
                     if (c.odd()) limits.insert(limits.end(), {0.5f, 1.0f / 3});
                     for (const float most : limits)
                       for (std::vector<Tensor>& all : gradient_lists(c, Data::special)) {
                         c.backend().clip_by_value(all, most);
                         keep_all(c, all);
                       }
                   }});
}

}  // namespace

void add_step_cases(std::vector<VerbCase>& cases) {
  add_scalar_cases(cases);
  add_gradient_cases(cases);
}

}  // namespace fp16lab::engine::cases
