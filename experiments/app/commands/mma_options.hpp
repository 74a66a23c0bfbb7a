// The options of fp16lab mma.
#pragma once

#include "experiments/app/arguments.hpp"

namespace fp16lab::experiments {

inline constexpr const char* mma_description =
    "Tensor-core dot products as a filter: d = c + a.b as the hardware computes it. Input lines:\n"
    "  a-words TAB b-words TAB c-word      words in hexadecimal with spaces between them, any K\n"
    "Output: the same line, TAB, d-word. Words have 2 digits (e4m3, e5m2), 4 (f16, bf16) or 8 (f32;\n"
    "tf32 is an FP32 register whose low 13 bits are ignored, all 8 digits required). 0x, capitals and\n"
    "missing leading zeros are fine. Empty lines and lines that begin with # pass through unchanged.\n"
    "A malformed line ends the run with exit code 2 after the answers before it.";
inline constexpr const char* mma_examples =
    "  printf '3c00 b800\\t3c00 3c00\\t3f800000\\n' | fp16lab mma --model hopper\n"
    "  fp16lab mma --model ampere --in bf16 --verify < captured.tsv > mismatches.tsv";

void add_mma_options(CLI::App& app, MmaCommand& command);

}  // namespace fp16lab::experiments
