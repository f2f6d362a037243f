/* Heads and bodies of HTTP/1 messages, as a proxy needs them. Pure, and strict: what two parsers
 * could read in two ways is refused, not guessed. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum http_result { HTTP_OK, HTTP_MORE, HTTP_WRONG };

/* How the body of a message ends. */
struct http_body {
  enum { BODY_NONE, BODY_LENGTH, BODY_CHUNKED, BODY_TO_END } kind;
  enum { CHUNK_SIZE, CHUNK_EXTENSION, CHUNK_DATA, CHUNK_DATA_END, CHUNK_TRAILER, CHUNK_DONE } chunk;
  uint64_t left; /* of the length or the chunk */
  unsigned
      line_size; /* characters of the line so far: sizes, extensions and trailers are bounded */
  bool carriage; /* the last byte was a carriage return */
};

struct http_head {
  size_t length;                 /* with the empty line at its end */
  const char *first, *first_end; /* the first line, without its end */
  const char *fields;            /* where the header fields begin */
  unsigned minor;                /* HTTP/1.minor */
  bool close;                    /* "Connection: close", or 1.0 without keep-alive */
  bool upgrade;
  struct http_body body;
};

struct http_request {
  struct http_head head;
  const char *method, *target;
  size_t method_length, target_length;
};

struct http_response {
  struct http_head head;
  unsigned status;
};

enum http_result http_request_parse(const char *bytes, size_t length, struct http_request *ret);

/* `no_body`: it answers HEAD. */
enum http_result http_response_parse(const char *bytes, size_t length, bool no_body,
                                     struct http_response *ret);

/* The next header field: name and value in place, ends with *at at the empty line. */
struct http_field {
  const char *name, *value;
  size_t name_length, value_length;
};
bool http_next_field(const char **at, struct http_field *ret_field);
bool http_field_is(const struct http_field *field, const char *name);

/* How many of the bytes belong to the body; less than given: the body is over. -1: malformed. */
ptrdiff_t http_body_take(struct http_body *body, const char *bytes, size_t length);
bool http_body_is_over(const struct http_body *body);
