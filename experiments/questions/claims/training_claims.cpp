// What scalers, autocast and accumulation do, asked of the engine.
#include <fmt/format.h>

#include <cmath>
#include <span>

#include "engine/amp/levels/autocast.hpp"
#include "engine/amp/scalers/grad_scaler.hpp"
#include "engine/autograd/counting.hpp"
#include "engine/backend/emulated/emulated_backend.hpp"
#include "engine/nn/linear.hpp"
#include "engine/nn/losses.hpp"
#include "engine/nn/models/mlp.hpp"
#include "engine/optim/optimizer.hpp"
#include "experiments/questions/claims/claim.hpp"
#include "experiments/questions/tensor_values.hpp"
#include "numerics/formats/bits.hpp"
#include "numerics/random/philox.hpp"
#include "numerics/tensor_core/tensor_core_model.hpp"
#include "numerics/text/scale_text.hpp"

namespace fp16lab::experiments::claims {
namespace {

using namespace engine;

const char* const mindspore = "MindSpore r1.7 mixed-precision tutorial";
const char* const notes = "PyTorch AMP notes";

std::unique_ptr<Backend> make_machine() { return make_emulated_backend(tensor_core_model("hopper"), 1); }

/// S after each of `steps` steps without overflow, or with one at `overflow_at` (1-based).
class ScaleRun {
 public:
  ScaleRun(Backend& backend, const amp::ScalerOptions& options)
      : backend_(&backend),
        policy_(amp::make_scale_policy(options)),
        state_(backend.make_step_state(policy_.initial)) {}
  double scale() { return backend_->read_step_state(state_).scale; }
  void step(bool overflow) {
    StepState state = backend_->read_step_state(state_);
    state.found_inf[0] = overflow ? 1.0f : 0.0f;
    backend_->write_step_state(state, state_);
    backend_->run(policy_.update, state_);
  }
  /// The first step after which S is another one.
  int first_change(int at_most) {
    const double before = scale();
    for (int step_number = 1; step_number <= at_most; ++step_number) {
      step(false);
      if (scale() != before) return step_number;
    }
    return 0;
  }

 private:
  Backend* backend_;
  amp::ScalePolicy policy_;
  Tensor state_;
};

void dynamic_scales(Backend& backend, std::vector<Said>& all) {
  const char* const topic = "Dynamic loss scale";
  const char* const train =
      "fp16lab train -c experiments/configs/mindspore_lenet5.toml --set train.steps=2000 "
      "--set scaler.policy=dynamic";
  const amp::ScalerOptions usual{.policy = "dynamic", .initial_scale = 0x1p24};
  ScaleRun halving(backend, usual);
  halving.step(true);
  all.push_back({topic, mindspore, "it starts at 2^24 and is halved by an overflow", "2^23",
                 scale_text(halving.scale()), Verdict::holds, judge_number("2^23", halving.scale()),
                 fmt::format("{} --set scaler.initial_scale=2^24", train)});
  ScaleRun growing(backend, usual);
  const int change = growing.first_change(4000);
  all.push_back({topic, mindspore, "it is doubled after 2000 steps without overflow", "2000",
                 fmt::format("{}, to {}", change, scale_text(growing.scale())), Verdict::holds,
                 judge_statement(change == 2000 && growing.scale() == 0x1p25),
                 fmt::format("{} --set scaler.initial_scale=2^24", train)});

  // As the positional call builds it: (init_loss_scale, scale_factor, scale_window) = (4, 3000, 2000).
  const amp::ScalerOptions written{.policy = "dynamic",
                                   .initial_scale = 4,
                                   .growth_factor = 3000,
                                   .backoff_factor = 1.0 / 3000,
                                   .growth_interval = 2000};
  ScaleRun positional(backend, written);
  const double first = positional.scale();
  const int window = positional.first_change(4000);
  const std::string written_command = fmt::format(
      "{} --set scaler.initial_scale=4 --set scaler.growth_factor=3000 "
      "--set scaler.backoff_factor=0.0003333333333333333",
      train);
  all.push_back(
      {topic, mindspore, "DynamicLossScaleManager(4, 3000) has a factor of 4", "4",
       fmt::format("{}", positional.scale() / first), Verdict::fails,
       judge_number("4", positional.scale() / first), written_command,
       fmt::format("the first argument is the initial scale, {} here; the second one is the factor", first)});
  all.push_back({topic, mindspore, "DynamicLossScaleManager(4, 3000) has a window of 3000 steps", "3000",
                 fmt::format("{}", window), Verdict::fails, judge_number("3000", window), written_command,
                 "the third argument, which the call leaves at its default"});
}

/// A perceptron on fixed random data, differentiated once per call.
class Network {
 public:
  explicit Network(Backend& backend)
      : backend_(&backend),
        model_(backend, {.widths = {16, 24, 8}, .seed = 1}),
        parameters_(model_.parameters()) {}

