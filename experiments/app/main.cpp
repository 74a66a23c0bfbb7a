#include "experiments/app/command_line.hpp"

int main(int argc, char** argv) { return fp16lab::experiments::fp16lab_main(argc, argv); }
