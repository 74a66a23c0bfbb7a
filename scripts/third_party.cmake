# CMakeLists.txt of the folder that scripts/third_party.sh makes: the libraries that fp16lab links, from their sources, under
# the names by which their packages give them. For binaries that need nothing of the system but libc (scripts/wheel.sh).
file(GLOB hwy_sources CONFIGURE_DEPENDS hwy/*.cc)
add_library(hwy STATIC ${hwy_sources})
target_compile_definitions(hwy PUBLIC HWY_STATIC_DEFINE)
add_library(fmt STATIC fmt/src/format.cc fmt/src/os.cc)
target_include_directories(fmt SYSTEM PUBLIC fmt/include)
file(GLOB zlib_sources CONFIGURE_DEPENDS zlib/*.c)
add_library(zlib STATIC ${zlib_sources})
target_include_directories(zlib SYSTEM PUBLIC zlib)
target_compile_definitions(zlib PRIVATE HAVE_UNISTD_H)  # read, write and close have declarations
target_compile_options(zlib PRIVATE -w)
target_include_directories(hwy SYSTEM PUBLIC .)
add_library(third_party_headers INTERFACE)  # toml++ is headers alone by its own default
target_include_directories(third_party_headers SYSTEM INTERFACE include)
# What Boost 1.74 takes from a standard library that has it no more.
target_compile_definitions(third_party_headers INTERFACE _LIBCPP_ENABLE_CXX17_REMOVED_UNARY_BINARY_FUNCTION)

add_library(hwy::hwy ALIAS hwy)
add_library(fmt::fmt ALIAS fmt)
add_library(ZLIB::ZLIB ALIAS zlib)
foreach(name CLI11::CLI11 nlohmann_json::nlohmann_json tomlplusplus::tomlplusplus Boost::headers)
  add_library(${name} ALIAS third_party_headers)
endforeach()
