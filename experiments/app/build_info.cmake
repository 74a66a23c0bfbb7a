# Writes OUTPUT, a header with the git hash of SOURCE_DIR and the compiler FLAGS, and touches it only if it changed.
# Where the sources of the program differ from the commit, the hash is "HASH-dirty-DIGEST": the digest is of the differences,
# and of new files among the sources, so that builds of different changes have different names. Tests and texts are no part
# of the program.
set(sources numerics analysis engine experiments reports CMakeLists.txt CMakePresets.json
            ":(exclude)*.md" ":(exclude)experiments/configs" ":(exclude)reports/findings")
# Sources that were unpacked (scripts/wheel.sh) have the hash in the file COMMIT.
execute_process(COMMAND git -C ${SOURCE_DIR} rev-parse --short=12 HEAD
                OUTPUT_VARIABLE hash OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
if(EXISTS ${SOURCE_DIR}/COMMIT)
  file(STRINGS ${SOURCE_DIR}/COMMIT hash LIMIT_COUNT 1)
elseif(failed)
  set(hash "unknown")
else()
  execute_process(COMMAND git -C ${SOURCE_DIR} diff --no-ext-diff --no-textconv --no-color --binary HEAD -- ${sources}
                  OUTPUT_VARIABLE changes ERROR_QUIET)
  set(list_new git -C ${SOURCE_DIR} -c core.quotePath=off ls-files --others --exclude-standard -- ${sources})
  execute_process(COMMAND ${list_new} OUTPUT_VARIABLE new_files ERROR_QUIET)
  execute_process(COMMAND ${list_new} COMMAND git hash-object --stdin-paths
                  WORKING_DIRECTORY ${SOURCE_DIR} OUTPUT_VARIABLE new_digests ERROR_QUIET)
  string(APPEND changes "${new_files}${new_digests}")
  if(changes)
    string(SHA256 digest "${changes}")
    string(SUBSTRING ${digest} 0 8 digest)
    string(APPEND hash "-dirty-${digest}")
  endif()
endif()
set(text "#pragma once\n#define FP16LAB_GIT_HASH \"${hash}\"\n#define FP16LAB_CXX_FLAGS \"${FLAGS}\"\n")
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT "${text}" @ONLY)  # touches nothing that stays as it is
