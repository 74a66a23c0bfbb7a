#include "tests/engine/backend/cuda/ptx/proof/coverage.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <regex>

#include "tests/machines/ptx/machine.hpp"

namespace fp16lab::engine::ptx::test {

namespace {

/// A tile as a kernel's name has it.
struct Tile {
  bool on_tensor_cores = false;
  std::string operands;
  std::int64_t m = 0, n = 0, stages = 0;

  std::int64_t shared_bytes() const { return stages * (m + n) * 64; }
  std::int64_t in_pipeline() const { return stages * 64 / (operands == "float" ? 4 : 2); }
};

/// False for the epilogue after a library's products.
bool read_tile(const std::string& name, Tile& tile) {
  static const std::regex mma(R"(^(?:Mma|Gather)Tile<(\w+), (\d+), (\d+), \d+, \d+, (\d+)>.*)"),
      fma(R"(^FmaTile<(\d+), (\d+), (\d+)>.*)");
  std::smatch match;
  if (std::regex_match(name, match, mma))
    tile = {true, match[1], std::stoll(match[2]), std::stoll(match[3]), std::stoll(match[4])};
  else if (std::regex_match(name, match, fma))
    tile = {false, "float", std::stoll(match[1]), std::stoll(match[2]), std::stoll(match[3])};
  else
    return false;
  return true;
}

/// Compute capability 7.5 has 64 KiB of shared memory for a block, which has counters beside its pipeline,
/// and tensor cores for FP16 alone: the other kernels are a trap.
std::string why_out_of_reach(int architecture, const Tile& tile) {
  if (architecture >= 80) return {};
  if (tile.operands == "bf16" || (tile.on_tensor_cores && tile.operands == "float"))
    return "its tensor cores do not multiply that";
  if (tile.shared_bytes() >= 64 * 1024) return "a block has not so much shared memory";
  return {};
}

}  // namespace

Coverage::Coverage(int architecture, const Texts& texts) {
  DeviceMemory memory;
  Program program(memory);
  for (const auto& [file, text] : texts) program.add(file, text);
  for (const std::string& mangled : program.names()) {
    if (!makes_products(mangled)) continue;
    Entry entry{.name = short_name(mangled), .out_of_reach = {}, .shapes = {}};
    Tile tile;
    if (read_tile(entry.name, tile))
      entry.in_pipeline = tile.in_pipeline();
    else
      entry.in_pipeline = -1;  // nothing is multiplied
    if (entry.name.find("<bf16>") != entry.name.npos) tile.operands = "bf16";
    entry.out_of_reach = why_out_of_reach(architecture, tile);
    kernels_.emplace(mangled, std::move(entry));
  }
}

void Coverage::add(const std::vector<std::string>& kernels, const std::string& shape, std::int64_t k) {
  for (const std::string& mangled : kernels) {
    Entry& entry = kernels_.at(mangled);
    entry.shapes.insert(shape);
    entry.deepest = std::max(entry.deepest, k);
  }
}

std::vector<std::string> Coverage::gaps() const {
  std::vector<std::string> gaps;
  for (const auto& [mangled, entry] : kernels_) {
    if (entry.shapes.empty() && entry.out_of_reach.empty())
      gaps.push_back(fmt::format("kernel {} was never launched by the proof", entry.name));
    else if (!entry.shapes.empty() && !entry.out_of_reach.empty())
      gaps.push_back(fmt::format("kernel {} was launched, although {}", entry.name, entry.out_of_reach));
    else if (!entry.shapes.empty() && entry.deepest <= entry.in_pipeline)
      gaps.push_back(fmt::format("kernel {} was proved for k up to {} only; its pipeline holds {}",
                                 entry.name, entry.deepest, entry.in_pipeline));
  }
  return gaps;
}

std::size_t Coverage::launched() const {
  return static_cast<std::size_t>(std::count_if(
      kernels_.begin(), kernels_.end(), [](const auto& kernel) { return !kernel.second.shapes.empty(); }));
}
std::size_t Coverage::out_of_reach() const {
  return static_cast<std::size_t>(std::count_if(kernels_.begin(), kernels_.end(), [](const auto& kernel) {
    return !kernel.second.out_of_reach.empty();
  }));
}

std::string Coverage::table() const {
  std::string table;
  for (const auto& [mangled, entry] : kernels_)
    table +=
        entry.out_of_reach.empty()
            ? fmt::format("{:4} shapes, k up to {:3}: {}\n", entry.shapes.size(), entry.deepest, entry.name)
            : fmt::format("   out of reach, {}: {}\n", entry.out_of_reach, entry.name);
  return table;
}

}  // namespace fp16lab::engine::ptx::test
