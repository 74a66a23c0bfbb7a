// PTX as texts, from files or out of the library that carries it.
#pragma once

#include <map>
#include <string>

namespace fp16lab::engine::ptx {

/// Texts by name.
using Texts = std::map<std::string, std::string>;

/// `places` are separated by ':': folders, of which every *.ptx below is taken, and libraries or objects that
/// nvcc made with --no-compress, whose texts are called FILE.0, FILE.1, ... std::invalid_argument where a
/// place has none.
Texts ptx_texts(const std::string& places);

}  // namespace fp16lab::engine::ptx
