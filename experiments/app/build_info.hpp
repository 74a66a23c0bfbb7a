// What this binary was made of, and what machine it runs on: for manifests.
#pragma once

#include <string>

namespace fp16lab::experiments {

/// The commit of the sources when it was built. Where the program's own had changed since that commit,
/// "-dirty-" and eight digits of a digest of the changes are appended, so that two such builds differ.
/// "unknown" outside git.
std::string git_hash();
std::string compiler_name();  ///< "GCC 12.2.0"
/// What `program` answers to --version, without the end of the line: "exp_underflow 0.3.0 (0123456789ab, GCC
/// 12.2.0)". The version is that of project() in the top CMakeLists.txt.
std::string version_line(const std::string& program);
std::string compiler_flags();
std::string build_name();  ///< of this program, as fp16lab::build_name has it
std::string cpu_name();    ///< the model that the operating system names
int default_threads();     ///< processors that this process may use; 1 of a rank

}  // namespace fp16lab::experiments
