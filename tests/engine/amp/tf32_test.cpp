// amp.dtype = "tf32": FP32 tensors whose low products round their operands to TF32.
#include <array>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "engine/amp/levels/autocast.hpp"
#include "engine/amp/levels/op_statistics.hpp"
#include "numerics/convert/convert.hpp"
#include "tests/engine/autograd/support.hpp"
#include "tests/support/message_of.hpp"

namespace fp16lab::engine::test {
namespace {

using amp::AmpOptions;
using amp::Autocast;
using amp::AutocastGuard;
using amp::Dialect;
using amp::Level;
using testing::HasSubstr;
using testing_support::message_of;

using Values = std::vector<float>;

/// Every bit of a significand is in use, both signs, exponents -3 to 3.
Values odd_numbers(std::int64_t count, std::uint64_t seed) {
  Values values;
  const PhiloxStream stream{.seed = seed};
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint32_t word = stream.word(static_cast<std::uint64_t>(i));
    values.push_back(float_from_bits((word & 0x807fffffu) | ((124u + (word >> 23) % 7) << 23)));
  }
  return values;
}

/// What a tensor core of the row has of them: rounded by the scalar conversion, summed by the definition.
float dot(std::string_view row, const Values& a, const Values& b) {
  const auto registers = [](const Values& values) {
    std::vector<std::uint32_t> words;
    for (const float x : values)
      words.push_back(std::uint32_t{narrow<TensorFloat32>(x, Rounding::nearest_away).bits()} << 13);
    return words;
  };
  return float_from_bits(fused_dot_add(tensor_core_model(row, DType::tf32), DType::tf32, registers(a),
                                       DType::tf32, registers(b), 0));
}

/// a (m x k) times b (k x n), each stored row-major, or turned.
struct Matrix {
  std::int64_t rows, columns;
  Values values;
  bool turned = false;
  float operator()(std::int64_t i, std::int64_t j) const {
    return values[static_cast<std::size_t>(turned ? j * rows + i : i * columns + j)];
  }
  Matrix transposed() const { return {columns, rows, values, !turned}; }
};
Values product(std::string_view row, const Matrix& a, const Matrix& b) {
  Values results;
  for (std::int64_t i = 0; i < a.rows; ++i)
    for (std::int64_t j = 0; j < b.columns; ++j) {
      Values left, right;
      for (std::int64_t k = 0; k < a.columns; ++k) left.push_back(a(i, k)), right.push_back(b(k, j));
      results.push_back(dot(row, left, right));
    }
  return results;
}

class Tf32 : public testing::Test {
 protected:
  static std::unique_ptr<Backend> on(std::string_view row, int threads = 1) {
    return make_emulated_backend(tensor_core_model(row), threads);
  }
};

TEST_F(Tf32, OperandsAreRoundedToNearestTiesAwayFromZero) {
  // 1 + 2^-11 is half way between two TF32 numbers; one bit less goes down; beyond the largest: infinite.
  const auto backend = on("hopper");
  const struct {
    std::uint32_t x, rounded;
  } rows[] = {{0x3f801000, 0x3f802000}, {0xbf801000, 0xbf802000}, {0x3f800fff, 0x3f800000},
              {0x3f803000, 0x3f804000}, {0x7f7fefff, 0x7f7fe000}, {0x7f7ff000, 0x7f800000},
              {0x00001000, 0x00002000}, {0x80000fff, 0x80000000}, {0x7f800000, 0x7f800000},
              {0x3f801fff, 0x3f802000},  // what mma leaves of this register is 3f800000
              {0x7f800001, 0x7fffffff}};
  for (const auto& [x, rounded] : rows) {
    const Tensor a = tensor_of(*backend, {1, 1}, {float_from_bits(x)}),
                 one = tensor_of(*backend, {1, 1}, {1});
    Tensor out = backend->empty({1, 1}, DType::f32);
    backend->gemm({.a = a, .b = one, .out = out, .tf32 = true});
    const std::uint32_t sign_lost = rounded == 0x80000000u ? 0u : rounded;  // a sum of zeros is +0
    EXPECT_EQ(bits_of(values_of(*backend, out)[0]), sign_lost) << std::hex << x;
  }
}

TEST_F(Tf32, ALinearLayerIsTheRowsDotProductInBothDirections) {
  constexpr std::int64_t rows = 5, inputs = 37, outputs = 6;
  const Values x = odd_numbers(rows * inputs, 1), w = odd_numbers(outputs * inputs, 2),
               bias = odd_numbers(outputs, 3), seed = odd_numbers(rows * outputs, 4);
  for (const std::string row : {"ampere", "ada", "hopper", "blackwell"})
    for (const int threads : {1, 2}) {
      SCOPED_TRACE(row);
      const auto backend = on(row, threads);
      Tape tape(*backend);
      Autocast tf32(tape, {.level = Level::O1, .dtype = DType::tf32});
      const Variable input = tape.input(tensor_of(*backend, {rows, inputs}, x)),
                     weight = tape.input(tensor_of(*backend, {outputs, inputs}, w)),
                     added = tape.input(tensor_of(*backend, {outputs}, bias));
      Variable y;
      {
        const AutocastGuard guard(tape, tf32);
        y = ops::linear(input, weight, added);
      }
      const Matrix a{rows, inputs, x}, b{outputs, inputs, w}, g{rows, outputs, seed};
      Values forward = product(row, a, b.transposed());
      for (std::size_t i = 0; i < forward.size(); ++i) forward[i] += bias[i % outputs];
      EXPECT_EQ(y.dtype(), DType::f32);
      EXPECT_EQ(values_of(*backend, y.tensor()), forward);
      const std::array outs{y};
      const std::array seeds{tensor_of(*backend, {rows, outputs}, seed)};
      const std::array wanted{input, weight};
      const auto gradients = tape.gradients(outs, seeds, wanted);
      EXPECT_EQ(values_of(*backend, gradients[0].tensor()), product(row, g, b));
      EXPECT_EQ(values_of(*backend, gradients[1].tensor()), product(row, g.transposed(), a));
    }
}

TEST_F(Tf32, DoubleBackwardKeepsIt) {
  // y = a b; the gradient of sum(dy/da) with respect to b is a sum of rounded ones, not of operands.
  const auto backend = on("hopper");
  Tape tape(*backend);
  Autocast tf32(tape, {.level = Level::O1, .dtype = DType::tf32});
  const Values values = odd_numbers(4, 5);
  const Variable a = tape.input(tensor_of(*backend, {2, 2}, values)),
                 b = tape.input(tensor_of(*backend, {2, 2}, values));
  Variable y;
  {
    const AutocastGuard guard(tape, tf32);
    y = ops::matmul(a, b);
  }
  const Values seed = odd_numbers(4, 6), second = odd_numbers(4, 7);
  const std::array outs{y};
  const std::array seeds{tensor_of(*backend, {2, 2}, seed)};
  const std::array of_a{a}, of_b{b};
  const Variable da = tape.gradients(outs, seeds, of_a, {.create_graph = true})[0];
  const std::array firsts{da};
  const std::array weights{tensor_of(*backend, {2, 2}, second)};
  // da = g b^T, so d<da, h>/db = h^T g.
  EXPECT_EQ(values_of(*backend, tape.gradients(firsts, weights, of_b)[0].tensor()),
            product("hopper", Matrix{2, 2, second}.transposed(), Matrix{2, 2, seed}));
}

/// The statistics of one call of `op` in a scope.
std::string seen(const AmpOptions& options, const std::function<Variable(Tape&)>& call) {
  const auto backend = hopper_backend();
  Tape tape(*backend);
  Autocast autocast(tape, options);
  amp::OpStatistics statistics;
  autocast.set_statistics(&statistics);
  const AutocastGuard guard(tape, autocast);
  const ScopeGuard scope(tape, "fc1");
  EXPECT_EQ(call(tape).dtype(), DType::f32);
  std::string text;
  for (const OpCount& count : statistics.by_op()) {
    EXPECT_EQ(count.casts_to_low + count.casts_to_f32, 0u) << "no tensor is cast";
    text += std::string(text.empty() ? "" : " ") + count.op +
            (count.tf32 > 0  ? " TF32"
             : count.f32 > 0 ? " FP32"
                             : " ?");
  }
  return text;
}

Variable linear_of(Tape& tape) {
  Backend& backend = tape.backend();
  return ops::linear(tape.constant(tensor_of(backend, {1, 2}, {1, 2})),
                     tape.constant(tensor_of(backend, {2, 2}, {1, 2, 3, 4})), {});
}
Variable convolution_of(Tape& tape) {
  Backend& backend = tape.backend();
  return ops::conv2d(tape.constant(tensor_of(backend, {1, 1, 2, 2}, {1, 2, 3, 4})),
                     tape.constant(tensor_of(backend, {1, 1, 1, 1}, {3})), {}, {});
}
Variable sum_of_exponentials(Tape& tape) {
  return ops::sum(ops::exp(tape.constant(tensor_of(tape.backend(), {2}, {1, 2}))));
}

TEST_F(Tf32, WhiteProductsHaveItAndNothingElse) {
  for (const Dialect dialect : {Dialect::torch, Dialect::paddle, Dialect::mindspore, Dialect::apex}) {
    SCOPED_TRACE(name_of(dialect));
    const AmpOptions options{.level = Level::O1, .dtype = DType::tf32, .dialect = dialect};
    const std::string linear = dialect == Dialect::paddle ? "matmul" : "linear";
    EXPECT_EQ(seen(options, linear_of), linear + " TF32");
    EXPECT_EQ(seen(options, convolution_of), "conv2d TF32");
    EXPECT_EQ(seen(options, sum_of_exponentials), "exp FP32 sum FP32");
  }
  EXPECT_EQ(seen({.level = Level::OD, .dtype = DType::tf32, .dialect = Dialect::paddle}, linear_of),
            "matmul TF32");
}

TEST_F(Tf32, ListsPatternsAndO0TakeItAway) {
  const auto with = [](auto change) {
    AmpOptions options{.level = Level::O1, .dtype = DType::tf32};
    change(options);
    return seen(options, linear_of);
  };
  EXPECT_EQ(with([](AmpOptions& o) { o.black = {"linear"}; }), "linear FP32");
  EXPECT_EQ(with([](AmpOptions& o) { o.excluded = {"fc1"}; }), "linear FP32");
  EXPECT_EQ(with([](AmpOptions& o) { o.to_float = {"fc1=f32"}; }), "linear FP32");
  EXPECT_EQ(with([](AmpOptions& o) { o.use_guard = true; }), "linear FP32");
  EXPECT_EQ(with([](AmpOptions& o) { o.use_guard = true, o.guard = {"fc1"}; }), "linear TF32");
  EXPECT_EQ(with([](AmpOptions& o) { o.level = Level::O0; }), "linear FP32");
  EXPECT_EQ(with([](AmpOptions& o) { o.excluded = {"fc2"}; }), "linear TF32");
}

TEST_F(Tf32, NothingIsUnsafeInIt) {
  // apex bans it in 16 bits.
  EXPECT_EQ(seen({.level = Level::O1, .dtype = DType::tf32, .dialect = Dialect::apex},
                 [](Tape& tape) {
                   const Variable p = tape.constant(tensor_of(tape.backend(), {2}, {0.25f, 0.5f}));
                   return ops::binary_cross_entropy(p, p);
                 }),
            "binary_cross_entropy FP32");
}

TEST_F(Tf32, ShapesAreAdvisedInMultiplesOfFour) {
  amp::OpStatistics statistics;
  statistics.on_product("fc1", Op::linear, {.m = 4, .n = 10, .k = 12}, DType::tf32);
  const auto advice = statistics.advice();
  ASSERT_EQ(advice.size(), 1u);
  EXPECT_EQ(
      advice[0].text,
      "N = 10 is not a multiple of 4, which TF32 products need to fill tensor cores: 12 would be right");
  statistics.on_op("fc1", Op::linear, DType::tf32);
  EXPECT_EQ(amp::to_csv(statistics),
            "layer,op,f16,bf16,f32,casts_to_low,casts_to_f32,tf32\nfc1,linear,0,0,0,0,0,1\n");
  EXPECT_THAT(amp::to_text(statistics), HasSubstr("casts to FP32  TF32\n"));
}

TEST_F(Tf32, RefusedWhereTensorsWouldBeStoredInIt) {
  for (const auto& [dialect, level] : {std::pair{Dialect::paddle, Level::O2},
                                       {Dialect::mindspore, Level::O3},
                                       {Dialect::mindspore, Level::automatic_r1_7},
                                       {Dialect::apex, Level::O2}}) {
    const std::string message = message_of([&, &dialect = dialect, &level = level] {
      amp::resolve({.level = level, .dtype = DType::tf32, .dialect = dialect});
    });
    EXPECT_THAT(message, HasSubstr("amp.dtype = \"tf32\": no tensor is stored in TF32"));
    EXPECT_THAT(message, HasSubstr("or amp.level = \"O1\""));
  }
  EXPECT_THAT(message_of([] {
                amp::resolve({.level = Level::O1,
                              .dtype = DType::tf32,
                              .fp8_operands = DType::e4m3,
                              .fp8_gradients = DType::e5m2});
              }),
              HasSubstr("amp.fp8_operands = \"e4m3\": with amp.dtype = \"tf32\""));
}

TEST_F(Tf32, RefusedByVerbsWithoutIt) {
  const auto volta = on("volta");
  const Tensor x = tensor_of(*volta, {1, 1}, {1}), image = tensor_of(*volta, {1, 1, 1, 1}, {1});
  Tensor out = volta->empty({1, 1}, DType::f32), result = volta->empty({1, 1, 1, 1}, DType::f32);
  EXPECT_THAT(message_of([&] { volta->gemm({.a = x, .b = x, .out = out, .tf32 = true}); }),
              HasSubstr("gemm: "));
  EXPECT_THAT(message_of([&] { volta->conv2d(image, image, {.tf32 = true}, nullptr, result); }),
              HasSubstr("conv2d: "));
  const auto hopper = on("hopper");
  const Tensor half = halves_of(*hopper, {1, 1}, {1});
  EXPECT_THAT(message_of([&] { hopper->gemm({.a = half, .b = half, .out = out, .tf32 = true}); }),
              HasSubstr("a is f16 (1, 1), rounded to TF32; f32 operands are needed"));
}

}  // namespace
}  // namespace fp16lab::engine::test
