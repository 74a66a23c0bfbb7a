// Recording and replay, on every back end that records (Backend::record).
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "engine/backend/emulated/emulated_backend.hpp"
#include "numerics/random/philox.hpp"
#include "tests/engine/backend/conformance.hpp"
#include "tests/engine/backend/on_backend.hpp"
#include "tests/support/message_of.hpp"

namespace fp16lab::engine::test {
namespace {

using testing_support::message_of;

constexpr std::int64_t size = 1000;

std::vector<float> uniform(std::uint64_t seed) {
  const PhiloxStream words{.seed = seed};
  std::vector<float> values;
  for (std::uint64_t i = 0; i < size; ++i) values.push_back(uniform01(words.word(i)) - 0.25f);
  return values;
}

/// x = x / 3 + tanh(x) where a mask of this iteration says so, by way of scratch memory that is given back.
void step_forward(Backend& backend, Tensor& x, const Tensor& step) {
  Tensor mask = backend.empty(x.shape(), DType::f32), grown = backend.empty(x.shape(), DType::f32);
  backend.fill_bernoulli(mask, {.seed = 3, .stream = 4}, 0.75f, step);
  backend.unary(UnaryOp::tanh, x, grown);
  backend.binary(BinaryOp::multiply, grown, mask, grown);
  backend.divide(x, 3.0f, x);
  backend.binary(BinaryOp::add, x, grown, x);
}

class BackendRecording : public BackendConformance {
 protected:
  /// A StepState of so many iterations.
  void write_iteration(std::uint64_t iteration, Tensor& step) {
    StepState state{};
    state.iteration = iteration;
    backend().write_step_state(state, step);
  }
  std::vector<float> floats(const Tensor& x) { return values_of<float>(x); }
};

TEST_P(BackendRecording, ReplayGivesTheBitsOfCallingAgain) {
  Tensor step = backend().make_step_state({});
  Tensor called = tensor(uniform(1)), replayed = tensor(uniform(1));
  const std::vector<float> begin = floats(replayed);
  ASSERT_TRUE(backend().records());
  const std::unique_ptr<Recording> recording =
      backend().record([&] { step_forward(backend(), replayed, step); });
  EXPECT_EQ(floats(replayed), begin) << "recorded, not done";
  for (std::uint64_t iteration = 0; iteration < 4; ++iteration) {
    write_iteration(iteration, step);
    step_forward(backend(), called, step);
    // Scratch memory that the recording gave back: it may hold anything between two replays.
    Tensor garbage = backend().empty(Shape{size}, DType::f32);
    backend().fill(garbage, 1e30);
    recording->replay();
    EXPECT_EQ(floats(replayed), floats(called)) << "iteration " << iteration;
    EXPECT_NE(floats(replayed), begin);
  }
}

TEST_P(BackendRecording, ReplayDrawsANewMaskInEachIteration) {
  Tensor step = backend().make_step_state({});
  Tensor mask = tensor(uniform(1));
  const auto recording = backend().record([&] { backend().fill_bernoulli(mask, {.seed = 1}, 0.5f, step); });
  const auto mask_of = [&](std::uint64_t iteration) {
    write_iteration(iteration, step);
    recording->replay();
    return floats(mask);
  };
  const std::vector<float> first = mask_of(1);
  EXPECT_NE(mask_of(2), first);
  EXPECT_EQ(mask_of(1), first);
  EXPECT_EQ(mask_of((std::uint64_t{1} << 32) + 1), first) << "the low 32 bits count";
}

TEST_P(BackendRecording, RefusesVerbsThatMeetTheHost) {
  Tensor x = tensor(uniform(1)), step = backend().make_step_state({});
  std::vector<std::byte> bytes(x.byte_count());
  ExponentHistogram histogram;
  CastProbe probe;
  backend().histogram(x, probe);
  CastProbe* const probes[] = {&probe};
  const DigestItem items[] = {{x, 1}};
  const std::vector<std::pair<std::string, std::function<void()>>> calls{
      {"upload", [&] { backend().upload(bytes, x); }},
      {"download", [&] { backend().download(x, bytes); }},
      {"read_step_state", [&] { backend().read_step_state(step); }},
      {"write_step_state", [&] { backend().write_step_state({}, step); }},
      {"histogram", [&] { backend().histogram(x, histogram); }},
      {"settle", [&] { backend().settle(probes); }},
      {"digest", [&] { backend().digest(x, 1); }},
      {"digest", [&] { backend().digest(items); }},
      {"milliseconds", [&] { backend().milliseconds([] {}); }},
      {"record", [&] { backend().record([] {}); }}};
  const std::vector<float> before = floats(x);
  for (const auto& [verb, call] : calls) {
    SCOPED_TRACE(verb);
    const auto recorded = [&, &body = call] { backend().record(body); };
    EXPECT_THROW(recorded(), std::logic_error);
    EXPECT_EQ(message_of(recorded).find(verb + ": "), 0u) << message_of(recorded);
    EXPECT_EQ(floats(x), before) << "the recording is over, and nothing of it was done";
  }
}

TEST_P(BackendRecording, AFailedOneIsGivenUp) {
  Tensor x = tensor(uniform(1));
  const std::vector<float> before = floats(x);
  const auto failing = [&] {
    backend().scale(x, 2.0f, x);
    throw std::runtime_error("the work failed");
  };
  EXPECT_EQ(message_of([&] { backend().record(failing); }), "the work failed");
  EXPECT_EQ(floats(x), before);
  backend().scale(x, 1.0f, x);
  EXPECT_EQ(floats(x), before);
}

// A replay writes wherever its recording did. No other tensor may have got that memory in the meantime.
TEST_P(BackendRecording, HasItsMemoryForItself) {
  const Shape shape{300};
  Tensor before = backend().empty(shape, DType::f32), result = backend().empty(shape, DType::f32);
  const auto recording = backend().record([&] {
    backend().fill(before, 5.0);
    before = {};  // given back while it is recorded
    Tensor inside = backend().empty(shape, DType::f32);
    backend().fill(inside, 7.0);
    backend().copy(inside, result);
  });
  std::vector<Tensor> others(3);
  for (Tensor& other : others) {
    other = backend().empty(shape, DType::f32);
    backend().fill(other, 1.0);
  }
  recording->replay();
  const std::vector<float> ones(300, 1.0f), sevens(300, 7.0f), nines(300, 9.0f);
  for (const Tensor& other : others) EXPECT_EQ(floats(other), ones);
  EXPECT_EQ(floats(result), sevens);
  // Another recording may have it: between replays it holds nothing.
  const std::uint64_t taken = backend().memory_statistics().system_allocations;
  const auto second = backend().record([&] {
    Tensor inside = backend().empty(shape, DType::f32);
    backend().fill(inside, 9.0);
    backend().copy(inside, result);
  });
  EXPECT_EQ(backend().memory_statistics().system_allocations, taken);
  second->replay();
  EXPECT_EQ(floats(result), nines);
}

/// Memory that the work gives back serves its later verbs: ten tensors in a row take the blocks of two.
TEST_P(BackendRecording, NeedsNoMoreMemoryThanTheWork) {
  const Tensor x = tensor(uniform(1));
  const std::size_t before = backend().memory_statistics().bytes_in_use;
  std::size_t most = 0;
  const auto recording = backend().record([&] {
    Tensor y = x;
    for (int i = 0; i < 10; ++i) {
      Tensor next = backend().empty(x.shape(), DType::f32);
      backend().scale(y, 2.0f, next);
      y = next;
      most = std::max(most, backend().memory_statistics().bytes_in_use - before);
    }
  });
  EXPECT_LE(most, 2 * 4096u);
  EXPECT_EQ(backend().memory_statistics().bytes_in_use, before);
}

INSTANTIATE_TEST_SUITE_P(All, BackendRecording, testing::ValuesIn(backend_factories()),
                         [](const auto& factory) { return factory.param.name; });

/// Results that saturate, and the status that says so, are part of the verbs that are recorded.
TEST(SaturatingRecording, SaturatesAndSetsTheStatusInEveryReplay) {
  const auto backend = make_emulated_backend("hopper", DType::f32, 1, FloatOverflow::saturate);
  Tensor x = uploaded(*backend, {2}, std::vector<float>{1e6f, 1.0f}), low = backend->empty({2}, DType::f16);
  Tensor step = backend->make_step_state({});
  const auto recording = backend->record([&] {
    std::vector<Tensor> none;
    const ScalarProgram begins{.name = "train.begin_iteration",
                               .function = [](StepState& state, const std::byte*) { state.found_inf = {}; }};
    backend->run(begins, step);
    backend->cast(x, low);
    backend->unscale(none, 0, step);
  });
  const auto replayed = [&](float first) {
    const std::vector<float> values{first, 1.0f};
    backend->upload(std::as_bytes(std::span(values)), x);
    recording->replay();
    return std::pair(widen(downloaded<Float16>(*backend, low)[0]),
                     backend->read_step_state(step).found_inf[0]);
  };
  EXPECT_EQ(replayed(1e6f), std::pair(65504.0f, 1.0f));
  EXPECT_EQ(replayed(2.0f), std::pair(2.0f, 0.0f));
  EXPECT_EQ(replayed(-1e6f), std::pair(-65504.0f, 1.0f));
}

}  // namespace
}  // namespace fp16lab::engine::test
