#include "experiments/app/command_line.hpp"
#include "experiments/app/process.hpp"

int main(int argc, char** argv) {
  fp16lab::experiments::limit_openmp_spinning(argv);
  return fp16lab::experiments::fp16lab_main(argc, argv);
}
