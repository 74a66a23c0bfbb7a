// The options of fp16lab hist.
#pragma once

#include "experiments/arguments.hpp"

namespace fp16lab::experiments {

inline constexpr const char* hist_description =
    "Where gradients sit in FP16, at any loss scale: those of run folders, or your own dumps\n(.npy, .npz, "
    ".safetensors; f2 f4 f8 and F16 BF16 F32 F64 F8_E4M3 F8_E5M2), per tensor and together.\nOne table or "
    "JSON "
    "document a run, one for all dumps; -o DIR draws the figures.";
inline constexpr const char* hist_examples =
    "  fp16lab hist results/classifier --scale 2^15\n"
    "  fp16lab hist results/classifier --step 100 --json\n"
    "  fp16lab hist gradients.npz 'dumps/step-*.safetensors' --scale 2^10 -o results/hist";

void add_hist_options(CLI::App& app, HistCommand& command);

}  // namespace fp16lab::experiments
