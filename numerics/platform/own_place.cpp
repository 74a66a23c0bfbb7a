#include "numerics/platform/own_place.hpp"

#include <dlfcn.h>

#include <string>
#include <system_error>

namespace fp16lab {
namespace {

namespace fs = std::filesystem;

fs::path own_file() {
  std::error_code unknown;
  const fs::path program = fs::read_symlink("/proc/self/exe", unknown);
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&first_beside_us), &info) == 0) return program;
  // dladdr gives a program's name as it was typed, and a library's file.
  const fs::path named = info.dli_fname;
  const bool is_program = named.filename().string().find(".so") == std::string::npos;
  return is_program && !program.empty() ? program : fs::absolute(named, unknown);  // empty: there is no /proc
}

}  // namespace

fs::path first_beside_us(std::initializer_list<std::string_view> places) {
  const fs::path folder = own_file().parent_path();
  for (const std::string_view place : places) {
    std::error_code unreadable;
    fs::path path = (folder / place).lexically_normal();
    if (fs::exists(path, unreadable)) return path;
  }
  return {};
}

fs::path plugin_beside_us(std::string_view file) {
  const std::string name(file);
  return first_beside_us({name, "fp16lab/" + name, "../lib/" + name, FP16LAB_PLUGIN_FOLDER "/" + name});
}

}  // namespace fp16lab
