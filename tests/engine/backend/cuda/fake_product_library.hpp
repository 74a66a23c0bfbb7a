// A library of products for tests: algorithms that add in known orders and end in known ways, on memory that
// the host reaches.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <ostream>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "engine/backend/cuda/library/product_library.hpp"
#include "numerics/convert/convert.hpp"
#include "numerics/formats/bits.hpp"
#include "numerics/gemm/gemm.hpp"
#include "numerics/tensor_core/tensor_core_model.hpp"

namespace fp16lab::engine::test {

/// In which order blocks of 16 products meet.
enum class Topology : std::uint8_t {
  ascending,   ///< the right one: each block's accumulator is what came before
  split_2,     ///< halves of k by themselves, then one FP32 addition
  split_4,     ///< quarters, added in their order
  split_last,  ///< all but the last block, and the last block
  /// every second group of 8 rows in two parts, where a worker's share ended: after 5/8 of the blocks
  stream_k,
  interleaved,    ///< even blocks, odd blocks, added
  reversed,       ///< from the last block to the first
  swapped,        ///< two neighbouring blocks in the middle change places
  pairwise,       ///< every block by itself, then a balanced tree of FP32 additions
  block_by_block  ///< every block by itself, added in their order
};
inline constexpr Topology wrong_topologies[] = {
    Topology::split_2,  Topology::split_4,     Topology::split_last,
    Topology::stream_k, Topology::interleaved, Topology::reversed,
    Topology::swapped,  Topology::pairwise,    Topology::block_by_block};

/// What else may be wrong.
enum class Fault : std::uint8_t {
  none,
  truncates,     ///< the output is rounded toward zero
  rounds_twice,  ///< through the other 16-bit type
  other_nan,     ///< a NaN that is not the canonical one
  leaves_a_row,  ///< the last row is not written
  other_rule,    ///< the tensor core of another generation
  fp16_sums,     ///< FP16 accumulators
  throws,        ///< refuses when it is to run
};

struct FakeAlgorithm {
  Topology topology = Topology::ascending;
  Fault fault = Fault::none;
};
inline std::string name_of(const FakeAlgorithm& algorithm) {
  static constexpr const char* topologies[] = {"ascending", "split_2",       "split_4",  "split_last",
                                               "stream_k",  "interleaved",   "reversed", "swapped",
                                               "pairwise",  "block_by_block"};
  static constexpr const char* faults[] = {
      "", "truncates", "rounds_twice", "other_nan", "leaves_a_row", "other_rule", "fp16_sums", "throws"};
  const std::string fault = faults[static_cast<int>(algorithm.fault)];
  return fault.empty() ? topologies[static_cast<int>(algorithm.topology)] : fault;
}
inline std::ostream& operator<<(std::ostream& out, const FakeAlgorithm& algorithm) {
  return out << name_of(algorithm);
}

/// op(a) (m x k) and op(b)^T (n x k) of one item, row-major.
template <class Half>
struct ProductOperands {
  std::int64_t m = 0, n = 0, k = 0;
  std::vector<Half> a, b;
};

/// Outputs of `topology` with FP32 accumulators, m x n.
template <class Half>
std::vector<float> product_in_order(const TensorCoreModel& row, const ProductOperands<Half>& operands,
                                    Topology topology) {
  const std::int64_t m = operands.m, n = operands.n, k = operands.k;
  using Blocks = std::vector<std::int64_t>;
  /// The chain over some blocks of k in some order, from +0.
  const auto chain = [&](const Blocks& blocks) {
    // A block that the end of k cuts short is filled up with zeros, as on the device, when it is not the last
    // one.
    const auto pick = [&](const std::vector<Half>& from, std::int64_t lines) {
      std::vector<Half> to;
      for (std::int64_t line = 0; line < lines; ++line)
        for (const std::int64_t block : blocks)
          for (std::int64_t i = 16 * block; i < 16 * block + 16; ++i)
            to.push_back(i < k ? from[static_cast<std::size_t>(line * k + i)] : Half::from_bits(0));
      return to;
    };
    const auto length = static_cast<std::int64_t>(16 * blocks.size());
    const std::vector<Half> part_a = pick(operands.a, m), part_b = pick(operands.b, n);
    std::vector<float> d(static_cast<std::size_t>(m * n));
    emulated_gemm(row, {.m = m, .n = n, .k = length}, MatrixView<Half>{part_a.data(), length, false},
                  MatrixView<Half>{part_b.data(), length, true}, nullptr, d.data(), n);
    return d;
  };
  const auto sum = [](std::vector<float> left, const std::vector<float>& right) {
    for (std::size_t i = 0; i < left.size(); ++i) left[i] = canonicalize(left[i] + right[i]);
    return left;
  };
  Blocks all(static_cast<std::size_t>((k + 15) / 16));
  std::iota(all.begin(), all.end(), 0);
  const auto range = [&all](std::size_t begin, std::size_t end) {
    return Blocks(all.begin() + static_cast<std::ptrdiff_t>(begin),
                  all.begin() + static_cast<std::ptrdiff_t>(end));
  };
  const auto parts = [&](const std::vector<std::size_t>& ends) {
    std::vector<float> total = chain(range(0, ends.front()));
    for (std::size_t i = 1; i < ends.size(); ++i)
      total = sum(std::move(total), chain(range(ends[i - 1], ends[i])));
    return total;
  };
  const std::size_t count = all.size();
  switch (topology) {
    case Topology::ascending:
      return chain(all);
    case Topology::split_2:
      return parts({count / 2, count});
    case Topology::split_4:
      return parts({count / 4, count / 2, 3 * count / 4, count});
    case Topology::split_last:
      return parts({count - 1, count});
    case Topology::stream_k: {
      std::vector<float> whole = chain(all);
      const std::vector<float> cut = parts({5 * count / 8, count});
      for (std::int64_t i = 0; i < m; ++i)
        if (i / 8 % 2 == 0) std::copy_n(cut.begin() + i * n, n, whole.begin() + i * n);
      return whole;
    }
    case Topology::interleaved: {
      Blocks even, odd;
      for (const std::int64_t block : all) (block % 2 == 0 ? even : odd).push_back(block);
      return sum(chain(even), chain(odd));
    }
    case Topology::reversed:
      return chain(Blocks(all.rbegin(), all.rend()));
    case Topology::swapped: {
      Blocks order = all;
      std::swap(order[count / 2], order[count / 2 - 1]);
      return chain(order);
    }
    case Topology::pairwise: {
      const std::function<std::vector<float>(std::size_t, std::size_t)> tree = [&](std::size_t begin,
                                                                                   std::size_t end) {
        if (end - begin == 1) return chain(range(begin, end));
        const std::size_t middle = (begin + end) / 2;
        return sum(tree(begin, middle), tree(middle, end));
      };
      return tree(0, count);
    }
    case Topology::block_by_block: {
      std::vector<std::size_t> ends(count);
      std::iota(ends.begin(), ends.end(), 1);
      return parts(ends);
    }
  }
  throw std::logic_error("product_in_order");
}

class FakeProductLibrary final : public ProductLibrary {
 public:
  /// What is asked of it, and how it answers; shared with the test.
  struct Log {
    std::vector<FakeAlgorithm> offered;
    std::string version = "fake 1";
    std::vector<ProductProblem> asked;  ///< of algorithms()
    std::vector<FakeAlgorithm> ran;
    std::vector<ProductOrder> orders;
    bool accepting = true;
    std::size_t workspace_bytes = 4096;
    std::string left_out;
  };

