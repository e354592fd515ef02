// csrc/codegen/writer.cpp: fills placeholders and indents lines.
#include "csrc/codegen/writer.h"

#include <string_view>

#include "csrc/codegen/expr.h"
#include "csrc/support/error.h"

namespace ocl::codegen {
namespace {

template <typename Args>
std::string fill(const char* text, const Args& args) {
  std::string result;
  auto next = args.begin();
  for (const char* at = text; *at; ++at) {
    if (*at != '$') {
      result += *at;
      continue;
    }
    const char kind = *++at;
    if (kind == '$') {
      result += '$';
      continue;
    }
    OCL_ASSERT(next != args.end(), std::string("too few arguments for '") + text + "'");
    const Writer::Arg& arg = *next++;
    switch (kind) {
      case 's':
        result += std::get<std::string>(arg);
        break;
      case 'd':
        result += std::to_string(std::get<int64_t>(arg));
        break;
      case 't':
        result += type_name(std::get<Type>(arg));
        break;
      case 'c':
        result += literal(std::get<Literal>(arg));
        break;
      default:
        fail(ErrorKind::kInternal, std::string("unknown placeholder in '") + text + "'");
    }
  }
  OCL_ASSERT(next == args.end(), std::string("too many arguments for '") + text + "'");
  return result;
}

}  // namespace

std::string format(const char* text, const std::vector<Writer::Arg>& args) { return fill(text, args); }

void Writer::write(const char* format, std::initializer_list<Arg> args) { lines_.emplace_back(depth_, fill(format, args)); }

void Writer::close(const char* tail) {
  --depth_;
  lines_.emplace_back(depth_, std::string("}") + tail);
  if (std::string_view(tail).ends_with("{")) ++depth_;
}

void Writer::append(const Writer& other) {
  for (const auto& [depth, text] : other.lines_) lines_.emplace_back(depth_ + depth, text);
}

std::string Writer::str(int depth) const {
  std::string result;
  for (const auto& [own, text] : lines_)
    result += (text.empty() || text[0] == '#' ? "" : std::string(static_cast<size_t>(2 * (own + depth)), ' ')) + text + "\n";
  return result;
}

size_t Writer::length() const {
  size_t total = 0;
  for (const auto& [depth, text] : lines_) total += text.size();
  return total;
}

}  // namespace ocl::codegen
