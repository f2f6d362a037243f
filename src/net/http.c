/* HTTP/1 messages; see http.h. RFC 9112. */
#include "net/http.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

#define CHUNK_LINE_LIMIT 4096

static bool is_token_character(char c) {
  return isalnum((unsigned char)c) || (c && strchr("!#$%&'*+-.^_`|~", c));
}

static bool is_token(const char *text, size_t length) {
  for (size_t i = 0; i < length; i++) {
    if (!is_token_character(text[i]))
      return false;
  }
  return length > 0;
}

/* ---- fields ---- */

/* Every line of a head was checked to end in CR LF, and the head in an empty one. */
bool http_next_field(const char **at, struct http_field *ret_field) {
  const char *line = *at, *end = strchr(line, '\r');
  if (end == line)
    return false;
  const char *colon = memchr(line, ':', (size_t)(end - line));
  if (!colon)
    return false;
  const char *value = colon + 1, *value_end = end;
  while (value < value_end && (*value == ' ' || *value == '\t'))
    value++;
  while (value_end > value && (value_end[-1] == ' ' || value_end[-1] == '\t'))
    value_end--;
  *ret_field =
      (struct http_field){line, value, (size_t)(colon - line), (size_t)(value_end - value)};
  *at = end + 2;
  return true;
}

bool http_field_is(const struct http_field *field, const char *name) {
  return field->name_length == strlen(name) &&
         strncasecmp(field->name, name, field->name_length) == 0;
}

/* A word of a list of words: "keep-alive, Upgrade" */
static bool has_word(const struct http_field *field, const char *word) {
  size_t length = strlen(word);
  for (size_t i = 0; i + length <= field->value_length; i++) {
    bool starts = i == 0 || strchr(", \t", field->value[i - 1]);
    bool ends = i + length == field->value_length || strchr(", \t", field->value[i + length]);
    if (starts && ends && strncasecmp(field->value + i, word, length) == 0)
      return true;
  }
  return false;
}

/* Printable lines that end in CR LF; no line that continues the one before. */
static bool lines_are_clean(const char *bytes, size_t length) {
  for (size_t i = 0; i < length; i++) {
    unsigned char c = (unsigned char)bytes[i];
    if (c == '\r' && (i + 1 >= length || bytes[i + 1] != '\n'))
      return false;
    if (c == '\n' && (i == 0 || bytes[i - 1] != '\r'))
      return false;
    if (c == '\n' && i + 1 < length && (bytes[i + 1] == ' ' || bytes[i + 1] == '\t'))
      return false;
    if ((c < 0x20 && c != '\r' && c != '\n' && c != '\t') || c == 0x7f)
      return false;
  }
  return true;
}

static bool take_length(const struct http_field *field, struct http_body *body) {
  if (body->kind != BODY_NONE || field->value_length == 0 || field->value_length > 18)
    return false;
  body->kind = BODY_LENGTH;
  for (size_t i = 0; i < field->value_length; i++) {
    if (!isdigit((unsigned char)field->value[i]))
      return false;
    body->left = body->left * 10 + (uint64_t)(field->value[i] - '0');
  }
  return true;
}

static bool take_field(const struct http_field *field, struct http_head *head) {
  if (!is_token(field->name, field->name_length))
    return false; /* also "Name :", which some take for "Name" */
  if (http_field_is(field, "content-length"))
    return take_length(field, &head->body);
  if (http_field_is(field, "transfer-encoding")) {
    bool plain =
        head->body.kind == BODY_NONE && field->value_length == 7 && has_word(field, "chunked");
    head->body.kind = BODY_CHUNKED;
    return plain;
  }
  if (http_field_is(field, "connection") || http_field_is(field, "proxy-connection")) {
    head->close |= has_word(field, "close");
    head->upgrade |= has_word(field, "upgrade");
    if (head->minor == 0 && has_word(field, "keep-alive"))
      head->close = false;
  }
  return true;
}

static bool take_fields(struct http_head *head) {
  const char *at = head->fields;
  struct http_field field;
  head->close = head->minor == 0;
  while (http_next_field(&at, &field)) {
    if (!take_field(&field, head))
      return false;
  }
  return *at == '\r'; /* all lines were fields */
}

/* Nothing that may still come makes a head of what is wrong already, as lines that end in LF alone
 * are. */
static enum http_result judge_beginning(const char *bytes, size_t length) {
  size_t open = length > 0 && bytes[length - 1] == '\r';
  return lines_are_clean(bytes, length - open) ? HTTP_MORE : HTTP_WRONG;
}

static enum http_result split_head(const char *bytes, size_t length, struct http_head *ret) {
  const char *end = memmem(bytes, length, "\r\n\r\n", 4);
  if (!end)
    return judge_beginning(bytes, length);
  *ret = (struct http_head){.length = (size_t)(end - bytes) + 4, .first = bytes};
  if (!lines_are_clean(bytes, ret->length))
    return HTTP_WRONG;
  ret->first_end = memmem(bytes, ret->length, "\r\n", 2);
  ret->fields = ret->first_end + 2;
  return HTTP_OK;
}

