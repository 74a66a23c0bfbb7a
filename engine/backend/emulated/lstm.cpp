// Recurrent cells: the steps of an LSTM between their products.
#include "engine/backend/checks.hpp"
#include "engine/backend/emulated/backend_impl.hpp"
#include "engine/backend/emulated/element_types.hpp"
#include "engine/backend/emulated/product.hpp"
#include "engine/backend/lstm_functions.hpp"
#include "numerics/platform/vector_clones.hpp"

namespace fp16lab::engine {

namespace {

/// Units of one row that are computed at a time, in FP32: in memory that holds FP32, else in strips.
constexpr std::int64_t strip_units = 256;
using UnitStrip = std::array<float, strip_units>;
using GateStrip = std::array<float, 4 * strip_units>;

/// Four runs of units, one a gate, `step` apart.
template <class Float>
struct Gates {
  Gates(Float* first, std::int64_t step)
      : input(first), forget(input + step), candidate(forget + step), output(candidate + step) {}
  Float *input, *forget, *candidate, *output;
};

/// Sums become gates after their functions; `before`: c of the step before.
FP16LAB_VECTOR_CLONES
void advance(const Gates<float>& gates, const float* before, std::int64_t n, float* cell, float* output) {
  using namespace elementary_detail;
  for (float* const sums : {gates.input, gates.forget, gates.output}) of_exponential<Sigmoid>(sums, n);
  of_exponential<Tanh>(gates.candidate, n);
  FP16LAB_INDEPENDENT_ITERATIONS
  for (std::int64_t j = 0; j < n; ++j) {
    const functions::LstmGates at{gates.input[j], gates.forget[j], gates.candidate[j], gates.output[j]};
    output[j] = cell[j] = functions::lstm_next_cell(at, before[j]);
  }
  of_exponential<Tanh>(output, n);
  FP16LAB_INDEPENDENT_ITERATIONS
  for (std::int64_t j = 0; j < n; ++j) output[j] = functions::lstm_output(gates.output[j], output[j]);
}

struct CellGradients {
  Gates<const float> gates;
  const float *before, *cell;                    ///< c of the step before, and of this one
  const float *hidden_gradient, *cell_gradient;  ///< dh; what later steps give of dc
  Gates<float> sums;                             ///< gradients of the gates' sums
  float* previous;                               ///< the step before's dc
};

FP16LAB_VECTOR_CLONES
void go_back(const CellGradients& call, std::int64_t n) {
  UnitStrip squashed;
  std::copy_n(call.cell, n, squashed.data());
  elementary_detail::of_exponential<elementary_detail::Tanh>(squashed.data(), n);
  FP16LAB_INDEPENDENT_ITERATIONS
  for (std::int64_t j = 0; j < n; ++j) {
    const functions::LstmGates at{call.gates.input[j], call.gates.forget[j], call.gates.candidate[j],
                                  call.gates.output[j]};
    const float gradient =
        functions::lstm_cell_gradient(at, squashed[j], call.hidden_gradient[j]) + call.cell_gradient[j];
    const functions::LstmGates result =
        functions::lstm_gate_gradients(at, call.before[j], squashed[j], call.hidden_gradient[j], gradient);
    call.sums.input[j] = result.input;
    call.sums.forget[j] = result.forget;
    call.sums.candidate[j] = result.candidate;
    call.sums.output[j] = result.output;
    call.previous[j] = canonicalize(gradient * at.forget);
  }
}

FP16LAB_VECTOR_CLONES
void add(const float* x, const float* y, std::int64_t n, float* to) {
  FP16LAB_INDEPENDENT_ITERATIONS
  for (std::int64_t j = 0; j < n; ++j) to[j] = x[j] + y[j];
}
template <class Half>
void add(const Half* x, const Half* y, std::int64_t n, float* to) {
  GateStrip wide;
  widen_strip(x, n, to);
  widen_strip(y, n, wide.data());
  add(to, wide.data(), n, to);
}

/// The place of FP32 numbers of `memory`: there, or in `strip`, from and to which read and write bring them.
float* place(float* memory, float* /*strip*/) { return memory; }
const float* place(const float* memory, float* /*strip*/) { return memory; }
template <class Half>
float* place(Half* /*memory*/, float* strip) {
  return strip;
}
const float* read(const float* from, std::int64_t /*n*/, float* /*strip*/) { return from; }
template <class Half>
const float* read(const Half* from, std::int64_t n, float* strip) {
  widen_strip(from, n, strip);
  return strip;
}
void write(const float* /*from*/, std::int64_t /*n*/, float* /*to*/) {}
template <class Half>
void write(const float* from, std::int64_t n, Half* to) {
  narrow_strip(from, n, to);
}

/// From one gate of n units to the next one, in memory of T or in its strip.
template <class T>
std::int64_t apart(std::int64_t hidden, std::int64_t n) {
  return std::is_same_v<T, float> ? hidden : n;
}
/// body(first element of the strip, of the row, elements) for the runs of n units of all four gates: one if
/// they are the whole row.
template <class Body>
void for_each_run(std::int64_t hidden, std::int64_t n, std::int64_t step, const Body& body) {
  if (n == hidden) return body(0, 0, 4 * n);
  for (std::int64_t gate = 0; gate < 4; ++gate) body(gate * step, gate * hidden, n);
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
    GateStrip gate_strip;
    UnitStrip before_strip, cell_strip, output_strip;
    const std::int64_t at = row * hidden + first, gates_at = row * 4 * hidden + first;
    const std::int64_t step = apart<T>(hidden, n);
    float* const sums = place(gates + gates_at, gate_strip.data());
    for_each_run(hidden, n, step, [&](std::int64_t strip_at, std::int64_t run, std::int64_t count) {
      add(products + gates_at + run, recurrent + gates_at + run, count, sums + strip_at);
    });
    const float* before = before_strip.data();
    if (plan.first_row > 0)
      before = read(cells - plan.batch * hidden + at, n, before_strip.data());
    else
      before_strip.fill(0.0f);
    float* const cell = place(cells + at, cell_strip.data());
    float* const output = place(outputs + at, output_strip.data());
    advance(Gates(sums, step), before, n, cell, output);
    for_each_run(hidden, n, step, [&](std::int64_t strip_at, std::int64_t run, std::int64_t count) {
      write(sums + strip_at, count, gates + gates_at + run);
    });
    write(cell, n, cells + at);
    write(output, n, outputs + at);
    std::copy_n(outputs + at, n, next + at);
  });
}

