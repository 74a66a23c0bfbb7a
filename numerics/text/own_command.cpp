#include "numerics/text/own_command.hpp"

#include "numerics/text/text.hpp"

namespace fp16lab {
namespace {

std::string& own_program() {
  static std::string program = "fp16lab";
  return program;
}

}  // namespace

void set_own_program(std::string_view called) {
  if (!called.empty()) own_program() = called;
}

std::string own_command(std::vector<std::string> words) {
  words.insert(words.begin(), own_program());
  return shell_line(words);
}

}  // namespace fp16lab
