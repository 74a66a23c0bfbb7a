// Recurrent cells: a thread a unit of a row. Rows of a step begin anywhere, so elements are loaded one by
// one; neighbours are still neighbours in memory.
#include "engine/backend/cuda/runtime/element_types.hpp"
#include "engine/backend/cuda/runtime/launch.hpp"
#include "engine/backend/cuda/verbs/backend_impl.hpp"
#include "engine/backend/cuda/verbs/probe_counting.hpp"
#include "engine/backend/lstm_functions.hpp"

namespace fp16lab::engine::gpu {

namespace {

constexpr std::uint32_t cell_threads = 256;

/// The four gates of a unit, `hidden` elements apart.
template <class T>
__device__ __forceinline__ functions::LstmGates gates_at(const T* gates, std::int64_t hidden) {
  return {loaded(gates[0]), loaded(gates[hidden]), loaded(gates[2 * hidden]), loaded(gates[3 * hidden])};
}

/// All pointers at the rows of the step; `before` is null at step 0.
template <class T>
struct CellMemory {
  const T *products, *recurrent, *before;
  T *gates, *cells, *outputs, *hidden;
};

template <class T>
__global__ void advance_cells(CellMemory<T> memory, std::int64_t units, std::int64_t hidden) {
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < units; i += stride) {
    const std::int64_t at = i / hidden * 4 * hidden + i % hidden;
    const functions::LstmGates a = gates_at(memory.products + at, hidden),
                               b = gates_at(memory.recurrent + at, hidden);
    const functions::LstmGates gates = functions::lstm_activated(
        {a.input + b.input, a.forget + b.forget, a.candidate + b.candidate, a.output + b.output});
    const float before = memory.before == nullptr ? 0.0f : loaded(memory.before[i]);
    const float cell = functions::lstm_next_cell(gates, before);
    const T output = stored<T>(functions::lstm_output(gates.output, tanh_f32(cell)));
    memory.gates[at] = stored<T>(gates.input);
    memory.gates[at + hidden] = stored<T>(gates.forget);
    memory.gates[at + 2 * hidden] = stored<T>(gates.candidate);
    memory.gates[at + 3 * hidden] = stored<T>(gates.output);
    memory.cells[i] = stored<T>(cell);
    memory.outputs[i] = output;
    memory.hidden[i] = output;
  }
}

/// All pointers at the rows of the step; null where there is nothing. C: the dtype of the step before's c.
template <class T, class G, class C>
struct CellGradientMemory {
  const T *gates, *cells, *before, *gradient, *hidden_gradient;
  const T* cell_gradient;
  G *all, *step;
  C* previous;
};

template <class T, class G, class C>
__global__ void retrace_cells(CellGradientMemory<T, G, C> memory, std::int64_t units, std::int64_t hidden,
                              ProbeCounts* counts, ProbeCounts* cell_counts) {
  __shared__ BlockCounts shared, cell_shared;
  BlockProbe probe(shared, counts), cell_probe(cell_shared, cell_counts);
  const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < units; i += stride) {
    const std::int64_t at = i / hidden * 4 * hidden + i % hidden;
    const functions::LstmGates gates = gates_at(memory.gates + at, hidden);
    const float squashed = tanh_f32(loaded(memory.cells[i]));
    const float before = memory.before == nullptr ? 0.0f : loaded(memory.before[i]);
    float hidden_gradient = loaded(memory.gradient[i]);
    if (memory.hidden_gradient != nullptr)
      hidden_gradient = hidden_gradient + loaded(memory.hidden_gradient[i]);
    float cell_gradient = functions::lstm_cell_gradient(gates, squashed, hidden_gradient);
    if (memory.cell_gradient != nullptr) cell_gradient = cell_gradient + loaded(memory.cell_gradient[i]);
    const functions::LstmGates result =
        functions::lstm_gate_gradients(gates, before, squashed, hidden_gradient, cell_gradient);
    const float values[4] = {result.input, result.forget, result.candidate, result.output};
    for (int gate = 0; gate < 4; ++gate) {
      const G narrow = probe.narrowed<G>(values[gate]);
      memory.all[at + gate * hidden] = narrow;
      memory.step[at + gate * hidden] = narrow;
    }
    if (memory.previous != nullptr)
      memory.previous[i] = cell_probe.narrowed<C>(canonicalize(cell_gradient * gates.forget));
  }
  probe.flush();
  cell_probe.flush();
}

