// The recurrence of an LSTM as two nodes.
//
//   products, W_hh, b_hh  ->  gates  ->  h of all steps
//
// The second node's vjp goes back through all steps and gives the whole gradient of the gates' sums: what a
// change of the sums of one step does to that step's h and, through h and c, to every later one. With it the
// first node is what a linear layer is: its vjps are the gradient itself, one product and one sum.
#include <array>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "engine/autograd/by_shard.hpp"
#include "engine/autograd/dispatch.hpp"
#include "engine/autograd/ops.hpp"
#include "engine/autograd/ops/product.hpp"

namespace fp16lab::engine::ops {

namespace {

/// What vjps capture.
struct Recurrence {
  Variable products = {}, weight = {}, bias = {};
  std::int64_t steps = 1;
  std::uint32_t hidden_scope = 0, cell_scope = 0;
  Formats formats = {};

  Tape& tape() const { return weight.tape(); }
  std::int64_t rows() const { return products.shape()[0]; }
  std::int64_t batch() const { return rows() / steps; }
  std::int64_t hidden() const { return weight.shape()[1]; }
  DType dtype() const { return weight.dtype(); }
  Tensor empty(std::int64_t row_count, std::int64_t columns) const {
    return tape().backend().empty({row_count, columns}, dtype());
  }
};

// ---- forward ----

/// For observers: the state product before its rounding.
void show_state_product(const Recurrence& r, const Tensor& hidden, const Tensor& product) {
  Tape& tape = r.tape();
  const Tensor kept = product, bias = r.bias.tensor();
  tape.offer_wide(kept, [&] {
    Tensor wide = tape.backend().empty(kept.shape(), DType::f32);
    tape.backend().gemm({.a = hidden,
                         .b = r.weight.tensor(),
                         .out = wide,
                         .transpose_b = true,
                         .bias = &bias,
                         .a_format = r.formats.a,
                         .b_format = r.formats.b,
                         .tf32 = r.formats.tf32});
    return wide;
  });
  tape.record(Op::linear, kept, {{tape.constant(hidden), {}}, {r.weight, {}}, {r.bias, {}}});
}

/// Computes gates after their functions, c and h of all steps.
void run_steps(const Recurrence& r, Tensor& gates, Tensor& cells, Tensor& outputs) {
  Tape& tape = r.tape();
  Backend& backend = tape.backend();
  const Tensor products = r.products.tensor(), weight = r.weight.tensor(), bias = r.bias.tensor();
  Tensor recurrent = r.empty(r.batch(), 4 * r.hidden()), hidden = r.empty(r.batch(), r.hidden());
  backend.fill(hidden, 0.0);
  const bool watched = tape.follows_values();
  GemmCall product{.a = hidden,
                   .b = weight,
                   .out = recurrent,
                   .transpose_b = true,
                   .bias = &bias,
                   .a_format = r.formats.a,
                   .b_format = r.formats.b,
                   .tf32 = r.formats.tf32};
  const Tensor packed_weight = backend.pack_b(product);
  product.packed_b = &packed_weight;
  for (std::int64_t step = 0; step < r.steps; ++step) {
    if (watched) recurrent = r.empty(r.batch(), 4 * r.hidden());
    backend.gemm(product);
    if (watched) {
      show_state_product(r, hidden, recurrent);
      hidden = r.empty(r.batch(), r.hidden());
    }
    backend.lstm_cell({.step = step,
                       .products = products,
                       .recurrent = recurrent,
                       .gates = gates,
                       .cells = cells,
                       .outputs = outputs,
                       .hidden = hidden});
  }
}

// ---- backward, recorded: the same steps as operations ----

/// h of all steps, in FP32 but for the values that one step gives the next.
Variable unrolled(const Recurrence& r, const Variable& products) {
  Variable cell;
  Variable hidden = r.tape().constant([&] {
    Tensor zero = r.empty(r.batch(), r.hidden());
    r.tape().backend().fill(zero, 0.0);
    return zero;
  }());
  std::vector<Variable> outputs;
  for (std::int64_t step = 0; step < r.steps; ++step) {
    const Variable recurrent = linear_product(Op::linear, hidden, r.weight, r.bias, r.formats);
    const auto sums =
        split<4>(add(wide(slice(products, 0, step * r.batch(), r.batch())), wide(recurrent)), 1);
    const Variable added = multiply(sigmoid(sums[0]), tanh(sums[2]));
    const Variable next = step == 0 ? added : add(multiply(sigmoid(sums[1]), wide(cell)), added);
    hidden = cast(multiply(sigmoid(sums[3]), tanh(next)), r.dtype());
    cell = cast(next, r.dtype());
    outputs.push_back(hidden);
  }
  return concat(outputs, 0);
}

/// The gradient of the gates' sums, itself on the tape: of <h, g> with g held fixed, and the products free.
Variable recorded_gradient(const Recurrence& r, const Variable& g) {
  Tape& tape = r.tape();
  if (tape.rounds_stochastically() && tape.context().shards.total > 1)
    throw std::logic_error(
        "lstm: a backward pass that is itself differentiated, with several shards and stochastic rounding of "
        "gradients, has no rule for its random numbers; one of the three must go");
  const Variable products =
      tape.record(Op::identity, r.products.tensor(),
                  {{r.products, [](const Variable& gradient, const Variable&) { return gradient; }}});
  const Variable along = sum(multiply(wide(unrolled(r, products)), wide(g)));
  return tape.gradients(std::array{along}, {}, std::array{products}, {.create_graph = true}).front();
}

// ---- backward ----

/// One gradient after the other, last step first; with a value watcher each is recorded, in memory of its
/// own.
class BackThroughTime {
 public:
  /// `gates` after their functions.
  BackThroughTime(const Recurrence& r, const Variable& gates, const Variable& cells, const Variable& g)
      : r_(r),
        tape_(r.tape()),
        backend_(tape_.backend()),
        watched_(tape_.follows_values()),
        observed_(tape_.probe() != nullptr),
        stochastic_(tape_.rounds_stochastically() && r.dtype() != DType::f32),
        gates_(gates.tensor()),
        cells_(cells.tensor()),
        gradient_(g.tensor()),
        weight_(r.weight.tensor()),
        g_(g),
        all_(r.empty(r.rows(), 4 * r.hidden())) {}