/// T: the dtype of the forward pass's results and of the incoming gradients, G that of the gates' gradients,
/// C that of the step before's c.
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
    GateStrip gate_strip;
    UnitStrip before_strip, cell_strip, hidden_strip, cell_gradient_strip;
    const std::int64_t at = row * hidden + first, gates_at = row * 4 * hidden + first;
    const std::int64_t gates_apart = apart<T>(hidden, n), sums_apart = apart<G>(hidden, n);
    const float* const activated = place(gates + gates_at, gate_strip.data());
    if constexpr (!std::is_same_v<T, float>)
      for_each_run(hidden, n, n, [&](std::int64_t strip_at, std::int64_t run, std::int64_t count) {
        read(gates + gates_at + run, count, gate_strip.data() + strip_at);
      });
    const float *before = before_strip.data(), *dh = hidden_strip.data(), *dc = cell_gradient_strip.data();
    if (plan.first_row > 0)
      before = read(cells - plan.batch * hidden + at, n, before_strip.data());
    else
      before_strip.fill(0.0f);
    if (hidden_gradient != nullptr)
      add(gradient + at, hidden_gradient + at, n, hidden_strip.data());
    else
      dh = read(gradient + at, n, hidden_strip.data());
    if (cell_gradient != nullptr)
      dc = read(cell_gradient + at, n, cell_gradient_strip.data());
    else
      cell_gradient_strip.fill(-0.0f);  // added, it changes nothing
    float* const sums = place(step + gates_at, gate_strip.data());
    float* dc_before = cell_gradient_strip.data();
    if (previous != nullptr) dc_before = place(previous + at, dc_before);
    go_back({Gates(activated, gates_apart), before, read(cells + at, n, cell_strip.data()), dh, dc,
             Gates(sums, sums_apart), dc_before},
            n);
    for_each_run(hidden, n, sums_apart, [&](std::int64_t strip_at, std::int64_t run, std::int64_t count) {
      round(sums + strip_at, count, step + gates_at + run);
      std::copy_n(step + gates_at + run, count, all + gates_at + run);
    });
    if (previous != nullptr) round_cell(dc_before, n, previous + at);
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
