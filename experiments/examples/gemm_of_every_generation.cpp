// One dot product, several answers: what the tensor cores of every generation make of the same FP16 operands.
#include <cstdio>
#include <vector>

#include "fp16lab/numerics/convert/convert.hpp"
#include "fp16lab/numerics/gemm/gemm.hpp"

int main() {
  using namespace fp16lab;
  // 1 + 16 * 2^-24 + 16 * 2^-25 = 1 + 1.43e-6: every core keeps another part of what is small beside 1.
  const GemmShape shape{.m = 1, .n = 1, .k = 33};
  std::vector<float> a(33, 0x1p-12f), b(33, 0x1p-12f);
  a[0] = b[0] = 1.0f;
  for (std::size_t k = 2; k < b.size(); k += 2) b[k] = 0x1p-13f;
  std::vector<Float16> a16(a.size()), b16(b.size());
  narrow<Binary16>(a, a16);
  narrow<Binary16>(b, b16);

  for (const TensorCoreModel& model : tensor_core_models()) {
    if (!model.operands.contains(DType::f16) || model.accumulator() != DType::f32) continue;
    const std::string_view name = model.name;
    float d = 0;
    emulated_gemm(model, shape, MatrixView<Float16>{a16.data(), shape.k},
                  MatrixView<Float16>{b16.data(), shape.n}, nullptr, &d, shape.n);
    std::printf("%-18.*s 1 + %.9g\n", static_cast<int>(name.size()), name.data(), static_cast<double>(d) - 1);
  }
  float exact = 0;
  fma_chain_gemm(shape, {a.data(), shape.k}, {b.data(), shape.n}, &exact, shape.n);
  std::printf("%-18s 1 + %.9g\n", "FP32 fma chain", static_cast<double>(exact) - 1);
}
