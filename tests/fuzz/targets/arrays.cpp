// A data set of arrays (engine/data/arrays.hpp) in one .npz, .npy, .safetensors or IDX file whose arrays are
// x and y (of a .npy or IDX file: x alone, as its inputs): opened, and every example of both parts made
// numbers.
#include "engine/data/arrays.hpp"

#include "engine/data/normalisation.hpp"
#include "tests/fuzz/targets/fuzz.hpp"

using namespace fp16lab;
using namespace fp16lab::engine::data;

/// Examples must be in the arrays, symbols and classes below the set's counts.
static void use(const Dataset& set) {
  std::vector<std::byte> buffer;
  std::vector<std::int64_t> integers;
  const Normaliser normaliser(set, {});
  std::vector<float> values(static_cast<std::size_t>(set.inputs.elements()));
  for (std::uint32_t i = 0; i < static_cast<std::uint32_t>(set.count()); ++i) {
    const auto check = [&](const ExampleArray& array, std::int64_t limit) {
      integers.resize(static_cast<std::size_t>(array.elements()));
      to_integers(array.type(), array.example(set.row(i), buffer), integers);
      for (const std::int64_t value : integers)
        if (value < 0 || value >= limit) fuzz::refuse("an integer out of range", std::to_string(value));
    };
    if (set.vocabulary > 0)
      check(set.inputs, set.vocabulary);
    else
      normaliser.apply(set.inputs.example(set.row(i), buffer), values);
    if (set.classes > 0) check(set.targets, set.classes);
  }
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::Folder folder;
  folder.write("data", fuzz::text_of({data, size}));
  const auto load = [](const ArraysOptions& options) {
    fuzz::expect_clean((folder.path() / "data").string() + ": ", [&] {
      try {
        const SplitDataset sets = load_arrays(options);
        if (sets.training.inputs.elements() > (1 << 16)) return;
        use(sets.training);
        use(sets.test);
      } catch (const std::invalid_argument& error) {  // a part of too few examples
        if (!std::string_view(error.what()).starts_with("data.test_size")) throw;
      }
    });
  };
  load({.path = folder.path() / "data", .train = {"x", "y"}, .test_size = 0.5});
  load({.path = folder.path(), .train = {"data"}, .test_size = 1, .test_seed = 0, .targets = false});
  return 0;
}
