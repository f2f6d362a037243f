/* The server name of a TLS ClientHello; see tls.h. RFC 8446, RFC 6066. */
#include "net/tls.h"

#include <string.h>

enum { RECORD_HANDSHAKE = 22, CLIENT_HELLO = 1, RECORD_HEAD = 5, RECORD_LIMIT = 16384 + 256 };
enum { EXTENSION_SERVER_NAME = 0, NAME_TYPE_HOST = 0 };

/* The handshake message put together from its records. */
struct hello {
  uint8_t bytes[TLS_HELLO_LIMIT];
  size_t length;
};

struct part {
  const uint8_t *at, *end;
};

static bool take(struct part *part, size_t length, const uint8_t **ret) {
  if ((size_t)(part->end - part->at) < length)
    return false;
  *ret = part->at;
  part->at += length;
  return true;
}

static bool take_number(struct part *part, unsigned bytes, size_t *ret) {
  const uint8_t *at;
  if (!take(part, bytes, &at))
    return false;
  *ret = 0;
  for (unsigned i = 0; i < bytes; i++)
    *ret = *ret << 8 | at[i];
  return true;
}

/* A vector: its length in `bytes` bytes, then its content. */
static bool take_vector(struct part *part, unsigned bytes, struct part *ret) {
  size_t length;
  const uint8_t *at;
  if (!take_number(part, bytes, &length) || !take(part, length, &at))
    return false;
  *ret = (struct part){at, at + length};
  return true;
}

/* Joins the handshake bytes of all records that are there. */
static enum tls_result join_records(struct part records, struct hello *hello) {
  while (records.at < records.end) {
    size_t head = (size_t)(records.end - records.at);
    if (records.at[0] != RECORD_HANDSHAKE || (head > 1 && records.at[1] != 3))
      return TLS_BROKEN;
    if (head < RECORD_HEAD)
      return TLS_MORE;
    size_t size = (size_t)records.at[3] << 8 | records.at[4];
    if (size == 0 || size > RECORD_LIMIT)
      return TLS_BROKEN;
    size_t here = head - RECORD_HEAD < size ? head - RECORD_HEAD : size;
    if (hello->length + here > sizeof hello->bytes)
      return TLS_BROKEN;
    memcpy(hello->bytes + hello->length, records.at + RECORD_HEAD, here);
    hello->length += here;
    records.at += RECORD_HEAD + here;
    if (hello->length >= 4) {
      size_t message =
          (size_t)hello->bytes[1] << 16 | (size_t)hello->bytes[2] << 8 | hello->bytes[3];
      if (hello->length >= message + 4)
        return TLS_NAME; /* whole */
      if (message + 4 > sizeof hello->bytes)
        return TLS_BROKEN;
    }
    if (here < size)
      return TLS_MORE;
  }
  return TLS_MORE;
}

static enum tls_result read_server_name(struct part extension, char ret_name[HOST_NAME_SIZE]) {
  struct part list, name;
  size_t type;
  if (!take_vector(&extension, 2, &list) || extension.at != extension.end)
    return TLS_BROKEN;
  /* One name of the one type there is; more could mean different things to different servers. */
  if (!take_number(&list, 1, &type) || type != NAME_TYPE_HOST || !take_vector(&list, 2, &name) ||
      list.at != list.end)
    return TLS_BROKEN;
  return host_parse((const char *)name.at, (size_t)(name.end - name.at), ret_name) ? TLS_NAME
                                                                                   : TLS_BROKEN;
}

static enum tls_result read_extensions(struct part extensions, char ret_name[HOST_NAME_SIZE]) {
  enum tls_result result = TLS_NO_NAME;
  while (extensions.at < extensions.end) {
    size_t type;
    struct part content;
    if (!take_number(&extensions, 2, &type) || !take_vector(&extensions, 2, &content))
      return TLS_BROKEN;
    if (type != EXTENSION_SERVER_NAME)
      continue;
    if (result == TLS_NAME)
      return TLS_BROKEN; /* twice */
    result = read_server_name(content, ret_name);
    if (result != TLS_NAME)
      return result;
  }
  return result;
}

static enum tls_result read_hello(const struct hello *hello, char ret_name[HOST_NAME_SIZE]) {
  struct part whole = {hello->bytes, hello->bytes + hello->length};
  struct part message, ignored, extensions;
  const uint8_t *skipped;
  size_t type;
  if (!take_number(&whole, 1, &type) || type != CLIENT_HELLO || !take_vector(&whole, 3, &message))
    return TLS_BROKEN;
  if (!take(&message, 2 + 32, &skipped) ||   /* version, random */
      !take_vector(&message, 1, &ignored) || /* session */
      !take_vector(&message, 2, &ignored) || /* cipher suites */
      !take_vector(&message, 1, &ignored))   /* compression */
    return TLS_BROKEN;
  if (message.at == message.end)
    return TLS_NO_NAME;
  return take_vector(&message, 2, &extensions) ? read_extensions(extensions, ret_name) : TLS_BROKEN;
}

enum tls_result tls_server_name(const uint8_t *bytes, size_t length,
                                char ret_name[HOST_NAME_SIZE]) {
  static _Thread_local struct hello hello;
  if (length == 0)
    return TLS_MORE;
  /* The minor version is whatever the client likes: servers ignore it. */
  if (bytes[0] != RECORD_HANDSHAKE || (length > 1 && bytes[1] != 3))
    return TLS_NOT_TLS;
  hello.length = 0;
  enum tls_result result = join_records((struct part){bytes, bytes + length}, &hello);
  if (result != TLS_NAME)
    return result;
  return hello.bytes[0] == CLIENT_HELLO ? read_hello(&hello, ret_name) : TLS_BROKEN;
}
