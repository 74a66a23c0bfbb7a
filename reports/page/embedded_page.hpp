// The files of reports/page/, compiled in (see embed.cmake).
#pragma once

#include <string_view>

namespace fp16lab::reports::page {

extern const std::string_view report_html;    ///< the frame, with @SLOTS@
extern const std::string_view explorer_html;  ///< controls and places of the gradient explorer
extern const std::string_view report_css;
extern const std::string_view report_js;  ///< all scripts as one

}  // namespace fp16lab::reports::page