  Variable run() {
    Tensor step_gradients = r_.empty(r_.batch(), 4 * r_.hidden());
    Tensor hidden = r_.empty(r_.batch(), r_.hidden()), cell = r_.empty(r_.batch(), r_.hidden());
    std::vector<Slot> parts;  // filled for watchers only
    Variable of_hidden, of_cell;
    for (std::int64_t step = r_.steps; step-- > 0;) {
      const bool last = step + 1 == r_.steps, first = step == 0;
      if (watched_) step_gradients = r_.empty(r_.batch(), 4 * r_.hidden());
      Tensor previous = watched_ ? r_.empty(r_.batch(), r_.hidden()) : cell;
      const LstmCellGradientCall call{.step = step,
                                      .gates = gates_,
                                      .cells = cells_,
                                      .gradient = gradient_,
                                      .hidden_gradient = last ? nullptr : &hidden,
                                      .cell_gradient = last ? nullptr : &cell,
                                      .gate_gradients = all_,
                                      .step_gradients = step_gradients,
                                      .previous_cell_gradient = first ? nullptr : &previous,
                                      .probe = tape_.probe(),
                                      .cell_probe = observed_ ? &cell_probe_ : nullptr};
      go_back(call);
      std::array<Variable, 2> shown;
      if (watched_) {
        shown = show_cell(call, of_hidden, of_cell);
        parts.push_back({shown[0], {}});
        of_cell = shown[1];
        hidden = r_.empty(r_.batch(), r_.hidden());
      }
      cell = previous;
      if (first) break;
      multiply_back(step_gradients, hidden, observed_ ? &hidden_probe_ : nullptr);
      if (watched_) of_hidden = show_product(shown[0], step_gradients, hidden);
    }
    if (observed_ && r_.steps > 1) {
      tape_.tell(InnerGradient{tape_, r_.hidden_scope, SlotLabel::input, r_.dtype(), hidden_probe_});
      tape_.tell(InnerGradient{tape_, r_.cell_scope, SlotLabel::input, r_.dtype(), cell_probe_});
    }
    return watched_ ? tape_.record(Op::lstm, all_, std::span<const Slot>(parts)) : tape_.constant(all_);
  }

