/* The server name of a TLS ClientHello; see tls.h. RFC 8446, RFC 6066. */
#include "net/tls.h"

#include <string.h>

enum { CHANGE_CIPHER = 20, ALERT, HANDSHAKE, ENCRYPTED, HEARTBEAT }; /* records */
enum { RECORD_HEAD = 5, RECORD_LIMIT = 16384 + 2048, CLIENT_HELLO = 1, MESSAGE_HEAD = 4 };
enum { EXTENSION_SERVER_NAME = 0, EXTENSION_EARLY_DATA = 42, NAME_TYPE_HOST = 0 };

/* The handshake message put together from its records. */
struct message {
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

static size_t record_size(const uint8_t *record) {
  return (size_t)record[3] << 8 | record[4];
}

/* Whole: TLS_NAME. Nothing may follow in its last record: what a server makes of that, we do not
 * know. */
static enum tls_result check_length(const struct message *message, bool record_over) {
  if (message->length < MESSAGE_HEAD)
    return TLS_MORE;
  size_t whole = MESSAGE_HEAD + ((size_t)message->bytes[1] << 16 | (size_t)message->bytes[2] << 8 |
                                 message->bytes[3]);
  if (whole > sizeof message->bytes || message->length > whole)
    return TLS_BROKEN;
  if (message->length < whole)
    return TLS_MORE;
  return record_over ? TLS_NAME : TLS_BROKEN;
}

/* Joins the handshake bytes of all records that are there. Their version is whatever the client
 * likes: there are servers that ignore it. */
static enum tls_result join_records(struct part *records, struct message *message) {
  while (records->at < records->end) {
    size_t head = (size_t)(records->end - records->at);
    if (records->at[0] != HANDSHAKE)
      return TLS_BROKEN;
    if (head < RECORD_HEAD)
      return TLS_MORE;
    size_t size = record_size(records->at);
    if (size == 0 || size > RECORD_LIMIT)
      return TLS_BROKEN;
    size_t here = head - RECORD_HEAD < size ? head - RECORD_HEAD : size;
    if (message->length + here > sizeof message->bytes)
      return TLS_BROKEN;
    memcpy(message->bytes + message->length, records->at + RECORD_HEAD, here);
    message->length += here;
    records->at += RECORD_HEAD + here;
    enum tls_result result = check_length(message, here == size);
    if (result != TLS_MORE || here < size)
      return result;
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

static enum tls_result read_extensions(struct part extensions, struct tls_hello *ret_hello) {
  enum tls_result result = TLS_NO_NAME;
  while (extensions.at < extensions.end) {
    size_t type;
    struct part content;
    if (!take_number(&extensions, 2, &type) || !take_vector(&extensions, 2, &content))
      return TLS_BROKEN;
    if (type == EXTENSION_EARLY_DATA)
      ret_hello->early_data = true;
    if (type != EXTENSION_SERVER_NAME)
      continue;
    if (result == TLS_NAME)
      return TLS_BROKEN; /* twice */
    result = read_server_name(content, ret_hello->name);
    if (result != TLS_NAME)
      return result;
  }
  return result;
}

static enum tls_result read_message(const struct message *from, struct tls_hello *ret_hello) {
  struct part whole = {from->bytes, from->bytes + from->length};
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
  return take_vector(&message, 2, &extensions) ? read_extensions(extensions, ret_hello)
                                               : TLS_BROKEN;
}

static enum tls_result read_hello(const uint8_t *bytes, size_t length,
                                  struct tls_hello *ret_hello) {
  static _Thread_local struct message message;
  struct part records = {bytes, bytes + length};
  message.length = 0;
  *ret_hello = (struct tls_hello){.length = 0};
  enum tls_result result = join_records(&records, &message);
  ret_hello->length = (size_t)(records.at - bytes);
  return result == TLS_NAME ? read_message(&message, ret_hello) : result;
}

static bool is_record(uint8_t type) {
  return type >= CHANGE_CIPHER && type <= HEARTBEAT;
}

/* A record that is no part of a hello, but that a server may skip to find one: GnuTLS a change of
 * ciphers, OpenSSL an empty one, Java a warning and empty records, whatever version they say. MySQL
 * and MongoDB begin with the length of a message, which may have any of these bytes; then others
 * stand where the record has its length and content. */
static bool may_be_skipped(const uint8_t *bytes) {
  size_t size = record_size(bytes);
  if (size == 0)
    return is_record(bytes[RECORD_HEAD]); /* behind it */
  switch (bytes[0]) {
  case CHANGE_CIPHER:
    return size == 1 && bytes[RECORD_HEAD] == 1;
  case ALERT:
    return size == 2 && bytes[RECORD_HEAD] == 1;
  case HANDSHAKE:
    return false;
  default:
    return bytes[1] == 3 && bytes[2] > 0 && size <= RECORD_LIMIT;
  }
}

enum tls_result tls_first(const uint8_t *bytes, size_t length, struct tls_hello *ret_hello) {
  if (length == 0)
    return TLS_MORE;
  if (!is_record(bytes[0]))
    return TLS_NOT_TLS;
  if (bytes[0] == HANDSHAKE && length > 1 && bytes[1] == 3)
    return read_hello(bytes, length, ret_hello);
  if (length <= RECORD_HEAD)
    return TLS_MORE;
  if (may_be_skipped(bytes))
    return TLS_BROKEN;
  bool is_hello = bytes[0] == HANDSHAKE && record_size(bytes) > 0 &&
                  bytes[RECORD_HEAD] == CLIENT_HELLO; /* with the version of another protocol */
  return is_hello ? read_hello(bytes, length, ret_hello) : TLS_NOT_TLS;
}

/* True if the message cannot be a hello: it is another one, or encrypted (TLS 1.2 goes on where it
 * was left: then any bytes stand here, and a hello of 256 KiB, which no server takes). */
static bool is_no_hello(const uint8_t *record, size_t length) {
  size_t size = record_size(record);
  if (size == 0 || length == RECORD_HEAD)
    return false;
  if (record[RECORD_HEAD] != CLIENT_HELLO)
    return true;
  return size > 1 && length > RECORD_HEAD + 1 && record[RECORD_HEAD + 1] >= 4;
}

enum tls_result tls_next(const uint8_t *bytes, size_t length, bool early_data,
                         struct tls_hello *ret_hello) {
  if (length == 0)
    return TLS_MORE;
  if (bytes[0] == ENCRYPTED && !early_data)
    return TLS_NOT_TLS;
  if (!is_record(bytes[0]))
    return TLS_BROKEN;
  if (length < RECORD_HEAD)
    return TLS_MORE;
  if (record_size(bytes) > RECORD_LIMIT)
    return TLS_BROKEN;
  if (bytes[0] == HANDSHAKE)
    return is_no_hello(bytes, length) ? TLS_NOT_TLS : read_hello(bytes, length, ret_hello);
  *ret_hello = (struct tls_hello){.length = RECORD_HEAD + record_size(bytes)};
  return TLS_RECORD;
}
