// What tests of modules share: weights of both signs, twins, and the comparison of a module with its twin.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/amp/levels/autocast.hpp"
#include "engine/autograd/counting.hpp"
#include "engine/nn/module.hpp"
#include "tests/engine/autograd/support.hpp"
#include "tests/engine/nn/scalar_twin.hpp"

namespace fp16lab::engine::test {

inline std::vector<std::string> described_parameters(const nn::Module& module) {
  std::vector<std::string> all;
  for (const Parameter* parameter : module.parameters())
    all.push_back(parameter->name + " " + parameter->value.shape().to_string());
  return all;
}

inline std::vector<float> uniform_values(std::size_t count, std::uint64_t seed, float bound) {
  const PhiloxStream stream{.seed = seed, .stream = stream_id("test")};
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i)
    values[i] = bound * (static_cast<float>(stream.word(i) >> 20) / 2048.0f - 1.0f);
  return values;
}

/// Every parameter uniform in [-bound, bound]: no bias is zero and no norm's weight one.
inline void randomise(Backend& backend, const nn::Module& module, float bound) {
  std::uint64_t seed = 1;
  for (Parameter* parameter : module.parameters()) {
    const auto count = static_cast<std::size_t>(parameter->value.element_count());
    parameter->value = tensor_of(backend, parameter->value.shape(), uniform_values(count, seed++, bound));
    ++parameter->version;
  }
}

inline Tensor symbols_of(Backend& backend, const Shape& shape, const std::vector<std::int32_t>& values) {
  return index_of(backend, values).reshaped(shape);
}

/// The context of training step `iteration`.
inline StepContext training_context(Backend& backend, std::uint64_t seed, std::uint64_t iteration,
                                    std::uint32_t micro_batch = 0) {
  StepState state;
  state.iteration = iteration;
  return {.training = true, .seed = seed, .micro_batch = micro_batch, .step = backend.make_step_state(state)};
}

/// The dtype in which each observed gradient was stored, and what its rounding did.
class GradientRecorder final : public Tap {
 public:
  void see(const Event& event) override {
    const auto* const counted = event.as<CountedTensor>();
    if (counted == nullptr || counted->intermediate) return;
    const auto [entry, first] = dtypes.try_emplace(std::string(counted->name), counted->dtype);
    EXPECT_TRUE(first || entry->second == counted->dtype) << counted->name;
    CastProbe& sum = probes[std::string(counted->name)];
    sum.before += counted->probe.before;
    sum.after += counted->probe.after;
  }
  std::uint64_t count(const std::string& name) const { return probes.at(name).before.total(); }
  /// Elements that became zero when they were rounded.
  std::uint64_t lost(const std::string& name) const {
    return probes.at(name).after.zero - probes.at(name).before.zero;
  }
  std::map<std::string, DType> dtypes;
  std::map<std::string, CastProbe> probes;
};

/// What a backward pass from `loss`, computed under O1, shows; `seed` is dL/d(loss).
inline GradientRecorder gradients_under_o1(Backend& backend, const std::function<Variable(Tape&)>& loss,
                                           float seed = 1.0f) {
  GradientRecorder recorder;
  Tape tape(backend);
  amp::Autocast autocast(tape, {.level = amp::Level::O1});
  const CountingGuard counted(tape, recorder);
  Variable value;
  {
    const amp::AutocastGuard guard(tape, autocast);
    value = loss(tape);
  }
  tape.backward(value, tensor_of(backend, value.shape(), {seed}));
  return recorder;
}

using TwinWeights = std::map<std::string, std::vector<Real>>;
/// The module's outputs from its weights by name and its input (empty where the input is symbols).
using ModuleTwin =
    std::function<std::vector<Real>(ScalarGraph&, const TwinWeights&, const std::vector<Real>&)>;

/// The direction in which outputs and gradients are summed: weights of random sign, 8/16 to 16/16, without
/// the period of weighted_sum(), which can cancel a bias's gradient.
inline float direction_weight(std::size_t i) {
  const std::uint32_t word = PhiloxStream{.seed = 1, .stream = stream_id("direction")}.word(i);
  return (word % 2 == 0 ? 1.0f : -1.0f) * static_cast<float>(8 + (word >> 8) % 9) / 16.0f;
}

inline Variable directed_sum(Tape& tape, const Variable& y) {
  std::vector<float> weights(static_cast<std::size_t>(y.shape().element_count()));
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = direction_weight(i);
  return ops::sum(ops::multiply(y, tape.constant(tensor_of(tape.backend(), y.shape(), weights))));
}

inline Real twin_directed_sum(ScalarGraph& graph, std::span<const Real> values) {
  Real total = graph.leaf(0.0);
  for (std::size_t i = 0; i < values.size(); ++i)
    total = total + values[i] * static_cast<double>(direction_weight(i));
  return total;
}

/// Every value within 8 u times the twin's rounding_bound: an elementary function costs up to 4 u where the
/// twin has one operation of 1 u; the rest is for other orders of summation and for closed forms of
/// derivatives (norms, softmax), which have the condition of the twin's expression up to a small factor. So
/// that the check can fail, the tolerance must stay below 2^-8 of the tensor's largest magnitude: a missing
/// factor or term is of the order of 1. Zeros that no rounding reaches must come out as zeros.
inline void expect_near_twin(const std::vector<float>& values, std::span<const Real> twin,
                             const std::string& what) {
  ASSERT_EQ(values.size(), twin.size()) << what;
  double largest = 0, widest = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double tolerance = 8 * 0x1p-24 * twin[i].graph->rounding_bound(twin[i]);
    EXPECT_NEAR(static_cast<double>(values[i]), twin[i].value(), tolerance) << what << ", element " << i;
    largest = std::max(largest, std::fabs(twin[i].value()));
    widest = std::max(widest, tolerance);
  }
  if (widest > 0) {
    EXPECT_LT(widest, largest * 0x1p-8) << what << ": the check has no teeth";
  }
}

