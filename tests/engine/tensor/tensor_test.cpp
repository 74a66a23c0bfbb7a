// Shape, Tensor, Storage and the pool.
#include "engine/tensor/tensor.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <thread>
#include <vector>

#include "engine/tensor/position_table.hpp"
#include "engine/tensor/storage.hpp"

namespace fp16lab::engine {
namespace {

/// Host memory that reports what the pool does with it, and can run out.
struct Ledger {
  std::size_t live_bytes = 0;
  std::size_t limit = ~std::size_t{0};
  std::uint64_t allocations = 0;
  bool host_accessible = true;
};

class CountingMemory final : public MemoryResource {
 public:
  explicit CountingMemory(Ledger& ledger) : ledger_(ledger) {}
  std::byte* allocate(std::size_t bytes) noexcept override {
    ++ledger_.allocations;
    if (ledger_.live_bytes + bytes > ledger_.limit) return nullptr;
    ledger_.live_bytes += bytes;
    return host_->allocate(bytes);
  }
  void deallocate(std::byte* address, std::size_t bytes) noexcept override {
    ledger_.live_bytes -= bytes;
    host_->deallocate(address, bytes);
  }
  bool host_accessible() const override { return ledger_.host_accessible; }

 private:
  Ledger& ledger_;
  std::unique_ptr<MemoryResource> host_ = make_host_memory();
};

/// Size of the block that a fresh pool gives for `bytes`.
std::size_t block_size(std::size_t bytes) {
  StoragePool pool(make_host_memory());
  const Storage storage = pool.allocate(bytes);
  EXPECT_EQ(storage.size(), bytes);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(storage.data()) % 64, 0u);
  EXPECT_TRUE(storage.defined() && storage.host_accessible());
  return pool.statistics().bytes_in_use;
}

TEST(StoragePool, SizeClassesAreAlignedAndWasteLessThanAQuarter) {
  for (std::size_t bytes = 0; bytes < 5000; ++bytes) {
    const std::size_t block = block_size(bytes);
    ASSERT_GE(block, bytes);
    ASSERT_GE(block, 64u);
    if (bytes > 64) {
      ASSERT_LT(4 * (block - bytes), bytes) << bytes;
    }
  }
  for (const std::size_t block : {64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 4096, 5120}) {
    EXPECT_EQ(block_size(block), block) << "a class serves its own size";
    EXPECT_GT(block_size(block + 1), block);
  }
  StoragePool pool(make_host_memory());
  EXPECT_THROW(pool.allocate((std::size_t{1} << 62) + 1), std::length_error);
}

TEST(StoragePool, IsSilentOnceWarm) {
  Ledger ledger;
  StoragePool pool(std::make_unique<CountingMemory>(ledger));
  const auto step = [&pool] {
    std::vector<Storage> live;
    for (const std::size_t bytes : {100, 100, 4000, 70, 1000000}) live.push_back(pool.allocate(bytes));
  };
  step();
  const PoolStatistics warm = pool.statistics();
  EXPECT_EQ(warm.system_allocations, ledger.allocations);
  EXPECT_EQ(warm.bytes_in_use, 0u);
  EXPECT_EQ(warm.bytes_reserved, ledger.live_bytes);
  for (int i = 0; i < 100; ++i) step();
  const PoolStatistics later = pool.statistics();
  EXPECT_EQ(later.system_allocations, warm.system_allocations);
  EXPECT_EQ(later.peak_bytes_in_use, warm.peak_bytes_in_use);
  EXPECT_EQ(later.allocations, 101u * 5u);
  EXPECT_EQ(later.bytes_reserved, ledger.live_bytes);
}

TEST(StoragePool, CountsWhatIsInUse) {
  StoragePool pool(make_host_memory());
  {
    const Storage a = pool.allocate(128);
    const Storage b = pool.allocate(160);
    EXPECT_EQ(pool.statistics().bytes_in_use, 288u);
  }
  const Storage c = pool.allocate(64);
  EXPECT_EQ(pool.statistics().bytes_in_use, 64u);
  EXPECT_EQ(pool.statistics().peak_bytes_in_use, 288u);
  EXPECT_EQ(pool.statistics().bytes_reserved, 352u);
}

TEST(StoragePool, StoragesMayOutliveIt) {
  Ledger ledger;
  Storage survivor;
  {
    StoragePool pool(std::make_unique<CountingMemory>(ledger));
    survivor = pool.allocate(1000);
    const Storage dies_first = pool.allocate(2000);
  }
  EXPECT_GE(ledger.live_bytes, 1000u);
  survivor.data()[999] = std::byte{1};  // AddressSanitizer would object if the block were gone
  survivor = Storage();
  EXPECT_EQ(ledger.live_bytes, 0u) << "the last storage takes the pool's memory with it";
}

TEST(StoragePool, GivesCachedBlocksBackBeforeItFails) {
  Ledger ledger;
  ledger.limit = 10000;
  StoragePool pool(std::make_unique<CountingMemory>(ledger));
  { const Storage cached = pool.allocate(8192); }
  const Storage other = pool.allocate(4096);  // fits only without the cached block
  EXPECT_EQ(ledger.live_bytes, 4096u);
  try {
    const Storage too_much = pool.allocate(8192);
    FAIL() << "allocated beyond the limit";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "out of host memory: no block of 8192 bytes, 4096 bytes are in use");
  }
  EXPECT_NO_THROW(pool.allocate(1000));
}

