// Numbers as FP16 keeps them: codes, what is lost, and where a decimal number falls between two halves.
#include <cstdio>
#include <vector>

#include "fp16lab/numerics/convert/convert.hpp"

int main() {
  using namespace fp16lab;
  // 65519 still rounds down to the largest half, 65520 is the tie that overflows; 2^-25 is the tie that
  // vanishes.
  const std::vector<float> numbers{1.0f / 3.0f, 2049.0f,  65519.0f,       65520.0f,
                                   6.1e-5f,     0x1p-25f, 0x1.000002p-25f};

  std::vector<Float16> halves(numbers.size());
  narrow<Binary16>(numbers, halves);  // to nearest even; the last argument would be the number of threads
  std::vector<float> back(numbers.size());
  widen(halves, back);

  std::printf("%-16s %-6s %-16s %s\n", "FP32", "code", "FP16", "");
  for (std::size_t i = 0; i < numbers.size(); ++i)
    std::printf("%-16.9g %04x   %-16.9g %s\n", static_cast<double>(numbers[i]), halves[i].bits(),
                static_cast<double>(back[i]),
                halves[i].is_zero()        ? "lost"
                : halves[i].is_infinite()  ? "overflow"
                : halves[i].is_subnormal() ? "subnormal"
                                           : "");

  // Another rounding, another format: E4M3 has no infinity, and by default 500 becomes NaN.
  const auto up = narrow<Binary16>(1.0f / 3.0f, Rounding::upward);
  std::printf("1/3 rounded up: %04x; 500 in E4M3: %02x\n", up.bits(), narrow<Fp8E4M3>(500.0f).bits());
}
