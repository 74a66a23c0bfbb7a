// Where this program, or the shared library with this code, was put: its own files are beside it.
#pragma once

#include <filesystem>
#include <initializer_list>
#include <string_view>

namespace fp16lab {

/// The first of `places`, paths from the folder of this code's own file, that exists; empty: none of them.
/// Programs so find configurations and libraries in the build tree and installed, and hold no path of the
/// machine that built them.
std::filesystem::path first_beside_us(std::initializer_list<std::string_view> places);

/// A library of ours that programs load when they need it, by its file's name: beside this code, or in the
/// lib folder of its installation; empty: nowhere.
std::filesystem::path plugin_beside_us(std::string_view file);

}  // namespace fp16lab
