# cmake --install: libraries, headers, programs, configurations, and the package file that find_package(fp16lab) reads.
include(CMakePackageConfigHelpers)
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/fp16lab)

# A library of a minor version fits programs of that minor version.
set(soversion ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
foreach(library IN LISTS fp16lab_libraries)
  set_target_properties(${library} PROPERTIES OUTPUT_NAME fp16lab_${library} VERSION ${PROJECT_VERSION}
                        SOVERSION ${soversion} INSTALL_RPATH "$ORIGIN")
endforeach()
set_target_properties(fp16lab_c PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${soversion} INSTALL_RPATH "$ORIGIN"
                      EXPORT_NAME c)
add_library(fp16lab::c ALIAS fp16lab_c)
install(TARGETS ${fp16lab_libraries} fp16lab_c EXPORT fp16lab_targets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT fp16lab_targets NAMESPACE fp16lab:: DESTINATION ${package_folder})

# What a consumer has to find: static libraries need everything that ours link.
get_target_property(library_type numerics TYPE)
configure_package_config_file(scripts/fp16lab-config.cmake.in ${PROJECT_BINARY_DIR}/fp16lab-config.cmake
                              INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/fp16lab-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/fp16lab-config.cmake ${PROJECT_BINARY_DIR}/fp16lab-config-version.cmake
        DESTINATION ${package_folder})

file(RELATIVE_PATH to_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
if(library_type STREQUAL "STATIC_LIBRARY")
  set(static_needs "-lfmt -lhwy -lz -lpthread -ldl")
  if(NOT FP16LAB_NUMERICS_ONLY)
    string(APPEND static_needs " -ltomlplusplus")
  endif()
endif()
list(TRANSFORM fp16lab_libraries PREPEND "-lfp16lab_" OUTPUT_VARIABLE library_options)
list(REVERSE library_options)
list(JOIN library_options " " library_options)
foreach(package fp16lab fp16lab-c)
  configure_file(scripts/${package}.pc.in ${PROJECT_BINARY_DIR}/${package}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${package}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endforeach()

# Headers include each other as "numerics/...", which would be anybody's folder: installed they say "fp16lab/numerics/...".
install(CODE "set(fp16lab_headers \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_INCLUDEDIR}/fp16lab\")
set(fp16lab_sources \"${PROJECT_SOURCE_DIR}\")
set(fp16lab_libraries \"${fp16lab_libraries}\")")
install(FILES numerics/c_interface/fp16lab.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(SCRIPT ${PROJECT_SOURCE_DIR}/scripts/install_headers.cmake)

if(FP16LAB_NUMERICS_ONLY)
  return()
endif()
get_property(programs GLOBAL PROPERTY FP16LAB_PROGRAMS)
list(FILTER programs EXCLUDE REGEX "^bench_")
set_target_properties(${programs} PROPERTIES INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
install(TARGETS ${programs} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
get_property(questions GLOBAL PROPERTY FP16LAB_QUESTIONS)
list(TRANSFORM questions PREPEND ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/)
install(PROGRAMS ${questions} DESTINATION ${CMAKE_INSTALL_BINDIR})  # links
# What those files have to repeat, because their readers read nothing else.
function(fp16lab_repeats file line)
  file(READ ${file} text)
  string(FIND "${text}" "\n${line}\n" place)
  if(place EQUAL -1)
    message(FATAL_ERROR "${file} has no line '${line}', as CMakeLists.txt says")
  endif()
endfunction()
fp16lab_repeats(CITATION.cff "version: ${PROJECT_VERSION}")
fp16lab_repeats(CITATION.cff "license: ${fp16lab_license}")
fp16lab_repeats(python/pyproject.toml "version = \"${PROJECT_VERSION}\"")
fp16lab_repeats(python/pyproject.toml "license = \"${fp16lab_license}\"")
install(FILES README.md CHANGELOG.md CITATION.cff LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
# Debian expects these as "copyright": ours, and those of code in our binaries.
file(READ NOTICE notice)
file(READ THIRD_PARTY_NOTICES third_party_notices)
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/copyright @ONLY CONTENT
"@notice@
License of fp16lab: @fp16lab_license@. Its text is the file LICENSE beside this one, on Debian also
/usr/share/common-licenses/Apache-2.0. What follows is THIRD_PARTY_NOTICES.

@third_party_notices@")
install(FILES ${PROJECT_BINARY_DIR}/copyright DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY experiments/examples/ DESTINATION ${CMAKE_INSTALL_DATADIR}/fp16lab/examples)
install(DIRECTORY experiments/configs/ DESTINATION ${CMAKE_INSTALL_DATADIR}/fp16lab/configs FILES_MATCHING PATTERN *.toml)
if(TARGET fp16lab_cuda)
  install(TARGETS fp16lab_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/fp16lab)
endif()
foreach(kind IN LISTS FP16LAB_MPI_KINDS)
  install(TARGETS fp16lab_mpi_${kind} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/fp16lab)
endforeach()

# Completion, where shells look for it by the name of the program. Debian's zsh has a folder of its own for packages.
set(completion_folder ${PROJECT_BINARY_DIR}/completion)
foreach(script bash:fp16lab zsh:_fp16lab fish:fp16lab.fish)
  string(REGEX MATCH "^([a-z]+):(.*)$" found ${script})
  add_custom_command(OUTPUT ${completion_folder}/${CMAKE_MATCH_2}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${completion_folder}
    COMMAND fp16lab completion ${CMAKE_MATCH_1} > ${completion_folder}/${CMAKE_MATCH_2}
    DEPENDS fp16lab VERBATIM)
  list(APPEND completion_scripts ${completion_folder}/${CMAKE_MATCH_2})
endforeach()
add_custom_target(completion ALL DEPENDS ${completion_scripts})
install(FILES ${completion_folder}/fp16lab DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install(FILES ${completion_folder}/fp16lab.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
install(CODE "set(folder site-functions)
if(CMAKE_INSTALL_PREFIX MATCHES \"/usr$\")
  set(folder vendor-completions)
endif()
file(INSTALL \"${completion_folder}/_fp16lab\" DESTINATION \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATADIR}/zsh/\${folder}\")")

# cmake --preset deb && cmake --build --preset deb: a package for the Debian that builds it.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME fp16lab)
set(CPACK_PACKAGE_VENDOR "The fp16lab authors")
set(CPACK_PACKAGE_CONTACT "The fp16lab authors <authors@fp16lab.invalid>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION
"Trains one network twice, once in FP32 and once with every FP16 rounding
and every tensor-core accumulation emulated bit by bit on the CPU, and shows
where gradients underflow, what each loss-scale policy does about it, and
whether training still converges. With the library for C++ and C, and
completion for bash, zsh and fish.")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "nodejs, librsvg2-bin, fonts-dejavu-core, dataset-fashion-mnist")
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "bible-kjv")
set(CPACK_STRIP_FILES ON)
if(PROJECT_IS_TOP_LEVEL)
  include(CPack)
endif()

# The reference of those headers, where doxygen is.
find_program(FP16LAB_DOXYGEN doxygen)
if(FP16LAB_DOXYGEN)
  configure_file(scripts/Doxyfile.in ${PROJECT_BINARY_DIR}/docs/Doxyfile @ONLY)
  add_custom_target(docs
    COMMAND ${CMAKE_COMMAND} -E rm -rf ${PROJECT_BINARY_DIR}/docs/include ${PROJECT_BINARY_DIR}/docs/html
    COMMAND ${CMAKE_COMMAND} -Dfp16lab_sources=${PROJECT_SOURCE_DIR} "-Dfp16lab_libraries=${fp16lab_libraries}" -Dfp16lab_headers=${PROJECT_BINARY_DIR}/docs/include/fp16lab
            -P ${PROJECT_SOURCE_DIR}/scripts/install_headers.cmake
    COMMAND ${FP16LAB_DOXYGEN} ${PROJECT_BINARY_DIR}/docs/Doxyfile
    VERBATIM)
else()
  add_custom_target(docs COMMAND ${CMAKE_COMMAND} -E echo "docs: no doxygen here; install it (Debian: doxygen) and configure again"
                         COMMAND ${CMAKE_COMMAND} -E false VERBATIM)
endif()
