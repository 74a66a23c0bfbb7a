// Counting by address and stream, in memory of another owner: the counts of count_exponents. On a GPU where
// there is one, and on the PTX machine (CTest's entry cuda_stream_histogram_ptx).
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <random>
#include <span>
#include <type_traits>
#include <vector>

#include "engine/backend/cuda/runtime/devices.hpp"
#include "engine/backend/cuda/stream_histogram.hpp"
#include "numerics/formats/dtype.hpp"
#include "numerics/histogram/exponent_histogram.hpp"

namespace fp16lab::engine::test {
namespace {

/// The histogram of a row, as Python reads it (python/fp16lab/torch/device_counts.py).
ExponentHistogram histogram_of(const std::vector<std::uint64_t>& row) {
  ExponentHistogram histogram;
  const auto next =
      std::copy_n(row.begin(), histogram.bins.size(), histogram.bins.begin()) - histogram.bins.begin();
  const std::uint64_t* const rest = row.data() + next;
  histogram.zero = rest[0];
  histogram.infinite = rest[1];
  histogram.nan = rest[2];
  histogram.greatest = static_cast<std::uint32_t>(rest[3]);
  if (histogram.greatest != 0) histogram.smallest = Binary32::infinity - static_cast<std::uint32_t>(rest[4]);
  return histogram;
}

/// Bytes of a device that this test owns.
class Memory {
 public:
  explicit Memory(std::span<const std::byte> bytes) {
    EXPECT_EQ(cudaMalloc(&address_, bytes.size()), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(address_, bytes.data(), bytes.size(), cudaMemcpyHostToDevice), cudaSuccess);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() { cudaFree(address_); }
  void* get() const { return address_; }

 private:
  void* address_ = nullptr;
};

class StreamHistogram : public testing::Test {
 protected:
  void SetUp() override {
    if (const CudaStatus status = cuda_status(); status.devices.empty()) GTEST_SKIP() << status.reason;
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
  }
  void TearDown() override { cudaStreamDestroy(stream_); }

  template <class T>
  void expect_counts(std::size_t size) {
    std::mt19937 random(static_cast<unsigned>(size));
    std::vector<T> values(size);
    using Word = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint16_t>;
    for (T& value : values) value = std::bit_cast<T>(static_cast<Word>(random()));
    values[0] = std::bit_cast<T>(Word{0});
    std::vector<std::uint64_t> row(histogram_row_size);
    const Memory there(std::as_bytes(std::span(values))), counts(std::as_bytes(std::span(row)));
    ExponentHistogram expected;
    for (int time = 0; time < 2; ++time) {
      count_exponents_on_stream(there.get(), size, DTypeOf<T>::value,
                                static_cast<std::uint64_t*>(counts.get()), stream_);
      count_exponents(std::span<const T>(values), expected);
    }
    ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    ASSERT_EQ(cudaMemcpy(row.data(), counts.get(), row.size() * sizeof(row[0]), cudaMemcpyDeviceToHost),
              cudaSuccess);
    EXPECT_EQ(histogram_of(row), expected) << name_of(DTypeOf<T>::value) << ", " << size;
  }
  cudaStream_t stream_ = nullptr;
};

TEST_F(StreamHistogram, IsThatOfTheHost) {
  for (const std::size_t size : {1u, 7u, 1000u, 20'001u}) {
    expect_counts<float>(size);
    expect_counts<Float16>(size);
    expect_counts<BFloat16>(size);
  }
}

TEST_F(StreamHistogram, RefusesOtherFormatsAndAddresses) {
  const Memory memory(std::vector<std::byte>(64));
  auto* const bytes = static_cast<std::byte*>(memory.get());
  auto* const row = static_cast<std::uint64_t*>(memory.get());
  EXPECT_THROW(count_exponents_on_stream(bytes, 4, DType::f64, row, stream_), std::invalid_argument);
  EXPECT_THROW(count_exponents_on_stream(bytes + 4, 4, DType::f32, row, stream_), std::invalid_argument);
}

}  // namespace
}  // namespace fp16lab::engine::test
