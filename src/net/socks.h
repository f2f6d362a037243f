/* What a SOCKS5 client says. Pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SOCKS_LIMIT 520 /* the longest greeting and the longest request */

enum socks_result {
  SOCKS_MORE,
  SOCKS_GREETED,
  SOCKS_REQUEST,
  SOCKS_NO_METHOD,  /* none of the ways to authenticate is "none" */
  SOCKS_NO_COMMAND, /* not CONNECT, or an unknown kind of address */
  SOCKS_WRONG,
};

struct socks_request {
  size_t used;    /* bytes of the message */
  char host[256]; /* as it came: any bytes; or a literal address */
  size_t host_length;
  uint16_t port;
};

enum socks_result socks_parse(const uint8_t *bytes, size_t length, bool greeted,
                              struct socks_request *ret_request);
