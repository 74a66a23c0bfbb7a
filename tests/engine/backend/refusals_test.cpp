// What the verbs refuse, and in which words. The checks precede every back end, so that one back end is
// enough. The table below generates what a signature asks of every operand; what a geometry, an axis or a
// number must be is a row of its own.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "engine/backend/emulated/emulated_backend.hpp"
#include "engine/tensor/storage.hpp"
#include "tests/engine/backend/conformance.hpp"

namespace fp16lab::engine::test {
namespace {

enum class Takes { f, same, f32_or_same, f32, i32, any_same };
enum class Access { read, written, in_place };

struct Slot {
  const char* name;
  Shape shape;
  Takes takes = Takes::same;
  Access access = Access::read;
  int asked = -1;  ///< an axis whose extent the call says
};
using Operands = std::vector<Tensor>;

/// A verb, its operands, of which the first one is that to which `same` refers, and a call that is right.
struct Signature {
  std::string verb;
  std::vector<Slot> slots;
  std::function<void(Backend&, Operands&)> call;
};

/// A rule's weight, gradient and states, with options by which it uses all of them.
Signature signature_of(UpdateRule rule) {
  const UpdateRuleInfo& info = info_of(rule);
  std::vector<Slot> slots{{"weight", {4}, Takes::f, Access::written}, {"gradient", {4}, Takes::f}};
  for (const std::string_view state : info.states)
    slots.push_back({state.data(), {4}, Takes::f32, Access::written});
  return {std::string(info.name), slots, [rule](Backend& backend, Operands& x) {
            const Tensor step = backend.make_step_state({});
            std::array<Tensor*, most_update_states> states{};
            for (std::size_t i = 2; i < x.size(); ++i) states[i - 2] = &x[i];
            backend.update({.rule = rule,
                            .options = {.momentum = 0.5f, .centered = true},
                            .weight = x[0],
                            .gradient = x[1],
                            .states = states,
                            .optimizer = 0,
                            .step = step,
                            .norms = {&step, &step}});
          }};
}

std::vector<Signature> signatures() {
  using B = Backend;
  constexpr Access written = Access::written, in_place = Access::in_place;
  const Shape image{2, 3, 6, 8}, windows{2, 3, 3, 4}, weight{4, 3, 3, 3}, convolved{2, 4, 4, 6};
  std::vector<Signature> all;
  const auto add = [&](const std::string& verb, std::vector<Slot> slots,
                       std::function<void(B&, Operands&)> call) {
    all.push_back({verb, std::move(slots), std::move(call)});
  };
  for (const UnaryOp op : all_kernels<UnaryOp>())
    add(kernel_name(op), {{"x", {4}, Takes::f}, {"out", {4}, Takes::same, in_place}},
        [op](B& b, Operands& x) { b.unary(op, x[0], x[1]); });
  for (const BinaryOp op : all_kernels<BinaryOp>()) {
    add(kernel_name(op), {{"a", {2, 3}, Takes::f}, {"b", {3}}, {"out", {2, 3}, Takes::same, in_place}},
        [op](B& b, Operands& x) { b.binary(op, x[0], x[1], x[2]); });
    add(kernel_name(op), {{"x", {4}, Takes::f}, {"out", {4}, Takes::same, in_place}},
        [op](B& b, Operands& x) { b.binary(op, x[0], 2.0f, x[1]); });
  }
  for (const UpdateRule rule : cases::all_update_rules) all.push_back(signature_of(rule));
  add("copy", {{"x", {4}, Takes::any_same}, {"out", {4}, Takes::any_same, in_place}},
      [](B& b, Operands& x) { b.copy(x[0], x[1]); });
  add("permute", {{"x", {2, 3}, Takes::any_same}, {"out", {3, 2}, Takes::any_same, written}},
      [](B& b, Operands& x) {
        b.permute(x[0], std::array{1, 0}, x[1]);
      });
  add("slice", {{"x", {2, 3}, Takes::any_same}, {"out", {1, 3}, Takes::any_same, written}},
      [](B& b, Operands& x) { b.slice(x[0], 0, 1, x[1]); });
  add("insert", {{"out", {2, 3}, Takes::any_same, written}, {"x", {1, 3}, Takes::any_same}},
      [](B& b, Operands& x) { b.insert(x[1], 0, 1, x[0]); });
  add("cast", {{"x", {4}, Takes::f}, {"out", {4}, Takes::f, written}},
      [](B& b, Operands& x) { b.cast(x[0], x[1]); });
  add("cast_stochastic", {{"x", {4}, Takes::f32}, {"out", {4}, Takes::f, written}},
      [](B& b, Operands& x) { b.cast_stochastic(x[0], x[1], {}, b.make_step_state({})); });
  add("reduce", {{"x", {2, 3}, Takes::f}, {"out", {3}, Takes::same, written}},
      [](B& b, Operands& x) { b.reduce(ReduceOp::sum, x[0], 0, x[1]); });
  const Slot index{"index", {2}, Takes::i32};
  add("pick", {{"x", {2, 3}, Takes::f, Access::read, 0}, index, {"out", {2}, Takes::same, written}},
      [](B& b, Operands& x) { b.pick(x[0], x[1], x[2]); });
  add("place", {{"out", {2, 3}, Takes::f, written, 0}, index, {"x", {2}}},
      [](B& b, Operands& x) { b.place(x[2], x[1], x[0]); });
  add("gather_rows", {{"table", {5, 3}, Takes::f}, index, {"out", {2, 3}, Takes::same, written}},
      [](B& b, Operands& x) { b.gather_rows(x[0], x[1], x[2]); });
  add("scatter_rows", {{"out", {5, 3}, Takes::f, written}, index, {"x", {2, 3}}},
      [](B& b, Operands& x) { b.scatter_rows(x[2], x[1], x[0]); });
  add("gemm",
      {{"a", {2, 3}, Takes::f},
       {"b", {3, 4}},
       {"out", {2, 4}, Takes::f32_or_same, written},
       {"bias", {4}, Takes::f32_or_same},
       {"addend", {2, 4}, Takes::f32_or_same}},
      [](B& b, Operands& x) { b.gemm({.a = x[0], .b = x[1], .out = x[2], .bias = &x[3], .addend = &x[4]}); });
  add("conv2d",
      {{"x", image, Takes::f},
       {"weight", weight},
       {"out", convolved, Takes::f32_or_same, written},
       {"bias", {4}, Takes::f32_or_same}},
      [](B& b, Operands& x) { b.conv2d(x[0], x[1], {}, &x[3], x[2]); });
  add("conv2d_input_gradient",
      {{"gradient", convolved, Takes::f},
       {"weight", weight},
       {"out", image, Takes::f32_or_same, written},
       {"bias", {3}, Takes::f32_or_same}},
      [](B& b, Operands& x) { b.conv2d_input_gradient(x[0], x[1], {}, &x[3], x[2]); });
  add("conv2d_weight_gradient",
      {{"x", image, Takes::f}, {"gradient", convolved}, {"out", weight, Takes::f32_or_same, written}},
      [](B& b, Operands& x) { b.conv2d_weight_gradient(x[0], x[1], {}, x[2]); });
  const Slot places{"index", windows, Takes::i32};
  add("max_pool2d",
      {{"x", image, Takes::f},
       {"out", windows, Takes::same, written},
       {"index", windows, Takes::i32, written}},
      [](B& b, Operands& x) { b.max_pool2d(x[0], {}, x[1], x[2]); });
  add("pool_pick", {{"x", image, Takes::f, Access::read, 0}, places, {"out", windows, Takes::same, written}},
      [](B& b, Operands& x) { b.pool_pick(x[0], x[1], Layout::nchw, x[2]); });
  add("pool_place", {{"out", image, Takes::f, written, 0}, places, {"x", windows}},
      [](B& b, Operands& x) { b.pool_place(x[2], x[1], Layout::nchw, x[0]); });
  add("average_pool2d", {{"x", image, Takes::f}, {"out", windows, Takes::same, written}},
      [](B& b, Operands& x) { b.average_pool2d(x[0], {}, x[1]); });
  add("average_pool2d_transposed", {{"out", image, Takes::f, written}, {"x", windows}},
      [](B& b, Operands& x) { b.average_pool2d_transposed(x[1], {}, x[0]); });
  add("lstm_cell",
      {{"cells", {6, 5}, Takes::f, written},
       {"products", {6, 20}},
       {"recurrent", {2, 20}},
       {"gates", {6, 20}, Takes::same, written},
       {"outputs", {6, 5}, Takes::same, written},
       {"hidden", {2, 5}, Takes::same, written}},
      [](B& b, Operands& x) {
        b.lstm_cell({.step = 1,
                     .products = x[1],
                     .recurrent = x[2],
                     .gates = x[3],
                     .cells = x[0],
                     .outputs = x[4],
                     .hidden = x[5]});
      });
  add("lstm_cell_gradient",
      {{"cells", {6, 5}, Takes::f},
       {"gates", {6, 20}},
       {"gradient", {6, 5}},
       {"hidden_gradient", {2, 5}},
       {"cell_gradient", {2, 5}},
       {"gate_gradients", {6, 20}, Takes::f32_or_same, written},
       {"step_gradients", {2, 20}, Takes::f32_or_same, written}},
      [](B& b, Operands& x) {
        b.lstm_cell_gradient({.step = 1,
                              .gates = x[1],
                              .cells = x[0],
                              .gradient = x[2],
                              .hidden_gradient = &x[3],
                              .cell_gradient = &x[4],
                              .gate_gradients = x[5],
                              .step_gradients = x[6],
                              .previous_cell_gradient = nullptr});
      });
  add("count_update", {{"before", {4}, Takes::f32}, {"weight", {4}, Takes::f}, {"gradient", {4}, Takes::f}},
      [](B& b, Operands& x) {
        UpdateProbes probes;
        b.count_update(x[0], x[1], x[2], probes);
      });
  add("histogram", {{"x", {4}, Takes::f}}, [](B& b, Operands& x) {
    ExponentHistogram counts;
    b.histogram(x[0], counts);
  });
  add("digest", {{"x", {4}, Takes::any_same}}, [](B& b, Operands& x) { (void)b.digest(x[0], 1); });
  add("fill_uniform", {{"out", {4}, Takes::f32}},
      [](B& b, Operands& x) { b.fill_uniform(x[0], {}, 0.0f, 1.0f); });
  add("fill_normal", {{"out", {4}, Takes::f32}}, [](B& b, Operands& x) { b.fill_normal(x[0], {}, 0, 1); });
  add("fill_bernoulli", {{"out", {4}, Takes::f}},
      [](B& b, Operands& x) { b.fill_bernoulli(x[0], {}, 0.5f, b.make_step_state({})); });
  const Slot gradient{"gradient 0", {4}, Takes::f};
  add("unscale", {gradient}, [](B& b, Operands& x) {
    Tensor step = b.make_step_state({});
    b.unscale(x, 0, step);
  });
  add("global_norm", {gradient}, [](B& b, Operands& x) {
    Tensor step = b.make_step_state({});
    b.global_norm(x, step);
  });
  add("clip_by_norm", {gradient}, [](B& b, Operands& x) {
    Tensor step = b.make_step_state({});
    b.clip_by_norm(x, 1.0, step);
  });
  add("clip_by_value", {gradient}, [](B& b, Operands& x) { b.clip_by_value(x, 1.0f); });
  return all;
}

class Refusals : public testing::Test {
 protected:
  Tensor zeros(const Shape& shape, DType dtype = DType::f32) {
    Tensor x = backend->empty(shape, dtype);
    backend->fill(x, 0.0);
    return x;
  }
  static DType dtype_of(const Slot& slot) {
    return slot.takes == Takes::i32 ? DType::i32 : slot.takes == Takes::f32 ? DType::f32 : DType::f16;
  }
  Operands operands_of(const Signature& one) {
    Operands operands;
    for (const Slot& slot : one.slots) operands.push_back(zeros(slot.shape, dtype_of(slot)));
    return operands;
  }
  /// The error of the call where operand `at` is another tensor.
  std::string refused(const Signature& one, std::size_t at, const Tensor& other) {
    Operands operands = operands_of(one);
    operands[at] = other;
    return refusal([&] { one.call(*backend, operands); });
  }

