// Batches of a warm loader come without a single allocation: neither from the system nor from the heap.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <new>
#include <vector>

#include "engine/backend/emulated/emulated_backend.hpp"
#include "engine/data/loader.hpp"
#include "engine/data/synthetic.hpp"
#include "engine/data/text.hpp"
#include "numerics/tensor_core/tensor_core_model.hpp"
#include "tests/support/temporary_folder.hpp"

namespace {
std::atomic<std::uint64_t> allocations{0};

void* counted(std::size_t size) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  void* const memory = std::malloc(size == 0 ? 1 : size);  // NOLINT: what operator new is made of
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
}  // namespace

void* operator new(std::size_t size) { return counted(size); }
void* operator new[](std::size_t size) { return counted(size); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace fp16lab::engine::data {
namespace {

/// Allocations of three epochs after a first one.
std::uint64_t allocations_of(BatchSource& source) {
  const auto backend = make_emulated_backend(tensor_core_model("hopper"), 1);
  const std::uint64_t epoch = source.batches_per_epoch();
  for (std::uint64_t i = 0; i < epoch; ++i) source.batch(*backend, i);
  const std::uint64_t before = allocations.load();
  for (std::uint64_t i = epoch; i < 4 * epoch; ++i) source.batch(*backend, i);
  return allocations.load() - before;
}

TEST(DataAllocation, TheCounterCounts) {
  const std::uint64_t before = allocations.load();
  const std::vector<int> memory(1000);
  EXPECT_GT(allocations.load(), before) << memory.size();
}

TEST(DataAllocation, AWarmLoaderAllocatesNothing) {
  const Dataset dataset =
      labelled_images({1, 4, 4}, 10, std::vector<std::uint8_t>(64 * 16, 7), std::vector<std::uint8_t>(64, 1));
  for (const LoaderOptions& options :
       {LoaderOptions{.batch_size = 10, .seed = 1},
        LoaderOptions{.batch_size = 10, .seed = 1, .layout = Layout::nchw, .padding = 2},
        LoaderOptions{.batch_size = 10,
        .seed = 1,
        .layout = Layout::nhwc,
        .augmentation = {.flip = true, .crop_padding = 1}}}) {
    Loader loader(dataset, unit_normalisation(), options);
    EXPECT_EQ(allocations_of(loader), 0u);
  }
}

TEST(DataAllocation, NorDoesOneOfSymbolsThatAreRead) {
  const testing_support::TemporaryFolder folder;
  std::ofstream(folder.path() / "tokens", std::ios::binary) << std::string(100 * 4 * 8, '\0');
  const auto file = std::make_shared<const InputFile>(folder.path() / "tokens");
  // More than is held in memory: the same rows many times over.
  std::vector<FilePiece> pieces(30000, {.file = file, .offset = 0, .stride = 32, .count = 100});
  const Dataset dataset = {.inputs = ExampleArray(DType::i64, {4}, std::move(pieces)),
                           .targets = ExampleArray(DType::i64, {}, std::vector<std::byte>(3000000 * 8)),
                           .vocabulary = 5,
                           .classes = 2,
                           .rows = {0, 2999999, 7, 8}};
  ASSERT_GT(96000000u, ExampleArray::held_bytes);
  Loader loader(dataset, unit_normalisation(), {.batch_size = 2, .seed = 1});
  EXPECT_EQ(allocations_of(loader), 0u);
}

TEST(DataAllocation, AWarmTextLoaderAllocatesNothing) {
  const std::vector<std::int32_t> symbols(1000);
  TextLoader loader(symbols, {.batch_size = 4, .context = 16, .seed = 1});
  EXPECT_EQ(allocations_of(loader), 0u);
}

TEST(DataAllocation, AWarmSyntheticSourceAllocatesNothing) {
  for (const Distribution distribution : every<Distribution>) {
    SyntheticBatches source({.distribution = distribution, .batch_size = 40, .inputs = {30}, .outputs = 20});
    EXPECT_EQ(allocations_of(source), 0u) << name_of(distribution);
    SyntheticBatches classes(
        {.distribution = distribution, .batch_size = 40, .inputs = {1, 3, 3}, .classes = 9});
    EXPECT_EQ(allocations_of(classes), 0u) << name_of(distribution);
  }
}

}  // namespace
}  // namespace fp16lab::engine::data
