# How every target of the project is compiled.

# Bit rules: no contraction of a*b+c, no errno from sqrt, and never any fast-math.
set(fp16lab_cxx_flags -ffp-contract=off -fno-math-errno)
# Position independent code may still inline and call its own functions directly.
list(APPEND fp16lab_cxx_flags -fno-semantic-interposition)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12.2's straight-line vectoriser drops the rounding of adjacent (double)(float)x pairs at -O2 and above, without
  # any fast-math. tests/numerics/platform/compiler_test.cpp shows whether a compiler does.
  list(APPEND fp16lab_cxx_flags -fno-tree-slp-vectorize)
endif()
set(fp16lab_cuda_flags -fmad=false -ftz=false -prec-div=true -prec-sqrt=true --expt-relaxed-constexpr
    -Xcompiler=-ffp-contract=off,-fno-tree-slp-vectorize)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")  # it collects its garbage later: a tenth less time, for some 100 MB
  set(fp16lab_quick_flags --param=ggc-min-expand=400 --param=ggc-min-heapsize=4000000)
endif()
set(fp16lab_warnings -Wall -Wextra -Wconversion -Wshadow)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  list(APPEND fp16lab_warnings -Wno-restrict)  # false alarms on std::string's operator+, GCC bug 105651
endif()
if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  list(APPEND fp16lab_warnings -Wno-sign-conversion)  # Clang's -Wconversion has it, GCC's has not
endif()
if(FP16LAB_WERROR)
  list(APPEND fp16lab_warnings -Werror)
endif()

# Some 250 programs are linked: LLVM's linker takes half of the time of GNU's.
find_program(FP16LAB_LLD ld.lld)
if(FP16LAB_LLD)
  add_link_options($<$<LINK_LANGUAGE:CXX>:-fuse-ld=lld>)
endif()

function(fp16lab_compile_options target)
  target_compile_definitions(${target} PRIVATE FP16LAB_BUILDING)
  target_compile_options(${target} PRIVATE
      $<$<COMPILE_LANGUAGE:CXX>:${fp16lab_cxx_flags} ${fp16lab_quick_flags} ${fp16lab_warnings}>
      $<$<COMPILE_LANGUAGE:CUDA>:${fp16lab_cuda_flags}>)
  target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
                                              $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
endfunction()

# The sources of a target a batch at a time. A name of another source of the batch may be hidden.
function(fp16lab_compile_together target batch)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${batch})
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wno-shadow>
                         $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wshadow=local>)
endfunction()

# Sources that compute nothing often: -O1 takes a third off the time that -O3 takes to compile them.
function(fp16lab_compile_plainly target)
  target_compile_options(${target} PRIVATE $<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:-O1>)
endfunction()

