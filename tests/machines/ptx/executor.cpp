// Machine: a launch is executed block by block, each block warp by warp between its barriers.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <numeric>

#include "numerics/platform/floating_point_scope.hpp"
#include "tests/machines/ptx/module.hpp"
#include "tests/machines/ptx/table.hpp"
#include "tests/machines/ptx/warp.hpp"

namespace fp16lab::engine::ptx {

namespace {

constexpr std::byte shared_poison{0xa0};

/// Shared memory of a block, static and dynamic together (CUDA C++ Programming Guide, "Technical
/// Specifications per Compute Capability").
std::size_t most_shared_bytes(int architecture) {
  if (architecture < 80) return 64 * 1024;
  if (architecture == 86 || architecture == 89 || architecture >= 120) return 99 * 1024;
  return architecture < 90 ? 163 * 1024 : 227 * 1024;
}

void check_shape(const Kernel& kernel, const Grid& grid, std::size_t shared_bytes) {
  const auto refuse = [&](const std::string& why) {
    throw std::invalid_argument(fmt::format("kernel {}: {}", kernel.facts.name, why));
  };
  const std::uint64_t threads = std::uint64_t{grid.block_x} * grid.block_y * grid.block_z;
  if (threads == 0 || threads > 1024 || grid.block_z > 64 || threads > kernel.facts.max_threads)
    refuse(fmt::format("a block of ({}, {}, {}) threads; 1 to {} are possible", grid.block_x, grid.block_y,
                       grid.block_z, std::min(1024u, kernel.facts.max_threads)));
  if (grid.x == 0 || grid.x > 0x7fffffff || grid.y == 0 || grid.y > 65535 || grid.z == 0 || grid.z > 65535)
    refuse(fmt::format("a grid of ({}, {}, {}) blocks", grid.x, grid.y, grid.z));
  const int architecture = kernel.module->architecture;
  if (shared_bytes > most_shared_bytes(architecture))
    refuse(fmt::format("{} bytes of shared memory; a block of sm_{} may have {}", shared_bytes, architecture,
                       most_shared_bytes(architecture)));
}

/// The handler of an instruction that computes, on the machine's terms.
void compute_on_terms(Warp& warp, const Instruction& instruction) {
  const std::string_view opcode = instruction.row->opcode();
  const auto copy = [](void* to, const void* from, Type type) {
    std::memcpy(to, from, static_cast<std::size_t>(type.bytes()));
  };
  for_each_lane(warp.active, [&](int lane) {
    const auto place = [&](std::size_t operand, Type type) {
      return warp.registers + instruction.operands[operand] + lane * type.bytes();
    };
    std::uint64_t sources[3] = {};
    for (std::size_t i = 0; i < 3; ++i)
      if (instruction.operands[i + 1] != no_operand)
        copy(&sources[i], place(i + 1, instruction.from), instruction.from);
    const std::uint64_t result =
        warp.block->options->terms->operate(opcode, instruction.to, instruction.from, sources);
    copy(place(0, instruction.to), &result, instruction.to);
  });
}

}  // namespace

/// Launches in execution, one after the other.
class Execution {
 public:
  Execution(DeviceMemory& memory, const Machine::Options& options) : options_(options) {
    block_.memory = &memory;
    block_.options = &options_;
  }

  void launch(const Kernel& kernel, const Grid& grid, const void* const* parameters) {
    prepare(kernel, grid, parameters);
    const std::uint64_t count = std::uint64_t{grid.x} * grid.y * grid.z;
    std::uint64_t step = 1, first = 0;
    if (options_.order == Order::descending) step = first = count - 1;
    if (options_.order == Order::scrambled && count > 1) {
      // Another order of blocks in every launch: multiples of a number without a common divisor.
      step = random() % count | 1;
      while (std::gcd(step, count) != 1) step += 2;
      first = random() % count;
    }
    __extension__ using Wide = unsigned __int128;
    for (std::uint64_t i = 0; i < count; ++i)
      run_block(static_cast<std::uint64_t>((Wide{i} * step + first) % count));
  }

 private:
  void prepare(const Kernel& kernel, const Grid& grid, const void* const* parameters) {
    const Code& code = code_of(kernel);
    const std::size_t shared_bytes = grid.dynamic_shared_bytes == 0
                                         ? code.static_shared_bytes
                                         : code.dynamic_shared_offset + grid.dynamic_shared_bytes;
    check_shape(kernel, grid, shared_bytes);
    block_.code = &code;
    block_.kernel = &kernel;
    block_.extent = {grid.block_x, grid.block_y, grid.block_z};
    block_.grid = {grid.x, grid.y, grid.z};
    block_.threads = grid.block_x * grid.block_y * grid.block_z;
    block_.parameters.assign(kernel.parameter_bytes, std::byte{0xa5});
    for (std::size_t i = 0; i < kernel.facts.parameter_bytes.size(); ++i)
      std::memcpy(block_.parameters.data() + kernel.facts.parameter_offsets[i], parameters[i],
                  kernel.facts.parameter_bytes[i]);
    block_.shared.resize(shared_bytes);
    block_.local.resize(code.local_bytes * block_.threads);

    const std::uint32_t warps = (block_.threads + lanes - 1) / lanes;
    block_.watch.begin_launch(options_.watch_races, code, shared_bytes, warps);
    const std::size_t file_lines = code.registers.size() / sizeof(Line);
    files_.resize(std::max(files_.size(), file_lines * warps + 1));  // a kernel may have no registers
    order_.resize(warps);
    warps_.assign(warps, {});
    for (std::uint32_t i = 0; i < warps; ++i) {
      warps_[i].block = &block_;
      warps_[i].number = i;
      warps_[i].registers = files_[i * file_lines].bytes;
    }
  }

