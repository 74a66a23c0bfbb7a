// Loss scales as people read them.
#pragma once

#include <string>

namespace fp16lab {

/// "2^24" of a power of two, else the shortest decimal of the same value: "1.5". In tables, messages and help;
/// files of machines (CSV, JSON, TOML) have numbers.
std::string scale_text(double scale);

}  // namespace fp16lab
