// Machine: a launch is executed block by block, each block warp by warp between its barriers.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <numeric>

#include "engine/backend/cuda/ptx/handlers.hpp"
#include "engine/backend/cuda/ptx/module.hpp"
#include "engine/backend/cuda/ptx/warp.hpp"
#include "numerics/platform/floating_point_scope.hpp"

namespace fp16lab::engine::ptx {

namespace {

constexpr int shared_poison = 0xa0, register_poison = 0xa5;

/// Shared memory of a block, static and dynamic together (CUDA C++ Programming Guide, "Technical Specifications per
/// Compute Capability").
std::size_t most_shared_bytes(int architecture) {
  if (architecture < 80) return 64 * 1024;
  if (architecture == 86 || architecture == 89 || architecture >= 120) return 99 * 1024;
  return architecture < 90 ? 163 * 1024 : 227 * 1024;
}

std::string describe_place(const Block& block, std::uint32_t instruction) {
  const Kernel& kernel = *static_cast<const Kernel*>(block.kernel);
  const std::uint32_t line = block.code->instructions[instruction].line;
  return fmt::format("{}:{}: '{}' of {}", kernel.module->file, line, kernel.module->text_of_line(line),
                     kernel.facts.name);
}

/// A launch in execution.
class Execution {
 public:
  Execution(Program& program, DeviceMemory::State& memory, const Machine::Options& options)
      : program_(program), options_(options) {
    block_.memory = &memory;
    block_.options = &options_;
    block_.describe = &describe_place;
  }
  std::uint64_t instructions() const { return instructions_; }
  void launch(const Kernel& kernel, const Grid& grid, const void* const* parameters);

 private:
  void prepare(const Kernel& kernel, const Grid& grid, const void* const* parameters);
  void run_block(std::uint64_t index);
  template <bool terms>
  void run_warp(Warp& warp, std::uint64_t budget);
  void release();

  template <class T>
  void fill(std::byte* file, std::uint32_t offset, T value) {
    T* const to = reinterpret_cast<T*>(file + offset);
    std::fill(to, to + lanes, value);
  }
  void set_constants(std::byte* file);
  void set_thread_specials(Warp& warp);
  void set_block_specials(std::byte* file);

  std::uint64_t random() {
    random_ = random_ * 6364136223846793005u + 1442695040888963407u;  // Knuth's MMIX generator
    return random_ >> 33;
  }

