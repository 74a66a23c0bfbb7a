// What is read of a checkpoint before a back end is there (engine/train/checkpoint.hpp).
#include "engine/train/checkpoint.hpp"

#include "tests/fuzz/targets/fuzz.hpp"

using namespace fp16lab;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::MemoryFile input;
  input.replace({data, size});
  fuzz::expect_clean(input.path().string() + ": ", [] {
    const engine::CheckpointFile file(input.path());
    for (const char* key : {"policy", "optimizer", "digest.step.scale"}) (void)file.metadata(key);
  });
  return 0;
}
