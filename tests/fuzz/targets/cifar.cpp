// Binary files of CIFAR-10 (engine/data/cifar.hpp): the same file twice, as two batches.
#include "engine/data/cifar.hpp"

#include "tests/fuzz/targets/fuzz.hpp"

using namespace fp16lab;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::MemoryFile input;
  input.replace({data, size});
  fuzz::expect_clean(input.path().string() + ": ", [] {
    const engine::data::Dataset set =
        engine::data::read_cifar10(std::vector<std::filesystem::path>{input.path(), input.path()});
    std::vector<std::byte> buffer;
    for (std::int64_t i = 0; i < set.count(); ++i) {
      const auto label = set.targets.example(i, buffer)[0];
      if (std::to_integer<int>(label) > 9) fuzz::refuse("a label above 9", input.path().string());
      if (set.inputs.example(i, buffer).size() != 3072) fuzz::refuse("no image", input.path().string());
    }
  });
  return 0;
}