 private:
  void multiply_back(const Tensor& step_gradients, Tensor& out, CastProbe* probe) {
    if (stochastic_ && out.dtype() != DType::f32) {
      Tensor wide = backend_.empty(out.shape(), DType::f32);
      multiply_back(step_gradients, wide, nullptr);
      tape_.round_stochastically(wide, out, probe);
      return;
    }
    GemmCall call{.a = step_gradients,
                  .b = weight_,
                  .out = out,
                  .probe = probe,
                  .a_format = r_.formats.of_gradient(),
                  .b_format = r_.formats.b,
                  .tf32 = r_.formats.tf32};
    if (!packed_weight_.defined()) packed_weight_ = backend_.pack_b(call);
    call.packed_b = &packed_weight_;
    backend_.gemm(call);
  }

  /// The step's gradients, rounded to nearest by the verb or stochastically after it.
  void go_back(const LstmCellGradientCall& call) {
    if (!stochastic_) {
      backend_.lstm_cell_gradient(call);
      return;
    }
    const auto [step, previous] = wide_cell(call);
    tape_.round_stochastically(step, call.step_gradients, call.probe);
    backend_.insert(call.step_gradients, 0, call.step * r_.batch(), all_);
    if (call.previous_cell_gradient != nullptr)
      tape_.round_stochastically(previous, *call.previous_cell_gradient, call.cell_probe);
  }

  /// The step again with results in FP32.
  std::array<Tensor, 2> wide_cell(LstmCellGradientCall call) {
    Tensor all = backend_.empty(all_.shape(), DType::f32);
    Tensor step = backend_.empty(call.step_gradients.shape(), DType::f32);
    Tensor previous = backend_.empty({r_.batch(), r_.hidden()}, DType::f32);
    backend_.lstm_cell_gradient(
        {.step = call.step,
         .gates = call.gates,
         .cells = call.cells,
         .gradient = call.gradient,
         .hidden_gradient = call.hidden_gradient,
         .cell_gradient = call.cell_gradient,
         .gate_gradients = all,
         .step_gradients = step,
         .previous_cell_gradient = call.previous_cell_gradient == nullptr ? nullptr : &previous});
    return {step, previous};
  }

  /// Gradients of the gates' sums, and of the step before's c (undefined at the first step).
  std::array<Variable, 2> show_cell(const LstmCellGradientCall& call, const Variable& of_hidden,
                                    const Variable& of_cell) {
    std::vector<Slot> slots{{g_, {}}};
    if (of_hidden.defined()) slots.push_back({of_hidden, {}});
    if (of_cell.defined()) slots.push_back({of_cell, {}});
    tape_.offer_wide(call.step_gradients, [&] { return wide_cell(call)[0]; });
    const Variable sums = tape_.record(Op::lstm, call.step_gradients, std::span<const Slot>(slots));
    if (call.previous_cell_gradient == nullptr) return {sums, {}};
    tape_.offer_wide(*call.previous_cell_gradient, [&] { return wide_cell(call)[1]; });
    return {sums, tape_.record(Op::lstm, *call.previous_cell_gradient, std::span<const Slot>(slots))};
  }

  Variable show_product(const Variable& sums, const Tensor& step_gradients, const Tensor& hidden) {
    tape_.offer_wide(hidden, [&] {
      Tensor wide = backend_.empty(hidden.shape(), DType::f32);
      multiply_back(step_gradients, wide, nullptr);
      return wide;
    });
    return tape_.record(Op::linear, hidden, {{sums, {}}, {r_.weight, {}}});
  }

