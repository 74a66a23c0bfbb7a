// Times that a script of ours measured on the same card (experiments/device_acceptance/torch_times.hpp).
#include "experiments/device_acceptance/torch_times.hpp"

#include "tests/fuzz/targets/fuzz.hpp"

using namespace fp16lab;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::MemoryFile input;
  input.replace({data, size});
  fuzz::expect_clean("--torch " + input.path().string() + ": ",
                     [] { (void)experiments::acceptance::read_torch_times(input.path()); });
  return 0;
}
