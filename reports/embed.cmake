# cmake -DOUTPUT=FILE.cpp -DREPORTS=FOLDER "-DPICTURES=a.js b.js" "-DPAGE=c.js d.js" -P embed.cmake: the page's files, and draw.js,
# as string constants, so that the binary needs no files of its own at run time. Both scripts have PICTURES (of figures/); the
# page's has PAGE (of page/assets/) after it, draw.js begins with the style sheet of pictures and ends with a call.
set(content "// Made by reports/embed.cmake from reports/.\n#include \"reports/embedded.hpp\"\n\nnamespace fp16lab::reports::embedded {\n")

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

function(read_all variable folder files)
  set(all "")
  separate_arguments(files UNIX_COMMAND "${files}")
  foreach(file ${files})
    file(READ "${REPORTS}/${folder}/${file}" text)
    string(APPEND all "${text}")
  endforeach()
  set(${variable} "${all}" PARENT_SCOPE)
endfunction()

read_all(pictures figures "${PICTURES}")
read_all(picture_style figures figure.css)
read_all(page page/assets "${PAGE}")
read_all(page_style page/assets report.css)
read_all(file figures file.js)
read_all(html page/assets report.html)
append_constant(report_html "${html}")
append_constant(report_css "${picture_style}${page_style}")
append_constant(report_js "'use strict';\n(() => {\n${pictures}${page}})();\n")
append_constant(draw_js "'use strict';\n${file}const styleSheet = `${picture_style}`;\n${pictures}run(process.argv.slice(2), require('fs'));\n")

string(APPEND content "}  // namespace fp16lab::reports::embedded\n")
file(WRITE "${OUTPUT}" "${content}")
