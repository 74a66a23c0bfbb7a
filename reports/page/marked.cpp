#include "reports/page/marked.hpp"

#include "numerics/text/text.hpp"

namespace fp16lab::reports {
namespace {

std::string mark(char kind, std::string_view marked, std::string_view tip = {}) {
  std::string text = "\x02";
  text += kind;
  text += marked;
  if (!tip.empty()) text.append("\x1d").append(plain(tip));
  return text + "\x03";
}

}  // namespace

std::string plain(std::string_view text) {
  std::string out;
  for (;;) {
    const std::size_t end = text.find_first_of("\t\n");
    out += printable(text.substr(0, end));
    if (end == std::string_view::npos) return out;
    out += text[end];
    text.remove_prefix(end + 1);
  }
}

std::string strong(std::string_view marked) { return mark('b', marked); }
std::string small(std::string_view marked) { return mark('s', marked); }
std::string soft(std::string_view marked) { return mark('o', marked); }
std::string code(std::string_view marked) { return mark('c', marked); }
std::string name_mark(std::string_view marked, std::string_view tip) { return mark('n', marked, tip); }
std::string explained(std::string_view marked, std::string_view tip) { return mark('t', marked, tip); }

}  // namespace fp16lab::reports
