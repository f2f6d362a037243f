/* libFuzzer target for the HTTP proxy: heads and bodies of requests and answers. What a head means
 * depends on the head alone, never on what follows or on how it was cut into packets, and a body
 * ends at the same byte however it comes: else two requests could be taken for one. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "net/http.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t length);

static void check_fields(const char *bytes, const struct http_head *head) {
  const char *at = head->fields, *end = bytes + head->length;
  struct http_field field;
  while (http_next_field(&at, &field)) {
    if (field.name < bytes || field.value + field.value_length > end || at > end)
      abort();
    for (size_t i = 0; i < field.value_length; i++) {
      if (memchr("\r\n", field.value[i], 3)) /* and NUL */
        abort();
    }
  }
  if (at + 2 != end)
    abort();
}

/* How many bytes belong to the body; -1: malformed. `step` at a time. */
static ptrdiff_t take_all(struct http_body body, const char *bytes, size_t length, size_t step) {
  size_t used = 0;
  while (used < length && !http_body_is_over(&body)) {
    size_t part = length - used < step ? length - used : step;
    ptrdiff_t taken = http_body_take(&body, bytes + used, part);
    if (taken < 0)
      return -1;
    if ((size_t)taken > part || ((size_t)taken < part && !http_body_is_over(&body)))
      abort();
    used += (size_t)taken;
  }
  return (ptrdiff_t)used;
}

static void check_body(const struct http_head *head, const char *bytes, size_t length) {
  const char *rest = bytes + head->length;
  size_t left = length - head->length;
  ptrdiff_t whole = take_all(head->body, rest, left, left + 1);
  if (take_all(head->body, rest, left, 1) != whole || take_all(head->body, rest, left, 7) != whole)
    abort();
}

static void check_request(const char *bytes, size_t length) {
  struct http_request request, again;
  if (http_request_parse(bytes, length, &request) != HTTP_OK)
    return;
  size_t head = request.head.length;
  if (head > length || request.target + request.target_length > request.head.first_end)
    abort();
  if (memchr(request.target, ' ', request.target_length) ||
      memchr(request.target, '\0', request.target_length))
    abort();
  check_fields(bytes, &request.head);
  check_body(&request.head, bytes, length);
  _cleanup_free_ char *alone = xstrndup(bytes, head);
  if (http_request_parse(alone, head, &again) != HTTP_OK || again.head.length != head ||
      again.head.body.kind != request.head.body.kind ||
      again.head.body.left != request.head.body.left ||
      http_request_parse(alone, head - 1, &again) != HTTP_MORE)
    abort();
}

static void check_response(const char *bytes, size_t length, bool no_body) {
  struct http_response response;
  if (http_response_parse(bytes, length, no_body, &response) != HTTP_OK)
    return;
  if (response.head.length > length || response.status > 999 ||
      (no_body && !http_body_is_over(&response.head.body)))
    abort();
  check_fields(bytes, &response.head);
  check_body(&response.head, bytes, length);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t length) {
  char *bytes = xmalloc(length + 1); /* with the NUL behind it that the parser is promised */
  memcpy(bytes, data, length);
  bytes[length] = '\0';
  check_request(bytes, length);
  check_response(bytes, length, false);
  check_response(bytes, length, true);
  free(bytes);
  return 0;
}