  const Recurrence& r_;
  Tape& tape_;
  Backend& backend_;
  bool watched_, observed_, stochastic_;
  Tensor gates_, cells_, gradient_, weight_, packed_weight_;
  Variable g_;
  Tensor all_;
  CastProbe hidden_probe_, cell_probe_;
};

/// The h that each step began with: zeros, and those of the steps before.
Variable shifted(const Recurrence& r, const Variable& outputs) {
  const std::int64_t kept = r.rows() - r.batch();
  if (kept == 0) return scale(outputs, 0.0f);
  return place_slice(slice(outputs, 0, 0, kept), 0, r.batch(), r.rows());
}

/// What the node of h is recorded from.
struct LstmNodes {
  Variable gates, cells;
  Tensor outputs;
};

/// All steps, and the node of the gates.
LstmNodes run_forward(const Recurrence& r) {
  Tape& tape = r.tape();
  Tensor gates = r.empty(r.rows(), 4 * r.hidden()), cells = r.empty(r.rows(), r.hidden()),
         outputs = r.empty(r.rows(), r.hidden());
  run_steps(r, gates, cells, outputs);
  const Variable all_cells = tape.constant(cells), stored = tape.constant(outputs);
  const Slot slot_products = {r.products, [](const Variable& g, const Variable&) { return g; }};
  const Slot slot_weight = {r.weight,
                            [r, stored](const Variable& g, const Variable&) {
                              const Variable h = r.tape().grad_mode() ? unrolled(r, r.products) : stored;
                              return product(by_shard(g, r.steps), by_shard(shifted(r, h), r.steps),
                                             {.a = true},
                                             r.formats.with(r.formats.of_gradient(), r.formats.a));
                            },
                            SlotLabel::weight, r.formats.gradient};
  const Slot slot_bias = {
      r.bias, [steps = r.steps](const Variable& g, const Variable&) { return sum_of_rows(g, steps); },
      SlotLabel::bias};
  return {tape.record(Op::linear, gates, {slot_products, slot_weight, slot_bias}), all_cells, outputs};
}

void check_shapes(const Variable& products, const Variable& weight, const Variable& bias,
                  std::int64_t steps) {
  const Shape p = products.shape(), w = weight.shape();
  const bool fits = p.rank() == 2 && w.rank() == 2 && w[0] == 4 * w[1] && p[1] == w[0] &&
                    bias.shape() == Shape{w[0]} && steps >= 1 && p[0] % steps == 0;
  if (fits) return;
  reject(Op::lstm, "products (T B, 4 H), weight (4 H, H) and bias (4 H) do not fit: " + describe(products) +
                       ", " + describe(weight) + " and " + describe(bias) + ", " + std::to_string(steps) +
                       " steps");
}

}  // namespace

Variable lstm(const Variable& products, const Variable& weight, const Variable& bias, std::int64_t steps,
              const LstmScopes& scopes) {
  Tape& tape = tape_of(Op::lstm, products);
  check_shapes(products, weight, bias, steps);
  Recurrence r{.steps = steps};
  {
    const ScopeGuard scope(tape, scopes.cell);
    r.cell_scope = tape.scope();
  }
  const LstmNodes nodes = [&] {
    const ScopeGuard scope(tape, scopes.hidden);
    r.hidden_scope = tape.scope();
    const auto inputs = dispatched<3>(Op::lstm, {products, weight, bias});
    r.products = inputs[0], r.weight = inputs[1], r.bias = inputs[2];
    r.formats = announced(Op::lstm, r.weight, {.m = r.batch(), .n = 4 * r.hidden(), .k = r.hidden()});
    return run_forward(r);
  }();
  const Slot slot_gates = {nodes.gates,
                           [r, gates = nodes.gates, cells = nodes.cells](const Variable& g, const Variable&) {
                             return r.tape().grad_mode() ? recorded_gradient(r, g)
                                                         : BackThroughTime(r, gates, cells, g).run();
                           },
                           SlotLabel::input};
  const ScopeGuard scope(tape, scopes.gates);
  // W_hh has no gradient here; a scaler by layers learns whose product this is.
  return recorded(Op::lstm, nodes.outputs, {slot_gates, {r.weight, {}}});
}

}  // namespace fp16lab::engine::ops