  void begin_block(std::uint64_t index) {
    block_.index = {static_cast<std::uint32_t>(index % block_.grid[0]),
                    static_cast<std::uint32_t>(index / block_.grid[0] % block_.grid[1]),
                    static_cast<std::uint32_t>(index / block_.grid[0] / block_.grid[1])};
    block_.watch.begin_block(block_.index);
    block_.barrier_or = false;
    std::fill(block_.shared.begin(), block_.shared.end(), shared_poison);
    std::fill(block_.local.begin(), block_.local.end(), shared_poison);
    block_.copies.assign(block_.threads, {});
    const Code& code = *block_.code;
    for (Warp& warp : warps_) {
      const std::uint32_t left = block_.threads - warp.number * lanes;
      warp.live = warp.mask = left >= lanes ? all_lanes : (1u << left) - 1;
      warp.place = 0;
      warp.least_other = Warp::nowhere;
      std::memset(warp.registers, register_poison, code.registers.size());
      for (const auto& [offset, bytes] : code.constants)
        std::memcpy(warp.registers + offset, code.registers.data() + offset, bytes);
      for (const auto& [special, offset] : code.specials)
        for (int lane = 0; lane < lanes; ++lane)
          warp.values<std::uint32_t>(offset)[lane] = special->value(block_, warp.thread(lane));
    }
  }

  void run_block(std::uint64_t index) {
    begin_block(index);
    const auto has_ended = [](const Warp& warp) { return warp.live == 0; };
    while (!std::all_of(warps_.begin(), warps_.end(), has_ended)) {
      bool is_running = false;
      std::iota(order_.begin(), order_.end(), 0u);
      if (options_.order == Order::descending) std::reverse(order_.begin(), order_.end());
      if (options_.order == Order::scrambled)
        for (std::size_t i = order_.size(); i > 1; --i) std::swap(order_[i - 1], order_[random() % i]);
      for (const std::uint32_t number : order_) {
        Warp& warp = warps_[number];
        if (!warp.choose()) continue;  // an interrupted group may have others before it
        is_running = true;
        run_warp(warp, options_.order == Order::scrambled ? 1 + random() % 16 : ~std::uint64_t{0});
      }
      if (!is_running) release_from_barrier();
    }
  }

  void run_warp(Warp& warp, std::uint64_t budget) {
    const Instruction* const code = block_.code->instructions.data();
    const bool on_terms = options_.terms != nullptr;
    std::uint64_t executed = 0;
    try {
      do {
        do {
          const Instruction& instruction = code[warp.place];
          warp.active = warp.mask;
          warp.next = warp.place + 1;
          if (instruction.guard != no_operand)
            warp.active &= warp.predicate(instruction.guard) ^ (instruction.guard_negated ? all_lanes : 0);
          if (warp.active != 0)
            (on_terms && instruction.computes ? &compute_on_terms : instruction.handler)(warp, instruction);
          warp.place = warp.next;
          ++executed;
        } while (warp.mask != 0 && warp.place < warp.least_other && executed < budget);
      } while (executed < budget && warp.choose());
    } catch (const std::invalid_argument& error) {
      warp.fail(FaultKind::instruction, std::countr_zero(warp.active), error.what());
    }
  }

  /// All warps wait or have ended: the barrier is complete if they wait at one place.
  void release_from_barrier() {
    const auto waits = [](const Warp& warp) { return warp.waits_for_block; };
    const Warp& first = *std::find_if(warps_.begin(), warps_.end(), waits);
    for (const Warp& warp : warps_)
      if (warp.waits_for_block && warp.place != first.place)
        warp.fail(FaultKind::barrier, std::countr_zero(warp.live),
                  fmt::format("a barrier at which not all threads arrive; warp {} waits at", first.number),
                  first.place);
    const std::uint32_t result = block_.code->instructions[first.place].operands[0];
    for (Warp& warp : warps_) {
      if (!warp.waits_for_block) continue;
      warp.active = warp.live;
      if (result != no_operand) warp.assign_predicate(result, block_.barrier_or ? all_lanes : 0);
      warp.mask = warp.live;
      ++warp.place;
      warp.waits_for_block = false;
    }
    block_.barrier_or = false;
    block_.watch.meet_block();
  }

  std::uint64_t random() {
    random_ = random_ * 6364136223846793005u + 1442695040888963407u;  // Knuth's MMIX generator
    return random_ >> 33;
  }

  const Machine::Options options_;
  Block block_;
  std::vector<Warp> warps_;
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  std::vector<Line> files_;  ///< registers of all warps
  std::vector<std::uint32_t> order_;
  std::uint64_t random_ = 0x9e3779b97f4a7c15u;
};

Machine::Machine(DeviceMemory& memory, Options options)
    : execution_(std::make_unique<Execution>(memory, options)) {}
Machine::~Machine() = default;

void Machine::launch(const Kernel& kernel, const Grid& grid, const void* const* parameters) {
  const FloatingPointScope scope;
  execution_->launch(kernel, grid, parameters);
}

}  // namespace fp16lab::engine::ptx
