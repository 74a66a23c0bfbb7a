// Recurrent cells: the steps of an LSTM between their products.
#include "engine/backend/checks.hpp"
#include "engine/backend/emulated/backend_impl.hpp"
#include "engine/backend/emulated/element_types.hpp"
#include "engine/backend/emulated/product.hpp"
#include "engine/backend/lstm_functions.hpp"
#include "numerics/platform/vector_clones.hpp"

namespace fp16lab::engine {

namespace {

/// Units of one row that are computed at a time, in FP32.
constexpr std::int64_t strip_units = 256;
using UnitStrip = std::array<float, strip_units>;
/// Four of them, one a gate. Those of n units take n places each: of a whole row they lie as in memory.
using GateStrip = std::array<float, 4 * strip_units>;
struct Gates {
  Gates(GateStrip& strip, std::int64_t n)
      : input(strip.data()), forget(input + n), candidate(forget + n), output(candidate + n) {}
  float *input, *forget, *candidate, *output;
};

struct CellStrip {
  GateStrip gates;         ///< sums on entry, then activated
  UnitStrip cell, output;  ///< c of the step before, then c; h
};

FP16LAB_VECTOR_CLONES
void advance(CellStrip& strip, std::int64_t n) {
  const Gates gates(strip.gates, n);
  // One function a loop: they vectorise.
  FP16LAB_INDEPENDENT_ITERATIONS
  for (std::int64_t j = 0; j < 2 * n; ++j) gates.input[j] = sigmoid_f32(gates.input[j]);  // and forget
  FP16LAB_INDEPENDENT_ITERATIONS
  for (std::int64_t j = 0; j < n; ++j) gates.candidate[j] = tanh_f32(gates.candidate[j]);
  FP16LAB_INDEPENDENT_ITERATIONS
  for (std::int64_t j = 0; j < n; ++j) gates.output[j] = sigmoid_f32(gates.output[j]);
  FP16LAB_INDEPENDENT_ITERATIONS
  for (std::int64_t j = 0; j < n; ++j) {
    const functions::LstmGates at{gates.input[j], gates.forget[j], gates.candidate[j], gates.output[j]};
    strip.cell[j] = functions::lstm_next_cell(at, strip.cell[j]);
  }
  FP16LAB_INDEPENDENT_ITERATIONS
  for (std::int64_t j = 0; j < n; ++j)
    strip.output[j] = functions::lstm_output(gates.output[j], tanh_f32(strip.cell[j]));
}

struct CellGradientStrip {
  GateStrip gates;                           ///< activated on entry, then gradients of their sums
  UnitStrip before, cell;                    ///< c of the step before; c, then tanh(c)
  UnitStrip hidden_gradient, cell_gradient;  ///< dh; what later steps give of dc, then the step before's dc
};

FP16LAB_VECTOR_CLONES
void go_back(CellGradientStrip& strip, std::int64_t n) {
  const Gates gates(strip.gates, n);
  FP16LAB_INDEPENDENT_ITERATIONS
  for (std::int64_t j = 0; j < n; ++j) strip.cell[j] = tanh_f32(strip.cell[j]);
  FP16LAB_INDEPENDENT_ITERATIONS
  for (std::int64_t j = 0; j < n; ++j) {
    const functions::LstmGates at{gates.input[j], gates.forget[j], gates.candidate[j], gates.output[j]};
    const float gradient =
        functions::lstm_cell_gradient(at, strip.cell[j], strip.hidden_gradient[j]) + strip.cell_gradient[j];
    const functions::LstmGates result = functions::lstm_gate_gradients(at, strip.before[j], strip.cell[j],
                                                                       strip.hidden_gradient[j], gradient);
    gates.input[j] = result.input;
    gates.forget[j] = result.forget;
    gates.candidate[j] = result.candidate;
    gates.output[j] = result.output;
    strip.cell_gradient[j] = canonicalize(gradient * at.forget);
  }
}

FP16LAB_VECTOR_CLONES
void add(const float* x, std::int64_t n, float* to) {
  FP16LAB_INDEPENDENT_ITERATIONS
  for (std::int64_t j = 0; j < n; ++j) to[j] += x[j];
}

void read(const float* from, std::int64_t n, float* to) { std::copy_n(from, n, to); }
template <class Half>
void read(const Half* from, std::int64_t n, float* to) {
  widen_strip(from, n, to);
}
template <class Half>
void add(const Half* x, std::int64_t n, float* to) {
  GateStrip wide;
  widen_strip(x, n, wide.data());
  add(wide.data(), n, to);
}
void write(const float* from, std::int64_t n, float* to) { std::copy_n(from, n, to); }
template <class Half>
void write(const float* from, std::int64_t n, Half* to) {
  narrow_strip(from, n, to);
}

/// body(place in the strip, place in a row of gates, elements) for the runs of n units of all four gates: one
/// if they are the whole row.
template <class Body>
void for_each_run(std::int64_t hidden, std::int64_t first, std::int64_t n, const Body& body) {
  if (n == hidden) return body(0, 0, 4 * n);
  for (std::int64_t gate = 0; gate < 4; ++gate) body(gate * n, gate * hidden + first, n);
}

/// Rows of `elements` elements that are worth a thread: a gate's function costs as much as eight additions.
std::int64_t rows_of_chunk(std::int64_t elements) {
  return std::max<std::int64_t>(1, elementwise_chunk / 8 / std::max<std::int64_t>(1, elements));
}

/// body(row, first unit, units) for the strips of all rows.
template <class Body>
void for_each_strip(const Workers& workers, const checks::LstmPlan& plan, const Body& body) {
  workers.for_each_chunk(plan.batch, rows_of_chunk(5 * plan.hidden),
                         [&](std::int64_t begin, std::int64_t end) {
                           for (std::int64_t row = begin; row < end; ++row)
                             for (std::int64_t first = 0; first < plan.hidden; first += strip_units)
                               body(row, first, std::min(strip_units, plan.hidden - first));
                         });
}

template <class T>
void run_cell(const Workers& workers, const LstmCellCall& call, const checks::LstmPlan& plan) {
  const std::int64_t hidden = plan.hidden;
  const T* const products = call.products.host<T>().data() + plan.first_row * 4 * hidden;
  const T* const recurrent = call.recurrent.host<T>().data();
  T* const gates = call.gates.host<T>().data() + plan.first_row * 4 * hidden;
  T* const cells = call.cells.host<T>().data() + plan.first_row * hidden;
  T* const outputs = call.outputs.host<T>().data() + plan.first_row * hidden;
  T* const next = call.hidden.host<T>().data();
  for_each_strip(workers, plan, [=](std::int64_t row, std::int64_t first, std::int64_t n) {
    CellStrip strip;
    for_each_run(hidden, first, n, [&](std::int64_t place, std::int64_t gate, std::int64_t count) {
      float* const sums = strip.gates.data() + place;
      read(products + row * 4 * hidden + gate, count, sums);
      add(recurrent + row * 4 * hidden + gate, count, sums);
    });
    const std::int64_t at = row * hidden + first;
    if (plan.first_row > 0)
      read(cells - plan.batch * hidden + at, n, strip.cell.data());
    else
      strip.cell.fill(0.0f);
    advance(strip, n);
    for_each_run(hidden, first, n, [&](std::int64_t place, std::int64_t gate, std::int64_t count) {
      write(strip.gates.data() + place, count, gates + row * 4 * hidden + gate);
    });
    write(strip.cell.data(), n, cells + at);
    write(strip.output.data(), n, outputs + at);
    std::copy_n(outputs + at, n, next + at);
  });
}

/// T: of what the forward pass left and of the gradients that come in, G of those of the gates, C of the
/// step before's c.
template <class T, class G, class C>
void run_gradient(const Workers& workers, const LstmCellGradientCall& call, const checks::LstmPlan& plan) {
  const std::int64_t hidden = plan.hidden;
  const auto of_step = [](const Tensor* x) -> const T* {
    return x == nullptr ? nullptr : x->host<T>().data();
  };
  const T* const gates = call.gates.host<T>().data() + plan.first_row * 4 * hidden;
  const T* const cells = call.cells.host<T>().data() + plan.first_row * hidden;
  const T* const gradient = call.gradient.host<T>().data() + plan.first_row * hidden;
  const T* const hidden_gradient = of_step(call.hidden_gradient);
  const T* const cell_gradient = of_step(call.cell_gradient);
  G* const all = call.gate_gradients.host<G>().data() + plan.first_row * 4 * hidden;
  G* const step = call.step_gradients.host<G>().data();
  C* const previous =
      call.previous_cell_gradient == nullptr ? nullptr : call.previous_cell_gradient->host<C>().data();
  ProbedRounding round(call.probe), round_cell(call.cell_probe);
  for_each_strip(workers, plan, [&](std::int64_t row, std::int64_t first, std::int64_t n) {
    CellGradientStrip strip;
    for_each_run(hidden, first, n, [&](std::int64_t place, std::int64_t gate, std::int64_t count) {
      read(gates + row * 4 * hidden + gate, count, strip.gates.data() + place);
    });
    const std::int64_t at = row * hidden + first;
    read(cells + at, n, strip.cell.data());
    if (plan.first_row > 0)
      read(cells - plan.batch * hidden + at, n, strip.before.data());
    else
      strip.before.fill(0.0f);
    read(gradient + at, n, strip.hidden_gradient.data());
    if (hidden_gradient != nullptr) add(hidden_gradient + at, n, strip.hidden_gradient.data());
    if (cell_gradient != nullptr)
      read(cell_gradient + at, n, strip.cell_gradient.data());
    else
      strip.cell_gradient.fill(-0.0f);  // added, it changes nothing
    go_back(strip, n);
    for_each_run(hidden, first, n, [&](std::int64_t place, std::int64_t gate, std::int64_t count) {
      const std::int64_t to = row * 4 * hidden + gate;
      round(strip.gates.data() + place, count, step + to);
      std::copy_n(step + to, count, all + to);
    });
    if (previous != nullptr) round_cell(strip.cell_gradient.data(), n, previous + at);
  });
}

}  // namespace

void EmulatedBackend::do_lstm_cell(const LstmCellCall& call, const checks::LstmPlan& plan) {
  require_one_chain("lstm_cell", "an LSTM");
  const FloatingPointScope scope;
  with_element_type(call.cells.dtype(), [&](auto tag) { run_cell<decltype(tag)>(workers_, call, plan); });
}

void EmulatedBackend::do_lstm_cell_gradient(const LstmCellGradientCall& call, const checks::LstmPlan& plan) {
  const FloatingPointScope scope;
  const bool wide_cells =
      call.previous_cell_gradient != nullptr && call.previous_cell_gradient->dtype() == DType::f32;
  with_element_type(call.cells.dtype(), [&](auto tag) {
    using T = decltype(tag);
    const auto run = [&](auto gates) {
      if (wide_cells) return run_gradient<T, decltype(gates), float>(workers_, call, plan);
      run_gradient<T, decltype(gates), T>(workers_, call, plan);
    };
    if (call.gate_gradients.dtype() == DType::f32) return run(0.0f);
    run(tag);
  });
}

}  // namespace fp16lab::engine
