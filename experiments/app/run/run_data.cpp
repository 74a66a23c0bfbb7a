#include "experiments/app/run/run_data.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <stdexcept>

#include "engine/data/arrays.hpp"
#include "engine/data/loader.hpp"
#include "engine/data/synthetic.hpp"
#include "experiments/app/exit_code.hpp"

namespace fp16lab::experiments {
namespace {

using engine::data::DataKind;

/// The whole of `symbols`, or the first `subset` of them if that is not 0.
std::span<const std::int32_t> first_of(std::span<const std::int32_t> symbols, std::int64_t subset,
                                       std::string_view key, std::string_view tokens) {
  const auto size = static_cast<std::int64_t>(symbols.size());
  if (subset > size)
    throw std::invalid_argument(
        fmt::format("{} = {}: expected at most {}, the {} that there are", key, subset, size, tokens));
  return subset == 0 ? symbols : symbols.first(static_cast<std::size_t>(subset));
}

void load_text(const RunConfig& config, RunData& data) {
  const engine::data::TextLocation location = engine::data::find_text(config.data.name, config.data.path);
  const std::string_view tokens = name_of(config.data.tokens);
  data.text = engine::data::load_text(location, config.data.tokens);
  data.training_text = first_of(data.text.training(), config.data.subset, "data.subset", tokens);
  const auto test_size = static_cast<std::int64_t>(data.text.test().size());
  const bool fits = config.data.test_subset <= test_size;
  data.test_text =
      first_of(data.text.test(), fits || config.data.test_subset_is_set ? config.data.test_subset : 0,
               "data.test_subset", tokens);
  data.files = data.text.files;
  data.found = fmt::format("data: {} from {} (chosen by {})", config.data.name, location.file.string(),
                           location.chosen_by);
  const std::size_t size = data.text.symbols.size();
  if (config.data.tokens == engine::data::Tokens::words)
    data.found += fmt::format(": {} words and marks, {} different ones", size, data.text.vocabulary.size());
  else if (!data.text.characters)
    data.found += fmt::format(": {} bytes that are not UTF-8, each of which counts as a character", size);
  else if (*data.text.characters != size)
    data.found += fmt::format(
        ": {} characters in {} bytes of UTF-8; a step predicts bytes, bits per character count characters",
        *data.text.characters, size);
  if (!fits)
    data.found += fmt::format(
        "\nnote: data.test_subset = {}, but the last tenth of this text is {} {}: the test uses all of them",
        config.data.test_subset, test_size, tokens);
  const auto vocabulary = static_cast<std::int64_t>(data.text.vocabulary.size());
  data.model_shape = {.input = {.extents = {config.model.context}, .vocabulary = vocabulary},
                      .output = {.extents = {vocabulary}, .rows = config.model.context}};
  // A short file fails here, whatever becomes of its batches.
  for (const auto& [name, symbols] : {std::pair{"training", data.training_text}, {"test", data.test_text}})
    if (engine::data::window_count(static_cast<std::int64_t>(symbols.size()), config.model.context) == 0)
      throw std::invalid_argument(
          fmt::format("{}: a {} text of {} {} (of {} in the file) is too short for one window of "
                      "model.context + 1 = {}",
                      location.file.string(), name, symbols.size(), tokens, size, config.model.context + 1));
}

void describe_synthetic(const RunConfig& config, RunData& data) {
  data.model_shape = {
      .input = {.extents = synthetic_inputs(config)},
      .output = {.extents = {config.data.classes > 0 ? config.data.classes : synthetic_outputs(config)}}};
  data.found = fmt::format("data: {}, drawn from seed {}: {} batches of {} examples an epoch, {} inputs, {}",
                           config.data.name, config.train.seed, config.data.batches, batch_size_of(config),
                           fmt::join(synthetic_inputs(config), " x "),
                           config.data.classes == 0 ? fmt::format("{} targets", synthetic_outputs(config))
                                                    : fmt::format("{} classes", config.data.classes));
}

/// Nothing is to be learnt but the training images themselves, so an evaluation goes over them again.
void draw_images(const RunConfig& config, RunData& data) {
  constexpr std::int64_t count = 1024, side = 32, classes = 10;
  data.training = data.test = engine::data::random_images(count, side, classes, config.train.seed);
  data.found = fmt::format("data: {}, drawn from seed {}: {} images of {} x {} with labels 0 to {}",
                           config.data.name, config.train.seed, count, side, side, classes - 1);
}

void load_images(const RunConfig& config, RunData& data) {
  using engine::data::Split;
  const std::string& name = config.data.name;
  if (name == engine::data::random_images_name) {
    draw_images(config, data);
    return;
  }
  const engine::data::DatasetLocation location = engine::data::find_dataset(name, config.data.path);
  data.training = engine::data::load_dataset(name, location, Split::train, config.data.subset);
  data.test = engine::data::load_dataset(name, location, Split::test, config.data.test_subset);
  for (const engine::data::Dataset* set : {&data.training, &data.test})
    data.files.insert(data.files.end(), set->files.begin(), set->files.end());
  data.found =
      fmt::format("data: {} from {} (chosen by {})", name, location.folder.string(), location.chosen_by);
}

engine::data::ArraysOptions arrays_options(const RunConfig& config) {
  const DataConfig& data = config.data;
  if (data.path.empty())
    throw std::invalid_argument(
        "data.name = \"arrays\" needs data.path, the file of the arrays or the folder of their files");
  return {.path = data.path,
          .train = data.train,
          .test = data.test,
          .test_size = data.test_size,
          .test_seed = data.test_seed,
          .kind = data.layout,
          .targets = task_of(config).targets == engine::data::Targets::labels,
          .classes_expected = config.model.loss == engine::LossKind::cross_entropy,
          .classes = data.classes,
          .subset = data.subset,
          .test_subset = data.test_subset};
}

/// "images of 3 x 32 x 32 (u8, nchw)", "tokens below 100 (i64), 16 each".
std::string examples_text(const engine::data::Dataset& set) {
  const std::string extents =
      set.inputs.shape().empty() ? "1" : fmt::format("{}", fmt::join(set.inputs.shape(), " x "));
  const std::string_view type = name_of(set.inputs.type());
  if (set.vocabulary > 0)
    return fmt::format("sequences of {} tokens below {} ({})", extents, set.vocabulary, type);
  if (!set.images) return fmt::format("examples of {} features ({})", extents, type);
  return fmt::format("images of {} ({}, {})", extents, type,
                     *set.images == engine::Layout::nchw ? "nchw" : "nhwc");
}

std::string targets_text(const engine::data::Dataset& set) {
  if (set.targets.count() == 0) return "no targets";
  if (set.classes == 0) return fmt::format("{} targets each", set.targets.elements());
  const std::int64_t each = set.answers();
  if (set.soft)
    return fmt::format("soft labels of {} classes{}", set.classes,
                       each == 1 ? "" : fmt::format(", {} rows each", each));
  return each == 1 ? fmt::format("{} classes", set.classes)
                   : fmt::format("{} targets each of {} classes", each, set.classes);
}

void load_arrays(const RunConfig& config, RunData& data) {
  const engine::data::ArraysOptions options = arrays_options(config);
  engine::data::SplitDataset sets = engine::data::load_arrays(options);
  data.training = std::move(sets.training);
  data.test = std::move(sets.test);
  data.files = data.training.files;
  const std::string part = options.test_size == 0 ? std::string()
                           : options.test_seed == 0
                               ? std::string(" (the last of them)")
                               : fmt::format(" (chosen by data.test_seed = {})", options.test_seed);
  data.found =
      fmt::format("data: {}: {} to train and {} to test{}: {}, {}", config.data.path, data.training.count(),
                  data.test.count(), part, examples_text(data.training), targets_text(data.training));
}

/// What a network is given of these examples, and what its output is compared with.
DataShape shape_of(const RunConfig& config, const engine::data::Dataset& set) {
  DataShape shape;
  shape.input.vocabulary = set.vocabulary;
  if (set.images) {
    const engine::data::ImageSize image = image_size(set);
    const std::int64_t height = image.height + 2 * config.data.padding,
                       width = image.width + 2 * config.data.padding;
    shape.input.extents = config.model.layout == engine::Layout::nchw
                              ? std::vector<std::int64_t>{image.channels, height, width}
                              : std::vector<std::int64_t>{height, width, image.channels};
  } else {
    shape.input.extents.assign(set.inputs.shape().begin(), set.inputs.shape().end());
    if (shape.input.extents.empty()) shape.input.extents = {1};
  }
  if (task_of(config).targets == engine::data::Targets::inputs)
    shape.output = shape.input;
  else if (set.classes > 0)
    shape.output = {.extents = {set.classes}, .rows = set.answers()};
  else
    shape.output = {.extents = {set.targets.elements()}};
  return shape;
}

/// What images and arrays have in common.
void prepare_examples(const RunConfig& config, RunData& data) {
  if (!data.training.images &&
      (config.data.padding != 0 || config.data.flip || config.data.crop_padding != 0))
    throw std::invalid_argument(
        fmt::format("data.padding, data.flip and data.crop_padding are of images; {} has {}",
                    config.data.path, examples_text(data.training)));
  if (config.data.standardise) data.normalisation = engine::data::standard_normalisation(data.training);
  data.model_shape = shape_of(config, data.training);
}

std::int64_t largest_divisor(std::int64_t count, std::int64_t limit) {
  std::int64_t size = std::min(count, limit);
  while (count % size != 0) --size;
  return size;
}

/// The size from half of `largest` on that leaves the fewest of `count` out.
std::int64_t fewest_left_out(std::int64_t count, std::int64_t largest) {
  if (count <= largest) return count;
  std::int64_t best = largest;
  for (std::int64_t size = largest; size > largest / 2; --size)
    if (count % size < count % best) best = size;
  return best;
}

std::int64_t evaluation_batch(const RunConfig& config, const RunData& data) {
  const std::int64_t count = data.test.count(), limit = evaluation_limit(config, data.test);
  const std::int64_t divisor = largest_divisor(count, limit);
  const bool small = data.kind == DataKind::arrays && divisor < std::min(limit, count) / 8;
  return small ? fewest_left_out(count, limit) : divisor;
}

RunBatches example_batches(const RunConfig& config, const RunData& data) {
  engine::data::LoaderOptions options{
      .batch_size = config.train.batch_size,
      .targets = task_of(config).targets,
      .shuffle = config.data.shuffle,
      .seed = config.train.seed,
      .layout = config.model.layout,
      .padding = config.data.padding,
      .augmentation = {.flip = config.data.flip, .crop_padding = config.data.crop_padding}};
  RunBatches batches;
  batches.training = std::make_unique<engine::data::Loader>(data.training, data.normalisation, options);
  options.batch_size = evaluation_batch(config, data);
  options.shuffle = false;
  options.augmentation = {};
  if (config.data.name == engine::data::random_images_name) options.split = "train";
  batches.evaluation = std::make_unique<engine::data::Loader>(data.test, data.normalisation, options);
  return batches;
}

RunBatches text_batches(const RunConfig& config, const RunData& data) {
  engine::data::TextLoaderOptions options{.batch_size = config.train.batch_size,
                                          .context = config.model.context,
                                          .shuffle = config.data.shuffle,
                                          .seed = config.train.seed};
  RunBatches batches;
  batches.training = std::make_unique<engine::data::TextLoader>(data.training_text, options);
  constexpr std::int64_t largest = 128;
  options.batch_size = fewest_left_out(
      engine::data::window_count(static_cast<std::int64_t>(data.test_text.size()), config.model.context),
      largest);
  options.shuffle = false;
  batches.evaluation = std::make_unique<engine::data::TextLoader>(data.test_text, options);
  return batches;
}

RunBatches synthetic_batches(const RunConfig& config) {
  const engine::data::SyntheticOptions options{
      .distribution = *enumerator_called<engine::data::Distribution>(config.data.name),
      .batch_size = batch_size_of(config),
      .inputs = synthetic_inputs(config),
      .outputs = synthetic_outputs(config),
      .classes = config.data.classes,
      .batches = config.data.batches,
      .seed = config.train.seed};
  return {.training = std::make_unique<engine::data::SyntheticBatches>(options),
          .evaluation = std::make_unique<engine::data::SyntheticBatches>(options)};
}

}  // namespace

std::int64_t RunData::training_examples(const RunConfig& config) const {
  switch (kind) {
    case DataKind::images:
    case DataKind::arrays:
      return training.count();
    case DataKind::text:
      return engine::data::window_count(static_cast<std::int64_t>(training_text.size()),
                                        config.model.context);
    case DataKind::synthetic:
      return config.data.batches * batch_size_of(config);
  }
  throw std::logic_error("unknown kind of data");
}

std::unique_ptr<const RunData> load_data(const RunConfig& config) {
  auto data = std::make_unique<RunData>();
  data->kind = task_of(config).data;
  try {
    switch (data->kind) {
      case DataKind::images:
        load_images(config, *data);
        prepare_examples(config, *data);
        break;
      case DataKind::arrays:
        load_arrays(config, *data);
        prepare_examples(config, *data);
        break;
      case DataKind::text:
        load_text(config, *data);
        break;
      case DataKind::synthetic:
        describe_synthetic(config, *data);
    }
  } catch (const std::invalid_argument& error) {
    throw CommandError(ExitCode::usage, error.what());
  } catch (const std::runtime_error& error) {
    throw CommandError(ExitCode::run_failed, error.what());
  }
  return data;
}

RunBatches make_batches(const RunConfig& config, const RunData& data) {
  switch (data.kind) {
    case DataKind::images:
    case DataKind::arrays:
      return example_batches(config, data);
    case DataKind::text:
      return text_batches(config, data);
    case DataKind::synthetic:
      return synthetic_batches(config);
  }
  throw std::logic_error("unknown kind of data");
}

std::int64_t evaluation_limit(const RunConfig& config, const engine::data::Dataset& test) {
  constexpr std::int64_t most = 1000, numbers = std::int64_t{1} << 20;
  const std::int64_t trained = std::min(config.train.batch_size, most);
  return test.vocabulary > 0 ? trained : std::clamp(numbers / test.inputs.elements(), trained, most);
}

double evaluated_symbols_per_character(const RunData& data, const engine::data::BatchSource& evaluation) {
  // Windows follow each other, and every symbol but the very first is predicted once.
  const auto predicted = static_cast<std::size_t>(evaluation.batches_per_epoch()) *
                         static_cast<std::size_t>(evaluation.rows_per_batch());
  return engine::data::symbols_per_character(data.text, data.test_text.subspan(1, predicted));
}

std::uint64_t steps_of(const RunConfig& config, const RunData& data) {
  if (config.train.steps > 0) return config.train.steps;
  const std::int64_t of_epoch = data.training_examples(config) / batch_size_of(config);
  constexpr std::int64_t most = std::int64_t{1} << 53;
  if (of_epoch > 0 && config.train.epochs > most / of_epoch)
    throw CommandError(ExitCode::usage,
                       fmt::format("train.epochs = {} of {} micro-batches: expected at most 2^53 of them",
                                   config.train.epochs, of_epoch));
  const std::int64_t micro_batches = of_epoch * config.train.epochs;
  const std::int64_t steps = micro_batches / config.train.accumulate;
  if (steps == 0)
    throw CommandError(
        ExitCode::usage,
        fmt::format("train.epochs = {} gives {} micro-batches, less than one step of train.accumulate = {}",
                    config.train.epochs, micro_batches, config.train.accumulate));
  return static_cast<std::uint64_t>(steps);
}

}  // namespace fp16lab::experiments
