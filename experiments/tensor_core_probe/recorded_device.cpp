#include "experiments/tensor_core_probe/recorded_device.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

namespace fp16lab::probe {
namespace {

using Words = std::vector<std::uint32_t>;

/// Tile number `index` of tiles.
Tiles one_tile(const Instruction& in, const Tiles& tiles, std::size_t index) {
  Tiles one = make_tiles(in, 1);
  const auto copy = [index](const Words& from, Words& to) {
    std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(index * to.size()), to.size(), to.begin());
  };
  copy(tiles.a, one.a);
  copy(tiles.b, one.b);
  copy(tiles.c, one.c);
  return one;
}

class RecordedDevice final : public Device {
 public:
  RecordedDevice(const Capture& capture, int threads) : info_(capture.device) {
    for (const CapturedVector& vector : capture.vectors) add(vector);
    for (const CapturedTiles& captured : capture.tiles) {
      const Instruction& in = *captured.instruction;
      const Tiles tiles = operands_of(captured, capture.seed, threads);
      const std::size_t outputs = tiles.c.size() / tiles.count;
      for (std::size_t i = 0; i < tiles.count; ++i) {
        const auto first = captured.d.begin() + static_cast<std::ptrdiff_t>(i * outputs);
        add(in, one_tile(in, tiles, i), {first, first + static_cast<std::ptrdiff_t>(outputs)});
      }
    }
    for (const CapturedHalf& half : capture.halves)
      halves_[{half.operation, half.packed, half.operands}] = half.result;
  }

  const DeviceInfo& info() const override { return info_; }
  bool computes() const override { return false; }
  bool has(const Instruction& in) const override { return known_.contains(in.opcode); }

  std::vector<std::uint32_t> run(const Instruction& in, const Tiles& tiles, bool) override {
    Words d;
    for (std::size_t i = 0; i < tiles.count; ++i) {
      const auto found = results_.find({in.opcode, digest_of(in, one_tile(in, tiles, i))});
      if (found == results_.end())
        throw NotRecorded(fmt::format("the capture lacks operands of {}", in.name));
      d.insert(d.end(), found->second.begin(), found->second.end());
    }
    return d;
  }

  std::vector<std::uint32_t> run(const HalfInstruction& in, std::span<const std::uint32_t> x,
                                 std::span<const std::uint32_t> y,
                                 std::span<const std::uint32_t> z) override {
    Words result;
    for (std::size_t i = 0; i < x.size(); ++i) {
      Words operands{x[i]};
      if (!y.empty()) operands.push_back(y[i]);
      if (!z.empty()) operands.push_back(z[i]);
      const auto found = halves_.find({in.operation, in.packed, operands});
      const bool plain = !in.modifiers.ftz && !in.modifiers.sat && in.rounding == Rounding::nearest_even;
      if (found == halves_.end() || !plain)
        throw NotRecorded("the capture lacks operands of a plain FP16 instruction");
      result.push_back(found->second);
    }
    return result;
  }

 private:
  void add(const Instruction& in, const Tiles& tile, Words d) {
    known_.insert(in.opcode);
    results_[{in.opcode, digest_of(in, tile)}] = std::move(d);
  }
  void add(const CapturedVector& vector) {
    const Instruction& in = *vector.instruction;
    Tiles tile = make_tiles(in, 1);
    for (std::size_t i = 0; i < tile.a.size(); ++i) tile.a[i] = vector.a[i % vector.a.size()];
    for (std::size_t i = 0; i < tile.b.size(); ++i) tile.b[i] = vector.b[i % vector.b.size()];
    std::ranges::fill(tile.c, vector.c);
    add(in, tile, vector.d.size() == 1 ? Words(tile.c.size(), vector.d[0]) : vector.d);
  }

  DeviceInfo info_;
  std::set<Opcode> known_;
  std::map<std::pair<Opcode, std::uint64_t>, Words> results_;  // by the operands' digest
  std::map<std::tuple<HalfOperation, bool, Words>, std::uint32_t> halves_;
};

}  // namespace

std::unique_ptr<Device> open_recorded_device(const Capture& capture, int threads) {
  return std::make_unique<RecordedDevice>(capture, threads);
}

}  // namespace fp16lab::probe
