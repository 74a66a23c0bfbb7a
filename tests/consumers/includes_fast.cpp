// Compiled with -Ofast, which must be refused: C++ headers of fp16lab are arithmetic.
#include "fp16lab/numerics/convert/convert.hpp"

int main() {}
