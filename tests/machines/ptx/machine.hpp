// The PTX machine: executes what nvcc made of the CUDA back end's kernels, on the CPU, 32 lanes at a time.
//
// It reads PTX text (PTX ISA 9.0) and does what the ISA says, no more: an opcode, modifier, type or state
// space that its table does not have is an error that names it. So it sees what nvcc made of asm strings,
// shared memory, contraction and barriers. It says nothing of speed, and nothing of what ptxas and the
// silicon make of the PTX.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "numerics/tensor_core/tensor_core_model.hpp"

namespace fp16lab::engine::ptx {

enum class FaultKind : std::uint8_t {
  bounds,     ///< an access outside of every allocation, or a write to what is only read
  alignment,  ///< an address that is no multiple of what is accessed there
  race,       ///< two accesses that nothing orders; a copy without a wait
  barrier,    ///< threads that do not come where others wait for them, or part where PTX needs them together
  instruction,  ///< what this device does not have, or terms for which an operation means nothing
};

/// What a kernel does wrong. The message names the kernel, the line of the PTX file with its text, block and
/// thread.
class Fault : public std::runtime_error {
 public:
  Fault(FaultKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  FaultKind kind() const { return kind_; }

 private:
  FaultKind kind_;
};

struct Module;
/// A kernel as its text declares it. Decoded when it is first launched.
struct Kernel;
struct KernelFacts {
  std::string name;                     ///< mangled
  std::size_t static_shared_bytes = 0;  ///< all .shared variables that the kernel uses, with their alignments
  std::size_t local_bytes = 0;
  std::uint32_t max_threads = 1024;                             ///< .maxntid, or CUDA's limit
  std::vector<std::size_t> parameter_offsets, parameter_bytes;  ///< in their order
  /// Its blocks walk on by the extent of a grid of one dimension, so that a smaller grid does the same work:
  /// it reads %nctaid.x and not %ctaid.y.
  bool walks_by_grid = false;
};

struct Cell;

struct Allocation {
  std::byte* begin = nullptr;
  std::size_t bytes = 0;
  std::string what;
  std::unique_ptr<std::byte[]> storage;
  std::vector<Cell*> pages = {};  ///< the race watch's, in launch `watched_launch`
  std::uint64_t watched_launch = 0;
};

/// Allocations with their bounds, each filled with a5 bytes when it is made. Addresses are those of host
/// memory, so that copies are copies; no two allocations touch.
class DeviceMemory {
 public:
  /// 256-byte aligned; nullptr where there is none left.
  std::byte* allocate(std::size_t bytes, std::string_view what = "memory");
  /// std::invalid_argument for what is no allocation's beginning.
  void free(std::byte* address);
  /// The allocation that holds [address, address + bytes); null if there is none.
  Allocation* find(std::uint64_t address, std::size_t bytes);
  /// "after the end of ... " and the like, for messages.
  std::string nearest(std::uint64_t address) const;

 private:
  std::map<std::uintptr_t, Allocation> allocations_;
};

/// Kernels and module variables of PTX texts. One thread at a time, as all of the machine.
class Program {
 public:
  /// `memory` gets the modules' .global and .const variables and outlives the program.
  explicit Program(DeviceMemory& memory);
  ~Program();
  /// std::invalid_argument "FILE:LINE: ..." for text that is no PTX of this machine. A kernel that is there
  /// already (a template instantiated in two files) is left out.
  void add(std::string_view file, std::string text);
  /// nullptr: there is none.
  const Kernel* find(std::string_view name) const;
  KernelFacts facts(const Kernel& kernel) const;
  std::vector<std::string> names() const;
  /// 80 for .target sm_80; all texts must have the same.
  int architecture() const { return architecture_; }

 private:
  DeviceMemory& memory_;
  std::vector<std::unique_ptr<Module>> modules_;
  std::map<std::string, std::unique_ptr<Kernel>, std::less<>> kernels_;
  int architecture_ = 0;
};

struct Grid {
  std::uint32_t x = 1, y = 1, z = 1;                    ///< blocks
  std::uint32_t block_x = 1, block_y = 1, block_z = 1;  ///< threads of one
  std::size_t dynamic_shared_bytes = 0;
};

/// The order in which warps and blocks go; a kernel that leans on none has the same bits under all.
enum class Order : std::uint8_t { ascending, descending, scrambled };

class Terms;
class Execution;

class Machine {
 public:
  struct Options {
    const TensorCoreModel* f16 = nullptr;   ///< rows that mma.sync follows, by operand format; null: the
    const TensorCoreModel* bf16 = nullptr;  ///< instruction is refused
    const TensorCoreModel* tf32 = nullptr;
    Order order = Order::ascending;
    bool watch_races = true;
    Terms* terms = nullptr;  ///< what floating-point instructions make; null: numbers
  };
  Machine(DeviceMemory& memory, Options options);
  ~Machine();
  /// Executes all blocks of a launch. `parameters`: for each parameter, the address of its value, as
  /// cudaLaunchKernel has them. Throws Fault; std::invalid_argument for a shape outside of the kernel's
  /// limits.
  void launch(const Kernel& kernel, const Grid& grid, const void* const* parameters);

 private:
  std::unique_ptr<Execution> execution_;
};

}  // namespace fp16lab::engine::ptx
