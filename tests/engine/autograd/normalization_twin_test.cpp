// Softmax and the norms against naive twins in double precision: values, first and second derivatives.
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "tests/engine/autograd/gradient_checks.hpp"

namespace fp16lab::engine::test {
namespace {

using V = std::vector<Variable>;
using In = std::vector<Doubles>;

// ---- naive twins --------------------------------------------------------------------------------

/// Calls visit(indices) for every group of elements that are normalised together.
using Groups = std::vector<std::vector<std::size_t>>;

Groups along_axis(const Shape& shape, int axis) {
  std::size_t inner = 1, outer = 1;
  for (int i = 0; i < shape.rank(); ++i) {
    const auto extent = static_cast<std::size_t>(shape[i]);
    if (i < axis) outer *= extent;
    if (i > axis) inner *= extent;
  }
  const auto extent = static_cast<std::size_t>(shape[axis]);
  Groups groups;
  for (std::size_t o = 0; o < outer; ++o) {
    for (std::size_t i = 0; i < inner; ++i) {
      groups.emplace_back();
      for (std::size_t e = 0; e < extent; ++e) groups.back().push_back((o * extent + e) * inner + i);
    }
  }
  return groups;
}

/// One group a channel, channels on `axis`, in the order of memory.
Groups per_channel(const Shape& shape, int axis) {
  std::size_t inner = 1;
  for (int i = axis + 1; i < shape.rank(); ++i) inner *= static_cast<std::size_t>(shape[i]);
  const auto channels = static_cast<std::size_t>(shape[axis]);
  Groups groups(channels);
  for (std::size_t i = 0; i < count_of(shape); ++i) groups[i / inner % channels].push_back(i);
  return groups;
}

/// One group an image and part of the channels on `axis`.
Groups per_part(const Shape& shape, int axis, std::size_t parts) {
  std::size_t inner = 1;
  for (int i = axis + 1; i < shape.rank(); ++i) inner *= static_cast<std::size_t>(shape[i]);
  const auto channels = static_cast<std::size_t>(shape[axis]), images = static_cast<std::size_t>(shape[0]);
  Groups groups(images * parts);
  const std::size_t image = count_of(shape) / images;
  for (std::size_t i = 0; i < count_of(shape); ++i)
    groups[i / image * parts + i / inner % channels / (channels / parts)].push_back(i);
  return groups;
}

Doubles softmax_twin(const Doubles& x, const Groups& groups, bool logarithm) {
  Doubles y(x.size());
  for (const auto& group : groups) {
    double sum = 0;
    for (const std::size_t i : group) sum += std::exp(x[i]);
    for (const std::size_t i : group) y[i] = logarithm ? x[i] - std::log(sum) : std::exp(x[i]) / sum;
  }
  return y;
}

constexpr double epsilon = 1e-5;

struct Moments {
  double mean = 0, variance = 0;
};
Moments moments_of(const Doubles& x, const std::vector<std::size_t>& group) {
  Moments moments;
  for (const std::size_t i : group) moments.mean += x[i];
  moments.mean /= static_cast<double>(group.size());
  for (const std::size_t i : group) moments.variance += (x[i] - moments.mean) * (x[i] - moments.mean);
  moments.variance /= static_cast<double>(group.size());
  return moments;
}

/// The parameter's index for each element comes from `parameter`.
template <class Parameter>
Doubles norm_twin(const In& in, const Groups& groups, const Parameter& parameter) {
  Doubles y(in[0].size());
  for (const auto& group : groups) {
    const Moments moments = moments_of(in[0], group);
    for (const std::size_t i : group) {
      y[i] = (in[0][i] - moments.mean) / std::sqrt(moments.variance + epsilon);
      if (in.size() > 1) y[i] = y[i] * in[1][parameter(i)] + in[2][parameter(i)];
    }
  }
  return y;
}

/// Over rows of `features`.
Doubles rms_twin(const In& in, std::size_t features) {
  Doubles y(in[0].size());
  for (std::size_t row = 0; row < y.size(); row += features) {
    double squares = 0;
    for (std::size_t i = row; i < row + features; ++i) squares += in[0][i] * in[0][i];
    const double root = std::sqrt(squares / static_cast<double>(features) + epsilon);
    for (std::size_t i = row; i < row + features; ++i)
      y[i] = in[0][i] / root * (in.size() > 1 ? in[1][i - row] : 1.0);
  }
  return y;
}

int channel_axis(const Shape& shape, Layout layout) {
  return shape.rank() == 4 && layout == Layout::nchw ? 1 : shape.rank() - 1;
}

/// Tolerances, in u = 2^-24, to first order in u.
///
/// softmax, |x| < 3/2, at most 4 classes: x - m has error 3/2 u * 2; exp adds 2 u, the sum 3 u, the division
/// u: 12 u of y <= 1 -> 16. dx = y (g - sum(g y)), |g| <= 1: 2 * 12 u for y, 12 u + 4 u for the sum, 3 u more
/// -> 64. A second derivative sums such terms over the 4 of a row, each a product of at most three of them: 4
/// * 2 * 64 -> 512. log_softmax: |y| <= 3 + log 4 < 4.5: 3 u + the sum's relative 8 u + 4.5 u -> 16; dx = g -
/// exp(y) sum(g) with |sum g| <= 4: 4 (16 + 3) u + 4 u -> 96; second -> 4 * 2 * 96 -> 768.
///
/// Norms, 2 <= |x| < 3 with both signs in every group, at most 5 (layer) or 12 (batch) elements: deviation >=
/// 3/2, |xhat| <= 2 ((n - 1)^(1/2)-bound for one against four), |weight|, |bias| < 3/2. Mean: 4 roundings of
/// sums <= 3 n, divided: 15 u. x - mean: 20 u. Variance: relative 16 u; r: 10 u, r <= 2/3. xhat: 14 u + 2 *
/// 11 u = 36 u; y: 1.5 * 36 u + 3 u + 4.5 u -> 64. dx = r (h - mean(h) - xhat mean(h xhat)), h = g weight,
/// |h| < 1.5: mean(h xhat) has 70 u, times xhat 140 u, and 36 u * 1.5 + 6 roundings of numbers <= 6 and 10 u
/// of r: (140 + 54 + 36 + 60) * 2/3 -> 256. dweight: at most 12 terms of |g| 36 u, with |xhat| near 1: 12 *
/// 36 + 4 * 12 -> 512. A second derivative sums over the at most 12 elements of a group, both parameters:
/// products of three factors with errors as above -> 12 * 512 = 6144. Parts of group norm have at most 12
/// elements, rows of RMS norm 5, and no mean to lose bits to: the same bounds.
std::vector<TwinCase> cases() {
  std::vector<TwinCase> list;
  struct SoftmaxShape {
    std::string name;
    Shape shape;
    int axis;
  };
  for (const SoftmaxShape& at : {SoftmaxShape{"rows", {3, 4}, 1}, SoftmaxShape{"last", {2, 2, 3}, -1},
                                 SoftmaxShape{"middle", {2, 3, 2}, 1}, SoftmaxShape{"first", {3, 2}, 0},
                                 SoftmaxShape{"vector", {4}, 0}, SoftmaxShape{"one_class", {3, 1}, 1}}) {
    const Groups groups = along_axis(at.shape, at.axis < 0 ? at.axis + at.shape.rank() : at.axis);
    list.push_back({"softmax_" + at.name,
                    [axis = at.axis](Tape&, const V& x) { return ops::softmax(x[0], axis); },
                    [groups](const In& in) { return softmax_twin(in[0], groups, false); },
                    {with_signs(at.shape, 1)},
                    {16, 64, 512}});
    list.push_back({"log_softmax_" + at.name,
                    [axis = at.axis](Tape&, const V& x) { return ops::log_softmax(x[0], axis); },
                    [groups](const In& in) { return softmax_twin(in[0], groups, true); },
                    {with_signs(at.shape, 1)},
                    {16, 96, 768}});
  }
  const TwinTolerance norm{64, 512, 6144};
  for (const bool affine : {true, false}) {
    const std::string tag = affine ? "_affine" : "_plain";
    const auto inputs = [&](const Shape& shape, std::int64_t features) {
      std::vector<HostTensor> list_of = {with_signs(shape, 1, 2.0f)};
      if (affine) {
        list_of.push_back(with_signs({features}, 2));
        list_of.push_back(with_signs({features}, 3));
      }
      return list_of;
    };
    for (const Shape& shape : {Shape{2, 5}, Shape{2, 2, 4}, Shape{5}}) {
      const Groups groups = along_axis(shape, shape.rank() - 1);
      const auto features = static_cast<std::size_t>(shape[-1]);
      list.push_back({"layer_norm_rank" + std::to_string(shape.rank()) + tag,
                      [affine](Tape&, const V& x) {
                        return ops::layer_norm(x[0], affine ? x[1] : Variable(), affine ? x[2] : Variable(),
                                               static_cast<float>(epsilon));
                      },
                      [groups, features](const In& in) {
                        return norm_twin(in, groups, [features](std::size_t i) { return i % features; });
                      },
                      inputs(shape, shape[-1]), norm});
    }
    for (const Shape& shape : {Shape{2, 5}, Shape{2, 2, 4}, Shape{5}}) {
      const auto features = static_cast<std::size_t>(shape[-1]);
      std::vector<HostTensor> own = inputs(shape, shape[-1]);
      if (affine) own.pop_back();  // no bias
      list.push_back({"rms_norm_rank" + std::to_string(shape.rank()) + tag,
                      [affine](Tape&, const V& x) {
                        return ops::rms_norm(x[0], affine ? x[1] : Variable(), static_cast<float>(epsilon));
                      },
                      [features](const In& in) { return rms_twin(in, features); }, own, norm});
    }
    struct PartShape {
      std::string name;
      Shape shape;
      std::int64_t parts;
      Layout layout;
    };
    for (const PartShape& at :
         {PartShape{"nchw", {2, 4, 2, 3}, 2, Layout::nchw}, PartShape{"nhwc", {2, 3, 2, 4}, 2, Layout::nhwc},
          PartShape{"rows", {2, 6}, 2, Layout::nchw}, PartShape{"lines", {2, 4, 3}, 2, Layout::nchw},
          PartShape{"one_part", {2, 3, 2, 2}, 1, Layout::nchw},
          PartShape{"instances", {2, 2, 3, 2}, 2, Layout::nchw}}) {
      const int axis = at.layout == Layout::nchw ? 1 : at.shape.rank() - 1;
      const Groups groups = per_part(at.shape, axis, static_cast<std::size_t>(at.parts));
      std::vector<std::size_t> channel(count_of(at.shape));
      const Groups channels = per_channel(at.shape, axis);
      for (std::size_t c = 0; c < channels.size(); ++c)
        for (const std::size_t i : channels[c]) channel[i] = c;
      list.push_back({"group_norm_" + at.name + tag,
                      [affine, at](Tape&, const V& x) {
                        return ops::group_norm(x[0], at.parts, affine ? x[1] : Variable(),
                                               affine ? x[2] : Variable(), static_cast<float>(epsilon),
                                               at.layout);
                      },
                      [groups, channel](const In& in) {
                        return norm_twin(in, groups, [&](std::size_t i) { return channel[i]; });
                      },
                      inputs(at.shape, at.shape[axis]), norm});
    }
    struct BatchShape {
      std::string name;
      Shape shape;
      Layout layout;
    };
    for (const BatchShape& at :
         {BatchShape{"rows", {5, 2}, Layout::nchw}, BatchShape{"rows_nhwc", {5, 2}, Layout::nhwc},
          BatchShape{"nchw", {2, 2, 2, 3}, Layout::nchw}, BatchShape{"nhwc", {2, 3, 2, 2}, Layout::nhwc},
          BatchShape{"one_image", {1, 2, 2, 3}, Layout::nchw}}) {
      const Groups groups = per_channel(at.shape, channel_axis(at.shape, at.layout));
      std::vector<std::size_t> channel(count_of(at.shape));
      for (std::size_t c = 0; c < groups.size(); ++c) {
        for (const std::size_t i : groups[c]) channel[i] = c;
      }
      const auto features = static_cast<std::int64_t>(groups.size());
      list.push_back({"batch_norm_" + at.name + tag,
                      [affine, layout = at.layout](Tape&, const V& x) {
                        return ops::batch_norm(x[0], affine ? x[1] : Variable(), affine ? x[2] : Variable(),
                                               static_cast<float>(epsilon), layout)
                            .y;
                      },
                      [groups, channel](const In& in) {
                        return norm_twin(in, groups, [&](std::size_t i) { return channel[i]; });
                      },
                      inputs(at.shape, features), norm});
      // The statistics are given: y is linear in x, and in the parameters.
      const std::vector<float> mean = {0.5f, -0.25f, 1.0f}, variance = {2.25f, 0.75f, 1.5f};
      list.push_back(
          {"batch_norm_inference_" + at.name + tag,
           [affine, layout = at.layout, features, mean, variance](Tape& tape, const V& x) {
             const auto statistic = [&](const std::vector<float>& values) {
               return tensor_of(tape.backend(), {features}, {values.begin(), values.begin() + features});
             };
             return ops::batch_norm_inference(x[0], statistic(mean), statistic(variance),
                                              affine ? x[1] : Variable(), affine ? x[2] : Variable(),
                                              static_cast<float>(epsilon), layout);
           },
           [channel, mean, variance](const In& in) {
             Doubles y(in[0].size());
             for (std::size_t i = 0; i < y.size(); ++i) {
               const std::size_t c = channel[i];
               y[i] = (in[0][i] - static_cast<double>(mean[c])) /
                      std::sqrt(static_cast<double>(variance[c]) + epsilon);
               if (in.size() > 1) y[i] = y[i] * in[1][c] + in[2][c];
             }
             return y;
           },
           inputs(at.shape, features), norm});
    }
  }
  return list;
}

class Normalization : public testing::TestWithParam<TwinCase> {};
INSTANTIATE_TEST_SUITE_P(Cases, Normalization, testing::ValuesIn(cases()),
                         [](const auto& test) { return test.param.name; });

TEST_P(Normalization, EqualsItsTwinToSecondOrder) { expect_like_twin(GetParam()); }

TEST(GradientChecks, CoverNormalization) {
  GradientChecks checks;
  checks.add(cases());
  checks.expect_all_of(CheckedIn::normalization_twin);
}

}  // namespace
}  // namespace fp16lab::engine::test
