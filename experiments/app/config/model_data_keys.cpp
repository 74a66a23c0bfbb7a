// Keys model.* and data.*: what is trained, on what.
#include "engine/data/dataset.hpp"
#include "engine/data/loader.hpp"
#include "experiments/app/config/config_key_rows.hpp"
#include "experiments/app/registry.hpp"

namespace fp16lab::experiments::keys {

namespace {

/// Rows and columns, on each side of an image.
constexpr ConfigRange paddings{0, static_cast<double>(engine::data::most_padding)};

using engine::data::DataKind;
using engine::data::Targets;

/// The data sets of these kinds.
Choices named_data(std::initializer_list<DataKind> kinds) {
  Choices names;
  for (const engine::data::DatasetInfo& info : engine::data::known_datasets())
    if (std::ranges::find(kinds, info.kind) != kinds.end()) names.emplace_back(info.name);
  return names;
}
/// Those that are read from files, not drawn.
Choices read_data() {
  Choices names = named_data({DataKind::images, DataKind::arrays, DataKind::text});
  std::erase(names, engine::data::random_images_name);
  return names;
}

Named<engine::Layout> layouts() { return {{"nchw", engine::Layout::nchw}, {"nhwc", engine::Layout::nhwc}}; }

}  // namespace

std::vector<ConfigKey> of_model() {
  return {
      FP16LAB_KEY(model.name, "name of the network in tables and figures"),
      FP16LAB_KEY(model.loss, "the loss that training minimises", named(every<engine::LossKind>)),
      FP16LAB_KEY(model.label_smoothing,
                  "(cross_entropy only) share of the label that is spread over all classes", below_one)
          .read_with("model.loss", {"cross_entropy"}),
      FP16LAB_KEY(model.one_hot, "(cross_entropy only) computed from the probabilities of one-hot targets")
          .read_with("model.loss", {"cross_entropy"}),
      FP16LAB_KEY(model.huber_delta, "(huber only) where the loss becomes linear", positive)
          .read_with("model.loss", {"huber"}),
      FP16LAB_KEY(model.noise, "(train.method = gan only) how many numbers the generator receives",
                  positive_sizes)
          .read_with("train.method", {"gan"}),
      FP16LAB_KEY(model.init, "initial weights of rows that do not set their own",
                  named(every<engine::nn::Initialization>)),
      FP16LAB_KEY(model.layout, "(images only) order of the axes", layouts())
          .read_with("data.name", named_data({DataKind::images, DataKind::arrays})),
      FP16LAB_KEY(model.context, "(text only) symbols in a window", positive_sizes)
          .read_with("data.name", named_data({DataKind::text})),
      FP16LAB_KEY(model.scale_down,
                  "(synthetic data only) widths (out_features of linear rows, data.inputs, data.outputs) and "
                  "train.batch_size are divided by this, nothing else changes",
                  positive_sizes)
          .read_with("data.name", named_data({DataKind::synthetic})),
  };
}

std::vector<ConfigKey> of_data() {
  return {
      FP16LAB_KEY(data.name, "the data set", dataset_names()),
      FP16LAB_KEY(
          data.path,
          "its folder; a text file; for arrays, their file or the folder of their files; relative to the "
          "configuration file, or in --set to the working folder; empty: $FP16LAB_DATA, then the system's")
          .as(KeyRole::machine)
          .read_with("data.name", read_data()),
      FP16LAB_KEY(data.train,
                  "(arrays only) inputs and targets to train with, by name (an array of data.path; in a "
                  "folder, a file or FILE:ARRAY)")
          .read_with("data.name", named_data({DataKind::arrays})),
      FP16LAB_KEY(data.test, "(arrays only) inputs and targets to test with, likewise")
          .read_with("data.name", named_data({DataKind::arrays}))
          .read_with("data.test_size", {"0.0"}),
      FP16LAB_KEY(data.test_size,
                  "(arrays only) unless 0, a part of data.train is the test set instead of data.test: below "
                  "1 a share, else a number of examples",
                  in_fp64(not_negative))
          .read_with("data.name", named_data({DataKind::arrays})),
      FP16LAB_KEY(data.test_seed, "which part of data.train it is: drawn by this seed; 0: the last examples",
                  counts)
          .read_unless("data.test_size", {"0.0"}),
      FP16LAB_KEY(data.layout,
                  "(arrays only) what an example is; auto: tokens for integers wider than a byte, images "
                  "where one axis can be channels",
                  named(every<engine::data::ExampleKind>))
          .read_with("data.name", named_data({DataKind::arrays})),
      FP16LAB_KEY(data.classes,
                  "number of classes. Arrays: 0 means one more than the greatest target, or as many as soft "
                  "labels have. Synthetic data: 0 means that targets are numbers",
                  sizes)
          .read_with("data.name", named_data({DataKind::arrays, DataKind::synthetic})),
      FP16LAB_KEY(data.subset, "first n training examples, or symbols of text; 0: all", counts)
          .read_with("data.name", read_data()),
      FP16LAB_KEY(data.test_subset,
                  "first n test examples, or symbols of text (or all, where a file asks for more); 0: all",
                  counts)
          .read_with("data.name", read_data()),
      FP16LAB_KEY(data.shuffle,
                  "train.seed draws a new order of training examples, or windows of text, for each epoch; "
                  "false: the order of their rows, in every epoch")
          .read_with("data.name", named_data({DataKind::images, DataKind::arrays, DataKind::text})),
      FP16LAB_KEY(data.tokens, "(text only) what a symbol is; words: with the space before them, or marks",
                  named(every<engine::data::Tokens>))
          .read_with("data.name", named_data({DataKind::text})),
      FP16LAB_KEY_AS("data.normalise", data.standardise,
                     "unit: bytes p as p/255, other numbers as they are; standard: also mean 0 and deviation "
                     "1 over the training set, by channel",
                     Named<bool>{{"unit", false}, {"standard", true}})
          .read_with("data.name", named_data({DataKind::images, DataKind::arrays})),
      FP16LAB_KEY(data.padding, "(images only) rows and columns added on each side, as pixel 0", paddings)
          .read_with("data.name", named_data({DataKind::images, DataKind::arrays})),
      FP16LAB_KEY(data.flip, "(images only) mirror training images left to right, each with probability 1/2")
          .read_with("data.name", named_data({DataKind::images, DataKind::arrays})),
      FP16LAB_KEY(data.crop_padding,
                  "(images only) shift training images at random by up to this many rows and columns (a "
                  "random crop of the image padded by pixel 0); 0: off",
                  paddings)
          .read_with("data.name", named_data({DataKind::images, DataKind::arrays})),
      FP16LAB_KEY(
          data.targets,
          "labels, or inputs for an autoencoder; auto: labels for cross_entropy and arrays, else inputs",
          Named<std::optional<Targets>>{
              {"auto", {}}, {"labels", Targets::labels}, {"inputs", Targets::inputs}})
          .read_with("data.name", named_data({DataKind::images, DataKind::arrays})),
      FP16LAB_KEY(data.batches, "(synthetic data only) batches per epoch", ConfigRange{1, 4294967295})
          .read_with("data.name", named_data({DataKind::synthetic})),
      FP16LAB_KEY(data.inputs,
                  "(synthetic data only) numbers of an example, or its shape, such as [3, 32, 32]",
                  positive_sizes)
          .read_with("data.name", named_data({DataKind::synthetic})),
      FP16LAB_KEY(data.outputs, "(synthetic data only) numbers of a target", positive_sizes)
          .read_with("data.name", named_data({DataKind::synthetic}))
          .read_with("data.classes", {"0"}),
  };
}

}  // namespace fp16lab::experiments::keys
