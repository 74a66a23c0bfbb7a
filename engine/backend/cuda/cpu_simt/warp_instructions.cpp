#include "engine/backend/cuda/cpu_simt/warp_instructions.hpp"

#include <array>
#include <bit>
#include <cstring>
#include <string>

#include "engine/backend/cuda/cpu_simt/executor.hpp"
#include "numerics/gemm/gemm.hpp"

namespace fp16lab::engine::cpu_simt {

namespace {

constexpr int lanes = 32;

thread_local std::string generation = "hopper";

template <class T>
T value_of(const std::byte* values, int lane) {
  T value;
  std::memcpy(&value, values + static_cast<std::size_t>(lane) * warp_lane_bytes, sizeof(value));
  return value;
}

void load_matrices(const std::byte* rows, std::byte* results, bool transposed) {
  for (int lane = 0; lane < lanes; ++lane) {
    const int g = lane / 4, t = lane % 4;
    std::array<std::uint32_t, 4> registers{};
    for (int matrix = 0; matrix < 4; ++matrix) {
      std::uint16_t pair[2];
      for (int i = 0; i < 2; ++i) {
        const int row = transposed ? 2 * t + i : g, column = transposed ? g : 2 * t + i;
        std::memcpy(&pair[i], value_of<const std::byte*>(rows, 8 * matrix + row) + 2 * column,
                    sizeof(pair[i]));
      }
      registers[static_cast<std::size_t>(matrix)] = pair[0] | std::uint32_t{pair[1]} << 16;
    }
    std::memcpy(results + static_cast<std::size_t>(lane) * warp_lane_bytes, registers.data(),
                sizeof(registers));
  }
}

struct Fragments {
  std::uint32_t a[4], b[2];
  float d[4];
};

/// Element i of a word of a fragment.
template <class T>
T element(std::uint32_t word, int i) {
  if constexpr (std::is_same_v<T, float>)
    return std::bit_cast<float>(word);
  else
    return T::from_bits(static_cast<std::uint16_t>(word >> (16 * i)));
}

template <class T, int bytes>
void multiply(const std::byte* values, std::byte* results) {
  constexpr int in_word = 4 / static_cast<int>(sizeof(T));  // neighbours along k
  // As stored; the first `products` of k take part.
  constexpr int m = 16, n = 8, k = 8 * in_word, products = bytes / static_cast<int>(sizeof(T));
  std::array<T, m * k> a;
  std::array<T, n * k> b;  // stored (n x k)
  std::array<float, m * n> d;
  const auto at = [](int row, int column, int width) {
    const int place = row * width + column;
    return static_cast<std::size_t>(place);
  };
  for (int lane = 0; lane < lanes; ++lane) {
    const auto f = value_of<Fragments>(values, lane);
    const int g = lane / 4, t = lane % 4;
    for (int i = 0; i < in_word; ++i) {
      for (int r = 0; r < 4; ++r)
        a[at(g + r % 2 * 8, in_word * t + i + r / 2 * 4 * in_word, k)] = element<T>(f.a[r], i);
      for (int r = 0; r < 2; ++r) b[at(g, in_word * t + i + r * 4 * in_word, k)] = element<T>(f.b[r], i);
    }
    for (int i = 0; i < 4; ++i) d[at(g + i / 2 * 8, 2 * t + i % 2, n)] = f.d[i];
  }
  const TensorCoreModel& row = tensor_core_model(generation, operand_format_of<T>);
  emulated_gemm(row, {m, n, products}, MatrixView<T>{a.data(), k, false}, MatrixView<T>{b.data(), k, true},
                d.data(), d.data(), n);
  for (int lane = 0; lane < lanes; ++lane) {
    const int g = lane / 4, t = lane % 4;
    float own[4];
    for (int i = 0; i < 4; ++i) own[i] = d[at(g + i / 2 * 8, 2 * t + i % 2, n)];
    std::memcpy(results + static_cast<std::size_t>(lane) * warp_lane_bytes, own, sizeof(own));
  }
}

template <int bytes>
WarpFunction multiply_of(DType operands) {
  if (operands == DType::tf32) return &multiply<float, bytes>;
  return operands == DType::f16 ? &multiply<Float16, bytes> : &multiply<BFloat16, bytes>;
}

}  // namespace

void set_tensor_core(std::string_view name) { generation = name; }
std::string_view tensor_core() { return generation; }

PretendedGpu pretended_gpu() {
  constexpr std::size_t kb = 1024;
  if (generation == "volta") return {7, 0, 96 * kb, 96 * kb};
  if (generation == "turing") return {7, 5, 64 * kb, 64 * kb};
  if (generation == "ampere") return {8, 0, 163 * kb, 164 * kb};
  if (generation == "ada") return {8, 9, 99 * kb, 100 * kb};
  if (generation.starts_with("blackwell")) return {10, 0, 227 * kb, 228 * kb};
  return {9, 0, 227 * kb, 228 * kb};
}
bool pretends_to_be_sm_75() { return generation == "turing"; }

void load_matrices_x4_on_host(std::uint32_t (&registers)[4], const void* row, bool transposed) {
  require_alignment(row, 16);
  const WarpFunction load =
      transposed ? [](const std::byte* rows, std::byte* results) { load_matrices(rows, results, true); }
                 : [](const std::byte* rows, std::byte* results) { load_matrices(rows, results, false); };
  warp_compute(&row, sizeof(row), load, registers, sizeof(registers));
}

void multiply_on_host(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2], DType operands,
                      int bytes) {
  Fragments own;
  std::memcpy(own.a, a, sizeof(own.a));
  std::memcpy(own.b, b, sizeof(own.b));
  std::memcpy(own.d, d, sizeof(own.d));
  const WarpFunction function = bytes == 32 ? multiply_of<32>(operands) : multiply_of<16>(operands);
  warp_compute(&own, sizeof(own), function, d, sizeof(d));
}

/// The product of two FP32 numbers is exact in FP64; the sum is rounded to odd there, so that rounding to
/// FP32 is the only one that counts (Boldo and Melquiond, 2008).
float fma_of_host(float a, float b, float c) {
  const double product = static_cast<double>(a) * static_cast<double>(b);
  const double addend = static_cast<double>(c);
  double sum = product + addend;
  const double back = sum - product;
  const double error = (product - (sum - back)) + (addend - back);  // TwoSum (Knuth)
  std::uint64_t bits = std::bit_cast<std::uint64_t>(sum);
  if (error != 0.0 && error == error && (bits & 1) == 0) {
    // Towards the exact value: the neighbour that has an odd last place.
    bits += (error > 0.0) == (sum > 0.0) ? 1 : std::uint64_t(-1);
    sum = std::bit_cast<double>(bits);
  }
  return static_cast<float>(sum);
}

}  // namespace fp16lab::engine::cpu_simt