/// Outputs, gradients of directed_sum(outputs), and gradients of the directed sums of those, for every
/// parameter and for x (if it is f32), against the twin. Tape::backward must give the bits of
/// Tape::gradients.
inline void expect_module_matches_twin(Backend& backend, nn::Module& module, const Tensor& x,
                                       const ModuleTwin& twin, const StepContext& context = {}) {
  const std::vector<Parameter*> parameters = module.parameters();
  Tape tape(backend);
  tape.set_context(context);
  const bool symbols = x.dtype() != DType::f32;
  const Variable input = symbols ? tape.constant(x) : tape.input(x);
  const Variable output = module.forward(tape, input);
  std::vector<Variable> leaves;
  std::vector<std::string> names;
  for (Parameter* parameter : parameters) {
    leaves.push_back(tape.parameter(*parameter));
    names.push_back(parameter->name);
  }
  if (!symbols) {
    leaves.push_back(input);
    names.emplace_back("x");
  }
  const std::vector<Variable> first =
      tape.gradients(std::vector{directed_sum(tape, output)}, {}, leaves, {.create_graph = true});
  Variable total = directed_sum(tape, first.front());
  for (std::size_t i = 1; i < first.size(); ++i) total = ops::add(total, directed_sum(tape, first[i]));
  const std::vector<Variable> second =
      tape.gradients(std::vector{total}, {}, leaves, {.retain_graph = true, .allow_unused = true});

  ScalarGraph graph;
  TwinWeights weights;
  std::vector<std::vector<Real>> twin_leaves;
  twin_leaves.reserve(leaves.size());
  for (const Variable& leaf : leaves) twin_leaves.push_back(graph.leaves(values_of(backend, leaf.tensor())));
  for (std::size_t i = 0; i < parameters.size(); ++i) weights[names[i]] = twin_leaves[i];
  const std::vector<Real> twin_output =
      twin(graph, weights, symbols ? std::vector<Real>{} : twin_leaves.back());
  expect_near_twin(values_of(backend, output.tensor()), twin_output, "output");

  std::vector<Real> all;
  for (const auto& leaf : twin_leaves) all.insert(all.end(), leaf.begin(), leaf.end());
  const std::vector<Real> twin_first = graph.gradients(twin_directed_sum(graph, twin_output), all);
  Real twin_total{};
  std::size_t begin = 0;
  for (const auto& leaf : twin_leaves) {
    const Real sum = twin_directed_sum(graph, std::span(twin_first).subspan(begin, leaf.size()));
    twin_total = begin == 0 ? sum : twin_total + sum;
    begin += leaf.size();
  }
  const std::vector<Real> twin_second = graph.gradients(twin_total, all);
  begin = 0;
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    const std::size_t size = twin_leaves[i].size();
    expect_near_twin(values_of(backend, first[i].tensor()), std::span(twin_first).subspan(begin, size),
                     "gradient of " + names[i]);
    expect_near_twin(values_of(backend, second[i].tensor()), std::span(twin_second).subspan(begin, size),
                     "second derivative, " + names[i]);
    begin += size;
  }

  for (Parameter* parameter : parameters) parameter->clear_gradient();
  tape.backward(directed_sum(tape, output));
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    EXPECT_EQ(bytes_of(backend, parameters[i]->gradient), bytes_of(backend, first[i].tensor())) << names[i];
  }
}

/// The op that a module is, on the module's parameters in their order.
using ModuleOp = std::function<Variable(const std::vector<Variable>& parameters, const Variable& x)>;

/// Output and gradients of the module have the bits of the op, which tests/engine/autograd asks to second
/// order.
inline void expect_module_is(Backend& backend, nn::Module& module, const Shape& shape, const ModuleOp& op,
                             const StepContext& context = {}) {
  randomise(backend, module, 1.0f);
  const Tensor x =
      tensor_of(backend, shape, uniform_values(static_cast<std::size_t>(shape.element_count()), 7, 1.0f));
  std::vector<std::vector<std::byte>> bytes[2];
  for (const bool by_op : {false, true}) {
    Tape tape(backend);
    tape.set_context(context);
    std::vector<Variable> leaves;
    for (Parameter* parameter : module.parameters()) leaves.push_back(tape.parameter(*parameter));
    const Variable input = tape.input(x), y = by_op ? op(leaves, input) : module.forward(tape, input);
    leaves.push_back(input);
    bytes[by_op ? 1 : 0].push_back(bytes_of(backend, y.tensor()));
    for (const Variable& gradient : tape.gradients(std::vector{directed_sum(tape, y)}, {}, leaves))
      bytes[by_op ? 1 : 0].push_back(bytes_of(backend, gradient.tensor()));
  }
  EXPECT_EQ(bytes[0], bytes[1]) << module.parameters()[0]->name << ", " << shape.to_string();
}

}  // namespace fp16lab::engine::test
