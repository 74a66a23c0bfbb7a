// Losses against naive twins in double precision: values, first and second derivatives, every reduction.
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "tests/engine/autograd/gradient_checks.hpp"

namespace fp16lab::engine::test::loss_twin_test {
namespace {

using ops::Reduction;
using V = std::vector<Variable>;
using In = std::vector<Doubles>;

struct NamedReduction {
  std::string name;
  Reduction reduction;
};
const std::vector<NamedReduction>& reductions() {
  static const std::vector<NamedReduction> all = {
      {"none", Reduction::none}, {"mean", Reduction::mean}, {"sum", Reduction::sum}};
  return all;
}

// ---- naive twins --------------------------------------------------------------------------------

Doubles reduced(const Doubles& losses, Reduction reduction) {
  if (reduction == Reduction::none) return losses;
  double sum = 0;
  for (const double loss : losses) sum += loss;
  return {reduction == Reduction::sum ? sum : sum / static_cast<double>(losses.size())};
}

/// `target` may be probabilities (rows x classes).
Doubles cross_entropy_twin(const Doubles& x, const Doubles& target, std::size_t classes) {
  Doubles losses;
  for (std::size_t row = 0; row < x.size(); row += classes) {
    double sum = 0;
    for (std::size_t c = 0; c < classes; ++c) sum += std::exp(x[row + c]);
    double loss = 0;
    for (std::size_t c = 0; c < classes; ++c) loss -= target[row + c] * (x[row + c] - std::log(sum));
    losses.push_back(loss);
  }
  return losses;
}

Doubles elementwise(const In& in, const std::function<double(double, double)>& loss) {
  Doubles losses;
  for (std::size_t i = 0; i < in[0].size(); ++i) losses.push_back(loss(in[0][i], in[1][i]));
  return losses;
}

/// Not a multiple of 1/64: no error of this test's inputs (multiples of 1/128) comes closer to it than 1/128,
/// which is more than a step of the differences (2^-8).
constexpr double delta = 46.5 / 64;

double huber(double y, double t) {
  const double e = std::abs(y - t);
  return e <= delta ? e * e / 2 : delta * (e - delta / 2);
}

/// Tolerances in u = 2^-24, absolute, for 12 elements (or 3 rows of 4 classes) and the largest reduction, a
/// sum with a chain of at most 5 roundings (a TREE over at most 16 elements has 4, weighted_sum one). L
/// bounds a loss, S its slope, C its curvature; 12 L, S and 12 C bound what the sums hold. Errors of one
/// element:
/// * mse: all exact but sums' last places; |e| <= 3.5: 5 * 12 * 12.25 -> 768. First: 2 e g, 3 roundings: 8 *
///   7 -> 64. Second: C = 2, exact in few bits: 12 * 2 * 5 -> 128.
/// * l1, huber: L <= 3.5; 5 * 12 * 3.5 + 12 * 4 -> 320. S <= 1: -> 16; second: C <= 1 -> 128.
/// * bce, 1/4 <= p < 3/4: logs <= 1.4 with 2 u each, log1p likewise; loss: 8 u; sum: 12 * 8 + 5 * 12 * 1.4 ->
///   256. S <= 4: quotient of a rounded difference and a product of a rounded difference: 5 * 4 u + 2 * 4 u
///   -> 64. Second: C <= 1 / p^2 + 1 / (1 - p)^2 <= 18 with 6 roundings, and the cross terms 1 / (p (1 - p))
///   <= 6: 12 u * 18 * 2 -> 512, the outer sum included.
/// * bce with logits, |x| < 3/2: loss <= 2.5, 5 u * 2.5; sum: 12 * 13 + 5 * 12 * 2.5 -> 384. S <= 1: two
///   products, 2 sigmoids of 2 u: -> 32; second: sigmoid' <= 1/4, and 1 for the cross term: -> 128.
/// * cross entropy, |x| < 3/2: x - m exact in few bits, exp 2 u, sum 3 u, log 2 u * 2.8 + 5 u: 16 u a row;
///   with probabilities of total <= 4: 4 * 16 + 8 * 12 -> 256 (index: -> 128). First: softmax twice rounded,
///   sums of probabilities <= 4: 4 * (16 + 4) + ... -> 128; second: 4 classes, two products: 8 * 128 -> 1024.
std::vector<TwinCase> cases() {
  std::vector<TwinCase> list;
  const std::vector<std::int32_t> index = {2, 0, 3};
  Doubles one_hot(12, 0.0);
  for (std::size_t row = 0; row < index.size(); ++row)
    one_hot[row * 4 + static_cast<std::size_t>(index[row])] = 1;
  // Probabilities need not add up to 1: the formula is taken as it is.
  const HostTensor probabilities{{3, 4}, shuffled(12, 0.0625f, 0x1p-6f, 2)};
  const HostTensor x = with_signs({3, 4}, 1);
  const HostTensor target{{3, 4}, shuffled(12, -0.4921875f, 0x1p-6f, 2)};  // odd multiples of 1/128
  const HostTensor p{{3, 4}, shuffled(12, 0.25f, 0x1p-7f, 1)}, t{{3, 4}, shuffled(12, 0.0f, 0x1p-6f, 2)};
  struct Elementwise {
    std::string name;
    std::function<Variable(const Variable&, const Variable&, Reduction)> op;
    std::function<double(double, double)> loss;
    HostTensor prediction, target;
    TwinTolerance tolerance;
  };
  const std::vector<Elementwise> losses = {
      {"mse",
       [](const auto& a, const auto& b, Reduction r) { return ops::mse_loss(a, b, r); },
       [](double y, double z) { return (y - z) * (y - z); },
       x,
       target,
       {768, 64, 128}},
      {"l1",
       [](const auto& a, const auto& b, Reduction r) { return ops::l1_loss(a, b, r); },
       [](double y, double z) { return std::abs(y - z); },
       x,
       target,
       {320, 16, 128}},
      {"huber",
       [](const auto& a, const auto& b, Reduction r) {
         return ops::huber_loss(a, b, static_cast<float>(delta), r);
       },
       huber,
       x,
       target,
       {320, 16, 128}},
      {"bce",
       [](const auto& a, const auto& b, Reduction r) { return ops::binary_cross_entropy(a, b, r); },
       [](double q, double z) { return -(z * std::log(q) + (1 - z) * std::log(1 - q)); },
       p,
       t,
       {256, 64, 512}},
      {"bce_with_logits",
       [](const auto& a, const auto& b, Reduction r) {
         return ops::binary_cross_entropy_with_logits(a, b, r);
       },
       [](double y, double z) { return std::log(1 + std::exp(y)) - y * z; },
       x,
       t,
       {384, 32, 128}},
  };
  for (const auto& [suffix, reduction] : reductions()) {
    for (const Elementwise& loss : losses) {
      list.push_back({loss.name + "_" + suffix,
                      [op = loss.op, r = reduction](Tape&, const V& v) { return op(v[0], v[1], r); },
                      [f = loss.loss, r = reduction](const In& in) { return reduced(elementwise(in, f), r); },
                      {loss.prediction, loss.target},
                      loss.tolerance});
    }
    list.push_back(
        {"cross_entropy_index_" + suffix,
         [index, r = reduction](Tape& tape, const V& v) {
           return ops::softmax_cross_entropy(v[0], index_of(tape.backend(), index), r);
         },
         [one_hot, r = reduction](const In& in) { return reduced(cross_entropy_twin(in[0], one_hot, 4), r); },
         {x},
         {128, 128, 1024}});
    list.push_back({"cross_entropy_probabilities_" + suffix,
                    [r = reduction](Tape&, const V& v) { return ops::softmax_cross_entropy(v[0], v[1], r); },
                    [r = reduction](const In& in) { return reduced(cross_entropy_twin(in[0], in[1], 4), r); },
                    {x, probabilities},
                    {256, 128, 1024}});
  }
  return list;
}

class Loss : public testing::TestWithParam<TwinCase> {};
INSTANTIATE_TEST_SUITE_P(Cases, Loss, testing::ValuesIn(cases()),
                         [](const auto& test) { return test.param.name; });

TEST_P(Loss, EqualsItsTwinToSecondOrder) { expect_like_twin(GetParam()); }

TEST(GradientChecks, CoverLosses) {
  GradientChecks checks;
  checks.add(cases());
  checks.expect_all_of(CheckedIn::loss_twin);
}

/// The twins' tests must be able to fail: a mean that is a sum, and a Huber loss without its halves.
TEST(LossTwins, CatchAWrongFactor) {
  TwinCase wrong{"mse",
                 [](Tape&, const V& v) { return ops::mse_loss(v[0], v[1], Reduction::mean); },
                 [](const In& in) {
                   return reduced(elementwise(in, [](double y, double t) { return (y - t) * (y - t); }),
                                  Reduction::sum);
                 },
                 {with_signs({4}, 1), with_signs({4}, 2, 1.0f)},
                 {768, 64, 128}};
  testing::TestPartResultArray failures;
  {
    const testing::ScopedFakeTestPartResultReporter reporter(
        testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD, &failures);
    expect_like_twin(wrong);
  }
  EXPECT_GE(failures.size(), 1 + 8);  // the value, all first derivatives
}

}  // namespace
}  // namespace fp16lab::engine::test::loss_twin_test
