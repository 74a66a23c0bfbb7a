// The options of fp16lab hist.
#pragma once

#include "experiments/app/arguments.hpp"

namespace fp16lab::experiments {

inline constexpr const char* hist_description =
    "Where gradients sit in FP16, or other formats, at any loss scale: those of run folders, or your own\n"
    "dumps (.npy, .npz, .safetensors; f2 f4 f8 and F16 BF16 F32 F64 F8_E4M3 F8_E5M2), per tensor and\n"
    "together. Dumps are counted value by value, exactly; run folders hold histograms, and say bounds where\n"
    "they leave something open. What is no gradient in a file of train --dump-gradients is left out.\n"
    "One table or JSON document a run, one for all dumps; -o DIR draws the figures.";
inline constexpr const char* hist_examples =
    "  fp16lab hist results/classifier --scale 2^15\n"
    "  fp16lab hist results/classifier --step 100 --json\n"
    "  fp16lab hist gradients.npz --format f16,bf16,e5m2     would another format do?\n"
    "  fp16lab hist step.safetensors --include fc1 --exclude '*.bias'\n"
    "  fp16lab hist gradients.npz 'dumps/step-*.safetensors' --scale 2^10 -o results/hist";

void add_hist_options(CLI::App& app, HistCommand& command);

}  // namespace fp16lab::experiments
