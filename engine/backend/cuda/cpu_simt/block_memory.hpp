// The shared memory of a block on the host machine: dynamic and static, garbage at first, and no more of it
// than CUDA gives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

#include "engine/backend/cuda/cpu_simt/executor.hpp"
#include "engine/backend/cuda/cpu_simt/warp_instructions.hpp"

namespace fp16lab::engine::cpu_simt {

/// Shared memory of a block, static and dynamic together, without cudaFuncSetAttribute (CUDA C++ Programming
/// Guide, "Shared Memory").
inline constexpr std::size_t default_shared_bytes = 48 * 1024;

/// Why CUDA refuses a launch with so much static shared memory; empty where it does not.
inline std::string refusal_of_shared_memory(const Launch& launch, std::size_t static_bytes) {
  const std::size_t both = static_bytes + launch.shared_bytes;
  const PretendedGpu gpu = pretended_gpu();
  if (both > gpu.shared_per_block)
    return "a block of sm_" + std::to_string(10 * gpu.major + gpu.minor) + " may have " +
           std::to_string(gpu.shared_per_block) + " of both";
  const bool opted_in = launch.opts_in != nullptr && launch.opts_in(static_bytes, launch.shared_bytes);
  if (both > default_shared_bytes && !opted_in)
    return "without cudaFuncSetAttribute a block may have 49152 of both";
  return {};
}

class BlockMemory {
 public:
  /// A new block, with so many bytes of dynamic shared memory.
  void begin(std::size_t dynamic_bytes) {
#if defined(__SANITIZE_ADDRESS__)
    ASAN_UNPOISON_MEMORY_REGION(storage_.data(), storage_.size());
#endif
    if (storage_.size() < dynamic_bytes + alignment_of_block)
      storage_.resize(dynamic_bytes + alignment_of_block);
    const auto address = reinterpret_cast<std::uintptr_t>(storage_.data());
    dynamic_ = storage_.data() + (alignment_of_block - address % alignment_of_block) % alignment_of_block;
    std::memset(dynamic_, poison, dynamic_bytes);
#if defined(__SANITIZE_ADDRESS__)
    const std::byte* const behind = dynamic_ + dynamic_bytes;
    const std::byte* const end = storage_.data() + storage_.size();
    ASAN_POISON_MEMORY_REGION(behind, static_cast<std::size_t>(end - behind));
#endif
    declarations_.clear();
    static_bytes_ = 0;
  }

  std::byte* dynamic() { return dynamic_; }

  /// The same memory for all threads of the block that come to a declaration. nullptr where CUDA refuses the
  /// launch with what has been declared: refusal() says why.
  std::byte* declared(const Launch& launch, const void* declaration, std::size_t bytes,
                      std::size_t alignment) {
    for (const Declaration& known : declarations_)
      if (known.declaration == declaration) return static_ + known.offset;
    const std::size_t offset = rounded_up(static_bytes_, alignment);
    static_bytes_ = offset + bytes;
    if (static_bytes_ > default_shared_bytes) {
      refusal_ = std::to_string(static_bytes_) + " bytes of static shared memory; a kernel may have 49152";
      return nullptr;
    }
    // Dynamic shared memory begins behind it, at a multiple of its own alignment.
    if (const std::string why =
            refusal_of_shared_memory(launch, rounded_up(static_bytes_, alignment_of_block));
        !why.empty()) {
      refusal_ = std::to_string(launch.shared_bytes) + " bytes of dynamic and " +
                 std::to_string(static_bytes_) + " of static shared memory; " + why;
      return nullptr;
    }
    declarations_.push_back({declaration, offset});
    std::memset(static_ + offset, poison, bytes);
    return static_ + offset;
  }
  const std::string& refusal() const { return refusal_; }

 private:
  struct Declaration {
    const void* declaration;
    std::size_t offset;
  };
  static constexpr std::size_t alignment_of_block = 128;
  static constexpr int poison =
      0xa0;  // FP32 -2.7e-19, FP16 -0.0094: wrong, but no NaN that everything would show

  static std::size_t rounded_up(std::size_t bytes, std::size_t alignment) {
    return (bytes + alignment - 1) / alignment * alignment;
  }

  std::vector<std::byte> storage_;  // of dynamic shared memory
  std::byte* dynamic_ = nullptr;
  std::vector<Declaration> declarations_;  // that the block's threads have come to
  std::size_t static_bytes_ = 0;
  std::string refusal_;
  alignas(alignment_of_block) std::byte static_[default_shared_bytes];
};

}  // namespace fp16lab::engine::cpu_simt
