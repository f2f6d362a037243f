/* The server name in the first bytes of a TLS connection. Pure; reads what a hostile workload
 * sends. */
#pragma once

#include "net/address.h"

#define TLS_HELLO_LIMIT (32 * 1024)

enum tls_result {
  TLS_NOT_TLS, /* does not begin like TLS */
  TLS_MORE,    /* so far so good; more bytes are needed */
  TLS_NO_NAME, /* a whole ClientHello without a server name */
  TLS_NAME,    /* with one */
  TLS_BROKEN,  /* begins like TLS and then is not, or has a name that is none */
};

enum tls_result tls_server_name(const uint8_t *bytes, size_t length, char ret_name[HOST_NAME_SIZE]);
