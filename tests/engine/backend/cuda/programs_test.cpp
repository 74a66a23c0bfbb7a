// The scalar programs that a device knows: they do what the host's do, and what it does not know it refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cstddef>
#include <limits>
#include <random>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "engine/amp/policy.hpp"
#include "engine/amp/scalers/grad_scaler.hpp"
#include "engine/optim/optimizer.hpp"
#include "engine/optim/optimizer_programs.hpp"
#include "tests/engine/backend/conformance.hpp"
#include "tests/engine/backend/cuda/on_device.hpp"
#include "tests/engine/backend/on_backend.hpp"

namespace fp16lab::engine::test {
namespace {

using testing::HasSubstr;

using CudaPrograms = OnDevice;

/// No padding (step_state.hpp).
auto bytes_of(const StepState& state) {
  return std::bit_cast<std::array<std::byte, sizeof(StepState)>>(state);
}

/// Only this optimizer's flag says so, or none.
void find_inf(Backend& backend, Tensor& step, std::size_t optimizer, bool found) {
  StepState state = backend.read_step_state(step);
  state.found_inf = {};
  state.found_inf[optimizer] = found ? 1.0f : 0.0f;
  backend.write_step_state(state, step);
}

TEST_F(CudaPrograms, EveryPolicyDecidesOnTheDeviceAsOnTheHost) {
  const auto device = device_backend();
  const auto host = emulated_twin();
  for (const amp::PolicyDescription& description : amp::scale_policies()) {
    const amp::ScalePolicy policy = amp::make_scale_policy({.policy = std::string(description.name)});
    Tensor there = device->make_step_state(policy.initial), here = host->make_step_state(policy.initial);
    for (int step = 0; step < 40; ++step) {
      for (const auto& [backend, memory] : {std::pair{device.get(), &there}, std::pair{host.get(), &here}}) {
        find_inf(*backend, *memory, static_cast<std::size_t>(step % max_optimizers), step % 3 == 1);
        backend->run(policy.update, *memory);
      }
      const StepState on_device = device->read_step_state(there), on_host = host->read_step_state(here);
      ASSERT_EQ(bytes_of(on_device), bytes_of(on_host)) << policy.name << ", step " << step;
    }
  }
}

/// Magnitudes as gradients have them, and what is not finite now and then.
amp::GradientStatistics random_statistics(std::mt19937& random) {
  amp::GradientStatistics statistics;
  for (ExponentHistogram* histogram : {&statistics.weight, &statistics.activation}) {
    const int top = static_cast<int>(random() % 30);
    for (int e = top - 40; e <= top; ++e)
      histogram->bins[static_cast<std::size_t>(e - ExponentHistogram::min_exponent)] = random() % 1000;
    histogram->zero = random() % 100;
    histogram->nan = random() % 7 == 0 ? 1 : 0;
  }
  if (random() % 2 == 0) statistics.range = range_of(DType::bf16);
  return statistics;
}

TEST_F(CudaPrograms, PoliciesWithStatisticsDecideOnTheDeviceAsOnTheHost) {
  const auto device = device_backend();
  const auto host = emulated_twin();
  std::mt19937 random(11);
  std::size_t policies = 0;
  for (const amp::PolicyDescription& description : amp::scale_policies()) {
    if (!description.wants_statistics) continue;
    ++policies;
    const amp::ScalePolicy policy = amp::make_scale_policy(
        {.policy = std::string(description.name),
         .parameters = {{"min_scale", 0}, {"max_scale", 0}}});  // neither floor nor ceiling
    Tensor there = device->make_step_state(policy.initial), here = host->make_step_state(policy.initial);
    StepState by_hand = policy.initial;
    std::set<double> scales;
    for (int step = 0; step < 60; ++step) {
      const amp::GradientStatistics statistics = random_statistics(random);
      const bool overflow = random() % 8 == 0;
      for (const auto& [backend, memory] : {std::pair{device.get(), &there}, std::pair{host.get(), &here}}) {
        find_inf(*backend, *memory, 0, overflow);
        const auto bytes = std::as_bytes(std::span(&statistics, 1));
        Tensor uploaded = backend->empty({static_cast<std::int64_t>(bytes.size())}, DType::u8);
        backend->upload(bytes, uploaded);
        backend->run(
            with_statistics(policy, reinterpret_cast<const amp::GradientStatistics*>(uploaded.data())),
            *memory);
      }
      amp::advance(policy, by_hand, {.found_inf = overflow, .statistics = &statistics});
      const StepState on_device = device->read_step_state(there), on_host = host->read_step_state(here);
      ASSERT_EQ(bytes_of(on_device), bytes_of(on_host)) << policy.name << ", step " << step;
      ASSERT_EQ(bytes_of(on_host), bytes_of(by_hand)) << policy.name << ", step " << step;
      scales.insert(on_host.scale);
    }
    EXPECT_GT(scales.size(), 2u) << policy.name << " rests";
  }
  EXPECT_GE(policies, 3u);
}

TEST_F(CudaPrograms, AnOverflowLeavesZerosOnTheDeviceAsOnTheHost) {
  const auto device = device_backend();
  const auto host = emulated_twin();
  std::vector<StepState> states;
  std::vector<std::vector<float>> weights;
  for (Backend* const backend : {device.get(), host.get()}) {
    const auto two = [backend](std::array<float, 2> values) { return uploaded(*backend, {2}, values); };
    Parameter parameter("weight", two({1, 2}));
    Tensor step = backend->make_step_state(StepState{});
    amp::GradScaler scaler(
        *backend, {.policy = "torch", .initial_scale = 8, .on_overflow = amp::OnOverflow::zero}, step);
    const auto optimizer =
        optim::make_optimizer(*backend, {&parameter}, {.learning_rate = 0.5, .momentum = 0.5}, 2);
    for (const float gradient : {8.0f, std::numeric_limits<float>::infinity()}) {
      optimizer->begin_iteration(step);
      parameter.gradient = two({gradient, 8});
      parameter.has_gradient = true;
      scaler.step(*optimizer);
      scaler.update();
    }
    states.push_back(backend->read_step_state(step));
    weights.push_back(downloaded<float>(*backend, parameter.value));
  }
  EXPECT_EQ(bytes_of(states[0]), bytes_of(states[1]));
  EXPECT_EQ(states[0].taken_steps[0], 2u);
  EXPECT_EQ(states[0].scale, 4.0);
  for (const auto& weight : weights) EXPECT_EQ(weight, (std::vector{0.25f, 1.25f}));
}

TEST_F(CudaPrograms, AnUnknownProgramIsNamedBesideTheKnownOnes) {
  const auto device = device_backend();
  const ScalarProgram unknown{
      .name = "test.add", .function = [](StepState&, const std::byte*) {}, .parameters = {}};
  Tensor step = device->make_step_state({});
  const std::string words = refusal([&] { device->run(unknown, step); });
  EXPECT_THAT(words,
              HasSubstr("run: the device has no program \"test.add\"; it has scaler.clear_found_inf, "));
  for (const amp::PolicyDescription& policy : amp::scale_policies())
    EXPECT_THAT(words, HasSubstr(amp::make_scale_policy({.policy = std::string(policy.name)}).update.name));
}

TEST_F(CudaPrograms, TheParametersOfTheCallAreCopied) {
  const auto device = device_backend();
  Tensor step = device->make_step_state({});
  ScalarProgram program = scalar_program("optimizer.advance_steps", &optim::advance_steps_program,
                                         optim::AdvanceSteps{.optimizer = 5, .beta1 = 0.5f, .beta2 = 0.25f});
  const auto recorded = device->record([&] { device->run(program, step); });
  program.parameters = {};  // a replay has none of them
  recorded->replay();
  recorded->replay();
  StepState expected;
  expected.taken_steps[5] = 2;
  expected.beta1_power[5] = 0.25;
  expected.beta2_power[5] = 0.0625;
  EXPECT_EQ(bytes_of(device->read_step_state(step)), bytes_of(expected));
}

}  // namespace
}  // namespace fp16lab::engine::test