  struct Options {
    amp::Level level = amp::Level::O0;
    double scale = 1;
    int accumulate = 1;
    bool mean = false;  ///< the loss of each of the micro-batches is divided by their number
  };
  /// Unscaled gradients of all parameters, one after the other.
  std::vector<float> gradient(const Options& options, engine::Tap* tap = nullptr) {
    Tensor step = backend_->make_step_state(StepState{});
    amp::GradScaler scaler(*backend_, {.policy = "fixed", .initial_scale = options.scale}, step);
    const auto optimizer = optim::make_optimizer(*backend_, parameters_, {}, 1);
    optimizer->clear_gradients();
    Tape tape(*backend_);
    amp::Autocast autocast(tape, {.level = options.level});
    std::optional<CountingGuard> counted;
    if (tap != nullptr) counted.emplace(tape, *tap);
    for (int micro_batch = 0; micro_batch < options.accumulate; ++micro_batch) {
      const amp::AutocastGuard guard(tape, autocast);
      Variable loss = nn::cross_entropy_loss(model_.forward(tape, tape.constant(inputs())), targets());
      if (options.mean) loss = ops::divide_constant(loss, static_cast<float>(options.accumulate));
      tape.backward(loss, scaler.seed());
      tape.reset();
    }
    scaler.unscale(*optimizer);
    std::vector<float> all;
    for (const Parameter* parameter : parameters_) append_values(*backend_, parameter->gradient, all);
    return all;
  }
  const std::vector<Parameter*>& parameters() const { return parameters_; }

 private:
  Tensor inputs() {
    Tensor x = backend_->empty({8, 16}, DType::f32);
    backend_->fill_uniform(x, PhiloxStream{.seed = 1, .stream = stream_id("claims")}, 0, 1);
    return x;
  }
  Tensor targets() {
    const std::vector<std::int32_t> labels{0, 1, 2, 3, 4, 5, 6, 7};
    Tensor tensor = backend_->empty({8}, DType::i32);
    backend_->upload(std::as_bytes(std::span(labels)), tensor);
    return tensor;
  }

