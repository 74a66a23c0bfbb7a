# cmake -DOUTPUT=FILE.cpp -DPAGE=FOLDER -DSCRIPTS="a.js b.js" -P embed.cmake: the page's files as string constants, so that the
# binary needs no files of its own at run time. The scripts become one, in this order, in a scope of its own.
set(content "// Made by reports/page/embed.cmake from reports/page/.\n#include \"reports/page/embedded_page.hpp\"\n\nnamespace fp16lab::reports::page {\n")

function(append_constant name text)
  if(text MATCHES "\\)fp16lab_page\"")
    message(FATAL_ERROR "${name} holds the delimiter of the raw string that it becomes")
  endif()
  # Compilers may refuse string literals above 64 KiB; adjacent ones are joined.
  string(LENGTH "${text}" length)
  set(literal "")
  set(at 0)
  while(at LESS length)
    string(SUBSTRING "${text}" ${at} 12000 piece)
    string(APPEND literal "\n    R\"fp16lab_page(${piece})fp16lab_page\"")
    math(EXPR at "${at} + 12000")
  endwhile()
  set(content "${content}const std::string_view ${name} =${literal};\n" PARENT_SCOPE)
endfunction()

foreach(file report.html explorer.html report.css)
  file(READ "${PAGE}/${file}" text)
  string(REPLACE "." "_" name "${file}")
  append_constant(${name} "${text}")
endforeach()

set(script "'use strict';\n(() => {\n")
separate_arguments(scripts UNIX_COMMAND "${SCRIPTS}")
foreach(file ${scripts})
  file(READ "${PAGE}/${file}" text)
  string(APPEND script "${text}")
endforeach()
append_constant(report_js "${script}})();\n")

string(APPEND content "}  // namespace fp16lab::reports::page\n")
file(WRITE "${OUTPUT}" "${content}")