  /// Puts work on a stream.
  using Enqueue = std::function<void(void* stream, std::function<void()> work)>;

  FakeProductLibrary(std::shared_ptr<Log> log, const std::string& tensor_core, Enqueue enqueue)
      : log_(std::move(log)), tensor_core_(tensor_core), enqueue_(std::move(enqueue)) {}

  std::string version() const override { return log_->version; }
  std::vector<ProductAlgorithm> algorithms(const ProductProblem& problem, ProductOrder order,
                                           std::size_t /*workspace*/, int limit) override {
    log_->asked.push_back(problem);
    log_->orders.push_back(order);
    std::vector<ProductAlgorithm> result;
    for (const FakeAlgorithm& one : log_->offered)
      if (std::ssize(result) < limit)
        result.push_back(
            {.words = {static_cast<std::uint64_t>(one.topology), static_cast<std::uint64_t>(one.fault)},
             .workspace_bytes = log_->workspace_bytes,
             .description = name_of(one)});
    return result;
  }
  std::string left_out() const override { return log_->left_out; }
  bool accepts(const ProductProblem&, const ProductAlgorithm&, ProductOrder, std::size_t) override {
    return log_->accepting;
  }
  void run(const ProductProblem& problem, const ProductAlgorithm& algorithm, const std::byte* a,
           const std::byte* b, std::byte* d, std::byte* workspace, void* stream) override {
    const FakeAlgorithm one{static_cast<Topology>(algorithm.words[0]),
                            static_cast<Fault>(algorithm.words[1])};
    if (one.fault == Fault::throws) {
      log_->ran.push_back(one);
      throw std::runtime_error("the fake library does not run this");
    }
    enqueue_(stream, [=, this, bytes = algorithm.workspace_bytes] {
      log_->ran.push_back(one);
      if (bytes > 0) std::memset(workspace, 0x5a, bytes);
      if (problem.operands == DType::f32) return run_f32(problem, a, b, d);
      if (problem.operands == DType::f16) return run_low<Float16>(problem, one, a, b, d);
      run_low<BFloat16>(problem, one, a, b, d);
    });
  }

