// Memory of the tape: what a backward pass releases, what the next step reuses, and the lifetimes of
// captures.
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/autograd/counting.hpp"
#include "engine/backend/emulated/backend_impl.hpp"
#include "engine/backend/emulated/emulated_backend.hpp"
#include "tests/engine/autograd/support.hpp"

namespace fp16lab::engine::test {
namespace {

constexpr std::int64_t chain_elements = 1 << 14;
constexpr std::size_t chain_bytes = chain_elements * sizeof(float);

/// A chain of `depth` products with a parameter each. Returns the peak of the backward pass above what was in
/// use before the first forward operation, in tensors.
struct ChainMemory {
  double peak = 0;
  double after = 0;
  std::vector<double> on_the_way;  ///< in use each time that a gradient is observed
};
ChainMemory chain_memory(int depth, bool retain_graph) {
  EmulatedBackend backend(tensor_core_model("hopper"), 1);
  const auto tensors = [&](std::size_t bytes) { return static_cast<double>(bytes) / chain_bytes; };
  Tape tape(backend);
  std::vector<std::unique_ptr<Parameter>> weights;
  for (int i = 0; i < depth; ++i) {
    Tensor ones = backend.empty({chain_elements}, DType::f32);
    backend.fill(ones, 1.0);
    weights.push_back(std::make_unique<Parameter>("w" + std::to_string(i), ones));
  }
  struct Watcher final : Tap {
    explicit Watcher(EmulatedBackend& watched) : backend(watched) {}
    void see(const Event& event) override {
      if (const auto* counted = event.as<CountedTensor>(); counted != nullptr && !counted->intermediate)
        seen.push_back(backend.memory_statistics().bytes_in_use);
    }
    EmulatedBackend& backend;
    std::vector<std::size_t> seen;
  } watcher(backend);
  const CountingGuard counted(tape, watcher);
  const std::size_t before = backend.memory_statistics().bytes_in_use;
  Variable x = tape.parameter(*weights.front());
  for (int i = 1; i < depth; ++i)
    x = ops::watch(ops::multiply(x, tape.parameter(*weights[static_cast<std::size_t>(i)])), SlotLabel::input);
  tape.backward(ops::sum(x), {.retain_graph = retain_graph});
  ChainMemory memory;
  memory.peak = tensors(backend.memory_statistics().peak_bytes_in_use - before);
  memory.after = tensors(backend.memory_statistics().bytes_in_use - before);
  for (const std::size_t bytes : watcher.seen) memory.on_the_way.push_back(tensors(bytes - before));
  return memory;
}

TEST(BackwardMemory, IsReleasedAsThePassGoes) {
  constexpr int depth = 64;
  const ChainMemory released = chain_memory(depth, false), retained = chain_memory(depth, true);
  // Forward: depth - 1 values. The pass turns one value into one gradient of a parameter, node by node, so
  // the number of live tensors hardly changes: above the values only the cotangent, its successor and the two
  // products of one node, and scalars.
  EXPECT_LE(released.peak, depth - 1 + 5);
  for (std::size_t i = 0; i < released.on_the_way.size(); ++i)
    EXPECT_LE(released.on_the_way[i], depth - 1 + 4) << "node " << i << " from the end";
  // With retain_graph the values stay beside the gradients.
  EXPECT_GE(retained.peak, 2 * depth - 1);
  EXPECT_GE(retained.after, 2 * depth - 1);
  // What remains: the gradients of all parameters and scalars.
  EXPECT_LE(released.after, depth + 1);
}

TEST(BackwardMemory, OfAStepIsReusedByTheNext) {
  EmulatedBackend backend(tensor_core_model("hopper"), 1);
  Tape tape(backend);
  Tensor values = backend.empty({256}, DType::f32);
  backend.fill(values, 0.5);
  Parameter weight("w", values);
  std::uint64_t warm = 0;
  for (int step = 0; step < 6; ++step) {
    const Variable w = tape.parameter(weight);
    tape.backward(ops::mean(ops::gelu(ops::multiply(w, w))));
    tape.reset();
    if (step == 1) warm = backend.memory_statistics().system_allocations;
  }
  EXPECT_EQ(backend.memory_statistics().system_allocations, warm);
}

// The gradient of a low view goes to its f32 master as it is. Where the same master is seen in another dtype
// too, both contributions are added in FP32 and narrowed once: 2^-24 + 2^-25 is a tie of FP16 subnormals, and
// goes to 2^-23. 2^-25 alone would go to 0.
TEST(BackwardMemory, OfALowViewMeetsAWideContribution) {
  const auto owner = make_emulated_backend(tensor_core_model("hopper"), 1);
  Backend& backend = *owner;
  Tape tape(backend);
  Parameter weight("w", tensor_of(backend, {2}, {1, 2}));
  weight.dtypes.gradient = DType::f16;
  const auto times = [&](DType dtype, const std::vector<float>& factors) {
    weight.dtypes.model = dtype;
    const Variable view = tape.parameter(weight);
    EXPECT_EQ(view.dtype(), dtype);
    Tensor low = backend.empty({2}, dtype);
    backend.cast(tensor_of(backend, {2}, factors), low);
    return ops::sum(ops::cast(ops::multiply(view, tape.constant(low)), DType::f32));
  };
  const Variable first = times(DType::bf16, {0x1p-8f, 0x1p-25f});  // visited last
  tape.backward(ops::add(first, times(DType::f16, {1 + 0x1p-9f, 0x1p-24f})));
  ASSERT_EQ(weight.gradient.dtype(), DType::f16);
  Tensor wide = backend.empty({2}, DType::f32);
  backend.cast(weight.gradient, wide);
  EXPECT_EQ(values_of(backend, wide), (std::vector<float>{1 + 0x1p-9f + 0x1p-8f, 0x1p-23f}));
}

// Both gradients of a sum are the cotangent itself: parameters get memory of their own, and a later pass adds
// to one without changing the other.
TEST(BackwardMemory, OfACotangentThatTwoParametersShareIsCopied) {
  EmulatedBackend backend(tensor_core_model("hopper"), 1);
  Tape tape(backend);
  Parameter a("a", tensor_of(backend, {2}, {1, 2})), b("b", tensor_of(backend, {2}, {3, 4}));
  const Tensor seed = tensor_of(backend, {2}, {5, 6});
  tape.backward(ops::add(tape.parameter(a), tape.parameter(b)), seed);
  EXPECT_NE(a.gradient.data(), b.gradient.data());
  EXPECT_NE(a.gradient.data(), seed.data());
  tape.reset();
  tape.backward(ops::negate(tape.parameter(a)), seed);
  EXPECT_EQ(values_of(backend, a.gradient), (std::vector<float>{0, 0}));
  EXPECT_EQ(values_of(backend, b.gradient), (std::vector<float>{5, 6}));
  EXPECT_EQ(values_of(backend, seed), (std::vector<float>{5, 6}));
  // x + x + x: the second contribution must not be written over the cotangent that the third still is.
  Parameter x("x", tensor_of(backend, {2}, {1, 2}));
  tape.reset();
  const Variable v = tape.parameter(x);
  tape.backward(ops::add(ops::add(v, v), v), seed);
  EXPECT_EQ(values_of(backend, x.gradient), (std::vector<float>{15, 18}));
  EXPECT_EQ(values_of(backend, seed), (std::vector<float>{5, 6}));
}

// ---- vjps as values -----------------------------------------------------------------------------

TEST(VjpObject, CopiesAndMovesWhatItCaptures) {
  EmulatedBackend backend(tensor_core_model("hopper"), 1);
  const auto in_use = [&] { return backend.memory_statistics().bytes_in_use; };
  Tape tape(backend);
  const Variable g = tape.constant(tensor_of(backend, {2}, {1, 2}));
  const std::size_t before = in_use();
  {
    Vjp original;
    EXPECT_FALSE(original);
    {
      const Tensor factor = tensor_of(backend, {2}, {10, 100});
      original = [factor](const Variable& cotangent, const Variable&) {
        return ops::multiply(cotangent, cotangent.tape().constant(factor));
      };
    }
    const std::size_t with_factor = in_use();
    EXPECT_GT(with_factor, before) << "the capture keeps the tensor alive";
    const auto expect_works = [&](const Vjp& vjp) {
      ASSERT_TRUE(vjp);
      EXPECT_EQ(values_of(backend, vjp(g, g).tensor()), (std::vector<float>{10, 200}));
    };
    expect_works(original);
    Vjp copy = original;
    Vjp moved = std::move(original);
    EXPECT_FALSE(original);  // NOLINT(bugprone-use-after-move): moved-from is empty, by contract
    expect_works(copy);
    expect_works(moved);
    copy = moved;
    moved = {};
    expect_works(copy);
    Vjp& same = copy;
    copy = same;
    expect_works(copy);
    copy = std::move(same);
    expect_works(copy);
    std::vector<Vjp> many(1, copy);
    for (int i = 0; i < 100; ++i) many.push_back(many.front());
    copy = {};
    for (const Vjp& vjp : many) expect_works(vjp);
    tape.reset();
    EXPECT_THROW(copy(g, g), std::logic_error) << "an empty one";
  }
  tape.reset();
  EXPECT_LE(in_use(), before) << "every share of the tensor was given back";
}

}  // namespace
}  // namespace fp16lab::engine::test