  Program& program_;
  Machine::Options options_;
  Block block_;
  CellPages pages_;
  std::vector<Warp> warps_;
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  std::vector<Line> files_;
  std::size_t file_bytes_ = 0;
  std::vector<std::byte> parameters_;
  std::vector<std::uint32_t> order_;
  std::vector<std::pair<std::uint32_t, std::array<std::uint32_t, 3>>> block_times_;
  std::uint64_t random_ = 0x9e3779b97f4a7c15u;
  std::uint64_t instructions_ = 0;
};

void check_shape(const Kernel& kernel, const Grid& grid, std::size_t shared_bytes, int architecture) {
  const auto refuse = [&](const std::string& why) {
    throw std::invalid_argument(fmt::format("kernel {}: {}", kernel.facts.name, why));
  };
  const std::uint64_t threads = std::uint64_t{grid.block_x} * grid.block_y * grid.block_z;
  if (threads == 0 || threads > 1024 || grid.block_z > 64 || threads > kernel.facts.max_threads)
    refuse(fmt::format("a block of ({}, {}, {}) threads; 1 to {} are possible", grid.block_x, grid.block_y,
                       grid.block_z, std::min(1024u, kernel.facts.max_threads)));
  if (grid.x == 0 || grid.x > 0x7fffffff || grid.y == 0 || grid.y > 65535 || grid.z == 0 || grid.z > 65535)
    refuse(fmt::format("a grid of ({}, {}, {}) blocks", grid.x, grid.y, grid.z));
  if (shared_bytes > most_shared_bytes(architecture))
    refuse(fmt::format("{} bytes of shared memory; a block of sm_{} may have {}", shared_bytes, architecture,
                       most_shared_bytes(architecture)));
}

void Execution::prepare(const Kernel& kernel, const Grid& grid, const void* const* parameters) {
  const Code& code = code_of(kernel);
  block_.shared_bytes = grid.dynamic_shared_bytes == 0
                            ? code.static_shared_bytes
                            : code.dynamic_shared_offset + grid.dynamic_shared_bytes;
  check_shape(kernel, grid, block_.shared_bytes, program_.architecture());
  block_.code = &code;
  block_.kernel = &kernel;
  block_.extent = {grid.block_x, grid.block_y, grid.block_z};
  block_.grid = {grid.x, grid.y, grid.z};
  block_.threads = grid.block_x * grid.block_y * grid.block_z;
  parameters_.assign(kernel.parameter_bytes, std::byte{register_poison});
  for (std::size_t i = 0; i < kernel.parameters.size(); ++i)
    std::memcpy(parameters_.data() + kernel.facts.parameter_offsets[i], parameters[i],
                kernel.facts.parameter_bytes[i]);
  block_.parameters = parameters_;
  block_.shared.resize(block_.shared_bytes);
  block_.local.resize(code.local_bytes * block_.threads);
  block_.copies.assign(block_.threads, {});
  block_.time = 0;
  block_times_.clear();
  block_.block_times = &block_times_;
  block_.pages = options_.watch_races ? &pages_ : nullptr;
  const auto granule = static_cast<std::size_t>(code.shared_granule);
  block_.shared_cells.assign(options_.watch_races ? (block_.shared_bytes + granule - 1) / granule : 0,
                             Cell{});
  pages_.begin_launch(code.global_granule);

  const std::uint32_t warps = (block_.threads + lanes - 1) / lanes;
  file_bytes_ = (code.file_bytes + 63) / 64 * 64;
  files_.resize(std::max(files_.size(), file_bytes_ / 64 * warps));
  warps_.resize(warps);
  order_.resize(warps);
  for (std::uint32_t i = 0; i < warps; ++i) {
    Warp& warp = warps_[i];
    warp.block = &block_;
    warp.number = i;
    warp.last_allocation = nullptr;
    warp.registers = files_[0].bytes + i * file_bytes_;
    set_constants(warp.registers);
    set_thread_specials(warp);
  }
}

void Execution::set_constants(std::byte* file) {
  for (const Code::Constant& constant : block_.code->constants) {
    if (constant.bytes == 0) std::memcpy(file + constant.offset, &constant.value, sizeof(std::uint32_t));
    if (constant.bytes == 1 || constant.bytes == 2)
      fill(file, constant.offset, static_cast<std::uint16_t>(constant.value));
    if (constant.bytes == 4) fill(file, constant.offset, static_cast<std::uint32_t>(constant.value));
    if (constant.bytes == 8) fill(file, constant.offset, constant.value);
  }
}

void Execution::set_thread_specials(Warp& warp) {
  const std::uint32_t x = block_.extent[0], y = block_.extent[1];
  for (const auto& [special, offset] : block_.code->specials) {
    std::uint32_t* const to = warp.values<std::uint32_t>(offset);
    for (std::uint32_t lane = 0; lane < lanes; ++lane) {
      const std::uint32_t thread = warp.number * lanes + lane, bit = 1u << lane;
      switch (special) {
        case Special::tid_x:
          to[lane] = thread % x;
          break;
        case Special::tid_y:
          to[lane] = thread / x % y;
          break;
        case Special::tid_z:
          to[lane] = thread / x / y;
          break;
        case Special::laneid:
          to[lane] = lane;
          break;
        case Special::lanemask_eq:
          to[lane] = bit;
          break;
        case Special::lanemask_lt:
          to[lane] = bit - 1;
          break;
        case Special::lanemask_le:
          to[lane] = bit - 1 + bit;
          break;
        case Special::lanemask_gt:
          to[lane] = ~(bit - 1 + bit);
          break;
        case Special::lanemask_ge:
          to[lane] = ~(bit - 1);
          break;
        default:
          break;
      }
    }
  }
}

void Execution::set_block_specials(std::byte* file) {
  for (const auto& [special, offset] : block_.code->specials) {
    const auto which = static_cast<std::size_t>(special);
    const auto from = [&](Special first, const std::array<std::uint32_t, 3>& values) {
      const std::size_t i = which - static_cast<std::size_t>(first);
      if (i < 3) fill(file, offset, values[i]);
    };
    from(Special::ntid_x, block_.extent);
    from(Special::ctaid_x, block_.index);
    from(Special::nctaid_x, block_.grid);
  }
}

void Execution::launch(const Kernel& kernel, const Grid& grid, const void* const* parameters) {
  prepare(kernel, grid, parameters);
  const std::uint64_t count = std::uint64_t{grid.x} * grid.y * grid.z;
  std::uint64_t step = 1, first = 0;
  if (options_.order == Order::scrambled && count > 1) {
    // Another order of blocks in every launch: multiples of a number without a common divisor.
    step = random() % count | 1;
    while (std::gcd(step, count) != 1) step += 2;
    first = random() % count;
  }
  for (std::uint64_t i = 0; i < count; ++i) {
    std::uint64_t index = options_.order == Order::descending ? count - 1 - i : i;
    if (options_.order == Order::scrambled)
      index = static_cast<std::uint64_t>((__extension__ static_cast<unsigned __int128>(i) * step + first) %
                                         count);
    run_block(index);
  }
}

void Execution::run_block(std::uint64_t index) {
  block_.index = {static_cast<std::uint32_t>(index % block_.grid[0]),
                  static_cast<std::uint32_t>(index / block_.grid[0] % block_.grid[1]),
                  static_cast<std::uint32_t>(index / block_.grid[0] / block_.grid[1])};
  block_.begin_time = block_.barrier_time = ++block_.time;
  if (options_.watch_races) block_times_.emplace_back(block_.begin_time, block_.index);
  block_.barrier_or = false;
  std::fill(block_.shared.begin(), block_.shared.end(), std::byte{shared_poison});
  std::fill(block_.local.begin(), block_.local.end(), std::byte{shared_poison});
  for (DelayedCopies& copies : block_.copies) {
    copies.pending.clear();
    copies.groups.clear();
  }
  const Code& code = *block_.code;
  for (Warp& warp : warps_) {
    const std::uint32_t left = block_.threads - warp.number * lanes;
    warp.live = warp.mask = left >= lanes ? all_lanes : (1u << left) - 1;
    warp.place = 0;
    warp.groups.clear();
    warp.least_other = 0xffffffffu;
    warp.sync_time = block_.begin_time;
    std::memset(warp.registers + code.first_register, register_poison, code.file_bytes - code.first_register);
    set_block_specials(warp.registers);
  }
  for (;;) {
    bool is_running = false;
    for (std::uint32_t i = 0; i < order_.size(); ++i)
      order_[i] = options_.order == Order::descending ? static_cast<std::uint32_t>(order_.size()) - 1 - i : i;
    if (options_.order == Order::scrambled)
      for (std::size_t i = order_.size(); i > 1; --i) std::swap(order_[i - 1], order_[random() % i]);
    for (const std::uint32_t number : order_) {
      Warp& warp = warps_[number];
      if (warp.mask == 0 && !warp.choose()) continue;
      is_running = true;
      const std::uint64_t budget = options_.order == Order::scrambled ? 1 + random() % 16 : ~std::uint64_t{0};
      options_.arithmetic != nullptr ? run_warp<true>(warp, budget) : run_warp<false>(warp, budget);
    }
    if (is_running) continue;
    if (std::all_of(warps_.begin(), warps_.end(), [](const Warp& warp) { return warp.live == 0; })) break;
    release();
  }
}

template <bool terms>
void Execution::run_warp(Warp& warp, std::uint64_t budget) {
  const Instruction* const code = block_.code->instructions.data();
  std::uint64_t executed = 0;
  do {
    do {
      const Instruction& instruction = code[warp.place];
      warp.active = warp.mask;
      warp.next = warp.place + 1;
      if (instruction.guard != no_operand)
        warp.active &= warp.predicate(instruction.guard) ^ (instruction.guard_negated ? all_lanes : 0);
      if (warp.active != 0) {
        const Handler handler =
            terms && instruction.on_terms != nullptr ? instruction.on_terms : instruction.handler;
        handler(warp, instruction);
      }
      warp.place = warp.next;
      ++executed;
    } while (warp.mask != 0 && warp.place < warp.least_other && executed < budget);
    if (executed >= budget) break;
  } while (warp.choose());
  instructions_ += executed;
}

/// All warps wait or have ended: the barrier is complete if they wait at one place.
void Execution::release() {
  const Warp* first = nullptr;
  for (const Warp& warp : warps_) {
    if (warp.live == 0) continue;
    const std::uint32_t place = warp.barrier_place();
    if (first == nullptr) first = &warp;
    const std::uint32_t other = first->groups.front().place;
    if (other == place) continue;
    Warp at = warp;
    at.place = place;
    at.fail(std::countr_zero(warp.groups.front().mask),
            fmt::format("a barrier at which not all threads arrive; warp {} waits at", first->number), other);
  }
  for (Warp& warp : warps_) {
    if (warp.live == 0) continue;
    const Instruction& instruction = block_.code->instructions[warp.groups.front().place];
    if (instruction.handler == barrier_or_handler()) {
      warp.active = warp.groups.front().mask;
      warp.assign_predicate(instruction.operands[0], block_.barrier_or ? all_lanes : 0);
    }
    warp.release_from_barrier();
  }
  block_.barrier_or = false;
  block_.barrier_time = ++block_.time;
}

}  // namespace

struct Machine::State {
  State(Program& program, DeviceMemory::State& memory, const Options& options)
      : execution(program, memory, options) {}
  Execution execution;
};

Machine::Machine(Program& program, DeviceMemory& memory, Options options)
    : state_(std::make_unique<State>(program, *memory.state_, options)) {}
Machine::~Machine() = default;

void Machine::launch(const Kernel& kernel, const Grid& grid, const void* const* parameters) {
  const FloatingPointScope scope;
  state_->execution.launch(kernel, grid, parameters);
}

std::uint64_t Machine::instructions() const { return state_->execution.instructions(); }

}  // namespace fp16lab::engine::ptx
