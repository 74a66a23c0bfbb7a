// What this binary was made of, and what machine it runs on: for manifests.
#pragma once

#include <string>

namespace fp16lab::experiments {

std::string git_hash();       ///< of the sources when it was built, "-dirty" appended; "unknown" outside git
std::string compiler_name();  ///< "GCC 12.2.0"
std::string compiler_flags();
std::string cpu_name();  ///< the model that the operating system names
int default_threads();   ///< processors that this process may use

}  // namespace fp16lab::experiments
