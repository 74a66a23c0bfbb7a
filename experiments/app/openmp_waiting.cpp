#include "experiments/app/openmp_waiting.hpp"

#include <unistd.h>

#include <cstdlib>

namespace fp16lab::experiments {

void limit_openmp_spinning(char** argv) {
  if (std::getenv("OMP_WAIT_POLICY") != nullptr || std::getenv("GOMP_SPINCOUNT") != nullptr) return;
  setenv("GOMP_SPINCOUNT", "1000", 1);
  execv("/proc/self/exe", argv);  // returns only where it failed; then the default waiting will do
}

}  // namespace fp16lab::experiments
