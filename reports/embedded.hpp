// The files of reports/page/assets/ and reports/figures/, compiled in (see embed.cmake).
#pragma once

#include <string_view>

namespace fp16lab::reports::embedded {

extern const std::string_view report_html;  ///< the frame, with @SLOTS@
extern const std::string_view report_css;
extern const std::string_view report_js;  ///< all scripts as one
extern const std::string_view draw_js;    ///< what draws figures as files, for node

}  // namespace fp16lab::reports::embedded
