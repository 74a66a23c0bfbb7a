// fp16lab mma --verify FILE: a capture of a GPU, word by word against the table of tensor cores; and
// fp16lab mma --capture cpu: what this processor's own instruction makes of random words.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

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

/// The first line of what capture_processor writes begins so.
inline constexpr std::string_view processor_capture_heading = "# vdpbf16ps of ";

/// The text of a file of lines, which begins with a comment or a line with tabs; nothing where it begins
/// otherwise, as the capture of a GPU does. CommandError with ExitCode::usage where it cannot be read.
std::optional<std::string> captured_lines(const std::filesystem::path& path);

/// Lines of a-words, b-words, c-word and the d-word of this processor's vdpbf16ps on the standard output, as
/// fp16lab mma --verify FILE reads them: words of any kind, and of exponents at which
/// orders, roundings and flushed subnormals show. The same words everywhere. CommandError with
/// ExitCode::unavailable where the processor has no AVX512_BF16.
ExitCode capture_processor();

}  // namespace fp16lab::experiments