  std::unique_ptr<Backend> backend = make_emulated_backend(tensor_core_model("hopper"), 1);
  StoragePool pool{make_host_memory()};
};

TEST_F(Refusals, EveryOperandOfEveryVerbIsAskedForItsDtype) {
  for (const Signature& one : signatures()) {
    SCOPED_TRACE(one.verb);
    Operands right = operands_of(one);
    EXPECT_NO_THROW(one.call(*backend, right));
    for (std::size_t i = 0; i < one.slots.size(); ++i) {
      const Slot& slot = one.slots[i];
      EXPECT_EQ(refused(one, i, {}), fmt::format("{}: {} is an undefined tensor", one.verb, slot.name));
      if (slot.takes != Takes::any_same) {
        const Tensor wrong = zeros(slot.shape, slot.takes == Takes::i32 ? DType::f32 : DType::i32);
        EXPECT_EQ(refused(one, i, wrong),
                  fmt::format("{}: {} is {}; {} is needed", one.verb, slot.name, wrong.describe(),
                              slot.takes == Takes::i32   ? "i32"
                              : slot.takes == Takes::f32 ? "f32"
                                                         : "f32, f16 or bf16"));
      }
      // No verb mixes f16 and bf16.
      if (i == 0 || (slot.takes == Takes::f || slot.takes == Takes::f32 || slot.takes == Takes::i32))
        continue;
      const std::string mixed = refused(one, i, zeros(slot.shape, DType::bf16));
      EXPECT_TRUE(mixed.starts_with(one.verb + ": ") && mixed.ends_with(": their dtypes differ")) << mixed;
    }
  }
}

TEST_F(Refusals, EveryOperandOfEveryVerbIsAskedForItsShape) {
  for (const Signature& one : signatures())
    for (std::size_t i = 0; one.slots.size() > 1 && i < one.slots.size(); ++i) {
      const Slot& slot = one.slots[i];
      std::vector<std::int64_t> extents(slot.shape.extents().begin(), slot.shape.extents().end());
      (slot.asked < 0 ? extents.back() : extents.front()) += 2;
      const std::string words = refused(one, i, zeros(Shape(extents), dtype_of(slot)));
      EXPECT_TRUE(words.starts_with(one.verb + ": ")) << one.verb << ", " << slot.name << ": " << words;
    }
}

TEST_F(Refusals, WhatIsWrittenHasNoByteInCommonWithAnyOther) {
  for (const Signature& one : signatures())
    for (std::size_t i = 0; i < one.slots.size(); ++i)
      for (std::size_t j = 0; j < one.slots.size(); ++j) {
        const Slot &written = one.slots[i], &other = one.slots[j];
        if (written.access == Access::read || i == j) continue;
        Operands operands = operands_of(one);
        const Storage memory = pool.allocate(std::max(operands[i].byte_count(), operands[j].byte_count()));
        for (const std::size_t k : {i, j})
          operands[k] = Tensor(memory, operands[k].shape(), operands[k].dtype());
        const std::string words = refusal([&] { one.call(*backend, operands); });
        if (written.access == Access::in_place && written.shape == other.shape) {
          EXPECT_EQ(words, "accepted") << one.verb;
        } else {
          EXPECT_TRUE(words.starts_with(one.verb + ": ") && words.find(" overlap in memory: ") != words.npos)
              << one.verb << ", " << written.name << ", " << other.name << ": " << words;
        }
      }
}

TEST_F(Refusals, ExtentsThatDoNotFitAreNamed) {
  const Tensor x = zeros({2, 3, 4}), square = zeros({2, 2});
  Tensor out = zeros({2, 4, 3}), part = zeros({2, 2, 4}), four = zeros({4}), five = zeros({5});
  EXPECT_REFUSED("cast: x is f32 (4), out is f32 (5): their shapes differ", backend->cast(four, five));
  EXPECT_REFUSED("cast: x and out overlap in memory: x is f32 (2, 2), out is f32 (2, 2)", [&] {
    Tensor same = square;
    backend->cast(square, same);
  }());
  EXPECT_REFUSED("add: a is f32 (4) does not broadcast to out (5)",
                 backend->binary(BinaryOp::add, four, five, five));
  EXPECT_REFUSED("reduce: x is f32 (2, 2) and has no axis 2",
                 backend->reduce(ReduceOp::sum, square, 2, four));
  EXPECT_REFUSED("reduce: out is f32 (4); it must have 2 elements, as f32 (2, 2) has without axis 0",
                 backend->reduce(ReduceOp::sum, square, 0, four));
  EXPECT_REFUSED("reduce: max over axis 1 of f32 (4, 0), which has no elements",
                 backend->reduce(ReduceOp::max, zeros({4, 0}), 1, four));
  EXPECT_REFUSED("gather_rows: out is f32 (4); it must have 6 elements, 2 rows of 3",
                 backend->gather_rows(zeros({5, 3}), zeros({2}, DType::i32), four));
  EXPECT_REFUSED("upload: 15 host bytes for f32 (4), which has 16",
                 backend->upload(std::vector<std::byte>(15), four));
  EXPECT_REFUSED("permute: axes are (0, 1), not a permutation of the axes of x is f32 (2, 3, 4)",
                 backend->permute(x, std::array{0, 1}, out));
  for (const int last : {1, 3, -1})
    EXPECT_THROW(backend->permute(x, std::array{0, 1, last}, out), std::invalid_argument) << last;
  EXPECT_REFUSED("permute: x is f32 (2, 3, 4) with axes (0, 1, 2) does not give out is f32 (2, 4, 3)",
                 backend->permute(x, std::array{0, 1, 2}, out));
  EXPECT_REFUSED("slice: x is f32 (2, 3, 4) and has no axis 3", backend->slice(x, 3, 0, part));
  for (const std::int64_t begin : {2, -1})
    EXPECT_REFUSED(fmt::format("slice: 2 from {} on, along axis 1, is not inside x is f32 (2, 3, 4)", begin),
                   backend->slice(x, 1, begin, part));
  EXPECT_REFUSED("slice: x is f32 (2, 3, 4), out is f32 (2, 2, 4): their shapes differ on other axes than 0",
                 backend->slice(x, 0, 0, part));
  EXPECT_REFUSED("insert: 3 from 2 on, along axis 1, is not inside out is f32 (2, 4, 3)",
                 backend->insert(zeros({2, 3, 3}), 1, 2, out));
}

TEST_F(Refusals, NumbersThatMeanNothingAreNamed) {
  Tensor x = zeros({4}), integers = zeros({4}, DType::i32), step = backend->make_step_state({});
  for (const double bad : {0.5, 2147483648.0})
    EXPECT_THROW(backend->fill(integers, bad), std::invalid_argument) << bad;
  EXPECT_REFUSED("fill_uniform: [1, 0) is not an interval of finite numbers",
                 backend->fill_uniform(x, {}, 1.0f, 0.0f));
  EXPECT_REFUSED("fill_normal: mean is 0.5 and deviation -1; both must be finite, the deviation >= 0",
                 backend->fill_normal(x, {}, 0.5f, -1.0f));
  for (const float bad : {-0.5f, 1.5f, std::nanf("")})
    EXPECT_REFUSED(fmt::format("fill_bernoulli: keep is {}; a probability in [0, 1] is needed", bad),
                   backend->fill_bernoulli(x, {}, bad, step));
  EXPECT_REFUSED("fill_bernoulli: step is i32 (4); u8 is needed",
                 backend->fill_bernoulli(x, {}, 0.5f, integers));
  EXPECT_REFUSED("fill_scale: step is f32 (4); u8 is needed", backend->fill_scale(x, x));
  std::array<Tensor, 2> gradients{x, integers};
  EXPECT_REFUSED("unscale: gradient 1 is i32 (4); f32, f16 or bf16 is needed",
                 backend->unscale(gradients, 0, step));
  EXPECT_REFUSED("unscale: optimizer 8 is not in [0, 8)",
                 backend->unscale(std::span(gradients).first(1), 8, step));
  for (const float bad : {0.0f, -1.0f, HUGE_VALF, std::nanf("")})
    EXPECT_REFUSED(fmt::format("clip_by_value: max_value is {}; it must be finite and > 0", bad),
                   backend->clip_by_value(std::span(gradients).first(1), bad));
  EXPECT_REFUSED("run: program \"policy.none\" has no function",
                 backend->run({.name = "policy.none", .function = nullptr, .parameters = {}}, step));
  const Tensor gradient = zeros({4});
  EXPECT_REFUSED("sgd_step: gradient_factor is inf; it must be finite",
                 backend->update({.rule = UpdateRule::sgd,
                                  .options = {.gradient_factor = HUGE_VALF},
                                  .weight = x,
                                  .gradient = gradient,
                                  .optimizer = 0,
                                  .step = step}));
}

TEST_F(Refusals, ProductsNameWhatDiffers) {
  const auto gemm = [&](const Tensor& a, const Tensor& b, const Shape& out, bool transpose_b) {
    return refusal([&] {
      Tensor result = zeros(out, a.dtype());
      backend->gemm({.a = a, .b = b, .out = result, .transpose_b = transpose_b});
    });
  };
  const Tensor a = zeros({2, 3, 4}), low = zeros({64, 784}, DType::f16);
  EXPECT_EQ(gemm(a, zeros({3, 4, 5}), {2, 3, 5}, false),
            "gemm: a is f32 (2, 3, 4), b is f32 (3, 4, 5), out is f32 (2, 3, 5): their batch extents differ");
  EXPECT_EQ(gemm(a, zeros({4, 5}), {2, 3, 5}, false),
            "gemm: b is f32 (4, 5), out is f32 (2, 3, 5): their ranks differ");
  EXPECT_EQ(gemm(a, zeros({2, 4, 5}), {2, 5, 3}, false),
            "gemm: a is f32 (2, 3, 4), b is f32 (2, 4, 5): out must be (2, 3, 5), but out is f32 (2, 5, 3)");
  EXPECT_EQ(gemm(zeros({4}), zeros({4}), {1}, false),
            "gemm: out is f32 (1); a matrix, or matrices along one batch axis, is needed");
  EXPECT_EQ(gemm(low, zeros({512, 783}, DType::f16), {64, 512}, true),
            "gemm: a is f16 (64, 784), b is f16 (512, 783) transposed: inner extents 784 and 783 differ");
}

TEST_F(Refusals, ConvolutionsNameWhatDoesNotFit) {
  const auto conv = [&](const Shape& x, const Shape& weight, const Shape& out, const Conv2dGeometry& geometry,
                        const std::string& words) {
    Tensor y = zeros(out);
    EXPECT_REFUSED("conv2d: " + words, backend->conv2d(zeros(x), zeros(weight), geometry, nullptr, y));
  };
  constexpr std::int64_t most = 9223372036854775807;
  const Shape x{2, 3, 8, 9}, w{4, 3, 3, 5}, y{2, 4, 6, 5};
  conv(x, {4, 2, 3, 5}, y, {},
       "x is f32 (2, 3, 8, 9) in NCHW, weight is f32 (4, 2, 3, 5): 3 and 2 channels differ");
  conv(x, w, y, {.layout = Layout::nhwc},
       "x is f32 (2, 3, 8, 9) in NHWC, weight is f32 (4, 3, 3, 5): 9 and 3 channels differ");
  conv(x, {4, 3, 3}, y, {}, "weight is f32 (4, 3, 3); (K, C, R, S) is needed");
  conv({3, 8, 9}, w, y, {}, "x is f32 (3, 8, 9); a 4-d activation in NCHW is needed");
  conv(x, {4, 3, 3, 10}, y, {},
       "a kernel of 10 with dilation 1 does not fit into the horizontal extent 9 with padding 0: x is f32 "
       "(2, 3, 8, 9)");
  conv(
      x, w, y, {.dilation = {4, 1}},
      "a kernel of 3 with dilation 4 does not fit into the vertical extent 8 with padding 0: x is f32 (2, 3, "
      "8, 9)");
  conv(x, w, y, {.stride = {0, 1}}, "the vertical stride is 0; it must be at least 1");
  conv(x, w, y, {.padding = {most, 0}},
       "the vertical padding is 9223372036854775807; it must be at most 2147483647");
  conv(x, w, y, {.dilation = {1, most}},
       "the horizontal dilation is 9223372036854775807; it must be at most 2147483647");
  conv(x, w, y, {.padding = {0, -1}}, "the horizontal padding is -1; it must be at least 0");
  conv(x, w, y, {.padding = {1, 0}},
       "out is f32 (2, 4, 6, 5); in NCHW it must be (2, 4, 8, 5), as x, weight and geometry say");
  conv(x, w, y, {.groups = 0}, "the number of groups is 0; it must be at least 1");
  conv({1, 4, 3, 3}, {6, 1, 3, 3}, y, {.groups = 4},
       "x is f32 (1, 4, 3, 3) in NCHW, weight is f32 (6, 1, 3, 3): 4 groups do not divide 4 input and 6 "
       "output channels");
  conv({1, 6, 3, 3}, {4, 1, 3, 3}, y, {.groups = 4},
       "x is f32 (1, 6, 3, 3) in NCHW, weight is f32 (4, 1, 3, 3): 4 groups do not divide 6 input and 4 "
       "output channels");
  conv({1, 6, 3, 3}, {4, 6, 3, 3}, y, {.groups = 2},
       "x is f32 (1, 6, 3, 3) in NCHW, weight is f32 (4, 6, 3, 3): 6 channels in 2 groups need filters of 3, "
       "not of 6");
  Tensor half = zeros(y, DType::f16), dx = zeros({1, 4, 3, 3}), dw = zeros({4, 4, 3, 3});
  EXPECT_REFUSED("conv2d: x is f32 (2, 3, 8, 9), out is f16 (2, 4, 6, 5): f32 operands give f32",
                 backend->conv2d(zeros(x), zeros(w), {}, nullptr, half));
  const Tensor dy = zeros({1, 4, 1, 1});
  EXPECT_THROW(backend->conv2d_input_gradient(dy, dw, {.groups = 2}, nullptr, dx), std::invalid_argument);
  EXPECT_THROW(backend->conv2d_weight_gradient(dx, dy, {.groups = 2}, dw), std::invalid_argument);
}

TEST_F(Refusals, PoolingNamesWhatDoesNotFit) {
  const Tensor x = zeros({2, 3, 6, 8});
  Tensor out = zeros({2, 3, 3, 4}), index = zeros({2, 3, 3, 4}, DType::i32), wrong = zeros({2, 3, 3, 3});
  const auto pool = [&](const Pool2dGeometry& geometry, Tensor& into) {
    return refusal([&] { backend->max_pool2d(x, geometry, into, index); });
  };
  EXPECT_EQ(
      pool({.kernel = {7, 1}, .stride = {1, 1}}, out),
      "max_pool2d: a kernel of 7 with dilation 1 does not fit into the vertical extent 6 with padding 0: x "
      "is f32 (2, 3, 6, 8)");
  EXPECT_EQ(pool({.kernel = {3, 3}, .padding = {1, 2}}, out),
            "max_pool2d: the horizontal padding is 2; it must be at most half the kernel's 3");
  EXPECT_EQ(pool({.kernel = {2, 0}}, out),
            "max_pool2d: the horizontal kernel extent is 0; it must be at least 1");
  EXPECT_EQ(pool({}, wrong),
            "max_pool2d: out is f32 (2, 3, 3, 3); in NCHW it must be (2, 3, 3, 4), as x and geometry say");
  EXPECT_REFUSED(
      "pool_pick: x is f32 (2, 3, 6, 8), out is f32 (2, 3, 3, 4) in NHWC: their images or channels differ",
      backend->pool_pick(x, index, Layout::nhwc, out));
}

}  // namespace
}  // namespace fp16lab::engine::test
