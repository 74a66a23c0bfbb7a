# Every dependency, once. The Debian packages that provide them are listed in scripts/packages.txt.
find_package(Threads REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS CXX)  # sweeps and Thrust, in tests and benchmarks alone
find_package(hwy CONFIG REQUIRED)
find_package(fmt CONFIG REQUIRED)
find_package(ZLIB REQUIRED)
find_package(CLI11 CONFIG REQUIRED)
find_package(tomlplusplus CONFIG REQUIRED)
find_package(nlohmann_json CONFIG REQUIRED)
find_package(Boost 1.74 REQUIRED COMPONENTS context)  # fibers, for CUDA kernels on the CPU; headers: exact rationals
find_package(benchmark CONFIG)  # benchmarks are built where it is there
find_package(BLAS)              # OpenBLAS, the yardstick of the benchmarks

if(FP16LAB_TESTS)
  find_package(GTest CONFIG REQUIRED)
  find_library(FP16LAB_MPFR mpfr REQUIRED)  # an oracle of arithmetic and of the elementary functions
endif()
