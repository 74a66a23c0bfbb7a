// The files and folders that a command was given, patterns expanded.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace fp16lab::experiments {

/// Each argument is a path that exists, or a pattern of *, ? and [...] (as glob(7); quoted, so that the shell
/// leaves it alone), which stands for the paths it matches in alphabetical order. A path that comes twice is
/// kept once, at its first place. CommandError(usage) for a path that is not there and a pattern without a
/// match.
std::vector<std::filesystem::path> expand_inputs(std::span<const std::filesystem::path> arguments);

}  // namespace fp16lab::experiments
