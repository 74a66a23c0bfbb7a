#include "tests/experiments/tensor_core_probe/capture_rehearsal.hpp"

#include <cstdio>
#include <cstdlib>
#include <stdexcept>

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"  // of a file that must not grow casts for a test
#pragma GCC diagnostic ignored "-Wsign-conversion"
#define FP16LAB_CAPTURE_REHEARSAL
#include "experiments/capture/capture.cu"
#pragma GCC diagnostic pop

namespace {
fp16lab::probe::EmulatedDevice* standing_in = nullptr;
}

namespace capture {

DeviceInfo device_info() {
  const auto& info = standing_in->info();
  DeviceInfo mine;
  mine.name = info.name;
  mine.capability = std::to_string(info.capability.major) + '.' + std::to_string(info.capability.minor);
  mine.architecture = 10 * info.capability.major + info.capability.minor;
  mine.driver = info.driver + " CUDA 13.0";
  mine.runtime = "CUDA 12.4";
  mine.compiler = "a rehearsal";
  return mine;
}

bool has(const Instruction& in, const DeviceInfo& info) {
  return info.architecture >= in.first && info.architecture <= in.last;
}

Words run(std::size_t instruction, const Tiles& tiles) {
  using namespace fp16lab::probe;
  const fp16lab::probe::Instruction* const in = find_instruction(instructions[instruction].name);
  if (in == nullptr) throw std::logic_error("the probe lacks an instruction of capture.cu");
  const auto masked = [](Words words, fp16lab::DType format) {
    for (Word& word : words) word &= 0xffffffffU >> (32 - 8 * size_of(format));
    return words;
  };
  return standing_in->run(
      *in,
      fp16lab::probe::Tiles{tiles.count, masked(tiles.a, in->operands), masked(tiles.b, in->operands),
                            masked(tiles.c, in->accumulator)},
      true);
}

Words run_half(int operation, bool packed, const Words& x, const Words& y, const Words& z) {
  using fp16lab::probe::HalfOperation;
  const HalfOperation operations[] = {HalfOperation::add, HalfOperation::mul, HalfOperation::fma,
                                      HalfOperation::cvt_f16_f32, HalfOperation::cvt_f32_f16};
  return standing_in->run({operations[operation], {}, packed}, x, y, z);
}

}  // namespace capture

namespace fp16lab::testing_support {

std::string rehearsed_capture(probe::EmulatedDevice& device) {
  standing_in = &device;
  char* text = nullptr;
  std::size_t size = 0;
  std::FILE* const file = open_memstream(&text, &size);
  if (file == nullptr) throw std::runtime_error("open_memstream");
  capture::write_capture(file);
  std::fclose(file);
  std::string result(text, size);
  std::free(text);
  return result;
}

}  // namespace fp16lab::testing_support