  Backend* backend_;
  nn::Mlp model_;
  std::vector<Parameter*> parameters_;
};

double norm(const std::vector<float>& values) {
  double squares = 0;
  for (const float value : values) squares += static_cast<double>(value) * static_cast<double>(value);
  return std::sqrt(squares);
}
std::size_t differing(const std::vector<float>& a, const std::vector<float>& b) {
  std::size_t count = 0;
  for (std::size_t i = 0; i < a.size(); ++i) count += bits_of(a[i]) != bits_of(b[i]) ? 1 : 0;
  return count;
}

void gradients(Backend& backend, std::vector<Said>& all) {
  Network network(backend);
  const std::vector<float> plain = network.gradient({});
  const std::size_t by_1024 = differing(plain, network.gradient({.scale = 1024}));
  const std::size_t by_1000 = differing(plain, network.gradient({.scale = 1000}));
  const char* const train =
      "fp16lab train -c experiments/configs/classifier.toml --set train.steps=1 --set scaler.policy=fixed";
  all.push_back(
      {"Chain rule", "all of them", "scaling the loss and unscaling the gradients changes nothing (FP32)",
       "0", fmt::format("{} of {} elements at S = 1024, {} at S = 1000", by_1024, plain.size(), by_1000),
       Verdict::fails, judge_statement(by_1024 == 0 && by_1000 == 0, by_1024 == 0 && by_1000 > 0),
       fmt::format("{} --set scaler.initial_scale=1000", train),
       "bit for bit for powers of two, as long as nothing under- or overflows; else up to rounding"});

  const double ratio =
      norm(network.gradient({.accumulate = 10})) / norm(network.gradient({.accumulate = 10, .mean = true}));
  const double once = norm(network.gradient({.accumulate = 10})) / norm(plain);
  const char* const accumulate =
      "fp16lab train -c experiments/configs/recipe_accumulation.toml --set train.steps=5 "
      "--set train.accumulate=10 --set train.accumulate_mode=sum";
  all.push_back(
      {"Accumulation", "Paddle AMP tutorials", "ten batches may be accumulated without dividing by ten", "1",
       fmt::format("{:.4f} times as large", once), Verdict::fails, judge_number("1", once), accumulate,
       "ten times the same batch: without a division by ten the gradient is that of a ten times larger "
       "learning rate"});
  all.push_back({"Accumulation", notes,
                 "the loss is divided by the number of batches: a factor of 10 for ten", "10",
                 fmt::format("{:.4f}", ratio), Verdict::holds, judge_number("10", ratio), accumulate,
                 "both conventions are in use; they differ by this factor"});
}

/// What a weight with momentum does in a step whose loss does not reach it.
void clearing(Backend& backend, std::vector<Said>& all) {
  const auto moved = [&backend](optim::ClearTo to, bool reached) {
    Tensor step = backend.make_step_state(StepState{});
    Parameter weight{"w", backend.empty({1}, DType::f32)}, other{"u", backend.empty({1}, DType::f32)};
    backend.fill(weight.value, 1);
    backend.fill(other.value, 1);
    const auto optimizer =
        optim::make_optimizer(backend, {&weight, &other}, {.learning_rate = 0.25, .momentum = 0.5}, 2);
    float values[2] = {0, 0};
    for (int iteration = 0; iteration < 2; ++iteration) {
      optimizer->begin_iteration(step);
      optimizer->clear_gradients(to);
      Tape tape(backend);
      tape.backward(ops::sum(tape.parameter(iteration == 0 || reached ? weight : other)));
      optimizer->apply(step);
      values[iteration] = values_of(backend, weight.value).front();
    }
    return values[0] - values[1];
  };
  using optim::ClearTo;
  const float to_none = moved(ClearTo::none, false), to_zero = moved(ClearTo::zero, false);
  all.push_back(
      {"Clearing gradients", "Paddle AMP guide",
       "clear_grad(set_to_zero=False) trains as clearing to zeros does", "alike",
       fmt::format("a weight that no loss reaches moves by {} after none, by {} after zeros", to_none,
                   to_zero),
       Verdict::fails,
       judge_statement(to_none == to_zero, moved(ClearTo::none, true) == moved(ClearTo::zero, true)),
       "exp_claims",
       "alike where the loss reaches every weight, as in its networks; a gradient of zeros still lets "
       "momentum and weight decay act"});
}

/// MindSpore's example of a Dense layer in FP16 takes one step on labels that are all zero. Norms of the
/// gradient of the layer's output: by the formula -sum p log softmax(x), and as a fused kernel has it,
/// softmax(x) - p.
void zero_labels(Backend& backend, std::vector<Said>& all) {
  nn::Linear dense(backend, "dense", {.inputs = 512, .outputs = 128, .seed = 1});
  const auto filled = [&backend](Shape shape, double value) {
    Tensor tensor = backend.empty(shape, DType::f32);
    backend.fill(tensor, value);
    return tensor;
  };
  const auto norm_of = [&backend](const Tensor& tensor) { return norm(values_of(backend, tensor)); };
  Tape tape(backend);
  const Variable output = ops::relu(dense.forward(tape, tape.constant(filled(Shape{64, 512}, 0.01))));
  const Variable labels = tape.constant(filled(Shape{64, 128}, 0));
  const double fused = norm_of(ops::subtract(ops::softmax(output, 1), labels).tensor());
  const Variable loss = ops::softmax_cross_entropy(output, labels, ops::Reduction::sum);
  tape.backward(loss);
  double formula = 0;
  for (const Parameter* parameter : dense.parameters())
    formula = std::hypot(formula, norm_of(parameter->gradient));
  all.push_back(
      {"Losses", mindspore, "a Dense layer, 512 to 128, takes a training step on labels of zero", "a step",
       fmt::format("gradients of norm {:g} by the formula, {:.4f} (of the output) as softmax less label",
                   formula, fused),
       Verdict::fails, judge_statement(formula > 0, fused > 0),
       "fp16lab train -c experiments/configs/mindspore_manual_dense.toml",
       "rows of zeros are no one-hot labels: the loss is 0 whatever the weights, and so is its gradient. "
       "Ours is "
       "that one; MindSpore's op stores softmax less label and multiplies it by the gradient of the loss"});
}

/// The dtype in which the gradient of a weight leaves its product.
struct WeightGradients final : Tap {
  DType dtype = DType::f32;
  void see(const Event& event) override {
    if (const auto* counted = event.as<CountedTensor>();
        counted != nullptr && !counted->intermediate && counted->kind == GradientKind::weight)
      dtype = counted->dtype;
  }
};

void autocast(Backend& backend, std::vector<Said>& all) {
  Network network(backend);
  WeightGradients seen;
  network.gradient({.level = amp::Level::O1, .scale = 1024}, &seen);
  const Parameter& weight = *network.parameters().front();
  const char* const train =
      "fp16lab train -c experiments/configs/classifier.toml --set train.steps=1 --set amp.level=O1";
  all.push_back({"Autocast", notes, "the model's weights are kept in FP16", "f16",
                 std::string(name_of(weight.value.dtype())), Verdict::fails,
                 judge_statement(weight.value.dtype() == DType::f16), train,
                 "the weights stay FP32; each is cast where an op uses it, once per step"});
  all.push_back(
      {"Autocast", notes, "an FP32 copy is updated from FP16 gradients", "f16",
       std::string(name_of(weight.gradient.dtype())), Verdict::fails,
       judge_statement(weight.gradient.dtype() == DType::f16), train,
       fmt::format(
           "products give {} gradients, but the cast of the weight is differentiated too: .grad is FP32",
           name_of(seen.dtype))});
}

}  // namespace

std::vector<Said> training_claims() {
  const auto backend = make_machine();
  std::vector<Said> all;
  dynamic_scales(*backend, all);
  gradients(*backend, all);
  zero_labels(*backend, all);
  clearing(*backend, all);
  autocast(*backend, all);
  return all;
}

}  // namespace fp16lab::experiments::claims
