// The emulator in the place of a GPU: a device of any capability, with any one thing about it changed.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "experiments/tensor_core_probe/device.hpp"
#include "numerics/formats/bits.hpp"

namespace fp16lab::probe {

class EmulatedDevice : public Device {
 public:
  /// Changes what one instruction computes.
  using ChangeRow = std::function<void(const Instruction&, TensorCoreModel&)>;
  using ChangeWord = std::function<std::uint32_t(std::uint32_t word)>;

  explicit EmulatedDevice(Capability capability) {
    info_ = {"emulated GPU", capability, 13000, 13000, "1.2.3"};
  }

  ChangeRow change_row;    ///< the table's row, before it is used
  ChangeWord change_word;  ///< every output of the tensor core
  ChangeWord change_half;  ///< every result of a plain FP16 instruction
  bool reads_d_at_scale_0 = false;
  bool adds_c_last = false;       ///< FP32 accumulators only
  bool one_output_wrong = false;  ///< the last one of every tile

  const DeviceInfo& info() const override { return info_; }
  bool has(const Instruction& in) const override {
    if (in.unit == Unit::wgmma) return info_.capability.major == 9;
    if (!row_for(in, info_.capability)) return false;
    return size_of(in.operands) > 1 || info_.capability.major > 8 || info_.capability.minor == 9;
  }

  std::vector<std::uint32_t> run(const Instruction& in, const Tiles& tiles, bool scale_d) override {
    TensorCoreModel row = row_for(in, info_.capability).value();
    if (change_row) change_row(in, row);
    const auto m = static_cast<std::size_t>(in.m), n = static_cast<std::size_t>(in.n),
               k = static_cast<std::size_t>(in.k);
    std::vector<std::uint32_t> d(tiles.count * m * n);
    for (std::size_t output = 0; output < d.size(); ++output) {
      const std::size_t tile = output / (m * n);
      const auto a = std::span(tiles.a).subspan(output / n * k, k);
      const auto b = std::span(tiles.b).subspan((tile * n + output % n) * k, k);
      const std::uint32_t c = scale_d || reads_d_at_scale_0 ? tiles.c[output] : 0;
      std::uint32_t word = fused_dot_add(row, in.operands, a, in.operands, b, adds_c_last ? 0 : c);
      if (adds_c_last) word = bits_of(canonicalize(float_from_bits(word) + float_from_bits(c)));
      if (change_word) word = change_word(word);
      if (one_output_wrong && (output + 1) % (m * n) == 0) word ^= 1;
      d[output] = word;
    }
    return d;
  }

  std::vector<std::uint32_t> run(const HalfInstruction& in, std::span<const std::uint32_t> x,
                                 std::span<const std::uint32_t> y,
                                 std::span<const std::uint32_t> z) override {
    std::vector<std::uint32_t> result;
    result.reserve(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      const auto at = [i](std::span<const std::uint32_t> words) { return words.empty() ? 0 : words[i]; };
      const std::uint32_t low = one(in, x[i], at(y), at(z));
      result.push_back(in.packed ? low | one(in, x[i] >> 16, at(y) >> 16, at(z) >> 16) << 16 : low);
    }
    return result;
  }

 private:
  std::uint32_t one(const HalfInstruction& in, std::uint32_t x, std::uint32_t y, std::uint32_t z) const {
    const auto half = [](std::uint32_t word) { return Float16::from_bits(static_cast<std::uint16_t>(word)); };
    std::uint32_t word = 0;
    switch (in.operation) {
      case HalfOperation::add:
        word = ptx::add(half(x), half(y), in.modifiers).bits();
        break;
      case HalfOperation::mul:
        word = ptx::mul(half(x), half(y), in.modifiers).bits();
        break;
      case HalfOperation::fma:
        word = ptx::fma(half(x), half(y), half(z), in.modifiers).bits();
        break;
      case HalfOperation::cvt_f16_f32:
        word = ptx::cvt_f16_f32(float_from_bits(x), in.rounding, in.modifiers).bits();
        break;
      case HalfOperation::cvt_f32_f16:
        word = bits_of(ptx::cvt_f32_f16(half(x)));
        break;
    }
    return change_half ? change_half(word) : word;
  }

  DeviceInfo info_;
};

}  // namespace fp16lab::probe
