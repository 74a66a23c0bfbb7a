// Replays against a twin that knows the values themselves, in exact rationals: whatever the bins leave open,
// the truth must be within the bounds.
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/multiprecision/cpp_int.hpp>
#include <cmath>
#include <random>

#include "experiments/app/replay/replay.hpp"
#include "tests/experiments/app/replay/replay_folder.hpp"
#include "tests/support/temporary_folder.hpp"

namespace fp16lab::experiments {
namespace {

using Rational = boost::multiprecision::cpp_rational;

Rational power(int exponent) {
  const boost::multiprecision::cpp_int one = 1;
  return exponent >= 0 ? Rational(one << exponent) : Rational(1) / Rational(one << -exponent);
}

Rational magnitude(const Rational& x) { return x < 0 ? -x : x; }

/// To the nearest FP16 number, ties to even; |x| < 65520.
Rational rounded_to_fp16(const Rational& x) {
  const Rational size = magnitude(x);
  int e = -14;
  while (size >= power(e + 1)) ++e;
  const Rational quantum = power(e - 10);
  const Rational steps = size / quantum;
  boost::multiprecision::cpp_int n =
      boost::multiprecision::numerator(steps) / boost::multiprecision::denominator(steps);
  const Rational rest = steps - Rational(n);
  if (rest > Rational(1) / 2 || (rest == Rational(1) / 2 && n % 2 == 1)) ++n;
  return (x < 0 ? Rational(-1) : Rational(1)) * Rational(n) * quantum;
}

struct Truth {
  std::vector<double> scales;
  std::vector<std::uint64_t> skipped;
  Rational lost_count, count, lost_l1, l1, lost_l2, l2;
  Rational dot, kept_squared, squared;  ///< of gradients and what FP16 keeps of them
};

/// torch's rule with other names: what it says of GradScaler in the reference of PyTorch, in FP32 as there.
struct Rule {
  float scale;
  double up, down;  ///< FP64, as Python has them; the product is rounded to FP32
  int interval;
  bool moves = true;
};

Truth truth_of(const std::vector<MadeStep>& steps, Rule rule) {
  Truth truth;
  int good = 0;
  for (std::size_t s = 0; s < steps.size(); ++s) {
    truth.scales.push_back(static_cast<double>(rule.scale));
    const Rational scale(rule.scale);
    bool overflow = false;
    for (const MadeTensor& tensor : steps[s].tensors)
      for (const double value : tensor.values)
        overflow = overflow || magnitude(Rational(value)) * scale >= 65520;
    if (overflow) {
      truth.skipped.push_back(s + 1);
    } else {
      for (const MadeTensor& tensor : steps[s].tensors)
        for (const double value : tensor.values) {
          if (value == 0) continue;
          const Rational x(value), left = rounded_to_fp16(x * scale) / scale;
          const bool lost = left == 0;
          truth.count += 1;
          truth.l1 += magnitude(x);
          truth.l2 += x * x;
          if (lost) {
            truth.lost_count += 1;
            truth.lost_l1 += magnitude(x);
            truth.lost_l2 += x * x;
          }
          truth.dot += x * left;
          truth.kept_squared += left * left;
        }
    }
    if (!rule.moves) continue;
    if (overflow) {
      rule.scale = static_cast<float>(rule.scale * rule.down);
      good = 0;
    } else if (++good == rule.interval) {
      rule.scale = static_cast<float>(rule.scale * rule.up);
      good = 0;
    }
  }
  truth.squared = truth.l2;
  return truth;
}

/// part / whole is within the interval, decided in rationals; squared for L2.
void expect_contains(const ReplayInterval& interval, const Rational& part, const Rational& whole,
                     bool squared, const char* what) {
  if (whole == 0) return;
  const Rational share = part / whole;
  Rational lower(interval.lower), upper(interval.upper);
  if (squared) {
    lower *= lower;
    upper *= upper;
  }
  EXPECT_LE(lower, share) << what;
  EXPECT_GE(upper, share) << what;
}

std::vector<MadeStep> random_steps(std::mt19937& random, int count) {
  std::vector<MadeStep> steps;
  int drift = 0;
  for (int s = 0; s < count; ++s) {
    drift += static_cast<int>(random() % 3) - 1;
    MadeStep step;
    for (const char* const name : {"fc1.weight", "fc2.weight"}) {
      MadeTensor tensor{.name = name};
      for (int i = 0; i < 12; ++i) {
        if (random() % 8 == 0) {
          tensor.values.push_back(0);
          continue;
        }
        // 24 significant bits, as FP32 has them; many at the edges of FP16 once a scale is on them.
        const int exponent = drift - static_cast<int>(random() % 40);
        const double significand = 1 + std::ldexp(static_cast<double>(random() % 0x800000), -23);
        tensor.values.push_back((random() % 2 == 0 ? 1 : -1) *
                                std::ldexp(random() % 4 == 0 ? 1 : significand, exponent));
      }
      step.tensors.push_back(std::move(tensor));
    }
    steps.push_back(std::move(step));
  }
  return steps;
}

struct Case {
  std::string policy;
  std::vector<std::string> settings;
  Rule rule;
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all{
      {"torch", {"torch.initial_scale=2^14", "torch.growth_interval=3"}, {0x1p14f, 2, 0.5, 3}},
      {"torch", {"torch.initial_scale=2^20", "torch.growth_interval=1"}, {0x1p20f, 2, 0.5, 1}},
      {"torch",
       {"torch.initial_scale=1000", "torch.growth_interval=4", "torch.growth_factor=1.5",
        "torch.backoff_factor=0.7"},
       {1000, 1.5, 0.7, 4}},
      {"fixed", {"fixed.initial_scale=2^13"}, {0x1p13f, 1, 1, 1, false}},
      {"fixed", {"fixed.initial_scale=3000"}, {3000, 1, 1, 1, false}},
  };
  return all;
}

TEST(ReplayTwin, TheTruthLiesWithinTheBounds) {
  const testing_support::TemporaryFolder temporary;
  std::size_t open = 0, skips = 0, losses = 0;
  for (std::uint32_t seed = 1; seed <= 24; ++seed) {
    // Each run twice: with the smallest and the greatest values, and as an older version recorded it.
    const bool older = seed > 12;
    std::mt19937 random((seed - 1) % 12 + 1);
    const std::vector<MadeStep> steps = random_steps(random, 40);
    const std::filesystem::path folder = temporary.path() / std::to_string(seed);
    if (older)
      make_older_run(folder, steps);
    else
      make_run(folder, steps);
    for (const Case& test : cases()) {
      SCOPED_TRACE(testing::Message()
                   << "seed " << seed << ", " << test.policy << ' ' << test.settings.front());
      ReplayOptions options;
      options.contestants = {.policies = {test.policy}, .settings = test.settings, .interval = {}};
      options.oracle = false;
      const ReplayedPolicy row = replay_run(folder, options).policies.at(0);
      const Truth truth = truth_of(steps, test.rule);
      std::size_t entry = 0;
      for (std::size_t s = 0; s < steps.size(); ++s) {
        while (entry + 1 < row.steps.size() && row.steps[entry + 1] <= s + 1) ++entry;
        const double scale = std::log2(truth.scales[s]);
        EXPECT_LE(row.log2_scale_lower[entry], scale) << "step " << s + 1;
        EXPECT_GE(row.log2_scale_upper[entry], scale) << "step " << s + 1;
      }
      EXPECT_TRUE(std::includes(row.skipped_upper.begin(), row.skipped_upper.end(), truth.skipped.begin(),
                                truth.skipped.end()));
      EXPECT_TRUE(std::includes(truth.skipped.begin(), truth.skipped.end(), row.skipped_lower.begin(),
                                row.skipped_lower.end()));
      const auto skipped = static_cast<double>(truth.skipped.size());
      EXPECT_LE(row.skips.lower, skipped);
      EXPECT_GE(row.skips.upper, skipped);
      expect_contains(row.lost_l1, truth.lost_l1, truth.l1, false, "lost L1");
      expect_contains(row.lost_l2, truth.lost_l2, truth.l2, true, "lost L2");
      if (truth.count != 0) {
        const double share = static_cast<double>(truth.lost_count / truth.count);
        EXPECT_LE(row.lost_count.lower, share * (1 + 1e-15));
        EXPECT_GE(row.lost_count.upper, share * (1 - 1e-15));
        // cos^2 = dot^2 / (|x|^2 |left|^2); the bounds are not negative and neither is the dot product.
        if (truth.kept_squared != 0) {
          const Rational cosine_squared = truth.dot * truth.dot / truth.squared / truth.kept_squared;
          EXPECT_LE(Rational(row.cosine.lower) * Rational(row.cosine.lower), cosine_squared);
          EXPECT_GE(Rational(row.cosine.upper) * Rational(row.cosine.upper), cosine_squared);
        }
      }
      EXPECT_TRUE(row.exact || older) << "every skip is decided by the greatest value";
      if (row.exact) {
        EXPECT_EQ(row.skipped_lower, truth.skipped);
      }
      open += row.exact ? 0 : 1;
      skips += truth.skipped.size();
      losses += truth.lost_count != 0 ? 1 : 0;
    }
  }
  // The cases are worth something: some are open, some overflow, some lose.
  EXPECT_GT(open, 10u);
  EXPECT_GT(skips, 100u);
  EXPECT_GT(losses, 30u);
}

}  // namespace
}  // namespace fp16lab::experiments
