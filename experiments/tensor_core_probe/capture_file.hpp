// What experiments/capture/capture.cu wrote on some machine, read and judged on this one.
//
// A capture holds the device, every question's vector with the word that the device gave, NaNs of the plain
// FP16 instructions, and all words of random tiles. Operands of those are made again here (random_tiles), and
// a digest says whether they are the same words as there.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "experiments/tensor_core_probe/device.hpp"
#include "experiments/tensor_core_probe/random_blocks.hpp"

namespace fp16lab::probe {

struct CapturedVector {
  const Instruction* instruction;
  std::string id;                   ///< "V37"
  std::vector<std::uint32_t> a, b;  ///< k words each
  std::uint32_t c = 0;
  std::vector<std::uint32_t> d;  ///< one word, or all m x n where they differ
};

struct CapturedTiles {
  const Instruction* instruction;
  Distribution distribution;
  std::size_t count = 0;
  std::uint64_t operands = 0;    ///< digest of a, b and c
  std::vector<std::uint32_t> d;  ///< count x m x n
};

struct CapturedHalf {
  HalfOperation operation;
  bool packed = false;
  std::vector<std::uint32_t> operands;  ///< one to three words
  std::uint32_t result = 0;
};

struct Capture {
  DeviceInfo device;
  std::string kernels, compiler;  ///< "sm_90", "nvcc 13.0.88"
  std::uint64_t seed = 0;         ///< of random operands
  std::uint64_t outputs = 0;      ///< of each instruction, shared by the distributions
  std::vector<CapturedVector> vectors;
  std::vector<CapturedTiles> tiles;
  std::vector<CapturedHalf> halves;
};

/// The first line of every capture.
inline constexpr std::string_view capture_heading = "fp16lab capture 1";

/// std::runtime_error "line N: ..." where the text is no capture, is damaged (digests of results) or cut off.
Capture parse_capture(std::string_view text);
/// The same of a file, with "PATH: " in front; also where it cannot be read.
Capture read_capture(const std::filesystem::path& path);

/// The operands of these tiles. std::runtime_error where they are not those that the device was given.
Tiles operands_of(const CapturedTiles& tiles, std::uint64_t seed, int threads);

/// FNV-1a over the bytes of a, b and c, each in its format's width, as capture.cu computes it.
std::uint64_t digest_of(const Instruction& in, const Tiles& tiles);

/// An output that the model does not give.
struct CapturedDifference {
  const Instruction* instruction;
  std::string place;  ///< "question V37", "cancelling, tile 3, row 5, column 2"
  std::vector<std::uint32_t> a, b;
  std::uint32_t c = 0, d = 0;  ///< d: the device's
  std::uint32_t expected = 0;
};

/// The outputs of one instruction against its row.
struct CaptureVerdict {
  const Instruction* instruction;
  std::string model;                 ///< the row's name; empty: the table has none, nothing was compared
  std::uint64_t questions = 0;       ///< vectors compared
  std::uint64_t random_outputs = 0;  ///< outputs compared
  std::vector<CapturedDifference> differences;
};

/// Every word of the capture against the rows of its capability, or of `generation` where it is not empty. In
/// the order of instructions(). Does not depend on `threads`.
std::vector<CaptureVerdict> judge(const Capture& capture, std::string_view generation, int threads);

}  // namespace fp16lab::probe
