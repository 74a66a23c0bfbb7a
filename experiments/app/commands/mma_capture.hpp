// fp16lab mma --verify FILE: a capture of a GPU, word by word against the table of tensor cores.
#pragma once

#include <filesystem>
#include <string>

#include "experiments/app/common_options.hpp"
#include "experiments/app/exit_code.hpp"

namespace fp16lab::experiments {

/// Writes a line for each output that differs (a-words, b-words, c-word, the GPU's d-word, ours, instruction,
/// place; tabs between them) to the standard output, and a line for each instruction to the standard error.
/// `model`: the generation to compare with; empty: that of the capture's capability. ExitCode::mismatch if an
/// output differs. CommandError with ExitCode::usage if the file is no capture, is damaged, or of a
/// capability that the table does not know.
ExitCode verify_capture(const std::filesystem::path& path, const std::string& model,
                        const CommonOptions& common);

}  // namespace fp16lab::experiments
