// Backward passes of a tape.
#include <stdexcept>

#include "engine/autograd/backward_pass.hpp"

namespace fp16lab::engine {

namespace {

using Kind = AutogradError::Kind;

}  // namespace

// Here, where BackwardScratch is complete.
Tape::Tape(Backend& backend) : backend_(&backend) {}
Tape::~Tape() = default;

void Tape::backward(const Variable& output, BackwardOptions options) {
  run_backward(output, nullptr, options);
}

void Tape::backward(const Variable& output, const Tensor& seed, BackwardOptions options) {
  run_backward(output, &seed, options);
}

void Tape::run_backward(const Variable& output, const Tensor* seed, BackwardOptions options) {
  BackwardPass pass(*this, "Tape::backward", BackwardPass::Mode::into_parameters, options.retain_graph);
  if (options.last) pass.tell_final(context_.final_gradients);
  pass.add_output(output, seed);
  for (std::uint32_t id = 0; id <= output.id(); ++id) {
    if (nodes_[id].parameter != nullptr) pass.add_target(id);
  }
  if (!node(output, "Tape::backward").requires_gradient || !pass.has_target()) {
    throw AutogradError(Kind::no_gradient_path, "Tape::backward: the output " + describe(output.id()) +
                                                    " does not depend on any parameter");
  }
  pass.run();
}

std::vector<Variable> Tape::gradients(std::span<const Variable> outputs, std::span<const Tensor> seeds,
                                      std::span<const Variable> inputs, GradientsOptions options) {
  if (!seeds.empty() && seeds.size() != outputs.size()) {
    throw AutogradError(Kind::bad_seed, "Tape::gradients: " + std::to_string(seeds.size()) + " seeds for " +
                                            std::to_string(outputs.size()) + " outputs");
  }
  std::vector<Variable> results(inputs.size());
  BackwardPass pass(*this, "Tape::gradients",
                    options.create_graph ? BackwardPass::Mode::recorded : BackwardPass::Mode::kept,
                    options.retain_graph, options.counted);
  for (const Variable& input : inputs) {
    check(input, "Tape::gradients");
    pass.add_target(input.id());
  }
  for (std::size_t i = 0; i < outputs.size(); ++i)
    pass.add_output(outputs[i], seeds.empty() ? nullptr : &seeds[i]);
  pass.run();
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (pass.has_gradient(inputs[i].id())) {
      results[i] = pass.gradient(inputs[i].id());
    } else if (options.allow_unused) {
      Tensor zeros = backend_->empty(inputs[i].shape(), inputs[i].dtype());
      backend_->fill(zeros, 0.0);
      results[i] = constant(zeros);
    } else {
      throw AutogradError(Kind::unused_input, "Tape::gradients: the outputs do not depend on input " +
                                                  std::to_string(i) + ", " + describe(inputs[i].id()) +
                                                  "; allow_unused = true gives it zeros");
    }
  }
  return results;
}

}  // namespace fp16lab::engine
