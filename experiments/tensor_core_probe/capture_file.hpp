// What experiments/capture/capture.cu wrote on some machine, read on this one.
//
// A capture holds the device, every question's vector with the word that the device gave, NaNs of the plain
// FP16 instructions, and all words of random tiles. Operands of those are made again here, and a digest says
// whether they are the same words as there.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "experiments/capture/questions.hpp"

namespace fp16lab::probe {

struct CapturedVector {
  const Instruction* instruction;
  Vector vector;
  Words d;  ///< one word, or all m x n where they differ
};

struct CapturedTiles {
  const Instruction* instruction;
  Distribution distribution;
  std::size_t count = 0;
  std::uint64_t operands = 0;  ///< digest of a, b and c
  Words d;                     ///< count x m x n
};

struct CapturedHalf {
  HalfOperation operation;
  bool packed = false;
  Words operands;  ///< one to three words
  std::uint32_t result = 0;
};

struct Capture {
  DeviceInfo device;
  std::uint64_t seed = 0;     ///< of random operands
  std::uint64_t outputs = 0;  ///< of each instruction, shared by the distributions
  std::vector<CapturedVector> vectors;
  std::vector<CapturedTiles> tiles;
  std::vector<CapturedHalf> halves;
};

/// std::runtime_error "line N: ..." where the text is no capture, is damaged (digests of results) or cut off.
Capture parse_capture(std::string_view text);
/// The same of a file, with "PATH: " in front; also where it cannot be read.
Capture read_capture(const std::filesystem::path& path);

/// What capture.cu writes on this device: see write_capture.
std::string capture_text(Device& device, std::uint64_t seed, std::size_t random_outputs);

/// Tiles first_tile ... first_tile + count - 1 of RandomTiles. They do not depend on `threads`.
Tiles random_tiles(const Instruction& in, Distribution distribution, std::uint64_t seed,
                   std::uint64_t first_tile, std::size_t count, int threads);
/// The operands of these tiles. std::runtime_error where they are not those that the device was given.
Tiles operands_of(const CapturedTiles& tiles, std::uint64_t seed, int threads);

}  // namespace fp16lab::probe
