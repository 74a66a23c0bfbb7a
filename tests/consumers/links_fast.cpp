// A program that is linked with -Ofast: GCC 12 puts code into it that lets the process flush subnormals.
#include <cstdio>

double unrelated(int n);

namespace {
struct Before {
  Before() { std::fprintf(stderr, "unrelated: %g\n", unrelated(3)); }
} before;
}  // namespace
