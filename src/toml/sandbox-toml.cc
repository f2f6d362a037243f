// Reads TOML from stdin and writes it as JSON with positions to stdout, for `sandbox policy import`.
//
// Debian's TOML libraries are C++. A program of its own keeps their run-time library out of the
// command, where it would cost a quarter of a millisecond at every start, and keeps a parser of
// foreign bytes in a process that has nothing to lose.
//
// A node is [TYPE, LINE, COLUMN, VALUE]: "m" with [[KEY, LINE, COLUMN, NODE], ...], "s" with nodes,
// "t" with a string, "p" with the text of a number, boolean or date. A failure is {"error": ...}.
#include <toml++/toml.h>

#include <jansson.h>
#include <cstdio>
#include <iterator>
#include <sstream>
#include <string>

namespace {

constexpr size_t input_max = 1 << 20;

json_t *text(const std::string &value) {
  return json_stringn(value.data(), value.size());
}

template <typename Value> std::string printed(const Value &value) {
  std::ostringstream out;
  out << value;
  return out.str();
}

json_t *make(const char *type, const toml::source_position &at, json_t *value) {
  return json_pack("[s, i, i, o]", type, static_cast<int>(at.line), static_cast<int>(at.column),
                   value);
}

json_t *convert(const toml::node &node);

json_t *convert_table(const toml::table &table) {
  json_t *entries = json_array();
  for (auto &&[key, value] : table) {
    const auto &at = key.source().begin;
    json_array_append_new(entries, json_pack("[o, i, i, o]", text(std::string(key.str())),
                                             static_cast<int>(at.line),
                                             static_cast<int>(at.column), convert(value)));
  }
  return entries;
}

json_t *convert_array(const toml::array &array) {
  json_t *items = json_array();
  for (auto &&item : array)
    json_array_append_new(items, convert(item));
  return items;
}

json_t *convert(const toml::node &node) {
  const auto &at = node.source().begin;
  if (const auto *table = node.as_table())
    return make("m", at, convert_table(*table));
  if (const auto *array = node.as_array())
    return make("s", at, convert_array(*array));
  if (const auto *string = node.as_string())
    return make("t", at, text(string->get()));
  std::string plain;
  if (const auto *boolean = node.as_boolean())
    plain = boolean->get() ? "true" : "false";
  else if (const auto *integer = node.as_integer())
    plain = std::to_string(integer->get());
  else if (const auto *real = node.as_floating_point())
    plain = printed(real->get());
  else if (const auto *date = node.as_date())
    plain = printed(date->get());
  else if (const auto *time = node.as_time())
    plain = printed(time->get());
  else if (const auto *both = node.as_date_time())
    plain = printed(both->get());
  return make("p", at, text(plain));
}

json_t *parse(const std::string &input) {
  try {
    return make("m", {1, 1}, convert_table(toml::parse(std::string_view(input))));
  } catch (const toml::parse_error &error) {
    const auto &at = error.source().begin;
    return json_pack("{s:o, s:i, s:i}", "error", text(std::string(error.description())), "line",
                     static_cast<int>(at.line), "column", static_cast<int>(at.column));
  }
}

} // namespace

int main() {
  std::string input(input_max + 1, '\0');
  input.resize(std::fread(input.data(), 1, input.size(), stdin));
  if (input.size() > input_max)
    return 1;
  json_t *result = parse(input);
  const int written = json_dumpf(result, stdout, JSON_COMPACT);
  json_decref(result);
  return written < 0 || std::fclose(stdout) != 0;
}
