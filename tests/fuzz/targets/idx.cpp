// IDX, plain and gzip-compressed (engine/data/idx.hpp).
#include "engine/data/idx.hpp"

#include "tests/fuzz/targets/fuzz.hpp"

using namespace fp16lab;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::MemoryFile input;
  input.replace({data, size});
  for (const int dimensions : {1, 3})
    fuzz::expect_clean(input.path().string() + ": ", [&] {
      const engine::data::IdxArray array = engine::data::read_idx(input.path(), dimensions);
      std::uint64_t count = 1;
      for (const std::uint32_t extent : array.extents) count *= extent;
      if (count != array.values.size()) fuzz::refuse("another number of elements", input.path().string());
    });
  return 0;
}
