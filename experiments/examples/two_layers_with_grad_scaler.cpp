// A perceptron under O1: autocast, a scaled loss, skipped steps, the next scale. The loop is PyTorch's.
#include <cstdio>
#include <memory>
#include <vector>

#include "fp16lab/engine/amp/levels/autocast.hpp"
#include "fp16lab/engine/amp/scalers/grad_scaler.hpp"
#include "fp16lab/engine/backend/emulated/emulated_backend.hpp"
#include "fp16lab/engine/nn/models/mlp.hpp"
#include "fp16lab/engine/optim/optimizer.hpp"

using namespace fp16lab;
using namespace fp16lab::engine;

int main() {
  const auto backend = make_emulated_backend(tensor_core_model("hopper"), /*threads=*/1);
  nn::Mlp model(*backend, {.widths = {4, 16, 2}, .seed = 1});
  Tensor step =
      backend->make_step_state(StepState{});  // the scale, found_inf and counters: state of the back end
  const auto optimizer =
      optim::make_optimizer(*backend, model.parameters(), {.learning_rate = 0.5}, /*steps=*/20);
  // 2^22 is too high at first: watch it back off.
  amp::GradScaler scaler(*backend, {.policy = "torch", .initial_scale = 0x1p22, .growth_interval = 8}, step);

  std::vector<float> x;  // is the first number of a row larger than the second?
  std::vector<std::int32_t> labels;
  for (int i = 0; i < 32; ++i) {
    for (int j = 0; j < 4; ++j) x.push_back(static_cast<float>((i * (7 + 4 * j)) % 13) / 13.0f);
    labels.push_back(x[x.size() - 4] > x[x.size() - 3] ? 1 : 0);
  }
  Tensor inputs = backend->empty({32, 4}, DType::f32), targets = backend->empty({32}, DType::i32);
  backend->upload(std::as_bytes(std::span(x)), inputs);
  backend->upload(std::as_bytes(std::span(labels)), targets);

  Tape tape(*backend);
  amp::Autocast autocast(tape, {.level = amp::Level::O1});
  for (int i = 0; i < 20; ++i) {
    optimizer->begin_iteration(step);
    optimizer->clear_gradients();
    const double used = backend->read_step_state(step).scale;
    float loss = 0;
    {
      const amp::AutocastGuard guard(tape, autocast);  // linear layers in FP16, the loss in FP32
      const Variable mean = ops::softmax_cross_entropy(model.forward(tape, tape.constant(inputs)), targets);
      backend->download(mean.tensor(), std::as_writable_bytes(std::span(&loss, 1)));
      tape.backward(mean, scaler.seed());  // begins from the scale instead of 1
    }
    tape.reset();
    scaler.unscale(*optimizer);  // gradients times 1 / scale; sets found_inf
    scaler.step(*optimizer);     // leaves every weight as it is where found_inf is set
    scaler.update();             // the policy: back off, or count and grow
    const StepState state = backend->read_step_state(step);
    std::printf("step %2d  loss %.4f  scale %8.0f  skipped so far %u\n", i + 1, static_cast<double>(loss),
                used, static_cast<unsigned>(state.skipped_steps[0]));
  }
}
