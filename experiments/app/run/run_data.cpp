#include "experiments/app/run/run_data.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

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
    data.found += fmt::format(": {} bytes that are no UTF-8, a byte counts as a character", size);
  else if (*data.text.characters != size)
    data.found += fmt::format(
        ": {} characters in {} bytes of UTF-8; a step predicts bytes, bits per "
        "character count characters",
        *data.text.characters, size);
  if (!fits)
    data.found += fmt::format(
        "\nnote: data.test_subset = {}, but the last tenth of this text is {} {}: the test "
        "takes all of them",
        config.data.test_subset, test_size, tokens);
  // A short file fails here, whatever becomes of its batches.
  for (const auto& [name, symbols] : {std::pair{"training", data.training_text}, {"test", data.test_text}})
    if (engine::data::window_count(static_cast<std::int64_t>(symbols.size()), config.model.context) == 0)
      throw std::invalid_argument(
          fmt::format("{}: a {} text of {} {} (of {} in the file) is too short for one window of "
                      "model.context + 1 = {}",
                      location.file.string(), name, symbols.size(), tokens, size, config.model.context + 1));
}

void describe_synthetic(const RunConfig& config, RunData& data) {
  data.found =
      fmt::format("data: {}, drawn from seed {}: {} batches of {} examples an epoch, {} inputs, {} targets",
                  config.data.name, config.train.seed, config.data.batches, batch_size_of(config),
                  synthetic_inputs(config), synthetic_outputs(config));
}

/// Nothing is to be learnt but the training images themselves, so an evaluation goes over them again.
void draw_images(const RunConfig& config, RunData& data) {
  constexpr std::int64_t count = 1024, side = 32, classes = 10;
  for (const auto& [key, subset] :
       {std::pair{"data.subset", config.data.subset}, {"data.test_subset", config.data.test_subset}})
    if (subset != 0)
      throw std::invalid_argument(
          fmt::format("{} = {}: {} are always {} images; expected 0", key, subset, config.data.name, count));
  if (!config.data.path.empty())
    throw std::invalid_argument(
        fmt::format("data.path = \"{}\": {} are drawn from train.seed, not read; expected \"\"",
                    config.data.path, config.data.name));
  data.training_images = data.test_images =
      engine::data::random_images(count, side, classes, config.train.seed);
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
  data.training_images = engine::data::load_dataset(name, location, Split::train, config.data.subset);
  data.test_images = engine::data::load_dataset(name, location, Split::test, config.data.test_subset);
  for (const engine::data::Dataset* set : {&data.training_images, &data.test_images})
    data.files.insert(data.files.end(), set->files.begin(), set->files.end());
  data.found =
      fmt::format("data: {} from {} (chosen by {})", name, location.folder.string(), location.chosen_by);
}

std::int64_t image_evaluation_batch(std::int64_t count) {
  std::int64_t size = std::min<std::int64_t>(count, 1000);
  while (count % size != 0) --size;
  return size;
}

std::int64_t text_evaluation_batch(std::int64_t windows) {
  constexpr std::int64_t largest = 128;
  if (windows <= largest) return windows;
  std::int64_t best = largest;
  for (std::int64_t size = largest; size > largest / 2; --size)
    if (windows % size < windows % best) best = size;
  return best;
}

RunBatches image_batches(const RunConfig& config, const RunData& data) {
  const engine::data::Normalisation normalisation =
      config.data.normalise == "standard" ? engine::data::standard_normalisation(data.training_images)
                                          : engine::data::unit_normalisation();
  engine::data::LoaderOptions options{.batch_size = config.train.batch_size,
                                      .targets = task_of(config).targets,
                                      .shuffle = true,
                                      .seed = config.train.seed,
                                      .layout = config.model.layout,
                                      .padding = config.data.padding};
  RunBatches batches;
  batches.training = std::make_unique<engine::data::Loader>(data.training_images, normalisation, options);
  options.batch_size = image_evaluation_batch(data.test_images.count);
  options.shuffle = false;
  if (config.data.name == engine::data::random_images_name) options.split = "train";
  batches.evaluation = std::make_unique<engine::data::Loader>(data.test_images, normalisation, options);
  return batches;
}

RunBatches text_batches(const RunConfig& config, const RunData& data) {
  engine::data::TextLoaderOptions options{.batch_size = config.train.batch_size,
                                          .context = config.model.context,
                                          .shuffle = true,
                                          .seed = config.train.seed};
  RunBatches batches;
  batches.training = std::make_unique<engine::data::TextLoader>(data.training_text, options);
  options.batch_size = text_evaluation_batch(
      engine::data::window_count(static_cast<std::int64_t>(data.test_text.size()), config.model.context));
  options.shuffle = false;
  batches.evaluation = std::make_unique<engine::data::TextLoader>(data.test_text, options);
  return batches;
}

RunBatches synthetic_batches(const RunConfig& config) {
  const engine::data::SyntheticOptions options{
      .distribution = engine::data::distribution_from_name(config.data.name),
      .batch_size = batch_size_of(config),
      .inputs = synthetic_inputs(config),
      .outputs = synthetic_outputs(config),
      .batches = config.data.batches,
      .seed = config.train.seed};
  return {.training = std::make_unique<engine::data::SyntheticRegression>(options),
          .evaluation = std::make_unique<engine::data::SyntheticRegression>(options)};
}

}  // namespace

DataShape RunData::shape() const {
  if (kind == DataKind::text) return {.vocabulary = static_cast<std::int64_t>(text.vocabulary.size())};
  return {
      .height = training_images.height, .width = training_images.width, .classes = training_images.classes};
}

std::int64_t RunData::training_examples(const RunConfig& config) const {
  switch (kind) {
    case DataKind::images:
      return training_images.count;
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
      return image_batches(config, data);
    case DataKind::text:
      return text_batches(config, data);
    case DataKind::synthetic:
      return synthetic_batches(config);
  }
  throw std::logic_error("unknown kind of data");
}

double evaluated_symbols_per_character(const RunData& data, const engine::data::BatchSource& evaluation) {
  // Windows follow each other, and every symbol but the very first is predicted once.
  const auto predicted = static_cast<std::size_t>(evaluation.batches_per_epoch()) *
                         static_cast<std::size_t>(evaluation.rows_per_batch());
  return engine::data::symbols_per_character(data.text, data.test_text.subspan(1, predicted));
}

std::uint64_t steps_of(const RunConfig& config, const RunData& data) {
  if (config.train.steps > 0) return config.train.steps;
  const std::int64_t micro_batches =
      data.training_examples(config) / batch_size_of(config) * config.train.epochs;
  const std::int64_t steps = micro_batches / config.train.accumulate;
  if (steps == 0)
    throw CommandError(
        ExitCode::usage,
        fmt::format("train.epochs = {} gives {} micro-batches, less than one step of train.accumulate = {}",
                    config.train.epochs, micro_batches, config.train.accumulate));
  return static_cast<std::uint64_t>(steps);
}

}  // namespace fp16lab::experiments
