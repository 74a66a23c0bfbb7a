#include "engine/optim/optimizer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "engine/backend/checks.hpp"
#include "engine/optim/optimizer_programs.hpp"

namespace fp16lab::engine::optim {

namespace {

void require(bool condition, std::string_view option, double value, std::string_view range) {
  if (condition) return;
  throw std::invalid_argument("optimizer." + std::string(option) + " = " + std::to_string(value) +
                              ": must be " + std::string(range));
}

void check(const OptimizerOptions& options) {
  const auto non_negative = [](double value) { return std::isfinite(value) && value >= 0.0; };
  require(non_negative(options.learning_rate), "learning_rate", options.learning_rate, "finite and >= 0");
  require(non_negative(options.weight_decay), "weight_decay", options.weight_decay, "finite and >= 0");
  require(non_negative(options.momentum), "momentum", options.momentum, "finite and >= 0");
  require(non_negative(options.dampening), "dampening", options.dampening, "finite and >= 0");
  require(non_negative(epsilon_of(options)), "epsilon", epsilon_of(options), "finite and >= 0");
  require(options.beta1 >= 0.0 && options.beta1 < 1.0, "beta1", options.beta1, "in [0, 1)");
  require(options.beta2 >= 0.0 && options.beta2 < 1.0, "beta2", options.beta2, "in [0, 1)");
  require(options.alpha >= 0.0 && options.alpha < 1.0, "alpha", options.alpha, "in [0, 1)");
  // Both the quotient and its FP32 form: the verbs multiply by float(1 / loss_scale).
  const float factor = gradient_factor(options);
  require(
      options.loss_scale > 0.0 && std::isfinite(options.loss_scale) && factor > 0.0f && std::isfinite(factor),
      "loss_scale", options.loss_scale, "finite and above 0, and so 1 / loss_scale in FP32");
  if (options.kahan && options.stochastic_rounding)
    throw std::invalid_argument(
        "optimizer.kahan = true with stochastic rounding: both make up for what rounding to nearest loses; "
        "expected one of the two");
  if (options.nesterov) {
    require(options.momentum > 0.0, "momentum", options.momentum, "above 0 with nesterov");
    require(options.dampening == 0.0, "dampening", options.dampening, "0 with nesterov");
  }
}

}  // namespace

namespace {

UpdateCall call_of(UpdateRule rule, const WeightStep& weight) {
  return {.rule = rule,
          .options = weight.options,
          .weight = weight.parameter.value,
          .gradient = weight.parameter.gradient,
          .states = weight.states,
          .optimizer = weight.optimizer,
          .step = weight.step,
          .store = weight.store};
}

/// Rules that are one pass over the elements.
void update_once(const OptimizerRow& row, const WeightStep& weight) {
  weight.backend.update(call_of(row.rule, weight));
}

/// The result of global_norm for one tensor, in a StepState of its own.
Tensor norm_of(Backend& backend, const Tensor& x) {
  Tensor norm = backend.empty({static_cast<std::int64_t>(sizeof(StepState))}, DType::u8);
  backend.global_norm(std::span(&x, 1), norm);
  return norm;
}

/// LAMB (You et al., "Large Batch Optimization for Deep Learning: Training BERT in 76 minutes", ICLR 2020):
/// algorithm 2 with the identity for its phi. So does NVIDIA apex's FusedLAMB with use_nvlamb = true (without
/// it, apex leaves parameters without decay alone) and max_grad_norm = 0: the norm of all gradients is
/// train.clip_norm's.
///
/// MindSpore's Lamb (mindspore/nn/optim/lamb.py where it is composed of ops; later lamb_impl.cu has the same
/// two directions) steps along this direction too, and differs in the quotient: its lower norm is that of
/// m' / sqrt(v' + epsilon) + wd * w, with epsilon under the root; it is cut to [0, 10], and is 1 where the
/// gradient is 0. Ours does none of this.
void follow_direction(const OptimizerRow& row, const WeightStep& weight) {
  Tensor direction = weight.backend.empty(weight.parameter.value.shape(), DType::f32);
  UpdateCall call = call_of(row.rule, weight);
  call.store = {};  // the weight stays
  call.states[static_cast<std::size_t>(row.kept_states)] = &direction;
  weight.backend.update(call);
  // Norms of what a skipped step left unwritten are not used.
  const Tensor of_weight = norm_of(weight.backend, weight.parameter.value),
               of_direction = norm_of(weight.backend, direction);
  weight.backend.update({.rule = UpdateRule::follow,
                         .options = {},
                         .weight = weight.parameter.value,
                         .gradient = direction,
                         .optimizer = weight.optimizer,
                         .step = weight.step,
                         .store = weight.store,
                         .norms = {&of_weight, &of_direction}});
}

/// Muon (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon/) as torch.optim.Muon computes it: the
/// momentum's direction is made orthogonal by five steps of Newton and Schulz on BF16 matrices, whose
/// products the tensor cores sum in FP32:
///   X = u / max(|u|, 1e-7);  five times:  G = X X^T,  H = b G + c G G,  X = a X + H X
/// each rounded once to BF16; a tall X has X^T X in the place of X X^T. Then
///   w = w * (1 - lr * wd) - (lr * sqrt(max(1, rows / columns))) * X
/// The norm is that of the FP32 direction (torch rounds direction and norm to BF16 first). Rows of tensor
/// cores without BF16 refuse it.
void orthogonalise(const OptimizerRow& row, const WeightStep& weight) {
  constexpr float a = 3.4445f, b = -4.7750f, c = 2.0315f;
  constexpr int rounds = 5;
  Backend& backend = weight.backend;
  const Shape shape = weight.parameter.value.shape();
  const std::int64_t rows = shape[0], columns = shape[1], small = std::min(rows, columns);
  const bool tall = rows > columns;
  Tensor direction = backend.empty(shape, DType::f32), product = backend.empty(shape, DType::f32),
         x = backend.empty(shape, DType::bf16), gram = backend.empty({small, small}, DType::bf16),
         square = backend.empty({small, small}, DType::f32);
  UpdateCall momentum = call_of(row.rule, weight);
  momentum.store = {};  // the weight stays
  momentum.states[1] = &direction;
  backend.update(momentum);
  const Tensor norm = norm_of(backend, direction);
  const auto update = [&](UpdateRule rule, const UpdateOptions& options, Tensor& of, const Tensor& by) {
    backend.update({.rule = rule,
                    .options = options,
                    .weight = of,
                    .gradient = by,
                    .optimizer = weight.optimizer,
                    .step = weight.step,
                    .norms = {&norm, &norm}});
  };
  update(UpdateRule::normalise, {.epsilon = 1e-7f}, x, direction);
  for (int round = 0; round < rounds; ++round) {
    backend.gemm({.a = x, .b = x, .out = gram, .transpose_a = tall, .transpose_b = !tall});
    backend.gemm({.a = gram, .b = gram, .out = square});
    update(UpdateRule::combine, {.beta1 = b, .beta2 = c}, gram, square);
    backend.gemm({.a = tall ? x : gram, .b = tall ? gram : x, .out = product});
    update(UpdateRule::combine, {.beta1 = a, .beta2 = 1.0f}, x, product);
  }
  const double ratio = static_cast<double>(rows) / static_cast<double>(columns);
  backend.update({.rule = UpdateRule::muon,
                  .options = {.alpha = static_cast<float>(std::sqrt(std::max(1.0, ratio))),
                              .weight_decay = weight.options.weight_decay},
                  .weight = weight.parameter.value,
                  .gradient = x,
                  .optimizer = weight.optimizer,
                  .step = weight.step,
                  .store = weight.store});
}

#define FP16LAB_OPTIMIZER_ROW(name, rule, others, states, adaptive, epsilon, decay, reads, move) \
  OptimizerRow{UpdateRule::rule, Algorithm::others, states, adaptive, epsilon, decay, reads, &(move)},
constexpr std::array rows{FP16LAB_OPTIMIZERS(FP16LAB_OPTIMIZER_ROW)};
#undef FP16LAB_OPTIMIZER_ROW

}  // namespace

const OptimizerRow& row_of(Algorithm algorithm) { return rows[static_cast<std::size_t>(algorithm)]; }

float gradient_factor(const OptimizerOptions& options) {
  return static_cast<float>(1.0 / options.loss_scale);
}

Optimizer::Optimizer(Backend& backend, std::vector<Parameter*> parameters, const OptimizerOptions& options,
                     std::uint64_t steps, int index)
    : backend_(&backend),
      parameters_(std::move(parameters)),
      options_(options),
      row_(&optim::row_of(options.name)),
      update_{.beta1 = static_cast<float>(options.beta1),
              .beta2 = static_cast<float>(options.beta2),
              .alpha = static_cast<float>(options.alpha),
              .epsilon = static_cast<float>(epsilon_of(options)),
              .momentum = static_cast<float>(options.momentum),
              .dampening = static_cast<float>(options.dampening),
              .centered = options.centered,
              .weight_decay = static_cast<float>(options.weight_decay),
              .nesterov = options.nesterov,
              .gradient_factor = gradient_factor(options)},
      index_(index) {
  check(options);
  require(index >= 0 && index < max_optimizers, "index", index, "in [0, 8)");
  if (row_->move == &orthogonalise)
    checks::product_row("optimizer.name = \"muon\"", tensor_core_model(backend.tensor_core()), DType::bf16);
  const std::vector<float> table = learning_rate_table(options.schedule, options.learning_rate, steps);
  learning_rates_ = backend.empty({static_cast<std::int64_t>(table.size())}, DType::f32);
  backend.upload(std::as_bytes(std::span(table)), learning_rates_);
  for (const Parameter* parameter : parameters_) {
    const OptimizerRow& row = row_of(parameter->value.shape());
    const UpdateRuleInfo& rule = info_of(row.rule);
    std::array<std::ptrdiff_t, most_update_states>& places = places_.emplace_back();
    places.fill(-1);
    for (int i = 0; i < row.kept_states; ++i)
      if (rule.uses(update_, i)) {
        const auto at = static_cast<std::size_t>(i);
        places[at] = static_cast<std::ptrdiff_t>(add_state(*parameter, rule.states[at]));
      }
  }
  prepare_stores();
}

std::size_t Optimizer::add_state(const Parameter& parameter, std::string_view suffix, DType dtype) {
  Tensor zeros = backend_->empty(parameter.value.shape(), dtype);
  backend_->fill(zeros, 0.0);
  state_.push_back({parameter.name + "." + std::string(suffix), std::move(zeros)});
  return state_.size() - 1;
}

void Optimizer::prepare_stores() {
  if (!options_.kahan && !options_.stochastic_rounding) return;
  const auto is_low = [](const Parameter* parameter) { return parameter->value.dtype() != DType::f32; };
  if (!parameters_.empty() && std::ranges::none_of(parameters_, is_low))
    throw std::invalid_argument(
        fmt::format("{}: every weight is FP32; it is for 16-bit weights without a master copy",
                    options_.kahan ? "optimizer.kahan = true" : "amp.rounding = \"stochastic\""));
  stores_.resize(parameters_.size());
  compensations_.resize(parameters_.size());
  for (std::size_t which = 0; which < parameters_.size(); ++which) {
    const Parameter& parameter = *parameters_[which];
    if (!is_low(&parameter)) continue;
    if (options_.kahan) {
      compensations_[which] = state_[add_state(parameter, "compensation", parameter.value.dtype())].tensor;
      stores_[which].compensation = &compensations_[which];
    } else {
      stores_[which] = {.stochastic = true,
                        .random = {.seed = options_.seed, .stream = stream_id(parameter.name + "/rounding")}};
    }
  }
}

void Optimizer::begin_iteration(Tensor& step) {
  const BeginIteration begin{static_cast<std::uint64_t>(index_),
                             reinterpret_cast<const float*>(learning_rates_.data()),
                             static_cast<std::uint64_t>(learning_rates_.element_count())};
  backend_->run(scalar_program("optimizer.begin_iteration", &begin_iteration_program, begin), step);
}

void Optimizer::clear_gradients(ClearTo to) {
  gradients_.clear();  // shares of their memory
  for (Parameter* const parameter : parameters_) {
    parameter->clear_gradient();
    if (to == ClearTo::none) continue;
    // In the dtype in which gradients add up: unscaling may have left an FP32 one.
    parameter->gradient = backend_->empty(parameter->value.shape(), parameter->dtypes.gradient);
    backend_->fill(parameter->gradient, 0.0);
    parameter->has_gradient = true;
  }
}

std::span<Tensor> Optimizer::gradients() {
  gradients_.clear();
  for (const Parameter* parameter : parameters_) {
    if (parameter->has_gradient) gradients_.push_back(parameter->gradient);
  }
  return gradients_;
}

void Optimizer::apply(Tensor& step) {
  gradients_.clear();  // no share of their memory: the next backward pass may need it in another dtype
  const AdvanceSteps advance{.optimizer = static_cast<std::uint64_t>(index_),
                             .beta1 = (row_->reads & reads::betas) != 0 ? update_.beta1 : 1.0f,
                             .beta2 = (row_->reads & reads::betas) != 0 ? update_.beta2 : 1.0f};
  backend_->run(scalar_program("optimizer.advance_steps", &advance_steps_program, advance), step);
  for (std::size_t which = 0; which < parameters_.size(); ++which) {
    Parameter& parameter = *parameters_[which];
    if (!parameter.has_gradient) continue;
    if (tap_ != nullptr) tap_->see(Event(WeightUpdate{parameter, false}));
    std::array<Tensor*, most_update_states> states{};
    for (std::size_t i = 0; i < states.size(); ++i)
      if (const std::ptrdiff_t place = places_[which][i]; place >= 0)
        states[i] = &state_[static_cast<std::size_t>(place)].tensor;
    const OptimizerRow& row = row_of(parameter.value.shape());
    row.move(row, {*backend_, update_, parameter, states, index_, step,
                   stores_.empty() ? WeightStore{} : stores_[which]});
    if (tap_ != nullptr) tap_->see(Event(WeightUpdate{parameter, true}));
    ++parameter.version;  // the host does not know whether the step was skipped; a new version is always safe
  }
}

std::unique_ptr<Optimizer> make_optimizer(Backend& backend, std::vector<Parameter*> parameters,
                                          const OptimizerOptions& options, std::uint64_t steps, int index) {
  return std::make_unique<Optimizer>(backend, std::move(parameters), options, steps, index);
}

void clip_grad_norm(Backend& backend, const amp::GradScaler& scaler, Optimizer& optimizer, double max_norm,
                    Tensor& step) {
  scaler.require_unscaled(optimizer, "clip_grad_norm");
  if (!(std::isfinite(max_norm) && max_norm >= 0.0)) {
    throw std::invalid_argument("clip_grad_norm: max_norm = " + std::to_string(max_norm) +
                                ": must be finite and >= 0 (0: no clipping)");
  }
  const std::span<Tensor> gradients = optimizer.gradients();
  backend.global_norm(gradients, step);
  if (max_norm > 0.0) backend.clip_by_norm(gradients, max_norm, step);
}

void clip_grad_value(Backend& backend, const amp::GradScaler& scaler, Optimizer& optimizer,
                     double max_value) {
  scaler.require_unscaled(optimizer, "clip_grad_value");
  const auto bound = static_cast<float>(max_value);
  if (!(std::isfinite(bound) && max_value >= 0.0 && (bound > 0.0f || max_value == 0.0))) {
    throw std::invalid_argument("clip_grad_value: max_value = " + std::to_string(max_value) +
                                ": must be 0 (no clipping), or above 0 and finite as an FP32 number");
  }
  if (bound == 0.0f) return;
  backend.clip_by_value(optimizer.gradients(), bound);
}

}  // namespace fp16lab::engine::optim