# fp16lab_library(name SOURCES ... LINK ... [PUBLIC] [TOGETHER] [EXCEPT REGEX]): a folder of the project. PUBLIC: others
# link it (scripts/install.cmake), shared with BUILD_SHARED_LIBS; such a library exports what is in our
# namespace. TOGETHER: the compiler takes its sources eight at a time, in half of the time, for they include the same
# headers. So no two sources may give one name to two things, not even without linkage. EXCEPT: its sources that are taken
# one at a time all the same, which is where numbers are computed: a call could find an overload in another source's
# anonymous namespace. Then fifteen at a time: numerics has 29 of the others, which are two batches for two processors.
function(fp16lab_library name)
  cmake_parse_arguments(ARG "PUBLIC;TOGETHER" "EXCEPT" "SOURCES;LINK;LINK_PRIVATE" ${ARGN})
  if(ARG_PUBLIC)
    set(exports ${PROJECT_SOURCE_DIR}/scripts/exports.map)
    add_library(${name} ${ARG_SOURCES})
    add_library(fp16lab::${name} ALIAS ${name})
    target_link_options(${name} PRIVATE $<$<STREQUAL:$<TARGET_PROPERTY:${name},TYPE>,SHARED_LIBRARY>:LINKER:--version-script=${exports}>)
    set_property(TARGET ${name} APPEND PROPERTY LINK_DEPENDS ${exports})
    # Assertions of headers say __FILE__: no path of this machine in a library.
    target_compile_options(${name} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=>)
  else()
    add_library(${name} STATIC ${ARG_SOURCES})
  endif()
  fp16lab_compile_options(${name})
  if(ARG_TOGETHER AND NOT ARG_EXCEPT)
    fp16lab_compile_together(${name} 8)
  elseif(ARG_TOGETHER)  # warnings are those of a source alone
    list(FILTER ARG_SOURCES INCLUDE REGEX ${ARG_EXCEPT})
    set_source_files_properties(${ARG_SOURCES} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    set_target_properties(${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 15)
  endif()
  target_compile_features(${name} PUBLIC cxx_std_20)
  target_link_libraries(${name} PUBLIC ${ARG_LINK} PRIVATE ${ARG_LINK_PRIVATE})
endfunction()

# fp16lab_program(name SOURCES ... LINK ...): a binary in build/bin; the global property FP16LAB_PROGRAMS lists all.
function(fp16lab_program name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  fp16lab_compile_options(${name})
  target_link_libraries(${name} PRIVATE ${ARG_LINK})
  set_property(GLOBAL APPEND PROPERTY FP16LAB_PROGRAMS ${name})
endfunction()

# fp16lab_ptx(name architecture FILE.cu...): those files as PTX for 75, 80 or 90, which the PTX machine executes
# (tests/machines/ptx); the property FP16LAB_PTX_FOLDER of the target says below which folder, or in which library.
define_property(TARGET PROPERTY FP16LAB_PTX_FOLDER)
function(fp16lab_ptx name architecture)
  add_library(${name} OBJECT ${ARGN})
  fp16lab_compile_options(${name})
  set_target_properties(${name} PROPERTIES CUDA_STANDARD 20 CUDA_STANDARD_REQUIRED ON CUDA_PTX_COMPILATION ON
                        CUDA_ARCHITECTURES ${architecture}-virtual
                        FP16LAB_PTX_FOLDER ${CMAKE_CURRENT_BINARY_DIR}/CMakeFiles/${name}.dir)
endfunction()

# What every test is compiled with, so that one precompiled header (tests/CMakeLists.txt) fits all.
set(fp16lab_light_optimization $<$<CONFIG:Release>:-O0>)
function(fp16lab_test_options name)
  target_link_libraries(${name} PRIVATE GTest::gmock GTest::gtest_main fmt::fmt)
  target_compile_definitions(${name} PRIVATE FP16LAB_SOURCE_DIR="${PROJECT_SOURCE_DIR}"
                                             FP16LAB_BIN_DIR="${CMAKE_RUNTIME_OUTPUT_DIRECTORY}")
endfunction()

# fp16lab_test(name LABEL fast|exhaustive|gpu SOURCES ... LINK ... [TIMEOUT seconds] [CONFIGURATIONS name] [ALONE]): GoogleTest
# sources as one CTest entry, which only `ctest -C name` runs if there is a name. It runs with the source tree as
# FP16LAB_SOURCE_DIR and the program folder as FP16LAB_BIN_DIR. build/tests/NAME is a binary of its own, with the shipped
# flags, because the linker takes inline code from the test. A folder of tests that compute little themselves may name a
# program in fp16lab_light_tests: it holds them all, compiled six sources at a time without optimization, a third of the
# compiling; build/tests/NAME is then a link to it (tests/support/light_tests.cpp), and no two of its sources may give
# one name to two things. ALONE: a test of such a folder that is a program of its own all the same, since it has definitions
# of its own or replaces what others use.
function(fp16lab_test name)
  cmake_parse_arguments(ARG "ALONE" "LABEL;TIMEOUT;CONFIGURATIONS" "SOURCES;LINK;ARGS" ${ARGN})
  set(folder ${PROJECT_BINARY_DIR}/tests)
  set(program ${name})
  if(fp16lab_light_tests AND NOT ARG_ALONE)
    set(program ${fp16lab_light_tests})
    set(paths "")
    foreach(source IN LISTS ARG_SOURCES)
      cmake_path(ABSOLUTE_PATH source)
      string(APPEND paths "${source}\n")
    endforeach()
    file(WRITE ${folder}/${name}.sources "${paths}")
    file(CREATE_LINK ${program} ${folder}/${name} SYMBOLIC)
    add_custom_target(${name})
    add_dependencies(${name} ${program})
  endif()
  if(NOT TARGET ${program})
    add_executable(${program})
    fp16lab_compile_options(${program})
    fp16lab_test_options(${program})
    set_target_properties(${program} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${folder})
    if(fp16lab_light_tests)
      target_compile_options(${program} PRIVATE ${fp16lab_light_optimization})
      target_precompile_headers(${program} REUSE_FROM precompiled_gtest)
      fp16lab_compile_together(${program} 6)
    endif()
    if(NOT program STREQUAL name)
      target_sources(${program} PRIVATE ${PROJECT_SOURCE_DIR}/tests/support/light_tests.cpp)
    endif()
  endif()
  target_sources(${program} PRIVATE ${ARG_SOURCES})
  target_link_libraries(${program} PRIVATE ${ARG_LINK})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 600)
  endif()
  if(ARG_CONFIGURATIONS)
    list(PREPEND ARG_CONFIGURATIONS CONFIGURATIONS)
  endif()
  add_test(NAME ${name} COMMAND ${folder}/${name} ${ARG_ARGS} ${ARG_CONFIGURATIONS})
  set_tests_properties(${name} PROPERTIES LABELS ${ARG_LABEL} TIMEOUT ${ARG_TIMEOUT})
  if(ARG_LABEL MATCHES "gpu|exhaustive")  # without the GPU, or F16C, CTest must say Skipped, not Passed
    set_tests_properties(${name} PROPERTIES SKIP_REGULAR_EXPRESSION "\\[  SKIPPED \\]")
  endif()
endfunction()
