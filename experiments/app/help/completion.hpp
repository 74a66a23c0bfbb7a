// Completion in bash, zsh and fish. Each shell has a short script that asks this program, with the words
// typed so far, what could come next: so every shell offers the same, and what this build knows.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "experiments/app/arguments.hpp"

namespace fp16lab::experiments {

inline constexpr const char* completion_shells[] = {"bash", "zsh", "fish"};

/// The script of a shell, which is one of completion_shells.
std::string completion_script(std::string_view shell);

/// What could stand in the place of the last of `words` (behind the program's name; the last may be empty):
///   CANDIDATE [TAB what it is]     as a whole word, beginning with what is there of it
///   :paths                         the candidates are paths: shells quote them and add a slash to folders
///   :open                          no blank behind the candidates, because there is more to come
std::string completion_answer(const CLI::App& program, const Offers& offers,
                              const std::vector<std::string>& words);

}  // namespace fp16lab::experiments
