# Every dependency, once. The Debian packages that provide them are listed in scripts/packages.txt.
find_package(Threads REQUIRED)
if(FP16LAB_THIRD_PARTY)
  enable_language(C)  # zlib
  add_subdirectory(${FP16LAB_THIRD_PARTY} third_party EXCLUDE_FROM_ALL)
else()
  find_package(hwy CONFIG REQUIRED)
  find_package(fmt CONFIG REQUIRED)
  find_package(ZLIB REQUIRED)
  find_package(nlohmann_json CONFIG REQUIRED)
  if(NOT FP16LAB_NUMERICS_ONLY)
    find_package(CLI11 CONFIG REQUIRED)
    find_package(tomlplusplus CONFIG REQUIRED)
  endif()
  find_package(Boost 1.74 CONFIG REQUIRED)  # headers: exact rationals
endif()

# Sets FP16LAB_HAVE_TESTS. AUTO builds the tests where all that they need is there; ON insists; OFF does not look.
set(FP16LAB_HAVE_TESTS FALSE)
if(FP16LAB_NUMERICS_ONLY)
  return()
endif()

# Only tests and benchmarks use these.
find_package(OpenMP QUIET COMPONENTS CXX)  # sweeps, and Thrust
find_package(benchmark CONFIG QUIET)       # benchmarks are built where it and BLAS are there
find_package(BLAS QUIET)                   # OpenBLAS, their yardstick

if(NOT FP16LAB_TESTS MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "FP16LAB_TESTS=${FP16LAB_TESTS}: must be AUTO, ON or OFF")
endif()
if(NOT FP16LAB_TESTS STREQUAL "OFF")
  find_package(GTest CONFIG QUIET)
  find_library(FP16LAB_MPFR mpfr)  # an oracle of arithmetic and of the elementary functions
  find_program(FP16LAB_CRAM NAMES cram3 cram)  # runs the transcripts
  set(missing)
  foreach(need GTest::gmock OpenMP::OpenMP_CXX benchmark::benchmark BLAS::BLAS)
    if(NOT TARGET ${need})
      list(APPEND missing ${need})
    endif()
  endforeach()
  if(NOT FP16LAB_MPFR)
    list(APPEND missing mpfr)
  endif()
  if(NOT FP16LAB_CRAM)
    list(APPEND missing cram)
  endif()
  list(JOIN missing ", " missing)
  if(NOT missing)
    set(FP16LAB_HAVE_TESTS TRUE)
  elseif(FP16LAB_TESTS STREQUAL "ON")
    message(FATAL_ERROR "FP16LAB_TESTS=ON, but these are missing: ${missing}. On Debian scripts/setup.sh --tests installs them.")
  else()
    message(STATUS "fp16lab: no tests, these are missing: ${missing} (Debian: scripts/setup.sh --tests)")
  endif()
endif()
