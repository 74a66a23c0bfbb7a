// .npy, .npz and .safetensors (numerics/files/arrays/array_stream.hpp): opened, and every element read.
#include "numerics/files/arrays/array_stream.hpp"

#include "tests/fuzz/targets/fuzz.hpp"

using namespace fp16lab;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::MemoryFile input;
  input.replace({data, size});
  fuzz::expect_clean(input.path().string() + ": ", [] {
    const ArrayFile file(input.path());
    // Nothing that is opened may claim more than deflate could have made of the file (1032:1); 2^20 elements
    // are enough to see that reading works.
    for (const ArrayInfo& array : file.arrays()) {
      if (!array.type || array.element_count() > (1u << 20)) continue;
      std::uint64_t count = 0;
      file.visit(array, [&count](const ArrayChunk& chunk) {
        std::visit([&count](const auto& values) { count += values.size(); }, chunk);
      });
      if (count != array.element_count()) fuzz::refuse("another number of elements", array.describe());
    }
  });
  return 0;
}
