// Cases of the recurrent cells.
#include <fmt/format.h>

#include "tests/engine/backend/cases/verb_cases.hpp"

namespace fp16lab::engine::cases {
namespace {

using engine::CastProbe;
using engine::Shape;
using engine::Tensor;

struct LstmExtents {
  std::int64_t steps, batch, hidden;
  Shape all(std::int64_t gates) const { return {steps * batch, gates * hidden}; }
  Shape step(std::int64_t gates) const { return {batch, gates * hidden}; }
};

/// One unit; strips that end in the middle of a vector; rows longer than a strip; many blocks.
std::vector<LstmExtents> lstm_extents(CaseContext& c) {
  std::vector<LstmExtents> all{{3, c.extent(64, 4), c.extent(256, 33)}};
  if (c.odd())
    for (const LstmExtents& more :
         {LstmExtents{1, 1, 1}, {2, 3, 5}, {3, 1, 31}, {2, 2, 257}, {2, 2, 1025}, {2, 70, 5}})
      all.push_back(more);
  return all;
}

std::string name_of(DType dtype, Data data, const LstmExtents& e, std::int64_t step) {
  return fmt::format("{} {} {} steps of {}x{}, step {}", fp16lab::name_of(dtype), cases::name_of(data),
                     e.steps, e.batch, e.hidden, step);
}

void run_cell(CaseContext& c, DType dtype, Data data, const LstmExtents& e) {
  const Tensor products = c.random(e.all(4), dtype, data);
  Tensor gates = c.output(e.all(4), dtype), cells = c.output(e.all(1), dtype),
         outputs = c.output(e.all(1), dtype), hidden = c.output(e.step(1), dtype);
  for (std::int64_t step = 0; step < e.steps; ++step) {
    const Tensor recurrent = c.random(e.step(4), dtype, data);
    c.backend().lstm_cell({.step = step,
                           .products = products,
                           .recurrent = recurrent,
                           .gates = gates,
                           .cells = cells,
                           .outputs = outputs,
                           .hidden = hidden});
    c.keep(name_of(dtype, data, e, step) + " hidden", hidden);
  }
  c.keep("gates", gates);
  c.keep("cells", cells);
  c.keep("outputs", outputs);
}

/// Gates and states are independent: they need not be those of a cell.
void run_gradient(CaseContext& c, DType dtype, DType to, Data data, const LstmExtents& e) {
  const Tensor gates = c.random(e.all(4), dtype, data), cells = c.random(e.all(1), dtype, data),
               gradient = c.random(e.all(1), dtype, data);
  Tensor all = c.output(e.all(4), to);
  for (std::int64_t step = e.steps; step-- > 0;) {
    const bool last = step + 1 == e.steps;
    const Tensor of_hidden = c.random(e.step(1), dtype, data);
    Tensor of_cell = c.random(e.step(1), dtype, data), previous = c.output(e.step(1), to);
    Tensor step_gradients = c.output(e.step(4), to);
    CastProbe probe, cell_probe;
    const auto run = [&](Tensor* into) {
      c.backend().lstm_cell_gradient({.step = step,
                                      .gates = gates,
                                      .cells = cells,
                                      .gradient = gradient,
                                      .hidden_gradient = last ? nullptr : &of_hidden,
                                      .cell_gradient = last ? nullptr : &of_cell,
                                      .gate_gradients = all,
                                      .step_gradients = step_gradients,
                                      .previous_cell_gradient = into,
                                      .probe = &probe,
                                      .cell_probe = &cell_probe});
    };
    run(step == 0 ? nullptr : &previous);
    const std::string name = name_of(dtype, data, e, step);
    c.keep(name + " gradients", step_gradients);
    c.keep(name + " counts", probe);
    if (step > 0) {
      c.keep(name + " cell", previous);
      c.keep(name + " cell counts", cell_probe);
      if (to == dtype) {
        run(&of_cell);
        c.keep(name + " in place", of_cell);
      }
    }
  }
  c.keep("all gradients", all);
}

}  // namespace

void add_lstm_cases(std::vector<VerbCase>& cases) {
  for (const DType dtype : floats)
    for (const Data data : {Data::training, Data::ordinary, Data::wide, Data::special}) {
      const std::string name = fmt::format("{} {}", fp16lab::name_of(dtype), cases::name_of(data));
      cases.push_back({"lstm_cell", name, [=](CaseContext& c) {
                         for (const LstmExtents& e : lstm_extents(c)) run_cell(c, dtype, data, e);
                       }});
      cases.push_back({"lstm_cell_gradient", name, [=](CaseContext& c) {
                         for (const LstmExtents& e : lstm_extents(c)) {
                           run_gradient(c, dtype, dtype, data, e);
                           if (dtype != DType::f32) run_gradient(c, dtype, DType::f32, data, e);
                         }
                       }});
    }
}

}  // namespace fp16lab::engine::cases