static bool take_version(const char *text, size_t length, unsigned *ret_minor) {
  if (length != 8 || strncmp(text, "HTTP/1.", 7) != 0 || (text[7] != '0' && text[7] != '1'))
    return false;
  *ret_minor = (unsigned)(text[7] - '0');
  return true;
}

/* ---- messages ---- */

enum http_result http_request_parse(const char *bytes, size_t length, struct http_request *ret) {
  struct http_request request = {0};
  enum http_result result = split_head(bytes, length, &request.head);
  if (result != HTTP_OK)
    return result;
  const char *end = request.head.first_end;
  const char *space = memchr(bytes, ' ', (size_t)(end - bytes));
  const char *last = space ? memchr(space + 1, ' ', (size_t)(end - space) - 1) : NULL;
  if (!last || !take_version(last + 1, (size_t)(end - last) - 1, &request.head.minor))
    return HTTP_WRONG;
  request.method = bytes;
  request.method_length = (size_t)(space - bytes);
  request.target = space + 1;
  request.target_length = (size_t)(last - space) - 1;
  if (!is_token(request.method, request.method_length) || request.target_length == 0 ||
      !take_fields(&request.head))
    return HTTP_WRONG;
  *ret = request;
  return HTTP_OK;
}

enum http_result http_response_parse(const char *bytes, size_t length, bool no_body,
                                     struct http_response *ret) {
  struct http_response response = {0};
  enum http_result result = split_head(bytes, length, &response.head);
  if (result != HTTP_OK)
    return result;
  size_t first = (size_t)(response.head.first_end - bytes);
  if (first < 12 || bytes[8] != ' ' || !take_version(bytes, 8, &response.head.minor))
    return HTTP_WRONG;
  for (size_t i = 9; i < 12; i++) {
    if (!isdigit((unsigned char)bytes[i]))
      return HTTP_WRONG;
    response.status = response.status * 10 + (unsigned)(bytes[i] - '0');
  }
  if (!take_fields(&response.head))
    return HTTP_WRONG;
  bool informs = response.status < 200 || response.status == 204 || response.status == 304;
  if (no_body || informs)
    response.head.body = (struct http_body){.kind = BODY_NONE};
  else if (response.head.body.kind == BODY_NONE)
    response.head.body.kind = BODY_TO_END;
  *ret = response;
  return HTTP_OK;
}

/* ---- bodies ---- */

bool http_body_is_over(const struct http_body *body) {
  return body->kind == BODY_NONE || (body->kind == BODY_LENGTH && body->left == 0) ||
         (body->kind == BODY_CHUNKED && body->chunk == CHUNK_DONE);
}

static int hex_value(char c) {
  if (c >= '0' && c <= '9')
    return c - '0';
  c |= 0x20;
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool end_chunk_line(struct http_body *body) {
  switch (body->chunk) {
  case CHUNK_SIZE:
  case CHUNK_EXTENSION:
    body->chunk = body->left > 0 ? CHUNK_DATA : CHUNK_TRAILER;
    break;
  case CHUNK_DATA_END:
    if (body->line_size > 0)
      return false;
    body->chunk = CHUNK_SIZE;
    body->left = 0;
    break;
  default:
    if (body->line_size == 0)
      body->chunk = CHUNK_DONE;
  }
  body->line_size = 0;
  return true;
}

/* One character of a line between chunks. */
static bool take_chunk_character(struct http_body *body, char c) {
  if (body->carriage) {
    body->carriage = false;
    return c == '\n' && end_chunk_line(body);
  }
  if (c == '\r') {
    body->carriage = true;
    return body->chunk != CHUNK_SIZE || body->line_size > 0;
  }
  if (c == '\n' || ++body->line_size > CHUNK_LINE_LIMIT)
    return false;
  if (body->chunk != CHUNK_SIZE)
    return true;
  int value = hex_value(c);
  if (value < 0) {
    body->chunk = CHUNK_EXTENSION;
    return body->line_size > 1 && (c == ';' || c == ' ' || c == '\t');
  }
  if (body->line_size > 15)
    return false;
  body->left = body->left * 16 + (uint64_t)value;
  return true;
}

static ptrdiff_t take_chunked(struct http_body *body, const char *bytes, size_t length) {
  size_t used = 0;
  while (used < length && body->chunk != CHUNK_DONE) {
    if (body->chunk != CHUNK_DATA) {
      if (!take_chunk_character(body, bytes[used++]))
        return -1;
      continue;
    }
    size_t part = length - used < body->left ? length - used : (size_t)body->left;
    used += part;
    body->left -= part;
    if (body->left == 0)
      body->chunk = CHUNK_DATA_END;
  }
  return (ptrdiff_t)used;
}

ptrdiff_t http_body_take(struct http_body *body, const char *bytes, size_t length) {
  switch (body->kind) {
  case BODY_NONE:
    return 0;
  case BODY_TO_END:
    return (ptrdiff_t)length;
  case BODY_CHUNKED:
    return take_chunked(body, bytes, length);
  case BODY_LENGTH:
    break;
  }
  size_t part = length < body->left ? length : (size_t)body->left;
  body->left -= part;
  return (ptrdiff_t)part;
}