TEST(StoragePool, ThreadsMayShareIt) {
  StoragePool pool(make_host_memory());
  const Storage shared = pool.allocate(64);
  shared.data()[0] = std::byte{1};
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int thread = 0; thread < 4; ++thread)
    threads.emplace_back([&pool, shared] {
      for (std::size_t i = 0; i < 2000; ++i) {
        Storage copy = shared;
        const Storage own = pool.allocate(64 + i % 512);
        own.data()[0] = copy.data()[0];
        copy = own;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(pool.statistics().bytes_in_use, 64u);
}

TEST(Storage, SharesAndMoves) {
  StoragePool pool(make_host_memory());
  Storage a = pool.allocate(100);
  std::byte* const address = a.data();
  Storage b = a;
  EXPECT_EQ(b.data(), address);
  a = Storage();
  EXPECT_NE(pool.allocate(100).data(), address) << "b still holds the block";
  const Storage c = std::move(b);
  EXPECT_EQ(c.data(), address);
  EXPECT_EQ(Storage().data(), nullptr);
  EXPECT_FALSE(Storage().defined() || Storage().host_accessible());
}

TEST(Tensor, KnowsItsShapeAndMemory) {
  StoragePool pool(make_host_memory());
  const Tensor x(pool.allocate(24), Shape{2, 3}, DType::f32);
  EXPECT_EQ(x.describe(), "f32 (2, 3)");
  EXPECT_EQ(x.byte_count(), 24u);
  EXPECT_EQ(x.host<float>().size(), 6u);
  const Tensor y = x.reshaped(Shape{6});
  EXPECT_EQ(y.data(), x.data());
  EXPECT_EQ(y.describe(), "f32 (6)");
  EXPECT_FALSE(Tensor().defined());
  EXPECT_EQ(Tensor().describe(), "undefined");
}

TEST(Tensor, MisuseSaysWhy) {
  Ledger device;
  device.host_accessible = false;
  StoragePool pool(make_host_memory()), device_pool(std::make_unique<CountingMemory>(device));
  const Tensor x(pool.allocate(24), Shape{2, 3}, DType::f32);
  const auto message = [](const auto& call) -> std::string {
    try {
      call();
    } catch (const std::exception& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(message([&] {
              Tensor(pool.allocate(23), Shape{2, 3}, DType::f32);
            }),
            "tensor f32 (2, 3): needs 24 bytes, its storage has 23");
  EXPECT_EQ(message([&] {
              Tensor(Storage(), Shape{2, 3}, DType::f32);
            }),
            "tensor f32 (2, 3): undefined storage");
  EXPECT_EQ(message([&] { (void)x.reshaped(Shape{7}); }),
            "reshape of f32 (2, 3) to (7): 6 elements do not fit 7");
  EXPECT_EQ(message([&] { (void)x.host<Float16>(); }), "host access to f32 (2, 3) as f16");
  const Tensor y(device_pool.allocate(24), Shape{6}, DType::f32);
  EXPECT_EQ(message([&] { (void)y.host<float>(); }),
            "host access to f32 (6), which lives in device memory: use Backend::download");
}

TEST(Shape, ChecksItsExtents) {
  EXPECT_EQ(Shape{}.element_count(), 1);
  EXPECT_EQ((Shape{2, 0, 3}.element_count()), 0);
  EXPECT_EQ((Shape{2, 3}[-1]), 3);
  EXPECT_EQ(Shape{}.to_string(), "()");
  EXPECT_THROW((Shape{-1}), std::invalid_argument);
  EXPECT_THROW((Shape{1, 1, 1, 1, 1, 1, 1}), std::invalid_argument);
  EXPECT_THROW((void)(Shape{2}[1]), std::out_of_range);
}

/// Whatever is computed of the extents of one shape fits.
TEST(Shape, HasABoundedProduct) {
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max(), half = std::int64_t{1} << 24;
  EXPECT_EQ((Shape{half, half}.element_count()), most_elements);
  for (const std::vector<std::int64_t>& extents :
       std::vector<std::vector<std::int64_t>>{{half, half, 2},
                                              {most},
                                              {2, most},
                                              {4611686018427387904, 2, 2},
                                              {4294967296, 4294967296},
                                              {0, most},
                                              {0, half, half, 2}}) {
    try {
      (void)Shape(extents);
      ADD_FAILURE() << "a shape of too many elements";
    } catch (const std::invalid_argument& error) {
      const std::string what = error.what();
      EXPECT_NE(what.find(std::to_string(extents.back())), std::string::npos) << what;
      EXPECT_NE(what.find("expected at most 2^48 elements"), std::string::npos) << what;
    }
  }
}

TEST(Extent, ThrowsWhereAResultDoesNotFit) {
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(((Extent(3) - 1) * 4 + 2).value(), 10);
  EXPECT_THROW(Extent(most) + 1, std::invalid_argument);
  EXPECT_THROW(Extent(-2) - most, std::invalid_argument);
  EXPECT_THROW(Extent(most) * 2, std::invalid_argument);
  EXPECT_EQ(product_of(std::vector<std::int64_t>{2, 3, 7}), 42);
  EXPECT_THROW(product_of(std::vector<std::int64_t>{most, 2}), std::invalid_argument);
}

TEST(PositionTable, FindsWhatWasPut) {
  PositionTable table;
  const auto any = [](std::size_t) { return true; };
  EXPECT_EQ(table.find(7, any), PositionTable::nowhere);
  for (int round = 0; round < 3; ++round) {
    for (std::size_t i = 0; i < 1000; ++i) table.put(i / 2 * 64, i);  // two under every hash
    for (std::size_t i = 0; i < 1000; ++i)
      EXPECT_EQ(table.find(i / 2 * 64, [i](std::size_t position) { return position == i; }), i);
    EXPECT_EQ(table.find(32, any), PositionTable::nowhere);
    EXPECT_EQ(table.find(0, [](std::size_t) { return false; }), PositionTable::nowhere);
    table.clear();
    EXPECT_EQ(table.find(64, any), PositionTable::nowhere);
  }
}

}  // namespace
}  // namespace fp16lab::engine
