#include "engine/tensor/storage.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <mutex>
#include <new>
#include <stdexcept>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace fp16lab::engine {

namespace {

constexpr std::size_t min_block = 64;
constexpr int min_block_log2 = 6;
constexpr std::size_t max_block = std::size_t{1} << 62;
constexpr std::size_t steps_per_octave = 4;
constexpr std::size_t class_count = (62 - min_block_log2) * steps_per_octave + 1;

/// Index of the smallest class of at least `bytes` bytes.
std::size_t class_of(std::size_t bytes) {
  if (bytes <= min_block) return 0;
  if (bytes > max_block) throw std::length_error(fmt::format("a block of {} bytes: at most 2^62", bytes));
  // bytes - 1 in [2^e, 2^(e+1)): its two bits below the leading one give the quarter of the octave.
  const int octave = static_cast<int>(std::bit_width(bytes - 1)) - 1;
  const std::size_t quarter = ((bytes - 1) >> (octave - 2)) & (steps_per_octave - 1);
  return static_cast<std::size_t>(octave - min_block_log2) * steps_per_octave + quarter + 1;
}

std::size_t size_of_class(std::size_t index) {
  const std::size_t octave = min_block << (index / steps_per_octave);
  return octave + (octave / steps_per_octave) * (index % steps_per_octave);
}

/// For AddressSanitizer: the first `usable` of a block's `size` bytes may be used, the rest of its class may
/// not. Host memory only: other addresses are not the sanitizer's.
void show_usable([[maybe_unused]] const MemoryResource& resource, [[maybe_unused]] const std::byte* address,
                 [[maybe_unused]] std::size_t usable, [[maybe_unused]] std::size_t size) {
#if defined(__SANITIZE_ADDRESS__)
  if (!resource.host_accessible()) return;
  ASAN_UNPOISON_MEMORY_REGION(address, usable);
  ASAN_POISON_MEMORY_REGION(address + usable, size - usable);
#endif
}

class HostMemory final : public MemoryResource {
 public:
  std::byte* allocate(std::size_t bytes) noexcept override {
    return static_cast<std::byte*>(::operator new (bytes, std::align_val_t{min_block}, std::nothrow));
  }
  void deallocate(std::byte* address, std::size_t /*bytes*/) noexcept override {
    ::operator delete (address, std::align_val_t{min_block});  // clang has no sized form without an option
  }
  bool host_accessible() const override { return true; }
};

}  // namespace

std::unique_ptr<MemoryResource> make_host_memory() { return std::make_unique<HostMemory>(); }

namespace storage_detail {

struct Block {
  std::atomic<std::uint64_t> shares{0};
  std::byte* address = nullptr;  // nullptr: the header is spare, its memory went back to the resource
  std::size_t size = 0;          // requested
  std::size_t size_class = 0;
  bool host_accessible = false;
  bool recorded = false;            // some recording reads or writes it
  Block* next = nullptr;            // in a free list
  std::shared_ptr<PoolCore> owner;  // while live: keeps the pool's memory alive
};

/// One mutex guards everything. Headers are owned by `headers_` and never move; free lists only refer to
/// them.
class PoolCore : public std::enable_shared_from_this<PoolCore> {
 public:
  explicit PoolCore(std::unique_ptr<MemoryResource> resource) : resource_(std::move(resource)) {}
  PoolCore(const PoolCore&) = delete;
  PoolCore& operator=(const PoolCore&) = delete;
  ~PoolCore() {  // no block is live here: each live one holds a share
    release(free_);
    release(recorded_free_);
  }

  Storage allocate(std::size_t bytes) {
    const std::size_t size_class = class_of(bytes);
    const std::lock_guard lock(mutex_);
    Block* block = recording_ ? pop(recorded_free_[size_class]) : nullptr;
    if (block == nullptr) block = pop(free_[size_class]);
    if (block == nullptr) block = new_block(size_class);
    block->recorded = block->recorded || recording_;
    block->size = bytes;
    // A recording that knows a block may have known it with another size.
    const std::size_t whole = size_of_class(size_class);
    show_usable(*resource_, block->address, block->recorded ? whole : bytes, whole);
    block->owner = shared_from_this();
    block->shares.store(1, std::memory_order_relaxed);
    ++statistics_.allocations;
    statistics_.bytes_in_use += size_of_class(size_class);
    statistics_.peak_bytes_in_use = std::max(statistics_.peak_bytes_in_use, statistics_.bytes_in_use);
    return Storage(block);
  }