 private:
  template <class T>
  static std::vector<T> lines(const std::byte* data, std::int64_t item, std::int64_t count, std::int64_t k,
                              std::int64_t ld, bool along_k) {
    const T* const from = reinterpret_cast<const T*>(data) + item * count * k;
    std::vector<T> result;
    for (std::int64_t line = 0; line < count; ++line)
      for (std::int64_t i = 0; i < k; ++i)
        result.push_back(along_k ? from[line * ld + i] : from[i * ld + line]);
    return result;
  }

  template <class Half>
  void run_low(const ProductProblem& p, const FakeAlgorithm& one, const std::byte* a, const std::byte* b,
               std::byte* d) {
    const std::string core =
        one.fault == Fault::other_rule ? (tensor_core_ == "ampere" ? "hopper" : "ampere") : tensor_core_;
    const TensorCoreModel& row = tensor_core_model(core, operand_format_of<Half>);
    for (std::int64_t item = 0; item < p.batch; ++item) {
      const ProductOperands<Half> operands{.m = p.m,
                                           .n = p.n,
                                           .k = p.k,
                                           .a = lines<Half>(a, item, p.m, p.k, p.lda, !p.transpose_a),
                                           .b = lines<Half>(b, item, p.n, p.k, p.ldb, p.transpose_b)};
      const std::vector<float> wide = one.fault == Fault::fp16_sums
                                          ? fp16_sums(core, operands)
                                          : product_in_order(row, operands, one.topology);
      const std::int64_t rows = one.fault == Fault::leaves_a_row ? p.m - 1 : p.m;
      for (std::int64_t i = 0; i < rows * p.n; ++i) {
        const float x = wide[static_cast<std::size_t>(i)];
        const std::int64_t place = item * p.m * p.n + i;
        if (p.out == DType::f32)
          reinterpret_cast<float*>(d)[place] =
              one.fault == Fault::other_nan && is_nan(x) ? float_from_bits(0xffc00000u) : x;
        else
          reinterpret_cast<Half*>(d)[place] = ended_low<Half>(x, one.fault);
      }
    }
  }
  template <class Half>
  static std::vector<float> fp16_sums(const std::string& core, const ProductOperands<Half>& operands) {
    const auto& [m, n, k, a, b] = operands;
    std::vector<float> wide(static_cast<std::size_t>(m * n));
    if constexpr (std::is_same_v<Half, Float16>) {
      std::vector<Float16> d(wide.size());
      emulated_gemm(tensor_core_model(core, DType::f16, DType::f16), {.m = m, .n = n, .k = k},
                    MatrixView<Float16>{a.data(), k, false}, MatrixView<Float16>{b.data(), k, true}, nullptr,
                    d.data(), n);
      std::transform(d.begin(), d.end(), wide.begin(), [](Float16 x) { return widen(x); });
    }
    return wide;
  }
  template <class Half>
  static Half ended_low(float x, Fault fault) {
    using F = typename Half::Format;
    if (fault == Fault::other_nan && is_nan(x))
      return Half::from_bits(static_cast<std::uint16_t>(F::infinity | F::quiet_bit));
    if (fault == Fault::truncates && !is_nan(x)) return narrow<F>(x, Rounding::toward_zero);
    if (fault == Fault::rounds_twice) {
      if constexpr (F::exponent_bits == 5)
        return narrow<F>(widen(narrow<BrainFloat16>(x)));
      else
        return narrow<F>(widen(narrow<Binary16>(x)));
    }
    return narrow<F>(x);
  }
  static void run_f32(const ProductProblem& p, const std::byte* a, const std::byte* b, std::byte* d) {
    for (std::int64_t item = 0; item < p.batch; ++item) {
      const std::vector<float> rows = lines<float>(a, item, p.m, p.k, p.lda, !p.transpose_a);
      const std::vector<float> columns = lines<float>(b, item, p.n, p.k, p.ldb, p.transpose_b);
      for (std::int64_t i = 0; i < p.m; ++i)
        for (std::int64_t j = 0; j < p.n; ++j) {
          float t = 0.0f;
          for (std::int64_t k = p.k; k-- > 0;)  // any order but the contract's
            t += rows[static_cast<std::size_t>(i * p.k + k)] * columns[static_cast<std::size_t>(j * p.k + k)];
          reinterpret_cast<float*>(d)[(item * p.m + i) * p.n + j] = t;
        }
    }
  }

  std::shared_ptr<Log> log_;
  std::string tensor_core_;
  Enqueue enqueue_;
};

}  // namespace fp16lab::engine::test
