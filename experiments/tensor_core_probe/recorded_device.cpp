#include <fmt/format.h>

#include <map>
#include <set>

#include "experiments/tensor_core_probe/device.hpp"

namespace fp16lab::probe {
namespace {

Words part(const Words& words, std::size_t number, std::size_t parts) {
  const auto size = static_cast<std::ptrdiff_t>(words.size() / parts);
  const auto begin = words.begin() + static_cast<std::ptrdiff_t>(number) * size;
  return {begin, begin + size};
}

/// The digest of tile number `i`.
std::uint64_t digest_of_tile(const Instruction& in, const Tiles& tiles, std::size_t i) {
  return digest_of(
      in, {1, part(tiles.a, i, tiles.count), part(tiles.b, i, tiles.count), part(tiles.c, i, tiles.count)});
}

class RecordedDevice final : public Device {
 public:
  RecordedDevice(const Capture& capture, int threads) : info_(capture.device) {
    for (const CapturedVector& captured : capture.vectors) {
      const Instruction& in = *captured.instruction;
      add(in, tiles_of(in, {captured.vector}),
          captured.d.size() == 1 ? Words(in.outputs(), captured.d[0]) : captured.d);
    }
    for (const CapturedTiles& captured : capture.tiles)
      add(*captured.instruction, operands_of(captured, capture.seed, threads), captured.d);
    for (const CapturedHalf& half : capture.halves)
      halves_[{half.operation, half.packed, half.operands}] = half.result;
  }

  const DeviceInfo& info() const override { return info_; }
  bool has(const Instruction& in) const override { return known_.contains(in.name); }

  Words run(const Instruction& in, const Tiles& tiles, bool) override {
    Words d;
    for (std::size_t i = 0; i < tiles.count; ++i) {
      const auto found = results_.find({in.name, digest_of_tile(in, tiles, i)});
      if (found == results_.end())
        throw NotAnswered(fmt::format("the capture lacks operands of {}", in.name));
      d.insert(d.end(), found->second.begin(), found->second.end());
    }
    return d;
  }

  Words run(const HalfInstruction& in, const Words& x, const Words& y, const Words& z) override {
    const HalfCalls calls{x, y, z};
    const bool plain = !in.ftz && !in.sat && in.rounding == HalfRounding::rn;
    Words result;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const auto found = halves_.find({in.operation, in.packed, calls.of(in.operation, i)});
      if (found == halves_.end() || !plain)
        throw NotAnswered("captures have no sweep of plain instructions; run the probe on the device");
      result.push_back(found->second);
    }
    return result;
  }

 private:
  void add(const Instruction& in, const Tiles& tiles, const Words& d) {
    known_.insert(in.name);
    for (std::size_t i = 0; i < tiles.count; ++i)
      results_[{in.name, digest_of_tile(in, tiles, i)}] = part(d, i, tiles.count);
  }

  DeviceInfo info_;
  std::set<std::string_view> known_;
  std::map<std::pair<std::string_view, std::uint64_t>, Words> results_;  // by the operands' digest
  std::map<std::tuple<HalfOperation, bool, Words>, std::uint32_t> halves_;
};

}  // namespace

std::unique_ptr<Device> open_recorded_device(const Capture& capture, int threads) {
  return std::make_unique<RecordedDevice>(capture, threads);
}

}  // namespace fp16lab::probe
