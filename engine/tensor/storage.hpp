// Storage: a reference-counted share of pooled memory, and the pool it comes from.
//
// A training step requests the same block sizes again and again. The pool keeps released blocks in free lists
// by size class, so that once warm no step calls malloc or cudaMalloc (cudaMalloc would also synchronise the
// device). Counts and free lists are in host memory; the blocks themselves are where the MemoryResource puts
// them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace fp16lab::engine {

/// Where blocks come from: host memory here, cudaMalloc in the CUDA back end.
class MemoryResource {
 public:
  virtual ~MemoryResource() = default;
  /// At least `bytes` (> 0) bytes, aligned to 64 bytes or more. nullptr when there is no memory left.
  virtual std::byte* allocate(std::size_t bytes) noexcept = 0;
  /// `address` and `bytes` as in the call of `allocate`.
  virtual void deallocate(std::byte* address, std::size_t bytes) noexcept = 0;
  /// May the host read and write the blocks?
  virtual bool host_accessible() const = 0;
};

/// Host memory from operator new, 64-byte aligned (a cache line, and an AVX-512 vector).
std::unique_ptr<MemoryResource> make_host_memory();

namespace storage_detail {
struct Block;
class PoolCore;
void retain(Block* block) noexcept;
void release(Block* block) noexcept;
}  // namespace storage_detail

/// A share of one block. Copies share it; the block returns to its pool with the last copy. Copying and
/// destroying are thread safe, as with std::shared_ptr; the contents are not synchronised. May outlive the
/// StoragePool object.
class Storage {
 public:
  Storage() = default;  ///< no memory: `defined()` is false
  Storage(const Storage& other) noexcept : block_(other.block_) { storage_detail::retain(block_); }
  Storage(Storage&& other) noexcept : block_(std::exchange(other.block_, nullptr)) {}
  Storage& operator=(Storage other) noexcept {
    std::swap(block_, other.block_);
    return *this;
  }
  ~Storage() { storage_detail::release(block_); }

  bool defined() const { return block_ != nullptr; }
  std::byte* data() const;       ///< in the resource's memory space; nullptr if undefined
  std::size_t size() const;      ///< bytes requested (the block may be larger); 0 if undefined
  bool host_accessible() const;  ///< false if undefined
  /// Is this the only share? Then no other code can read or write the memory, and it may be overwritten or
  /// handed on.
  bool sole_share() const;

 private:
  friend class storage_detail::PoolCore;
  explicit Storage(storage_detail::Block* block) : block_(block) {}  // takes over one count

  storage_detail::Block* block_ = nullptr;
};

struct PoolStatistics {
  std::size_t bytes_in_use = 0;          ///< in live storages, in whole blocks
  std::size_t peak_bytes_in_use = 0;     ///< highest bytes_in_use so far
  std::size_t bytes_reserved = 0;        ///< taken from the resource: in use and in free lists
  std::uint64_t allocations = 0;         ///< calls of StoragePool::allocate
  std::uint64_t system_allocations = 0;  ///< calls of MemoryResource::allocate: constant once warm
};

/// Size-class allocator. Thread safe. The classes are 64 bytes, then four steps to every power of two (80,
/// 96, 112, 128, 160, ...), so a block is less than a quarter larger than asked for.
class StoragePool {
 public:
  explicit StoragePool(std::unique_ptr<MemoryResource> resource);

  /// Uninitialised memory of at least `bytes` bytes (zero is allowed and gives a block too).
  /// When the resource is exhausted, the pool returns cached blocks and tries again; then std::runtime_error.
  Storage allocate(std::size_t bytes);
  PoolStatistics statistics() const;
  /// Recorded verbs know addresses, and write to them whenever they are replayed. So blocks that are taken or
  /// given back between these two calls are from then on kept apart: they serve only later recordings, and
  /// never go back to the resource before the end. Nothing does while a recording is going on.
  void begin_recording();
  void end_recording() noexcept;

 private:
  std::shared_ptr<storage_detail::PoolCore> core_;  // every live block holds a share too
};

}  // namespace fp16lab::engine
