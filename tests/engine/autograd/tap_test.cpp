// Taps that follow values: what operations offer as their value before rounding is that value.
#include "engine/autograd/tap.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/engine/autograd/support.hpp"

namespace fp16lab::engine::test {
namespace {

/// Rounds what was offered, and compares it with what was recorded.
class OfferChecker final : public Tap {
 public:
  explicit OfferChecker(Backend& backend) : backend_(&backend) {}

  bool wants(const Site& site) override { return site.what == What::values; }
  void see(const Event& event) override {
    if (const auto* recorded = event.as<Recorded>()) check(*recorded);
    if (const auto* gave = event.as<VjpGave>()) {
      EXPECT_EQ(gave->tape.backward_site(), &gave->site);
      ++gradients;
    }
    if (const auto* added = event.as<GradientAdded>(); added != nullptr && added->before.defined()) {
      Tensor again = backend_->empty(added->sum.shape(), added->sum.dtype());
      backend_->binary(BinaryOp::add, added->before, added->added, again);
      EXPECT_EQ(bytes_of(*backend_, again), bytes_of(*backend_, added->sum));
      ++sums;
    }
    if (event.as<ParameterGradient>() != nullptr) ++parameters;
  }

  std::map<std::string, int> offered, silent;
  int gradients = 0, sums = 0, parameters = 0;

 private:
  void check(const Recorded& recorded) {
    const auto& [tape, op, result, operands] = recorded;
    const Tensor value = tape.value_of(result);
    const Tensor wide = recorded.unrounded();
    const std::string name = (tape.backward_site() != nullptr ? "backward " : "") + std::string(name_of(op));
    if (!wide.defined()) {
      if (value.dtype() == DType::f16) ++silent[name];
      return;
    }
    ++offered[name];
    EXPECT_EQ(wide.dtype(), DType::f32);
    EXPECT_EQ(wide.shape(), value.shape()) << name;
    Tensor rounded = backend_->empty(value.shape(), value.dtype());
    backend_->cast(wide, rounded);
    EXPECT_EQ(bytes_of(*backend_, rounded), bytes_of(*backend_, value)) << name;
  }
  Backend* backend_;
};

std::vector<float> pattern(std::size_t count, float scale) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i)
    values[i] = scale * static_cast<float>(static_cast<int>((i * 37 + 11) % 61) - 30) / 16.0f;
  return values;
}

/// Everything that rounds to 16 bits by itself, forward and backward.
TEST(FollowedValues, WhatIsOfferedRoundsToWhatIsRecorded) {
  const auto backend = hopper_backend();
  OfferChecker checker(*backend);
  Tape tape(*backend);
  tape.set_taps({&checker});
  const auto input = [&](const Shape& shape, float scale = 1.0f) {
    return tape.input(
        halves_of(*backend, shape, pattern(static_cast<std::size_t>(shape.element_count()), scale)));
  };
  const Variable x = input({4, 6}), w = input({5, 6}), b = input({5}), images = input({2, 3, 6, 6});
  const Variable filters = input({4, 3, 3, 3}), filter_bias = input({4});
  const Variable left = input({2, 3, 4}), right = input({2, 4, 5});
  Variable y = ops::linear(x, w, b);
  y = ops::multiply(ops::scale(y, 0.3f), ops::divide_constant(y, 7.0f));
  y = ops::exp(ops::scale(y, 0.05f));
  y = ops::divide(ops::subtract(ops::tanh(y), b), ops::add(y, b));
  const Variable convolved = ops::conv2d(images, filters, filter_bias, {.stride = {1, 2}, .padding = {1, 0}});
  const Variable spread_filters = input({3, 2, 2, 3}), spread_bias = input({2});
  const Variable spread = ops::conv_transpose2d(images, spread_filters, spread_bias, {.stride = {2, 1}});
  const Variable batched = ops::matmul(left, right);
  const std::vector<Variable> outputs = {ops::sum(y), ops::sum(ops::multiply(convolved, convolved)),
                                         ops::sum(ops::multiply(spread, spread)),
                                         ops::sum(ops::multiply(batched, batched))};
  const std::vector<Variable> inputs = {x,           w,    b,    images, filters, filter_bias, spread_filters,
                                        spread_bias, left, right};
  tape.gradients(outputs, {}, inputs);

  for (const char* const name :
       {"linear", "multiply", "scale", "divide_constant", "exp", "tanh", "subtract", "divide", "add",
        "conv2d", "conv_transpose2d", "matmul", "sum", "backward matmul", "backward sum", "backward multiply",
        "backward conv2d_input_gradient", "backward conv2d_weight_gradient", "backward conv2d"})
    EXPECT_GE(checker.offered[name], 1) << name;
  // The others move values, or say of a cast what it cast.
  for (const auto& [name, count] : checker.silent) {
    const std::string op = name.substr(name.rfind(' ') + 1);
    EXPECT_TRUE(op == "cast" || op == "reshape" || op == "broadcast_to" || op == "identity") << name;
  }
  EXPECT_GT(checker.gradients, 0);
  EXPECT_GT(checker.sums, 0) << "b is used three times";
  EXPECT_EQ(checker.parameters, 0);
}

TEST(FollowedValues, SeesParametersAndTheSiteOfEveryGradient) {
  const auto backend = hopper_backend();
  Parameter weight("fc.weight", tensor_of(*backend, {2, 3}, pattern(6, 1.0f)));
  struct Sites final : Tap {
    bool wants(const Site& site) override { return site.what == What::values; }
    void see(const Event& event) override {
      if (const auto* recorded = event.as<Recorded>()) {
        const Tape& tape = recorded->tape;
        const BackwardSite* const site = tape.backward_site();
        seen.push_back((site == nullptr ? "forward "
                                        : "backward of " + std::string(name_of(site->op)) + " in " +
                                              std::string(tape.scope_path(site->scope)) + " to " +
                                              std::string(name_of(site->label)) + ": ") +
                       std::string(name_of(recorded->op)));
      }
      if (const auto* seeded = event.as<Seeded>()) {
        EXPECT_EQ(seeded->seed.element_count(), 1);
      }
      if (const auto* whole = event.as<ParameterGradient>()) {
        parameters.push_back(whole->parameter.name + (whole->before.defined() ? " added" : " first"));
        EXPECT_EQ(whole->contribution.shape(), whole->parameter.gradient.shape());
      }
    }
    std::vector<std::string> seen, parameters;
  } sites;
  Tape tape(*backend);
  tape.set_taps({&sites});
  for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
    Variable y;
    {
      const ScopeGuard scope(tape, "fc");
      y = ops::linear(tape.constant(tensor_of(*backend, {1, 3}, {1, 2, 3})), tape.parameter(weight), {});
    }
    tape.backward(ops::sum(y));
    tape.reset();
  }
  EXPECT_EQ(sites.seen.at(0), "forward linear");
  EXPECT_EQ(sites.seen.at(1), "forward sum");
  EXPECT_EQ(sites.seen.back(), "backward of linear in fc to weight: matmul");
  EXPECT_EQ(sites.parameters, (std::vector<std::string>{"fc.weight first", "fc.weight added"}));
  tape.set_taps({});
  const std::size_t before = sites.seen.size();
  tape.backward(ops::sum(tape.parameter(weight)));
  EXPECT_EQ(sites.seen.size(), before);
}

}  // namespace
}  // namespace fp16lab::engine::test
