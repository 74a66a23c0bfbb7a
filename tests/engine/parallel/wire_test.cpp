// Means that travel in 16 bits and in other orders: every rounding by its definition, the same bits on any
// number of ranks.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "engine/parallel/shard_tree.hpp"
#include "engine/parallel/wire_options.hpp"
#include "tests/engine/parallel/order_twins.hpp"
#include "tests/engine/parallel/thread_ranks.hpp"

namespace fp16lab::engine::parallel {
namespace {

using Row = std::vector<float>;

/// FP32 values within 2^-10 and 2^6, signs mixed, so that orders and formats have bits of their own.
std::vector<Row> made(std::int64_t shards, std::size_t elements) {
  std::vector<Row> rows(static_cast<std::size_t>(shards));
  std::uint32_t state = 12345;
  for (Row& row : rows)
    for (std::size_t i = 0; i < elements; ++i) {
      state = state * 1664525U + 1013904223U;
      const std::uint32_t word = state >> 4;
      const float magnitude = std::ldexp(1.0F + static_cast<float>(word % 4096) / 4096.0F,
                                         static_cast<int>(word / 4096 % 16) - 10);
      row.push_back(state >> 31 == 0 ? magnitude : -magnitude);
    }
  return rows;
}

double to_wire(DType wire, double x) {
  return wire == DType::f16 ? to_half(x) : wire == DType::bf16 ? to_brain(x) : to_single(x);
}

Row expected_mean(const std::vector<Row>& rows, const WireOptions& options, float before, float after) {
  const auto round = [&](double x) { return to_wire(options.wire, x); };
  std::vector<std::vector<double>> sent;
  for (const Row& row : rows) {
    std::vector<double>& values = sent.emplace_back();
    for (const float value : row) values.push_back(round(static_cast<double>(value / before)));
  }
  Row mean;
  const std::size_t elements = rows.front().size();
  for (std::size_t i = 0; i < elements; ++i) {
    const double sum = options.order == SumOrder::nccl_ring   ? ring_twin(sent, i, elements, round)
                       : options.order == SumOrder::nccl_tree ? tree_twin(sent, i, elements, round)
                                                              : binary_twin(sent, i, 0, sent.size(), round);
    mean.push_back(static_cast<float>(sum) / after);
  }
  return mean;
}

Row stack_of(const std::vector<Row>& rows, const Shards& shards) {
  Row stack;
  for (std::int64_t i = shards.first; i < shards.first + shards.local; ++i)
    stack.insert(stack.end(), rows[static_cast<std::size_t>(i)].begin(),
                 rows[static_cast<std::size_t>(i)].end());
  return stack;
}

TEST(Wire, EveryFormatOrderAndDivisionHasTheTwinsBitsOnAnyRanks) {
  struct Division {
    Predivide predivide;
    float before, after;
  };
  const float root = std::sqrt(8.0F);
  for (const std::size_t elements : {1, 61, 2100}) {
    const std::vector<Row> rows = made(8, elements);
    std::vector<Row> seen;
    for (const DType wire : {DType::f32, DType::f16, DType::bf16})
      for (const SumOrder order : {SumOrder::tree, SumOrder::nccl_ring, SumOrder::nccl_tree})
        for (const Division& division :
             {Division{Predivide::one, 1, 8}, {Predivide::root, root, 8 / root}, {Predivide::all, 8, 1}}) {
          const WireOptions options{wire, division.predivide, order};
          const Row expected = expected_mean(rows, options, division.before, division.after);
          seen.push_back(expected);
          for (const int ranks : {1, 2, 3, 5, 8})
            on_thread_ranks(ranks, [&](Communicator& communicator) {
              ShardTree tree(communicator, placed_shards(8, ranks, communicator.rank()), options);
              Row out(elements);
              tree.mean(stack_of(rows, tree.shards()), out);
              EXPECT_EQ(out, expected) << name_of(wire) << " " << name_of(order) << " "
                                       << name_of(division.predivide) << ", " << ranks << " ranks";
            });
        }
    // The data distinguish formats, orders, and with 16 bits the divisions.
    if (elements > 1) {
      EXPECT_NE(seen[0], seen[3]);
      EXPECT_NE(seen[3], seen[6]);
      EXPECT_NE(seen[0], seen[9]);
      EXPECT_NE(seen[9], seen[18]);
      EXPECT_NE(seen[9], seen[10]);
    }
  }
}

TEST(Wire, OverflowAndUnderflowAreThoseOfTheDivision) {
  const auto communicator = make_single_process();
  const auto mean = [&](Predivide predivide, float value) {
    ShardTree tree(*communicator, {8, 0, 8}, {DType::f16, predivide, SumOrder::tree});
    Row stack(8, value), out(1);
    tree.mean(stack, out);
    return out[0];
  };
  EXPECT_EQ(mean(Predivide::one, 20000), std::numeric_limits<float>::infinity());
  EXPECT_EQ(mean(Predivide::all, 20000), 20000);
  EXPECT_EQ(mean(Predivide::one, 0x1p-24F), 0x1p-24F);
  EXPECT_EQ(mean(Predivide::all, 0x1p-24F), 0);
}

TEST(Wire, SumsOfShardsStayFp32OnAnyWire) {
  const auto communicator = make_single_process();
  ShardTree tree(*communicator, {4, 0, 4}, {DType::f16, Predivide::one, SumOrder::nccl_ring});
  const Row stack{100000, 1, 0x1p-20F, 3};
  Row out(1);
  tree.sum(stack, out);
  EXPECT_EQ(out[0], (100000.0F + 1) + (0x1p-20F + 3));
}

/// MPI's own order needs what MPI has: here only who is asked for what.
TEST(Wire, LibraryOrderHandsOverOneSumARank) {
  class Library final : public Communicator {
   public:
    Library() : Communicator(1, {"a", "b", "c"}, "test") {}
    void library_sum(std::span<std::byte> values, DType dtype) override {
      asked = dtype;
      for (std::size_t i = 0; i < values.size() / 2; ++i) {
        std::uint16_t code = 0;
        std::memcpy(&code, values.data() + 2 * i, 2);
        codes.push_back(code);
      }
    }
    void wait(Exchange&) override {}
    [[noreturn]] void abort(int) override { std::abort(); }
    DType asked = DType::f32;
    std::vector<std::uint16_t> codes;

   protected:
    std::unique_ptr<Exchange> begin(std::uint64_t, int, std::span<const Outgoing>,
                                    std::span<const Incoming>) override {
      ADD_FAILURE() << "a message of our own";
      return nullptr;
    }
  };
  Library library;
  // Shards 2, 3 and 4 of 8: 2 and 3 are a subtree.
  ShardTree tree(library, placed_shards(8, 3, 1), {DType::f16, Predivide::one, SumOrder::library});
  ASSERT_EQ(tree.shards(), (Shards{8, 2, 3}));
  const Row stack{1, 2048, 1, 1, 1, 1};
  Row out(2);
  tree.mean(stack, out);
  EXPECT_EQ(library.asked, DType::f16);
  EXPECT_EQ(library.codes, (std::vector<std::uint16_t>{0x4200, 0x6800}));  // 3; 2048 + 1 + 1 stays 2048
  EXPECT_EQ(out, (Row{3.0F / 8, 2048.0F / 8}));
}

}  // namespace
}  // namespace fp16lab::engine::parallel
