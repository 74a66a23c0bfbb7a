// ops::watch: the gradient of an activation is shown with the rounding that produced it, so that underflow
// counts as underflow and not as exact zeros; and looking changes no bits.
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/autograd/counting.hpp"
#include "tests/engine/autograd/support.hpp"

namespace fp16lab::engine::test {
namespace {

struct Seen {
  std::string name;
  DType dtype;
  CastProbe probe;
};
struct Recorder final : Tap {
  void see(const Event& event) override {
    if (const auto* counted = event.as<CountedTensor>(); counted != nullptr && !counted->intermediate)
      seen.push_back({std::string(counted->name), counted->dtype, counted->probe});
  }
  std::vector<Seen> seen;
};

using Consumer = std::function<Variable(Tape&, const Variable&)>;

struct Watched {
  std::vector<Seen> seen;
  std::vector<std::byte> gradient;  ///< that of x, as stored
};

/// x (4, f16) = 2 -> watch -> consumer -> sum * 2^-20, backward with or without an observer.
Watched watch(const Consumer& consumer, bool observed) {
  const auto backend = hopper_backend();
  Tape tape(*backend);
  Recorder recorder;
  std::optional<CountingGuard> counted;
  if (observed) counted.emplace(tape, recorder);
  const Variable x = tape.input(halves_of(*backend, {4}, {2.0f, 2.0f, 2.0f, 2.0f}));
  Variable watched;
  {
    const ScopeGuard scope(tape, "here");
    watched = ops::watch(x, SlotLabel::input);
  }
  const Variable y = ops::sum(ops::cast(consumer(tape, watched), DType::f32));
  Tensor seed = backend->empty(y.shape(), DType::f32);
  backend->fill(seed, 0x1p-20);
  const auto gradients = tape.gradients(std::vector{y}, std::vector{seed}, std::vector{x});
  return {recorder.seen, bytes_of(*backend, gradients[0].tensor())};
}

/// 2^-10 with the seed 2^-20 makes 2^-30, which FP16 rounds to zero.
Variable tiny(Tape& tape) {
  return tape.constant(halves_of(tape.backend(), {4}, {0x1p-10f, 0x1p-10f, 0x1p-10f, 1.0f}));
}

const std::vector<std::pair<std::string, Consumer>>& consumers() {
  static const std::vector<std::pair<std::string, Consumer>> all = {
      {"multiply", [](Tape& tape, const Variable& x) { return ops::multiply(x, tiny(tape)); }},
      {"divide",
       [](Tape& tape, const Variable& x) {
         return ops::divide(x,
                            tape.constant(halves_of(tape.backend(), {4}, {1024.0f, 1024.0f, 1024.0f, 1.0f})));
       }},
      {"cast",
       [](Tape& tape, const Variable& x) {
         return ops::multiply(ops::cast(x, DType::f32), ops::cast(tiny(tape), DType::f32));
       }},
  };
  return all;
}

TEST(Watch, SeesTheUnderflowOfTheOperationThatProducedTheGradient) {
  for (const auto& [name, consumer] : consumers()) {
    const Watched watched = watch(consumer, true);
    ASSERT_EQ(watched.seen.size(), 1u) << name;
    const Seen& seen = watched.seen[0];
    EXPECT_EQ(seen.name, "here.input");
    EXPECT_EQ(seen.dtype, DType::f16);
    // (2^-31, 2^-30] holds 2^-30.
    EXPECT_EQ(seen.probe.before.at(-31), 3u) << name;
    EXPECT_EQ(seen.probe.before.at(-21), 1u) << name;
    EXPECT_EQ(seen.probe.before.total(), 4u) << name;
    EXPECT_EQ(seen.probe.after.zero, 3u) << name;
    EXPECT_EQ(seen.probe.after.at(-21), 1u) << name;
  }
}

TEST(Watch, SeesTheUnderflowOfScaling) {
  const std::vector<std::pair<std::string, Consumer>> scalings = {
      {"scale", [](Tape&, const Variable& x) { return ops::scale(x, 0x1p-10f); }},
      {"divide_constant", [](Tape&, const Variable& x) { return ops::divide_constant(x, 1024.0f); }}};
  for (const auto& [name, consumer] : scalings) {
    const Watched watched = watch(consumer, true);
    ASSERT_EQ(watched.seen.size(), 1u) << name;
    EXPECT_EQ(watched.seen[0].probe.before.at(-31), 4u) << name;
    EXPECT_EQ(watched.seen[0].probe.after.zero, 4u) << name;
  }
}

TEST(Watch, LookingChangesNoBits) {
  for (const auto& [name, consumer] : consumers())
    EXPECT_EQ(watch(consumer, true).gradient, watch(consumer, false).gradient) << name;
}

/// Two operations give a part each: their sum is what is stored, and what is shown.
TEST(Watch, ShowsASumOfContributionsAsStored) {
  const Watched watched =
      watch([](Tape& tape, const Variable& x) { return ops::add(ops::multiply(x, tiny(tape)), x); }, true);
  ASSERT_EQ(watched.seen.size(), 1u);
  const CastProbe& probe = watched.seen[0].probe;
  EXPECT_EQ(probe.before, probe.after);
  EXPECT_EQ(probe.before.zero, 0u);
  EXPECT_EQ(probe.before.at(-21), 3u);  // 2^-20 + 0
  EXPECT_EQ(probe.before.at(-20), 1u);  // 2^-20 + 2^-20
}

}  // namespace
}  // namespace fp16lab::engine::test