  void set_recording(bool recording) {
    const std::lock_guard lock(mutex_);
    recording_ = recording;
  }

  void take_back(Block* block) noexcept {
    const std::lock_guard lock(mutex_);
    statistics_.bytes_in_use -= size_of_class(block->size_class);
    block->recorded = block->recorded || recording_;  // verbs before this moment may have been recorded
    const std::size_t whole = size_of_class(block->size_class);
    show_usable(*resource_, block->address, block->recorded ? whole : 0, whole);
    push((block->recorded ? recorded_free_ : free_)[block->size_class], block);
  }

  PoolStatistics statistics() const {
    const std::lock_guard lock(mutex_);
    return statistics_;
  }

 private:
  static Block* pop(Block*& list) {
    Block* block = list;
    if (block != nullptr) list = std::exchange(block->next, nullptr);
    return block;
  }
  static void push(Block*& list, Block* block) noexcept { block->next = std::exchange(list, block); }

  using FreeLists = std::array<Block*, class_count>;

  /// The mutex is held, or no other thread knows the pool.
  void release(FreeLists& lists) noexcept {
    for (Block*& list : lists)
      while (Block* block = pop(list)) {
        const std::size_t bytes = size_of_class(block->size_class);
        show_usable(*resource_, block->address, bytes, bytes);
        resource_->deallocate(std::exchange(block->address, nullptr), bytes);
        statistics_.bytes_reserved -= bytes;
        push(spare_headers_, block);
      }
  }

  Block* new_block(std::size_t size_class) {
    const std::size_t bytes = size_of_class(size_class);
    if (spare_headers_ == nullptr)
      push(spare_headers_, headers_.emplace_back(std::make_unique<Block>()).get());
    ++statistics_.system_allocations;
    std::byte* address = resource_->allocate(bytes);
    if (address == nullptr && !recording_) {
      release(free_);
      address = resource_->allocate(bytes);
    }
    if (address == nullptr) {
      throw std::runtime_error(fmt::format("out of {} memory: no block of {} bytes, {} bytes are in use",
                                           resource_->host_accessible() ? "host" : "device", bytes,
                                           statistics_.bytes_in_use));
    }
    statistics_.bytes_reserved += bytes;
    Block* block = pop(spare_headers_);
    block->address = address;
    block->size_class = size_class;
    block->host_accessible = resource_->host_accessible();
    block->recorded = false;
    return block;
  }

  std::unique_ptr<MemoryResource> resource_;
  mutable std::mutex mutex_;
  FreeLists free_{};
  FreeLists recorded_free_{};  // known to recordings: their memory stays
  Block* spare_headers_ = nullptr;
  std::vector<std::unique_ptr<Block>> headers_;
  PoolStatistics statistics_;
  bool recording_ = false;
};

void retain(Block* block) noexcept {
  if (block != nullptr) block->shares.fetch_add(1, std::memory_order_relaxed);
}

void release(Block* block) noexcept {
  // Release: this owner's writes happen before the block is reused. Acquire: the last owner sees all of them.
  if (block == nullptr || block->shares.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  // Taken out of the header before the block becomes free: it may be the last share, which then deletes the
  // pool.
  const std::shared_ptr<PoolCore> owner = std::move(block->owner);
  owner->take_back(block);
}

}  // namespace storage_detail

std::byte* Storage::data() const { return block_ == nullptr ? nullptr : block_->address; }
std::size_t Storage::size() const { return block_ == nullptr ? 0 : block_->size; }
bool Storage::sole_share() const {
  // Acquire, as in release(): what earlier owners wrote happened before.
  return block_ != nullptr && block_->shares.load(std::memory_order_acquire) == 1;
}
bool Storage::host_accessible() const { return block_ != nullptr && block_->host_accessible; }

StoragePool::StoragePool(std::unique_ptr<MemoryResource> resource) {
  if (resource == nullptr) throw std::invalid_argument("StoragePool: no memory resource");
  core_ = std::make_shared<storage_detail::PoolCore>(std::move(resource));
}

Storage StoragePool::allocate(std::size_t bytes) { return core_->allocate(bytes); }
void StoragePool::begin_recording() { core_->set_recording(true); }
void StoragePool::end_recording() noexcept { core_->set_recording(false); }
PoolStatistics StoragePool::statistics() const { return core_->statistics(); }

}  // namespace fp16lab::engine
