// Commands of this program in its messages, so that they can be pasted into the shell that called it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fp16lab {

/// Takes over how a shell calls fp16lab: argv[0]. An empty text changes nothing. Call it before there are threads.
void set_own_program(std::string_view called);

/// "build/bin/fp16lab hist results/mine", as shell_line() has it: `words` after the program as it was called;
/// after "fp16lab" where a shell found it on PATH, and in other programs, such as Python.
std::string own_command(std::vector<std::string> words);

}  // namespace fp16lab
