/* What a SOCKS5 client says; see socks.h. */
#include "net/socks.h"

#include <string.h>

#include "net/address.h"

enum { VERSION = 5, METHOD_NONE = 0, COMMAND_CONNECT = 1, KIND_V4 = 1, KIND_NAME = 3, KIND_V6 = 4 };

static enum socks_result parse_greeting(const uint8_t *bytes, size_t length,
                                        struct socks_request *ret) {
  if (length < 2 || length < 2u + bytes[1])
    return SOCKS_MORE;
  ret->used = 2u + bytes[1];
  return memchr(bytes + 2, METHOD_NONE, bytes[1]) ? SOCKS_GREETED : SOCKS_NO_METHOD;
}

static size_t host_size(const uint8_t *bytes) {
  switch (bytes[3]) {
  case KIND_V4:
    return 4;
  case KIND_V6:
    return 16;
  case KIND_NAME:
    return bytes[4];
  default:
    return 0;
  }
}

enum socks_result socks_parse(const uint8_t *bytes, size_t length, bool greeted,
                              struct socks_request *ret_request) {
  if (length > 0 && bytes[0] != VERSION)
    return SOCKS_WRONG;
  if (!greeted)
    return parse_greeting(bytes, length, ret_request);
  if (length < 5)
    return SOCKS_MORE;
  bool is_name = bytes[3] == KIND_NAME;
  size_t size = host_size(bytes), start = is_name ? 5 : 4;
  if (bytes[1] != COMMAND_CONNECT || bytes[2] != 0 || (size == 0 && !is_name))
    return SOCKS_NO_COMMAND;
  if (size == 0)
    return SOCKS_WRONG;
  if (length < start + size + 2)
    return SOCKS_MORE;
  struct address address = {.family = bytes[3] == KIND_V6 ? 6 : 4};
  if (is_name) {
    memcpy(ret_request->host, bytes + start, size);
    ret_request->host_length = size;
  } else {
    memcpy(address.bytes, bytes + start, size);
    address_to_text(&address, ret_request->host);
    ret_request->host_length = strlen(ret_request->host);
  }
  ret_request->port = (uint16_t)(bytes[start + size] << 8 | bytes[start + size + 1]);
  ret_request->used = start + size + 2;
  return ret_request->port == 0 ? SOCKS_WRONG : SOCKS_REQUEST;
}
