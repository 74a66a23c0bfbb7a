# Writes OUTPUT, a header with a digest of COMPILER and the headers below SOURCE_DIR whose classes and scalar programs a
# program and libfp16lab_cuda.so both have, and touches it only if it changed.
file(GLOB headers ${SOURCE_DIR}/engine/backend/*.hpp ${SOURCE_DIR}/engine/backend/cuda/*.hpp
     ${SOURCE_DIR}/engine/backend/cuda/runtime/devices.hpp ${SOURCE_DIR}/engine/backend/cuda/runtime/plugin.hpp
     ${SOURCE_DIR}/engine/amp/*.hpp ${SOURCE_DIR}/engine/amp/policies/*.hpp ${SOURCE_DIR}/engine/amp/scalers/*.hpp
     ${SOURCE_DIR}/engine/optim/*.hpp ${SOURCE_DIR}/engine/train/*_programs.hpp
     ${SOURCE_DIR}/engine/tensor/*.hpp ${SOURCE_DIR}/numerics/formats/*.hpp ${SOURCE_DIR}/numerics/histogram/*.hpp
     ${SOURCE_DIR}/numerics/random/*.hpp ${SOURCE_DIR}/numerics/tensor_core/*.hpp)
set(text "${COMPILER}")
foreach(header IN LISTS headers)
  file(SHA256 ${header} digest)
  string(APPEND text "${digest}")
endforeach()
string(SHA256 digest "${text}")
string(SUBSTRING ${digest} 0 16 digest)
set(text "#pragma once\n#define FP16LAB_SEAM \"${digest}\"\n")
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT "${text}" @ONLY)  # touches nothing that stays as it is
