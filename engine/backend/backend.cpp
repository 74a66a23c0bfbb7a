// The verbs: their arguments are checked here, once, in front of every back end.
#include "engine/backend/backend.hpp"

#include <chrono>
#include <stdexcept>
#include <string>

#include "engine/backend/checks.hpp"
#include "engine/backend/recording.hpp"

namespace fp16lab::engine {

std::string_view Conv2dCall::verb() const {
  static constexpr std::string_view names[] = {"conv2d", "conv2d_input_gradient", "conv2d_weight_gradient"};
  return names[static_cast<std::size_t>(product)];
}

// ---- memory ----

void Backend::upload(std::span<const std::byte> host, Tensor& out) {
  checks::transfer("upload", host.size(), out);
  do_upload("upload", host, out);
}

void Backend::download(const Tensor& x, std::span<std::byte> host) {
  checks::transfer("download", host.size(), x);
  do_download("download", x, host);
}

void Backend::copy(const Tensor& x, Tensor& out) {
  checks::copy(x, out);
  do_copy(x, out);
}

void Backend::fill(Tensor& out, double value) { do_fill(out, value, checks::fill(out, value)); }

void Backend::fill_uniform(Tensor& out, const PhiloxStream& stream, float low, float high) {
  checks::fill_uniform(out, low, high);
  do_draw(
      {.distribution = Distribution::uniform, .first = low, .second = high, .stream = stream, .out = out});
}

void Backend::fill_normal(Tensor& out, const PhiloxStream& stream, float mean, float deviation) {
  checks::fill_normal(out, mean, deviation);
  do_draw({.distribution = Distribution::normal,
           .first = mean,
           .second = deviation,
           .stream = stream,
           .out = out});
}

void Backend::fill_bernoulli(Tensor& out, const PhiloxStream& stream, float keep, const Tensor& step) {
  checks::fill_bernoulli(out, keep, step);
  do_draw(
      {.distribution = Distribution::bernoulli, .first = keep, .stream = stream, .step = &step, .out = out});
}

void Backend::permute(const Tensor& x, std::span<const int> axes, Tensor& out) {
  do_permute(x, axes, out, checks::permute(x, axes, out));
}

void Backend::slice(const Tensor& x, int axis, std::int64_t begin, Tensor& out) {
  do_slice(x, axis, begin, out, checks::slice(x, axis, begin, out));
}

void Backend::insert(const Tensor& x, int axis, std::int64_t begin, Tensor& out) {
  do_insert(x, axis, begin, out, checks::insert(x, axis, begin, out));
}

// ---- elementwise ----

void Backend::cast(const Tensor& x, Tensor& out, CastProbe* probe) {
  checks::cast(x, out);
  do_cast({.x = x, .out = out, .probe = probe});
  rounded(out);
}

void Backend::cast_stochastic(const Tensor& x, Tensor& out, const PhiloxStream& stream, const Tensor& step,
                              CastProbe* probe) {
  checks::cast_stochastic(x, out, step);
  do_cast({.x = x, .out = out, .probe = probe, .stream = &stream, .step = &step});
  rounded(out);
}

void Backend::unary(UnaryOp op, const Tensor& x, Tensor& out) {
  checks::unary(kernel_name(op), x, out);
  do_unary(op, x, out);
  rounded(out);
}

void Backend::binary(BinaryOp op, const Tensor& a, const Tensor& b, Tensor& out) {
  const BroadcastPlan plan = checks::binary(kernel_name(op), a, b, out);
  do_binary({.op = op, .a = a, .b = &b, .out = out}, plan);
  rounded(out);
}

void Backend::binary(BinaryOp op, const Tensor& a, float b, Tensor& out) {
  checks::unary(kernel_name(op), a, out);
  do_binary({.op = op, .a = a, .scalar = b, .out = out}, {});
  rounded(out);
}

// ---- reductions and indexing ----

void Backend::reduce(ReduceOp op, const Tensor& x, int axis, Tensor& out, CastProbe* probe) {
  do_reduce(op, x, axis, out, probe, checks::reduce(op, x, axis, out));
  rounded(out);
}

void Backend::pick(const Tensor& x, const Tensor& index, Tensor& out) {
  do_pick(x, index, out, checks::pick(x, index, out));
}

void Backend::place(const Tensor& x, const Tensor& index, Tensor& out) {
  do_place(x, index, out, checks::place(x, index, out));
}

void Backend::gather_rows(const Tensor& table, const Tensor& index, Tensor& out) {
  do_gather_rows(table, index, out, checks::gather_rows(table, index, out));
}

void Backend::scatter_rows(const Tensor& x, const Tensor& index, Tensor& out, CastProbe* probe) {
  do_scatter_rows(x, index, out, probe, checks::scatter_rows(x, index, out));
  rounded(out);
}

// ---- products ----

void Backend::gemm(const GemmCall& call) {
  do_gemm(call, checks::gemm(call));
  rounded(call.out);
}

Tensor Backend::pack_b(const GemmCall& call) { return do_pack_b(call, checks::gemm(call)); }

void Backend::lstm_cell(const LstmCellCall& call) {
  do_lstm_cell(call, checks::lstm_cell(call));
  for (Tensor* const out : {&call.gates, &call.cells, &call.outputs, &call.hidden}) rounded(*out);
}

void Backend::lstm_cell_gradient(const LstmCellGradientCall& call) {
  do_lstm_cell_gradient(call, checks::lstm_cell_gradient(call));
  rounded(call.gate_gradients);
  rounded(call.step_gradients);
  if (call.previous_cell_gradient != nullptr) rounded(*call.previous_cell_gradient);
}

void Backend::conv2d(const Conv2dCall& call, const functions::Conv2dPlan& plan) {
  do_conv2d(call, plan);
  rounded(call.out);
}

void Backend::conv2d(const Tensor& x, const Tensor& weight, const Conv2dGeometry& geometry,
                     const Tensor* bias, Tensor& out, CastProbe* probe) {
  conv2d({Conv2dProduct::output, x, weight, geometry, bias, out, probe},
         checks::conv2d(x, weight, geometry, bias, out));
}

void Backend::conv2d_input_gradient(const Tensor& gradient, const Tensor& weight,
                                    const Conv2dGeometry& geometry, const Tensor* bias, Tensor& out,
                                    CastProbe* probe) {
  conv2d({Conv2dProduct::input_gradient, gradient, weight, geometry, bias, out, probe},
         checks::conv2d_input_gradient(gradient, weight, geometry, bias, out));
}

void Backend::conv2d_weight_gradient(const Tensor& x, const Tensor& gradient, const Conv2dGeometry& geometry,
                                     Tensor& out, CastProbe* probe) {
  conv2d({Conv2dProduct::weight_gradient, x, gradient, geometry, nullptr, out, probe},
         checks::conv2d_weight_gradient(x, gradient, geometry, out));
}

// ---- pooling ----

void Backend::max_pool2d(const Tensor& x, const Pool2dGeometry& geometry, Tensor& out, Tensor& index) {
  do_max_pool2d(x, geometry, out, index, checks::max_pool2d(x, geometry, out, index));
}

void Backend::pool_pick(const Tensor& x, const Tensor& index, Layout layout, Tensor& out) {
  do_pool_pick(x, index, layout, out, checks::pool_pick(x, index, layout, out));
}

void Backend::pool_place(const Tensor& x, const Tensor& index, Layout layout, Tensor& out) {
  do_pool_place(x, index, layout, out, checks::pool_place(x, index, layout, out));
  rounded(out);
}

void Backend::average_pool2d(const Tensor& x, const Pool2dGeometry& geometry, Tensor& out) {
  do_average_pool2d(x, geometry, out, checks::average_pool2d("average_pool2d", x, geometry, out, false));
  rounded(out);
}

void Backend::average_pool2d_transposed(const Tensor& x, const Pool2dGeometry& geometry, Tensor& out) {
  do_average_pool2d_transposed(x, geometry, out,
                               checks::average_pool2d("average_pool2d_transposed", out, geometry, x, true));
  rounded(out);
}

// ---- the step ----

Tensor Backend::make_step_state(const StepState& initial) {
  Tensor step = empty({static_cast<std::int64_t>(sizeof(StepState))}, DType::u8);
  write_step_state(initial, step);
  return step;
}

StepState Backend::read_step_state(const Tensor& step) {
  checks::step_state("read_step_state", step);
  StepState state;
  do_download("read_step_state", step, std::as_writable_bytes(std::span(&state, 1)));
  return state;
}

void Backend::write_step_state(const StepState& state, Tensor& step) {
  checks::step_state("write_step_state", step);
  do_upload("write_step_state", std::as_bytes(std::span(&state, 1)), step);
}

void Backend::run(const ScalarProgram& program, Tensor& step) {
  checks::step_state("run", step);
  checks::scalar_program(program);
  do_run(program, step);
}

void Backend::fill_scale(const Tensor& step, Tensor& out) {
  checks::step_state("fill_scale", step);
  checks::fill_scale(out);
  do_fill_scale(step, out);
}

void Backend::unscale(std::span<Tensor> gradients, int optimizer, Tensor& step) {
  checks::step_state("unscale", step);
  checks::gradients("unscale", gradients);
  checks::optimizer_index("unscale", optimizer);
  do_gradient_pass(
      {.pass = GradientPass::unscale, .gradients = gradients, .step = &step, .optimizer = optimizer});
}

void Backend::global_norm(std::span<const Tensor> gradients, Tensor& step) {
  checks::step_state("global_norm", step);
  checks::gradients("global_norm", gradients);
  do_global_norm(gradients, step);
}

void Backend::clip_by_norm(std::span<Tensor> gradients, double max_norm, Tensor& step) {
  checks::step_state("clip_by_norm", step);
  checks::gradients("clip_by_norm", gradients);
  checks::max_norm(max_norm);
  do_gradient_pass(
      {.pass = GradientPass::clip_by_norm, .gradients = gradients, .step = &step, .limit = max_norm});
}

void Backend::clip_by_value(std::span<Tensor> gradients, float max_value) {
  checks::gradients("clip_by_value", gradients);
  checks::max_value(max_value);
  do_gradient_pass(
      {.pass = GradientPass::clip_by_value, .gradients = gradients, .limit = static_cast<double>(max_value)});
}

void Backend::update(const UpdateCall& call) {
  checks::update(call);
  do_update(call);
  rounded(call.weight);
}

// ---- counting and digests ----

void Backend::histogram(const Tensor& x, ExponentHistogram& out) {
  checks::histogram(x);
  do_histogram(x, out);
}

void Backend::histogram(const Tensor& x, CastProbe& probe) {
  checks::histogram(x);
  do_count(x, {}, probe);
}

void Backend::histogram(const Tensor& x, DType format, CastProbe& probe) {
  checks::histogram(x);
  do_count(x, format, probe);
}

void Backend::count_update(const Tensor& before, const Tensor& weight, const Tensor& gradient,
                           UpdateProbes& probes) {
  checks::count_update(before, weight, gradient);
  do_count_update(before, weight, gradient, probes);
}

void Backend::do_count_update(const Tensor& before, const Tensor& weight, const Tensor& gradient,
                              UpdateProbes& probes) {
  Tensor change = empty(before.shape(), DType::f32), other = empty(before.shape(), DType::f32);
  binary(BinaryOp::subtract, widened(*this, weight), before, change);
  histogram(change, probes.change);
  binary(BinaryOp::divide, change, before, other);
  histogram(other, probes.relative);
  unary(UnaryOp::absolute, change, change);
  unary(UnaryOp::absolute, widened(*this, gradient), other);
  binary(BinaryOp::maximum, change, other, change);
  histogram(change, probes.quiet);
}

void Backend::settle(std::span<CastProbe* const> probes) { do_settle(probes); }

std::uint64_t Backend::digest(const Tensor& x, std::uint64_t key) {
  const DigestItem item{x, key};
  return digest(std::span(&item, 1));
}

std::uint64_t Backend::digest(std::span<const DigestItem> items) {
  for (const DigestItem& item : items) checks::digest(item.tensor);
  return do_digest(items);
}

// ---- a step as one piece, the clock ----

std::unique_ptr<Recording> Backend::record(const std::function<void()>& /*work*/) {
  throw std::logic_error("record: the " + std::string(name()) + " back end does not record verbs");
}

void refuse_in_recording(std::string_view verb) {
  throw std::logic_error(std::string(verb) +
                         ": the host would have to wait for numbers, or give some, which a recorded step "
                         "cannot; call it outside of Backend::record");
}

double Backend::milliseconds(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

Tensor widened(Backend& backend, const Tensor& x) {
  if (x.dtype() == DType::f32) return x;
  Tensor wide = backend.empty(x.shape(), DType::f32);
  backend.cast(x, wide);
  return wide;
}

}  // namespace fp16lab::engine
