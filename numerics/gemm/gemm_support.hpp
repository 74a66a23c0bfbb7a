// What both GEMM drivers share: argument checks, block sizes, scratch memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

#include "numerics/gemm/gemm.hpp"

namespace fp16lab::gemm_detail {

/// These throw std::invalid_argument naming `function`, the argument and its value.
void check_shape(const char* function, GemmShape shape, std::int64_t ldd, int threads);
void check_leading_dimension(const char* function, const char* name, std::int64_t rows, std::int64_t columns,
                             std::int64_t leading_dimension, bool transposed);
[[noreturn]] void throw_null(const char* function, const char* name);

inline void check_pointer(const char* function, const char* name, const void* pointer) {
  if (pointer == nullptr) throw_null(function, name);
}

/// `Matrix` is a MatrixView or an Operand, of `rows` x `columns` logical elements.
template <class Matrix>
void check_operand(const char* function, const char* name, std::int64_t rows, std::int64_t columns,
                   const Matrix& matrix) {
  if (rows == 0 || columns == 0) return;
  check_pointer(function, name, matrix.data);
  check_leading_dimension(function, name, rows, columns, matrix.leading_dimension, matrix.transposed);
}

template <class Matrix>
void check_arguments(const char* function, GemmShape shape, const Matrix& a, const Matrix& b, const void* d,
                     std::int64_t ldd, int threads) {
  check_shape(function, shape, ldd, threads);
  if (shape.m == 0 || shape.n == 0) return;
  check_pointer(function, "D", d);
  check_operand(function, "A", shape.m, shape.k, a);
  check_operand(function, "B", shape.k, shape.n, b);
}

/// Threads worth sharing `shape` with, each with at least so many multiply-adds: ten to twenty microseconds,
/// or moving data to another core's cache costs more than it saves.
int useful_threads(GemmShape shape, int threads, std::int64_t multiply_adds_per_thread);

constexpr std::size_t round_up(std::size_t x, std::size_t multiple) {
  return (x + multiple - 1) / multiple * multiple;
}
constexpr std::size_t to_size(std::int64_t x) { return static_cast<std::size_t>(x); }
constexpr std::int64_t to_index(std::size_t x) { return static_cast<std::int64_t>(x); }

/// Cache-line aligned, uninitialised, grows but never shrinks: kept per calling thread, because fresh pages
/// for every product of a training step would cost as much as the packing itself. Block sizes bound it to a
/// few MiB.
template <class T>
class Scratch {
 public:
  T* reserve(std::size_t count) {
    if (count > capacity_) {
      const std::size_t bytes = round_up(count * sizeof(T), alignment);
      memory_.reset();
      capacity_ = 0;
      memory_.reset(static_cast<T*>(std::aligned_alloc(alignment, bytes)));
      if (memory_ == nullptr) throw std::bad_alloc();
      capacity_ = count;
    }
    return memory_.get();
  }

 private:
  static constexpr std::size_t alignment = 64;
  struct Free {
    void operator()(T* p) const {
      std::free(p);
    }  // NOLINT(cppcoreguidelines-no-malloc): pairs with aligned_alloc
  };
  std::unique_ptr<T[], Free> memory_;
  std::size_t capacity_ = 0;
};

}  // namespace fp16lab::gemm_detail
