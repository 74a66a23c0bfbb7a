// How much memory this process may still take, and who says so: Linux's limits of control groups, of processes
// and of the machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace fp16lab::experiments {

struct MemoryLimit {
  std::uint64_t left = 0;  ///< bytes that may still be taken, swap included; file caches that would go count
  std::string whose;       ///< "the control group /user.slice (memory.max)"
};

/// Every limit that is there, the tightest first:
///   cgroup v2  memory.max less memory.current, plus caches and what memory.swap.max leaves, of the process's own
///              group and of all above it that are seen from here
///   cgroup v1  the same of memory.limit_in_bytes, memory.usage_in_bytes and memory.memsw.limit_in_bytes
///   process    RLIMIT_AS less VmSize, RLIMIT_DATA less VmData
///   machine    MemAvailable and SwapFree; CommitLimit less Committed_AS where vm.overcommit_memory is 2
/// `root` replaces "/" in every path (/proc and /sys): tests give one of their own. What cannot be read, or
/// is no number, limits nothing; no error is ever thrown but for want of memory.
std::vector<MemoryLimit> memory_limits(const std::filesystem::path& root = "/");

/// What to say before `runs` at a time take `need` bytes for their tensors in a step (RunMemory::peak, added up);
/// empty: they fit. It is a warning and no refusal: a step takes some more (scratch of products) and some less
/// (pages that are never touched) than its tensors, and what the machine has changes meanwhile.
std::string memory_warning(std::uint64_t need, std::size_t runs, const std::vector<MemoryLimit>& limits);

}  // namespace fp16lab::experiments