template <class T, class G, class C>
void retrace(Runtime& runtime, const LstmCellGradientCall& call, const checks::LstmPlan& plan,
             ProbeCounts* counts, ProbeCounts* cell_counts) {
  const std::int64_t at = plan.first_row * plan.hidden, units = plan.batch * plan.hidden;
  const auto of_step = [](const Tensor* x) -> const T* {
    return x == nullptr ? nullptr : elements<const T>(*x);
  };
  const T* const cells = elements<const T>(call.cells) + at;
  const CellGradientMemory<T, G, C> memory{.gates = elements<const T>(call.gates) + 4 * at,
                                           .cells = cells,
                                           .before = plan.first_row > 0 ? cells - units : nullptr,
                                           .gradient = elements<const T>(call.gradient) + at,
                                           .hidden_gradient = of_step(call.hidden_gradient),
                                           .cell_gradient = of_step(call.cell_gradient),
                                           .all = elements<G>(call.gate_gradients) + 4 * at,
                                           .step = elements<G>(call.step_gradients),
                                           .previous = call.previous_cell_gradient == nullptr
                                                           ? nullptr
                                                           : elements<C>(*call.previous_cell_gradient)};
  launch(runtime, "lstm_cell_gradient", &retrace_cells<T, G, C>,
         {.x = blocks_for(units, cell_threads), .threads = cell_threads}, memory, units, plan.hidden, counts,
         cell_counts);
}

}  // namespace

void CudaBackend::do_lstm_cell(const LstmCellCall& call, const checks::LstmPlan& plan) {
  const std::int64_t at = plan.first_row * plan.hidden, units = plan.batch * plan.hidden;
  with_element_type(call.cells.dtype(), [&](auto tag) {
    using T = decltype(tag);
    T* const cells = elements<T>(call.cells) + at;
    const CellMemory<T> memory{.products = elements<const T>(call.products) + 4 * at,
                               .recurrent = elements<const T>(call.recurrent),
                               .before = plan.first_row > 0 ? cells - units : nullptr,
                               .gates = elements<T>(call.gates) + 4 * at,
                               .cells = cells,
                               .outputs = elements<T>(call.outputs) + at,
                               .hidden = elements<T>(call.hidden)};
    launch(runtime_, "lstm_cell", &advance_cells<T>,
           {.x = blocks_for(units, cell_threads), .threads = cell_threads}, memory, units, plan.hidden);
  });
}

void CudaBackend::do_lstm_cell_gradient(const LstmCellGradientCall& call, const checks::LstmPlan& plan) {
  const std::int64_t units = plan.batch * plan.hidden;
  ProbeCounts* const counts = counts_of(call.probe, 4 * units);
  const bool cell_wanted = call.previous_cell_gradient != nullptr;
  ProbeCounts* const cell_counts = counts_of(cell_wanted ? call.cell_probe : nullptr, units);
  const bool wide_cells = cell_wanted && call.previous_cell_gradient->dtype() == DType::f32;
  with_element_type(call.cells.dtype(), [&](auto tag) {
    using T = decltype(tag);
    const auto run = [&](auto gates) {
      using G = decltype(gates);
      if (wide_cells) return retrace<T, G, float>(runtime_, call, plan, counts, cell_counts);
      retrace<T, G, T>(runtime_, call, plan, counts, cell_counts);
    };
    if (call.gate_gradients.dtype() == DType::f32) return run(0.0f);
    run(tag);
  });
}

}  // namespace fp16lab::engine::gpu
