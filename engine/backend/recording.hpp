// What back ends that record verbs have in common (Backend::record).
#pragma once

#include <string_view>

#include "engine/tensor/storage.hpp"

namespace fp16lab::engine {

/// While it lives, the pool's blocks become the recording's.
class RecordingMemory {
 public:
  explicit RecordingMemory(StoragePool& pool) : pool_(&pool) { pool.begin_recording(); }
  ~RecordingMemory() { pool_->end_recording(); }
  RecordingMemory(const RecordingMemory&) = delete;
  RecordingMemory& operator=(const RecordingMemory&) = delete;

 private:
  StoragePool* pool_;
};

/// std::logic_error: this verb hands numbers to the host, or takes them from it, and verbs are being
/// recorded.
[[noreturn]] void refuse_in_recording(std::string_view verb);

}  // namespace fp16lab::engine
