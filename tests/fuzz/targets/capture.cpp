// What experiments/capture/capture.cu wrote (experiments/tensor_core_probe/judge.hpp). What is accepted
// must be judged without an end of the process, too.
#include "experiments/tensor_core_probe/judge.hpp"
#include "tests/fuzz/targets/fuzz.hpp"

using namespace fp16lab;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::MemoryFile input;
  input.replace({data, size});
  fuzz::expect_clean(input.path().string() + ": ", [] {
    const probe::Capture capture = probe::read_capture(input.path());
    // Operands of another generator are refused in a line without the path.
    fuzz::expect_clean("mma.", [&] { probe::judge(capture, "", 1); });
  });
  return 0;
}
