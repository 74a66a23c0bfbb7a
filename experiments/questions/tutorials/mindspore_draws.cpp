#include "experiments/questions/tutorials/mindspore_draws.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <iterator>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>

#include "engine/data/loader.hpp"
#include "numerics/files/arrays/safetensors.hpp"

namespace fp16lab::experiments {
namespace {

constexpr std::int64_t image_count = 1024, side = 32, classes = 10;

/// numpy.random.RandomState(0), as far as the tutorial asks it.
class NumpyRandom {
 public:
  double normal() {
    if (kept_) return *std::exchange(kept_, std::nullopt);
    double x = 0, y = 0, square = 0;
    do {
      x = 2 * uniform() - 1;
      y = 2 * uniform() - 1;
      square = x * x + y * y;
    } while (square >= 1 || square == 0);
    const double factor = std::sqrt(-2 * std::log(square) / square);
    kept_ = factor * x;
    return factor * y;
  }
  std::uint32_t digit() {
    std::uint32_t value = 0;
    do value = static_cast<std::uint32_t>(engine_() & 15);
    while (value > 9);
    return value;
  }

 private:
  double uniform() {
    const auto high = engine_() >> 5, low = engine_() >> 6;
    return (static_cast<double>(high) * 0x1p26 + static_cast<double>(low)) * 0x1p-53;
  }

  std::mt19937 engine_{0};
  std::optional<double> kept_;
};

/// Uniform on 0 .. `most`, as std::uniform_int_distribution of libstdc++ drew it before GCC 11.
std::uint64_t below_by_division(std::mt19937& engine, std::uint64_t most) {
  const std::uint64_t share = 0xffffffffu / (most + 1);
  std::uint64_t word = 0;
  do word = engine();
  while (word >= share * (most + 1));
  return word / share;
}

/// std::shuffle of that library, for fewer than 2^16 values.
void shuffle(std::span<std::uint32_t> values, std::mt19937& engine) {
  std::size_t i = 1;
  if (values.size() % 2 == 0) std::swap(values[i++], values[below_by_division(engine, 1)]);
  for (; i < values.size(); i += 2) {
    const std::uint64_t width = i + 2;
    const std::uint64_t two = below_by_division(engine, (i + 1) * width - 1);
    std::swap(values[i], values[two / width]);
    std::swap(values[i + 1], values[two % width]);
  }
}

/// MindSpore's Philox4x32 (10 rounds).
class MindSporePhilox {
 public:
  MindSporePhilox(std::uint64_t seed, std::uint64_t op_seed, std::uint64_t block)
      : key_(static_cast<std::uint32_t>(seed)),
        counter_{static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32),
                 static_cast<std::uint32_t>(op_seed), static_cast<std::uint32_t>(op_seed >> 32)} {}

  /// Four words. Counter and key go on from where the rounds left them.
  std::array<std::uint32_t, 4> operator()() {
    for (int round = 0; round < 10; ++round, key_ += 0x9E3779B9u) {
      const std::uint64_t even = std::uint64_t{0xD2511F53u} * counter_[0];
      const std::uint64_t odd = std::uint64_t{0xCD9E8D57u} * counter_[2];
      counter_ = {static_cast<std::uint32_t>(odd >> 32) ^ counter_[1] ^ key_, static_cast<std::uint32_t>(odd),
                  static_cast<std::uint32_t>(even >> 32) ^ counter_[3] ^ key_,
                  static_cast<std::uint32_t>(even)};
    }
    const std::array<std::uint32_t, 4> words = counter_;
    if (++counter_[0] == 0 && ++counter_[1] == 0 && ++counter_[2] == 0) ++counter_[3];
    return words;
  }

 private:
  std::uint32_t key_;
  std::array<std::uint32_t, 4> counter_;
};

/// In [0, 1), at least 1e-7: 23 bits of the word.
float mindspore_uniform(std::uint32_t word) {
  return std::max(std::bit_cast<float>(0x3f800000u | (word & 0x7fffffu)) - 1.0f, 1e-7f);
}

/// Part `part` of sixteen.
void fill_part(std::span<float> out, std::uint64_t op_seed, std::uint64_t part) {
  MindSporePhilox random(87654321, op_seed, (out.size() * part + 3) / 4);
  for (std::size_t i = 0; i < out.size(); i += 4) {
    const std::array<std::uint32_t, 4> words = random();
    for (std::size_t j = 0; j < 4 && i + j < out.size(); ++j) {
      const float radius_word = mindspore_uniform(words[j & ~std::size_t{1}]);
      const float angle = 2 * 3.14f * mindspore_uniform(words[j | 1]);
      const double radius = std::sqrt(-2.0 * static_cast<double>(std::log(radius_word)));
      out[i + j] =
          static_cast<float>(radius * static_cast<double>(j % 2 == 0 ? std::sin(angle) : std::cos(angle)));
    }
  }
}

template <typename T>
engine::data::ExampleArray examples(DType type, std::vector<std::int64_t> shape, std::span<const T> values) {
  const std::span<const std::byte> bytes = std::as_bytes(values);
  return {type, std::move(shape), std::vector<std::byte>(bytes.begin(), bytes.end())};
}

}  // namespace

