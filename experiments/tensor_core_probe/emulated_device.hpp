// The emulator in the place of a GPU: a device of any capability, with any one thing about it changed.
#pragma once

#include <functional>
#include <span>

#include "experiments/tensor_core_probe/device.hpp"
#include "experiments/tensor_core_probe/question.hpp"

namespace fp16lab::probe {

class EmulatedDevice : public Device {
 public:
  /// Changes what one instruction computes.
  using ChangeRow = std::function<void(const Instruction&, TensorCoreModel&)>;
  using ChangeWord = std::function<std::uint32_t(std::uint32_t word)>;

  explicit EmulatedDevice(Capability capability) {
    const std::string kernels = "sm_" + std::to_string(capability.architecture());
    info_ = {"emulated GPU", capability, 13000, 13000, "1.2.3", kernels, "the emulator"};
  }

  ChangeRow change_row;           ///< the table's row, before it is used
  ChangeWord change_word;         ///< every output of the tensor core
  ChangeWord change_half;         ///< every result of a plain FP16 instruction
  bool one_output_wrong = false;  ///< the last one of every tile

  const DeviceInfo& info() const override { return info_; }
  bool has(const Instruction& in) const override {
    const int architecture = info_.capability.architecture();
    return in.first <= architecture && architecture <= in.last;
  }

  Words run(const Instruction& in, const Tiles& tiles, bool scale_d) override {
    TensorCoreModel row = row_for(in, info_.capability).value();
    if (change_row) change_row(in, row);
    const DotProduct dot = dot_product_of(row, in.operands);
    Words d(tiles.count * in.outputs());
    for (std::size_t output = 0; output < d.size(); ++output) {
      const std::size_t tile = output / in.outputs();
      const auto a = std::span(tiles.a).subspan(output / in.n * in.k, in.k);
      const auto b = std::span(tiles.b).subspan((tile * in.n + output % in.n) * in.k, in.k);
      std::uint32_t word = dot(a, b, scale_d ? tiles.c[output] : 0);
      if (change_word) word = change_word(word);
      if (one_output_wrong && (output + 1) % in.outputs() == 0) word ^= 1;
      d[output] = word;
    }
    return d;
  }

  Words run(const HalfInstruction& in, const Words& x, const Words& y, const Words& z) override {
    const auto one = [&](std::uint32_t a, std::uint32_t b, std::uint32_t c) {
      const std::uint32_t word = emulated(in, a, b, c);
      return change_half ? change_half(word) : word;
    };
    Words result;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const auto at = [i](const Words& words) { return words.empty() ? 0 : words[i]; };
      const std::uint32_t low = one(x[i], at(y), at(z));
      result.push_back(in.packed ? low | one(x[i] >> 16, at(y) >> 16, at(z) >> 16) << 16 : low);
    }
    return result;
  }

 private:
  DeviceInfo info_;
};

}  // namespace fp16lab::probe
