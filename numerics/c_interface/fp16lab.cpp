// fp16lab.h: the C++ functions with plain pointers. Strided operands are packed; nothing here computes.
#include "numerics/c_interface/fp16lab.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

#include "numerics/convert/convert.hpp"
#include "numerics/formats/dtype.hpp"
#include "numerics/gemm/strided_gemm.hpp"
#include "numerics/histogram/exponent_histogram.hpp"
#include "numerics/platform/extent.hpp"
#include "numerics/tensor_core/tensor_core_model.hpp"

namespace {

using namespace fp16lab;

thread_local std::string last_error;

/// Runs `body`; no exception leaves it.
template <class Body>
int guarded(const char* function, const Body& body) noexcept {
  const auto fail = [&](int status, const char* what) {
    try {
      last_error = std::string(function) + ": " + what;
    } catch (...) {
      last_error.clear();
    }
    return status;
  };
  try {
    body();
    return FP16LAB_OK;
  } catch (const std::invalid_argument& error) {
    return fail(FP16LAB_INVALID, error.what());
  } catch (const std::exception& error) {
    return fail(FP16LAB_FAILED, error.what());
  } catch (...) {
    return fail(FP16LAB_FAILED, "failed");
  }
}

void require(bool holds, const char* message) {
  if (!holds) throw std::invalid_argument(message);
}

DType dtype_of(int format) {
  for (const DType dtype : dtypes<is_floating>)
    if (static_cast<int>(dtype) == format) return dtype;
  throw std::invalid_argument("format " + std::to_string(format) + " is none of fp16lab_format");
}

/// What products and conversions take.
DType low_precision_dtype_of(int format) {
  const DType dtype = dtype_of(format);
  require(is_low_precision(dtype),
          "the format must be narrower than FP32: neither FP16LAB_F32 nor FP16LAB_F64");
  return dtype;
}

ArithmeticOptions options_of(int rounding) {
  switch (rounding) {
    case FP16LAB_NEAREST_EVEN:
      return Rounding::nearest_even;
    case FP16LAB_TOWARD_ZERO:
      return Rounding::toward_zero;
    case FP16LAB_UPWARD:
      return Rounding::upward;
    case FP16LAB_DOWNWARD:
      return Rounding::downward;
    case FP16LAB_NEAREST_AWAY:
      return Rounding::nearest_away;
  }
  throw std::invalid_argument("rounding " + std::to_string(static_cast<int>(rounding)) +
                              " is none of fp16lab_rounding");
}

/// Elements `stride` apart as an array; in place where they already are one.
template <class T>
class Gathered {
 public:
  Gathered(const void* data, std::ptrdiff_t stride, std::size_t count)
      : values_(static_cast<const T*>(data), count) {
    require(data != nullptr || count == 0, "an input is null");
    if (stride == 1 || count == 0) return;
    packed_.resize(count);
    const T* from = static_cast<const T*>(data);
    for (std::size_t i = 0; i < count; ++i) packed_[i] = from[static_cast<std::ptrdiff_t>(i) * stride];
    values_ = packed_;
  }
  Gathered(const Gathered&) = delete;
  Gathered& operator=(const Gathered&) = delete;
  std::span<const T> values() const { return values_; }

 private:
  std::span<const T> values_;
  std::vector<T> packed_;
};

/// compute(array of `count` results), which then go to `to`, `stride` apart.
template <class T, class Compute>
void scatter(void* to, std::ptrdiff_t stride, std::size_t count, const Compute& compute) {
  require(to != nullptr || count == 0, "an output is null");
  T* const out = static_cast<T*>(to);
  if (stride == 1) return compute(std::span(out, count));
  std::vector<T> packed(count);
  compute(std::span(packed));
  for (std::size_t i = 0; i < count; ++i) out[static_cast<std::ptrdiff_t>(i) * stride] = packed[i];
}

template <class From>
void round_array(int to_format, int rounding, const From* from, std::ptrdiff_t from_stride, void* to,
                 std::ptrdiff_t to_stride, std::size_t count) {
  const ArithmeticOptions options = options_of(rounding);
  const Gathered<From> gathered(from, from_stride, count);
  visit_dtype<is_low_precision>(low_precision_dtype_of(to_format), [&](auto row) {
    using To = typename decltype(row)::Element;
    scatter<To>(to, to_stride, count,
                [&](std::span<To> codes) { narrow<typename To::Format>(gathered.values(), codes, options); });
  });
}

void product(const char* tensor_core, int accumulator, GemmShape shape, int a_format, const fp16lab_matrix& a,
             int b_format, const fp16lab_matrix& b, const void* c, void* d, std::int64_t d_row_stride,
             int threads) {
  require(tensor_core != nullptr, "tensor_core is null");
  require(shape.m >= 0 && shape.n >= 0 && shape.k >= 0, "m, n and k must be at least 0");
  for (const Extent elements :
       {Extent(shape.m) * shape.n, Extent(shape.m) * shape.k, Extent(shape.k) * shape.n})
    require(elements.value() <= most_elements, "a matrix must have at most 2^48 elements");
  require(d != nullptr || shape.m * shape.n == 0, "d is null");
  require(d_row_stride >= shape.n || shape.m <= 1, "d_row_stride must be at least n");
  require(threads >= 1, "threads must be at least 1");
  const DType sums = dtype_of(accumulator);
  require(sums == DType::f32 || sums == DType::f16, "the accumulator must be FP16LAB_F32 or FP16LAB_F16");
  const DType a_dtype = low_precision_dtype_of(a_format), b_dtype = low_precision_dtype_of(b_format);
  const auto matrix = [](DType format, const fp16lab_matrix& given, std::int64_t elements) {
    require(given.data != nullptr || elements == 0, "a matrix is null");
    return StridedMatrix{format, given.data, given.row_stride, given.column_stride};
  };
  emulated_gemm(tensor_core_model(tensor_core, a_dtype, b_dtype, sums), shape,
                matrix(a_dtype, a, shape.m * shape.k), matrix(b_dtype, b, shape.k * shape.n), c, d,
                d_row_stride, threads);
}

}  // namespace