engine::data::Dataset mindspore_images() {
  NumpyRandom random;
  std::vector<float> pixels;
  std::vector<std::uint8_t> labels;
  for (std::int64_t image = 0; image < image_count; ++image) {
    for (std::int64_t pixel = 0; pixel < side * side; ++pixel)
      pixels.push_back(static_cast<float>(random.normal()));
    labels.push_back(static_cast<std::uint8_t>(random.digit()));
  }
  engine::data::Dataset dataset;
  dataset.inputs = examples<float>(DType::f32, {1, side, side}, pixels);
  dataset.targets = examples<std::uint8_t>(DType::u8, {}, labels);
  dataset.images = engine::Layout::nchw;
  dataset.classes = classes;
  return dataset;
}

std::vector<std::uint32_t> mindspore_order(std::uint32_t count, std::uint32_t epochs) {
  std::vector<std::uint32_t> order(count), all;
  std::iota(order.begin(), order.end(), 0u);
  for (std::uint32_t epoch = 0; epoch < epochs; ++epoch) {
    std::mt19937 engine(epoch);
    shuffle(order, engine);
    all.insert(all.end(), order.begin(), order.end());
  }
  return all;
}

std::vector<float> mindspore_normal(std::uint64_t index, std::size_t count, float deviation) {
  constexpr std::uint64_t op_seed_step = 0xD2511F53u ^ 0xCD9E8D57u, largest_seed = 0x7fffffff;
  const std::uint64_t op_seed = index * op_seed_step % largest_seed;
  const std::size_t parts = count > 16 ? 16 : 1;
  const std::size_t width = count / parts;
  std::vector<float> values(count);
  for (std::size_t part = 0; part < parts; ++part)
    fill_part(std::span(values).subspan(part * width, part + 1 < parts ? width : std::dynamic_extent),
              op_seed, part);
  for (float& value : values) value *= deviation;
  return values;
}

namespace {

/// LeNet-5's, in the order in which its layers are made; biases are zeros, which draw nothing.
struct InitialArray {
  std::string_view name;
  std::vector<std::uint64_t> shape;
  float deviation;
};
const InitialArray initial_arrays[] = {{"conv1.weight", {6, 1, 5, 5}, 0.01f},
                                       {"conv2.weight", {16, 6, 5, 5}, 0.01f},
                                       {"fc1.weight", {120, 400}, 0.02f},
                                       {"fc2.weight", {84, 120}, 0.02f},
                                       {"fc3.weight", {10, 84}, 0.02f}};

std::vector<float> initial_values(std::size_t index) {
  std::size_t count = 1;
  for (const std::uint64_t extent : initial_arrays[index].shape) count *= extent;
  return mindspore_normal(index, count, initial_arrays[index].deviation);
}

void draw_as_mindspore(PreparedRun& run) {
  const auto epochs =
      static_cast<std::uint32_t>(run.plan.train.steps / run.workload.training->batches_per_epoch());
  auto data = std::make_unique<RunData>(*run.data);
  data->training = data->test = mindspore_images();
  data->training.rows = mindspore_order(image_count, epochs);
  engine::data::LoaderOptions options{.batch_size = run.workload.training->rows_per_batch(),
                                      .shuffle = false,
                                      .layout = engine::Layout::nchw,
                                      .split = "train"};
  const auto batches = [&](const engine::data::Dataset& dataset) {
    return std::make_unique<engine::data::Loader>(dataset, engine::data::Normalisation{}, options);
  };
  run.batches.training = batches(data->training);
  run.batches.evaluation = batches(data->test);
  run.workload.training = run.batches.training.get();
  run.workload.evaluation = run.batches.evaluation.get();
  run.data = std::move(data);

  for (engine::Parameter* parameter : run.workload.model->parameters())
    for (std::size_t i = 0; i < std::size(initial_arrays); ++i)
      if (parameter->name == initial_arrays[i].name) {
        const std::vector<float> values = initial_values(i);
        run.backend->upload(std::as_bytes(std::span(values)), parameter->value);
      }
}

}  // namespace

void write_mindspore_weights(const std::filesystem::path& path) {
  std::vector<std::vector<float>> values;
  std::vector<SafetensorsSource> sources;
  for (std::size_t i = 0; i < std::size(initial_arrays); ++i) {
    values.push_back(initial_values(i));
    sources.push_back(safetensors_source(std::string(initial_arrays[i].name), DType::f32,
                                         initial_arrays[i].shape, std::as_bytes(std::span(values.back()))));
  }
  write_safetensors(path, std::move(sources));
}

TutorialChange draws_of(std::string_view system) {
  return system == "mindspore_random_images" ? draw_as_mindspore : TutorialChange();
}

}  // namespace fp16lab::experiments