extern "C" {

int fp16lab_api(void) { return FP16LAB_API; }
const char* fp16lab_version(void) { return FP16LAB_VERSION; }
const char* fp16lab_last_error(void) { return last_error.c_str(); }

int fp16lab_round(int to_format, int rounding, const float* from, ptrdiff_t from_stride, void* to,
                  ptrdiff_t to_stride, size_t count) {
  return guarded("fp16lab_round",
                 [&] { round_array(to_format, rounding, from, from_stride, to, to_stride, count); });
}

int fp16lab_round_f64(int to_format, int rounding, const double* from, ptrdiff_t from_stride, void* to,
                      ptrdiff_t to_stride, size_t count) {
  return guarded("fp16lab_round_f64",
                 [&] { round_array(to_format, rounding, from, from_stride, to, to_stride, count); });
}

int fp16lab_widen(int from_format, const void* from, ptrdiff_t from_stride, float* to, ptrdiff_t to_stride,
                  size_t count) {
  return guarded("fp16lab_widen", [&] {
    visit_dtype<is_low_precision>(low_precision_dtype_of(from_format), [&](auto row) {
      using From = typename decltype(row)::Element;
      const Gathered<From> gathered(from, from_stride, count);
      scatter<float>(to, to_stride, count, [&](std::span<float> wide) { widen(gathered.values(), wide); });
    });
  });
}

int fp16lab_dot(const char* tensor_core, int accumulator, int a_format, const void* a, ptrdiff_t a_stride,
                int b_format, const void* b, ptrdiff_t b_stride, size_t k, const void* c, void* d) {
  return guarded("fp16lab_dot", [&] {
    const auto length = static_cast<std::int64_t>(k);
    // Strides of one row of a and one column of b; the other stride is never used.
    product(tensor_core, accumulator, {.m = 1, .n = 1, .k = length}, a_format, {a, 0, a_stride}, b_format,
            {b, b_stride, 0}, c, d, 1, 1);
  });
}

int fp16lab_gemm(const char* tensor_core, int accumulator, int64_t m, int64_t n, int64_t k, int a_format,
                 fp16lab_matrix a, int b_format, fp16lab_matrix b, const void* c, void* d,
                 ptrdiff_t d_row_stride, int threads) {
  return guarded("fp16lab_gemm", [&] {
    product(tensor_core, accumulator, {.m = m, .n = n, .k = k}, a_format, a, b_format, b, c, d, d_row_stride,
            threads);
  });
}

int fp16lab_count(int format, const void* values, ptrdiff_t stride, size_t count,
                  fp16lab_histogram* histogram, int threads) {
  return guarded("fp16lab_count", [&] {
    static_assert(FP16LAB_BINS == ExponentHistogram::bin_count && ExponentHistogram::min_exponent == -150);
    require(histogram != nullptr, "histogram is null");
    require(threads >= 1, "threads must be at least 1");
    ExponentHistogram counts;
    const auto add = [&]<class T>(T) {
      const Gathered<T> gathered(values, stride, count);
      count_exponents(gathered.values(), counts, threads);
    };
    switch (dtype_of(format)) {
      case DType::f32:
        add(float());
        break;
      case DType::f16:
        add(Float16());
        break;
      case DType::bf16:
        add(BFloat16());
        break;
      default:
        throw std::invalid_argument("the format must be FP16LAB_F32, FP16LAB_F16 or FP16LAB_BF16");
    }
    std::memcpy(histogram->bins, counts.bins.data(), sizeof(histogram->bins));
    histogram->zero = counts.zero;
    histogram->infinite = counts.infinite;
    histogram->nan = counts.nan;
    histogram->smallest = float_from_bits(counts.smallest);
    histogram->greatest = float_from_bits(counts.greatest);
  });
}

}  // extern "C"
